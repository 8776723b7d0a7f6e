//! What the process remembers of the database, so that a known conversation costs no query, and all
//! there is while the database is gone.

mod quarantine;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::compact::{Known, TextId};
use crate::wire::Digest;

use super::cache::ByteCache;
use super::marks::{Completeness, Marks, mark};
use super::overlays::{Found, Overlay, Overlays};
use super::reads::StoredMark;
use super::row::{Row, extend};
use super::session::Session;
use super::{Batch, Limits, Stage, Tenant};

pub(super) type Key = (Tenant, Digest);

/// Of a conversation not only what is known of the whole is remembered, but also of all but this many of
/// its last items: some clients change their latest messages once more.
const TRAILING: usize = 4;
/// A session's last use is written down at most this often.
const TOUCH_EVERY: Duration = Duration::from_secs(600);
/// Touches that wait to be written; more are not noted (the session is touched again later).
const MAX_TOUCHES: usize = 4_096;
/// Quarantined checkpoints remembered beside the database (for a database that cannot be written).
const MAX_QUARANTINED: usize = 1_024;

pub(super) struct Memory {
    rows: ByteCache<Key, Row>,
    /// Digests with an eviction or a checkpoint.
    row_marks: Marks,
    /// Fewest bytes of a body to which a row may apply.
    least_covered: usize,
    /// Digests that were forwarded.
    forwarded: Marks,
    overlays: Overlays,
    /// By (tenant, root).
    sessions: ByteCache<Key, Session>,
    texts: ByteCache<TextId, Arc<str>>,
    quarantined: ByteCache<(Key, i64), ()>,
    touches: HashSet<Key>,
    /// Counts changes of rows, so that an answer read before a change is not remembered after it.
    version: u64,
    /// Counts the times that marks had to be read anew.
    openings: u64,
    /// No database behind it at all: what is not here does not exist.
    alone: bool,
}

/// What was found of a conversation.
struct Walked {
    known: Known,
    /// The same of the conversation without its trailing items, with the number of those before.
    stem: Option<(usize, Known)>,
    missing: Vec<Digest>,
}

/// Digests of which the database must say what it has.
#[derive(Debug)]
pub(super) struct Missing {
    pub(super) digests: Vec<Digest>,
    version: u64,
}

/// The database's answer to a [`Missing`].
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub(super) rows: HashMap<Digest, Row>,
    pub(super) forwarded: HashSet<Digest>,
}

/// What to take for what is not in memory.
#[derive(Clone, Copy)]
enum Rest<'a> {
    Ask,
    Loaded(&'a Loaded),
    /// The database does not answer: as if it had nothing, for now.
    Absent,
}

impl Memory {
    pub(super) fn new(limits: &Limits, alone: Alone) -> Self {
        let alone = alone == Alone::Yes;
        let complete = if alone { Completeness::Complete } else { Completeness::Partial };
        Self {
            rows: ByteCache::new(limits.row_cache_bytes),
            row_marks: Marks::new(limits.max_row_marks, complete),
            least_covered: usize::MAX,
            forwarded: Marks::new(limits.max_forwarded_marks, complete),
            overlays: Overlays::new((limits.max_overlay_marks, limits.overlay_cache_bytes), complete),
            sessions: ByteCache::new(limits.session_cache_bytes),
            texts: ByteCache::new(limits.volatile_text_bytes),
            quarantined: ByteCache::new(MAX_QUARANTINED),
            touches: HashSet::new(),
            version: 0,
            openings: 0,
            alone,
        }
    }

    /// What is known of a conversation, or what the database must be asked for first.
    pub(super) fn known(&mut self, tenant: &Tenant, chain: &[Digest], now: Instant) -> Result<Known, Missing> {
        let walked = self.walk(tenant, chain, Rest::Ask);
        if walked.missing.is_empty() {
            self.remember(tenant, chain, &walked, now);
            return Ok(walked.known);
        }
        Err(Missing { digests: walked.missing, version: self.version })
    }

    /// The same with the database's answer, which is remembered unless rows changed meanwhile.
    pub(super) fn known_with(&mut self, tenant: &Tenant, chain: &[Digest], answer: (&Missing, Loaded)) -> Known {
        let (missing, mut loaded) = answer;
        for (digest, row) in &mut loaded.rows {
            self.apply_quarantine(&(*tenant, *digest), row);
        }
        let walked = self.walk(tenant, chain, Rest::Loaded(&loaded));
        if missing.version == self.version {
            for (digest, row) in loaded.rows {
                self.keep(tenant, digest, row);
            }
            self.remember(tenant, chain, &walked, Instant::now());
        }
        walked.known
    }

    /// The same while the database does not answer.
    pub(super) fn known_alone(&mut self, tenant: &Tenant, chain: &[Digest]) -> Known {
        self.walk(tenant, chain, Rest::Absent).known
    }

    fn walk(&mut self, tenant: &Tenant, chain: &[Digest], rest: Rest<'_>) -> Walked {
        let (from, mut known) = self.longest_tail(tenant, chain);
        let (mut missing, mut stem) = (Vec::new(), None);
        let stem_len = chain.len().saturating_sub(TRAILING).max(1);
        for (index, digest) in chain.iter().enumerate().skip(from) {
            if index == stem_len {
                stem = Some(known.clone());
            }
            let mark = mark(tenant, digest);
            let mut unknown = false;
            if self.row_marks.holds(mark) || !self.row_marks.is_complete() {
                match (self.rows.get(&(*tenant, *digest)), rest) {
                    (Some(row), _) => extend(&mut known, index, digest, row),
                    (None, Rest::Loaded(loaded)) => {
                        loaded.rows.get(digest).into_iter().for_each(|row| extend(&mut known, index, digest, row));
                    }
                    (None, Rest::Ask) => unknown = !self.alone,
                    (None, Rest::Absent) => {}
                }
            }
            if self.forwarded.holds(mark) {
                known.seen = index + 1;
            } else if !self.forwarded.is_complete() {
                match rest {
                    Rest::Loaded(loaded) if loaded.forwarded.contains(digest) => known.seen = index + 1,
                    Rest::Ask => unknown |= !self.alone,
                    Rest::Loaded(_) | Rest::Absent => {}
                }
            }
            if unknown {
                missing.push(*digest);
            }
        }
        Walked { known, stem: stem.map(|known| (stem_len, known)), missing }
    }

    fn longest_tail(&mut self, tenant: &Tenant, chain: &[Digest]) -> (usize, Known) {
        let session = chain.first().and_then(|root| self.sessions.get(&(*tenant, *root)));
        session.and_then(|session| session.longest_tail(chain)).unwrap_or_default()
    }

    fn remember(&mut self, tenant: &Tenant, chain: &[Digest], walked: &Walked, now: Instant) {
        let Some(root) = chain.first() else { return };
        let key = (*tenant, *root);
        let Self { sessions, touches, .. } = self;
        if !sessions.contains(&key) {
            note_touch(touches, key);
        }
        sessions.update(
            key,
            || Session::new(now),
            |session| {
                if now.saturating_duration_since(session.touched) >= TOUCH_EVERY {
                    note_touch(touches, key);
                    session.touched = now;
                }
                if let Some((len, known)) = &walked.stem {
                    session.put(chain, *len, known);
                }
                session.put(chain, chain.len(), &walked.known);
                session.bytes()
            },
        );
    }

    /// Rows as the database has them after a commit; they replace what was remembered.
    pub(super) fn adopt(&mut self, tenant: &Tenant, root: &Digest, rows: HashMap<Digest, Row>) {
        for (digest, mut row) in rows {
            self.row_marks.insert(mark(tenant, &digest));
            if let Some(held) = self.rows.get(&(*tenant, digest)) {
                row.keep_held(held);
            }
            self.keep_quarantined(&(*tenant, digest), &mut row);
            self.least_covered = self.least_covered.min(row.least_bytes());
            let bytes = row.bytes();
            self.rows.insert((*tenant, digest), row, bytes);
        }
        self.changed(tenant, root);
    }

    /// Lets rows that this process has used already stand for those that a batch would add: the bytes
    /// that went out stay the bytes that go out, also when they were held without a database.
    pub(super) fn prefer_held(&mut self, tenant: &Tenant, batch: &mut Batch) {
        batch.evictions.retain(|(digest, _)| !self.was_forwarded(tenant, digest));
        for (digest, eviction) in &mut batch.evictions {
            if let Some(held) = self.rows.get(&(*tenant, *digest)).and_then(|row| row.eviction.as_ref()) {
                *eviction = Arc::clone(held);
            }
        }
        if let Some((digest, checkpoint, Stage::Activated)) = &mut batch.checkpoint
            && let Some(row) = self.rows.get(&(*tenant, *digest))
            && let Some(held) = row.activated_at(checkpoint.level)
        {
            *checkpoint = Arc::clone(held);
        }
    }

    /// Rows that only this process has.
    pub(super) fn hold(&mut self, tenant: &Tenant, batch: &Batch) {
        for (digest, eviction) in &batch.evictions {
            if !self.was_forwarded(tenant, digest) {
                self.change(tenant, digest, |row| row.eviction.get_or_insert_with(|| Arc::clone(eviction)).clone());
            }
        }
        if let Some((digest, checkpoint, stage)) = &batch.checkpoint {
            self.change(tenant, digest, |row| row.put(Arc::clone(checkpoint), *stage));
        }
        for overlay in &batch.overlays {
            self.least_covered = self.least_covered.min(overlay.least);
            self.overlays.hold(tenant, overlay);
        }
        for removed in &batch.texts {
            self.texts.insert(removed.id, removed.text.as_str().into(), removed.text.len());
        }
        self.changed(tenant, &batch.root);
    }

    fn change<T>(&mut self, tenant: &Tenant, digest: &Digest, change: impl FnOnce(&mut Row) -> T) {
        self.row_marks.insert(mark(tenant, digest));
        let mut least = usize::MAX;
        self.rows.update((*tenant, *digest), Row::default, |row| {
            change(row);
            least = row.least_bytes();
            row.bytes()
        });
        self.least_covered = self.least_covered.min(least);
    }

    /// A request with this conversation went out.
    pub(super) fn remember_forwarded(&mut self, tenant: &Tenant, chain: &[Digest]) {
        let (Some(root), Some(last)) = (chain.first(), chain.last()) else { return };
        self.forwarded.insert(mark(tenant, last));
        let Some(session) = self.sessions.get(&(*tenant, *root)) else { return };
        // Longer tails may have been built without this.
        session.tails.retain(|tail| tail.len <= chain.len());
        for tail in session.tails.iter_mut().filter(|tail| tail.digest == *last) {
            tail.known.seen = tail.len;
        }
    }

    pub(super) fn was_forwarded(&self, tenant: &Tenant, digest: &Digest) -> bool {
        self.forwarded.holds(mark(tenant, digest))
    }

    /// Texts went from the database, perhaps some that rows here point to: rows are read anew, and what the database has
    /// no more is not replayed. What went whole still does.
    pub(super) fn forget_rows(&mut self) {
        self.rows.retain(|_, _| false);
        self.sessions.retain(|_, _| false);
        self.version += 1;
    }

    /// The database itself is gone: what went whole is no better known than after a restart.
    pub(super) fn forget_stored(&mut self) {
        self.forget_rows();
        self.forwarded.clear();
    }

    fn keep(&mut self, tenant: &Tenant, digest: Digest, row: Row) {
        if !self.rows.contains(&(*tenant, digest)) {
            let bytes = row.bytes();
            self.rows.insert((*tenant, digest), row, bytes);
        }
    }

    fn changed(&mut self, tenant: &Tenant, root: &Digest) {
        self.version += 1;
        if *root == Digest::default() {
            self.sessions.retain(|(owner, _), _| owner != tenant);
        } else {
            self.sessions.get(&(*tenant, *root)).into_iter().for_each(|session| session.tails.clear());
        }
    }

    pub(super) fn add_mark(&mut self, mark: StoredMark) {
        match mark {
            StoredMark::Row(mark) => self.row_marks.insert(mark),
            StoredMark::Forwarded(mark) => self.forwarded.insert(mark),
            StoredMark::Overlay(mark) => self.overlays.add_mark(mark),
        }
    }

    /// The database may hold what has no mark: another process has written, or it was just opened.
    /// Gives a number for [`completed`](Self::completed).
    pub(super) fn forget_completeness(&mut self) -> u64 {
        self.row_marks.set(Completeness::Partial);
        self.forwarded.set(Completeness::Partial);
        self.overlays.set(Completeness::Partial);
        self.version += 1;
        self.openings += 1;
        self.sessions.retain(|_, _| false);
        self.openings
    }

    /// All marks were read, and the fewest bytes of a body to which a stored row may apply; unless another
    /// process has written meanwhile.
    pub(super) fn completed(&mut self, turn: u64, least_covered: usize) {
        if turn == self.openings {
            self.row_marks.set(Completeness::Complete);
            self.forwarded.set(Completeness::Complete);
            self.overlays.set(Completeness::Complete);
            self.least_covered = self.least_covered.min(least_covered);
        }
    }

    /// Overlays under these digests, and the digests of which the database must be asked.
    pub(super) fn overlays(&mut self, tenant: &Tenant, chain: &[Digest]) -> (Vec<Overlay>, Vec<Digest>) {
        self.overlays.find(tenant, chain)
    }

    /// What the database has of overlays under these digests.
    pub(super) fn adopt_overlays(&mut self, tenant: &Tenant, digests: &[Digest], found: &Found) {
        self.overlays.adopt(tenant, digests, found);
    }

    pub(super) fn note_overlay(&mut self, tenant: &Tenant, overlay: &Overlay) -> bool {
        self.overlays.note_use(tenant, overlay)
    }

    pub(super) fn may_overlay(&self) -> bool {
        self.overlays.may_have()
    }

    /// Overlays were written; a body of so few bytes may have one.
    pub(super) fn overlaid(&mut self, least: usize) {
        self.least_covered = self.least_covered.min(least);
    }

    /// Whether a row may apply to a body of so many bytes.
    pub(super) fn may_cover(&self, bytes: usize) -> bool {
        !self.row_marks.is_covering() || bytes >= self.least_covered
    }

    pub(super) fn take_touches(&mut self) -> HashSet<Key> {
        std::mem::take(&mut self.touches)
    }

    pub(super) fn text(&mut self, id: &TextId) -> Option<Arc<str>> {
        self.texts.get(id).map(|text| Arc::clone(text))
    }
}

/// Whether there is no database behind the memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Alone {
    Yes,
    No,
}

fn note_touch(touches: &mut HashSet<Key>, key: Key) {
    if touches.len() < MAX_TOUCHES {
        touches.insert(key);
    }
}
