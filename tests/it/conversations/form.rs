//! The three forms that conversations are written down in, and how each is asked and answered.

use bytes::Bytes;
use compactproxy::demo::request::{Api, kind, role};
use serde_json::Value;

/// One of the three APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    #[default]
    Chat,
    Responses,
    Messages,
}

impl Form {
    pub fn api(self) -> Api {
        match self {
            Self::Chat => Api::Chat,
            Self::Responses => Api::Responses,
            Self::Messages => Api::Messages,
        }
    }

    /// The name of its folder among the recorded conversations.
    pub fn folder(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Messages => "anthropic",
        }
    }

    pub fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
        }
    }

    /// The member that holds the conversation.
    pub fn array(self) -> &'static str {
        match self {
            Self::Chat | Self::Messages => "messages",
            Self::Responses => "input",
        }
    }

    /// Members of a document that its requests have, beside the conversation.
    pub fn members(self) -> &'static [&'static str] {
        match self {
            Self::Chat => &["tools"],
            Self::Responses => &["instructions", "tools", "tool_choice", "reasoning", "include", "text", "store"],
            Self::Messages => &["thinking", "tools", "tool_choice", "system"],
        }
    }

    /// What every request has more, as JSON members.
    pub fn settings(self) -> &'static str {
        match self {
            Self::Chat => r#""stream":true,"stream_options":{"include_usage":true}"#,
            Self::Responses => r#""stream":true"#,
            Self::Messages => r#""max_tokens":1280,"stream":true"#,
        }
    }

    /// Tokens of output that every request asks for.
    pub fn output(self) -> u64 {
        if self == Self::Messages { 1_280 } else { 0 }
    }

    /// Whether a streamed answer came to its end.
    pub fn complete(self, answer: &[u8]) -> bool {
        let last = match self {
            Self::Chat => return answer.ends_with(b"data: [DONE]\n\n"),
            Self::Responses => r#""type":"response.completed""#,
            Self::Messages => r#""type":"message_stop""#,
        };
        let events = String::from_utf8_lossy(answer);
        events.ends_with("\n\n") && events.trim_end().lines().next_back().is_some_and(|line| line.contains(last))
    }

    /// Whether the model made the item, as part of an answer.
    pub fn by_model(self, item: &Value) -> bool {
        const MADE: [&str; 5] = ["reasoning", "compaction", "program", "mcp_list_tools", "mcp_approval_request"];
        let called = || MADE.contains(&kind(item)) || kind(item).ends_with("_call");
        role(item) == "assistant" || self == Self::Responses && called()
    }

    /// Whether the item is a message of the system's or the developer's.
    pub fn by_system(self, item: &Value) -> bool {
        ["system", "developer"].contains(&role(item))
    }
}

/// An item as JSON.
pub fn parsed(item: &str) -> Value {
    serde_json::from_str(item).unwrap_or_default()
}

/// Tokens of a body, as the provider counts them.
pub fn tokens(form: Form, body: &Bytes) -> u64 {
    use compactproxy::demo::request::ModelRequest;
    use compactproxy::demo::window::Counter;
    Counter::default().prompt(&ModelRequest::new(form.api(), serde_json::from_slice(body).unwrap())).total()
}
