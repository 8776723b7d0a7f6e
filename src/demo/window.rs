//! A real context limit: what a request costs, counted by the tokenizer, and whether it fits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::render::{self, encode};
use super::request::{Api, ModelRequest};

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

    /// A limit that is first reached where this one is passed.
    pub(super) fn and_one(self) -> Self {
        let more = |limit: Option<u64>| limit.map(|limit| limit.saturating_add(1));
        Self { input: more(self.input), total: more(self.total) }
    }
}

/// What a prompt consists of: runs of tokens for tools and instructions, then for each message or block.
#[derive(Debug, Clone, Default)]
pub struct Prompt {
    pub runs: Vec<Arc<[u32]>>,
    /// Tokens of the tools and schemas.
    pub tools: u64,
    /// Tokens of all else, with its frames.
    pub messages: u64,
    /// After how many runs the client set a cache breakpoint (Messages), ascending.
    pub breakpoints: Vec<usize>,
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

impl Misfit {
    /// The same against [`Limit::and_one`]'s origin.
    pub(super) fn less_one(mut self) -> Self {
        let (Self::Overflow { limit, .. } | Self::Budget { limit, .. }) = &mut self;
        *limit = limit.saturating_sub(1);
        self
    }
}

/// Whether `prompt` with `output` requested tokens (0: unset) fits into `limit`, which must not be reached.
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
    /// The rendered prompt of a request: tools first, then instructions and the conversation.
    pub fn prompt(&self, request: &ModelRequest) -> Prompt {
        let mut prompt = Prompt::default();
        match request.api {
            Api::Chat => self.chat(request, &mut prompt),
            Api::Responses => self.responses(request, &mut prompt),
            Api::Messages => self.blocks(request, &mut prompt),
        }
        // The opening of the answer.
        prompt.messages += u64::from(render::FRAME);
        prompt
    }

    fn chat(&self, request: &ModelRequest, prompt: &mut Prompt) {
        self.tools(request, &["tools", "functions", "response_format"], prompt);
        for message in request.messages() {
            self.message("chat", message, &render::chat, prompt);
        }
    }

    fn responses(&self, request: &ModelRequest, prompt: &mut Prompt) {
        self.tools(request, &["tools", "text"], prompt);
        if let Some(instructions) = request.body.get("instructions").filter(|value| !value.is_null()) {
            self.message("item", instructions, &render::framed, prompt);
        }
        for item in request.messages() {
            self.message("item", item, &render::framed, prompt);
        }
    }

    /// One run for each block, so that a breakpoint can stand behind any.
    fn blocks(&self, request: &ModelRequest, prompt: &mut Prompt) {
        for tool in request.tools() {
            prompt.tools += self.block("tool", tool, prompt);
        }
        for (role, content) in render::contents(&request.body) {
            let mut opening = "opening";
            for block in render::blocks(content) {
                prompt.messages += self.block(if opening.is_empty() { "block" } else { role }, &block, prompt);
                opening = "";
            }
        }
        if request.body.get("cache_control").is_some_and(Value::is_object) {
            prompt.breakpoints.push(prompt.runs.len());
        }
    }

    fn block(&self, place: &str, block: &Value, prompt: &mut Prompt) -> u64 {
        let opens = !matches!(place, "block" | "tool");
        let render: &dyn Fn(&Value, &mut Vec<u32>) = if opens { &render::framed } else { &render::item };
        let run = self.run(place, &render::unmarked(block), render);
        let tokens = run.len() as u64;
        prompt.runs.push(run);
        if render::marked(block) {
            prompt.breakpoints.push(prompt.runs.len());
        }
        tokens
    }

    fn tools(&self, request: &ModelRequest, keys: &[&str], prompt: &mut Prompt) {
        let schemas = keys.iter().filter_map(|key| request.body.get(*key)).filter(|value| !value.is_null());
        for schema in schemas {
            let run = self.run("schema", schema, &|schema, tokens| encode(&schema.to_string(), tokens));
            prompt.tools += run.len() as u64;
            prompt.runs.push(run);
        }
    }

    fn message(&self, place: &str, message: &Value, render: &dyn Fn(&Value, &mut Vec<u32>), prompt: &mut Prompt) {
        let run = self.run(place, message, render);
        prompt.messages += run.len() as u64;
        prompt.runs.push(run);
    }

    /// `place` and `value` together decide what `render` makes of it.
    fn run(&self, place: &str, value: &Value, render: &dyn Fn(&Value, &mut Vec<u32>)) -> Arc<[u32]> {
        let key = *blake3::hash(format!("{place}{value}").as_bytes()).as_bytes();
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

#[cfg(test)]
#[path = "tests/window.rs"]
mod tests;
