//! Accounting for a prompt cache: how much of a prompt was read from what came before.

use std::collections::HashMap;
use std::sync::Arc;

use super::window::Prompt;

/// Shortest prefix that is cached, tokens.
const LEAST: usize = 1_024;
/// Granularity of a hit, tokens.
const STEP: usize = 128;
/// Prompts that are remembered for a model; the oldest goes first.
const REMEMBERED: usize = 256;

/// The prompts of earlier requests, by model.
#[derive(Debug, Default)]
pub struct PromptCache {
    prompts: HashMap<String, Vec<Vec<Arc<[u32]>>>>,
}

impl PromptCache {
    /// How many leading tokens of `prompt` an earlier prompt of `model` began with, as billed:
    /// nothing below 1,024, whole steps of 128 above. `prompt` is remembered.
    pub fn read(&mut self, model: &str, prompt: &Prompt) -> u64 {
        let known = self.prompts.entry(model.to_owned()).or_default();
        let longest = known.iter().map(|earlier| common_prefix(earlier, &prompt.runs)).max().unwrap_or_default();
        if known.len() == REMEMBERED {
            known.remove(0);
        }
        known.push(prompt.runs.clone());
        if longest < LEAST { 0 } else { (longest - longest % STEP) as u64 }
    }
}

/// Tokens that two prompts have in common at their beginning.
fn common_prefix(a: &[Arc<[u32]>], b: &[Arc<[u32]>]) -> usize {
    let mut length = 0;
    for (a, b) in a.iter().zip(b) {
        if Arc::ptr_eq(a, b) || a == b {
            length += a.len();
            continue;
        }
        return length + a.iter().zip(b.iter()).take_while(|(a, b)| a == b).count();
    }
    length
}

#[cfg(test)]
#[path = "tests/cache.rs"]
mod tests;
