//! A Chat Completions request as a provider reads it.

use http::HeaderMap;
use serde_json::Value;

/// The header in which the scripted agent says how many answers it already has. It is what the
/// embedded model follows, so that the script goes on whatever has become of the older turns.
pub const STEP_HEADER: &str = "x-demo-step";

/// A parsed request body with the head it came under.
#[derive(Debug, Clone)]
pub struct ChatRequest {
    pub headers: HeaderMap,
    /// The decoded body; the last of duplicate members counts, as at a real provider.
    pub body: Value,
    /// Length of the decoded body in bytes.
    pub body_len: usize,
    /// How many completions were asked for before this one.
    pub index: usize,
}

impl ChatRequest {
    pub fn model(&self) -> &str {
        self.body.get("model").and_then(Value::as_str).unwrap_or_default()
    }

    pub fn messages(&self) -> &[Value] {
        messages(&self.body)
    }

    pub fn stream(&self) -> bool {
        self.body.get("stream").and_then(Value::as_bool).unwrap_or_default()
    }

    pub fn include_usage(&self) -> bool {
        self.body.pointer("/stream_options/include_usage").and_then(Value::as_bool).unwrap_or_default()
    }

    /// The output limit in tokens, if one was set.
    pub fn max_output(&self) -> Option<u64> {
        ["max_completion_tokens", "max_tokens"].iter().find_map(|key| self.body.get(key).and_then(Value::as_u64))
    }

    /// How many answers the agent already has, by [`STEP_HEADER`].
    pub fn step(&self) -> Option<usize> {
        self.headers.get(STEP_HEADER)?.to_str().ok()?.parse().ok()
    }

    /// Text of the last message, if a user wrote it.
    pub fn last_user_text(&self) -> Option<String> {
        self.messages().last().filter(|message| role(message) == "user").map(text_of)
    }

    /// All texts of all messages, one after the other.
    pub fn all_text(&self) -> String {
        self.messages().iter().map(text_of).collect::<Vec<_>>().join("\n")
    }
}

/// The conversation of a body; empty when it has none.
pub fn messages(body: &Value) -> &[Value] {
    body.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// A message's role; empty when it has none.
pub fn role(message: &Value) -> &str {
    message.get("role").and_then(Value::as_str).unwrap_or_default()
}

/// A message's tool calls.
pub fn tool_calls(message: &Value) -> &[Value] {
    message.get("tool_calls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The text of a message: its string, or its text parts one after the other.
pub fn text_of(message: &Value) -> String {
    match message.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}
