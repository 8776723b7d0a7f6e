//! An agent on Messages as the coding agents are: the model thinks, every block goes back as it came, and the
//! last breakpoint of the prompt cache moves with the conversation.

use std::collections::BTreeMap;

use http::HeaderName;
use serde_json::{Value, json};

use super::super::answer::{ToolCall, Usage};
use super::super::completion::error_message;
use super::super::request::{kind, list, text, text_of};
use super::{Ask, Client, Heard, Mode, Part, behind, elements, events};

/// Most tokens of an answer where the agent has no limit of its own: the API wants one.
const MAX_OUTPUT: u64 = 8_192;

pub(super) struct Messages;

impl Client for Messages {
    fn path(&self) -> &'static str {
        "messages"
    }

    fn list(&self) -> &'static str {
        "messages"
    }

    fn credential(&self, key: &str) -> Vec<(HeaderName, String)> {
        let header = |name, value: &str| (HeaderName::from_static(name), value.to_owned());
        vec![header("x-api-key", key), header("anthropic-version", "2023-06-01")]
    }

    fn user(&self, text: &str) -> Value {
        json!({"role": "user", "content": [{"type": "text", "text": text}]})
    }

    /// One message for all: results must stand first, and in the message behind their calls.
    fn results(&self, results: &[(&ToolCall, String)]) -> Vec<Value> {
        let result = |(call, text): &(&ToolCall, String)| json!({"type": "tool_result", "tool_use_id": call.id, "content": text});
        vec![json!({"role": "user", "content": results.iter().map(result).collect::<Vec<_>>()})]
    }

    fn body(&self, ask: &Ask) -> String {
        let system = json!([{"type": "text", "text": ask.session.system, "cache_control": breakpoint()}]);
        let head = json!({
            "model": ask.model,
            "max_tokens": ask.max_output.unwrap_or(MAX_OUTPUT),
            "system": system,
            "tools": elements(&ask.session.tools).iter().map(tool).collect::<Vec<_>>(),
            "thinking": {"type": "adaptive"},
            "stream": ask.mode == Mode::Stream,
        });
        let Some((last, earlier)) = ask.history.split_last() else { return behind(&head, self.list(), &[]) };
        behind(&head, self.list(), &[earlier, &[marked(last)]].concat())
    }

    fn read_whole(&self, body: &[u8]) -> Result<Heard, String> {
        let message: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        if kind(&message) == "message" {
            Ok(heard(list(&message, "content").to_vec(), &message, &message))
        } else {
            Err(error_message(body))
        }
    }

    fn read_stream(&self, body: &[u8]) -> Result<Heard, String> {
        let events = events(body)?;
        let (mut blocks, mut start, mut end) = (BTreeMap::new(), &Value::Null, &Value::Null);
        for event in &events {
            let index = event.get("index").and_then(Value::as_u64).unwrap_or_default();
            match kind(event) {
                "message_start" => start = event.get("message").unwrap_or(start),
                "content_block_start" => {
                    blocks.insert(index, Block::begun(event));
                }
                "content_block_delta" => blocks.get_mut(&index).ok_or("a delta without its block")?.take(event),
                "message_delta" => end = event,
                "error" => return Err(error_message(event.to_string().as_bytes())),
                _ => {}
            }
        }
        if events.last().is_none_or(|last| kind(last) != "message_stop") || end.pointer("/delta/stop_reason").is_none()
        {
            return Err("the stream has no end".to_owned());
        }
        let content = blocks.into_values().map(Block::whole).collect::<Result<Vec<_>, _>>()?;
        Ok(heard(content, start, end))
    }

    fn parts(&self, item: &Value) -> Vec<Part> {
        let part = |block: &Value| match kind(block) {
            "tool_use" => Some(Part::Call {
                id: text(block, "id").to_owned(),
                tool: text(block, "name").to_owned(),
                arguments: block.get("input").map(Value::to_string).unwrap_or_default(),
            }),
            "tool_result" => Some(Part::Result { id: text(block, "tool_use_id").to_owned(), text: text_of(block) }),
            _ => None,
        };
        list(item, "content").iter().filter_map(part).collect()
    }

    fn stamps(&self) -> &'static [&'static str] {
        &["signature"]
    }

    fn thought(&self) -> Option<&'static str> {
        Some("thinking")
    }
}

fn breakpoint() -> Value {
    json!({"type": "ephemeral"})
}

/// A message with a breakpoint on its last block.
fn marked(message: &str) -> String {
    let mut parsed: Value = serde_json::from_str(message).unwrap_or_default();
    let blocks = parsed.get_mut("content").and_then(Value::as_array_mut);
    if let Some(block) = blocks.and_then(|blocks| blocks.last_mut()?.as_object_mut()) {
        block.insert("cache_control".to_owned(), breakpoint());
    }
    parsed.to_string()
}

/// A block of which the rest is still to come.
struct Block {
    block: Value,
    /// The JSON of a call's input.
    input: String,
}

impl Block {
    fn begun(event: &Value) -> Self {
        Self { block: event.get("content_block").cloned().unwrap_or_default(), input: String::new() }
    }

    fn take(&mut self, event: &Value) {
        let delta = event.get("delta").unwrap_or(&Value::Null);
        self.input.push_str(text(delta, "partial_json"));
        for key in ["text", "thinking", "signature"] {
            if let Some(Value::String(so_far)) = self.block.get_mut(key) {
                so_far.push_str(text(delta, key));
            }
        }
    }

    fn whole(mut self) -> Result<Value, String> {
        if let (false, Some(input)) = (self.input.is_empty(), self.block.get_mut("input")) {
            *input = serde_json::from_str(&self.input).map_err(|error| error.to_string())?;
        }
        Ok(self.block)
    }
}

/// `start` has the input's usage, `end` the output's.
fn heard(content: Vec<Value>, start: &Value, end: &Value) -> Heard {
    let calls = content.iter().filter(|block| kind(block) == "tool_use").map(|block| ToolCall {
        id: text(block, "id").to_owned(),
        name: text(block, "name").to_owned(),
        arguments: block.get("input").map(Value::to_string).unwrap_or_default(),
    });
    let number = |from: &Value, key: &str| from.pointer(&format!("/usage/{key}")).and_then(Value::as_u64);
    let input = |key: &str| number(start, key).unwrap_or_default();
    let (cached, written) = (input("cache_read_input_tokens"), input("cache_creation_input_tokens"));
    let usage = Usage {
        prompt: input("input_tokens") + cached + written,
        cached,
        written,
        completion: number(end, "output_tokens").unwrap_or_default(),
    };
    Heard { calls: calls.collect(), usage, items: vec![json!({"role": "assistant", "content": content})] }
}

/// A tool, from the form that Chat Completions has for it.
fn tool(tool: &Value) -> Value {
    let function = tool.get("function").unwrap_or(tool);
    json!({
        "name": function.get("name"),
        "description": function.get("description"),
        "input_schema": function.get("parameters"),
    })
}
