//! Histories that are put together again from what each turn added.

use serde_json::{Value, json};

use super::*;
use crate::wire::memo::Memo;
use crate::wire::{glance, read};

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
fn a_rebuilt_history_has_nothing_that_a_provider_must_refuse() {
    let said = |n: u8| json!({"type": "message", "id": format!("msg_{n}"), "role": "user", "content": "go on"});
    let thought = |n: u8, hidden: Value| json!({"type": "reasoning", "id": format!("rs_{n}"), "summary": [], "encrypted_content": hidden});
    let call = |n: u8, status: &str| json!({"type": "function_call", "id": format!("fc_{n}"), "call_id": format!("c{n}"), "name": "f", "arguments": "{}", "status": status});
    let output = |n: u8| json!({"type": "function_call_output", "call_id": format!("c{n}"), "output": "o"});
    let rebuilt = |store: Value, turns: &[Vec<Value>]| {
        let history: Vec<Bytes> =
            turns.iter().map(|turn| turn.iter().map(Value::to_string).collect::<Vec<_>>().join(",").into()).collect();
        let body = json!({"model": "m", "store": store, "input": [said(9)], "previous_response_id": "r"}).to_string();
        value(&rebuilt(&conversation(&body), &history).unwrap())["input"].take()
    };
    // Reasoning of which the provider keeps nothing; where it does keep it, the id is enough.
    let turns = [vec![said(0)], vec![thought(1, Value::Null), call(1, "completed")], vec![output(1)]];
    let whole = json!([said(0), thought(1, Value::Null), call(1, "completed"), output(1), said(9)]);
    assert_eq!(rebuilt(Value::Null, &turns), whole);
    assert_eq!(rebuilt(json!(false), &turns), json!([said(0), call(1, "completed"), output(1), said(9)]));
    let hidden = [vec![said(0)], vec![thought(1, json!("gAAA")), call(1, "completed")], vec![output(1)]];
    assert_eq!(rebuilt(json!(false), &hidden)[1], thought(1, json!("gAAA")));
    // Output that ended within reasoning, or within a call.
    let thought = |n: u8| thought(n, json!("gAAA"));
    let turns = [vec![said(0)], vec![thought(1), thought(2)], vec![said(1)], vec![thought(3), call(3, "incomplete")]];
    assert_eq!(rebuilt(json!(false), &turns), json!([said(0), said(1), said(9)]));
    assert_eq!(rebuilt(json!(true), &turns), json!([said(0), said(1), said(9)]));
    let turns = [vec![said(0)], vec![thought(3), call(3, "completed"), call(4, "incomplete")], vec![output(3)]];
    assert_eq!(rebuilt(json!(true), &turns), json!([said(0), thought(3), call(3, "completed"), output(3), said(9)]));
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

#[test]
fn a_beginning_is_told_without_a_reading_as_with_one_or_not_at_all() {
    let user = r#"{"role":"user","content":"x \"assistant\""}"#;
    let said = r#"{"type":"message","role":"assistant","content":[]}"#;
    let output = r#"{"type":"function_call_output","call_id":"c","output":"x"}"#;
    let system = r#"{"role":"developer","content":"x"}"#;
    let compaction = r#"{"type":"compaction","encrypted_content":"x"}"#;
    let answered = r#"{"type":"message","id":"msg_1","role":"assistant","content":[]}"#;
    let long = format!(r#"{{"role":"user","content":"{}"}}"#, "x".repeat(1_000));
    for (items, begins) in [
        (vec![], Some(true)),
        (vec![user], Some(true)),
        (vec![system, user, user], Some(true)),
        (vec![&long], Some(true)),
        // Examples; what has an id is an answer that was given.
        (vec![user, said, user], Some(true)),
        (vec![output, user], Some(true)),
        (vec![user, said, &long], Some(false)),
        (vec![user, answered], Some(false)),
        // What a compaction stands for is no turn: only a reading tells.
        (vec![user, said, compaction, user], None),
        (vec![user, "1"], None),
    ] {
        let body = format!(r#"{{"model":"m","input":[{}]}}"#, items.join(","));
        let fields = glance(Dialect::Responses, body.as_bytes()).unwrap().fields;
        assert_eq!(super::begins(&fields, body.as_bytes(), 1_000), begins, "{body}");
        if let Some(begins) = begins {
            assert_eq!(begins_read(&conversation(&body), 1_000), begins, "{body}");
        }
    }
    let text = r#"{"input":"x"}"#;
    let fields = glance(Dialect::Responses, text.as_bytes()).unwrap().fields;
    assert_eq!(begins(&fields, text.as_bytes(), 1_000), Some(true));
}
