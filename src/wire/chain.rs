//! Responses that continue one another (`previous_response_id`): what a response adds to the history that its
//! provider holds, and a request with all of that history in its body.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::conversation::{Call, Conversation, Dialect, Fields, Role};
use super::members::text_of;
use super::responses_item;
use super::scan::{Cursor, Member, elements, kind, members, string};
use super::splice::{Edit, splice};
use super::writing::quoted;

/// The member that names the response which a request continues.
pub(super) const PREVIOUS: &str = "previous_response_id";

/// What a whole response says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    pub id: String,
    /// Its output items as JSON, joined by commas.
    pub items: Bytes,
}

/// Collects a response from its events.
#[derive(Debug, Default)]
pub struct Collector {
    items: Vec<u8>,
    done: Option<Output>,
}

#[derive(Deserialize)]
struct Event<'e> {
    #[serde(rename = "type")]
    kind: &'e str,
    #[serde(borrow, default)]
    item: Option<&'e RawValue>,
    #[serde(borrow, default)]
    response: Option<&'e RawValue>,
}

/// Reads a whole JSON response. `None` where its turn has not ended (`background`: it is `queued` first), or not well.
/// It is passed over: who makes use of the items reads them.
pub fn output(response: &str) -> Option<Output> {
    let text = response.as_bytes();
    let mut cursor = Cursor::new(text, 0);
    let members = cursor.pass_members().ok()?;
    cursor.end().ok()?;
    let id = text_of(text, &members, "id").ok()??;
    let value = |key: &str| members.iter().find(|(name, _)| name == key).and_then(|(_, span)| text.get(span.clone()));
    let ended = matches!(value("status"), None | Some(b"null" | br#""completed""# | br#""incomplete""#));
    let items = value("output").map_or(Some(Bytes::new()), inner)?;
    ended.then_some(Output { id, items })
}

/// The elements of an array, joined by commas.
fn inner(array: &[u8]) -> Option<Bytes> {
    let inner = array.strip_prefix(b"[")?.strip_suffix(b"]")?;
    Some(Bytes::copy_from_slice(inner.trim_ascii()))
}

impl Collector {
    /// Takes in the data of one event.
    pub fn event(&mut self, data: &str) {
        let Ok(event) = serde_json::from_str::<Event>(data) else { return };
        match (event.kind, event.item, event.response) {
            ("response.output_item.done", Some(item), _) => {
                if !self.items.is_empty() {
                    self.items.push(b',');
                }
                self.items.extend_from_slice(item.get().as_bytes());
            }
            // Some servers repeat the output there, some leave it out.
            ("response.completed" | "response.incomplete", _, Some(response)) => {
                let whole = output(response.get());
                let items = std::mem::take(&mut self.items);
                self.done = whole
                    .map(|whole| if whole.items.is_empty() { Output { items: items.into(), ..whole } } else { whole });
            }
            _ => {}
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.items.len()
    }

    /// The response, once its end has come.
    pub fn finish(self) -> Option<Output> {
        self.done
    }

    /// The same, once.
    pub fn take(&mut self) -> Option<Output> {
        self.done.take()
    }
}

/// The calls among items that are joined by commas.
pub fn calls(items: &[u8]) -> Vec<Call> {
    let all = [b"[", items, b"]"].concat();
    let items = elements(&all, 0).unwrap_or_default();
    let facts = items.into_iter().filter_map(|item| Dialect::Responses.facts(all.get(item)?).ok());
    facts.flat_map(|facts| facts.calls).collect()
}

/// The id of the response that a request continues.
pub fn previous(conversation: &Conversation) -> Option<String> {
    let (_, span) = conversation.fields.members.iter().find(|(key, _)| key.as_ref() == PREVIOUS)?;
    string(conversation.body, span).map(|id| id.into_owned())
}

/// The items of a request's own input, joined by commas. `None` where they are longer than `most` bytes.
pub fn input(fields: &Fields, body: &[u8], most: usize) -> Option<Bytes> {
    let raw = body.get(array(fields)?).filter(|raw| raw.len() <= most)?;
    match raw {
        [b'[', ..] => inner(raw),
        [b'"', ..] => Some([br#"{"role":"user","content":"#, raw, b"}"].concat().into()),
        _ => None,
    }
}

/// Whether a request's own input may begin a chain: it shows no turn of the model's, or some of at most `most` bytes
/// in all that have no ids, as examples and an imported history have none. What a provider answered has ids: a client that shows
/// it sends its whole history each time. `None` where that takes a whole reading.
pub fn begins(fields: &Fields, body: &[u8], most: usize) -> Option<bool> {
    let span = array(fields)?;
    if kind(body, &span) == b'"' {
        return Some(true);
    }
    let mut cursor = Cursor::new(body, span.start);
    let mut shown = Vec::new();
    let mut more = cursor.open(b'[', b']').ok()?;
    while more {
        let members = cursor.pass_members().ok()?;
        let role = responses_item::role_of(body, &members).ok().filter(|role| *role != Role::Unknown)?;
        shown.push(Shown { role, has_id: has_id(&members) });
        more = cursor.more(b']').ok()?;
    }
    Some(may_begin(shown, (span.len(), most)))
}

/// The same, of a request that is read as a whole.
pub fn begins_read(conversation: &Conversation, most: usize) -> bool {
    let shown = conversation.items.iter().enumerate().map(|(at, item)| Shown {
        role: item.facts.role,
        has_id: Cursor::new(conversation.raw(at), 0).pass_members().is_ok_and(|members| has_id(&members)),
    });
    may_begin(shown, (array(&conversation.fields).map_or(usize::MAX, |span| span.len()), most))
}

/// What an item shows of who gave it.
struct Shown {
    role: Role,
    has_id: bool,
}

fn may_begin(items: impl IntoIterator<Item = Shown>, (length, most): (usize, usize)) -> bool {
    let mut turns = items.into_iter().filter(|item| matches!(item.role, Role::Assistant | Role::Tool));
    turns.all(|turn| length <= most && !turn.has_id)
}

/// Whether an item has the id that a provider gave it.
fn has_id(members: &[Member<'_>]) -> bool {
    members.iter().any(|(key, _)| key == "id")
}

/// Where a request's own input stands.
fn array(fields: &Fields) -> Option<Range<usize>> {
    let (_, span) = fields.members.iter().find(|(key, _)| key.as_ref() == Dialect::Responses.array())?;
    Some(span.clone())
}

/// The request with the whole history in its input: what it continued, `history` (items joined by commas, oldest
/// first) as far as that can be sent, and its own. `None` if it does not read.
pub fn rebuilt(conversation: &Conversation, history: &[Bytes]) -> Option<Bytes> {
    let held: Vec<&[u8]> = history.iter().map(|items| &**items).filter(|items| !items.is_empty()).collect();
    let held = [b"[", &*held.join(&b","[..]), b"]"].concat();
    let kept = conversation.fields.store != Some(false);
    with_items(conversation, sound(&held, if kept { Provider::Keeps } else { Provider::Forgets })?)
}

/// The same with all that was said, also what no provider takes as input: to be kept, not to be sent.
pub fn unabridged(conversation: &Conversation, history: &[Bytes]) -> Option<Bytes> {
    with_items(conversation, history.iter().map(|items| &**items).collect())
}

/// The request that continues nothing, with `history` before its own input.
fn with_items(conversation: &Conversation, history: Vec<&[u8]>) -> Option<Bytes> {
    let own = input(&conversation.fields, conversation.body, usize::MAX)?;
    let items: Vec<&[u8]> = history.into_iter().chain([&*own]).filter(|items| !items.is_empty()).collect();
    let whole = [b"[", &*items.join(&b","[..]), b"]"].concat();
    let body = Bytes::copy_from_slice(conversation.body);
    let all = members(&body, 0).ok()?;
    let at = |key: &str| all.iter().position(|(name, _)| name == key);
    let (_, array) = all.get(at(Dialect::Responses.array())?)?;
    let mut edits = vec![Edit { span: array.clone(), with: whole.into() }, without(&body, &all, at(PREVIOUS)?)?];
    edits.sort_by_key(|edit| edit.span.start);
    Some(splice(&body, edits).ok()?.concat().into())
}

/// What becomes of responses behind an id.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Provider {
    Keeps,
    Forgets,
}

/// What an item says of itself.
#[derive(Deserialize)]
struct Told<'i> {
    #[serde(rename = "type", borrow, default)]
    kind: Cow<'i, str>,
    #[serde(borrow, default)]
    role: Cow<'i, str>,
    #[serde(borrow, default)]
    status: Option<Cow<'i, str>>,
    #[serde(borrow, default)]
    encrypted_content: Option<&'i RawValue>,
    #[serde(borrow, default)]
    content: Option<&'i RawValue>,
}

/// The elements of `history` that a provider takes as input: no call that was cut off, which nobody answers (R1); no
/// reasoning of which nobody but its id knows (R5), nor such that produced nothing (R4), as where the output ended
/// in it.
fn sound(history: &[u8], provider: Provider) -> Option<Vec<&[u8]>> {
    let mut sound = Vec::new();
    let mut followed = false;
    for span in elements(history, 0).ok()?.into_iter().rev() {
        let raw = history.get(span)?;
        let Ok(item) = serde_json::from_slice::<Told>(raw) else {
            followed = true;
            sound.push(raw);
            continue;
        };
        let cut_off = item.kind.ends_with("_call") && item.status.as_deref() == Some("incomplete");
        let thought = item.kind == "reasoning";
        let empty = |value: Option<&RawValue>| value.is_none_or(|value| matches!(value.get(), "null" | "[]" | "\"\""));
        let unknown = provider == Provider::Forgets && empty(item.encrypted_content) && empty(item.content);
        if cut_off || thought && (unknown || !followed) {
            continue;
        }
        followed =
            thought || !(item.kind.ends_with("_output") || matches!(&*item.role, "user" | "system" | "developer"));
        sound.push(raw);
    }
    sound.reverse();
    Some(sound)
}

/// A client's wish that a response be cancelled, which names it by another id. `None`: it names none.
pub fn cancelling(message: &Bytes, id: &str) -> Option<Vec<Bytes>> {
    let all = members(message, 0).ok()?;
    let (_, span) = all.iter().find(|(key, _)| key == "response_id")?;
    splice(message, vec![Edit { span: span.clone(), with: quoted(id).into() }]).ok()
}

/// The edit that takes a member out, with the comma before or behind it.
pub(super) fn without(body: &[u8], all: &[super::scan::Member<'_>], index: usize) -> Option<Edit> {
    let (_, value) = all.get(index)?;
    let span = match index.checked_sub(1).and_then(|before| all.get(before)) {
        Some((_, before)) => before.end..value.end,
        None => {
            let mut cursor = Cursor::new(body, 0);
            cursor.open(b'{', b'}').ok()?;
            let start = cursor.at();
            let mut cursor = Cursor::new(body, value.end);
            cursor.more(b'}').ok()?.then(|| start..cursor.at())?
        }
    };
    Some(Edit { span, with: Bytes::new() })
}

#[cfg(test)]
#[path = "tests/chain.rs"]
mod tests;
