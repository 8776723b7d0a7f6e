use bytes::Bytes;

use super::*;
use crate::wire::Dialect;
use crate::wire::memo::Memo;
use crate::wire::side::warm_edits;
use crate::wire::splice::splice;

fn expected() -> Answer {
    Answer { text: "all well".into(), finish_reason: Some("end_turn".into()), tokens: 19, ..Answer::default() }
}

#[test]
fn json_and_stream_answers_read_alike() {
    let plain = br#"{"type":"message","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"all well"}],"stop_reason":"end_turn","usage":{"input_tokens":5,"cache_read_input_tokens":4,"cache_creation_input_tokens":3,"output_tokens":7}}"#;
    let stream = concat!(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":5,\"cache_read_input_tokens\":4,\"cache_creation_input_tokens\":3}}}\n\n",
        "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\"}}\n\n",
        "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"hm\"}}\n\n",
        "data: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
        "data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\"all \"}}\n\n",
        "data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\"well\"}}\n\n",
        "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":7}}\n\n",
        "data: {\"type\":\"message_stop\"}\n\n",
    );
    assert_eq!(Dialect::Messages.read_answer(plain), Some(expected()));
    assert_eq!(Dialect::Messages.read_answer(stream.as_bytes()), Some(expected()));
}

#[test]
fn what_is_no_summary_says_so() {
    let with = |content: &str, reason: &str| {
        Dialect::Messages
            .read_answer(format!(r#"{{"content":[{content}],"stop_reason":"{reason}"}}"#).as_bytes())
            .unwrap()
    };
    assert!(with(r#"{"type":"tool_use","id":"a","name":"f","input":{}}"#, "tool_use").called_tool);
    assert!(with(r#"{"type":"text","text":"no"}"#, "refusal").refused);
    assert_eq!(with("", "pause_turn").finish_reason.as_deref(), Some("incomplete"));
    assert_eq!(Dialect::Messages.read_answer(b"event: error\ndata: {\"type\":\"error\",\"error\":{}}\n\n"), None);
    assert_eq!(
        (
            Dialect::Messages.read_answer(b"\xff"),
            Dialect::Messages.read_answer(b""),
            Dialect::Messages.read_answer(b"{}")
        ),
        (None, None, None)
    );
}

/// The warm side call of a body with some members before its messages.
fn warm(before: &str) -> Option<Value> {
    let messages =
        r#"[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]"#;
    let body = format!(r#"{{{before}"model":"m","messages":{messages}}}"#);
    let conversation = crate::wire::read(Dialect::Messages, body.as_bytes(), &Memo::new(0), [0; 16]).unwrap();
    let edits = warm_edits(&conversation, Vec::new(), 2, "sum up")?;
    serde_json::from_slice(&splice(&Bytes::from(body), edits).unwrap().concat()).ok()
}

#[test]
fn a_warm_call_is_made_only_where_the_answer_is_free() {
    for spoilt in [
        r#""tool_choice":{"type":"any"}"#,
        r#""tool_choice":{"type":"tool","name":"f"}"#,
        r#""stop_sequences":["x"]"#,
        r#""output_config":{"format":{"type":"json_schema"}}"#,
        r#""thread":{"type":"create"}"#,
        r#""max_tokens":1023"#,
        r#""max_tokens":5000,"thinking":{"type":"enabled","budget_tokens":4096}"#,
    ] {
        assert_eq!(warm(&format!("{spoilt},")), None, "{spoilt}");
    }
    for free in [
        r#""tool_choice":{"type":"auto","disable_parallel_tool_use":true}"#,
        r#""tool_choice":{"type":"none"}"#,
        r#""stop_sequences":[]"#,
        r#""output_config":{"effort":"low"}"#,
        r#""thinking":{"type":"adaptive"}"#,
    ] {
        assert_eq!(warm(&format!("{free},")).unwrap()["messages"][2]["content"][0]["text"], "sum up", "{free}");
    }
}

#[test]
fn the_output_of_a_warm_call_is_bounded_above_its_thinking() {
    assert_eq!(warm(r#""max_tokens":64000,"#).unwrap()["max_tokens"], 4_096);
    let thinking = r#""max_tokens":64000,"thinking":{"type":"enabled","budget_tokens":10000},"#;
    let body = warm(thinking).unwrap();
    assert_eq!((&body["max_tokens"], &body["thinking"]["budget_tokens"]), (&json!(14_097), &json!(10_000)));
}

#[test]
fn a_transcript_has_an_output_limit_and_no_thinking() {
    for (room, most) in [(100_000, 8_192), (2_730, 2_730), (0, 1)] {
        let envelope = Envelope { model: Some("m".to_owned()), room, ..Envelope::default() };
        let body: Value = serde_json::from_slice(&transcript_body(&envelope, "p")).unwrap();
        assert_eq!(body, json!({ "model": "m", "max_tokens": most, "messages": [{ "role": "user", "content": "p" }] }));
    }
}

/// Vertex and Bedrock: the path names the model, the body the API's version. Neither takes it the other way.
#[test]
fn a_transcript_says_no_more_than_the_clients_body() {
    for (members, named) in [
        (r#""anthropic_version":"vertex-2023-10-16","#, vec!["anthropic_version", "max_tokens", "messages"]),
        (r#""model":"m","#, vec!["max_tokens", "messages", "model"]),
    ] {
        let body = format!(r#"{{{members}"max_tokens":9,"messages":[{{"role":"user","content":"a"}}]}}"#);
        let memo = super::super::memo::Memo::new(0);
        let conversation = crate::wire::read(Dialect::Messages, body.as_bytes(), &memo, [0; 16]).unwrap();
        let made: Value = serde_json::from_slice(&transcript_body(&Envelope::of(&conversation), "p")).unwrap();
        let mut keys: Vec<_> = made.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, named);
    }
}

/// A turn that is over, and one that has begun; the thinking of the first is left out, as far as `upto` items.
fn warm_without_thinking(cut: usize, upto: usize) -> Option<Value> {
    let call = |id: &str| {
        format!(
            r#"{{"role":"assistant","content":[{{"type":"thinking","thinking":"t","signature":"s"}},{{"type":"tool_use","id":"{id}","name":"f","input":{{}}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"{id}","content":"r"}}]}}"#
        )
    };
    let said = |role: &str| format!(r#"{{"role":"{role}","content":"a"}}"#);
    let turns = [said("user"), call("a"), call("b"), said("assistant"), said("user"), call("c"), said("user")];
    let messages = turns.join(",");
    let body = format!(r#"{{"max_tokens":9000,"model":"m","messages":[{messages}]}}"#);
    let conversation = crate::wire::read(Dialect::Messages, body.as_bytes(), &Memo::new(0), [0; 16]).unwrap();
    let edits = (0..upto).flat_map(|item| conversation.without_signed(item)).collect();
    let edits = warm_edits(&conversation, edits, cut, "sum up")?;
    serde_json::from_slice(&splice(&Bytes::from(body), edits).unwrap().concat()).ok()
}

#[test]
fn a_warm_call_does_not_end_in_a_loop_whose_thinking_was_left_out() {
    assert_eq!(warm_without_thinking(3, 5), None, "the loop would go on without its thinking");
    assert_eq!(warm_without_thinking(5, 5), None);
    assert_eq!(warm_without_thinking(10, 8), None, "what the user says behind results goes on with the loop");
    for (cut, upto) in [(3, 0), (6, 5), (7, 5), (9, 5), (10, 5)] {
        let body = warm_without_thinking(cut, upto).unwrap();
        let blocks = body["messages"].as_array().unwrap().iter().filter_map(|message| message["content"].as_array());
        let thinking = blocks.flatten().filter(|block| block["type"] == "thinking").count();
        assert_eq!(
            thinking,
            [(3, 1), (6, 0), (7, 0), (9, 1), (10, 1)].iter().find(|(at, _)| *at == cut).unwrap().1,
            "{cut}"
        );
        assert_eq!(body["messages"].as_array().unwrap().last().unwrap()["content"][0]["text"], "sum up");
    }
}
