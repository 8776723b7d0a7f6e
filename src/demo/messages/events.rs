//! A message as one JSON object, and as server-sent events.

use bytes::Bytes;
use serde_json::{Value, json};

use super::super::answer::{Answer, Usage, chunks};
use super::super::request::{ModelRequest, kind, text};
use super::answer::{content, message, stop_reason, usage};

/// The whole message as one JSON object.
pub fn json(answer: &Answer, request: &ModelRequest, tokens: Usage) -> Bytes {
    let usage = usage(tokens, tokens.completion);
    message(request, &content(answer, request), Some(stop_reason(answer)), usage).to_string().into()
}

/// The message as events: its start with the input's usage, its blocks, its end with the output's.
pub fn events(answer: &Answer, request: &ModelRequest, tokens: Usage) -> Vec<Bytes> {
    let mut events = vec![opening(request, tokens)];
    for (index, block) in content(answer, request).iter().enumerate() {
        let mut empty = block.clone();
        hollow(&mut empty);
        events.push(json!({"type": "content_block_start", "index": index, "content_block": empty}));
        if index == 0 {
            events.push(json!({"type": "ping"}));
        }
        let delta = |delta| json!({"type": "content_block_delta", "index": index, "delta": delta});
        events.extend(deltas(block).into_iter().map(delta));
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    let delta = json!({"stop_reason": stop_reason(answer), "stop_sequence": null});
    let usage = usage(tokens, tokens.completion);
    events.push(json!({"type": "message_delta", "delta": delta, "usage": usage}));
    events.push(json!({"type": "message_stop"}));
    events.iter().map(sse).collect()
}

/// The first event.
pub(super) fn opening(request: &ModelRequest, tokens: Usage) -> Value {
    json!({"type": "message_start", "message": message(request, &[], None, usage(tokens, 1))})
}

pub(super) fn sse(event: &Value) -> Bytes {
    format!("event: {}\ndata: {event}\n\n", kind(event)).into()
}

/// The block before its deltas came.
fn hollow(block: &mut Value) {
    let Some(members) = block.as_object_mut() else { return };
    for (key, value) in members {
        match key.as_str() {
            "text" | "thinking" | "signature" => *value = "".into(),
            "input" => *value = json!({}),
            _ => {}
        }
    }
}

fn deltas(block: &Value) -> Vec<Value> {
    let streamed = |kind: &str, key: &str, text: &str| -> Vec<Value> {
        chunks(text).map(|chunk| json!({"type": kind, key: chunk})).collect()
    };
    match kind(block) {
        "thinking" => {
            let mut deltas = streamed("thinking_delta", "thinking", text(block, "thinking"));
            deltas.push(json!({"type": "signature_delta", "signature": text(block, "signature")}));
            deltas
        }
        "text" => streamed("text_delta", "text", text(block, "text")),
        "tool_use" => {
            let input = block.get("input").map(Value::to_string).unwrap_or_default();
            let mut deltas = vec![json!({"type": "input_json_delta", "partial_json": ""})];
            deltas.extend(streamed("input_json_delta", "partial_json", &input));
            deltas
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
#[path = "../tests/messages_events.rs"]
mod tests;
