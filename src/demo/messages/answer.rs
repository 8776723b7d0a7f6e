//! A model's answer as the blocks that Messages gives out.

use serde_json::{Value, json};

use super::super::answer::{Answer, ToolCall, Usage};
use super::super::request::ModelRequest;
use super::rules::thinks;
use super::signatures::sign;

/// What the model thinks where the script does not say.
const THOUGHT: &str = "I look at what has come back and decide what is next.";

/// The content of an answer: signed thinking where it is switched on, the text, the calls.
pub fn content(answer: &Answer, request: &ModelRequest) -> Vec<Value> {
    let mut content = Vec::new();
    let silent = answer.written().is_empty();
    if thinks(&request.body) && !silent {
        let thought = answer.reasoning.as_deref().unwrap_or(THOUGHT);
        content.push(json!({"type": "thinking", "thinking": thought, "signature": sign(request, thought)}));
    }
    let texts = [&answer.text, &answer.refusal].into_iter().flatten().filter(|text| !text.is_empty());
    content.extend(texts.map(|text| json!({"type": "text", "text": text})));
    content.extend(answer.calls.iter().map(call));
    content
}

fn call(call: &ToolCall) -> Value {
    let input: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
    json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input})
}

pub(super) fn stop_reason(answer: &Answer) -> &'static str {
    match answer.finish {
        Some("length") => "max_tokens",
        Some(other) => other,
        None if answer.refusal.is_some() => "refusal",
        None if answer.calls.is_empty() => "end_turn",
        None => "tool_use",
    }
}

/// The message around `content`.
pub(super) fn message(request: &ModelRequest, content: &[Value], stop: Option<&str>, usage: Value) -> Value {
    json!({
        "id": format!("msg_demo{:06}", request.index),
        "type": "message",
        "role": "assistant",
        "model": request.model(),
        "content": content,
        "stop_reason": stop,
        "stop_sequence": null,
        "usage": usage,
    })
}

/// Usage as Messages counts it: what was read from the cache or written to it is not among `input_tokens`.
pub(super) fn usage(usage: Usage, output: u64) -> Value {
    json!({
        "input_tokens": usage.prompt.saturating_sub(usage.cached + usage.written),
        "cache_creation_input_tokens": usage.written,
        "cache_read_input_tokens": usage.cached,
        "cache_creation": {"ephemeral_5m_input_tokens": usage.written, "ephemeral_1h_input_tokens": 0},
        "output_tokens": output,
        "service_tier": "standard",
    })
}
