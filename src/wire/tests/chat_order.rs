//! The order of keys changes neither the chain nor what a stored row replaces.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;

use crate::compact::render::render;
use crate::compact::{Change, Checkpoint, Eviction, Evictions, Known, Level, Replacement};
use crate::wire::Dialect;
use crate::wire::memo::Memo;
use crate::wire::read;
use crate::wire::splice::splice;
use crate::wire::{Conversation, SlotKind};

/// Messages with every kind of slot, as a client may write them.
const MESSAGES: &[&str] = &[
    r#"{"role":"user","content":"hello"}"#,
    r#"{"role":"assistant","content":"I look","refusal":"no","reasoning_content":"hm","audio":{"id":"a"},"tool_calls":[
        {"id":"c1","type":"function","function":{"name":"write","arguments":"{\"a\":1}","strict":true},"extra":"e"},
        {"id":"c2","type":"custom","custom":{"input":"free","name":"patch"}}]}"#,
    r#"{"role":"tool","tool_call_id":"c1","name":"write","content":[{"type":"text","text":"one","extra":"x"},{"type":"text","text":"two"}]}"#,
    r#"{"role":"tool","tool_call_id":"c2","content":"three","extra":[1]}"#,
    r#"{"role":"assistant","content":"done","function_call":{"name":"old","arguments":"{}"}}"#,
];

/// `value` with the members of every object in an order that `seed` decides.
fn permuted(value: &Value, seed: &mut u64) -> String {
    match value {
        Value::Array(elements) => {
            format!("[{}]", elements.iter().map(|value| permuted(value, seed)).collect::<Vec<_>>().join(","))
        }
        Value::Object(members) => {
            let mut members: Vec<(u64, String)> = members
                .iter()
                .map(|(key, value)| {
                    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (*seed >> 33, format!("{}:{}", Value::from(key.as_str()), permuted(value, seed)))
                })
                .collect();
            members.sort();
            format!("{{{}}}", members.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(","))
        }
        _ => value.to_string(),
    }
}

fn body(mut seed: u64) -> Bytes {
    let messages = MESSAGES.iter().map(|text| permuted(&serde_json::from_str(text).unwrap(), &mut seed));
    format!(r#"{{"model":"m","messages":[{}]}}"#, messages.collect::<Vec<_>>().join(",")).into()
}

fn slots(conversation: &Conversation<'_>) -> Vec<(usize, SlotKind, Option<String>)> {
    let items = conversation.items.iter().enumerate();
    items
        .flat_map(|(i, item)| item.facts.slots.iter().map(move |slot| (i, slot.kind, conversation.text(i, slot))))
        .collect()
}

/// The body under `rows`.
fn rewritten(body: &Bytes, rows: &Known) -> Value {
    let conversation = read(Dialect::Chat, body, &Memo::new(0), [0; 16]).unwrap();
    let pieces = splice(body, render(&conversation, rows).edits).unwrap();
    serde_json::from_slice(&pieces.concat()).unwrap()
}

/// Rows made for one body: evictions of the results, and a checkpoint's edits of all else.
fn rows(conversation: &Conversation<'_>) -> Known {
    let mut edits = Vec::new();
    let mut evictions = Evictions::default();
    for (i, item) in conversation.items.iter().enumerate() {
        let with = |slot: usize| Replacement { slot, text: format!("item {i}, slot {slot}").into() };
        let (results, others): (Vec<usize>, Vec<usize>) =
            (0..item.facts.slots.len()).partition(|slot| matches!(item.facts.slots[*slot].kind, SlotKind::Result(_)));
        if !results.is_empty() {
            let replacements = results.into_iter().map(with).collect();
            evictions.insert(item.chain, Arc::new(Eviction { replacements, tokens: Change::default() }));
        }
        edits.extend(others.into_iter().map(|slot| (i, with(slot))));
    }
    let covers = conversation.items.len();
    let checkpoint = Checkpoint { level: Level::Trim, covers, head: None, edits, tokens: Change::default() };
    Known { evictions, active: Some(Arc::new(checkpoint)), ..Known::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For all orders of keys: the same chain, the same slots at the same indices, and rows that were
    /// made for one order replace the same values in another.
    #[test]
    fn rows_fit_whatever_the_order_of_keys(one: u64, other: u64) {
        let (one, other) = (body(one), body(other));
        let memo = Memo::new(0);
        let (first, second) = (read(Dialect::Chat, &one, &memo, [0; 16]).unwrap(), read(Dialect::Chat, &other, &memo, [0; 16]).unwrap());
        prop_assert!(first.chain().eq(second.chain()));
        prop_assert_eq!(slots(&first), slots(&second));
        let rows = rows(&first);
        prop_assert_eq!(rewritten(&one, &rows), rewritten(&other, &rows));
    }
}
