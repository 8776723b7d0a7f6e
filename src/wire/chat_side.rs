//! Side calls in Chat Completions: the proxy's own requests for a summary, and their answers.

use bytes::Bytes;
use serde_json::{Value, json};

use super::conversation::Conversation;
use super::openai_chat::user_message;
use super::splice::Edit;

/// What a side call came back with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    pub text: String,
    pub finish_reason: Option<String>,
    /// The model called a tool instead of answering.
    pub called_tool: bool,
    /// The model declined (`refusal`).
    pub refused: bool,
    /// Reported tokens of prompt and completion together.
    pub tokens: u64,
}

/// A request of one user message. `store` is sent only where the client sent it.
pub fn transcript_body(model: &str, prompt: &str, store: Option<bool>) -> Vec<u8> {
    let mut body = json!({ "model": model, "messages": [{ "role": "user", "content": prompt }] });
    if let (Some(_), Some(members)) = (store, body.as_object_mut()) {
        members.insert("store".into(), Value::Bool(false));
    }
    body.to_string().into_bytes()
}

/// The edits that turn the client's own request into a side call over its first `cut` items: what
/// follows is left out, `instruction` comes last, all else (tools, `tool_choice`, parameters) stays, so
/// that the provider reads the prefix from its cache. `edits` are the request's own.
pub fn warm_edits(conversation: &Conversation, edits: Vec<Edit>, cut: usize, instruction: &str) -> Option<Vec<Edit>> {
    let upto = conversation.items.get(cut.checked_sub(1)?)?.span.end;
    let end = conversation.items.last()?.span.end;
    let mut kept: Vec<Edit> = edits.into_iter().filter(|edit| edit.span.end <= upto).collect();
    kept.push(Edit { span: upto..end, with: Bytes::from(format!(",{}", user_message(instruction))) });
    Some(kept)
}

/// Reads the answer of a side call, JSON or a whole event stream. `None`: not UTF-8 or not understood.
pub fn read_answer(body: &[u8]) -> Option<Answer> {
    let text = std::str::from_utf8(body).ok()?.trim_start();
    match text.starts_with('{') {
        true => read_json(text),
        false => read_stream(text),
    }
}

fn read_json(text: &str) -> Option<Answer> {
    let value: Value = serde_json::from_str(text).ok()?;
    let choice = value.pointer("/choices/0")?;
    let mut answer = Answer { tokens: tokens(&value), ..Answer::default() };
    add(&mut answer, choice.get("message")?, choice);
    Some(answer)
}

fn read_stream(text: &str) -> Option<Answer> {
    let mut answer = Answer::default();
    let mut seen = false;
    for data in text.lines().filter_map(|line| line.strip_prefix("data:")) {
        let Ok(value) = serde_json::from_str::<Value>(data.trim()) else { continue };
        if value.get("error").is_some_and(|error| !error.is_null()) {
            return None;
        }
        answer.tokens = answer.tokens.max(tokens(&value));
        let Some(choice) = value.pointer("/choices/0") else { continue };
        seen = true;
        if let Some(delta) = choice.get("delta") {
            add(&mut answer, delta, choice);
        }
    }
    seen.then_some(answer)
}

fn add(answer: &mut Answer, message: &Value, choice: &Value) {
    match message.get("content") {
        Some(Value::String(text)) => answer.text.push_str(text),
        Some(Value::Array(parts)) => {
            parts.iter().filter_map(|part| part.get("text")?.as_str()).for_each(|text| answer.text.push_str(text));
        }
        _ => {}
    }
    let given = |key: &str| message.get(key).is_some_and(|value| !value.is_null() && *value != json!([]));
    answer.called_tool |= given("tool_calls") || given("function_call");
    answer.refused |= given("refusal");
    if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
        answer.finish_reason = Some(reason.to_owned());
    }
}

fn tokens(value: &Value) -> u64 {
    value.pointer("/usage/total_tokens").and_then(Value::as_u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_stream_answers_read_alike() {
        let plain = br#"{"choices":[{"message":{"role":"assistant","content":"all well"},"finish_reason":"stop"}],"usage":{"total_tokens":9}}"#;
        let stream = b"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"all \"}}]}\n\n\
            data: {\"choices\":[{\"delta\":{\"content\":\"well\"},\"finish_reason\":\"stop\"}]}\n\n\
            data: {\"choices\":[],\"usage\":{\"total_tokens\":9}}\n\ndata: [DONE]\n\n";
        let expected =
            Answer { text: "all well".into(), finish_reason: Some("stop".into()), tokens: 9, ..Answer::default() };
        assert_eq!(read_answer(plain).as_ref(), Some(&expected));
        assert_eq!(read_answer(stream).as_ref(), Some(&expected));
    }

    #[test]
    fn errors_bytes_and_tool_calls_are_no_summary() {
        assert_eq!(read_answer(b"\xff\xfe"), None);
        assert_eq!(read_answer(b"data: {\"error\":{\"message\":\"no\"}}\n\n"), None);
        assert_eq!(read_answer(b""), None);
        let called = read_answer(br#"{"choices":[{"message":{"content":null,"tool_calls":[{"id":"a"}]}}]}"#);
        assert!(called.is_some_and(|answer| answer.called_tool));
    }

    #[test]
    fn store_is_sent_only_where_the_client_sent_it() {
        let text = |store| String::from_utf8(transcript_body("m", "p", store)).unwrap();
        assert!(!text(None).contains("store"));
        assert!(text(Some(true)).contains("\"store\":false"));
    }
}
