//! Objects in JSON text, by where their members stand.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use super::MOST_ARGUMENTS;
use crate::wire::canonical::{Spelling, spelt};
use crate::wire::chain::without;
use crate::wire::scan::{self, Member, elements, kind, string};
use crate::wire::splice::{Edit, splice};

/// An object in JSON text. Ranges are those of the text.
#[derive(Debug)]
pub(super) struct Object<'t> {
    pub(super) text: &'t [u8],
    pub(super) members: Vec<Member<'t>>,
}

impl<'t> Object<'t> {
    /// The object that begins at byte `at`.
    pub(super) fn read(text: &'t [u8], at: usize) -> Option<Self> {
        Some(Self { text, members: scan::members(text, at).ok()? })
    }

    /// Where the value of `key` stands, unless it is `null`.
    pub(super) fn get(&self, key: &str) -> Option<Range<usize>> {
        let found = self.members.iter().find(|(name, _)| name == key).map(|(_, span)| span);
        found.filter(|span| kind(self.text, span) != b'n').cloned()
    }

    pub(super) fn object(&self, key: &str) -> Option<Self> {
        Self::read(self.text, self.get(key)?.start)
    }

    /// The string under `key`; empty where there is none.
    pub(super) fn string(&self, key: &str) -> Cow<'t, str> {
        self.get(key).and_then(|span| string(self.text, &span)).unwrap_or_default()
    }

    pub(super) fn number(&self, key: &str) -> Option<u64> {
        serde_json::from_slice(self.text.get(self.get(key)?)?).ok()
    }

    pub(super) fn raw(&self, key: &str) -> Option<&'t [u8]> {
        self.text.get(self.get(key)?)
    }

    /// The bytes at `span`, copied.
    pub(super) fn copy(&self, span: Range<usize>) -> Option<Bytes> {
        self.text.get(span).map(Bytes::copy_from_slice)
    }

    /// Where the elements of the array under `key` stand; none where there is no array.
    pub(super) fn elements(&self, key: &str) -> Vec<Range<usize>> {
        self.get(key).and_then(|span| elements(self.text, span.start).ok()).unwrap_or_default()
    }

    /// The edit that takes `key` out.
    pub(super) fn without(&self, key: &str) -> Option<Edit> {
        let at = self.members.iter().position(|(name, _)| name == key)?;
        without(self.text, &self.members, at)
    }

    /// The edit that gives `key`, which is there, another value.
    pub(super) fn set(&self, key: &str, with: impl Into<Bytes>) -> Option<Edit> {
        let (_, span) = self.members.iter().find(|(name, _)| name == key)?;
        Some(Edit { span: span.clone(), with: with.into() })
    }
}

/// `text` with `edits`, which stand in any order; as it is where they cannot be placed.
pub(super) fn edited(text: &Bytes, mut edits: Vec<Edit>) -> Bytes {
    edits.sort_by_key(|edit| edit.span.start);
    match splice(text, edits) {
        Ok(pieces) => pieces.concat().into(),
        Err(_) => text.clone(),
    }
}

/// What stands in a history in place of arguments that are not [`readable`].
pub(super) const NO_ARGUMENTS: &str = "{}";

/// A call's arguments as far as they are of use: of those that are too long so much that this can be told.
pub(super) fn bounded(mut arguments: String) -> String {
    let end = (MOST_ARGUMENTS + 1..arguments.len()).find(|at| arguments.is_char_boundary(*at));
    if let Some(end) = end {
        arguments.truncate(end);
    }
    arguments
}

/// Whether a call's arguments may stand in a history: an object whose nesting and keys every reader takes alike, and
/// not too long. Servers refuse others, some of them (C6) whenever the history comes again.
pub(super) fn readable(arguments: &[u8]) -> bool {
    if arguments.len() > MOST_ARGUMENTS {
        return false;
    }
    // As deep as a call stands in a message.
    let within = [br#"{"":[[["#, arguments, b"]]]}"].concat();
    let is_object = arguments.trim_ascii_start().starts_with(b"{");
    is_object
        && spelt(&within, &Spelling::DATA).is_ok()
        && serde_json::from_slice::<serde_json::Value>(arguments).is_ok()
}

/// JSON is UTF-8: it was checked when it was read.
pub(super) fn utf8(json: &[u8]) -> String {
    String::from_utf8_lossy(json).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_readers_take_differently_do_not_stand_in_a_history() {
        let nested = |depth: usize| format!(r#"{{"a":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
        for good in ["{}", " {\"a\": [1, null, \"x\"]}\n", r#"{"a":{"b":{}}}"#, &nested(50)] {
            assert!(readable(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            "null",
            "[]",
            "1",
            "\"x\"",
            "{",
            "{}{}",
            "{} x",
            "{'a':1}",
            r#"{"a":1,"a":2}"#,
            r#"{"a":1e999}"#,
            r#"{"a":"\ud800"}"#,
            r#"{"b":{"a":1,"a":2}}"#,
            &nested(60),
        ] {
            assert!(!readable(bad.as_bytes()), "{bad}");
        }
    }
}
