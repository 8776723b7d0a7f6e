//! Heads that meet other edits where they are placed.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::compact::rows::{Change, Level};
use crate::wire::memo::Memo;
use crate::wire::splice::splice;
use crate::wire::{Dialect, read};

/// The content of the second message, with a head in front that stands for the first and `with` in its first slot.
fn folded(second: &Value, with: &str) -> Value {
    let messages = [json!({ "role": "user", "content": "first" }), json!({ "role": "user", "content": second })];
    let body = json!({ "model": "m", "messages": messages }).to_string();
    let conversation = read(Dialect::Messages, body.as_bytes(), &Memo::new(0), [0; 16]).unwrap();
    let head = Head { upto: 1, text: "head".into(), ..Head::default() };
    let edits = vec![(1, Replacement { slot: 0, text: with.into() })];
    let (level, tokens) = (Level::Summary, Change::default());
    let checkpoint = Checkpoint { level, covers: 2, head: Some(head), edits, tokens };
    let known = Known { active: Some(Arc::new(checkpoint)), ..Known::default() };
    let edits = render(&conversation, &known).edits;
    let sent = splice(&bytes::Bytes::from(body.clone()), edits).unwrap().concat();
    let mut sent: Value = serde_json::from_slice(&sent).unwrap();
    sent["messages"][0]["content"].take()
}

#[test]
fn a_head_stands_before_a_picture_that_is_replaced() {
    let text = |text: &str| json!({ "type": "text", "text": text });
    let picture = json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "AAAA" } });
    let sent = folded(&json!([picture, text("look")]), &text("gone").to_string());
    assert_eq!(sent, json!([text("head"), text("gone"), text("look")]));
}

#[test]
fn a_head_joins_a_text_that_is_replaced() {
    assert_eq!(folded(&json!("long"), "short"), json!("head\n\nshort"));
}
