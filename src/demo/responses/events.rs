//! A response as one JSON object, as server-sent events, and as frames of a socket.

use bytes::Bytes;
use serde_json::{Value, json};

use super::super::answer::{Answer, Usage, chunks};
use super::super::request::{ModelRequest, kind, list, text};
use super::answer::{items, response};

/// The whole response as one JSON object.
pub fn json(answer: &Answer, request: &ModelRequest, usage: Usage) -> Bytes {
    response(request, status(answer), &items(answer, request), Some(usage)).to_string().into()
}

/// The response as server-sent events.
pub fn events(answer: &Answer, request: &ModelRequest, usage: Usage) -> Vec<Bytes> {
    frames(answer, request, usage).iter().map(sse).collect()
}

/// An event as it stands in a stream.
pub(super) fn sse(event: &Value) -> Bytes {
    format!("event: {}\ndata: {event}\n\n", kind(event)).into()
}

/// The response as events, numbered.
pub fn frames(answer: &Answer, request: &ModelRequest, usage: Usage) -> Vec<Value> {
    let output = items(answer, request);
    let mut events = opening(request);
    for (index, item) in output.iter().enumerate() {
        let mut empty = item.clone();
        hollow(&mut empty);
        events.push(json!({"type": "response.output_item.added", "output_index": index, "item": empty}));
        inner(item, index, &mut events);
        events.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
    }
    let status = status(answer);
    let whole = response(request, status, &output, Some(usage));
    events.push(json!({"type": format!("response.{status}"), "response": whole}));
    numbered(events)
}

/// What comes before anything that the model said.
pub(super) fn opening(request: &ModelRequest) -> Vec<Value> {
    let begun = response(request, "in_progress", &[], None);
    vec![
        json!({"type": "response.created", "response": begun}),
        json!({"type": "response.in_progress", "response": begun}),
    ]
}

pub(super) fn numbered(events: Vec<Value>) -> Vec<Value> {
    let number = |(number, mut event): (usize, Value)| {
        if let Some(members) = event.as_object_mut() {
            members.insert("sequence_number".to_owned(), number.into());
        }
        event
    };
    events.into_iter().enumerate().map(number).collect()
}

fn status(answer: &Answer) -> &'static str {
    if answer.finish == Some("length") { "incomplete" } else { "completed" }
}

/// The item before its content came.
fn hollow(item: &mut Value) {
    let Some(members) = item.as_object_mut() else { return };
    for (key, value) in members {
        match key.as_str() {
            "status" => *value = "in_progress".into(),
            "content" | "summary" => *value = json!([]),
            "arguments" | "input" => *value = "".into(),
            _ => {}
        }
    }
}

/// The events between an item's first and last.
fn inner(item: &Value, index: usize, events: &mut Vec<Value>) {
    let event = |kind: &str, nth: Option<(&str, usize)>, key: &str, value: Value| {
        let mut event = json!({"type": format!("response.{kind}"), "item_id": text(item, "id"), "output_index": index});
        if let Some(members) = event.as_object_mut() {
            members.extend(nth.map(|(name, nth)| (name.to_owned(), nth.into())));
            members.insert(key.to_owned(), value);
        }
        event
    };
    let streamed = |events: &mut Vec<Value>, name: &str, nth: Option<(&str, usize)>, key: &str, text: &str| {
        events.extend(chunks(text).map(|chunk| event(&format!("{name}.delta"), nth, "delta", chunk.into())));
        events.push(event(&format!("{name}.done"), nth, key, text.into()));
    };
    match kind(item) {
        "reasoning" => {
            for (k, part) in list(item, "summary").iter().enumerate() {
                let nth = Some(("summary_index", k));
                events.push(event(
                    "reasoning_summary_part.added",
                    nth,
                    "part",
                    json!({"type": "summary_text", "text": ""}),
                ));
                streamed(events, "reasoning_summary_text", nth, "text", text(part, "text"));
                events.push(event("reasoning_summary_part.done", nth, "part", part.clone()));
            }
        }
        "message" => {
            for (k, part) in list(item, "content").iter().enumerate() {
                let nth = Some(("content_index", k));
                let (name, key) =
                    if kind(part) == "refusal" { ("refusal", "refusal") } else { ("output_text", "text") };
                let mut empty = part.clone();
                if let Some(value) = empty.get_mut(key) {
                    *value = "".into();
                }
                events.push(event("content_part.added", nth, "part", empty));
                streamed(events, name, nth, key, text(part, key));
                events.push(event("content_part.done", nth, "part", part.clone()));
            }
        }
        "function_call" => streamed(events, "function_call_arguments", None, "arguments", text(item, "arguments")),
        "custom_tool_call" => streamed(events, "custom_tool_call_input", None, "input", text(item, "input")),
        _ => {}
    }
}

#[cfg(test)]
#[path = "../tests/responses_events.rs"]
mod tests;
