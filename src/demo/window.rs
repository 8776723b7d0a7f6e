//! A real context limit: what a request costs, counted by the tokenizer, and whether it fits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::request::{ChatRequest, role, tool_calls};

/// Tokens that frame a message (OpenAI's published count).
const FRAME: u32 = 3;
/// Fixed price of a picture, a sound or a file, whatever its bytes.
const MEDIA: usize = 765;
/// Longest run of one character class that is encoded at once, bytes: the tokenizer's time grows
/// with the square of it.
const RUN: usize = 1_024;
/// Ids beyond the vocabulary: framing and media.
const START: u32 = 1 << 30;
const SEPARATOR: u32 = START + 1;
const MEDIA_ID: u32 = START + 2;

/// A context limit in tokens. A request that *reaches* a limit is rejected (C13).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limit {
    /// Of the prompt alone.
    pub input: Option<u64>,
    /// Of the prompt and the requested output together.
    pub total: Option<u64>,
}

impl Limit {
    /// One window for prompt and output together.
    pub fn of(total: u64) -> Self {
        Self { input: None, total: Some(total) }
    }
}

/// What a prompt consists of: one run of tokens for the tools, then one for each message.
#[derive(Debug, Clone, Default)]
pub struct Prompt {
    pub runs: Vec<Arc<[u32]>>,
    /// Tokens of the tools and schemas.
    pub tools: u64,
    /// Tokens of the messages, with their frames.
    pub messages: u64,
}

impl Prompt {
    pub fn total(&self) -> u64 {
        self.tools + self.messages
    }
}

/// Why a request does not fit. Tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misfit {
    /// The prompt alone reaches the limit.
    Overflow { input: u64, tools: u64, output: u64, limit: u64 },
    /// The prompt fits, prompt and requested output together do not.
    Budget { input: u64, tools: u64, output: u64, limit: u64 },
}

/// Whether `prompt` with `output` requested tokens (0: unset) fits into `limit`.
pub fn fits(limit: Limit, prompt: &Prompt, output: u64) -> Result<(), Misfit> {
    let (input, tools) = (prompt.total(), prompt.tools);
    let reached = |limit: &u64| input >= *limit;
    if let Some(limit) = limit.input.filter(reached).or(limit.total.filter(reached)) {
        return Err(Misfit::Overflow { input, tools, output, limit });
    }
    match limit.total {
        Some(limit) if output > 0 && input.saturating_add(output) >= limit => {
            Err(Misfit::Budget { input, tools, output, limit })
        }
        _ => Ok(()),
    }
}

/// The tokenizer, with what it has counted before.
#[derive(Debug, Default)]
pub struct Counter {
    known: Mutex<HashMap<[u8; 32], Arc<[u32]>>>,
}

impl Counter {
    /// The rendered prompt of a request: tools first, then the messages.
    pub fn prompt(&self, request: &ChatRequest) -> Prompt {
        let mut prompt = Prompt::default();
        let schemas = ["tools", "functions", "response_format"];
        let schemas = schemas.iter().filter_map(|key| request.body.get(key)).filter(|value| !value.is_null());
        for schema in schemas {
            let run = self.run(schema, &|schema, tokens| encode(&schema.to_string(), tokens));
            prompt.tools += run.len() as u64;
            prompt.runs.push(run);
        }
        for message in request.messages() {
            let run = self.run(message, &render);
            prompt.messages += run.len() as u64;
            prompt.runs.push(run);
        }
        // The opening of the answer.
        prompt.messages += u64::from(FRAME);
        prompt
    }

    fn run(&self, value: &Value, render: &dyn Fn(&Value, &mut Vec<u32>)) -> Arc<[u32]> {
        let key = *blake3::hash(value.to_string().as_bytes()).as_bytes();
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(run) = known().get(&key) {
            return run.clone();
        }
        let mut tokens = Vec::new();
        render(value, &mut tokens);
        let run: Arc<[u32]> = tokens.into();
        known().insert(key, run.clone());
        run
    }
}

/// Tokens of a text.
pub fn count(text: &str) -> u64 {
    let mut tokens = Vec::new();
    encode(text, &mut tokens);
    tokens.len() as u64
}

fn encode(text: &str, tokens: &mut Vec<u32>) {
    let tokenizer = tiktoken_rs::o200k_base_singleton();
    let mut rest = text;
    while let Some((piece, after)) = rest.split_at_checked(long_run(rest)) {
        if piece.is_empty() {
            break;
        }
        tokens.extend(tokenizer.encode_ordinary(piece));
        rest = after;
    }
}

/// Where to stop encoding: at the end of the text, or inside the first run that is too long.
fn long_run(text: &str) -> usize {
    let (mut start, mut class) = (0, None);
    for (at, letter) in text.char_indices() {
        let now = Some(letter.is_whitespace());
        if now != class {
            (start, class) = (at, now);
        } else if at - start >= RUN {
            return at;
        }
    }
    text.len()
}

fn render(message: &Value, tokens: &mut Vec<u32>) {
    tokens.extend([START, SEPARATOR, SEPARATOR]);
    encode(role(message), tokens);
    match message.get("content") {
        Some(Value::String(text)) => encode(text, tokens),
        Some(Value::Array(parts)) => parts.iter().for_each(|part| render_part(part, tokens)),
        _ => {}
    }
    for key in ["name", "reasoning_content", "refusal", "tool_call_id"] {
        if let Some(text) = message.get(key).and_then(Value::as_str) {
            encode(text, tokens);
        }
    }
    let legacy = message.get("function_call").into_iter();
    let calls = tool_calls(message).iter().filter_map(|call| call.get("function").or_else(|| call.get("custom")));
    for call in calls.chain(legacy) {
        for key in ["name", "arguments", "input"] {
            if let Some(text) = call.get(key).and_then(Value::as_str) {
                encode(text, tokens);
            }
        }
        tokens.push(SEPARATOR);
    }
}

fn render_part(part: &Value, tokens: &mut Vec<u32>) {
    if let Some(text) = part.get("text").or_else(|| part.get("refusal")).and_then(Value::as_str) {
        return encode(text, tokens);
    }
    // Its identity counts for the cache, its bytes do not count as text.
    let identity = blake3::hash(part.to_string().as_bytes());
    tokens.push(MEDIA_ID);
    tokens.extend(identity.as_bytes().iter().map(|byte| START | u32::from(*byte) << 8));
    tokens.resize(tokens.len() + MEDIA - 33, MEDIA_ID);
}

#[cfg(test)]
#[path = "tests/window.rs"]
mod tests;
