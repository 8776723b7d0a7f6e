//! Side calls in Anthropic Messages: the proxy's own requests for a summary, and their answers.

use serde_json::{Value, json};

use super::conversation::Conversation;
use super::side::{Answer, Envelope};

/// Most output tokens that a summary may take; the API wants a number, and counts it with the prompt.
const MAX_TOKENS: u64 = 8_192;

/// A request of one user message, without thinking, for an answer of at most the envelope's room.
pub(super) fn transcript_body(envelope: &Envelope, prompt: &str) -> Vec<u8> {
    let messages = json!([{ "role": "user", "content": prompt }]);
    let mut body = json!({ "max_tokens": envelope.room.clamp(1, MAX_TOKENS), "messages": messages });
    if let (Some(version), Some(members)) = (&envelope.version, body.as_object_mut()) {
        members.insert("anthropic_version".into(), Value::from(version.as_str()));
    }
    envelope.body(body)
}

/// Whether nothing in the request keeps the model from one answer of plain text. Thinking does not: the
/// parameter stays for the cache's sake (S8).
pub(super) fn answers_freely(conversation: &Conversation) -> bool {
    conversation.fields.members.iter().all(|(key, span)| {
        let raw = conversation.body.get(span.clone()).unwrap_or_default();
        let value: Value = match key.as_ref() {
            "tool_choice" | "stop_sequences" | "output_config" | "output_format" => {
                serde_json::from_slice(raw).unwrap_or(Value::Bool(true))
            }
            "thread" => return false,
            _ => return true,
        };
        match key.as_ref() {
            "tool_choice" => {
                value.is_null() || matches!(value.get("type").and_then(Value::as_str), Some("auto" | "none"))
            }
            "stop_sequences" => value.is_null() || value == json!([]),
            "output_config" => value.is_null() || value.is_object() && value.get("format").is_none_or(Value::is_null),
            _ => value.is_null(),
        }
    })
}

pub(super) fn read_json(text: &str) -> Option<Answer> {
    let message: Value = serde_json::from_str(text).ok()?;
    let mut answer = Answer { tokens: tokens(message.get("usage")), ..Answer::default() };
    for block in message.get("content")?.as_array()? {
        add(&mut answer, block);
    }
    finish(&mut answer, &message);
    Some(answer)
}

pub(super) fn read_stream(text: &str) -> Option<Answer> {
    let mut answer = Answer::default();
    let (mut begun, mut input) = (false, 0);
    for data in text.lines().filter_map(|line| line.strip_prefix("data:")) {
        let Ok(event) = serde_json::from_str::<Value>(data.trim()) else { continue };
        match event.get("type").and_then(Value::as_str).unwrap_or_default() {
            "message_start" => {
                begun = true;
                input = tokens(event.pointer("/message/usage"));
            }
            "content_block_start" => add(&mut answer, event.get("content_block")?),
            "content_block_delta" if event.pointer("/delta/type") == Some(&json!("text_delta")) => {
                answer.text.push_str(event.pointer("/delta/text").and_then(Value::as_str).unwrap_or_default());
            }
            "message_delta" => {
                finish(&mut answer, event.get("delta")?);
                answer.tokens = answer.tokens.max(input + output(event.get("usage")));
            }
            "error" => return None,
            _ => {}
        }
    }
    answer.tokens = answer.tokens.max(input);
    begun.then_some(answer)
}

/// A block of the answer, whole or as it begins. Thinking is no part of the text.
fn add(answer: &mut Answer, block: &Value) {
    match block.get("type").and_then(Value::as_str).unwrap_or_default() {
        "text" => answer.text.push_str(block.get("text").and_then(Value::as_str).unwrap_or_default()),
        "tool_use" | "server_tool_use" | "mcp_tool_use" => answer.called_tool = true,
        _ => {}
    }
}

fn finish(answer: &mut Answer, said: &Value) {
    if let Some(reason) = said.get("stop_reason").and_then(Value::as_str) {
        answer.refused |= reason == "refusal";
        // What pauses has not finished.
        let reason = if reason == "pause_turn" { "incomplete" } else { reason };
        answer.finish_reason = Some(reason.to_owned());
    }
}

/// Reported input, cached or not, and output.
fn tokens(usage: Option<&Value>) -> u64 {
    let count = |key: &str| usage.and_then(|usage| usage.get(key)?.as_u64()).unwrap_or(0);
    count("input_tokens")
        + count("cache_read_input_tokens")
        + count("cache_creation_input_tokens")
        + count("output_tokens")
}

fn output(usage: Option<&Value>) -> u64 {
    usage.and_then(|usage| usage.get("output_tokens")?.as_u64()).unwrap_or(0)
}

#[cfg(test)]
#[path = "tests/anthropic_side.rs"]
mod tests;
