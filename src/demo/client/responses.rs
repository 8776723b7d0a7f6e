//! An agent on Responses that keeps nothing at the provider: it sends all items back with every call, reasoning
//! with its encrypted content among them.

use serde_json::{Value, json};

use super::super::answer::{ToolCall, Usage};
use super::super::completion::error_message;
use super::super::request::{kind, list, text};
use super::{Ask, Client, Heard, Mode, Part, behind, elements, events};

pub(super) struct Responses;

impl Client for Responses {
    fn path(&self) -> &'static str {
        "responses"
    }

    fn list(&self) -> &'static str {
        "input"
    }

    fn user(&self, text: &str) -> Value {
        json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
    }

    fn results(&self, results: &[(&ToolCall, String)]) -> Vec<Value> {
        let result = |(call, text): &(&ToolCall, String)| json!({"type": "function_call_output", "call_id": call.id, "output": text});
        results.iter().map(result).collect()
    }

    fn body(&self, ask: &Ask) -> String {
        let mut head = json!({
            "model": ask.model,
            "instructions": ask.session.system,
            "tools": elements(&ask.session.tools).iter().map(tool).collect::<Vec<_>>(),
            "parallel_tool_calls": true,
            "reasoning": {"effort": "medium", "summary": "auto"},
            "include": ["reasoning.encrypted_content"],
            "store": false,
            "stream": ask.mode == Mode::Stream,
        });
        if let Some(members) = head.as_object_mut() {
            members.extend(ask.max_output.map(|most| ("max_output_tokens".to_owned(), most.into())));
        }
        behind(&head, self.list(), ask.history)
    }

    fn read_whole(&self, body: &[u8]) -> Result<Heard, String> {
        let response: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        heard(&response)
    }

    fn read_stream(&self, body: &[u8]) -> Result<Heard, String> {
        let mut items = Vec::new();
        let events = events(body)?;
        for event in &events {
            match kind(event) {
                "response.output_item.done" => items.extend(event.get("item").cloned()),
                "error" => return Err(error_message(event.to_string().as_bytes())),
                _ => {}
            }
        }
        let last = events.last().and_then(|event| event.get("response")).ok_or("the stream has no end")?;
        let heard = heard(last)?;
        if heard.items == items { Ok(heard) } else { Err("the items are not those of the response".to_owned()) }
    }

    fn parts(&self, item: &Value) -> Vec<Part> {
        let id = text(item, "call_id").to_owned();
        match kind(item) {
            "function_call" => {
                let (tool, arguments) = (text(item, "name").to_owned(), text(item, "arguments").to_owned());
                vec![Part::Call { id, tool, arguments }]
            }
            "custom_tool_call" => {
                let (tool, arguments) = (text(item, "name").to_owned(), text(item, "input").to_owned());
                vec![Part::Call { id, tool, arguments }]
            }
            "function_call_output" | "custom_tool_call_output" => vec![Part::Result { id, text: output(item) }],
            _ => Vec::new(),
        }
    }

    fn stamps(&self) -> &'static [&'static str] {
        &["id", "encrypted_content"]
    }

    fn thought(&self) -> Option<&'static str> {
        Some("reasoning")
    }
}

/// A result's text: its string, or its parts one after the other.
fn output(item: &Value) -> String {
    match item.get("output") {
        Some(Value::String(text)) => text.clone(),
        Some(parts) => elements(parts).iter().map(|part| text(part, "text")).collect::<Vec<_>>().join("\n"),
        None => String::new(),
    }
}

fn heard(response: &Value) -> Result<Heard, String> {
    if text(response, "status") != "completed" {
        return Err(error_message(response.to_string().as_bytes()));
    }
    let items = list(response, "output").to_vec();
    let calls = items.iter().filter(|item| kind(item) == "function_call").map(|item| ToolCall {
        id: text(item, "call_id").to_owned(),
        name: text(item, "name").to_owned(),
        arguments: text(item, "arguments").to_owned(),
    });
    let number = |path: &str| response.pointer(path).and_then(Value::as_u64).unwrap_or_default();
    let usage = Usage {
        prompt: number("/usage/input_tokens"),
        cached: number("/usage/input_tokens_details/cached_tokens"),
        completion: number("/usage/output_tokens"),
        ..Usage::default()
    };
    Ok(Heard { calls: calls.collect(), items, usage })
}

/// A tool, from the form that Chat Completions has for it.
fn tool(tool: &Value) -> Value {
    let function = tool.get("function").unwrap_or(tool);
    json!({
        "type": "function",
        "name": function.get("name"),
        "description": function.get("description"),
        "parameters": function.get("parameters"),
        "strict": false,
    })
}
