//! A request body as a conversation, in any dialect: what is known of it costs a hash, the rest one pass.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::canonical::{chain_next, chain_start};
use super::conversation::{Conversation, Dialect, Fields, Item, Role, Standing};
use super::media;
use super::memo::{Content, KnownRun, Memo, Memory, Opening, Salt};
use super::scan::{Cursor, Unreadable, kind, string};

/// Most items of a conversation, leading messages apart; a body with more goes untouched (L8).
pub const MAX_ITEMS: usize = 20_000;

/// Reads `body`, which must be one JSON object with the dialect's conversation array. What `memo` knows of
/// it under `salt` is not parsed again; the result is the same as with an empty memo. Whatever could be
/// misread is [`Unreadable`].
pub fn read<'b>(dialect: Dialect, body: &'b [u8], memo: &Memo, salt: Salt) -> Result<Conversation<'b>, Unreadable> {
    let memory = memo.of(salt, dialect);
    if let Some(conversation) = Beginning::find(body, memory).and_then(|known| known.read(body, memory)) {
        return Ok(conversation);
    }
    let opening = Arc::new(opening(dialect, body)?);
    let run = memory.run(region(body, &opening), opening.end);
    let conversation = behind(&opening, run, body, memory)?;
    memory.remember_opening(body, opening);
    Ok(from_compaction(conversation))
}

/// As [`read`], but only where at most `most` bytes are new to `memo`: what may be done on an event loop.
pub fn read_known<'b>(
    dialect: Dialect,
    body: &'b [u8],
    memo: &Memo,
    salt: Salt,
    most: usize,
) -> Option<Conversation<'b>> {
    if body.len() <= most {
        return read(dialect, body, memo, salt).ok();
    }
    let memory = memo.of(salt, dialect);
    let known = Beginning::find(body, memory).or_else(|| Beginning::short(body, memory, most))?;
    let new = region(body, &known.opening).len() - known.run.len;
    if new <= most { known.read(body, memory) } else { None }
}

/// What is seen of a body whose conversation is passed over.
pub struct Glance {
    pub fields: Fields,
    /// Whether it may hold pictures, sounds, files or videos: whether it names the type of one.
    pub media: bool,
}

/// What a body says beside its conversation. What is passed over need not be valid.
pub fn glance(dialect: Dialect, body: &[u8]) -> Result<Glance, Unreadable> {
    let mut cursor = Cursor::new(body, 0);
    let (mut fields, mut media) = (Fields::default(), false);
    let mut more = cursor.open(b'{', b'}')?;
    while more {
        let key = cursor.key()?;
        media |= media::is_type(key.as_bytes());
        let span = cursor.pass(&mut |text| media |= media::is_type(text))?;
        member(dialect, &mut fields, body, (&key, span))?;
        more = cursor.more(b'}')?;
    }
    cursor.end()?;
    Ok(Glance { fields, media })
}

/// What a memory knows of a body: its opening, and its first items.
struct Beginning {
    opening: Arc<Opening>,
    run: KnownRun,
}

impl Beginning {
    fn find(body: &[u8], memory: Memory<'_>) -> Option<Self> {
        let opening = memory.opening(body).filter(|opening| opening.content == Content::Items)?;
        let run = memory.run(region(body, &opening), opening.end);
        Some(Self { opening, run })
    }

    /// Of an opening within the first `most` bytes, be it too short to be remembered or new each time (some
    /// system prompts hold the time).
    fn short(body: &[u8], memory: Memory<'_>, most: usize) -> Option<Self> {
        let opening = opening(memory.dialect(), body.get(..most)?).ok()?;
        let run = memory.run(region(body, &opening), opening.end);
        (opening.content == Content::Items).then(|| Self { opening: Arc::new(opening), run })
    }

    /// Reads the rest. `None` where this is no beginning of the body's after all: the same bytes may
    /// begin one that has no items, or more leading messages.
    fn read<'b>(self, body: &'b [u8], memory: Memory<'_>) -> Option<Conversation<'b>> {
        let conversation = behind(&self.opening, self.run, body, memory).ok()?;
        let first = conversation.items.first()?;
        (first.facts.role != Role::System).then(|| from_compaction(conversation))
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
    let dialect = memory.dialect();
    let mut cursor = Cursor::new(body, opening.end);
    let items = match opening.content {
        Content::Items => run(&mut cursor, known, memory)?,
        Content::Text => vec![text(dialect, &cursor, opening.array..opening.end)?],
        Content::Nothing => Vec::new(),
    };
    let mut fields = opening.fields.clone();
    fields.members.push((dialect.array().into(), opening.array..cursor.at()));
    while cursor.more(b'}')? {
        let key = cursor.key()?;
        let span = cursor.value()?;
        member(dialect, &mut fields, body, (&key, span))?;
    }
    cursor.end()?;
    let (lead, settled, superseded) = (opening.lead.clone(), Vec::new(), Vec::new());
    Ok(Conversation { dialect, body, fields, lead, settled, superseded, items })
}

/// Reads up to the first item.
fn opening(dialect: Dialect, body: &[u8]) -> Result<Opening, Unreadable> {
    let mut cursor = Cursor::new(body, 0);
    let mut fields = Fields::default();
    let mut more = cursor.open(b'{', b'}')?;
    while more {
        let key = cursor.key()?;
        if key == dialect.array() {
            return lead(dialect, cursor, fields);
        }
        let span = cursor.value()?;
        member(dialect, &mut fields, body, (&key, span))?;
        more = cursor.more(b'}')?;
    }
    Err(cursor.fail("there is no conversation"))
}

/// Reads the leading system and developer messages; the cursor is at the conversation.
fn lead(dialect: Dialect, mut cursor: Cursor<'_>, fields: Fields) -> Result<Opening, Unreadable> {
    let array = cursor.at();
    let mut lead = Vec::new();
    let done = |content, lead, end| Opening { fields, lead, array, end, content };
    if cursor.peek() == Some(b'"') {
        cursor.value()?;
        return Ok(done(Content::Text, lead, cursor.at()));
    }
    let mut more = cursor.open(b'[', b']')?;
    while more {
        let start = cursor.at();
        let span = cursor.value()?;
        let role = dialect.role(cursor.raw(&span)).map_err(|error| within(error, start))?;
        if role != Role::System {
            return Ok(done(Content::Items, lead, start));
        }
        if lead.len() >= MAX_ITEMS {
            return Err(cursor.fail("there are too many messages"));
        }
        lead.push(span);
        more = cursor.more(b']')?;
    }
    Ok(done(Content::Nothing, lead, cursor.at()))
}

/// Reads the items from the first one on, and the bracket that closes the array.
fn run(cursor: &mut Cursor<'_>, mut known: KnownRun, memory: Memory<'_>) -> Result<Vec<Item>, Unreadable> {
    let base = cursor.at();
    let region = cursor.text().get(base..).unwrap_or_default();
    let mut items = std::mem::take(&mut known.items);
    let mut chain = items.last().map_or_else(|| chain_start(memory.dialect()), |item| item.chain);
    *cursor = Cursor::new(cursor.text(), base + known.len);
    let mut more = items.is_empty() || cursor.more(b']')?;
    while more {
        if items.len() >= MAX_ITEMS {
            return Err(cursor.fail("there are too many messages"));
        }
        let span = cursor.value()?;
        let facts = memory.facts(cursor.raw(&span)).map_err(|error| within(error, span.start))?;
        chain = chain_next(&chain, &facts.canonical);
        items.push(Item { span, facts, chain });
        more = cursor.more(b']')?;
    }
    memory.remember(region, base, &items, known);
    Ok(items)
}

/// The only item of a conversation that is given as a string.
fn text(dialect: Dialect, cursor: &Cursor<'_>, span: Range<usize>) -> Result<Item, Unreadable> {
    let facts = Arc::new(dialect.facts_of_text(cursor.raw(&span)).map_err(|error| within(error, span.start))?);
    let chain = chain_next(&chain_start(dialect), &facts.canonical);
    Ok(Item { span, facts, chain })
}

/// The last compaction is settled, with the results behind it that answer calls in it: the chain starts there. What
/// it stands for is superseded, but for the settings in it.
///
/// Such a result is not evicted either, however large it is. It stays with its call, whose message may not be touched
/// (A1, A19), so that no cut may ever stand for it; and what is known of a text hangs on the chain, which cannot begin
/// before it: clients leave out what a compaction stands for in one turn and send it in another (R10).
fn from_compaction(mut conversation: Conversation<'_>) -> Conversation<'_> {
    let is_compaction = |item: &Item| item.facts.standing == Standing::Compaction;
    let Some(last) = conversation.items.iter().rposition(is_compaction) else { return conversation };
    let tail = conversation.items.split_off(settled_end(&conversation.items, last + 1));
    for (index, item) in conversation.items.drain(..).enumerate() {
        match index < last && item.facts.standing != Standing::Kept {
            true => conversation.superseded.push(item.span),
            false => conversation.settled.push(item),
        }
    }
    let mut chain = chain_start(conversation.dialect);
    conversation.items.extend(tail.into_iter().map(|item| {
        chain = chain_next(&chain, &item.facts.canonical);
        Item { chain, ..item }
    }));
    conversation
}

/// Where what is settled ends if it has the first `end` items: behind the last that answers a call in it. Calls may
/// be gone from before a compaction: a result right behind it that answers nothing belongs to it too.
fn settled_end(items: &[Item], mut end: usize) -> usize {
    let mut callers: HashMap<&str, usize> = HashMap::new();
    for (index, item) in items.iter().enumerate() {
        for call in &item.facts.calls {
            callers.insert(if call.id.is_empty() { &call.name } else { &call.id }, index);
        }
        let before = |id: &String| callers.get(id.as_str()).map_or(index == end, |caller| *caller < end);
        if index >= end && item.facts.results.iter().any(before) {
            end = index + 1;
        }
    }
    end
}

/// Takes note of a top-level member other than the conversation.
fn member(
    dialect: Dialect,
    fields: &mut Fields,
    body: &[u8],
    (key, span): (&str, Range<usize>),
) -> Result<(), Unreadable> {
    let fail = |what| Unreadable { at: span.start, what };
    let read = SHARED.contains(&key) || key == dialect.array() || dialect.reads(key);
    if read && fields.members.iter().any(|(name, _)| name.as_ref() == key) {
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
        // Such a body is bound to its own bytes (P3).
        ("fallback_credit_token", _) => return Err(fail("the body is bound to a token")),
        _ => dialect.member(fields, body, key, &span),
    }
    // The provider keeps a message thread by rules of its own.
    if key == "thread" && fields.continues {
        return Err(fail("it continues a thread"));
    }
    fields.members.push((key.into(), span));
    Ok(())
}

/// Members that are read whatever the dialect.
const SHARED: [&str; 4] = ["model", "stream", "store", "fallback_credit_token"];

fn boolean(raw: &[u8]) -> Option<bool> {
    serde_json::from_slice(raw).ok()
}

/// An error in an item, which begins at `start`, as one in the body.
fn within(error: Unreadable, start: usize) -> Unreadable {
    Unreadable { at: start + error.at, ..error }
}
