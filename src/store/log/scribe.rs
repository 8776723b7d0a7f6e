//! What becomes of messages between their queue and the writer: those that are not there yet are compressed and cut
//! into passages, off the threads that commits and queries run on.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, oneshot};

use super::passages::passages;
use super::words::{Kind as Column, tokens};
use super::write::{Group, Piece, Row, Words, Written};
use super::{Kind, LogBatch, LogQuery, Message, SessionId};
use crate::compact::excerpt::one_line;
use crate::store::marks::{Completeness, Marks, mark};
use crate::store::shared::{Shared as StoreShared, now};
use crate::store::texts::Packer;
use crate::store::{Limits, ReadError, Tenant};
use crate::wire::plain::plain;
use crate::wire::{Digest, Role};

/// Bytes of JSON in one row.
const CHUNK_BYTES: usize = 60_000;
/// Bytes of messages that one transaction writes (a larger message takes several), so that no commit waits long.
const GROUP_BYTES: usize = 192 * 1024;
/// Pieces of one group, at some statements each: many short messages take time as well.
const GROUP_PIECES: usize = 64;
/// Characters of a title.
const TITLE: usize = 200;

/// What is given to the scribe.
pub(in crate::store) enum Given {
    Batch(Tenant, LogBatch),
    Flush(oneshot::Sender<()>),
}

/// What callers, scribe and writer know of the log.
pub(in crate::store) struct Shared {
    marks: Mutex<Marks>,
    queued_bytes: AtomicUsize,
    max_bytes: usize,
    dropped: AtomicU64,
}

impl Shared {
    pub(in crate::store) fn new(limits: &Limits) -> Self {
        Self {
            marks: Mutex::new(Marks::new(limits.max_log_marks, Completeness::Partial)),
            queued_bytes: AtomicUsize::new(0),
            max_bytes: limits.max_queued_log_bytes,
            dropped: AtomicU64::new(0),
        }
    }

    fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a mark stands for was queued with all that precedes it.
    pub(super) fn known(&self, tenant: &Tenant, session: &SessionId, chain: &[Digest]) -> usize {
        let marks = self.marks();
        let known = |digest: &Digest| marks.holds(of_session(session, mark(tenant, digest)));
        chain.iter().rposition(known).map_or(0, |last| last + 1)
    }

    pub(super) fn marks_of(&self, tenant: &Tenant, batch: &LogBatch) -> Vec<u64> {
        let of = |message: &Message| of_session(&batch.session, mark(tenant, &message.digest));
        if batch.kind == Kind::Sent { batch.messages.iter().map(of).collect() } else { Vec::new() }
    }

    pub(super) fn mark(&self, new: &[u64]) {
        let mut marks = self.marks();
        new.iter().for_each(|mark| marks.insert(*mark));
    }

    /// Something was lost, or the file is another: all is given anew, and what is there stays as it is.
    pub(in crate::store) fn forget(&self) {
        self.marks().clear();
    }

    /// False: there is no room in the queue. One batch alone always has.
    pub(super) fn take_room(&self, batch: &LogBatch) -> bool {
        let bytes = weight(batch);
        let fits = |queued: usize| (queued == 0 || queued + bytes <= self.max_bytes).then_some(queued + bytes);
        self.queued_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_ok()
    }

    pub(super) fn give_room(&self, bytes: usize) {
        self.queued_bytes.fetch_sub(bytes, Ordering::AcqRel);
    }

    pub(in crate::store) fn dropped(&self, messages: usize) {
        self.dropped.fetch_add(messages as u64, Ordering::Relaxed);
    }

    pub(super) fn dropped_so_far(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

fn of_session(session: &SessionId, mark: u64) -> u64 {
    mark ^ session.0.first_chunk().map_or(0, |half| u64::from_le_bytes(*half)).rotate_left(32)
}

/// Bytes that a batch holds.
pub(super) fn weight(batch: &LogBatch) -> usize {
    batch.messages.iter().map(|message| message.json.len() + size_of::<Message>()).sum()
}

/// The task between queue and writer.
pub(in crate::store) struct Scribe {
    pub shared: Arc<StoreShared>,
    pub queries: mpsc::Sender<LogQuery>,
    pub writer: mpsc::Sender<Written>,
}

impl Scribe {
    /// Works until nobody can give it anything any more.
    pub(in crate::store) async fn run(self, mut given: mpsc::Receiver<Given>) {
        while let Some(given) = given.recv().await {
            match given {
                Given::Flush(reply) => {
                    if self.writer.send(Written::Flush(reply)).await.is_err() {
                        return;
                    }
                }
                Given::Batch(tenant, batch) => {
                    let bytes = weight(&batch);
                    self.prepare(tenant, batch).await;
                    self.shared.log.give_room(bytes);
                }
            }
        }
    }

    async fn prepare(&self, tenant: Tenant, mut batch: LogBatch) {
        if batch.kind == Kind::Sent {
            match self.stored(tenant, &batch).await {
                Ok(stored) => batch.messages.retain(|message| !stored.contains(&message.digest)),
                // They will be met again when they are written.
                Err(ReadError::Unavailable | ReadError::Damaged) => {}
            }
        }
        let writer = self.writer.clone();
        // A long text takes longer to cut and to compress than a commit may wait on this thread.
        let prepared = tokio::task::spawn_blocking(move || {
            for group in Groups::of(tenant, &batch, now()) {
                if writer.blocking_send(Written::Group(group)).is_err() {
                    return;
                }
            }
        });
        if prepared.await.is_err() {
            self.shared.log.dropped(1);
            self.shared.log.forget();
        }
    }

    /// Which messages of a batch are written already.
    async fn stored(&self, tenant: Tenant, batch: &LogBatch) -> Result<HashSet<Digest>, ReadError> {
        let (reply, answer) = oneshot::channel();
        let digests = batch.messages.iter().map(|message| message.digest).collect();
        let query = LogQuery::Stored { tenant, session: batch.session, digests, reply };
        self.queries.try_send(query).map_err(|_| ReadError::Unavailable)?;
        answer.await.unwrap_or(Err(ReadError::Unavailable))
    }
}

/// The transactions that a batch takes.
struct Groups<'b> {
    tenant: Tenant,
    batch: &'b LogBatch,
    now: i64,
    packer: Option<Packer>,
    messages: std::slice::Iter<'b, Message>,
    /// What is left of a long message, last piece first.
    rest: Vec<Piece>,
    title: Option<String>,
}

impl<'b> Groups<'b> {
    fn of(tenant: Tenant, batch: &'b LogBatch, now: i64) -> Self {
        let messages = batch.messages.iter();
        Self { tenant, batch, now, packer: Packer::new(), messages, rest: Vec::new(), title: None }
    }

    /// The pieces of one message, last first.
    fn pieces(&mut self, message: &Message) -> Option<Vec<Piece>> {
        let packer = self.packer.as_mut()?;
        let text = plain(self.batch.dialect, &message.json).text;
        if self.title.is_none() && message.role == Role::User {
            self.title = title(&text);
        }
        let places = passages(&text);
        let mut pieces: Vec<Piece> = Vec::new();
        let row = Row {
            message: message.clone(),
            kind: self.batch.kind,
            dialect: self.batch.dialect,
            passages: places.len(),
            time: self.now,
        };
        let row = Arc::new(row);
        for (number, chunk) in message.json.chunks(CHUNK_BYTES).enumerate() {
            pieces.push(Piece::Chunk { row: Arc::clone(&row), number, bytes: chunk.len(), body: packer.pack(chunk)? });
        }
        for (number, place) in places.into_iter().enumerate() {
            let passage = text.get(place).unwrap_or_default();
            let words = words(&self.tenant, passage);
            pieces.push(Piece::Passage { row: Arc::clone(&row), number, bytes: passage.len(), words });
        }
        pieces.push(Piece::End(row));
        pieces.reverse();
        Some(pieces)
    }
}

impl Iterator for Groups<'_> {
    type Item = Group;

    fn next(&mut self) -> Option<Group> {
        let (mut pieces, mut bytes) = (Vec::new(), 0);
        while bytes < GROUP_BYTES && pieces.len() < GROUP_PIECES {
            match self.rest.pop() {
                Some(piece) => {
                    bytes += piece.bytes();
                    pieces.push(piece);
                }
                None => {
                    let Some(message) = self.messages.next() else { break };
                    self.rest = self.pieces(message).unwrap_or_default();
                }
            }
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

/// The columns of one row of the index.
fn words(tenant: &Tenant, passage: &str) -> Words {
    let tag = tag(tenant);
    let mut columns = Words::default();
    let mut seen = HashSet::new();
    tokens(passage, |token| {
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
