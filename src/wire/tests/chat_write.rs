//! What is written into a conversation.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;

use super::user_message;
use crate::wire::memo::Memo;
use crate::wire::splice::{Edit, splice};
use crate::wire::{Dialect, read};

fn placed(body: &str, edits: Vec<Edit>) -> String {
    let pieces = splice(&Bytes::from(body.to_owned()), edits).unwrap();
    String::from_utf8(pieces.concat()).unwrap()
}

/// The body with `text` folded into its item `item`.
fn folded(body: &str, item: usize, text: &str) -> Option<String> {
    let conversation = read(Dialect::Chat, body.as_bytes(), &Memo::new(0), [0; 16]).unwrap();
    conversation.fold_into(item, text).map(|edits| placed(body, edits))
}

#[test]
fn a_text_is_folded_in_front_of_what_the_user_said() {
    for (content, due) in [
        (r#""caf\u00e9\/""#, r#""A\n\"B\"caf\u00e9\/""#),
        (r#""""#, r#""A\n\"B\"""#),
        (
            r#" [ {"type":"image_url","image_url":{}}, {"text":"t","type":"text"} ]"#,
            r#" [ {"type":"image_url","image_url":{}}, {"text":"A\n\"B\"t","type":"text"} ]"#,
        ),
        (
            r#"[ {"type":"image_url","image_url":{}}]"#,
            r#"[{"type":"text","text":"A\n\"B\""}, {"type":"image_url","image_url":{}}]"#,
        ),
        (r#"[ ]"#, r#"[{"type":"text","text":"A\n\"B\""} ]"#),
        (r#"[{"type":"text","text":null}]"#, r#"[{"type":"text","text":"A\n\"B\""},{"type":"text","text":null}]"#),
    ] {
        let with = |content: &str| {
            format!(
                r#"{{"messages": [{{"role":"system","content":""}}, {{"name":"n","content":{content},"role":"user"}}] }}"#
            )
        };
        assert_eq!(folded(&with(content), 0, "A\n\"B\"").as_ref(), Some(&with(due)), "{content}");
    }
}

#[test]
fn only_user_messages_with_content_take_a_text() {
    let body = r#"{"messages":[{"role":"user"},{"role":"user","content":null},{"role":"assistant","content":"a"},{"role":"user","content":{}}]}"#;
    for item in 0..5 {
        assert_eq!(folded(body, item, "x"), None, "{item}");
    }
}

#[test]
fn output_limits_are_only_lowered() {
    let body =
        r#"{"max_tokens": 5000,"messages":[{"role":"user","content":"x"}],"max_completion_tokens":3000,"n":9000}"#;
    let conversation = read(Dialect::Chat, body.as_bytes(), &Memo::new(0), [0; 16]).unwrap();
    let lowered = |tokens| placed(body, conversation.lower_output(tokens));
    assert_eq!(lowered(3_000), body.replace("5000", "3000"));
    assert_eq!(lowered(2_999), body.replace("5000", "2999").replace("3000", "2999"));
    assert_eq!(lowered(5_000), body);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For all texts: what is written is read back as the same text, and the rest stays.
    #[test]
    fn texts_survive_writing(text in "\\PC*|[\\x00-\\x7f]*", said in "\\PC{0,20}") {
        let message: Value = serde_json::from_str(&user_message(&text, &[], "text")).unwrap();
        prop_assert_eq!(&message["content"], &Value::from(text.as_str()));

        let body = format!(r#"{{"messages":[{},{}]}}"#, user_message(&said, &[], "text"), user_message(&said, &[], "text"));
        let result: Value = serde_json::from_str(&folded(&body, 1, &text).unwrap()).unwrap();
        prop_assert_eq!(&result["messages"][1]["content"], &Value::from(text.clone() + &said));
        prop_assert_eq!(result["messages"][0]["content"].as_str(), Some(said.as_str()));

        let conversation = read(Dialect::Chat, body.as_bytes(), &Memo::new(0), [0; 16]).unwrap();
        let slot = &conversation.items[0].facts.slots[0];
        prop_assert_eq!(serde_json::from_slice::<String>(&conversation.replacement(0, slot, &text.as_str().into())).unwrap(), text);
    }
}
