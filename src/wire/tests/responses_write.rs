//! What is written into a conversation of Responses.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::compact::render::render;
use crate::compact::{Change, Checkpoint, Head, Known, Level, Replacement};
use crate::wire::memo::Memo;
use crate::wire::splice::{Edit, splice};
use crate::wire::{Conversation, Dialect, read};

fn responses(body: &str) -> Conversation<'_> {
    read(Dialect::Responses, body.as_bytes(), &Memo::new(0), [0; 16]).unwrap()
}

fn placed(body: &str, edits: Vec<Edit>) -> String {
    String::from_utf8(splice(&Bytes::from(body.to_owned()), edits).unwrap().concat()).unwrap()
}

/// The body in which a head stands for its first `upto` items, of `covers`.
fn headed(body: &str, upto: usize, covers: usize) -> String {
    let head = Head { upto, text: "H\n\"1\"".into(), ..Head::default() };
    let checkpoint =
        Checkpoint { level: Level::Summary, covers, head: Some(head), edits: Vec::new(), tokens: Change::default() };
    let known = Known { active: Some(Arc::new(checkpoint)), ..Known::default() };
    placed(body, render(&responses(body), &known).edits)
}

const TYPED: &str = r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"H\n\"1\""}]}"#;
const EASY: &str = r#"{"role":"user","content":"H\n\"1\""}"#;

#[test]
fn a_head_takes_the_form_of_the_clients_own_messages() {
    let typed = r#"{"type":"message","role":"user","content":"a"}"#;
    let easy = r#"{"role":"user","content":"a"}"#;
    let says = r#"{"type":"message","role":"assistant","content":"b"}"#;
    let body = |first: &str| format!(r#"{{"input":[ {first}, {says}, {says} ],"model":"m"}}"#);
    assert_eq!(headed(&body(typed), 2, 2), format!(r#"{{"input":[ {TYPED}, {says} ],"model":"m"}}"#));
    assert_eq!(headed(&body(easy), 2, 2), format!(r#"{{"input":[ {EASY}, {says} ],"model":"m"}}"#));
    assert_eq!(headed(&body(says), 2, 2), format!(r#"{{"input":[ {TYPED}, {says} ],"model":"m"}}"#));
    assert_eq!(headed(r#"{"input": "long", "model":"m"}"#, 1, 1), r#"{"input": "H\n\"1\"", "model":"m"}"#);
}

#[test]
fn a_head_is_folded_into_the_next_user_message() {
    for (content, due) in [
        (r#""t""#, r#""H\n\"1\"\n\nt""#),
        (r#"[{"type":"input_text","text":"t"}]"#, r#"[{"type":"input_text","text":"H\n\"1\"\n\nt"}]"#),
        (
            r#"[{"type":"input_image","file_id":"f"}]"#,
            r#"[{"type":"input_text","text":"H\n\"1\"\n\n"},{"type":"input_image","file_id":"f"}]"#,
        ),
    ] {
        let body = |before: &str, content: &str| {
            format!(
                r#"{{"input":[{before}{{"content":{content},"role":"user"}},{{"role":"assistant","content":"c"}}]}}"#
            )
        };
        let whole = body(r#"{"role":"user","content":"a"}, {"role":"assistant","content":"b"}, "#, content);
        assert_eq!(headed(&whole, 2, 4), body("", due));
    }
}

#[test]
fn what_sets_the_tools_stays_before_the_head() {
    let (tools, list) = (r#"{"type":"additional_tools" ,"tools":[1]}"#, r#"{"type":"mcp_list_tools","id":"l"}"#);
    let (user, says) = (r#"{"role":"user","content":"a"}"#, r#"{"role":"assistant","content":"b"}"#);
    let body = format!(r#"{{"input":[{user},{list}, {says},{tools},{user},{says}]}}"#);
    assert_eq!(headed(&body, 5, 5), format!(r#"{{"input":[{list},{tools},{EASY},{says}]}}"#));
    let folded = user.replace(r#""a""#, r#""H\n\"1\"\n\na""#);
    assert_eq!(headed(&body, 4, 6), format!(r#"{{"input":[{list},{tools},{folded},{says}]}}"#));
}

/// Tools that a search found are defined by its output alone; reasoning stays with the call that it led to (R4).
#[test]
fn a_search_for_tools_stays_before_the_head() {
    let (user, says) = (r#"{"role":"user","content":"a"}"#, r#"{"role":"assistant","content":"b"}"#);
    let thought = |id: &str| format!(r#"{{"type":"reasoning","id":"{id}","summary":[],"encrypted_content":"e"}}"#);
    let (led, idle) = (thought("rs_1"), thought("rs_2"));
    let search = r#"{"type":"tool_search_call","id":"tsc_1","call_id":"c","arguments":{"q":1.50}}"#;
    let found = r#"{"type":"tool_search_output","call_id":"c","tools":[{"type":"function","name":"deploy"}]}"#;
    let body = format!(r#"{{"input":[{user},{led},{search},{found},{idle},{says},{user},{says}]}}"#);
    assert_eq!(headed(&body, 6, 6), format!(r#"{{"input":[{led},{search},{found},{EASY},{user},{says}]}}"#));
    // In a turn of several calls.
    let other = r#"{"type":"function_call","call_id":"d","name":"f","arguments":"{}"}"#;
    let done = r#"{"type":"function_call_output","call_id":"d","output":"x"}"#;
    let both = format!(r#"{{"input":[{user},{led},{other},{search},{done},{found},{says},{user},{says}]}}"#);
    assert_eq!(headed(&both, 7, 7), format!(r#"{{"input":[{led},{search},{found},{EASY},{user},{says}]}}"#));
    let (boundaries, whole) = (crate::compact::cuts::boundaries(&responses(&body)), [1, 4, 6, 7, 8]);
    assert!(boundaries.iter().all(|k| whole.contains(k)), "{boundaries:?}: call and output are one");
}

#[test]
fn objects_are_replaced_as_objects_and_strings_as_strings() {
    let body = concat!(
        r#"{"input":[{"type":"shell_call","call_id":"c","action":{"commands":["long"]},"id":"sh_1"},"#,
        r#"{"type":"shell_call_output","call_id":"c","output":[{"stdout":"long","stderr":"","outcome":{}}]}]}"#
    );
    let conversation = responses(body);
    let replace = |item: usize, text: &str| {
        let slots = &conversation.items[item].facts.slots;
        let slot = slots.iter().find(|slot| conversation.text(item, slot).is_some_and(|text| text.contains("long")));
        let (slot, at) = (slot.unwrap(), conversation.items[item].span.start);
        Edit {
            span: at + slot.span.start..at + slot.span.end,
            with: conversation.replacement(item, slot, &text.into()),
        }
    };
    let edits = vec![replace(0, r#"{"commands":["s"]}"#), replace(1, "s")];
    assert_eq!(placed(body, edits), body.replace("long", "s"));
    let text = responses(r#"{"input":"long"}"#);
    let whole = Replacement { slot: 0, text: "s".into() };
    let slot = &text.items[0].facts.slots[whole.slot];
    assert_eq!(text.replacement(0, slot, &whole.text), Bytes::from_static(b"\"s\""));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For all texts: what is written is read back as the same text, in every form of input.
    #[test]
    fn texts_survive_writing(text in "\\PC*|[\\x00-\\x7f]*", said in "\\PC{0,20}") {
        for input in [
            json!(said),
            json!([{"role": "user", "content": said}]),
            json!([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": said}]}]),
        ] {
            let body = json!({ "input": input }).to_string();
            let conversation = responses(&body);
            let folded = placed(&body, conversation.fold_into(0, &text).unwrap());
            let folded = responses(&folded);
            prop_assert_eq!(folded.text(0, &folded.items[0].facts.slots[0]), Some(text.clone() + &said));
            let message: Value = serde_json::from_str(&conversation.head_message(1, &text)).unwrap();
            let body = if input.is_string() { json!({ "input": message }) } else { json!({ "input": [message] }) };
            let body = body.to_string();
            let again = responses(&body);
            prop_assert_eq!(again.text(0, &again.items[0].facts.slots[0]), Some(text.clone()));
        }
    }
}
