//! OpenAI Responses: a request body as a conversation, and what is written into one.

use std::ops::Range;

use super::conversation::{Conversation, Fields, Role};
use super::openai_chat;
use super::scan::{elements, kind, members};
use super::splice::Edit;
use super::writing::{inner, quoted};

/// Members that are read, so that a body in which one stands twice is unreadable.
pub(super) const READ: &[&str] = &[
    "max_output_tokens",
    "instructions",
    "tools",
    "text",
    "prompt",
    "tool_choice",
    "previous_response_id",
    "conversation",
    "context_management",
    "background",
    "truncation",
];

/// Takes note of a top-level member that is not `null`.
pub(super) fn member(fields: &mut Fields, body: &[u8], key: &str, span: &Range<usize>) {
    match key {
        "max_output_tokens" => fields.limit_output(body, span),
        "instructions" | "tools" | "text" | "prompt" => fields.overhead.push(span.clone()),
        "previous_response_id" | "conversation" => fields.continues = true,
        // An empty list asks for nothing.
        "context_management" => {
            fields.managed =
                !elements(body, span.start).is_ok_and(|edits| kind(body, span) == b'[' && edits.is_empty());
        }
        _ => {}
    }
}

/// A user message with `text` to stand for the first `upto` items, as JSON: in the form in which the client
/// writes its own, or a string where the whole input is one.
pub(super) fn head_message(conversation: &Conversation<'_>, upto: usize, (text, parts): (&str, &[String])) -> String {
    let said = quoted(text);
    let form = (0..upto.max(1)).find_map(|item| form(conversation, item)).unwrap_or(Form::Typed);
    match form {
        Form::Text => said,
        Form::Easy => openai_chat::user_message(text, parts, "input_text"),
        Form::Typed => {
            let parts: String = parts.iter().flat_map(|part| [",", part]).collect();
            format!(r#"{{"type":"message","role":"user","content":[{{"type":"input_text","text":{said}}}{parts}]}}"#)
        }
    }
}

/// How a client writes what a user says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The whole input is one string.
    Text,
    /// `{"role":"user","content":…}`
    Easy,
    /// With `"type":"message"`.
    Typed,
}

/// The form of the user message `item`; `None` if it is none.
fn form(conversation: &Conversation<'_>, item: usize) -> Option<Form> {
    let facts = &conversation.items.get(item)?.facts;
    let raw = conversation.raw(item);
    match raw.first()? {
        b'"' => Some(Form::Text),
        _ if facts.role != Role::User => None,
        _ if members(raw, 0).ok()?.iter().any(|(key, _)| key == "type") => Some(Form::Typed),
        _ => Some(Form::Easy),
    }
}

/// The edit that puts `text` in front of the text of the user message `item`. `None` for other roles and
/// shapes.
pub(super) fn fold_into(conversation: &Conversation<'_>, item: usize, text: &str) -> Option<Edit> {
    match conversation.raw(item).first()? {
        b'"' => {
            let at = conversation.items.get(item)?.span.start + 1;
            Some(Edit { span: at..at, with: inner(text).into() })
        }
        _ => openai_chat::fold_into(conversation, item, text, "input_text"),
    }
}

/// Whether the input is an array, to which messages can be added.
pub(super) fn is_list(conversation: &Conversation<'_>) -> bool {
    let array = conversation.fields.members.iter().find(|(key, _)| key.as_ref() == "input");
    array.is_some_and(|(_, span)| kind(conversation.body, span) == b'[')
}

#[cfg(test)]
#[path = "tests/responses_bodies.rs"]
pub(super) mod bodies;
#[cfg(test)]
#[path = "tests/responses_corpus.rs"]
mod corpus_tests;
#[cfg(test)]
#[path = "tests/responses_shapes.rs"]
mod shape_tests;
#[cfg(test)]
#[path = "tests/responses_write.rs"]
mod write_tests;
