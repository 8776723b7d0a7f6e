//! Side calls in Chat Completions: the proxy's own requests for a summary, and their answers.

use serde_json::{Value, json};

use super::conversation::Conversation;
use super::side::{Answer, Envelope};

/// A request of one user message. `store` is sent only where the client sent it.
pub(super) fn transcript_body(envelope: &Envelope, prompt: &str) -> Vec<u8> {
    let mut body = json!({ "messages": [{ "role": "user", "content": prompt }] });
    if let (Some(_), Some(members)) = (envelope.store, body.as_object_mut()) {
        members.insert("store".into(), Value::Bool(false));
    }
    envelope.body(body)
}

/// Whether nothing in the request keeps the model from one answer of plain text.
pub(super) fn answers_freely(conversation: &Conversation) -> bool {
    conversation.fields.members.iter().all(|(key, span)| {
        let value = conversation.body.get(span.clone()).unwrap_or_default();
        match key.as_ref() {
            "response_format" | "stop" => value == b"null",
            "n" => value == b"null" || value == b"1",
            "tool_choice" | "function_call" => matches!(value, b"null" | b"\"auto\"" | b"\"none\""),
            _ => true,
        }
    })
}

pub(super) fn read_json(text: &str) -> Option<Answer> {
    let value: Value = serde_json::from_str(text).ok()?;
    let choice = value.pointer("/choices/0")?;
    let mut answer = Answer { tokens: tokens(&value), ..Answer::default() };
    add(&mut answer, choice.get("message")?, choice);
    Some(answer)
}

pub(super) fn read_stream(text: &str) -> Option<Answer> {
    let mut answer = Answer::default();
    let mut seen = false;
    for data in text.lines().filter_map(|line| line.strip_prefix("data:")) {
        let Ok(value) = serde_json::from_str::<Value>(data.trim()) else { continue };
        if value.get("error").is_some_and(|error| !error.is_null()) {
            return None;
        }
        answer.tokens = answer.tokens.max(tokens(&value));
        let choices = value.get("choices").and_then(Value::as_array).into_iter().flatten();
        let first = |choice: &&Value| choice.get("index").is_none_or(|index| index.is_null() || *index == json!(0));
        let Some(choice) = choices.into_iter().find(first) else { continue };
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
    use bytes::Bytes;

    use super::*;
    use crate::wire::Dialect;

    #[test]
    fn json_and_stream_answers_read_alike() {
        let plain = br#"{"choices":[{"message":{"role":"assistant","content":"all well"},"finish_reason":"stop"}],"usage":{"total_tokens":9}}"#;
        let stream = b"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"all \"}}]}\n\n\
            data: {\"choices\":[{\"delta\":{\"content\":\"well\"},\"finish_reason\":\"stop\"}]}\n\n\
            data: {\"choices\":[],\"usage\":{\"total_tokens\":9}}\n\ndata: [DONE]\n\n";
        let expected =
            Answer { text: "all well".into(), finish_reason: Some("stop".into()), tokens: 9, ..Answer::default() };
        assert_eq!(Dialect::Chat.read_answer(plain).as_ref(), Some(&expected));
        assert_eq!(Dialect::Chat.read_answer(stream).as_ref(), Some(&expected));
    }

    #[test]
    fn errors_bytes_and_tool_calls_are_no_summary() {
        assert_eq!(Dialect::Chat.read_answer(b"\xff\xfe"), None);
        assert_eq!(Dialect::Chat.read_answer(b"data: {\"error\":{\"message\":\"no\"}}\n\n"), None);
        assert_eq!(Dialect::Chat.read_answer(b""), None);
        let called =
            Dialect::Chat.read_answer(br#"{"choices":[{"message":{"content":null,"tool_calls":[{"id":"a"}]}}]}"#);
        assert!(called.is_some_and(|answer| answer.called_tool));
    }

    #[test]
    fn other_choices_are_skipped() {
        let stream = b"data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"no\"}}]}\n\n\
            data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"no\"}},{\"index\":0,\"delta\":{\"content\":\"yes\"}}]}\n\n";
        assert_eq!(Dialect::Chat.read_answer(stream).unwrap().text, "yes");
    }

    /// The warm side call of a body with some members before and behind its messages.
    fn warm(before: &str, behind: &str) -> Option<Value> {
        let messages =
            r#"[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]"#;
        let body = format!(r#"{{{before}"model":"m","messages":{messages}{behind}}}"#);
        let conversation =
            crate::wire::read(Dialect::Chat, body.as_bytes(), &super::super::memo::Memo::new(0), [0; 16]);
        let edits = crate::wire::side::warm_edits(&conversation.unwrap(), Vec::new(), 2, "sum up")?;
        let pieces = super::super::splice::splice(&Bytes::from(body), edits).unwrap();
        serde_json::from_slice(&pieces.concat()).ok()
    }

    #[test]
    fn a_warm_call_is_made_only_where_the_answer_is_free() {
        for spoilt in [
            r#""response_format":{"type":"json_object"}"#,
            r#""stop":"x""#,
            r#""stop":["x"]"#,
            r#""n":2"#,
            r#""tool_choice":"required""#,
            r#""tool_choice":{"type":"function","function":{"name":"f"}}"#,
            r#""max_tokens":1023"#,
        ] {
            assert_eq!(warm(&format!("{spoilt},"), ""), None, "{spoilt}");
            assert_eq!(warm("", &format!(",{spoilt}")), None, "{spoilt}");
        }
        for free in
            [r#""stop":null"#, r#""n":1"#, r#""tool_choice":"auto""#, r#""tool_choice":"none""#, r#""max_tokens":1024"#]
        {
            let body = warm(&format!("{free},"), "").unwrap();
            assert_eq!(body["messages"].as_array().unwrap().len(), 3, "{free}");
            assert_eq!(body["messages"][2]["content"], "sum up");
        }
    }

    #[test]
    fn a_warm_call_is_not_stored_and_its_output_is_bounded() {
        let body = warm(r#""store":true,"max_tokens":4097,"#, r#","max_completion_tokens":4096"#).unwrap();
        assert_eq!((&body["store"], &body["max_tokens"]), (&json!(false), &json!(4096)));
        assert_eq!(body["max_completion_tokens"], json!(4096));
        assert_eq!(warm("", "").unwrap().get("store"), None);
    }

    #[test]
    fn store_is_sent_only_where_the_client_sent_it() {
        let envelope = |store| Envelope { model: Some("m".to_owned()), store, ..Envelope::default() };
        let text = |store| String::from_utf8(transcript_body(&envelope(store), "p")).unwrap();
        assert!(!text(None).contains("store"));
        assert!(text(Some(true)).contains("\"store\":false"));
    }
}
