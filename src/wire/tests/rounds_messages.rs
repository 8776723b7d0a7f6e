//! For all answers of rounds, however their bytes are cut: the client reads one well-formed message without a trace
//! of the proxy's tools, and what it never saw comes back where it was.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{Answer, Dialect, Ending, Form};
use super::*;
use crate::wire::memo::Memo;
use crate::wire::splice::splice;

const BASE: &str = r#"{"messages":[{"role":"user","content":"do"}"#;

fn block(kind: u8, id: usize) -> Value {
    match kind {
        0 => json!({"type": "thinking", "thinking": format!("hm é \"{id}\""), "signature": format!("sig{id}")}),
        1 => json!({"type": "text", "text": format!("said {id}\n")}),
        2 => json!({"type": "tool_use", "id": format!("toolu_{id}"), "name": "peek", "input": {"id": id}}),
        _ => json!({"type": "tool_use", "id": format!("toolu_{id}"), "name": "bash", "input": {}}),
    }
}

fn is_own(block: &Value) -> bool {
    block["name"] == "peek"
}

/// Rounds that call the proxy's tool alone, and a last one that may call the client's beside it.
fn rounds() -> impl Strategy<Value = Vec<Vec<Value>>> {
    let hidden = (prop::collection::vec(0..2_u8, 0..3), prop::collection::vec(Just(2_u8), 1..3));
    let hidden = hidden.prop_map(|(said, own)| [said, own].concat());
    let last = (prop::collection::vec(0..2_u8, 0..3), prop::collection::vec(2..4_u8, 0..4));
    let last = last.prop_map(|(said, calls)| {
        let handed = calls.contains(&3);
        let calls = if handed { calls } else { vec![1] };
        [said, calls].concat()
    });
    (prop::collection::vec(hidden, 0..3), last).prop_map(|(mut rounds, last)| {
        rounds.push(last);
        let number = |(r, round): (usize, Vec<u8>)| {
            round.into_iter().enumerate().map(|(k, kind)| block(kind, r * 10 + k)).collect()
        };
        rounds.into_iter().enumerate().map(number).collect()
    })
}

fn stop(round: &[Value]) -> &'static str {
    if round.iter().any(|block| block["type"] == "tool_use") { "tool_use" } else { "end_turn" }
}

fn json_body(round: &[Value], nth: usize) -> Vec<u8> {
    let usage = json!({"input_tokens": 100 + nth, "output_tokens": 10});
    json!({"id": format!("msg_{nth}"), "type": "message", "role": "assistant", "content": round, "stop_reason": stop(round), "usage": usage})
        .to_string()
        .into_bytes()
}

fn stream(round: &[Value], nth: usize) -> Vec<u8> {
    let usage = json!({"input_tokens": 100 + nth, "output_tokens": 1});
    let start =
        json!({"id": format!("msg_{nth}"), "type": "message", "role": "assistant", "content": [], "usage": usage});
    let mut events = vec![json!({"type": "message_start", "message": start}), json!({"type": "ping"})];
    for (index, block) in round.iter().enumerate() {
        let mut hollow = block.clone();
        let mut deltas = Vec::new();
        for (key, form) in [("thinking", "thinking_delta"), ("signature", "signature_delta"), ("text", "text_delta")] {
            let Some(text) = block[key].as_str() else { continue };
            hollow[key] = json!("");
            let (a, b) = text.split_at(2);
            deltas.extend([a, b].map(|part| json!({"type": form, key: part})));
        }
        if block["type"] == "tool_use" {
            hollow["input"] = json!({});
            let text = block["input"].to_string();
            let (a, b) = text.split_at(1);
            deltas.extend([a, b].map(|part| json!({"type": "input_json_delta", "partial_json": part})));
        }
        events.push(json!({"type": "content_block_start", "index": index, "content_block": hollow}));
        events.extend(
            deltas.into_iter().map(|delta| json!({"type": "content_block_delta", "index": index, "delta": delta})),
        );
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    events
        .push(json!({"type": "message_delta", "delta": {"stop_reason": stop(round)}, "usage": {"output_tokens": 10}}));
    events.push(json!({"type": "message_stop"}));
    let sse = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    events.iter().map(sse).collect::<String>().into_bytes()
}

struct Ran {
    client: Vec<u8>,
    aside: Option<Aside>,
    /// What each further round was asked with, behind the client's own messages.
    asked: String,
}

fn run(rounds: &[Vec<Value>], form: Form, cut: usize) -> Ran {
    let mut answer = Answer::new(Dialect::Messages, form, Arc::from(["peek".to_owned()]));
    let (mut client, mut all, mut asked) = (Vec::new(), Vec::new(), String::new());
    for (nth, round) in rounds.iter().enumerate() {
        let body = if form == Form::Json { json_body(round, nth) } else { stream(round, nth) };
        for piece in body.chunks(cut) {
            client.extend(answer.push(&Bytes::copy_from_slice(piece)));
        }
        let results = |round: &Round| {
            let text = |call: &OwnCall| OwnResult { text: format!("found {}", call.arguments), failed: false };
            round.calls.iter().map(text).collect::<Vec<_>>()
        };
        match answer.end() {
            Ending::Again(round) => {
                let found = results(&round);
                let items = Dialect::Messages.results(&round, &found);
                asked.push_str(&format!(",{},{}", utf8(&round.turn), utf8(&items)));
                all.push(found);
                answer.next_round();
            }
            Ending::Handed(round) => {
                assert_eq!(nth + 1, rounds.len());
                all.push(results(&round));
            }
            Ending::Answered => assert_eq!(nth + 1, rounds.len()),
        }
    }
    let aside = answer.aside(&all);
    client.extend(answer.finish());
    Ran { client: client.concat(), aside, asked }
}

/// The message that a strict client reads.
fn read_stream(bytes: &[u8]) -> (Value, Value, Value) {
    let (mut blocks, mut open, mut end, mut stopped) = (Vec::<Value>::new(), false, Value::Null, false);
    let text = std::str::from_utf8(bytes).unwrap();
    for (at, event) in text.split_terminator("\n\n").enumerate() {
        let event: Value = serde_json::from_str(event.split_once("\ndata: ").unwrap().1).unwrap();
        assert!(!stopped, "{event}");
        assert_eq!(event["type"] == "message_start", at == 0, "{event}");
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                assert!(!open && event["index"] == blocks.len(), "{event}");
                blocks.push(event["content_block"].clone());
                if event["content_block"]["type"] == "tool_use" {
                    blocks.last_mut().unwrap()["input"] = json!("");
                }
                open = true;
            }
            "content_block_delta" => {
                assert!(open && event["index"] == blocks.len() - 1, "{event}");
                for (key, more) in event["delta"].as_object().unwrap().iter().filter(|(key, _)| *key != "type") {
                    let key = if key == "partial_json" { "input" } else { key };
                    let slot = &mut blocks.last_mut().unwrap()[key];
                    *slot = json!(format!("{}{}", slot.as_str().unwrap(), more.as_str().unwrap()));
                }
            }
            "content_block_stop" => {
                assert!(std::mem::take(&mut open) && event["index"] == blocks.len() - 1, "{event}");
                let block = blocks.last_mut().unwrap();
                if block["type"] == "tool_use" {
                    block["input"] = serde_json::from_str(block["input"].as_str().unwrap()).unwrap();
                }
            }
            "message_delta" => end = event,
            "message_stop" => stopped = true,
            _ => {}
        }
    }
    assert!(stopped && !open);
    (blocks.into(), end["delta"]["stop_reason"].clone(), end["usage"].clone())
}

fn visible(rounds: &[Vec<Value>]) -> Vec<Value> {
    rounds.iter().flatten().filter(|block| !is_own(block)).cloned().collect()
}

/// What the model was shown and said, message by message.
fn history(rounds: &[Vec<Value>]) -> Vec<Value> {
    let mut messages = vec![json!({"role": "user", "content": "do"})];
    for (nth, round) in rounds.iter().enumerate() {
        messages.push(json!({"role": "assistant", "content": round}));
        let answer = |block: &Value| json!({"type": "tool_result", "tool_use_id": block["id"], "content": format!("found {}", block["input"])});
        let mut content: Vec<Value> = round.iter().filter(|block| is_own(block)).map(answer).collect();
        if nth + 1 == rounds.len() {
            content.extend(next(round)["content"].as_array().unwrap().clone());
        }
        messages.push(json!({"role": "user", "content": content}));
    }
    messages
}

/// The client's next message.
fn next(last: &[Value]) -> Value {
    let calls = last.iter().filter(|block| block["type"] == "tool_use" && !is_own(block));
    let mut content: Vec<Value> =
        calls.map(|call| json!({"type": "tool_result", "tool_use_id": call["id"], "content": "done"})).collect();
    content.push(json!({"type": "text", "text": "go on"}));
    json!({"role": "user", "content": content})
}

fn put_back_in(body: &str, aside: &Aside) -> Option<String> {
    let memo = Memo::new(1 << 20);
    let conversation = crate::wire::read(Dialect::Messages, body.as_bytes(), &memo, [0; 16]).unwrap();
    let edits = conversation.put_back(0, aside)?;
    Some(utf8(&splice(&Bytes::copy_from_slice(body.as_bytes()), edits).unwrap().concat()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_client_reads_one_message(rounds in rounds(), json in any::<bool>(), cut in 1..400_usize) {
        let form = if json { Form::Json } else { Form::Stream };
        let ran = run(&rounds, form, cut);
        prop_assert!(memchr::memmem::find(&ran.client, b"peek").is_none());
        let last = rounds.last().unwrap();
        let hides = rounds.iter().flatten().any(is_own);
        prop_assert_eq!(ran.aside.is_some(), hides);
        if !hides {
            let body = if json { json_body(last, 0) } else { stream(last, 0) };
            prop_assert_eq!(&ran.client, &body);
        }
        let (content, stop_reason, usage) = match form {
            Form::Stream => read_stream(&ran.client),
            Form::Json => {
                let message: Value = serde_json::from_slice(&ran.client).unwrap();
                (message["content"].clone(), message["stop_reason"].clone(), message["usage"].clone())
            }
        };
        let seen = visible(&rounds);
        prop_assert_eq!(content, json!(seen));
        prop_assert_eq!(stop_reason, stop(&visible(std::slice::from_ref(last))));
        prop_assert_eq!(&usage["output_tokens"], 10 * rounds.len());
        if rounds.len() > 1 {
            prop_assert_eq!(&usage["input_tokens"], 99 + rounds.len());
        }
    }

    #[test]
    fn what_was_hidden_is_put_back(rounds in rounds(), json in any::<bool>(), cut in 1..400_usize) {
        let ran = run(&rounds, if json { Form::Json } else { Form::Stream }, cut);
        let Some(aside) = ran.aside else { return Ok(()) };
        let (seen, next) = (visible(&rounds), next(rounds.last().unwrap()));
        let echo: Vec<String> = seen.iter().map(Value::to_string).collect();
        let body = format!(r#"{BASE},{{"role":"assistant","content":[{}]}},{next}]}}"#, echo.join(","));
        let whole = put_back_in(&body, &aside).unwrap();
        // What the last round was asked with is the beginning of it.
        prop_assert!(whole.starts_with(&format!("{BASE}{}", ran.asked)), "{whole}\n{}", ran.asked);
        let read: Value = serde_json::from_str(&whole).unwrap();
        prop_assert_eq!(&read["messages"], &json!(history(&rounds)));
        // Whatever the order in which the client writes its members, and where it puts white space.
        let body = format!(r#"{BASE},{{ "content": [{}],"role":"assistant"}},{next}]}}"#, echo.join(", "));
        let spaced = put_back_in(&body, &aside).unwrap();
        if echo.len() < 2 {
            prop_assert!(spaced.starts_with(&format!("{BASE}{}", ran.asked)), "{spaced}\n{}", ran.asked);
        }
        let read: Value = serde_json::from_str(&spaced).unwrap();
        prop_assert_eq!(&read["messages"], &json!(history(&rounds)));
        // Without thinking, as clients send finished turns (A13).
        let bare: Vec<&String> = echo.iter().filter(|block| !block.contains("thinking")).collect();
        let bare = bare.into_iter().map(String::as_str).collect::<Vec<_>>().join(",");
        let body = format!(r#"{BASE},{{"role":"assistant","content":[{bare}]}},{next}]}}"#);
        let read: Value = serde_json::from_str(&put_back_in(&body, &aside).unwrap()).unwrap();
        let thoughtless: Vec<Vec<Value>> = rounds.iter().map(|round| round.iter().filter(|block| block["type"] != "thinking").cloned().collect()).collect();
        prop_assert_eq!(&read["messages"], &json!(history(&thoughtless)));
        // Another answer stands there.
        let other = format!(r#"{BASE},{{"role":"assistant","content":"something else"}},{next}]}}"#);
        prop_assert_eq!(put_back_in(&other, &aside), None);
    }
}

#[test]
fn an_answer_that_became_a_string_is_put_back_too() {
    let rounds = vec![vec![block(2, 1)], vec![block(1, 11)]];
    let aside = run(&rounds, Form::Stream, 50).aside.unwrap();
    let body = format!(r#"{BASE},{{"role":"assistant","content":"said 11"}},{{"role":"user","content":"x"}}]}}"#);
    let read: Value = serde_json::from_str(&put_back_in(&body, &aside).unwrap()).unwrap();
    assert_eq!(read["messages"][1]["content"], json!([block(2, 1)]));
    assert_eq!(read["messages"][3]["content"], "said 11");
}

#[test]
fn at_the_last_round_calls_vanish_and_the_answer_ends() {
    let mut answer = Answer::new(Dialect::Messages, Form::Stream, Arc::from(["peek".to_owned()]));
    let mut client = answer.push(&stream(&[block(1, 0), block(2, 1)], 0).into());
    assert!(matches!(answer.end(), Ending::Again(_)));
    client.extend(answer.finish());
    let (content, reason, _) = read_stream(&client.concat());
    assert_eq!((content, reason), (json!([block(1, 0)]), json!("end_turn")));
}

#[test]
fn tools_are_offered_where_the_client_leaves_the_choice() {
    let offers = [Offer { name: "peek".into(), description: "d".into(), parameters: json!({"type": "object"}) }];
    let memo = Memo::new(1 << 20);
    let may = |more: &str| {
        let body = format!(r#"{{"messages":[{{"role":"user","content":"a"}}]{more}}}"#);
        let conversation = crate::wire::read(Dialect::Messages, body.as_bytes(), &memo, [0; 16]).unwrap();
        let edit =
            conversation.offer(&offers).map(|edit| splice(&Bytes::from(body.clone()), vec![edit]).unwrap().concat());
        (conversation.may_offer(1), edit.map(|body| serde_json::from_slice::<Value>(&body).unwrap()))
    };
    let (may_offer, offered) = may(r#","tools":[{"name":"a"}]"#);
    assert!(may_offer);
    assert_eq!(
        offered.unwrap()["tools"][1],
        json!({"name": "peek", "description": "d", "input_schema": {"type": "object"}})
    );
    for more in [r#","tool_choice":{"type":"none"}"#, r#","tools":[{"name":"a"}],"tool_choice":{"type":"any"}"#] {
        assert!(!may(more).0, "{more}");
    }
}
