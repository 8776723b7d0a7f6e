//! One chunk of a stream, or a whole answer: where the members stand that rounds have to change.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use super::turn::copied;
use crate::wire::scan::{self, Member, elements, kind, string};

/// An object in JSON text.
#[derive(Debug)]
pub(super) struct Object<'t> {
    pub(super) text: &'t [u8],
    /// Its own bytes.
    pub(super) raw: &'t [u8],
    pub(super) members: Vec<Member<'t>>,
}

impl<'t> Object<'t> {
    /// The object at `span` of `text`.
    pub(super) fn at(text: &'t [u8], span: &Range<usize>) -> Option<Self> {
        let members = scan::members(text, span.start).ok()?;
        Some(Self { text, raw: text.get(span.clone())?, members })
    }

    /// Where the value of `key` stands, unless it is `null`.
    pub(super) fn get(&self, key: &str) -> Option<&Range<usize>> {
        let found = self.members.iter().find(|(name, _)| name == key).map(|(_, span)| span);
        found.filter(|span| kind(self.text, span) != b'n')
    }

    pub(super) fn object(&self, key: &str) -> Option<Self> {
        Self::at(self.text, self.get(key)?)
    }

    /// The string at `span`; empty where none stands there.
    pub(super) fn string(&self, span: &Range<usize>) -> String {
        string(self.text, span).map(Cow::into_owned).unwrap_or_default()
    }

    pub(super) fn number(&self, span: &Range<usize>) -> Option<u64> {
        serde_json::from_slice(self.text.get(span.clone())?).ok()
    }

    pub(super) fn copy(&self, span: &Range<usize>) -> Bytes {
        Bytes::copy_from_slice(self.text.get(span.clone()).unwrap_or_default())
    }

    pub(super) fn elements(&self, span: &Range<usize>) -> Vec<Bytes> {
        copied(self.text, span.start)
    }
}

/// A chunk, or a whole answer.
#[derive(Debug)]
pub(super) struct Chunk<'t> {
    pub(super) whole: Object<'t>,
    pub(super) choice: Option<Choice<'t>>,
    /// Objects that count tokens.
    pub(super) usage: Vec<Range<usize>>,
    pub(super) is_error: bool,
}

#[derive(Debug)]
pub(super) struct Choice<'t> {
    /// Where its `delta` or `message` stands; some servers leave it out of the chunk that says why the answer ended.
    pub(super) span: Option<Range<usize>>,
    pub(super) said: Object<'t>,
    /// Elements of `tool_calls`.
    pub(super) calls: Vec<Range<usize>>,
    pub(super) finish: Option<Range<usize>>,
}

impl<'t> Chunk<'t> {
    /// `said`: `delta` or `message`. `None` for what is no chunk, or has more than one choice.
    pub(super) fn read(text: &'t [u8], said: &str) -> Option<Self> {
        let whole = Object::at(text, &(0..text.len()))?;
        let choice = match whole.get("choices") {
            None => None,
            Some(span) => match &*elements(text, span.start).ok()? {
                [] => None,
                [choice] => Some(Choice::read(text, choice, said)?),
                _ => return None,
            },
        };
        let groq = whole.object("x_groq").and_then(|groq| groq.get("usage").cloned());
        let usage = whole.get("usage").cloned().into_iter().chain(groq).filter(|span| kind(text, span) == b'{');
        let is_error = whole.get("error").is_some();
        Some(Self { usage: usage.collect(), is_error, whole, choice })
    }

    /// Why the answer ended, as this says.
    pub(super) fn finish(&self) -> Option<String> {
        let span = self.choice.as_ref()?.finish.as_ref()?;
        Some(self.whole.string(span)).filter(|reason| !reason.is_empty())
    }
}

impl<'t> Choice<'t> {
    fn read(text: &'t [u8], span: &Range<usize>, said: &str) -> Option<Self> {
        let choice = Object::at(text, span)?;
        if choice.get("index").is_some_and(|index| choice.number(index) != Some(0)) {
            return None;
        }
        let span = choice.get(said).cloned();
        let said = match &span {
            Some(span) => Object::at(text, span)?,
            None => Object { text, raw: b"{}", members: Vec::new() },
        };
        let calls = match said.get("tool_calls") {
            Some(calls) => elements(text, calls.start).ok()?,
            None => Vec::new(),
        };
        let finish = choice.get("finish_reason").cloned();
        Some(Self { span, said, calls, finish })
    }
}

/// Whether a chunk says nothing yet but that an answer begins, whatever it is that a model may say. In doubt it says more.
pub(in super::super) fn begins(chunk: &[u8]) -> bool {
    let Some(chunk) = Chunk::read(chunk, "delta").filter(|chunk| !chunk.is_error) else { return false };
    let Some(choice) = &chunk.choice else { return true };
    let is_empty = |(key, span): &Member<'_>| {
        key == "role" || matches!(choice.said.text.get(span.clone()), Some(b"null" | b"\"\"" | b"[]" | b"{}"))
    };
    chunk.finish().is_none() && choice.span.is_some() && choice.said.members.iter().all(is_empty)
}
