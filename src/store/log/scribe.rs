//! What becomes of messages between their queue and the writer: those that are not there yet are cut into pieces, off
//! the threads that commits and queries run on.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::pieces::Groups;
use super::queries::LogQuery;
use super::write::Written;
use super::{Kind, LogBatch, Message, SessionId};
use crate::store::marks::{Completeness, Marks, mark};
use crate::store::shared::{Shared as StoreShared, now};
use crate::store::{Limits, Tenant};
use crate::wire::Digest;

/// How long the scribe waits to hear what is written already.
const STORED_BOUND: Duration = Duration::from_secs(2);

/// What is given to the scribe.
pub(in crate::store) enum Given {
    Batch(Tenant, LogBatch),
    Flush(oneshot::Sender<()>),
}

/// Sessions of which it is remembered how often their log was swept; beyond it all marks are forgotten.
const MAX_SWEPT: usize = 16_384;

/// What is logged already.
struct Known {
    marks: Marks,
    /// How often a session's log was swept: what is marked since then counts.
    swept: HashMap<SessionId, u64>,
}

/// What callers, scribe and writer know of the log.
pub(in crate::store) struct Shared {
    marks: Mutex<Known>,
    queued_bytes: AtomicUsize,
    max_bytes: usize,
    dropped: AtomicU64,
}

impl Shared {
    pub(in crate::store) fn new(limits: &Limits) -> Self {
        Self {
            marks: Mutex::new(Known {
                marks: Marks::new(limits.max_log_marks, Completeness::Partial),
                swept: HashMap::new(),
            }),
            queued_bytes: AtomicUsize::new(0),
            max_bytes: limits.max_queued_log_bytes,
            dropped: AtomicU64::new(0),
        }
    }

    fn marks(&self) -> MutexGuard<'_, Known> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a mark stands for was queued with all that precedes it.
    pub(super) fn known(&self, tenant: &Tenant, session: &SessionId, chain: &[Digest]) -> usize {
        let held = self.marks();
        let known = |digest: &Digest| held.marks.holds(held.of_session(session, mark(tenant, digest)));
        chain.iter().rposition(known).map_or(0, |last| last + 1)
    }

    pub(super) fn marks_of(&self, tenant: &Tenant, batch: &LogBatch) -> Vec<u64> {
        let held = self.marks();
        let of = |message: &Message| held.of_session(&batch.session, mark(tenant, &message.digest));
        if batch.kind == Kind::Sent { batch.messages.iter().map(of).collect() } else { Vec::new() }
    }

    pub(super) fn mark(&self, new: &[u64]) {
        let mut held = self.marks();
        new.iter().for_each(|mark| held.marks.insert(*mark));
    }

    /// Something was lost, or the file is another: all is given anew, and what is there stays as it is.
    pub(in crate::store) fn forget(&self) {
        self.marks().forget();
    }

    /// The log of this session is swept: all of it is given anew, and another session's costs nothing.
    pub(in crate::store) fn forget_session(&self, session: &SessionId) {
        let mut held = self.marks();
        if held.swept.len() >= MAX_SWEPT {
            held.forget();
        }
        *held.swept.entry(*session).or_default() += 1;
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

impl Known {
    fn of_session(&self, session: &SessionId, mark: u64) -> u64 {
        let half = session.0.first_chunk().map_or(0, |half| u64::from_le_bytes(*half)).rotate_left(32);
        // Spread over all bits: a small number would but exchange marks.
        let swept = self.swept.get(session).map_or(0, |times| times.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mark ^ half ^ swept
    }

    fn forget(&mut self) {
        self.marks.clear();
        self.swept.clear();
    }
}

/// Bytes that a batch holds.
pub(super) fn weight(batch: &LogBatch) -> usize {
    batch.messages.iter().map(|message| message.json.len() + size_of::<Message>()).sum()
}

/// The task between queue and writer.
pub(in crate::store) struct Scribe {
    pub shared: Arc<StoreShared>,
    /// To a reader of its own: it waits for nobody's search.
    pub reader: mpsc::Sender<LogQuery>,
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
            // What is not known will be met again when it is written.
            if let Ok(Some(stored)) = timeout(STORED_BOUND, self.stored(tenant, &batch)).await {
                batch.messages.retain(|message| !stored.contains(&message.digest));
            }
        }
        let writer = self.writer.clone();
        // A long text takes longer to cut and to compress than a commit may wait on this thread.
        let prepared = tokio::task::spawn_blocking(move || {
            for group in Groups::of(tenant, &batch, now())? {
                if writer.blocking_send(Written::Group(group)).is_err() {
                    break;
                }
            }
            Some(())
        });
        if prepared.await.ok().flatten().is_none() {
            self.shared.log.dropped(1);
            self.shared.log.forget();
        }
    }

    /// Which messages of a batch are written already.
    async fn stored(&self, tenant: Tenant, batch: &LogBatch) -> Option<HashSet<Digest>> {
        let (reply, answer) = oneshot::channel();
        let digests = batch.messages.iter().map(|message| message.digest).collect();
        let query = LogQuery::Stored { tenant, session: batch.session, digests, reply };
        self.reader.try_send(query).ok()?;
        answer.await.ok()?.ok()
    }
}
