//! Every shape of an item and of a body, one by one.

use serde_json::{Value, json};

use crate::compact::cuts::{boundaries, groups, may_fold, pairs};
use crate::wire::conversation::Sight;
use crate::wire::memo::Memo;
use crate::wire::{Conversation, Dialect, Role, SlotKind, Standing, read};

fn responses(body: &str) -> Conversation<'_> {
    read(Dialect::Responses, body.as_bytes(), &Memo::new(0), [0; 16]).unwrap()
}

fn body(items: &[Value]) -> String {
    json!({ "model": "m", "input": items }).to_string()
}

/// The slots of an item behind a user message, with their texts, by text.
fn slots(item: &Value) -> Vec<(SlotKind, String)> {
    let body = body(&[json!({"role": "user", "content": "x"}), item.clone()]);
    let conversation = responses(&body);
    let raw = conversation.raw(1);
    let slots = conversation.items[1].facts.slots.iter();
    let mut slots: Vec<_> =
        slots.map(|slot| (slot.kind, String::from_utf8(raw[slot.span.clone()].to_vec()).unwrap())).collect();
    slots.sort_by(|(_, a), (_, b)| a.cmp(b));
    slots
}

fn slot(kind: SlotKind, value: Value) -> (SlotKind, String) {
    (kind, value.to_string())
}

/// Pairs as items: call and result.
fn paired(items: &[Value]) -> Vec<(usize, Option<usize>)> {
    let body = body(items);
    pairs(&responses(&body)).into_iter().map(|pair| (pair.call.0, pair.result.map(|(item, _)| item))).collect()
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn says(text: &str) -> Value {
    json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
}

fn reasoning(id: &str) -> Value {
    json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": "gAAA"})
}

fn call(id: &str) -> Value {
    json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"})
}

fn output(id: &str) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": "out"})
}

#[test]
fn a_string_is_a_user_message() {
    let text = responses(r#"{"model":"m","input":"caf\u00e9"}"#);
    let easy = responses(r#"{"model":"m","input":[{"role":"user","content":"café"}]}"#);
    let typed = responses(
        r#"{"model":"m","input":[{"content":[{"text":"café","type":"input_text"}],"type":"message","role":"user"}]}"#,
    );
    assert_eq!(text.items.len(), 1);
    let facts = &text.items[0].facts;
    assert_eq!((facts.role, text.raw(0)), (Role::User, &br#""caf\u00e9""#[..]));
    assert_eq!(text.text(0, &facts.slots[0]).as_deref(), Some("café"));
    for other in [&easy, &typed] {
        assert_eq!(other.items[0].chain, text.items[0].chain);
        assert_eq!(other.items[0].facts.slots.len(), 1);
    }
    assert!(read(Dialect::Responses, br#"{"input":5}"#, &Memo::new(0), [0; 16]).is_err());
}

#[test]
fn spellings_of_messages_do_not_count_and_everything_else_does() {
    let digest = |item: Value| {
        let body = body(&[user("x"), item]);
        responses(&body).items[1].facts.canonical
    };
    assert_eq!(digest(json!({"role": "assistant", "content": "a"})), digest(says("a")));
    let marked = json!({"type": "message", "role": "user", "content": [
        {"type": "input_text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit"}}]});
    assert_eq!(digest(marked), digest(user("a")));
    let different = [
        says("a"),
        user("a"),
        json!({"role": "assistant", "content": "a", "phase": "final"}),
        json!({"role": "user", "content": [{"type": "output_text", "text": "a"}]}),
        json!({"role": "user", "content": "a", "id": "msg_1"}),
        call("a"),
        call("b"),
        output("a"),
        json!({"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "out"}]}),
        reasoning("rs_1"),
        reasoning("rs_2"),
    ];
    let digests: std::collections::HashSet<_> = different.iter().map(|item| digest(item.clone())).collect();
    assert_eq!(digests.len(), different.len());
}

#[test]
fn fields_are_read_wherever_they_stand() {
    let body = concat!(
        r#"{"instructions":"be","max_output_tokens":100,"previous_response_id":null,"input":[{"role":"user","content":"u"}],"#,
        r#""tools":[{"a":1}],"text":{"verbosity":"low"},"store":false,"model":"m","conversation":null}"#
    );
    let conversation = responses(body);
    let fields = &conversation.fields;
    let at = |span: &std::ops::Range<usize>| body.get(span.clone()).unwrap();
    assert_eq!(
        fields.overhead.iter().map(at).collect::<Vec<_>>(),
        [r#""be""#, r#"[{"a":1}]"#, r#"{"verbosity":"low"}"#]
    );
    assert_eq!((fields.max_output[0].value, fields.store, fields.continues), (100, Some(false), false));
    assert!(!fields.managed);
    for (member, continues, managed) in [
        (r#""previous_response_id":"resp_1""#, true, false),
        (r#""conversation":{"id":"conv_1"}"#, true, false),
        (r#""context_management":[{"type":"compaction","compact_threshold":1000}]"#, false, true),
    ] {
        let body = format!(r#"{{{member},"input":"x"}}"#);
        let conversation = responses(&body);
        assert_eq!((conversation.fields.continues, conversation.fields.managed), (continues, managed), "{member}");
        assert_eq!(conversation.sight() == Sight::Partial, continues);
        let twice = format!(r#"{{{member},"input":"x",{member}}}"#);
        assert!(read(Dialect::Responses, twice.as_bytes(), &Memo::new(0), [0; 16]).is_err(), "{member}");
    }
}

#[test]
fn texts_of_messages_and_reasoning() {
    use SlotKind::*;
    let parts = json!([{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "data:,"},
        {"type": "refusal", "refusal": "b"}, {"type": "novelty", "x": 1}, "c"]);
    let message = json!({"type": "message", "role": "user", "id": "m", "status": "s", "content": parts});
    assert_eq!(
        slots(&message),
        [slot(Text, json!("a")), slot(Text, json!("b")), slot(Other, json!("c")), slot(Other, json!(1))]
    );
    let message = json!({"type": "message", "role": "assistant", "phase": "final",
        "content": [{"type": "output_text", "text": "a", "annotations": []}]});
    assert_eq!(slots(&message), [slot(Text, json!("a")), slot(Other, json!([]))]);
    let summary = json!([{"type": "summary_text", "text": "s"}]);
    let item =
        json!({"type": "reasoning", "id": "rs_1", "summary": summary, "content": null, "encrypted_content": "e"});
    assert_eq!(slots(&item), [slot(Other, json!("e")), slot(Reasoning, json!("reasoning")), slot(Reasoning, summary)]);
    // However little it holds, it is known as reasoning: it does not count as a message.
    let body = body(&[user("x"), json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "e"})]);
    assert!(!crate::compact::cuts::is_message(&responses(&body).items[1].facts));
}

#[test]
fn what_a_call_is_given_and_its_tool() {
    use SlotKind::*;
    let action = json!({"command": ["ls"], "type": "exec"});
    for (item, tool, due) in [
        (call("c"), "f", vec![slot(Arguments(0), json!("{}"))]),
        (json!({"type": "custom_tool_call", "name": "patch", "input": "i"}), "patch", vec![slot(Input(0), json!("i"))]),
        (
            json!({"type": "local_shell_call", "action": action}),
            "local_shell",
            vec![slot(Arguments(0), action.clone())],
        ),
        (json!({"type": "shell_call", "action": action}), "shell", vec![slot(Arguments(0), action.clone())]),
        (json!({"type": "computer_call", "action": action}), "computer", vec![slot(Arguments(0), action.clone())]),
        (
            json!({"type": "apply_patch_call", "operation": action}),
            "apply_patch",
            vec![slot(Arguments(0), action.clone())],
        ),
        (json!({"type": "tool_search_call", "arguments": action}), "tool_search", vec![slot(Given, action.clone())]),
        (json!({"type": "novel_call", "arguments": "{}"}), "novel", vec![slot(Given, json!("{}"))]),
        (json!({"type": "program", "fingerprint": "x"}), "program", vec![slot(Given, json!("x"))]),
        (
            json!({"type": "mcp_approval_request", "id": "c", "name": "n", "arguments": "{}"}),
            "n",
            vec![slot(Given, json!("{}"))],
        ),
    ] {
        let mut item = item;
        item["call_id"] = json!("c");
        assert_eq!(slots(&item), due, "{item}");
        let answer = match tool {
            "n" => json!({"type": "mcp_approval_response", "approval_request_id": "c", "approve": true}),
            _ => json!({"type": "x_output", "call_id": "c"}),
        };
        let items = [user("x"), item.clone(), answer];
        let body = body(&items);
        assert_eq!(responses(&body).tool_of(2, "c"), Some(tool), "{item}");
        assert_eq!(paired(&items), [(1, Some(2))], "{item}");
    }
}

#[test]
fn results_of_every_form() {
    use SlotKind::*;
    let result = |item: Value| {
        let body = body(&[user("x"), item.clone()]);
        let conversation = responses(&body);
        let facts = &conversation.items[1].facts;
        (slots(&item), facts.results.clone(), facts.media.len())
    };
    let id = || vec!["c".to_owned()];
    assert_eq!(result(output("c")), (vec![slot(Result(0), json!("out"))], id(), 0));
    let parts = json!([{"type": "input_text", "text": "a"}, {"type": "input_image", "file_id": "f"}, {"type": "output_text", "text": "b"}]);
    let custom = json!({"type": "custom_tool_call_output", "call_id": "c", "output": parts});
    assert_eq!(result(custom), (vec![slot(Result(0), json!("a")), slot(Result(0), json!("b"))], id(), 1));
    let printed = json!([{"stdout": "o", "stderr": "e", "outcome": {"type": "exit"}}]);
    let shell = json!({"type": "shell_call_output", "call_id": "c", "output": printed, "max_output_length": 9});
    let due = vec![
        slot(Result(0), json!("e")),
        slot(Result(0), json!("o")),
        slot(Other, json!(9)),
        slot(Other, json!({"type": "exit"})),
    ];
    assert_eq!(result(shell), (due, id(), 0));
    let screen = json!({"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", "image_url": "data:,"}});
    assert_eq!(result(screen), (vec![], id(), 1));
    let local = json!({"type": "local_shell_call_output", "id": "c", "output": "o"});
    assert_eq!(result(local), (vec![slot(Result(0), json!("o"))], id(), 0));
    let program = json!({"type": "program_output", "call_id": "c", "result": "r", "status": "completed"});
    assert_eq!(result(program), (vec![slot(Result(0), json!("r"))], id(), 0));
    let search = json!({"type": "tool_search_output", "call_id": null, "tools": []});
    assert_eq!(result(search), (vec![slot(Other, json!([]))], vec!["tool_search".to_owned()], 0));
}

#[test]
fn families_pair_by_id_and_without_one_by_name() {
    let search = json!({"type": "tool_search_call", "call_id": null, "arguments": {}});
    let found = json!({"type": "tool_search_output", "call_id": null, "tools": []});
    assert_eq!(paired(&[user("x"), search.clone(), found.clone(), search, found]), [(1, Some(2)), (3, Some(4))]);
    let mcp = json!({"type": "mcp_call", "id": "m1", "name": "n", "arguments": "{}", "output": "long"});
    assert_eq!(paired(&[user("x"), mcp.clone()]), [(1, Some(1))]);
    let body = body(&[user("x"), mcp]);
    assert_eq!(responses(&body).tool_of(1, "m1"), Some("n"));
    assert_eq!(paired(&[user("x"), call("a"), call("b"), output("b"), output("a")]), [(1, Some(4)), (2, Some(3))]);
    let (novelty, answer) =
        (json!({"type": "novelty", "call_id": "z"}), json!({"type": "novelty_output", "call_id": "z"}));
    assert_eq!(paired(&[user("x"), novelty, user("y"), answer]), [(1, Some(3))]);
    let alone = json!({"type": "web_search_call", "id": "ws_1", "action": {}});
    assert_eq!(paired(&[user("x"), alone]), []);
}

#[test]
fn what_belongs_together_is_one_group() {
    let items = [
        user("x"),
        reasoning("rs_1"),
        reasoning("rs_2"),
        says("first"),
        call("a"),
        call("b"),
        output("a"),
        output("b"),
        reasoning("rs_3"),
        says("second"),
        user("y"),
        says("third"),
        json!({"type": "novelty"}),
        user("z"),
        reasoning("rs_4"),
    ];
    let body = body(&items);
    let conversation = responses(&body);
    assert_eq!(groups(&conversation), [0..1, 1..8, 8..10, 10..11, 11..14, 14..15]);
    assert_eq!(boundaries(&conversation), [1, 8, 10, 11, 14]);
    assert!(!may_fold(&conversation), "reasoning is never the last");
}

#[test]
fn standings() {
    let standing = |item: Value| {
        let body = body(&[user("x"), says("y"), item]);
        let conversation = responses(&body);
        (conversation.sight(), conversation.items.last().map(|item| (item.facts.standing, item.facts.role)))
    };
    assert_eq!(standing(json!({"type": "compaction", "encrypted_content": "e"})), (Sight::Whole, None));
    let reference = Some((Standing::Reference, Role::Unknown));
    assert_eq!(standing(json!({"type": "item_reference", "id": "msg_1"})), (Sight::Partial, reference));
    assert_eq!(standing(json!({"id": "msg_1"})), (Sight::Partial, reference));
    let trigger = Some((Standing::Trigger, Role::Unknown));
    assert_eq!(standing(json!({"type": "compaction_trigger"})), (Sight::Whole, trigger));
    let kept = Some((Standing::Kept, Role::System));
    assert_eq!(standing(json!({"type": "additional_tools", "role": "developer", "tools": []})), (Sight::Whole, kept));
    assert_eq!(standing(json!({"type": "configuration_update", "tools": []})), (Sight::Whole, kept));
    let listed = Some((Standing::Kept, Role::Assistant));
    assert_eq!(standing(json!({"type": "mcp_list_tools", "id": "l", "tools": []})), (Sight::Whole, listed));
}

#[test]
fn nothing_across_a_compaction_item_counts() {
    let compaction = json!({"type": "compaction", "encrypted_content": "e"});
    let whole = body(&[user("x"), says("y"), compaction.clone(), reasoning("rs_1"), call("a"), output("a")]);
    let short = body(&[compaction, reasoning("rs_1"), call("a"), output("a")]);
    let (whole, short) = (responses(&whole), responses(&short));
    assert_eq!((whole.settled.len(), short.settled.len(), whole.superseded.len()), (1, 1, 2));
    assert!(whole.chain().eq(short.chain()));
    assert_eq!(whole.sight(), Sight::Whole);
    // An output behind it that answers a call before it goes with it, whether the call is still there or not.
    let compaction = json!({"type": "compaction", "encrypted_content": "e"});
    let rest = [compaction, output("a"), call("b"), output("b"), user("z")];
    let cut = body(&[&[user("x"), call("a")][..], &rest].concat());
    for (text, superseded) in [(cut, 2), (body(&rest), 0)] {
        let conversation = responses(&text);
        assert_eq!(
            (conversation.superseded.len(), conversation.settled.len(), conversation.items.len()),
            (superseded, 2, 3)
        );
        assert_eq!(conversation.sight(), Sight::Whole);
    }
}

#[test]
fn what_the_provider_answered_within_an_item_is_no_open_result() {
    let compaction = json!({"type": "compaction", "encrypted_content": "e"});
    let served =
        json!({"type": "mcp_call", "id": "m", "name": "n", "server_label": "l", "arguments": "{}", "output": "o"});
    let text = body(&[user("x"), compaction, served, user("z")]);
    let conversation = responses(&text);
    assert_eq!((conversation.items.len(), conversation.sight()), (2, Sight::Whole));
}

#[test]
fn all_that_a_tool_is_given_counts() {
    let of = |kind: &str, key: &str, given: Value| {
        let mut item = json!({"type": kind, "call_id": "c"});
        item[key] = given;
        let text = body(&[item]);
        responses(&text).items[0].facts.canonical
    };
    for (kind, key) in
        [("computer_call", "action"), ("apply_patch_call", "operation"), ("tool_search_call", "arguments")]
    {
        let [none, null, mark] =
            [json!({}), json!({"x": null}), json!({"cache_control": 1})].map(|given| of(kind, key, given));
        assert!(none != null && none != mark && null != mark, "{kind}");
    }
}

#[test]
fn settings_that_lead_are_outside_the_items() {
    let tools = json!({"type": "additional_tools", "role": "developer", "tools": []});
    let developer = json!({"type": "message", "role": "developer", "content": "d"});
    let body = body(&[tools, developer, user("x")]);
    let conversation = responses(&body);
    assert_eq!((conversation.lead.len(), conversation.items.len()), (2, 1));
}
