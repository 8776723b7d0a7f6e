use serde_json::{Value, json};

use super::*;
use crate::compact::budget::Budget;
use crate::compact::rows::{Change, Checkpoint, Head, Known, Level, TextKey};
use crate::compact::tokens::Tokens;
use crate::compact::{estimate, render};
use crate::config::Strategies;
use crate::wire::memo::Memo;
use crate::wire::splice::splice;
use crate::wire::{Dialect, read};

fn picture(n: usize, bytes: usize) -> Value {
    json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": format!("{n}{}", "A".repeat(bytes)) } })
}

/// The body as it would be sent once its pictures have been taken out, with the tokens it is counted at.
fn lightened_body(messages: &[Value]) -> Option<(Value, u64, u64)> {
    lightened_under(messages, Known::default())
}

/// The same, where some rows are known.
fn lightened_under(messages: &[Value], known: Known) -> Option<(Value, u64, u64)> {
    let body = json!({ "model": "m", "messages": messages }).to_string();
    let conversation = read(Dialect::Messages, body.as_bytes(), &Memo::new(0), [0; 16]).unwrap();
    let strategies = Strategies::default();
    let situation = Situation {
        conversation: &conversation,
        known: &known,
        strategies: &strategies,
        budget: &Budget::new(&strategies, None, None),
        calibration: 1.0,
        key: &TextKey([1; 32]),
        tokens: &Tokens::default(),
        ways: Default::default(),
    };
    let rung = lightened(&situation)?;
    let before = estimate::total(&situation).after;
    let known = Known { active: Some(std::sync::Arc::new(rung.checkpoint.clone())), ..Known::default() };
    let edits = render::render(&conversation, &known).edits;
    let sent = splice(&bytes::Bytes::from(body.clone()), edits).unwrap().concat();
    let sent: Value = serde_json::from_slice(&sent).unwrap();
    for removed in &rung.texts {
        assert!(serde_json::from_str::<Value>(&removed.text).unwrap()["source"]["data"].is_string());
        assert!(sent.to_string().contains(&removed.id.to_string()));
    }
    Some((sent, before, rung.tokens))
}

#[test]
fn the_oldest_pictures_go_until_half_of_the_bytes_is_left() {
    let result = json!({ "type": "tool_result", "tool_use_id": "a", "content": [picture(1, 4_000), { "type": "text", "text": "t" }] });
    let messages = [
        json!({ "role": "user", "content": [picture(0, 4_000), { "type": "text", "text": "look" }] }),
        json!({ "role": "assistant", "content": [{ "type": "tool_use", "id": "a", "name": "f", "input": {} }] }),
        json!({ "role": "user", "content": [result] }),
        json!({ "role": "assistant", "content": "seen" }),
        json!({ "role": "user", "content": [picture(2, 4_000), { "type": "text", "text": "and this?" }] }),
    ];
    let (sent, before, after) = lightened_body(&messages).unwrap();
    let content = |at: usize| sent["messages"][at]["content"].clone();
    assert_eq!((&content(0)[0]["type"], &content(2)[0]["content"][0]["type"]), (&json!("text"), &json!("text")));
    assert_eq!((&content(4)[0]["type"], &content(4)[1]["text"]), (&json!("image"), &json!("and this?")));
    assert!(after + 1_500 < before && after > 1_105, "{before} {after}");
}

#[test]
fn a_picture_that_goes_leaves_its_breakpoint() {
    let mut marked = picture(0, 9_000);
    marked["cache_control"] = json!({ "type": "ephemeral", "ttl": "1h" });
    let messages = [
        json!({ "role": "user", "content": [marked.clone(), { "type": "text", "text": "look" }] }),
        json!({ "role": "assistant", "content": "seen" }),
        json!({ "role": "user", "content": "and?" }),
    ];
    let (sent, ..) = lightened_body(&messages).unwrap();
    let block = &sent["messages"][0]["content"][0];
    assert_eq!((&block["type"], &block["cache_control"]), (&json!("text"), &marked["cache_control"]));
}

#[test]
fn what_is_asked_about_goes_last() {
    let call = |id: &str| json!({ "role": "assistant", "content": [{ "type": "tool_use", "id": id, "name": "f", "input": {} }] });
    let seen = |id: &str, n, bytes| {
        let result = json!({ "type": "tool_result", "tool_use_id": id, "content": [picture(n, bytes)] });
        json!({ "role": "user", "content": [result] })
    };
    let asked = json!({ "role": "user", "content": [picture(0, 4_000), { "type": "text", "text": "find it" }] });
    let kinds = |messages: &[Value]| {
        let (sent, ..) = lightened_body(messages).unwrap();
        (
            sent["messages"][0]["content"][0]["type"].clone(),
            sent["messages"][2]["content"][0]["content"][0]["type"].clone(),
        )
    };
    assert_eq!(kinds(&[asked.clone(), call("a"), seen("a", 1, 9_000)]), (json!("image"), json!("text")));
    assert_eq!(kinds(&[asked, call("a"), seen("a", 1, 900)]), (json!("text"), json!("text")));
}

#[test]
fn what_a_summary_stands_for_is_not_sent() {
    let messages = [
        json!({ "role": "user", "content": "a".repeat(90_000) }),
        json!({ "role": "assistant", "content": "b" }),
        json!({ "role": "user", "content": [picture(0, 6_000)] }),
        json!({ "role": "assistant", "content": "c" }),
        json!({ "role": "user", "content": [picture(1, 4_000)] }),
    ];
    let head = Head { upto: 1, text: "so far".into(), ..Head::default() };
    let (level, tokens, edits) = (Level::Summary, Change::default(), Vec::new());
    let active = Checkpoint { level, covers: 1, head: Some(head), edits, tokens };
    let known = Known { active: Some(std::sync::Arc::new(active)), ..Known::default() };
    let (sent, ..) = lightened_under(&messages, known).unwrap();
    assert_eq!(sent["messages"][2]["content"][0]["type"], "text");
    assert_eq!(sent["messages"][4]["content"][0]["type"], "image");
}

#[test]
fn texts_and_bound_histories_are_left_alone() {
    assert!(lightened_body(&[json!({ "role": "user", "content": "a".repeat(9_000) })]).is_none());
    let thought = json!({ "type": "thinking", "thinking": "t", "signature": "s" });
    let messages = [
        json!({ "role": "user", "content": [picture(0, 9_000)] }),
        json!({ "role": "assistant", "content": [thought, { "type": "text", "text": "b" }] }),
    ];
    assert!(lightened_body(&messages).is_none());
}
