//! Reading through a memory equals reading afresh, spelling does not count, and nothing makes the reader panic.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::wire::memo::{Memo, Salt};
use crate::wire::{Conversation, Dialect, read};

const SALT: Salt = [7; 16];

fn check(body: &[u8], memo: &Memo) -> Result<(), TestCaseError> {
    let fresh = read(Dialect::Messages, body, &Memo::new(0), SALT);
    prop_assert_eq!(&read(Dialect::Messages, body, memo, SALT), &fresh);
    let Ok(conversation) = fresh else { return Ok(()) };
    for (index, item) in conversation.items.iter().enumerate() {
        // What is said of an item lies within it, and can be written again without breaking the body.
        for slot in &item.facts.slots {
            prop_assert!(slot.span.end <= item.span.len());
        }
        for edit in conversation.without_signed(index) {
            prop_assert!(item.span.start < edit.span.start && edit.span.end < item.span.end);
        }
        let head = conversation.head_message(index, "t");
        prop_assert!(serde_json::from_str::<Value>(&head).is_ok());
    }
    Ok(())
}

fn mark() -> impl Strategy<Value = Option<Value>> {
    prop::option::weighted(0.2, Just(json!({ "type": "ephemeral" })))
}

fn block() -> impl Strategy<Value = Value> {
    let text = "[a-zé\"\\\\ ]{1,12}";
    let part = prop_oneof![
        text.prop_map(|text| json!({ "type": "text", "text": text })),
        Just(json!({ "type": "image", "source": { "type": "base64", "data": "AA" } })),
        Just(json!({ "type": "document", "source": { "type": "text", "data": "words" } })),
    ];
    let content = prop_oneof![
        text.prop_map(Value::from),
        prop::collection::vec(part.clone(), 0..3).prop_map(Value::from),
        Just(Value::Null),
    ];
    prop_oneof![
        3 => part,
        2 => (text, prop::option::of("[a-z]{1,3}"))
            .prop_map(|(text, signature)| json!({ "type": "thinking", "thinking": text, "signature": signature })),
        1 => Just(json!({ "type": "redacted_thinking", "data": "xx" })),
        2 => (text, "[a-d]").prop_map(|(text, id)| json!({ "type": "tool_use", "id": id, "name": "f", "input": { "k": text } })),
        2 => (content, "[a-d]", any::<Option<bool>>()).prop_map(|(content, id, error)| {
            json!({ "type": "tool_result", "tool_use_id": id, "content": content, "is_error": error })
        }),
        1 => Just(json!({ "type": "tool_addition", "tool": { "name": "g" } })),
        1 => Just(json!({ "type": "server_tool_use", "id": "s", "name": "n", "input": {} })),
        1 => prop::option::of(text).prop_map(|text| json!({ "type": "compaction", "content": text })),
    ]
}

fn message() -> impl Strategy<Value = Value> {
    let marked = (block(), mark()).prop_map(|(mut block, mark)| {
        if let Some(mark) = mark {
            block["cache_control"] = mark;
        }
        block
    });
    let content = prop_oneof![
        1 => "[a-z ]{0,9}".prop_map(Value::from),
        4 => prop::collection::vec(marked, 0..5).prop_map(Value::from),
    ];
    (prop_oneof![4 => Just("user"), 4 => Just("assistant"), 1 => Just("system")], content)
        .prop_map(|(role, content)| json!({ "role": role, "content": content }))
}

fn body(messages: &[Value]) -> String {
    json!({ "model": "m", "system": "s", "max_tokens": 9, "messages": messages }).to_string()
}

/// The same with what clients change from turn to turn: order of keys, cache marks, `is_error: false`.
fn respelt(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut other = Map::new();
            for (key, value) in members.iter().rev().filter(|(key, _)| *key != "cache_control") {
                other.insert(key.clone(), respelt(value));
            }
            if members.get("type") == Some(&json!("tool_result")) && other["is_error"] != json!(true) {
                other.insert("is_error".into(), json!(false));
            }
            Value::Object(other)
        }
        Value::Array(values) => values.iter().map(respelt).collect(),
        other => other.clone(),
    }
}

fn texts(conversation: &Conversation<'_>) -> Vec<(String, Option<String>)> {
    let items = conversation.items.iter().enumerate();
    let slots = items.flat_map(|(index, item)| item.facts.slots.iter().map(move |slot| (index, slot)));
    // Objects have their own spelling.
    slots
        .map(|(index, slot)| {
            let text = conversation.text(index, slot).filter(|text| !text.starts_with('{'));
            (format!("{:?}", slot.kind), text)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For all histories as they grow, with a memory that has room and one that hardly has any.
    #[test]
    fn a_memory_changes_nothing(messages in prop::collection::vec(message(), 1..14)) {
        let (roomy, tight) = (Memo::new(8 << 20), Memo::new(100 << 10));
        let filler = json!({ "role": "user", "content": "x".repeat(3_000) });
        for upto in 1..=messages.len() {
            let history: Vec<Value> = std::iter::once(filler.clone()).chain(messages[..upto].iter().cloned()).collect();
            for memo in [&roomy, &roomy, &tight] {
                check(body(&history).as_bytes(), memo)?;
            }
        }
    }

    /// For all histories: what clients change from turn to turn changes neither digests nor slots.
    #[test]
    fn spelling_does_not_count(messages in prop::collection::vec(message(), 1..8)) {
        let (body, other) = (body(&messages), body(&messages.iter().map(respelt).collect::<Vec<_>>()));
        let memo = Memo::new(0);
        let first = read(Dialect::Messages, body.as_bytes(), &memo, SALT).unwrap();
        let second = read(Dialect::Messages, other.as_bytes(), &memo, SALT).unwrap();
        prop_assert!(first.chain().eq(second.chain()));
        prop_assert_eq!(texts(&first), texts(&second));
    }

    /// For all valid bodies with a byte changed, after the valid one was read; and for all bytes.
    #[test]
    fn broken_bodies_neither_panic_nor_profit(
        messages in prop::collection::vec(message(), 1..4),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        bytes in prop::collection::vec(any::<u8>(), 0..60),
        json in "[{}\\[\\]\",:a0 \\\\]{0,30}",
    ) {
        let memo = Memo::new(8 << 20);
        let mut body = body(&messages).into_bytes();
        check(&body, &memo)?;
        let at = at.index(body.len());
        body[at] = byte;
        check(&body, &memo)?;
        check(&bytes, &memo)?;
        check(format!(r#"{{"messages":[{{"role":"user","content":[{json}]}}]}}"#).as_bytes(), &memo)?;
    }
}

/// Every request that an agent would have sent in recorded conversations reads, and nothing is rewritten alike twice.
#[test]
fn recorded_conversations_read_turn_by_turn() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/corpus/anthropic");
    let Ok(files) = std::fs::read_dir(folder) else {
        println!("no recorded conversations here");
        return;
    };
    for file in files {
        let path = file.unwrap().path();
        let recorded: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let messages = recorded["messages"].as_array().unwrap();
        let memo = Memo::new(8 << 20);
        let whole = body(messages);
        let whole = read(Dialect::Messages, whole.as_bytes(), &memo, SALT).unwrap();
        assert_eq!(whole.lead.len() + whole.items.len(), messages.len(), "{}", path.display());
        let step = (messages.len() / 12).max(1);
        for upto in (1..=messages.len()).step_by(step) {
            let part = body(&messages[..upto]);
            let part = read(Dialect::Messages, part.as_bytes(), &memo, SALT).unwrap();
            assert!(part.chain().eq(whole.chain().take(part.items.len())), "{}", path.display());
        }
    }
}
