//! Every shape of a message and of a body, one by one.

use serde_json::{Value, json};

use crate::wire::Dialect;
use crate::wire::memo::Memo;
use crate::wire::read;
use crate::wire::scan::Unreadable;
use crate::wire::{Conversation, Role, SlotKind};

fn chat(body: &str) -> Conversation<'_> {
    read(Dialect::Chat, body.as_bytes(), &Memo::new(0), [0; 16]).unwrap()
}

fn refused(body: &str) -> Unreadable {
    read(Dialect::Chat, body.as_bytes(), &Memo::new(0), [0; 16]).expect_err(body)
}

/// The slots of a message that stands alone, as raw JSON with their kinds.
fn slots(message: &Value) -> Vec<(SlotKind, String)> {
    let body = json!({ "messages": [{"role": "user", "content": "x"}, message] }).to_string();
    let conversation = chat(&body);
    let raw = conversation.raw(1);
    let slots = conversation.items[1].facts.slots.iter();
    slots.map(|slot| (slot.kind, String::from_utf8(raw[slot.span.clone()].to_vec()).unwrap())).collect()
}

fn slot(kind: SlotKind, value: Value) -> (SlotKind, String) {
    (kind, value.to_string())
}

#[test]
fn leading_system_messages_are_outside_the_items_and_later_ones_inside() {
    let conversation = chat(concat!(
        r#" {"model":"m", "messages" : [ {"role":"system","content":"at 12:01"}, {"role":"developer","content":"d"},"#,
        r#" {"role":"user","content":"u"}, {"role":"system","content":"s"} ], "stream":true} "#
    ));
    let lead: Vec<_> = conversation.lead.iter().map(|span| &conversation.body[span.clone()]).collect();
    assert_eq!(lead, [&br#"{"role":"system","content":"at 12:01"}"#[..], br#"{"role":"developer","content":"d"}"#]);
    let roles: Vec<_> = conversation.items.iter().map(|item| item.facts.role).collect();
    assert_eq!(roles, [Role::User, Role::System]);
    assert_eq!(conversation.raw(1), br#"{"role":"system","content":"s"}"#);
}

#[test]
fn fields_are_read_wherever_they_stand() {
    let body = concat!(
        r#"{"tools":[{"a":1}],"max_tokens":100,"messages":[{"role":"user","content":"u"}],"model":"m\u0061","#,
        r#""store":false,"max_completion_tokens": 20,"stream":null,"x":{"y":[1,2]},"response_format":{"t":1}}"#
    );
    let fields = chat(body).fields;
    let at = |span: &std::ops::Range<usize>| body.get(span.clone()).unwrap();
    assert_eq!((fields.model.as_deref(), fields.stream, fields.store), (Some("ma"), false, Some(false)));
    let limits: Vec<_> = fields.max_output.iter().map(|limit| (at(&limit.span), limit.value)).collect();
    assert_eq!(limits, [("100", 100), ("20", 20)]);
    assert_eq!(fields.overhead.iter().map(at).collect::<Vec<_>>(), [r#"[{"a":1}]"#, r#"{"t":1}"#]);
    let members: Vec<_> = fields.members.iter().map(|(key, span)| (key.as_ref(), at(span))).collect();
    assert_eq!(members[2], ("messages", r#"[{"role":"user","content":"u"}]"#));
    assert_eq!((members.len(), members[7]), (9, ("x", r#"{"y":[1,2]}"#)));
}

#[test]
fn texts_of_plain_messages() {
    use SlotKind::*;
    let user = slots(&json!({"role": "user", "content": "a\"b"}));
    assert_eq!(user, [slot(Text, json!("a\"b"))]);
    let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b", "z": 1}, "odd", {"type": "new"}]);
    let parts = slots(&json!({"role": "user", "content": parts}));
    assert_eq!(
        parts,
        [slot(Text, json!("a")), slot(Text, json!("b")), slot(Other, json!(1)), slot(Other, json!("odd")),]
    );
    let named = slots(&json!({"role": "user", "content": "", "name": "bob", "cache_control": {"type": "ephemeral"}}));
    assert_eq!(named, [slot(Text, json!("")), slot(Other, json!("bob"))]);
}

#[test]
fn calls_of_every_form() {
    use SlotKind::*;
    let message = json!({
        "role": "assistant", "content": null, "refusal": null, "reasoning_content": "hm",
        "tool_calls": [
            {"id": "c1", "type": "function", "index": 0, "function": {"arguments": "{\"a\":1}", "name": "f"}},
            {"id": "c1", "type": "custom", "custom": {"input": "free", "name": "g"}},
            {"id": "c2", "extra_content": {"s": "t"}, "function": {"name": "h", "arguments": "{not json"}},
            {"function": {"name": "i", "arguments": {"an": "object"}}},
            {"id": "c3", "function": {"name": "j", "arguments": ""}},
        ],
        "function_call": {"name": "k", "arguments": "{}"},
    });
    let mut found = slots(&message);
    found.sort_by_key(|(_, text)| text.clone());
    let mut due = vec![
        slot(Reasoning, json!("hm")),
        slot(Arguments(1), json!("{\"a\":1}")),
        slot(Input(2), json!("free")),
        slot(Arguments(3), json!("{not json")),
        slot(Given, json!({"an": "object"})),
        slot(Arguments(5), json!("")),
        slot(Arguments(0), json!("{}")),
        slot(Other, json!({"s": "t"})),
    ];
    due.extend(["f", "g", "h", "i", "j", "k"].map(|name| slot(Other, json!(name))));
    due.sort_by_key(|(_, text)| text.clone());
    assert_eq!(found, due);

    let body = json!({ "messages": [{"role": "user", "content": "x"}, message] }).to_string();
    let conversation = chat(&body);
    let calls: Vec<_> = conversation.items[1].facts.calls.iter().map(|call| (&*call.id, &*call.name)).collect();
    assert_eq!(calls, [("", "k"), ("c1", "f"), ("c1", "g"), ("c2", "h"), ("", "i"), ("c3", "j")]);
}

#[test]
fn results_of_every_form() {
    use SlotKind::*;
    let tool = json!({"role": "tool", "tool_call_id": "c1", "content": "out", "name": "f"});
    assert_eq!(slots(&tool), [slot(Result(0), json!("out")), slot(Other, json!("f"))]);
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
    let parts = json!([{"type": "text", "text": "1"}, image, {"type": "text", "text": "2"}]);
    let tool = json!({"role": "tool", "tool_call_id": "c1", "content": parts});
    assert_eq!(slots(&tool), [slot(Result(0), json!("1")), slot(Result(0), json!("2"))]);

    let body = json!({ "messages": [
        {"role": "user", "content": "x"}, tool, {"role": "function", "name": "f", "content": "o"},
        {"role": "tool", "content": "", "name": "g"},
    ]})
    .to_string();
    let conversation = chat(&body);
    let results: Vec<_> = conversation.items.iter().map(|item| item.facts.results.clone()).collect();
    assert_eq!(results, [vec![], vec!["c1".to_owned()], vec!["f".to_owned()], vec!["g".to_owned()]]);
    assert!(conversation.items[1..].iter().all(|item| item.facts.role == Role::Tool));
}

#[test]
fn media_are_counted_apart_from_text() {
    let data = "A".repeat(40_000);
    let image = json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{data}")}});
    let low = json!({"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}});
    let audio = json!({"type": "input_audio", "input_audio": {"data": data, "format": "mp3"}});
    let file = json!({"type": "file", "file": {"file_id": "f"}});
    let parts = json!([{"type": "text", "text": "see"}, image, low, audio, file]);
    let body = json!({ "messages": [{"role": "user", "content": parts}] }).to_string();
    let conversation = chat(&body);
    let facts = &conversation.items[0].facts;
    let raw = conversation.raw(0);
    let media: Vec<_> = facts.media.iter().map(|part| (&raw[part.span.clone()], part.tokens)).collect();
    let due = [(&image, 1_105), (&low, 85), (&audio, 21), (&file, 1_500)];
    assert_eq!(media, due.map(|(part, tokens)| (part.to_string(), tokens)).each_ref().map(|(p, t)| (p.as_bytes(), *t)));
    assert_eq!(facts.slots.len(), 1);
    assert!(facts.text_bytes < 200);
}

#[test]
fn reasoning_and_unknown_things_are_kept_apart() {
    use SlotKind::*;
    let message = json!({"role": "assistant", "content": [{"type": "thinking", "thinking": "t"}, {"type": "refusal", "refusal": "no"}],
        "reasoning": "r", "reasoning_details": [{"text": "d"}], "audio": {"id": "a"}, "refusal": "never"});
    let mut found = slots(&message);
    found.sort_by_key(|(_, text)| text.clone());
    assert_eq!(
        found,
        [
            slot(Text, json!("never")),
            slot(Text, json!("no")),
            slot(Reasoning, json!("r")),
            slot(Reasoning, json!([{"text": "d"}])),
            slot(Other, json!({"id": "a"})),
            slot(Reasoning, json!({"thinking": "t", "type": "thinking"})),
        ]
    );
    assert_eq!(slots(&json!({"role": "critic", "content": "x"})), [slot(Text, json!("x"))]);
}

#[test]
fn a_result_is_matched_with_the_nearest_call_before_it() {
    let call = |id: &str, name: &str| json!({"id": id, "function": {"name": name, "arguments": "{}"}});
    let body = json!({ "messages": [
        {"role": "assistant", "tool_calls": [call("c1", "read"), call("c2", "grep")]},
        {"role": "tool", "tool_call_id": "c1", "content": ""},
        {"role": "assistant", "tool_calls": [call("c1", "bash")]},
        {"role": "tool", "tool_call_id": "c1", "content": ""},
        {"role": "assistant", "function_call": {"name": "old", "arguments": ""}},
        {"role": "function", "name": "old", "content": ""},
    ]})
    .to_string();
    let conversation = chat(&body);
    assert_eq!(conversation.tool_of(1, "c1"), Some("read"));
    assert_eq!(conversation.tool_of(3, "c1"), Some("bash"));
    assert_eq!(conversation.tool_of(3, "c2"), Some("grep"));
    assert_eq!(conversation.tool_of(5, "old"), Some("old"));
    assert_eq!(
        (conversation.tool_of(0, "c1"), conversation.tool_of(5, "c9"), conversation.tool_of(99, "c1")),
        (None, None, None)
    );
}

#[test]
fn bodies_that_could_be_misread_are_refused() {
    let message = r#"{"role":"user","content":"x"}"#;
    for body in [
        String::new(),
        "[]".into(),
        format!("\u{feff}{{\"messages\":[{message}]}}"),
        format!(r#"{{"messages":[{message}]}} x"#),
        format!(r#"{{"messages":[{message}]}}{{}}"#),
        format!(r#"{{"messages":[{message}],"messages":[]}}"#),
        format!(r#"{{"messages":[{message}],"m\u006fdel":"a","model":"b"}}"#),
        format!(r#"{{"max_tokens":1,"messages":[{message}],"max_tokens":null}}"#),
        format!(r#"{{"messages":[{message},]}}"#),
        format!(r#"{{"messages":[{message}]"#),
        format!(r#"{{"messages":[{message}],"model":5}}"#),
        format!(r#"{{"messages":[{message}],"stream":"yes"}}"#),
        format!(r#"{{"messages":[{message},{}]}}"#, "[".repeat(100_000)),
        format!(r#"{{"messages":[{message},{{"role":"user","content":{}{}}}]}}"#, "[".repeat(90), "]".repeat(90)),
        r#"{"model":"m"}"#.into(),
        r#"{"messages":{}}"#.into(),
        r#"{"messages":null}"#.into(),
        r#"{"messages":["x"]}"#.into(),
        r#"{"messages":[{"content":"x"}]}"#.into(),
        r#"{"messages":[{"role":null}]}"#.into(),
        r#"{"messages":[{"role":"user","role":"user"}]}"#.into(),
        r#"{"messages":[{"role":"assistant","tool_calls":["x"]}]}"#.into(),
        r#"{"messages":[{"role":"tool","tool_call_id":"\ud800"}]}"#.into(),
    ] {
        refused(&body);
    }
}

#[test]
fn odd_but_clear_bodies_are_read() {
    assert_eq!(chat(r#"{"messages":[]}"#).items.len(), 0);
    assert_eq!(chat(r#"{"messages":[{"role":"system","content":"s"}],"max_tokens":1e3}"#).lead.len(), 1);
    assert_eq!(chat(r#"{"messages":[{"role":"user"}],"a":1,"a":2}"#).items.len(), 1);
    let body = r#"{"messages":[{"role":"user","content":"\ud800"}]}"#;
    let conversation = chat(body);
    let text = conversation.text(0, &conversation.items[0].facts.slots[0]);
    assert_eq!(text.as_deref(), Some(r"\ud800"), "half a character is read as it is spelt");
}

#[test]
fn an_error_tells_where_it_is() {
    let body = r#"{"messages":[{"role":"user","content":"x"},{"role":"user","role":"user"}]}"#;
    let error = refused(body);
    assert!((44..body.len()).contains(&error.at), "{error}");
}

/// What is read has bounds; a body beyond them goes untouched.
#[test]
fn items_calls_and_parts_have_a_most() {
    let array = |element: &str, count: usize| vec![element; count].join(",");
    let reads = |messages: String| {
        read(Dialect::Chat, format!(r#"{{"messages":[{messages}]}}"#).as_bytes(), &Memo::new(0), [0; 16]).is_ok()
    };
    let items = |count| array(r#"{"role":"user","content":""}"#, count);
    let lead = |count| array(r#"{"role":"system"}"#, count);
    let calls = |count| {
        let calls = array(r#"{"id":"a","type":"function","function":{"name":"f","arguments":""}}"#, count);
        format!(r#"{{"role":"assistant","tool_calls":[{calls}]}}"#)
    };
    let parts = |count| format!(r#"{{"role":"user","content":[{}]}}"#, array(r#"{"type":"text","text":""}"#, count));
    assert!(reads(items(crate::wire::reading::MAX_ITEMS)) && !reads(items(crate::wire::reading::MAX_ITEMS + 1)));
    assert!(reads(lead(crate::wire::reading::MAX_ITEMS)) && !reads(lead(crate::wire::reading::MAX_ITEMS + 1)));
    let (most_calls, most_parts) = (crate::wire::chat_item::MAX_CALLS, crate::wire::members::MAX_PARTS);
    assert!(reads(calls(most_calls)) && !reads(calls(most_calls + 1)));
    assert!(reads(parts(most_parts)) && !reads(parts(most_parts + 1)));
}
