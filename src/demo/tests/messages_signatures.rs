use http::HeaderMap;
use serde_json::json;

use super::super::super::answer::{Answer, ToolCall};
use super::super::super::request::{Api, Purpose};
use super::super::answer::content;
use super::super::{Settings, check};
use super::*;

/// A client's side of a loop: what it has sent and received.
struct Loop {
    signatures: Signatures,
    body: Value,
}

impl Loop {
    fn new() -> Self {
        let body = json!({
            "model": "m", "max_tokens": 4096, "system": "be good", "tools": [{"name": "f"}],
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "messages": [{"role": "user", "content": "go"}],
        });
        Self { signatures: Signatures::default(), body }
    }

    /// The model calls, the client answers.
    fn step(&mut self, id: &str) {
        let request = ModelRequest::new(Api::Messages, self.body.clone());
        let call = ToolCall { id: id.to_owned(), name: "f".to_owned(), arguments: "{}".to_owned() };
        let answer = Answer { calls: vec![call], ..Answer::text("a") };
        let content = content(&answer, &request);
        self.signatures.issued(&content);
        let result = json!([{"type": "tool_result", "tool_use_id": id, "content": "ok"}]);
        let all = self.body["messages"].as_array_mut().unwrap();
        all.push(json!({"role": "assistant", "content": content}));
        all.push(json!({"role": "user", "content": result}));
    }

    fn send(&mut self, body: &Value, settings: &Settings, betas: &str) -> Result<Vec<Place>, Violation> {
        let mut headers = HeaderMap::new();
        headers.insert("anthropic-beta", betas.parse().unwrap());
        let request = ModelRequest { headers, ..ModelRequest::new(Api::Messages, body.clone()) };
        check(&request, Purpose::Answer, settings, &mut self.signatures)
    }

    fn changed(&mut self, change: impl FnOnce(&mut Value)) -> Result<Vec<Place>, Violation> {
        let mut body = self.body.clone();
        change(&mut body);
        self.send(&body, &Settings::default(), "")
    }
}

fn two_steps() -> Loop {
    let mut client = Loop::new();
    client.step("t1");
    client.step("t2");
    client
}

#[track_caller]
fn says(checked: Result<Vec<Place>, Violation>, rule: &str, text: &str) {
    let violation = checked.expect_err("it was accepted");
    let message = violation.body["error"]["message"].as_str().unwrap();
    assert!(violation.rule == rule && message.contains(text), "{} {message}", violation.rule);
}

const BLOCK: &str = "/messages/3/content/0/thinking";
const BOUND: &str = "Invalid `signature` in `thinking` block: the block is bound to a different conversation";

#[test]
fn what_comes_back_unchanged_is_taken() {
    let mut client = two_steps();
    assert_eq!(client.changed(|_| {}), Ok(Vec::new()));
    // What clients move or say otherwise from turn to turn does not count.
    let same = client.changed(|body| {
        body["system"] = json!([
            {"type": "text", "text": "x-anthropic-billing-header: cch=1;"},
            {"type": "text", "text": "be good", "cache_control": {"type": "ephemeral"}},
        ]);
        body["messages"][0]["content"] = json!([{"type": "text", "text": "go"}]);
        body["messages"][2]["content"][0]["is_error"] = false.into();
    });
    assert_eq!(same, Ok(Vec::new()));
}

#[test]
fn a10_a_changed_block_is_invalid() {
    let mut client = two_steps();
    let changed = client.changed(|body| *body.pointer_mut(BLOCK).unwrap() = "else".into());
    says(changed, "A10", "messages.3.content.0: Invalid `signature` in `thinking` block");
    let cut = client.changed(|body| body["messages"][1]["content"][0]["signature"] = "AAAA".into());
    says(cut, "A10", "messages.1.content.0: Invalid `signature`");
}

#[test]
fn a10_thinking_is_not_left_out_of_the_loop() {
    let mut client = two_steps();
    // The last message still begins with thinking, and nothing is bound to the one before it.
    let mut body = client.body.clone();
    body["messages"][1]["content"].as_array_mut().unwrap().remove(0);
    let older = Settings { binding: Binding::Block, ..Settings::default() };
    says(client.send(&body, &older, ""), "A10", "blocks in the latest assistant message cannot be modified");
    // Behind a new user's message the turn is finished: it may be left out (A13).
    let text = json!({"role": "assistant", "content": [{"type": "text", "text": "done"}]});
    client.body["messages"].as_array_mut().unwrap().extend([text, json!({"role": "user", "content": "and now"})]);
    let finished = client.changed(|body| {
        for i in [1, 3] {
            body["messages"][i]["content"].as_array_mut().unwrap().remove(0);
        }
    });
    assert_eq!(finished, Ok(Vec::new()));
}

#[test]
fn a27_what_stands_before_must_not_change() {
    let mut client = two_steps();
    type Change = fn(&mut Value);
    let changes: [(Change, &str); 4] = [
        (|body| body["system"] = "be better".into(), "messages.1.content.0"),
        (|body| body["tools"] = json!([{"name": "f"}, {"name": "g"}]), "messages.1.content.0"),
        (|body| body["messages"][0]["content"] = "go!".into(), "messages.1.content.0"),
        (|body| body["messages"][2]["content"][0]["content"] = "cut".into(), "messages.3.content.0"),
    ];
    for (change, place) in changes {
        says(client.changed(change), "A27", &format!("{place}: {BOUND}"));
    }
    // What stands behind every block is free.
    assert_eq!(client.changed(|body| body["messages"][4]["content"][0]["content"] = "cut".into()), Ok(Vec::new()));
    // So is all where the signature covers the block alone.
    let mut body = client.body.clone();
    body["system"] = "be better".into();
    let older = Settings { binding: Binding::Block, ..Settings::default() };
    assert_eq!(client.send(&body, &older, ""), Ok(Vec::new()));
}

#[test]
fn a27_the_client_may_have_such_blocks_dropped() {
    let mut client = two_steps();
    let mut body = client.body.clone();
    body["messages"][2]["content"][0]["content"] = "cut".into();
    body["thinking"]["block_binding"] = json!({"prefix_mismatch_behavior": "drop_block"});
    let settings = Settings::default();
    let unknown = client.send(&body, &settings, "");
    says(unknown, "A27", "thinking.enabled.block_binding: Extra inputs are not permitted");
    assert_eq!(client.send(&body, &settings, CONTROLS), Ok(vec![(3, 0)]));
    let seen = super::super::without(&ModelRequest::new(Api::Messages, body.clone()), &[(3, 0)]);
    assert_eq!(seen.body["messages"][3]["content"].as_array().unwrap().len(), 2);
    body["thinking"]["block_binding"] = json!({"prefix_mismatch_behavior": "error"});
    says(client.send(&body, &settings, CONTROLS), "A27", BOUND);
}

#[test]
fn others_signatures_are_opaque_but_stay_with_their_text() {
    let mut client = Loop::new();
    let thinking = |thought: &str| json!({"type": "thinking", "thinking": thought, "signature": "c2lnbmVk"});
    let with = |thought: &str| {
        json!([{"role": "user", "content": "a"},
            {"role": "assistant", "content": [thinking(thought), {"type": "text", "text": "b"}]},
            {"role": "user", "content": "c"}])
    };
    assert_eq!(client.changed(|body| body["messages"] = with("x")), Ok(Vec::new()));
    assert_eq!(client.changed(|body| body["messages"] = with("x")), Ok(Vec::new()));
    says(client.changed(|body| body["messages"] = with("y")), "A10", "Invalid `signature`");
}
