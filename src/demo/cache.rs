//! Accounting for a prompt cache: how much of a prompt was read from what came before.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::window::Prompt;

/// Shortest prefix that is cached, tokens.
const LEAST: usize = 1_024;
/// Granularity of a hit, tokens.
const STEP: usize = 128;
/// Prompts that are remembered for a model; the oldest goes first.
const REMEMBERED: usize = 256;
/// Runs before a breakpoint among which an earlier entry is looked for.
const LOOKBACK: usize = 20;

/// The prompts of earlier requests, by model.
#[derive(Debug, Default)]
pub struct PromptCache {
    prompts: HashMap<String, Vec<Vec<Arc<[u32]>>>>,
    /// Hashes of the prefixes that ended at a breakpoint.
    entries: HashMap<String, HashSet<blake3::Hash>>,
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

    /// How many tokens of `prompt` were read, and how many written, where only the client's breakpoints
    /// count: an entry is read when it ends at most [`LOOKBACK`] runs before a breakpoint, and all up to
    /// the last breakpoint is written. Prefixes below 1,024 tokens are neither.
    pub fn read_marked(&mut self, model: &str, prompt: &Prompt) -> (u64, u64) {
        let entries = self.entries.entry(model.to_owned()).or_default();
        let prefixes = prefixes(prompt);
        let reachable =
            |runs: usize| prompt.breakpoints.iter().any(|breakpoint| (runs..runs + LOOKBACK).contains(breakpoint));
        let known = prefixes.iter().enumerate().filter(|(i, (_, hash))| reachable(i + 1) && entries.contains(hash));
        let read = known.map(|(_, (tokens, _))| *tokens).max().unwrap_or_default();
        let marked = prompt.breakpoints.iter().filter_map(|runs| prefixes.get(runs.checked_sub(1)?));
        let long: Vec<_> = marked.filter(|(tokens, _)| *tokens >= LEAST).collect();
        let end = long.iter().map(|(tokens, _)| *tokens).max().unwrap_or_default();
        entries.extend(long.iter().map(|(_, hash)| *hash));
        (read as u64, end.saturating_sub(read) as u64)
    }
}

/// Of each prefix of whole runs the tokens and the hash.
fn prefixes(prompt: &Prompt) -> Vec<(usize, blake3::Hash)> {
    let mut hasher = blake3::Hasher::new();
    let mut length = 0;
    let prefixes = prompt.runs.iter().map(|run| {
        length += run.len();
        hasher.update(&run.len().to_le_bytes());
        run.iter().for_each(|token| {
            hasher.update(&token.to_le_bytes());
        });
        (length, hasher.finalize())
    });
    prefixes.collect()
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
