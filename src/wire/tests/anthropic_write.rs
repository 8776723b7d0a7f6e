//! What is written into a body.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::wire::memo::Memo;
use crate::wire::splice::{Edit, splice};
use crate::wire::{Conversation, Dialect, read};

fn conversation(body: &str) -> Conversation<'_> {
    read(Dialect::Messages, body.as_bytes(), &Memo::new(0), [0; 16]).unwrap()
}

fn body(messages: &[Value]) -> String {
    json!({ "model": "m", "max_tokens": 10, "messages": messages }).to_string()
}

fn placed(body: &str, edits: Vec<Edit>) -> Value {
    serde_json::from_slice(&splice(&Bytes::copy_from_slice(body.as_bytes()), edits).unwrap().concat()).unwrap()
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn marked(mut block: Value, ttl: &str) -> Value {
    block["cache_control"] = json!({ "type": "ephemeral", "ttl": ttl });
    block
}

#[test]
fn the_head_takes_the_last_breakpoint_of_what_it_replaces() {
    let result = json!({ "type": "tool_result", "tool_use_id": "a", "content": [marked(text("in"), "5m")] });
    let body = body(&[
        json!({ "role": "user", "content": [marked(text("a"), "1h")] }),
        json!({ "role": "assistant", "content": [{ "type": "tool_use", "id": "a", "name": "f", "input": {} }] }),
        json!({ "role": "user", "content": [result] }),
        json!({ "role": "assistant", "content": "b" }),
    ]);
    let conversation = conversation(&body);
    let head = |upto| serde_json::from_str::<Value>(&conversation.head_message(upto, "said \"it\"")).unwrap();
    assert_eq!(head(0), json!({ "role": "user", "content": [text("said \"it\"")] }));
    assert_eq!(head(2)["content"], json!([marked(text("said \"it\""), "1h")]));
    assert_eq!(head(4)["content"], json!([marked(text("said \"it\""), "5m")]));
}

#[test]
fn changed_tools_and_instructions_go_along_with_the_head() {
    let change = |kind: &str| json!({ "type": kind, "x": 1.50 });
    let body = body(&[
        json!({ "role": "user", "content": [change("tool_addition"), text("a")] }),
        json!({ "role": "user", "content": [change("mid_conv_system")] }),
        json!({ "role": "user", "content": "last" }),
        json!({ "role": "assistant", "content": "b" }),
    ]);
    let conversation = conversation(&body);
    let head: Value = serde_json::from_str(&conversation.head_message(2, "h")).unwrap();
    assert_eq!(head["content"], json!([text("h"), change("tool_addition"), change("mid_conv_system")]));
    // Nothing stands behind them in their message.
    let folded = placed(&body, conversation.fold_into(2, "h\n\n").unwrap());
    let due = json!([text("h"), text("last"), change("tool_addition"), change("mid_conv_system")]);
    assert_eq!(folded["messages"][2]["content"], due);
}

#[test]
fn changed_tools_and_instructions_go_along_whoever_said_them() {
    let change = |kind: &str| json!({ "type": kind, "x": 1.50 });
    let body = body(&[
        json!({ "role": "user", "content": "a" }),
        json!({ "role": "system", "content": [change("mid_conv_system")] }),
        json!({ "role": "assistant", "content": [text("b"), change("tool_removal")] }),
        json!({ "role": "system", "content": "a reminder" }),
        json!({ "role": "user", "content": [text("last")] }),
    ]);
    let conversation = conversation(&body);
    assert_eq!(conversation.items.len(), 5);
    let head: Value = serde_json::from_str(&conversation.head_message(3, "h")).unwrap();
    assert_eq!(head["content"], json!([text("h"), change("mid_conv_system"), change("tool_removal")]));
    let folded = placed(&body, conversation.fold_into(4, "h\n\n").unwrap());
    let due = json!([text("h"), text("last"), change("mid_conv_system"), change("tool_removal")]);
    assert_eq!(folded["messages"][4]["content"], due);
}

/// A breakpoint may not stand behind one that is kept for a shorter time.
#[test]
fn the_head_takes_the_breakpoints_of_changes_too() {
    let change = json!({ "type": "mid_conv_system", "content": [text("x")] });
    let body = body(&[
        json!({ "role": "user", "content": [marked(text("a"), "1h")] }),
        json!({ "role": "user", "content": [{ "type": "mid_conv_system", "content": [marked(text("x"), "5m")], "cache_control": { "type": "ephemeral", "ttl": "5m" } }, text("b")] }),
        json!({ "role": "assistant", "content": [marked(text("c"), "5m")] }),
    ]);
    let conversation = conversation(&body);
    let head = |upto| serde_json::from_str::<Value>(&conversation.head_message(upto, "h")).unwrap()["content"].take();
    assert_eq!(head(2), json!([marked(text("h"), "5m"), change]));
    assert_eq!(head(3), json!([marked(text("h"), "5m"), change]));
}

#[test]
fn a_head_is_folded_in_front_of_a_user_message() {
    let result = json!({ "type": "tool_result", "tool_use_id": "a", "content": "r" });
    let body = body(&[
        json!({ "role": "user", "content": [marked(text("a"), "5m")] }),
        json!({ "role": "user", "content": "plain" }),
        json!({ "role": "user", "content": [{ "type": "image", "source": {} }, text("b")] }),
        json!({ "role": "user", "content": [result, text("beside")] }),
        json!({ "role": "assistant", "content": "b" }),
    ]);
    let conversation = conversation(&body);
    let folded = |item| {
        conversation.fold_into(item, "head\n\n").map(|edits| placed(&body, edits)["messages"][item]["content"].take())
    };
    assert_eq!(folded(1), Some(json!("head\n\nplain")));
    assert_eq!(folded(2), Some(json!([marked(text("head"), "5m"), { "type": "image", "source": {} }, text("b")])));
    assert_eq!((folded(3), folded(4)), (None, None));
}

#[test]
fn signed_thinking_is_left_out_wherever_it_stands() {
    let thought = |n: usize| json!({ "type": "thinking", "thinking": format!("t{n}"), "signature": "s" });
    let secret = json!({ "type": "redacted_thinking", "data": "x" });
    let unsigned = json!({ "type": "thinking", "thinking": "t", "signature": "" });
    let cases = [
        (
            json!([thought(1), text("a"), thought(2), secret, text("b"), thought(3), thought(4)]),
            json!([text("a"), text("b")]),
        ),
        (json!([text("a"), secret]), json!([text("a")])),
        (json!([secret, thought(1), text("a")]), json!([text("a")])),
        (json!([thought(1)]), json!([text("…")])),
        (json!([unsigned, text("a")]), json!([unsigned, text("a")])),
        (json!([text("a")]), json!([text("a")])),
        (json!("a"), json!("a")),
    ];
    for (content, expected) in cases {
        let spelt = format!("{{\"model\":\"m\",\"messages\":[{{\"role\":\"assistant\", \"content\" : {content} }}]}}")
            .replace("},{", "} ,\n{");
        let conversation = conversation(&spelt);
        assert_eq!(placed(&spelt, conversation.without_signed(0))["messages"][0]["content"], expected, "{content}");
    }
}

#[test]
fn the_providers_option_is_set_once() {
    let with = |thinking: &str| {
        let body = format!(r#"{{"model":"m",{thinking}"messages":[{{"role":"user","content":"a"}}]}}"#);
        conversation(&body).drop_blocks().map(|edit| placed(&body, vec![edit])["thinking"].take())
    };
    let option = json!({ "prefix_mismatch_behavior": "drop_block" });
    let adaptive = json!({ "type": "adaptive", "block_binding": option });
    assert_eq!(with(r#""thinking":{"type":"adaptive" },"#), Some(adaptive));
    assert_eq!(with(r#""thinking":{},"#), Some(json!({ "block_binding": option })));
    assert_eq!(with(r#""thinking":{"block_binding":{}},"#), None);
    assert_eq!(with(r#""thinking":{"type":"disabled"},"#), None);
    assert_eq!(with(r#""thinking":null,"#), None);
    assert_eq!(with(""), None);
}

#[test]
fn arguments_that_are_objects_are_replaced_as_json() {
    let call = json!({ "type": "tool_use", "id": "a", "name": "f", "input": { "k": "long" } });
    let body = body(&[json!({ "role": "assistant", "content": [call] })]);
    let conversation = conversation(&body);
    let slot = &conversation.items[0].facts.slots[0];
    assert_eq!(conversation.text(0, slot).unwrap(), r#"{"k":"long"}"#);
    assert_eq!(conversation.replacement(0, slot, &r#"{"k":"l"}"#.into()), r#"{"k":"l"}"#);
}
