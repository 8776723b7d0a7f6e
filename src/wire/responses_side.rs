//! Side calls in OpenAI Responses: the proxy's own requests for a summary, and their answers.

use serde_json::{Value, json};

use super::conversation::Conversation;
use super::openai_responses::is_list;
use super::side::{Answer, Envelope};
use super::sse::Reader;

/// A request of one user message, never stored.
pub(super) fn transcript_body(envelope: &Envelope, prompt: &str) -> Vec<u8> {
    envelope.body(json!({ "input": [{ "role": "user", "content": prompt }], "store": false }))
}

/// Whether nothing in the request keeps the model from one answer of plain text, made of what is seen, now.
pub(super) fn answers_freely(conversation: &Conversation) -> bool {
    let free = conversation.fields.members.iter().all(|(key, span)| {
        let value = conversation.body.get(span.clone()).unwrap_or_default();
        match key.as_ref() {
            "text" => is_plain(value),
            "tool_choice" => matches!(value, b"null" | b"\"auto\"" | b"\"none\""),
            "background" => matches!(value, b"null" | b"false"),
            "truncation" => matches!(value, b"null" | b"\"disabled\""),
            "context_management" | "previous_response_id" | "conversation" => value == b"null",
            _ => true,
        }
    });
    free && is_list(conversation)
}

/// Whether `text` asks for no format but text.
fn is_plain(text: &[u8]) -> bool {
    let Ok(text) = serde_json::from_slice::<Value>(text) else { return false };
    let kind = text.pointer("/format").filter(|format| !format.is_null()).map(|format| &format["type"]);
    kind.is_none_or(|kind| kind == "text")
}

pub(super) fn read_json(text: &str) -> Option<Answer> {
    read_response(&serde_json::from_str(text).ok()?, &[])
}

/// A response object. Its own output counts, or `items` where it has none.
fn read_response(response: &Value, items: &[Value]) -> Option<Answer> {
    let failed = response.get("error").is_some_and(|error| !error.is_null()) || response["status"] == "failed";
    let own = response.get("output").and_then(Value::as_array).filter(|_| !failed)?;
    let output = if own.is_empty() { items } else { own };
    let mut answer = Answer {
        finish_reason: finish_reason(response).map(str::to_owned),
        tokens: response.pointer("/usage/total_tokens").and_then(Value::as_u64).unwrap_or(0),
        ..Answer::default()
    };
    for item in output {
        match item["type"].as_str() {
            Some("message") => add(&mut answer, item),
            Some("reasoning") => {}
            _ => answer.called_tool = true,
        }
    }
    Some(answer)
}

/// Why a response that is not complete is not.
fn finish_reason(response: &Value) -> Option<&str> {
    let told = response.pointer("/incomplete_details/reason").and_then(Value::as_str);
    told.or_else(|| response.get("status").and_then(Value::as_str))
}

fn add(answer: &mut Answer, message: &Value) {
    for part in message["content"].as_array().into_iter().flatten() {
        match part["type"].as_str() {
            Some("refusal") => answer.refused = true,
            _ => answer.text.push_str(part["text"].as_str().unwrap_or_default()),
        }
    }
}

/// An event stream that was not broken off. Some servers end it with a response without output.
pub(super) fn read_stream(text: &str) -> Option<Answer> {
    let mut reader = Reader::with_limit(text.len());
    reader.push(text.as_bytes());
    reader.finish();
    let (mut items, mut said) = (Vec::new(), String::new());
    while let Some(event) = reader.next_event() {
        let Ok(value) = &serde_json::from_str::<Value>(&event.data) else { continue };
        match value["type"].as_str() {
            Some("response.output_text.delta") => said.push_str(value["delta"].as_str().unwrap_or_default()),
            Some("response.output_item.done") => items.push(value["item"].clone()),
            Some("response.completed" | "response.incomplete") => {
                let mut answer = read_response(&value["response"], &items)?;
                if answer.text.is_empty() {
                    answer.text = said;
                }
                return Some(answer);
            }
            Some("response.failed" | "error") => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
#[path = "tests/responses_side.rs"]
mod tests;
