//! Messages cut into what the writer takes: small groups of pieces, made one at a time, so that of a long message no
//! more is in memory than its JSON, its text and one group.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use super::passages::passages;
use super::write::{Group, Piece, Row, Words};
use super::{LogBatch, Message, Unfound};
use crate::compact::excerpt::one_line;
use crate::memory::words::{Kind as Column, tokens};
use crate::store::Tenant;
use crate::store::texts::Packer;
use crate::wire::Role;
use crate::wire::plain::{Plain, plain};

/// Bytes of JSON in one row.
pub(super) const CHUNK_BYTES: usize = 60_000;
/// Bytes of messages that one transaction writes (a larger message takes several), so that no commit waits long.
pub(super) const GROUP_BYTES: usize = 192 * 1024;
/// Pieces of one group, at some statements each: many short messages take time as well.
pub(super) const GROUP_PIECES: usize = 64;
/// Characters of a title.
const TITLE: usize = 200;

/// The transactions that a batch takes.
pub(super) struct Groups<'b> {
    tenant: Tenant,
    batch: &'b LogBatch,
    /// Unix seconds.
    now: i64,
    packer: Packer,
    messages: std::slice::Iter<'b, Message>,
    /// The message that is being cut.
    current: Option<Cut>,
    title: Option<String>,
}

/// A message with what of it was cut already: its JSON first, then its passages, then its end.
struct Cut {
    row: Arc<Row>,
    text: String,
    /// What of the text is in no row of the index.
    unfound: Vec<Range<usize>>,
    passages: Vec<Range<usize>>,
    next: usize,
}

impl<'b> Groups<'b> {
    /// `None` if memory is out.
    pub(super) fn of(tenant: Tenant, batch: &'b LogBatch, now: i64) -> Option<Self> {
        let messages = batch.messages.iter();
        Some(Self { tenant, batch, now, packer: Packer::new()?, messages, current: None, title: None })
    }

    fn begin(&mut self, message: &Message) -> Cut {
        let Plain { text, parts, .. } = plain(self.batch.dialect, &message.json);
        if self.title.is_none() && message.role == Role::User {
            self.title = title(&text);
        }
        let unfound: Vec<Range<usize>> = match &message.unfound {
            Unfound::Nothing => Vec::new(),
            Unfound::Parts(sources) => {
                parts.iter().filter(|(_, source)| sources.contains(source)).map(|(at, _)| at.clone()).collect()
            }
            Unfound::Everything => parts.iter().map(|(at, _)| at.clone()).collect(),
        };
        // What is left of a text keeps its place in it: a hit is shown out of the whole.
        let hidden = !parts.is_empty() && unfound.len() == parts.len();
        let passages = if hidden { Vec::new() } else { passages(&text) };
        let row = Row {
            message: message.clone(),
            kind: self.batch.kind,
            dialect: self.batch.dialect,
            chunks: message.json.len().div_ceil(CHUNK_BYTES),
            passages: passages.len(),
            time: self.now,
        };
        Cut { row: Arc::new(row), text, unfound, passages, next: 0 }
    }

    fn piece(&mut self) -> Option<Piece> {
        loop {
            if let Some(cut) = &mut self.current
                && let Some(piece) = cut.piece(&self.tenant, &mut self.packer)
            {
                return Some(piece);
            }
            let message = self.messages.next()?;
            self.current = Some(self.begin(message));
        }
    }
}

impl Cut {
    /// The next piece; `None` after its end, or if memory is out: without its end it does not count.
    fn piece(&mut self, tenant: &Tenant, packer: &mut Packer) -> Option<Piece> {
        let (row, number, json) = (Arc::clone(&self.row), self.next, &self.row.message.json);
        self.next += 1;
        if number < row.chunks {
            let chunk = json.chunks(CHUNK_BYTES).nth(number)?;
            return Some(Piece::Chunk { row, number, bytes: chunk.len(), body: packer.pack(chunk)? });
        }
        let number = number - row.chunks;
        if let Some(place) = self.passages.get(number) {
            let passage = self.text.get(place.clone()).unwrap_or_default();
            let found = |at: usize| !self.unfound.iter().any(|hidden| hidden.contains(&(place.start + at)));
            return Some(Piece::Passage { row, number, bytes: passage.len(), words: words(tenant, passage, found) });
        }
        (number == self.passages.len()).then_some(Piece::End(row))
    }
}

impl Iterator for Groups<'_> {
    type Item = Group;

    fn next(&mut self) -> Option<Group> {
        let (mut pieces, mut bytes) = (Vec::new(), 0);
        while bytes < GROUP_BYTES && pieces.len() < GROUP_PIECES {
            let Some(piece) = self.piece() else { break };
            bytes += piece.bytes();
            pieces.push(piece);
        }
        let LogBatch { session, agent, .. } = self.batch;
        let title = self.title.clone().unwrap_or_default();
        let group =
            Group { tenant: self.tenant, session: *session, agent: Arc::clone(agent), title, now: self.now, pieces };
        (!group.pieces.is_empty()).then_some(group)
    }
}

/// The first line that says something: harness blocks begin with a tag.
fn title(text: &str) -> Option<String> {
    let lines = || text.lines().take(200).map(|line| one_line(line, TITLE)).filter(|line| !line.is_empty());
    lines().find(|line| !line.starts_with('<')).or_else(|| lines().next())
}

/// The columns of one row of the index: of the words whose places in the passage are to be found.
fn words(tenant: &Tenant, passage: &str, found: impl Fn(usize) -> bool) -> Words {
    let tag = tag(tenant);
    let mut columns = Words::default();
    let mut seen = HashSet::new();
    tokens(passage, |token| {
        if !found(token.at) {
            return;
        }
        // How often a part occurs says nothing: once is enough.
        if token.kind == Column::Part && !seen.insert(token.text.clone()) {
            return;
        }
        let column = if token.kind == Column::Word { &mut columns.words } else { &mut columns.parts };
        column.push_str(&tag);
        column.push_str(&token.text);
        column.push(' ');
    });
    columns
}

/// What every token of a tenant begins with in the index.
pub(super) fn tag(tenant: &Tenant) -> String {
    tenant.0.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// What stands in the index for a tenant's agent.
pub(super) fn agent_mark(tenant: &Tenant, agent: &str) -> String {
    let hash = blake3::keyed_hash(&blake3::derive_key("compactproxy 2026 log agents", &tenant.0), agent.as_bytes());
    format!("a{}", hash.to_hex().chars().take(24).collect::<String>())
}
