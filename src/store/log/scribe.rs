//! What becomes of messages between their queue and the writer: those that are not there yet are cut into pieces, off
//! the threads that commits and queries run on.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::pieces::{GROUP_BYTES, GROUP_PIECES, Groups};
use super::queries::LogQuery;
use super::write::Written;
use super::{Kind, LogBatch, Message, SessionId};
use crate::store::marks::{Completeness, Marks, mark};
use crate::store::shared::{Shared as StoreShared, now};
use crate::store::{Limits, Tenant};
use crate::wire::Digest;

/// Bytes and messages of a batch that is written together with others.
const JOINED_BYTES: usize = 32 * 1024;
const JOINED_MESSAGES: usize = 4;
/// Pieces that a short message is cut into, mostly: its JSON, its words, its end.
const PIECES_PER_MESSAGE: usize = 3;
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

/// Small batches that came while the writer was busy: it writes them in one transaction.
#[derive(Default)]
struct Joined {
    batches: Vec<(Tenant, LogBatch)>,
    bytes: usize,
    messages: usize,
}

impl Joined {
    /// Whether a batch may be joined with others: of a longer one, much may be there already, and it fills a
    /// transaction alone.
    fn takes(batch: &LogBatch) -> bool {
        weight(batch) <= JOINED_BYTES && batch.messages.len() <= JOINED_MESSAGES
    }

    fn add(&mut self, tenant: Tenant, batch: LogBatch) {
        self.bytes += weight(&batch);
        self.messages += batch.messages.len();
        self.batches.push((tenant, batch));
    }

    /// Whether another small batch could make it more than one transaction should write.
    fn is_full(&self) -> bool {
        self.bytes + JOINED_BYTES > GROUP_BYTES || self.messages + JOINED_MESSAGES > GROUP_PIECES / PIECES_PER_MESSAGE
    }
}

impl Scribe {
    /// Works until nobody can give it anything any more.
    pub(in crate::store) async fn run(self, mut given: mpsc::Receiver<Given>) {
        while let Some(first) = given.recv().await {
            let (mut joined, mut next) = (Joined::default(), Some(first));
            while let Some(given_now) = next {
                match given_now {
                    Given::Batch(tenant, batch) if Joined::takes(&batch) => joined.add(tenant, batch),
                    Given::Batch(tenant, batch) => {
                        self.hand_over(std::mem::take(&mut joined)).await;
                        let bytes = weight(&batch);
                        self.prepare(tenant, batch).await;
                        self.shared.log.give_room(bytes);
                    }
                    Given::Flush(reply) => {
                        self.hand_over(std::mem::take(&mut joined)).await;
                        if self.writer.send(Written::Flush(reply)).await.is_err() {
                            return;
                        }
                    }
                }
                next = if joined.is_full() { None } else { given.try_recv().ok() };
            }
            self.hand_over(joined).await;
        }
    }

    /// Has small batches cut, and gives them to the writer as one.
    async fn hand_over(&self, joined: Joined) {
        let Joined { batches, bytes, messages } = joined;
        if batches.is_empty() {
            return;
        }
        let cut = move || {
            let groups = batches.iter().map(|(tenant, batch)| Some(Groups::of(*tenant, batch, now())?.collect()));
            Some(groups.collect::<Option<Vec<Vec<_>>>>()?.into_iter().flatten().collect())
        };
        match tokio::task::spawn_blocking(cut).await.ok().flatten() {
            Some(groups) => drop(self.writer.send(Written::Groups(groups)).await),
            None => self.lost(messages),
        }
        self.shared.log.give_room(bytes);
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
                if writer.blocking_send(Written::Groups(vec![group])).is_err() {
                    break;
                }
            }
            Some(())
        });
        if prepared.await.ok().flatten().is_none() {
            self.lost(1);
        }
    }

    /// Memory was out.
    fn lost(&self, messages: usize) {
        self.shared.log.dropped(messages);
        self.shared.log.forget();
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

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::store::log::Unfound;
    use crate::store::secret::InstallationSecret;
    use crate::wire::{Dialect, Role};

    #[tokio::test]
    async fn who_does_not_say_what_is_written_holds_the_log_up_no_longer_than_its_bound() {
        let secret = InstallationSecret::random().unwrap();
        let shared = Arc::new(StoreShared::new(None, Limits::default(), secret));
        let ((reader, _unanswered), (writer, mut written)) = (mpsc::channel(1), mpsc::channel(1));
        let (give, given) = mpsc::channel(1);
        let scribe = Scribe { shared, reader, writer }.run(given);
        let json = r#"{"role":"user","content":"said"}"#.into();
        let message = Message {
            digest: [1; 32],
            parent: None,
            number: 1,
            role: Role::User,
            tokens: None,
            json,
            unfound: Unfound::Nothing,
        };
        // So many that it is worth asking.
        let messages = vec![message; JOINED_MESSAGES + 1];
        let (session, agent) = (SessionId([1; 16]), "agent".into());
        let batch = LogBatch { session, agent, dialect: Dialect::Chat, kind: Kind::Sent, messages };
        let before = Instant::now();
        let asked = async {
            give.send(Given::Batch(Tenant([1; 16]), batch)).await.ok().unwrap();
            let group = timeout(STORED_BOUND * 40, written.recv()).await.unwrap();
            drop(give);
            group
        };
        let ((), group) = tokio::join!(scribe, asked);
        assert!(matches!(group, Some(Written::Groups(_))), "it is written all the same");
        assert!(before.elapsed() >= STORED_BOUND);
    }
}
