//! The model's turn in one round, as it is collected from deltas or read from a message.

use std::ops::Range;

use bytes::Bytes;

use super::super::object::{NO_ARGUMENTS, bounded, readable};
use super::super::{MOST_ARGUMENTS, Own, OwnCall};
use super::chunk::Object;
use crate::wire::scan::{elements, kind};
use crate::wire::writing::quoted;

/// A turn in the making.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Text of the content, where it came as text.
    pub(super) text: String,
    /// Parts of the content, where it came as parts.
    parts: Vec<Bytes>,
    /// Everything else that was said of it (`reasoning_content`, `extra_content`: D8, D10), in order.
    pub(super) members: Vec<(String, Member)>,
    pub(super) calls: Vec<Call>,
    bytes: usize,
    full: bool,
}

/// What a member of a turn came to.
#[derive(Debug)]
pub(super) enum Member {
    /// Pieces of a string, joined.
    Text(String),
    /// Elements of an array, one after the other.
    Items(Vec<Bytes>),
    /// Anything else: the last one.
    Value(Bytes),
}

/// A call in the making.
#[derive(Debug, Default)]
pub(super) struct Call {
    pub(super) index: Option<u64>,
    pub(super) id: String,
    pub(super) name: String,
    /// `function`, or `custom`.
    form: Option<&'static str>,
    /// Arguments (JSON text) or input.
    given: String,
    /// Arguments came as an object.
    bare: bool,
    /// Of the call, and of its `function`.
    members: Vec<(String, Bytes)>,
    inner: Vec<(String, Bytes)>,
    pub(super) standing: Standing,
    /// The name by which a call of the proxy's stands in the history.
    kept: Option<String>,
}

/// Whose tool a call is for.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The name may not be whole yet.
    #[default]
    Open,
    Own,
    Shown,
}

impl Turn {
    /// Adds a delta or a whole message; calls apart.
    pub(super) fn add(&mut self, delta: &Object<'_>) {
        if self.full {
            return;
        }
        for (key, span) in &delta.members {
            self.bytes += if key == "tool_calls" { 0 } else { span.len() };
            match (key.as_ref(), kind(delta.text, span)) {
                ("role" | "tool_calls", _) | (_, b'n') => {}
                ("content", b'"') => self.text.push_str(&delta.string(span)),
                ("content", b'[') => self.parts.extend(delta.elements(span)),
                (key, first) => self.member(key, first, (delta, span)),
            }
        }
    }

    fn member(&mut self, key: &str, first: u8, (delta, span): (&Object<'_>, &Range<usize>)) {
        let new = || match first {
            b'"' => Member::Text(delta.string(span)),
            b'[' => Member::Items(delta.elements(span)),
            _ => Member::Value(delta.copy(span)),
        };
        match self.members.iter_mut().find(|(name, _)| name == key) {
            None => self.members.push((key.to_owned(), new())),
            Some((_, member)) => match (member, new()) {
                (Member::Text(text), Member::Text(more)) => text.push_str(&more),
                (Member::Items(items), Member::Items(more)) => items.extend(more),
                (member, other) => *member = other,
            },
        }
    }

    /// Adds an element of `tool_calls` and says which call it belongs to.
    pub(super) fn add_call(&mut self, element: &Object<'_>) -> usize {
        let piece = Piece::of(element);
        let at = self.call_for(piece.number, &piece.id, &piece.name);
        let full = self.full;
        if let Some(call) = self.calls.get_mut(at).filter(|call| !call.is_overlong()) {
            self.bytes += element.raw.len();
            call.add(piece, full);
        }
        at
    }

    /// Adds an element of a whole message's `tool_calls`: a call by itself, whatever its id and its index say.
    pub(super) fn add_whole_call(&mut self, element: &Object<'_>) {
        let mut call = Call::default();
        self.bytes += element.raw.len();
        call.add(Piece::of(element), self.full);
        self.calls.push(call);
    }

    /// The call that a delta belongs to. Some servers leave indices out, or give all calls the same one.
    fn call_for(&mut self, number: Option<u64>, id: &str, name: &str) -> usize {
        let same = |call: &Call| id.is_empty() || call.id.is_empty() || call.id == id;
        let found = match number {
            Some(_) => self.calls.iter().rposition(|call| call.index == number).filter(|at| {
                let other = |call: &Call| !same(call) && !name.is_empty();
                !self.calls.get(*at).is_some_and(other)
            }),
            None if !id.is_empty() => self.calls.iter().rposition(|call| call.id == id),
            None => self.calls.len().checked_sub(1).filter(|at| {
                let begun = |call: &Call| !name.is_empty() && !call.given.is_empty() && call.name != name;
                !self.calls.get(*at).is_some_and(begun)
            }),
        };
        found.unwrap_or_else(|| {
            self.calls.push(Call { index: number, ..Call::default() });
            self.calls.len() - 1
        })
    }

    /// Bytes that are held.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps no more than whose its calls are.
    pub(super) fn hold_no_more(&mut self) {
        (self.text, self.parts, self.members) = (String::new(), Vec::new(), Vec::new());
        (self.bytes, self.full) = (0, true);
    }

    pub(super) fn has(&self, standing: Standing) -> bool {
        self.calls.iter().any(|call| call.standing == standing)
    }

    /// Gives every call an id: a short one, of the form that the strictest provider takes (D2).
    pub(super) fn name_calls(&mut self, round: usize) {
        for (at, call) in self.calls.iter_mut().enumerate().filter(|(_, call)| call.id.is_empty()) {
            let digest = blake3::hash(format!("{round} {at} {} {}", call.name, call.given).as_bytes());
            call.id = digest.to_hex().chars().take(9).collect();
        }
    }

    /// The turn as a message.
    pub(super) fn message(&self) -> Bytes {
        let mut out = String::from(r#"{"role":"assistant","content":"#);
        out.push_str(&self.content());
        for (key, member) in &self.members {
            let value = match member {
                Member::Text(text) => quoted(text),
                Member::Items(items) if items.is_empty() => continue,
                Member::Items(items) => array(items),
                Member::Value(value) => lossless(value),
            };
            out.push_str(&format!(",{}:{value}", quoted(key)));
        }
        if !self.calls.is_empty() {
            let calls: Vec<Bytes> = self.calls.iter().map(|call| call.element().into()).collect();
            out.push_str(&format!(",\"tool_calls\":{}", array(&calls)));
        }
        out.push('}');
        out.into()
    }

    fn content(&self) -> String {
        let text = || format!(r#"{{"type":"text","text":{}}}"#, quoted(&self.text));
        match (self.text.is_empty(), self.parts.is_empty()) {
            (true, true) => "null".to_owned(),
            (false, true) => quoted(&self.text),
            (true, false) => array(&self.parts),
            (false, false) => array(&[&*self.parts, &[text().into()]].concat()),
        }
    }
}

/// An element of `tool_calls`: a call, or a piece of one.
struct Piece<'e> {
    element: &'e Object<'e>,
    number: Option<u64>,
    id: String,
    name: String,
    /// `function` or `custom`, and what stands there.
    callee: Option<(&'static str, Object<'e>)>,
}

impl<'e> Piece<'e> {
    fn of(element: &'e Object<'e>) -> Self {
        let number = element.get("index").and_then(|span| element.number(span));
        let id = element.get("id").map(|span| element.string(span)).unwrap_or_default();
        let callee = ["function", "custom"].into_iter().find_map(|form| Some((form, element.object(form)?)));
        let name = callee.as_ref().and_then(|(_, callee)| callee.get("name").map(|span| callee.string(span)));
        Self { element, number, id, name: name.unwrap_or_default(), callee }
    }
}

impl Call {
    /// `full`: nothing more is held than whose it is.
    fn add(&mut self, piece: Piece<'_>, full: bool) {
        if self.id.is_empty() {
            self.id = piece.id;
        }
        // Some servers say the name again with each piece of the arguments.
        if self.given.is_empty() && self.name != piece.name {
            self.name.push_str(&piece.name);
        }
        if let Some((form, callee)) = piece.callee.filter(|_| !full) {
            self.form = Some(form);
            self.take(&callee);
        }
        for (key, span) in &piece.element.members {
            let known = matches!(key.as_ref(), "index" | "id" | "type" | "function" | "custom");
            if !known && kind(piece.element.text, span) != b'n' {
                keep(&mut self.members, key, piece.element.copy(span));
            }
        }
    }

    fn take(&mut self, callee: &Object<'_>) {
        for (key, span) in &callee.members {
            match (key.as_ref(), kind(callee.text, span)) {
                ("name", _) | (_, b'n') => {}
                ("arguments" | "input", b'"') => self.given.push_str(&callee.string(span)),
                ("arguments" | "input", _) => {
                    self.given = lossless(&callee.copy(span));
                    self.bare = true;
                }
                (key, _) => keep(&mut self.inner, key, callee.copy(span)),
            }
        }
    }

    /// A call of the proxy's with more arguments than any takes: the rest of them is not kept.
    fn is_overlong(&self) -> bool {
        self.standing == Standing::Own && self.given.len() > MOST_ARGUMENTS
    }

    /// Says whose tool it is for, as soon as that is sure; `whole`: no more of its name comes.
    pub(super) fn settle(&mut self, own: &Own, whole: bool) {
        let whole = whole || !self.given.is_empty();
        if self.standing != Standing::Open {
            return;
        }
        let may_become = own.may_become(&self.name);
        self.standing = match own.has(&self.name) {
            true if whole => Standing::Own,
            false if whole || !may_become => Standing::Shown,
            _ => Standing::Open,
        };
        self.kept = (self.standing == Standing::Own).then(|| own.kept(&self.name));
    }

    fn kept(&self) -> &str {
        self.kept.as_deref().unwrap_or(&self.name)
    }

    /// The call as an element of a message's `tool_calls`.
    pub(super) fn element(&self) -> String {
        let form = self.form.unwrap_or("function");
        let key = if form == "custom" { "input" } else { "arguments" };
        let given = match self.standing {
            Standing::Own if !readable(self.given.as_bytes()) => NO_ARGUMENTS,
            _ => &self.given,
        };
        let given = if self.bare { given.to_owned() } else { quoted(given) };
        let mut inner = format!(r#""name":{},"{key}":{given}"#, quoted(self.kept()));
        let more = |members: &[(String, Bytes)]| -> String {
            members.iter().map(|(key, value)| format!(",{}:{}", quoted(key), lossless(value))).collect()
        };
        inner.push_str(&more(&self.inner));
        let outer = more(&self.members);
        format!(r#"{{"id":{},"type":"{form}","{form}":{{{inner}}}{outer}}}"#, quoted(&self.id))
    }

    pub(super) fn own(&self) -> OwnCall {
        let (id, name, arguments) = (self.id.clone(), self.kept().to_owned(), bounded(self.given.clone()));
        OwnCall { id, name, arguments }
    }
}

fn keep(members: &mut Vec<(String, Bytes)>, key: &str, value: Bytes) {
    match members.iter_mut().find(|(name, _)| name == key) {
        Some((_, before)) => *before = value,
        None => members.push((key.to_owned(), value)),
    }
}

fn array(items: &[Bytes]) -> String {
    format!("[{}]", items.iter().map(|item| lossless(item)).collect::<Vec<_>>().join(","))
}

/// JSON is UTF-8: it was checked when it was read.
fn lossless(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

/// The elements of an array in `text`, copied.
pub(super) fn copied(text: &[u8], at: usize) -> Vec<Bytes> {
    let spans = elements(text, at).unwrap_or_default();
    spans.into_iter().filter_map(|span| text.get(span).map(Bytes::copy_from_slice)).collect()
}
