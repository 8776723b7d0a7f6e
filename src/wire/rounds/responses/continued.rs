//! Answers of several rounds that their clients continue by id (`previous_response_id`): a stream shows the id of its
//! first round, where the provider has a call without its result; all of the answer stands under the id of the last.

use std::ops::Range;

use super::super::object::Object;
use super::{Alias, Conversation, Edit, OwnResult, Reach, Splicer, elements, outputs, quoted};
use crate::wire::chain::PREVIOUS;
use crate::wire::scan::kind;

impl Splicer {
    /// See [`Answer::id`](super::super::Answer::id).
    pub(in super::super) fn id(&self, reach: Reach) -> Option<String> {
        let last = Object::read(&self.last, 0).filter(|last| can_be_continued(last, reach))?;
        Some(last.string("id").into_owned()).filter(|id| !id.is_empty())
    }

    /// See [`Answer::alias`](super::super::Answer::alias).
    pub(in super::super) fn alias(&self, results: &[Vec<OwnResult>], reach: Reach) -> Option<(String, Alias)> {
        // Of a round that broke off its provider has nothing: the one before waits for its results.
        let (last, waits) = match self.last.is_empty() {
            true => (&self.previous, !self.previous.is_empty()),
            false => (&self.last, self.kept),
        };
        let last = Object::read(last, 0).filter(|last| self.hides() && can_be_continued(last, reach))?;
        let id = last.string("id").into_owned();
        let shown = Object::read(&self.begun, 0).map_or_else(|| id.clone(), |begun| begun.string("id").into_owned());
        let results = match waits {
            true => outputs(&self.told.last_calls(), results.last()?),
            false => String::new(),
        };
        (shown != id || !results.is_empty()).then_some((shown, Alias { id, results }))
    }
}

fn can_be_continued(response: &Object<'_>, reach: Reach) -> bool {
    reach == Reach::Connection || response.raw("store") != Some(b"false")
}

/// An input that is one string becomes an array.
pub(in super::super) fn continued(conversation: &Conversation<'_>, alias: &Alias) -> Option<Vec<Edit>> {
    let mut edits = vec![Edit { span: member(conversation, PREVIOUS)?, with: quoted(&alias.id).into() }];
    if !alias.results.is_empty() {
        edits.push(led(conversation.body, member(conversation, "input")?, &alias.results)?);
    }
    edits.sort_by_key(|edit| edit.span.start);
    Some(edits)
}

/// See [`Conversation::behind`].
pub(in super::super) fn behind(conversation: &Conversation<'_>, id: &str, items: &[u8]) -> Option<Vec<Edit>> {
    let input = member(conversation, "input")?;
    let mut edits = vec![Edit { span: input, with: [b"[", items, b"]"].concat().into() }];
    edits.push(match member(conversation, PREVIOUS) {
        Some(span) => Edit { span, with: quoted(id).into() },
        None => {
            let start = memchr::memchr(b'{', conversation.body)? + 1;
            Edit { span: start..start, with: format!("\"{PREVIOUS}\":{},", quoted(id)).into() }
        }
    });
    edits.sort_by_key(|edit| edit.span.start);
    Some(edits)
}

fn member(conversation: &Conversation<'_>, name: &str) -> Option<Range<usize>> {
    let found = conversation.fields.members.iter().find(|(key, _)| key.as_ref() == name);
    found.map(|(_, span)| span.clone())
}

/// The input with `items` before its own.
fn led(body: &[u8], input: Range<usize>, items: &str) -> Option<Edit> {
    let items = items.as_bytes();
    match kind(body, &input) {
        b'[' => {
            let comma: &[u8] = if elements(body, input.start).ok()?.is_empty() { b"" } else { b"," };
            let at = input.start + 1;
            Some(Edit { span: at..at, with: [items, comma].concat().into() })
        }
        b'"' => {
            let said = body.get(input.clone())?;
            let with = [b"[", items, br#",{"role":"user","content":"#, said, b"}]"].concat();
            Some(Edit { span: input, with: with.into() })
        }
        _ => None,
    }
}

#[cfg(test)]
#[path = "../../tests/rounds_continued.rs"]
mod tests;
