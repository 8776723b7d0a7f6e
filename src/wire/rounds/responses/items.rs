//! Items of a response: what they are and say, and those that answer the proxy's calls.

use bytes::Bytes;

use super::super::object::{Object, edited};
use super::{OwnCall, OwnResult, quoted};

/// Whether a client's tool is called by an item of this type.
pub(in super::super) fn is_call(form: &str) -> bool {
    form.ends_with("_call")
}

/// What the model said in an item.
pub(in super::super) fn texts(item: &Object<'_>) -> Vec<String> {
    if item.get("content").is_some_and(|span| item.text.get(span.start) == Some(&b'"')) {
        return vec![item.string("content").into_owned()];
    }
    let parts = if item.string("type") == "reasoning" { Vec::new() } else { item.elements("content") };
    let parts = parts.iter().filter_map(|part| Object::read(item.text, part.start));
    parts.flat_map(|part| ["text", "refusal"].map(|key| part.string(key).into_owned())).collect()
}

/// Output tokens, and of them reasoning.
pub(super) fn counts(response: &Object<'_>) -> (u64, u64) {
    let Some(usage) = response.object("usage") else { return (0, 0) };
    let reasoning = usage.object("output_tokens_details").and_then(|details| details.number("reasoning_tokens"));
    (usage.number("output_tokens").unwrap_or(0), reasoning.unwrap_or(0))
}

pub(super) fn is_reasoning(item: &[u8]) -> bool {
    Object::read(item, 0).is_some_and(|item| item.string("type") == "reasoning")
}

/// Whether an item is reasoning of which only the id is there.
pub(super) fn is_kept_by_provider(item: &[u8]) -> bool {
    let item = Object::read(item, 0);
    item.is_some_and(|item| {
        item.string("type") == "reasoning"
            && item.get("encrypted_content").is_none()
            && item.elements("content").is_empty()
    })
}

/// A message or call without the id that ties it to its reasoning.
pub(in super::super) fn without_id(raw: &Bytes) -> Bytes {
    let item = Object::read(raw, 0);
    let tied = item.filter(|item| matches!(&*item.string("type"), "message" | "function_call" | "custom_tool_call"));
    edited(raw, Vec::from_iter(tied.and_then(|item| item.without("id"))))
}

pub(in super::super) fn results(calls: &[OwnCall], results: &[OwnResult]) -> Bytes {
    outputs(calls, results).into()
}

/// One item a call (R1).
pub(super) fn outputs(calls: &[OwnCall], results: &[OwnResult]) -> String {
    let item = |(call, result): (&OwnCall, &OwnResult)| {
        let text = if result.text.is_empty() { "(nothing)" } else { &result.text };
        let (id, text) = (quoted(&call.id), quoted(text));
        format!(r#"{{"type":"function_call_output","call_id":{id},"output":{text}}}"#)
    };
    calls.iter().zip(results).map(item).collect::<Vec<_>>().join(",")
}
