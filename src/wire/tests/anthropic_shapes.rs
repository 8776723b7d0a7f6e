//! What is read of each shape that a message may have.

use serde_json::{Value, json};

use crate::wire::memo::Memo;
use crate::wire::{Conversation, Dialect, Errand, Facts, Role, Sight, SlotKind, Standing, model_of_path, read};

fn body(messages: &[Value]) -> String {
    json!({ "model": "m", "max_tokens": 10, "messages": messages }).to_string()
}

fn reads(body: &str) -> Conversation<'_> {
    read(Dialect::Messages, body.as_bytes(), &Memo::new(0), [0; 16]).unwrap()
}

/// What is read of one message, and the texts of its slots.
fn facts(message: &Value) -> (std::sync::Arc<Facts>, Vec<(SlotKind, String)>) {
    let body = body(std::slice::from_ref(message));
    let conversation = reads(&body);
    let facts = conversation.items.first().unwrap().facts.clone();
    let texts = facts.slots.iter().map(|slot| (slot.kind, conversation.text(0, slot).unwrap_or_default())).collect();
    (facts, texts)
}

fn result(id: &str, content: Value) -> Value {
    json!({ "type": "tool_result", "tool_use_id": id, "content": content })
}

#[test]
fn text_is_a_string_or_blocks() {
    for content in [json!("a"), json!([{ "type": "text", "text": "a" }])] {
        let (facts, texts) = facts(&json!({ "role": "user", "content": content }));
        assert_eq!((facts.role, texts), (Role::User, vec![(SlotKind::Text, "a".to_owned())]));
    }
}

#[test]
fn calls_and_their_input() {
    let call = |id: &str| json!({ "type": "tool_use", "id": id, "name": "f", "input": { "path": "/x" } });
    let (facts, texts) =
        facts(&json!({ "role": "assistant", "content": [{ "type": "text", "text": "t" }, call("a"), call("b")] }));
    assert_eq!(
        facts.calls.iter().map(|call| (call.id.as_str(), call.name.as_str())).collect::<Vec<_>>(),
        [("a", "f"), ("b", "f")]
    );
    let arguments = |n| (SlotKind::Arguments(n), r#"{"path":"/x"}"#.to_owned());
    assert_eq!(texts, [(SlotKind::Text, "t".to_owned()), arguments(0), arguments(1)]);
}

#[test]
fn results_in_all_their_forms() {
    let picture = json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "AAAA" } });
    let blocks = json!([{ "type": "text", "text": "one" }, picture, { "type": "text", "text": "two" }]);
    let absent = json!({ "type": "tool_result", "tool_use_id": "d", "is_error": true });
    let message = json!({ "role": "user", "content": [result("a", json!("whole")), result("b", blocks), result("c", Value::Null), absent] });
    let (found, texts) = facts(&message);
    assert_eq!((found.role, &found.results[..]), (Role::Tool, &["a", "b", "c", "d"].map(String::from)[..]));
    let of = |n: usize, text: &str| (SlotKind::Result(n), text.to_owned());
    let words: Vec<_> = texts.iter().filter(|(kind, _)| *kind != SlotKind::Media).cloned().collect();
    assert_eq!((words, texts.len()), (vec![of(0, "whole"), of(1, "one"), of(1, "two")], 4));
    assert_eq!(found.media.len(), 1);
    let beside = json!({ "role": "user", "content": [result("a", json!("r")), { "type": "text", "text": "and" }] });
    let (found, texts) = facts(&beside);
    assert_eq!((found.role, texts), (Role::User, vec![of(0, "r"), (SlotKind::Text, "and".to_owned())]));
}

#[test]
fn thinking_is_signed_where_it_has_a_signature() {
    let thought = |signature: &str| json!({ "type": "thinking", "thinking": "hm", "signature": signature });
    let (found, texts) = facts(
        &json!({ "role": "assistant", "content": [thought("s"), thought(""), { "type": "redacted_thinking", "data": "xx" }] }),
    );
    assert_eq!(found.signed.len(), 2);
    // What is encrypted is counted by its bytes.
    assert_eq!(
        texts.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(),
        [SlotKind::Reasoning, SlotKind::Reasoning, SlotKind::Other]
    );
}

#[test]
fn what_servers_did_and_what_is_unknown_is_opaque() {
    for block in [
        json!({ "type": "container_upload", "file_id": "f" }),
        json!({ "type": "of_tomorrow", "text": "t" }),
        json!({ "type": "compaction", "content": null }),
    ] {
        let (found, texts) = facts(&json!({ "role": "assistant", "content": [block] }));
        assert!(found.calls.is_empty() && found.results.is_empty() && found.media.is_empty(), "{block}");
        assert_eq!(texts.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [SlotKind::Other], "{block}");
        assert_eq!(found.standing, Standing::Plain);
    }
    for pair in [
        [
            json!({ "type": "server_tool_use", "id": "s", "name": "web_search", "input": { "query": "q" } }),
            json!({ "type": "web_search_tool_result", "tool_use_id": "s", "content": [{ "encrypted_content": "x" }] }),
        ],
        [
            json!({ "type": "mcp_tool_use", "id": "s", "name": "n", "server_name": "z", "input": {} }),
            json!({ "type": "mcp_tool_result", "tool_use_id": "s", "content": [{ "type": "text", "text": "t" }] }),
        ],
    ] {
        let (found, texts) = facts(&json!({ "role": "assistant", "content": pair }));
        assert!(found.calls.is_empty() && found.results.is_empty(), "{pair:?}");
        assert_eq!(
            texts.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(),
            [SlotKind::Given, SlotKind::Other],
            "{pair:?}"
        );
    }
}

#[test]
fn documents_are_media_unless_they_are_text() {
    let with =
        |source: Value| facts(&json!({ "role": "user", "content": [{ "type": "document", "source": source }] })).0;
    assert_eq!(with(json!({ "type": "base64", "data": "AAAA" })).media.len(), 1);
    assert_eq!(with(json!({ "type": "text", "data": "words" })).media.len(), 0);
}

#[test]
fn what_clients_change_from_turn_to_turn_does_not_count() {
    let billing =
        |n: usize| json!({ "type": "text", "text": format!("x-anthropic-billing-header: cc_version=2; cch={n};") });
    let same = [
        json!({ "role": "user", "content": [result("a", json!("r")), { "type": "text", "text": "t" }] }),
        json!({ "content": [{ "content": "r", "tool_use_id": "a", "is_error": false, "type": "tool_result" }, { "text": "t", "type": "text", "cache_control": { "type": "ephemeral" } }], "role": "user" }),
        json!({ "role": "user", "content": [result("a", json!([{ "type": "text", "text": "r", "cache_control": { "type": "ephemeral" } }])), { "type": "text", "text": "t" }] }),
        json!({ "role": "user", "content": [billing(1), result("a", json!("r")), { "type": "text", "text": "t" }] }),
        json!({ "role": "user", "content": [billing(22), result("a", json!("r")), { "type": "text", "text": "t" }] }),
    ];
    let read: Vec<_> = same.iter().map(facts).collect();
    for (found, texts) in &read {
        assert_eq!((found.canonical, texts), (read[0].0.canonical, &read[0].1));
    }
    let failed = json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "a", "content": "r", "is_error": true }, { "type": "text", "text": "t" }] });
    assert_ne!(facts(&failed).0.canonical, read[0].0.canonical);
}

#[test]
fn the_system_prompt_is_outside_the_chain() {
    let with = |system: &str| {
        let body = format!(r#"{{"model":"m","system":{system},"messages":[{{"role":"user","content":"a"}}]}}"#);
        reads(&body).chain().copied().collect::<Vec<_>>()
    };
    assert_eq!(with(r#""one""#), with(r#"[{"type":"text","text":"x-anthropic-billing-header: cch=7;"}]"#));
}

#[test]
fn the_members_beside_the_messages() {
    let body = r#"{"model":"m","max_tokens":9000,"thinking":{"type":"enabled","budget_tokens":4096},"system":"s","tools":[],"messages":[{"role":"user","content":"a"}]}"#;
    let fields = reads(body).fields;
    assert_eq!((fields.max_output[0].value, fields.least_output, fields.overhead.len()), (9_000, 4_097, 2));
    assert!(!fields.continues);
    for (thread, continues) in
        [(r#"{"type":"continue","previous_message_id":"m"}"#, true), (r#"{"type":"create"}"#, false)]
    {
        let body = format!(r#"{{"thread":{thread},"messages":[{{"role":"user","content":"a"}}]}}"#);
        let read = read(Dialect::Messages, body.as_bytes(), &Memo::new(0), [0; 16]);
        assert_eq!(read.is_err(), continues, "what continues a thread passes");
    }
    for twice in [r#""system":"a","system":"b","messages":[]"#, r#""fallback_credit_token":"x","messages":[]"#] {
        let body = format!("{{{twice}}}");
        assert!(read(Dialect::Messages, body.as_bytes(), &Memo::new(0), [0; 16]).is_err());
    }
}

#[test]
fn a_providers_compaction_is_a_boundary() {
    let compacted = json!({ "role": "assistant", "content": [{ "type": "compaction", "content": "so far" }] });
    let user = |text: &str| json!({ "role": "user", "content": text });
    let text = body(&[user("a"), compacted, user("b")]);
    let conversation = reads(&text);
    assert_eq!(counts(&conversation), (1, 1, 1));
    // What answers a call in it goes with it; all else may be touched.
    let calls = json!({ "role": "assistant", "content": [{ "type": "compaction", "content": "so far" }, { "type": "tool_use", "id": "a", "name": "f", "input": {} }] });
    let answer = json!({ "role": "user", "content": [result("a", json!("r"))] });
    let call = |id: &str| json!({ "role": "assistant", "content": [{ "type": "tool_use", "id": id, "name": "f", "input": {} }] });
    let next = json!({ "role": "user", "content": [result("b", json!("r"))] });
    let text = body(&[user("a"), calls, answer, call("b"), next]);
    let conversation = reads(&text);
    assert_eq!((counts(&conversation), conversation.sight()), ((1, 2, 2), Sight::Whole));
    assert_eq!(conversation.items[0].facts.calls[0].id, "b");
}

/// How much is superseded, settled and may be touched.
fn counts(conversation: &Conversation) -> (usize, usize, usize) {
    (conversation.superseded.len(), conversation.settled.len(), conversation.items.len())
}

#[test]
fn changed_instructions_are_part_of_the_history() {
    let change = json!({ "role": "system", "content": [{ "type": "mid_conv_system", "content": [{ "type": "text", "text": "t" }] }] });
    let compacted = json!({ "role": "assistant", "content": [{ "type": "compaction", "content": "so far" }] });
    let user = |text: &str| json!({ "role": "user", "content": text });
    let text = body(&[user("a"), change.clone(), user("b")]);
    let before = body(&[user("a")]);
    let (before, conversation) = (reads(&before), reads(&text));
    assert_eq!((counts(&conversation), conversation.items[0].chain), ((0, 0, 3), before.items[0].chain));
    let text = body(&[user("a"), change.clone(), compacted.clone(), user("b"), change, user("c")]);
    assert_eq!(counts(&reads(&text)), (2, 1, 3));
}

#[test]
fn what_is_superseded_costs_nothing() {
    let compacted = json!({ "role": "assistant", "content": [{ "type": "compaction", "content": "so far" }] });
    let user = |text: &str| json!({ "role": "user", "content": text });
    let tokens = |first: &str| {
        let text = body(&[user(first), compacted.clone(), user("b")]);
        let conversation = reads(&text);
        (crate::compact::tokens::bound(&conversation), crate::compact::tokens::Tokens::default().total(&conversation))
    };
    assert_eq!(tokens(&"word ".repeat(9_000)), tokens("a"));
}

#[test]
fn pictures_that_are_settled_are_no_text() {
    let calls = json!({ "role": "assistant", "content": [{ "type": "compaction", "content": "so far" }, { "type": "tool_use", "id": "a", "name": "f", "input": {} }] });
    let picture = json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "A1b2".repeat(9_000) } });
    let answer = json!({ "role": "user", "content": [result("a", json!([picture]))] });
    let text = body(&[calls, answer, json!({ "role": "assistant", "content": "b" })]);
    let conversation = reads(&text);
    assert_eq!(counts(&conversation), (0, 2, 1));
    let total = crate::compact::tokens::Tokens::default().total(&conversation);
    assert!(total > 1_105 && total < 1_400, "{total}");
}

#[test]
fn what_a_server_has_not_answered_in_its_message_is_open() {
    let call = json!({ "type": "server_tool_use", "id": "s", "name": "code_execution", "input": {} });
    let answer = json!({ "type": "code_execution_tool_result", "tool_use_id": "s", "content": {} });
    let says = |blocks: &[&Value]| facts(&json!({ "role": "assistant", "content": blocks })).0;
    let (asked, answered, both) = (says(&[&call]), says(&[&answer]), says(&[&call, &answer]));
    assert_eq!((asked.calls[0].id.as_str(), asked.calls[0].name.as_str()), ("s", "code_execution"));
    assert_eq!((&answered.results[..], answered.role), (&["s".to_owned()][..], Role::Assistant));
    assert!(asked.results.is_empty() && answered.calls.is_empty());
    assert!(both.calls.is_empty() && both.results.is_empty());
}

#[test]
fn the_provider_may_manage_the_history() {
    let managed = |edits: &str| {
        let body = format!(r#"{{"context_management":{edits},"messages":[{{"role":"user","content":"a"}}]}}"#);
        reads(&body).fields.managed
    };
    let thinking = r#"{"type":"clear_thinking_20251015","keep":"all"}"#;
    for form in ["compact_20260112", "clear_tool_uses_20250919"] {
        assert!(managed(&format!(r#"{{"edits":[{thinking},{{"type":"{form}"}}]}}"#)), "{form}");
    }
    assert!(!managed(&format!(r#"{{"edits":[{thinking}]}}"#)));
    assert!(!managed("null") && !managed("{}") && !managed(r#"{"edits":[]}"#));
    let twice = r#"{"context_management":{},"context_management":{},"messages":[]}"#;
    assert!(read(Dialect::Messages, twice.as_bytes(), &Memo::new(0), [0; 16]).is_err());
}

#[test]
fn all_that_a_tool_is_given_counts() {
    let of = |input: Value| {
        facts(&json!({ "role": "assistant", "content": [{ "type": "tool_use", "id": "a", "name": "put", "input": input }] })).0.canonical
    };
    let inputs = [
        json!({}),
        json!({ "x": null }),
        json!({ "cache_control": "no-store" }),
        json!({ "x": [{ "cache_control": "no-store" }] }),
        json!({ "x": [{ "cache_control": null }] }),
        json!({ "x": [{}] }),
    ];
    let digests: std::collections::HashSet<_> = inputs.into_iter().map(of).collect();
    assert_eq!(digests.len(), 6);
}

#[test]
fn only_a_billing_block_and_nothing_else_does_not_count() {
    let says = |block: Value| facts(&json!({ "role": "user", "content": [block] })).1.len();
    let text = |text: &str| says(json!({ "type": "text", "text": text }));
    assert_eq!(text("x-anthropic-billing-header: cc_version=2; cch=1;"), 0);
    for typed in [
        "x-anthropic-billing-header: what is this?",
        "x-anthropic-billing-header: cch=1;\nNow fix the test;",
        "x-anthropic-billing-header: cch=1; and now fix it;",
        "x-anthropic-billing-header:",
    ] {
        assert_eq!(text(typed), 1, "{typed}");
    }
    assert_eq!(says(json!({ "type": "of_tomorrow", "text": "x-anthropic-billing-header: cch=1;" })), 1);
}

#[test]
fn pictures_in_a_document_of_blocks_are_media() {
    let picture = json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "A".repeat(9_000) } });
    let source = json!({ "type": "content", "content": [{ "type": "text", "text": "t" }, picture] });
    let (found, texts) = facts(&json!({ "role": "user", "content": [{ "type": "document", "source": source }] }));
    assert_eq!((found.media.len(), found.text_bytes < 300), (1, true));
    assert_eq!(
        texts.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(),
        [SlotKind::Other, SlotKind::Media, SlotKind::Other]
    );
}

#[test]
fn hosted_paths_name_dialect_model_and_errand() {
    let vertex = "/v1/projects/p/locations/l/publishers/anthropic/models/claude-x@2:streamRawPredict";
    let bedrock = "/model/eu.anthropic.claude-x-v1:0/invoke-with-response-stream";
    for (path, model) in [(vertex, "claude-x@2"), (bedrock, "eu.anthropic.claude-x-v1:0")] {
        assert_eq!((Dialect::of_path(path), model_of_path(path)), (Some(Dialect::Messages), Some(model)));
        assert_eq!(Errand::of_path(path), Errand::Generate);
    }
    let count = "/v1/projects/p/locations/l/publishers/anthropic/models/count-tokens:rawPredict";
    assert_eq!((Dialect::of_path(count), model_of_path(count)), (Some(Dialect::Messages), None));
    assert_eq!(
        (Errand::of_path(count), Errand::of_path("/v1/messages/count_tokens?beta=true")),
        (Errand::Count, Errand::Count)
    );
    for other in ["/model/amazon.nova/invoke", "/v1/models/gemini:rawPredict", "/x/invoke", "/v1/messages/batches"] {
        assert_eq!(Dialect::of_path(other), None, "{other}");
    }
}
