//! Answers of several rounds that their clients continue by id (`previous_response_id`): a stream shows the id of its
//! first round, where the provider has a call without its result; all of the answer stands under the id of the last.

use super::super::object::Object;
use super::{Alias, Conversation, Edit, OwnResult, Splicer, elements, outputs, quoted};
use crate::wire::chain::PREVIOUS;
use crate::wire::scan::kind;

impl Splicer {
    /// See [`Answer::id`](super::super::Answer::id).
    pub(in super::super) fn id(&self) -> Option<String> {
        let last = Object::read(&self.last, 0).filter(|last| last.raw("store") != Some(b"false"))?;
        Some(last.string("id").into_owned()).filter(|id| !id.is_empty())
    }

    /// See [`Answer::alias`](super::super::Answer::alias). What is not stored cannot be continued.
    pub(in super::super) fn alias(&self, results: &[Vec<OwnResult>]) -> Option<(String, Alias)> {
        let last = Object::read(&self.last, 0)?;
        if !self.hides() || last.raw("store") == Some(b"false") {
            return None;
        }
        let id = last.string("id").into_owned();
        let shown = Object::read(&self.begun, 0).map_or_else(|| id.clone(), |begun| begun.string("id").into_owned());
        let results = match self.kept {
            true => outputs(&self.told.last_calls(), results.last()?),
            false => String::new(),
        };
        (shown != id || !results.is_empty()).then_some((shown, Alias { id, results }))
    }
}

/// An input that is one string becomes an array.
pub(in super::super) fn continued(conversation: &Conversation<'_>, alias: &Alias) -> Option<Vec<Edit>> {
    let member = |name: &str| {
        let found = conversation.fields.members.iter().find(|(key, _)| key.as_ref() == name);
        found.map(|(_, span)| span.clone())
    };
    let mut edits = vec![Edit { span: member(PREVIOUS)?, with: quoted(&alias.id).into() }];
    if !alias.results.is_empty() {
        edits.push(led(conversation.body, member("input")?, &alias.results)?);
    }
    edits.sort_by_key(|edit| edit.span.start);
    Some(edits)
}

/// The input with `items` before its own.
fn led(body: &[u8], input: std::ops::Range<usize>, items: &str) -> Option<Edit> {
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
