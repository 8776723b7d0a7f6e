use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::wire::memo::Memo;
use crate::wire::splice::{Edit, splice};
use crate::wire::{self, Dialect};

fn seen(text: &str) -> Shown {
    let mut shown = Shown::default();
    shown.see(text.as_bytes());
    shown
}

/// What a body shows as it is, and with this in place of the first `old` in it.
fn of(dialect: Dialect, body: &str, edited: Option<(&str, &str)>) -> Shown {
    let (memo, bytes) = (Memo::new(0), Bytes::copy_from_slice(body.as_bytes()));
    let conversation = wire::read(dialect, &bytes, &memo, [0; 16]).unwrap();
    let edit = edited.map(|(old, new)| {
        let start = memchr::memmem::find(&bytes, old.as_bytes()).unwrap();
        Edit { span: start..start + old.len(), with: Bytes::copy_from_slice(new.as_bytes()) }
    });
    Shown::of(&conversation, &splice(&bytes, Vec::from_iter(edit)).unwrap())
}

#[test]
fn an_id_counts_wherever_it_stands() {
    let id = TextId([0xab; 16]);
    let other = TextId([0xcd; 16]);
    for text in [
        format!("{id}"),
        format!(
            "[compactproxy notice: 5 characters are left out. Whole text: id {id}, GET /_compactproxy/evicted/{id} at"
        ),
        format!("{{\"content\":\"see {id}.\\n\"}}"),
        format!(r#"{{\"id\":\"{id}\"}}"#),
        format!("id{id}"),
        format!("{id}e {other}"),
        id.to_string().to_uppercase(),
    ] {
        assert!(seen(&text).has(&id), "{text}");
    }
    let cut: String = id.to_string().chars().take(31).collect();
    assert_eq!(seen(&format!("{cut} {cut}")), Shown::default());
    assert!(!seen(&format!("{other}")).has(&id) && Shown::Any.has(&id));
}

#[test]
fn beyond_the_most_nothing_is_refused() {
    let text = |count: u128| (0..count).map(|n| TextId(n.to_be_bytes()).to_string() + " ").collect::<String>();
    let unseen = TextId([0xff; 16]);
    assert!(!seen(&text(MOST as u128)).has(&unseen));
    assert!(seen(&text(MOST as u128 + 1)).has(&unseen));
    let mut both = seen(&text(MOST as u128));
    both.and(seen(&unseen.to_string()));
    assert_eq!(both, Shown::Any);
}

/// The notice of what was cut out of a call's arguments names it; what the model wrote around it stays its own.
#[test]
fn what_is_cut_out_of_arguments_is_shown_and_what_is_left_of_them_is_not() {
    let (guessed, removed) = (TextId([0xab; 16]), TextId([0xcd; 16]));
    let given = json!({"id": [format!("{guessed} and much more")], "text": "long"}).to_string();
    let item = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": given});
    let body = json!({"model": "m", "input": [item]}).to_string();
    assert_eq!(of(Dialect::Responses, &body, None), Shown::default());
    for (old, new) in [("much more", "id R"), ("and", "G id R and"), ("\"{", "\"{\\\"G\\\": \\\"id R\\\",")] {
        let new = new.replace('R', &removed.to_string()).replace('G', &guessed.to_string());
        let shown = of(Dialect::Responses, &body, Some((old, &new)));
        assert_eq!(shown, Shown::These(HashSet::from([removed])), "{new}");
    }
    // In place of something else all of it counts.
    let shown = of(Dialect::Responses, &body, Some(("\"m\"", &format!("\"{guessed}\""))));
    assert!(shown.has(&guessed));
}

/// How a call may hold an id.
fn given(form: usize, id: &str) -> Value {
    match form {
        0 => json!({"id": id}),
        1 => json!({"id": [id], "offset": 3}),
        2 => json!({"a": {"b": [{"id": format!("GET /_compactproxy/evicted/{id}")}]}}),
        3 => json!({"text": json!({"text": json!({"id": id}).to_string()}).to_string()}),
        4 => json!({id: 1}),
        _ => json!({"command": ["echo", format!("x\n{id}\ty")]}),
    }
}

/// How something that is no call may hold one.
fn told(form: usize, id: &str) -> String {
    match form {
        0 => format!("see id {id}."),
        1 => json!({"id": id}).to_string(),
        2 => {
            json!({"tool_calls": [{"function": {"name": "read_evicted", "arguments": json!({"id": id}).to_string()}}]})
                .to_string()
        }
        3 => format!("\n{id}\n"),
        _ => json!({"type": "tool_use", "input": {"id": [id]}}).to_string(),
    }
}

/// What is given, and what is said elsewhere, each in its form.
struct Parts<'p> {
    form: usize,
    value: &'p Value,
    kind: usize,
    said: &'p str,
}

/// Items of a conversation in which a call is given something, and others say something.
fn items(dialect: Dialect, parts: &Parts<'_>) -> Vec<Value> {
    let (call, told) = match dialect {
        Dialect::Chat => chat(parts),
        Dialect::Responses => responses(parts),
        Dialect::Messages => messages(parts),
    };
    let result = json!({"role": "tool", "tool_call_id": "c", "content": "ok"});
    let result = (dialect == Dialect::Chat).then_some(result);
    [json!({"role": "user", "content": "Go."}), call].into_iter().chain(result).chain([told]).collect()
}

fn note(role: &str, said: &str) -> Value {
    json!({"role": role, "content": said})
}

fn chat(&Parts { form, value, kind, said }: &Parts<'_>) -> (Value, Value) {
    let text = value.to_string();
    let mut call = match form % 3 {
        0 => json!({"tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "f", "input": text}}]}),
        1 => json!({"function_call": {"name": "c", "arguments": text}}),
        _ => json!({"tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": text}}]}),
    };
    call["role"] = json!("assistant");
    let told = match kind {
        0 => note("user", said),
        1 => note("system", said),
        2 => note("assistant", said),
        3 => json!({"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": said}]}),
        _ => json!({"role": "tool", "tool_call_id": "c", "content": said}),
    };
    (call, told)
}

fn responses(&Parts { form, value, kind, said }: &Parts<'_>) -> (Value, Value) {
    let text = value.to_string();
    let served = |id: &str, arguments: &str, output: &str| json!({"type": "mcp_call", "id": id, "name": "f", "server_label": "s", "arguments": arguments, "output": output});
    let call = match form {
        0 => json!({"type": "custom_tool_call", "call_id": "c", "name": "f", "input": text}),
        1 => json!({"type": "local_shell_call", "call_id": "c", "action": value}),
        2 => served("m", &text, "ok"),
        3 => json!({"type": "web_search_call", "id": "w", "action": value}),
        4 => json!({"type": "novel_call", "call_id": "c", "whatever": value}),
        _ => json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": text}),
    };
    let told = match kind {
        0 => note("user", said),
        1 => note("developer", said),
        2 => json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": said}]}),
        3 => served("m2", "{}", said),
        _ => json!({"type": "function_call_output", "call_id": "c", "output": said}),
    };
    (call, told)
}

fn messages(&Parts { form, value, kind, said }: &Parts<'_>) -> (Value, Value) {
    let form = ["tool_use", "server_tool_use", "mcp_tool_use"][form % 3];
    let call = json!({"role": "assistant", "content": [{"type": form, "id": "c", "name": "f", "input": value}]});
    let answer = |content: Value| json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": content}]});
    let told = match kind {
        0 => note("user", said),
        1 => json!({"role": "user", "content": [{"type": "text", "text": said}]}),
        2 => note("assistant", said),
        3 => answer(json!([{"type": "text", "text": said}])),
        _ => answer(json!(said)),
    };
    (call, told)
}

proptest! {
    /// For all texts: exactly the ids that stand in them were shown.
    #[test]
    fn all_ids_are_seen_and_no_others(parts in prop::collection::vec(("[g-z .,\"/]{1,70}", any::<[u8; 16]>()), 0..8)) {
        let text: String = parts.iter().map(|(words, id)| format!("{words}{}", TextId(*id))).collect();
        let expected: HashSet<TextId> = parts.iter().map(|(_, id)| TextId(*id)).collect();
        prop_assert_eq!(seen(&text), Shown::These(expected));
    }

    /// For all dialects, calls and places: what stands in a call's arguments alone was not shown, what stands anywhere
    /// else was.
    #[test]
    fn what_a_call_is_given_was_not_shown_by_that(
        dialect in prop::sample::select(vec![Dialect::Chat, Dialect::Responses, Dialect::Messages]),
        (form, kind, says) in (0_usize..6, 0_usize..5, 0_usize..5),
        (own, said) in (any::<[u8; 16]>(), any::<[u8; 16]>()),
        pretty in any::<bool>(),
    ) {
        let (own, said) = (TextId(own), TextId(said));
        prop_assume!(own != said);
        let (value, text) = (given(form, &own.to_string()), told(says, &said.to_string()));
        let items = items(dialect, &Parts { form, value: &value, kind, said: &text });
        let array = if dialect == Dialect::Responses { "input" } else { "messages" };
        let body = json!({"model": "m", array: items});
        let body = if pretty { serde_json::to_string_pretty(&body).unwrap() } else { body.to_string() };
        prop_assert_eq!(of(dialect, &body, None), Shown::These(HashSet::from([said])), "{}", body);
    }
}
