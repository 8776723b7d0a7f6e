//! What the three APIs look like: the one place that knows their requests and answers. Every text that is given
//! here is escaped for JSON already.

use crate::bodies::Shape;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Api {
    Chat,
    Responses,
    Messages,
}

/// What a conversation consists of.
pub enum Item<'a> {
    User(&'a str),
    Assistant(&'a str),
    /// `arguments` is an object whose strings need no escaping.
    Call {
        id: &'a str,
        say: &'a str,
        tool: &'a str,
        arguments: &'a str,
    },
    Result {
        id: &'a str,
        text: &'a str,
    },
}

/// A streamed answer of 50 or so tokens to a body of 2 KB.
pub struct Stream {
    /// The events before the first piece of text; empty where there are none.
    pub opening: &'static str,
    /// One piece of text.
    pub event: &'static str,
    pub closing: &'static str,
}

const SYSTEM: &str = "You are a coding agent. Work step by step.";

impl Api {
    pub const ALL: [Self; 3] = [Self::Chat, Self::Responses, Self::Messages];

    /// As `--api` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Messages => "messages",
        }
    }

    pub fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
        }
    }

    pub fn headers(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Chat | Self::Responses => &[("authorization", "Bearer sk-envelope")],
            Self::Messages => &[("x-api-key", "sk-ant-envelope"), ("anthropic-version", "2023-06-01")],
        }
    }

    /// A body up to its first user message; more items follow behind commas, then [`Self::last_message`].
    pub fn opening(self, model: &str, shape: Shape, first: &str) -> String {
        let first = self.item(&Item::User(first));
        match self {
            Self::Chat => {
                format!(r#"{{"model":"{model}","messages":[{{"role":"system","content":"{SYSTEM}"}},{first}"#)
            }
            Self::Responses => {
                let store = if shape == Shape::Recorded { "" } else { r#""store":false,"# };
                format!(r#"{{"model":"{model}",{store}"instructions":"{SYSTEM}","input":[{first}"#)
            }
            Self::Messages => {
                let system = format!(r#"[{{"type":"text","text":"{SYSTEM}"}}]"#);
                format!(r#"{{"model":"{model}","max_tokens":4096,"system":{system},"messages":[{first}"#)
            }
        }
    }

    /// One item as JSON, or what the API makes of it: several items behind each other.
    pub fn item(self, item: &Item<'_>) -> String {
        match self {
            Self::Chat => chat_item(item),
            Self::Responses => responses_item(item),
            Self::Messages => messages_item(item),
        }
    }

    /// The user message that closes a body.
    pub fn last_message(self, text: &str) -> String {
        match self {
            Self::Chat | Self::Responses => format!(",{}]}}", self.item(&Item::User(text))),
            Self::Messages => {
                let mark = r#""cache_control":{"type":"ephemeral"}"#;
                format!(r#",{{"role":"user","content":[{{"type":"text","text":"{text}",{mark}}}]}}]}}"#)
            }
        }
    }

    /// A whole answer. `nth` makes its id one of its own.
    pub fn answer(self, nth: u64, prompt_tokens: usize, text: &str) -> String {
        let total = prompt_tokens + 150;
        match self {
            Self::Chat => format!(
                concat!(
                    r#"{{"id":"chatcmpl-{}","object":"chat.completion","created":1750000000,"model":"bench","#,
                    r#""choices":[{{"index":0,"message":{{"role":"assistant","content":"{}","refusal":null}},"#,
                    r#""logprobs":null,"finish_reason":"stop"}}],"usage":{{"prompt_tokens":{},"#,
                    r#""completion_tokens":150,"total_tokens":{}}},"system_fingerprint":"fp_0"}}"#
                ),
                nth, text, prompt_tokens, total
            ),
            Self::Responses => format!(
                concat!(
                    r#"{{"id":"resp_{}","object":"response","created_at":1750000000,"status":"completed","#,
                    r#""error":null,"incomplete_details":null,"model":"bench","output":[{{"id":"msg_{}","#,
                    r#""type":"message","status":"completed","role":"assistant","content":[{{"type":"output_text","#,
                    r#""annotations":[],"logprobs":[],"text":"{}"}}]}}],"usage":{{"input_tokens":{},"#,
                    r#""input_tokens_details":{{"cached_tokens":0}},"output_tokens":150,"#,
                    r#""output_tokens_details":{{"reasoning_tokens":0}},"total_tokens":{}}},"metadata":{{}}}}"#
                ),
                nth, nth, text, prompt_tokens, total
            ),
            Self::Messages => format!(
                concat!(
                    r#"{{"id":"msg_{}","type":"message","role":"assistant","model":"bench","content":[{{"#,
                    r#""type":"text","text":"{}"}}],"stop_reason":"end_turn","stop_sequence":null,"usage":{{"#,
                    r#""input_tokens":{},"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"#,
                    r#""output_tokens":150}}}}"#
                ),
                nth, text, prompt_tokens
            ),
        }
    }

    pub fn stream(self) -> Stream {
        match self {
            Self::Chat => CHAT_STREAM,
            Self::Responses => RESPONSES_STREAM,
            Self::Messages => MESSAGES_STREAM,
        }
    }
}

fn chat_item(item: &Item<'_>) -> String {
    match item {
        Item::User(text) => format!(r#"{{"role":"user","content":"{text}"}}"#),
        Item::Assistant(text) => format!(r#"{{"role":"assistant","content":"{text}"}}"#),
        Item::Call { id, say, tool, arguments } => {
            let function = format!(r#"{{"name":"{tool}","arguments":"{}"}}"#, quotable(arguments));
            let call = format!(r#"{{"id":"call_{id}","type":"function","function":{function}}}"#);
            format!(r#"{{"role":"assistant","content":"{say}","tool_calls":[{call}]}}"#)
        }
        Item::Result { id, text } => {
            format!(r#"{{"role":"tool","tool_call_id":"call_{id}","content":"{text}"}}"#)
        }
    }
}

fn responses_item(item: &Item<'_>) -> String {
    let message = |role: &str, part: &str| format!(r#"{{"type":"message","role":"{role}","content":[{part}]}}"#);
    let output = |text: &str| format!(r#"{{"type":"output_text","text":"{text}","annotations":[]}}"#);
    match item {
        Item::User(text) => message("user", &format!(r#"{{"type":"input_text","text":"{text}"}}"#)),
        Item::Assistant(text) => message("assistant", &output(text)),
        Item::Call { id, say, tool, arguments } => {
            let said = message("assistant", &output(say));
            let arguments = quotable(arguments);
            let call = format!(r#""type":"function_call","call_id":"call_{id}","name":"{tool}""#);
            format!(r#"{said},{{{call},"arguments":"{arguments}"}}"#)
        }
        Item::Result { id, text } => {
            format!(r#"{{"type":"function_call_output","call_id":"call_{id}","output":"{text}"}}"#)
        }
    }
}

fn messages_item(item: &Item<'_>) -> String {
    let message = |role: &str, blocks: &str| format!(r#"{{"role":"{role}","content":[{blocks}]}}"#);
    let block = |text: &str| format!(r#"{{"type":"text","text":"{text}"}}"#);
    match item {
        Item::User(text) => message("user", &block(text)),
        Item::Assistant(text) => message("assistant", &block(text)),
        Item::Call { id, say, tool, arguments } => {
            let call = format!(r#"{{"type":"tool_use","id":"toolu_{id}","name":"{tool}","input":{arguments}}}"#);
            message("assistant", &format!("{},{call}", block(say)))
        }
        Item::Result { id, text } => {
            message("user", &format!(r#"{{"type":"tool_result","tool_use_id":"toolu_{id}","content":"{text}"}}"#))
        }
    }
}

/// An object as the content of a JSON string.
fn quotable(arguments: &str) -> String {
    arguments.replace('"', "\\\"")
}

const CHAT_STREAM: Stream = Stream {
    opening: "",
    event: concat!(
        r#"data: {"id":"chatcmpl-envelope","object":"chat.completion.chunk","created":1750000000,"model":"bench","#,
        r#""system_fingerprint":"fp_0","choices":[{"index":0,"delta":{"content":" another"},"logprobs":null,"#,
        r#""finish_reason":null}]}"#,
        "\n\n"
    ),
    closing: concat!(
        r#"data: {"id":"chatcmpl-envelope","object":"chat.completion.chunk","created":1750000000,"model":"bench","#,
        r#""choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}"#,
        "\n\ndata: [DONE]\n\n"
    ),
};

const RESPONSES_STREAM: Stream = Stream {
    opening: concat!(
        "event: response.created\n",
        r#"data: {"type":"response.created","response":{"id":"resp_envelope","object":"response","#,
        r#""created_at":1750000000,"status":"in_progress","error":null,"model":"bench","output":[],"usage":null},"#,
        r#""sequence_number":0}"#,
        "\n\nevent: response.output_item.added\n",
        r#"data: {"type":"response.output_item.added","output_index":0,"item":{"id":"msg_envelope","type":"message","#,
        r#""status":"in_progress","role":"assistant","content":[]},"sequence_number":1}"#,
        "\n\nevent: response.content_part.added\n",
        r#"data: {"type":"response.content_part.added","item_id":"msg_envelope","output_index":0,"content_index":0,"#,
        r#""part":{"type":"output_text","annotations":[],"logprobs":[],"text":""},"sequence_number":2}"#,
        "\n\n"
    ),
    event: concat!(
        "event: response.output_text.delta\n",
        r#"data: {"type":"response.output_text.delta","item_id":"msg_envelope","output_index":0,"content_index":0,"#,
        r#""delta":" another","logprobs":[],"sequence_number":3}"#,
        "\n\n"
    ),
    closing: concat!(
        "event: response.output_item.done\n",
        r#"data: {"type":"response.output_item.done","output_index":0,"item":{"id":"msg_envelope","type":"message","#,
        r#""status":"completed","role":"assistant","content":[{"type":"output_text","annotations":[],"logprobs":[],"#,
        r#""text":" another"}]},"sequence_number":4}"#,
        "\n\nevent: response.completed\n",
        r#"data: {"type":"response.completed","response":{"id":"resp_envelope","object":"response","#,
        r#""created_at":1750000000,"status":"completed","error":null,"model":"bench","output":[{"id":"msg_envelope","#,
        r#""type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","#,
        r#""annotations":[],"logprobs":[],"text":" another"}]}],"usage":{"input_tokens":512,"#,
        r#""input_tokens_details":{"cached_tokens":0},"output_tokens":50,"#,
        r#""output_tokens_details":{"reasoning_tokens":0},"total_tokens":562}},"sequence_number":5}"#,
        "\n\n"
    ),
};

const MESSAGES_STREAM: Stream = Stream {
    opening: concat!(
        "event: message_start\n",
        r#"data: {"type":"message_start","message":{"id":"msg_envelope","type":"message","role":"assistant","#,
        r#""model":"bench","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":512,"#,
        r#""cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":1}}}"#,
        "\n\nevent: content_block_start\n",
        r#"data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        "\n\n"
    ),
    event: concat!(
        "event: content_block_delta\n",
        r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" another"}}"#,
        "\n\n"
    ),
    closing: concat!(
        "event: content_block_stop\n",
        r#"data: {"type":"content_block_stop","index":0}"#,
        "\n\nevent: message_delta\n",
        r#"data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"#,
        r#""usage":{"output_tokens":50}}"#,
        "\n\nevent: message_stop\n",
        r#"data: {"type":"message_stop"}"#,
        "\n\n"
    ),
};
