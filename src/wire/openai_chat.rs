//! OpenAI Chat Completions: a request body as a conversation, and what is written into one.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::canonical::{chain_next, chain_start};
use super::chat_item;
use super::conversation::{Conversation, Dialect, Fields, Item, MaxOutput, Role, Slot};
use super::memo::{KnownRun, Memo, Memory, Opening, Salt};
use super::scan::{Cursor, Unreadable, elements, kind, members, string};
use super::splice::Edit;

/// Most items of a conversation, leading messages apart; a body with more goes untouched (L8).
pub const MAX_ITEMS: usize = 20_000;

/// Members that are read, so that a body in which one stands twice is unreadable.
const READ: [&str; 12] = [
    "messages",
    "model",
    "stream",
    "store",
    "max_tokens",
    "max_completion_tokens",
    "tools",
    "functions",
    "response_format",
    "tool_choice",
    "documents",
    "function_call",
];

/// Reads `body`, which must be one JSON object with `messages`. What `memo` knows of it under `salt` is
/// not parsed again; the result is the same as with an empty memo. Whatever could be misread is
/// [`Unreadable`].
pub fn read<'b>(body: &'b [u8], memo: &Memo, salt: Salt) -> Result<Conversation<'b>, Unreadable> {
    let memory = memo.of(salt, Dialect::Chat);
    if let Some(conversation) = Beginning::find(body, memory).and_then(|known| known.read(body, memory)) {
        return Ok(conversation);
    }
    let opening = Arc::new(opening(body)?);
    let run = memory.run(region(body, &opening), opening.end);
    let conversation = behind(&opening, run, body, memory)?;
    memory.remember_opening(body, opening);
    Ok(conversation)
}

/// As [`read`], but only where at most `most` bytes are new to `memo`: what may be done on an event loop.
pub fn read_known<'b>(body: &'b [u8], memo: &Memo, salt: Salt, most: usize) -> Option<Conversation<'b>> {
    if body.len() <= most {
        return read(body, memo, salt).ok();
    }
    let memory = memo.of(salt, Dialect::Chat);
    let known = Beginning::find(body, memory)?;
    let new = region(body, &known.opening).len() - known.run.len;
    if new <= most { known.read(body, memory) } else { None }
}

/// What a memory knows of a body: its opening, and its first items.
struct Beginning {
    opening: Arc<Opening>,
    run: KnownRun,
}

impl Beginning {
    fn find(body: &[u8], memory: Memory<'_>) -> Option<Self> {
        let opening = memory.opening(body).filter(|opening| opening.has_items)?;
        let run = memory.run(region(body, &opening), opening.end);
        Some(Self { opening, run })
    }

    /// Reads the rest. `None` where this is no beginning of the body's after all: the same bytes may
    /// begin one that has no items, or more leading system messages.
    fn read<'b>(self, body: &'b [u8], memory: Memory<'_>) -> Option<Conversation<'b>> {
        let conversation = behind(&self.opening, self.run, body, memory).ok()?;
        let first = conversation.items.first()?;
        (first.facts.role != Role::System).then_some(conversation)
    }
}

/// The bytes from the first item on.
fn region<'b>(body: &'b [u8], opening: &Opening) -> &'b [u8] {
    body.get(opening.end..).unwrap_or_default()
}

/// Reads what follows an opening, of which `known` is known.
fn behind<'b>(
    opening: &Opening,
    known: KnownRun,
    body: &'b [u8],
    memory: Memory<'_>,
) -> Result<Conversation<'b>, Unreadable> {
    let mut cursor = Cursor::new(body, opening.end);
    let items = if opening.has_items { run(&mut cursor, known, memory)? } else { Vec::new() };
    let mut fields = opening.fields.clone();
    fields.members.push(("messages".into(), opening.array..cursor.at()));
    closing(&mut cursor, &mut fields)?;
    Ok(Conversation { dialect: Dialect::Chat, body, fields, lead: opening.lead.clone(), items })
}

/// Reads up to the first item.
fn opening(body: &[u8]) -> Result<Opening, Unreadable> {
    let mut cursor = Cursor::new(body, 0);
    let mut fields = Fields::default();
    let mut more = cursor.open(b'{', b'}')?;
    while more {
        let key = cursor.key()?;
        if key == "messages" {
            return lead(cursor, fields);
        }
        let span = cursor.value()?;
        member(&mut fields, body, &key, span)?;
        more = cursor.more(b'}')?;
    }
    Err(cursor.fail("there are no messages"))
}

/// Reads the leading system and developer messages; the cursor is at the conversation array.
fn lead(mut cursor: Cursor<'_>, fields: Fields) -> Result<Opening, Unreadable> {
    let array = cursor.at();
    let mut lead = Vec::new();
    let mut more = cursor.open(b'[', b']')?;
    while more {
        let start = cursor.at();
        let span = cursor.value()?;
        let role = chat_item::role(cursor.raw(&span)).map_err(|error| within(error, start))?;
        if role != Role::System {
            return Ok(Opening { fields, lead, array, end: start, has_items: true });
        }
        if lead.len() >= MAX_ITEMS {
            return Err(cursor.fail("there are too many messages"));
        }
        lead.push(span);
        more = cursor.more(b']')?;
    }
    Ok(Opening { fields, lead, array, end: cursor.at(), has_items: false })
}

/// Reads the items from the first one on, and the bracket that closes the array.
fn run(cursor: &mut Cursor<'_>, mut known: KnownRun, memory: Memory<'_>) -> Result<Vec<Item>, Unreadable> {
    let base = cursor.at();
    let region = cursor.text().get(base..).unwrap_or_default();
    let mut items = std::mem::take(&mut known.items);
    let mut chain = items.last().map_or_else(|| chain_start(Dialect::Chat), |item| item.chain);
    *cursor = Cursor::new(cursor.text(), base + known.len);
    let mut more = items.is_empty() || cursor.more(b']')?;
    while more {
        if items.len() >= MAX_ITEMS {
            return Err(cursor.fail("there are too many messages"));
        }
        let span = cursor.value()?;
        let facts = memory.facts(cursor.raw(&span), chat_item::facts).map_err(|error| within(error, span.start))?;
        chain = chain_next(&chain, &facts.canonical);
        items.push(Item { span, facts, chain });
        more = cursor.more(b']')?;
    }
    memory.remember(region, base, &items, known);
    Ok(items)
}

/// Reads the members behind the conversation array and the end of the body.
fn closing(cursor: &mut Cursor<'_>, fields: &mut Fields) -> Result<(), Unreadable> {
    while cursor.more(b'}')? {
        let key = cursor.key()?;
        let span = cursor.value()?;
        member(fields, cursor.text(), &key, span)?;
    }
    cursor.end()
}

/// Takes note of a top-level member other than the conversation array.
fn member(fields: &mut Fields, body: &[u8], key: &str, span: Range<usize>) -> Result<(), Unreadable> {
    let fail = |what| Unreadable { at: span.start, what };
    if READ.contains(&key) && fields.members.iter().any(|(name, _)| name.as_ref() == key) {
        return Err(fail("a member occurs twice"));
    }
    let raw = body.get(span.clone()).unwrap_or_default();
    match (key, kind(body, &span)) {
        (_, b'n') => {}
        ("model", _) => {
            let model = string(body, &span).ok_or(fail("the model is no Unicode text"))?;
            fields.model = Some(model.as_ref().into());
        }
        ("stream", _) => fields.stream = boolean(raw).ok_or(fail("stream is no boolean"))?,
        ("store", _) => fields.store = Some(boolean(raw).ok_or(fail("store is no boolean"))?),
        ("max_tokens" | "max_completion_tokens", _) => {
            // Other numbers are the provider's to refuse.
            let limit = serde_json::from_slice(raw).ok().map(|value| MaxOutput { span: span.clone(), value });
            fields.max_output.extend(limit);
        }
        ("tools" | "functions" | "response_format" | "documents", _) => fields.overhead.push(span.clone()),
        _ => {}
    }
    fields.members.push((key.into(), span));
    Ok(())
}

fn boolean(raw: &[u8]) -> Option<bool> {
    serde_json::from_slice(raw).ok()
}

/// An error in an item, which begins at `start`, as one in the body.
fn within(error: Unreadable, start: usize) -> Unreadable {
    Unreadable { at: start + error.at, ..error }
}

/// A user message with `text`, as JSON.
pub fn user_message(text: &str) -> String {
    format!(r#"{{"role":"user","content":{}}}"#, quoted(text))
}

/// The edit that puts `text` in front of the text of the user message `item`: into its string, into its
/// first text part, or as a first text part where it has none (D11: one text part stays one). `None`
/// for other roles and shapes.
pub fn fold_into(conversation: &Conversation<'_>, item: usize, text: &str) -> Option<Edit> {
    let at = conversation.items.get(item).filter(|item| item.facts.role == Role::User)?.span.start;
    let raw = conversation.raw(item);
    let (_, content) = members(raw, 0).ok()?.into_iter().find(|(key, _)| key == "content")?;
    let (place, with) = match kind(raw, &content) {
        b'"' => (content.start + 1, inner(text)),
        b'[' => match first_text(raw, content.start) {
            Some(first) => (first.start + 1, inner(text)),
            None => (content.start + 1, new_part(raw, content.start, text)?),
        },
        _ => return None,
    };
    Some(Edit { span: at + place..at + place, with: with.into() })
}

/// The string of the first text part of the array at `at`.
fn first_text(raw: &[u8], at: usize) -> Option<Range<usize>> {
    elements(raw, at).ok()?.into_iter().find_map(|part| {
        let members = members(raw, part.start).ok()?;
        let value = |key: &str| members.iter().find(|(name, _)| name == key).map(|(_, span)| span.clone());
        let is_text = string(raw, &value("type")?)? == "text";
        value("text").filter(|text| is_text && kind(raw, text) == b'"')
    })
}

/// A text part to stand first in the array at `at`.
fn new_part(raw: &[u8], at: usize, text: &str) -> Option<String> {
    let comma = if elements(raw, at).ok()?.is_empty() { "" } else { "," };
    Some(format!(r#"{{"type":"text","text":{}}}{comma}"#, quoted(text)))
}

/// `text` as it must stand in the body in place of a slot: in this dialect always a JSON string.
pub fn replacement(_slot: &Slot, text: &str) -> Bytes {
    quoted(text).into()
}

/// The edits that lower every output limit above `tokens` to it; none is added or raised (P8).
pub fn lower_output(conversation: &Conversation<'_>, tokens: u64) -> Vec<Edit> {
    let limits = conversation.fields.max_output.iter().filter(|limit| limit.value > tokens);
    limits.map(|limit| Edit { span: limit.span.clone(), with: tokens.to_string().into() }).collect()
}

/// `text` as a JSON string with the shortest escapes.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// `text` escaped for the inside of a JSON string.
fn inner(text: &str) -> String {
    let quoted = quoted(text);
    quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or_default().to_owned()
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
