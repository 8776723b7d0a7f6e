//! OpenAI Chat Completions: a request body as a conversation, and what is written into one.

use std::ops::Range;

use super::conversation::{Conversation, Fields, Role};
use super::scan::{self, elements, members, string};
use super::splice::Edit;
use super::writing::{inner, quoted};

/// Members that are read, so that a body in which one stands twice is unreadable.
pub(super) const READ: &[&str] = &[
    "max_tokens",
    "max_completion_tokens",
    "tools",
    "functions",
    "response_format",
    "tool_choice",
    "documents",
    "function_call",
];

/// Takes note of a top-level member.
pub(super) fn member(fields: &mut Fields, body: &[u8], key: &str, span: &Range<usize>) {
    match key {
        "max_tokens" | "max_completion_tokens" => fields.limit_output(body, span),
        "tools" | "functions" | "response_format" | "documents" => fields.overhead.push(span.clone()),
        _ => {}
    }
}

/// A user message with `text` and the parts behind it, as JSON; `kind` is the type of a text part.
pub(super) fn user_message(text: &str, parts: &[String], kind: &str) -> String {
    let said = quoted(text);
    match parts {
        [] => format!(r#"{{"role":"user","content":{said}}}"#),
        parts => format!(r#"{{"role":"user","content":[{{"type":"{kind}","text":{said}}},{}]}}"#, parts.join(",")),
    }
}

/// The edit that puts `text` in front of the text of the user message `item`: into its string, into its
/// first part of type `kind`, or as a first such part where it has none (D11: one text part stays one).
/// `None` for other roles and shapes.
pub(super) fn fold_into(conversation: &Conversation<'_>, item: usize, text: &str, kind: &str) -> Option<Edit> {
    let at = conversation.items.get(item).filter(|item| item.facts.role == Role::User)?.span.start;
    let raw = conversation.raw(item);
    let (_, content) = members(raw, 0).ok()?.into_iter().find(|(key, _)| key == "content")?;
    let (place, with) = match scan::kind(raw, &content) {
        b'"' => (content.start + 1, inner(text)),
        b'[' => match first_text(raw, content.start, kind) {
            Some(first) => (first.start + 1, inner(text)),
            None => (content.start + 1, new_part(raw, content.start, text, kind)?),
        },
        _ => return None,
    };
    Some(Edit { span: at + place..at + place, with: with.into() })
}

/// The string of the first text part of type `kind` in the array at `at`.
fn first_text(raw: &[u8], at: usize, kind: &str) -> Option<Range<usize>> {
    elements(raw, at).ok()?.into_iter().find_map(|part| {
        let members = members(raw, part.start).ok()?;
        let value = |key: &str| members.iter().find(|(name, _)| name == key).map(|(_, span)| span.clone());
        let is_text = string(raw, &value("type")?)? == kind;
        value("text").filter(|text| is_text && scan::kind(raw, text) == b'"')
    })
}

/// A text part to stand first in the array at `at`.
fn new_part(raw: &[u8], at: usize, text: &str, kind: &str) -> Option<String> {
    let comma = if elements(raw, at).ok()?.is_empty() { "" } else { "," };
    Some(format!(r#"{{"type":"{kind}","text":{}}}{comma}"#, quoted(text)))
}

#[cfg(test)]
#[path = "tests/chat_bodies.rs"]
mod bodies;
#[cfg(test)]
#[path = "tests/chat_corpus.rs"]
mod corpus_tests;
#[cfg(test)]
#[path = "tests/chat_memo.rs"]
mod memo_tests;
#[cfg(test)]
#[path = "tests/chat_order.rs"]
mod order_tests;
#[cfg(test)]
#[path = "tests/chat_shapes.rs"]
mod shape_tests;
#[cfg(test)]
#[path = "tests/chat_write.rs"]
mod write_tests;
