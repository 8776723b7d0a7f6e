use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::compact::fixture::{CallKind, Chat, Message, call, call_of, custom, result, user};

const KEY: TextKey = TextKey([3; 32]);
const TEXT: &str = "... [truncated: {n} characters of this past call are hidden, id {id}; do not copy this text] ...";

fn settings(max: usize) -> TruncateSettings {
    TruncateSettings {
        trigger_messages: 25,
        trigger_tokens: crate::config::Auto::Auto,
        keep_messages: 20,
        max_arg_length: max,
        truncation_text: TEXT.to_owned(),
        min_gain_tokens: crate::config::Auto::Auto,
    }
}

fn cuts_of(chat: &Chat, max: usize) -> Vec<Cut> {
    let conversation = chat.conversation();
    let all = 0..conversation.items.len();
    truncate(&conversation, all, &settings(max), &KEY)
}

/// The arguments as truncated to `max`, if they were.
fn truncated(arguments: &str, max: usize) -> Option<String> {
    let mut cuts = cuts_of(&Chat::new(&[call("c1", "write_file", arguments)]), max);
    cuts.pop().map(|cut| cut.replacement.text.to_string())
}

#[test]
fn only_the_long_string_changes() {
    let long = "x".repeat(5_000);
    let json = format!(
        r#"{{ "path" : "a\/b", "n":1.50e+02, "k": "short" ,"nested":[{{"deep":"{long}"}}, true],"k":"again" }}"#
    );
    let new = truncated(&json, 2_000).unwrap();
    let (before, after) = json.split_once(&long).unwrap();
    assert!(new.starts_with(before) && new.ends_with(after), "{new}");
    let clipped = new.get(before.len()..new.len() - after.len()).unwrap();
    assert_eq!(clipped.chars().count(), 2_000);
    let hidden = 5_000 - clipped.find("...").unwrap();
    let id = KEY.id(&long);
    assert!(clipped.ends_with(&TEXT.replace("{n}", &hidden.to_string()).replace("{id}", &id.to_string())));
}

#[test]
fn the_limit_is_exact_and_in_characters() {
    assert_eq!(truncated(&format!(r#"{{"a":"{}"}}"#, "é".repeat(2_000)), 2_000), None);
    assert!(truncated(&format!(r#"{{"a":"{}"}}"#, "é".repeat(2_001)), 2_000).is_some());
    let escaped = "\\u00e9".repeat(2_000);
    assert_eq!(truncated(&format!(r#"{{"a":"{escaped}"}}"#), 2_000), None);
}

#[test]
fn what_is_removed_is_the_whole_string() {
    let long = "line\n\"quoted\" \\ and é\n".repeat(300);
    let json = serde_json::json!({ "a": long, "b": "x".repeat(3_000) }).to_string();
    let cuts = cuts_of(&Chat::new(&[call("c1", "write_file", &json)]), 2_000);
    assert_eq!(cuts.len(), 1, "one slot");
    assert_eq!(cuts[0].removed, [KEY.removed(long), KEY.removed("x".repeat(3_000))]);
}

#[test]
fn left_alone() {
    let long = "x".repeat(5_000);
    assert_eq!(truncated("", 100), None);
    assert_eq!(truncated(&format!(r#"{{"a":"{long}""#), 100), None, "cut off");
    assert_eq!(truncated(&long, 100), None, "not JSON");
    assert_eq!(truncated(&format!(r#"{{"{long}":1}}"#), 1_000), None, "a key");
    assert_eq!(truncated(&format!(r#"{{"{long}" : {{}}}}"#), 1_000), None, "a key with a space behind it");
    assert_eq!(truncated(&format!(r#"{{"a":"\ud800{long}"}}"#), 1_000), None, "a lone surrogate");
    assert_eq!(truncated(&format!("[{}]", "1,".repeat(3_000) + "1"), 1_000), None, "numbers");
    assert_eq!(truncated(&format!(r#"{{"a":"{long}"}}"#), 20), None, "no room for the truncation text");
}

#[test]
fn never_twice() {
    let json = format!(r#"{{"a":"{}"}}"#, "x".repeat(9_000));
    let once = truncated(&json, 2_000).unwrap();
    assert_eq!(truncated(&once, 2_000), None);
    assert_eq!(truncated(&once, 500), None, "also when the limit has become smaller");
    let lookalike = format!(r#"{{"a":"{}... [truncated: many characters"}}"#, "x".repeat(3_000));
    assert!(truncated(&lookalike, 2_000).is_some());
}

#[test]
fn deep_nesting_is_safe() {
    let depth = 200_000;
    let json = format!("{}\"{}\"{}", "[".repeat(depth), "x".repeat(5_000), "]".repeat(depth));
    let new = truncated(&json, 2_000).unwrap();
    assert!(new.len() < json.len() && serde_json::from_str::<IgnoredAny>(&new).is_ok());
}

#[test]
fn custom_input_is_clipped_as_text() {
    let patch = "*** Begin Patch\n".repeat(400);
    let chat = Chat::new(&[user("go"), custom("c1", "apply_patch", &patch), result("c1", &patch)]);
    let cuts = cuts_of(&chat, 2_000);
    assert_eq!(cuts.len(), 1);
    assert_eq!((cuts[0].item, cuts[0].replacement.text.chars().count()), (1, 2_000));
    assert_eq!(cuts[0].removed, [KEY.removed(patch)]);
}

#[test]
fn only_the_range_and_only_calls() {
    let json = format!(r#"{{"a":"{}"}}"#, "x".repeat(5_000));
    let both = vec![call_of("c1", "w", &json, CallKind::Function), call_of("c2", "w", &json, CallKind::Custom)];
    let chat =
        Chat::new(&[user(&json), Message::Assistant(json.clone(), both), result("c1", &json), call("c3", "w", &json)]);
    let conversation = chat.conversation();
    let slots = |range| -> Vec<_> {
        truncate(&conversation, range, &settings(2_000), &KEY)
            .iter()
            .map(|cut| (cut.item, cut.replacement.slot))
            .collect()
    };
    assert_eq!(slots(0..9), [(1, 1), (1, 2), (3, 1)]);
    assert_eq!(slots(0..3), [(1, 1), (1, 2)]);
    assert_eq!(slots(2..3), []);
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,400}".prop_map(Value::from),
        "[a\"\\\\\n\u{7f}é\u{301}]{0,400}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::hash_map("[a-c\"é]{0,3}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Same shape; each string the same, or within the limit and the head of what it was.
fn same_but_clipped(old: &Value, new: &Value, max: usize) -> bool {
    match (old, new) {
        (Value::String(old), Value::String(new)) if old != new => {
            let (head, _) = new.rsplit_once("... [truncated: ").unwrap();
            old.starts_with(head) && new.chars().count() <= max && old.chars().count() > max
        }
        (Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| same_but_clipped(old, new, max))
        }
        (Value::Object(old), Value::Object(new)) => {
            old.len() == new.len()
                && old.iter().zip(new).all(|((k, old), (l, new))| k == l && same_but_clipped(old, new, max))
        }
        _ => old == new,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// What parsed still parses, with nothing changed but long strings; smaller; the same every time; never again.
    #[test]
    fn arguments_stay_valid(value in json(), max in 130usize..300, pretty in any::<bool>()) {
        let inner = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        let chat = Chat::new(&[user("go"), call("c1", "write_file", &inner)]);
        let cuts = cuts_of(&chat, max);
        prop_assert_eq!(&cuts, &cuts_of(&chat, max));
        for cut in &cuts {
            let new: Value = serde_json::from_str(&cut.replacement.text).unwrap();
            prop_assert!(same_but_clipped(&value, &new, max));
            prop_assert!(cut.replacement.text.len() < inner.len());
            prop_assert!(cut.removed.iter().all(|removed| removed.id == KEY.id(&removed.text)));
            prop_assert_eq!(truncated(&cut.replacement.text, max), None);
        }
        prop_assert!(serde_json::from_slice::<Value>(&chat.rewritten(&cuts)).is_ok());
    }

    /// No input panics, whatever it is.
    #[test]
    fn any_text_is_safe(inner in "[\\[\\]{}:,\"\\\\u0-9dax ]{0,60}", max in 0usize..40) {
        truncated(&inner, max);
    }
}

/// Every recorded call of the corpus, where that is at hand.
#[test]
fn recorded_calls_stay_valid() {
    let Ok(folder) = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/corpus/chat")) else {
        println!("no corpus here: skipped");
        return;
    };
    let (mut seen, mut clipped) = (0, 0);
    for file in folder {
        let text = std::fs::read(file.unwrap().path()).unwrap();
        let recorded: Value = serde_json::from_slice(&text).unwrap();
        let calls = recorded["messages"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|message| message["tool_calls"].as_array());
        for arguments in calls.flatten().filter_map(|call| call["function"]["arguments"].as_str()) {
            seen += 1;
            let Some(new) = truncated(arguments, 200) else { continue };
            clipped += 1;
            let (old, new) = (serde_json::from_str(arguments).unwrap(), serde_json::from_str(&new).unwrap());
            assert!(same_but_clipped(&old, &new, 200), "{arguments}");
        }
    }
    assert!(seen > 500 && clipped > 100, "{clipped} of {seen}");
}
