//! A request for a model's answer as a provider reads it, whichever API it speaks.

use http::HeaderMap;
use serde_json::Value;

/// The header in which the scripted agent says how many answers it already has. It is what the
/// embedded model follows, so that the script goes on whatever has become of the older turns.
pub const STEP_HEADER: &str = "x-demo-step";

/// The API that a request speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Api {
    /// OpenAI Chat Completions.
    Chat,
    /// OpenAI Responses.
    Responses,
    /// Anthropic Messages.
    Messages,
}

/// Which ids of Responses and Messages are taken (R7, A22).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ids {
    /// Also other servers'; for recorded conversations that hold them.
    Any,
    /// Those that look as the provider's own.
    Own,
}

impl Api {
    /// What its makers call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "OpenAI Chat Completions",
            Self::Responses => "OpenAI Responses",
            Self::Messages => "Anthropic Messages",
        }
    }
}

/// What is wanted of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Answer,
    /// Its tokens alone.
    Count,
}

/// A parsed request body with the head it came under.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    pub api: Api,
    pub headers: HeaderMap,
    /// The decoded body; the last of duplicate members counts, as at a real provider.
    pub body: Value,
    /// Length of the decoded body in bytes.
    pub body_len: usize,
    /// How many answers were asked for before this one.
    pub index: usize,
    /// Responses only: all input items, those that the provider holds itself first.
    pub input: Vec<Value>,
    /// How many of `input` the provider holds itself.
    pub held: usize,
}

impl ModelRequest {
    /// A Chat Completions request under an empty head.
    pub fn chat(body: Value) -> Self {
        Self { body_len: body.to_string().len(), ..Self::new(Api::Chat, body) }
    }

    /// A request under an empty head.
    pub fn new(api: Api, body: Value) -> Self {
        let input = if api == Api::Responses { input_items(&body) } else { Vec::new() };
        Self { api, headers: HeaderMap::new(), body, body_len: 0, index: 0, input, held: 0 }
    }

    pub fn model(&self) -> &str {
        self.body.get("model").and_then(Value::as_str).unwrap_or_default()
    }

    /// The conversation: messages, or input items.
    pub fn messages(&self) -> &[Value] {
        match self.api {
            Api::Chat | Api::Messages => messages(&self.body),
            Api::Responses => &self.input,
        }
    }

    /// The tools of the body's top level.
    pub fn tools(&self) -> &[Value] {
        list(&self.body, "tools")
    }

    /// The names of all tools that are offered, in whichever form.
    pub fn tool_names(&self) -> Vec<&str> {
        let added = self.messages().iter().filter(|item| kind(item) == "additional_tools");
        let tools = self.tools().iter().chain(added.flat_map(|item| list(item, "tools")));
        let tools = tools.flat_map(|tool| list(tool, "tools").iter().chain([tool]));
        tools.map(|tool| text(tool.get("function").unwrap_or(tool), "name")).collect()
    }

    pub fn stream(&self) -> bool {
        self.body.get("stream").and_then(Value::as_bool).unwrap_or_default()
    }

    pub fn include_usage(&self) -> bool {
        self.body.pointer("/stream_options/include_usage").and_then(Value::as_bool).unwrap_or_default()
    }

    /// The output limit in tokens, if one was set.
    pub fn max_output(&self) -> Option<u64> {
        let keys: &[&str] = match self.api {
            Api::Chat => &["max_completion_tokens", "max_tokens"],
            Api::Responses => &["max_output_tokens"],
            Api::Messages => &["max_tokens"],
        };
        keys.iter().find_map(|key| self.body.get(*key).and_then(Value::as_u64))
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
    list(body, "messages")
}

/// The input items that a Responses body brings itself; a string is one user message.
pub fn input_items(body: &Value) -> Vec<Value> {
    match body.get("input") {
        Some(Value::String(text)) => vec![serde_json::json!({"role": "user", "content": text})],
        Some(Value::Array(items)) => items.clone(),
        _ => Vec::new(),
    }
}

/// The elements of an array member; none when it is missing or no array.
pub fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// A string member; empty when it is missing or no string.
pub fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// A message's role; empty when it has none.
pub fn role(message: &Value) -> &str {
    text(message, "role")
}

/// The type of an item or block; empty when it has none.
pub fn kind(value: &Value) -> &str {
    text(value, "type")
}

/// A message's tool calls.
pub fn tool_calls(message: &Value) -> &[Value] {
    list(message, "tool_calls")
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
