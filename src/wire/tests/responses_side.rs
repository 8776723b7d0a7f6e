use bytes::Bytes;

use super::super::memo::Memo;
use super::super::side::warm_edits;
use super::super::splice::splice;
use super::*;
use crate::wire::{Dialect, read};

const OUTPUT: &str = r#"[{"type":"reasoning","summary":[]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"all well"}]}]"#;

fn response(status: &str, output: &str) -> String {
    format!(
        r#"{{"id":"resp_1","object":"response","status":"{status}","error":null,"incomplete_details":null,"output":{output},"usage":{{"input_tokens":5,"output_tokens":4,"total_tokens":9}}}}"#
    )
}

fn stream(events: &[String]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

#[test]
fn json_and_stream_answers_read_alike() {
    let due =
        Answer { text: "all well".into(), finish_reason: Some("completed".into()), tokens: 9, ..Answer::default() };
    let done =
        |output: &str| format!(r#"{{"type":"response.completed","response":{}}}"#, response("completed", output));
    let delta = |text: &str| format!(r#"{{"type":"response.output_text.delta","delta":"{text}"}}"#);
    let item = |item: &Value| json!({"type": "response.output_item.done", "item": item}).to_string();
    let items: Vec<Value> = serde_json::from_str(OUTPUT).unwrap();
    for answer in [
        response("completed", OUTPUT),
        stream(&[delta("all "), delta("well"), done(OUTPUT)]),
        // Without an output in the last event: by the items, or by the deltas.
        stream(&[item(&items[0]), item(&items[1]), done("[]")]),
        stream(&[delta("all "), delta("well"), done("[]")]),
    ] {
        assert_eq!(Dialect::Responses.read_answer(answer.as_bytes()).as_ref(), Some(&due), "{answer}");
    }
    assert_eq!(Dialect::Responses.read_answer(stream(&[delta("all "), delta("well")]).as_bytes()), None, "broken off");
}

#[test]
fn failures_refusals_calls_and_cuts_are_no_summary() {
    assert_eq!(Dialect::Responses.read_answer(b"\xff\xfe"), None);
    assert_eq!(Dialect::Responses.read_answer(b""), None);
    assert_eq!(Dialect::Responses.read_answer(br#"{"error":{"message":"no"}}"#), None);
    assert_eq!(Dialect::Responses.read_answer(br#"{"status":"failed","error":{"code":"x"},"output":[]}"#), None);
    assert_eq!(
        Dialect::Responses.read_answer(stream(&[r#"{"type":"response.failed","response":{}}"#.into()]).as_bytes()),
        None
    );
    assert_eq!(
        Dialect::Responses.read_answer(stream(&[r#"{"type":"error","error":{"message":"no"}}"#.into()]).as_bytes()),
        None
    );
    let read = |text: String| Dialect::Responses.read_answer(text.as_bytes()).unwrap();
    assert!(read(response("completed", r#"[{"type":"function_call","call_id":"a"}]"#)).called_tool);
    assert!(
        read(response("completed", r#"[{"type":"message","content":[{"type":"refusal","refusal":"no"}]}]"#)).refused
    );
    let cut = response("incomplete", OUTPUT)
        .replace(r#""incomplete_details":null"#, r#""incomplete_details":{"reason":"max_output_tokens"}"#);
    assert_eq!(read(cut).finish_reason.as_deref(), Some("max_output_tokens"));
}

#[test]
fn a_transcript_is_never_stored() {
    let envelope = Envelope { model: Some("m".to_owned()), ..Envelope::default() };
    let body: Value = serde_json::from_slice(&transcript_body(&envelope, "p\n\"q\"")).unwrap();
    assert_eq!(body, json!({"model": "m", "input": [{"role": "user", "content": "p\n\"q\""}], "store": false}));
}

/// The warm side call of a body with some members before its input.
fn warm(before: &str) -> Option<Value> {
    let item = |role: &str| format!(r#"{{"type":"message","role":"{role}","content":"x"}}"#);
    let input = [item("user"), item("assistant"), item("user")].join(",");
    warm_of(&format!(r#" {{{before}"model":"m","input":[{input}]}}"#), 2)
}

fn warm_of(body: &str, cut: usize) -> Option<Value> {
    let conversation = read(Dialect::Responses, body.as_bytes(), &Memo::new(0), [0; 16]).unwrap();
    let edits = warm_edits(&conversation, Vec::new(), cut, "sum up")?;
    serde_json::from_slice(&splice(&Bytes::from(body.to_owned()), edits).unwrap().concat()).ok()
}

#[test]
fn a_warm_call_is_made_only_where_the_answer_is_free() {
    for spoilt in [
        r#""text":{"format":{"type":"json_schema","name":"x"}}"#,
        r#""tool_choice":"required""#,
        r#""tool_choice":{"type":"function","name":"f"}"#,
        r#""background":true"#,
        r#""truncation":"auto""#,
        r#""context_management":[{"type":"compaction"}]"#,
        r#""previous_response_id":"resp_1""#,
        r#""conversation":"conv_1""#,
        r#""max_output_tokens":1023"#,
    ] {
        assert_eq!(warm(&format!("{spoilt},")), None, "{spoilt}");
    }
    assert_eq!(warm_of(r#"{"input":"x"}"#, 1), None, "nothing can be added to a string");
    for free in [
        r#""text":{"verbosity":"low"}"#,
        r#""text":{"format":{"type":"text"}}"#,
        r#""tool_choice":"auto","background":false,"truncation":"disabled","conversation":null"#,
        r#""max_output_tokens":1024"#,
    ] {
        let body = warm(&format!("{free},")).unwrap();
        let input = body["input"].as_array().unwrap();
        let due = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "sum up"}]});
        assert_eq!((input.len(), &input[2]), (3, &due), "{free}");
    }
}

#[test]
fn a_warm_call_is_never_stored_and_its_output_is_bounded() {
    for store in ["", r#""store":true,"#, r#""store":false,"#, r#""store":null,"#] {
        assert_eq!(warm(store).unwrap()["store"], json!(false), "{store}");
    }
    assert_eq!(warm(r#""max_output_tokens":5000,"#).unwrap()["max_output_tokens"], json!(4_096));
}

/// Over HTTP there are no messages of several kinds.
#[test]
fn a_warm_call_has_nothing_of_a_sockets_message() {
    let kind = r#""type":"response.create""#;
    let items = r#"[{"role":"user","content":"x"},{"role":"assistant","content":"y"}]"#;
    for body in [
        format!(r#"{{{kind},"model":"m","input":{items}}}"#),
        format!(r#"{{ {kind} , "store":true,"model":"m","input":{items}}}"#),
        format!(r#"{{"model":"m","store":true,{kind},"input":{items}}}"#),
        format!(r#"{{"model":"m","input":{items},{kind}}}"#),
    ] {
        let made = warm_of(&body, 2).unwrap();
        let keys: Vec<&str> = made.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys.len(), 3, "{made}");
        assert_eq!(
            (&made["model"], &made["store"], made["input"].as_array().unwrap().len()),
            (&json!("m"), &json!(false), 3)
        );
    }
}
