//! One block of a message in the making.

use bytes::Bytes;

use super::super::MOST_ARGUMENTS;
use super::super::object::{Object, edited, readable};
use crate::wire::scan::kind;

/// A block as it began, and what its deltas add: bytes as the provider wrote them, for signatures' sake (A10).
#[derive(Debug)]
pub(super) struct Block {
    pub(super) index: u64,
    /// Its index for the client; `None` for a call of the proxy's.
    pub(super) shown: Option<usize>,
    start: Bytes,
    /// Insides of JSON strings, by member.
    texts: Vec<(String, Vec<u8>)>,
    citations: Vec<Vec<u8>>,
}

impl Block {
    pub(super) fn new(index: u64, shown: Option<usize>, start: Bytes) -> Self {
        Self { index, shown, start, texts: Vec::new(), citations: Vec::new() }
    }

    /// Adds a delta and says how many bytes are held for it.
    pub(super) fn add(&mut self, delta: &Object<'_>) -> usize {
        let mut held = 0;
        if self.is_overlong() {
            return held;
        }
        for (key, span) in delta.members.iter().filter(|(key, _)| key != "type") {
            let raw = delta.text.get(span.clone()).unwrap_or_default();
            held += raw.len();
            match (key.as_ref(), raw.strip_prefix(b"\"").and_then(|raw| raw.strip_suffix(b"\""))) {
                ("citation", _) => self.citations.push(raw.to_vec()),
                (key, Some(inside)) => match self.texts.iter_mut().find(|(name, _)| name == key) {
                    Some((_, text)) => text.extend_from_slice(inside),
                    None => self.texts.push((key.to_owned(), inside.to_vec())),
                },
                _ => {}
            }
        }
        held
    }

    /// A call of the proxy's with more arguments than any takes: the rest of them is not kept.
    fn is_overlong(&self) -> bool {
        let long = |(key, text): &(String, Vec<u8>)| key == "partial_json" && text.len() > MOST_ARGUMENTS;
        self.shown.is_none() && self.texts.iter().any(long)
    }

    /// Keeps no more than where it stands.
    pub(super) fn forget(&mut self) {
        (self.texts, self.citations) = (Vec::new(), Vec::new());
    }

    /// What a call is given, as the model wrote it.
    pub(super) fn input(&self) -> Option<String> {
        let (_, inside) = self.texts.iter().find(|(key, _)| key == "partial_json")?;
        let text = serde_json::from_slice::<String>(&[b"\"", &**inside, b"\""].concat()).ok()?;
        Some(text).filter(|text| !text.trim().is_empty())
    }

    /// The whole block. `None` for text that says nothing, which no history may have (A8).
    pub(super) fn whole(&self) -> Option<Bytes> {
        let block = Object::read(&self.start, 0)?;
        let mut edits = Vec::new();
        let mut added = Vec::new();
        let mut set = |key: &str, value: Vec<u8>| match block.set(key, value.clone()) {
            Some(edit) => edits.push(edit),
            None => added.push([b",\"", key.as_bytes(), b"\":", &*value].concat()),
        };
        for (key, inside) in &self.texts {
            if key == "partial_json" {
                if let Some(given) = self.input().filter(|text| readable(text.as_bytes())) {
                    set("input", given.into_bytes());
                }
                continue;
            }
            let before = block.raw(key).and_then(|raw| raw.strip_prefix(b"\"")?.strip_suffix(b"\""));
            set(key, [b"\"", before.unwrap_or_default(), inside, b"\""].concat());
        }
        if !self.citations.is_empty() {
            set("citations", [b"[", &*self.citations.join(&b","[..]), b"]"].concat());
        }
        let end = self.start.iter().rposition(|byte| *byte == b'}')?;
        edits.push(crate::wire::splice::Edit { span: end..end, with: added.concat().into() });
        let whole = edited(&self.start, edits);
        (!is_blank(&whole)).then_some(whole)
    }
}

/// Whether a block is text without a visible character.
pub(super) fn is_blank(block: &[u8]) -> bool {
    let Some(object) = Object::read(block, 0) else { return false };
    let text = object.get("text").filter(|span| kind(block, span) == b'"');
    object.string("type") == "text" && text.is_some() && object.string("text").trim().is_empty()
}
