//! Histories that are put together again from what each turn added.

use serde_json::{Value, json};

use super::*;
use crate::wire::memo::Memo;
use crate::wire::read;

fn conversation(body: &str) -> Conversation<'_> {
    read(Dialect::Responses, body.as_bytes(), &Memo::new(0), [0; 16]).unwrap()
}

fn value(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap()
}

#[test]
fn a_request_gets_its_history_and_loses_the_name_of_it_wherever_that_stood() {
    let history = [Bytes::from_static(b"1,2"), Bytes::new(), Bytes::from_static(b"3")];
    for (body, due) in [
        (
            r#"{"previous_response_id" : "r" , "model":"m", "input": [ {"role":"user","content":"x"} ]}"#,
            r#"{"model":"m", "input": [1,2,3,{"role":"user","content":"x"}]}"#,
        ),
        (
            r#"{"model":"m","input":"x","previous_response_id":"r"}"#,
            r#"{"model":"m","input":[1,2,3,{"role":"user","content":"x"}]}"#,
        ),
        (r#"{"input":[],"previous_response_id":"r","n":1.50}"#, r#"{"input":[1,2,3],"n":1.50}"#),
    ] {
        let conversation = conversation(body);
        assert_eq!(previous(&conversation).as_deref(), Some("r"));
        assert_eq!(rebuilt(&conversation, &history).unwrap(), due, "{body}");
    }
    assert_eq!(rebuilt(&conversation(r#"{"input":"x"}"#), &history), None);
}

#[test]
fn a_response_is_read_from_json_and_from_its_events() {
    let item = json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hé"}]});
    let whole = json!({"id": "resp_1", "object": "response", "output": [item, {"type": "reasoning"}]});
    let read = output(&whole.to_string()).unwrap();
    assert_eq!(value(&[b"[", &*read.items, b"]"].concat()), whole["output"]);
    for repeated in [json!([]), whole["output"].clone()] {
        let mut collector = Collector::default();
        collector.event(&json!({"type": "response.created", "response": {"id": "resp_1", "output": []}}).to_string());
        collector.event("[DONE]");
        for item in whole["output"].as_array().unwrap() {
            collector.event(&json!({"type": "response.output_item.done", "item": item}).to_string());
        }
        collector.event(
            &json!({"type": "response.completed", "response": {"id": "resp_1", "output": repeated}}).to_string(),
        );
        assert_eq!(collector.finish().unwrap(), read);
    }
    let mut cut = Collector::default();
    cut.event(&json!({"type": "response.output_item.done", "item": item}).to_string());
    assert_eq!(cut.finish(), None);
}

#[test]
fn only_a_turn_that_has_ended_is_one() {
    let read = |status: &str| output(&format!(r#"{{"id":"r"{status},"output":[]}}"#)).is_some();
    for ended in ["", r#","status":null"#, r#","status":"completed""#, r#","status":"incomplete""#] {
        assert!(read(ended), "{ended}");
    }
    for status in ["queued", "in_progress", "failed", "cancelled", "anything new"] {
        assert!(!read(&format!(r#","status":"{status}""#)), "{status}");
    }
}
