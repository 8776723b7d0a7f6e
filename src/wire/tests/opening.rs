//! What stands before the first that a user says, in each dialect.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::wire::memo::Memo;
use crate::wire::splice::splice;
use crate::wire::{Conversation, Dialect, read};

const NOTE: &str = "N\n\"1\"";

fn conversation(dialect: Dialect, body: &str) -> Conversation<'_> {
    read(dialect, body.as_bytes(), &Memo::new(0), [0; 16]).unwrap()
}

/// The body with the note before its opening, and whether it is the beginning of a session.
fn noted(dialect: Dialect, body: &str) -> (String, bool) {
    let conversation = conversation(dialect, body);
    let edits = conversation.before_opening(NOTE);
    let pieces = splice(&Bytes::copy_from_slice(body.as_bytes()), edits).unwrap();
    (String::from_utf8(pieces.concat()).unwrap(), conversation.begins())
}

fn check(dialect: Dialect, cases: &[(&str, &str, bool)]) {
    for (said, due, begins) in cases {
        let body = |items: &str| match items.starts_with(['[', '"']) {
            true => format!(r#"{{"model":"m", "{}": {items}, "x":1.50}}"#, dialect.array()),
            false => items.to_owned(),
        };
        let (text, new) = noted(dialect, &body(said));
        assert_eq!((text.as_str(), new), (body(due).as_str(), *begins), "{said}");
        assert!(serde_json::from_str::<Value>(&text).is_ok());
    }
}

#[test]
fn chat_has_it_in_the_text_of_the_first_user_message() {
    let system = r#"{"role":"system","content":"s"}"#;
    let answer = r#"{"role":"assistant","content":"a"}"#;
    check(
        Dialect::Chat,
        &[
            (
                &format!(r#"[{system}, {{"role":"user","content":"caf\u00e9"}}]"#),
                &format!(r#"[{system}, {{"role":"user","content":"N\n\"1\"\n\ncaf\u00e9"}}]"#),
                true,
            ),
            (
                r#"[{"content":[{"type":"image_url","image_url":{}},{"type":"text","text":"t"}],"role":"user"}]"#,
                r#"[{"content":[{"type":"image_url","image_url":{}},{"type":"text","text":"N\n\"1\"\n\nt"}],"role":"user"}]"#,
                true,
            ),
            (
                &format!(r#"[{{"role":"user","content":"u"}},{answer},{{"role":"user","content":"v"}}]"#),
                &format!(r#"[{{"role":"user","content":"N\n\"1\"\n\nu"}},{answer},{{"role":"user","content":"v"}}]"#),
                false,
            ),
            // Two messages before the first answer; none before it.
            (
                &format!(r#"[{{"role":"user","content":"u"}},{{"role":"user","content":"v"}},{system}]"#),
                &format!(r#"[{{"role":"user","content":"N\n\"1\"\n\nu"}},{{"role":"user","content":"v"}},{system}]"#),
                true,
            ),
            (
                &format!(r#"[{answer},{{"role":"user","content":"u"}}]"#),
                &format!(r#"[{answer},{{"role":"user","content":"u"}}]"#),
                false,
            ),
        ],
    );
}

#[test]
fn messages_has_it_as_a_block_however_the_client_writes_its_own() {
    let block = r#"{"type":"text","text":"N\n\"1\""}"#;
    let marked = r#"{"type":"text","text":"u","cache_control":{"type":"ephemeral"}}"#;
    let result = r#"{"type":"tool_result","tool_use_id":"t","content":"r"}"#;
    check(
        Dialect::Messages,
        &[
            (
                r#"[{"role":"user","content":"u\/"}]"#,
                &format!(r#"[{{"role":"user","content":[{block},{{"type":"text","text":"u\/"}}]}}]"#),
                true,
            ),
            (
                &format!(r#"[{{"role":"user","content": [ {marked} ]}}]"#),
                &format!(r#"[{{"role":"user","content": [{block}, {marked} ]}}]"#),
                true,
            ),
            // A window into a longer history: nobody knows what it began with.
            (
                &format!(r#"[{{"role":"user","content":[{result}]}}]"#),
                &format!(r#"[{{"role":"user","content":[{result}]}}]"#),
                false,
            ),
        ],
    );
    // Behind a boundary the beginning is still there, and still has it.
    let change = r#"{"type":"mid_conv_system","text":"s"}"#;
    let rest = format!(r#"{{"role":"assistant","content":[{change}]}},{{"role":"user","content":"v"}}]"#);
    check(
        Dialect::Messages,
        &[(
            &format!(r#"[{{"role":"user","content":[{marked}]}},{rest}"#),
            &format!(r#"[{{"role":"user","content":[{block},{marked}]}},{rest}"#),
            false,
        )],
    );
    // What a provider's compaction stands for is not read any more.
    let gone = r#"[{"role":"user","content":"u"},{"role":"assistant","content":[{"type":"compaction","content":"c"}]},{"role":"user","content":"v"}]"#;
    check(Dialect::Messages, &[(gone, gone, false)]);
}

#[test]
fn responses_has_it_in_the_text_of_the_first_user_message_or_the_input() {
    let developer = r#"{"role":"developer","content":"s"}"#;
    let tools = r#"{"type":"additional_tools","tools":[]}"#;
    check(
        Dialect::Responses,
        &[
            (r#""u""#, r#""N\n\"1\"\n\nu""#, true),
            (
                &format!(r#"[{developer},{{"role":"user","content":"u"}}]"#),
                &format!(r#"[{developer},{{"role":"user","content":"N\n\"1\"\n\nu"}}]"#),
                true,
            ),
            (
                &format!(
                    r#"[{{"type":"message","role":"user","content":[{{"type":"input_text","text":"u"}}]}},{tools}]"#
                ),
                &format!(
                    r#"[{{"type":"message","role":"user","content":[{{"type":"input_text","text":"N\n\"1\"\n\nu"}}]}},{tools}]"#
                ),
                true,
            ),
            (
                r#"{"input":"u","previous_response_id":"resp_1"}"#,
                r#"{"input":"u","previous_response_id":"resp_1"}"#,
                false,
            ),
            (
                r#"[{"role":"user","content":"u"},{"type":"item_reference","id":"msg_1"}]"#,
                r#"[{"role":"user","content":"u"},{"type":"item_reference","id":"msg_1"}]"#,
                false,
            ),
            (
                r#"[{"type":"compaction","encrypted_content":"e"},{"role":"user","content":"u"}]"#,
                r#"[{"type":"compaction","encrypted_content":"e"},{"role":"user","content":"u"}]"#,
                false,
            ),
        ],
    );
}

#[test]
fn an_opening_ends_before_the_first_answer() {
    let body = json!({"model": "m", "messages": [
        {"role": "user", "content": "u"},
        {"role": "user", "content": [{"type": "text", "text": "v"}]},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "w"},
    ]});
    let text = body.to_string();
    let conversation = conversation(Dialect::Messages, &text);
    assert_eq!(conversation.opening().len(), 2);
    assert!(!conversation.begins());
}
