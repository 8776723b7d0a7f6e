//! The one writer: a loop over commits, notes and housekeeping on the store's own thread.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection, Row as _};
use tokio::sync::{mpsc, oneshot};

use crate::wire::Digest;

use super::commit::{Applied, Owner, Packed, Ticket, apply, prepare};
use super::files::{self, Change, Changed, Keeper, MemoryError};
use super::log::Written;
use super::memory::Key;
use super::notes::{self, Note};
use super::reader::Query;
use super::retention::{Bounds, Due, sweep};
use super::shared::{Shared, now};
use super::sqlite::{self, Identity, OpenError, Probe, identity, is_busy, wal_bytes};
use super::{Batch, CommitError, Health, Tenant, log};

/// Housekeeping: notes are written, the file is looked at.
const TICK: Duration = Duration::from_millis(500);
/// Ticks between two looks for expired sessions when nothing was due.
const TICKS_PER_SWEEP: u32 = 20;
/// Notes in one transaction, so that a commit never waits long.
const NOTES_PER_FLUSH: usize = 256;
/// Last uses kept for a database that cannot be written.
const MAX_TOUCHES: usize = 4_096;
/// An operation that takes longer than this has lost its connection.
const OPERATION_BOUND: Duration = Duration::from_secs(10);
/// How long an opening may take.
pub(super) const OPEN_BOUND: Duration = Duration::from_secs(5);
/// Retries after a failure: the first after this time, each next after twice as long…
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// …up to this.
const LAST_RETRY: Duration = Duration::from_secs(60);
/// The log is copied into the database from this length on.
const WAL_BYTES_PER_CHECKPOINT: u64 = 1 << 20;

pub(super) type Reply<T> = oneshot::Sender<T>;

/// Work that somebody waits for.
pub(super) enum Job {
    Commit {
        tenant: Tenant,
        batch: Batch,
        ticket: Arc<Ticket>,
        reply: Reply<Result<(), CommitError>>,
    },
    Quarantine {
        tenant: Tenant,
        digest: Digest,
    },
    Memory {
        keeper: Keeper,
        change: Change,
        reply: Reply<Changed>,
    },
    Flush(Reply<()>),
    /// Remove all that is due at this time (unix seconds).
    Sweep(i64, Reply<()>),
    /// Try a failed file again now.
    Retry(Reply<()>),
    Close(Reply<()>),
    #[cfg(test)]
    Pragma(String, Reply<()>),
}

pub(super) struct Writer {
    shared: Arc<Shared>,
    queries: mpsc::WeakSender<Query>,
    db: Option<(SqliteConnection, Identity)>,
    notes: VecDeque<Note>,
    touches: HashSet<Key>,
    backoff: Duration,
    next_try: Instant,
    /// The last change this process knows of; another one's leaves a gap.
    changes: i64,
    ticks_to_sweep: u32,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, queries: mpsc::WeakSender<Query>) -> Self {
        let next_try = Instant::now();
        let (notes, touches) = (VecDeque::new(), HashSet::new());
        Self {
            shared,
            queries,
            db: None,
            notes,
            touches,
            backoff: FIRST_RETRY,
            next_try,
            changes: -1,
            ticks_to_sweep: 0,
        }
    }

    /// Works until the store is closed or dropped.
    pub(super) async fn run(
        mut self,
        mut jobs: mpsc::Receiver<Job>,
        mut notes: mpsc::Receiver<Note>,
        mut log: mpsc::Receiver<Written>,
    ) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // Commits go first: somebody waits for them.
                biased;
                job = jobs.recv() => match job {
                    None => return,
                    Some(Job::Close(reply)) => {
                        self.take(&mut notes);
                        self.close().await;
                        let _ = reply.send(());
                        return;
                    }
                    Some(job) => {
                        self.take(&mut notes);
                        self.work(job).await;
                    }
                },
                // Notes wake nobody. A full list leaves them in the channel, which drops and counts what does
                // not fit.
                _ = tick.tick() => {
                    self.take(&mut notes);
                    if self.tick().await == Due::More {
                        tick.reset_immediately();
                    }
                }
                Some(written) = log.recv() => self.log(written).await,
            }
        }
    }

    fn take(&mut self, notes: &mut mpsc::Receiver<Note>) {
        while self.notes.len() < self.shared.limits.max_queued_notes
            && let Ok(note) = notes.try_recv()
        {
            self.notes.push_back(note);
        }
    }

    async fn work(&mut self, job: Job) {
        match job {
            Job::Commit { tenant, batch, ticket, reply } => {
                let result = if ticket.is_given_up() { Ok(()) } else { self.commit(&tenant, &batch, &ticket).await };
                let _ = reply.send(result);
            }
            Job::Quarantine { tenant, digest } => self.quarantine(&tenant, &digest).await,
            Job::Memory { keeper, change, reply } => {
                // Who no longer waits was told that nothing is sure: it is not written late.
                if !reply.is_closed() {
                    let changed = self.change_memory(&keeper, &change).await;
                    let _ = reply.send(changed);
                }
            }
            Job::Flush(reply) => {
                while self.flush().await == Due::More {}
                self.follow_others().await;
                let _ = reply.send(());
            }
            Job::Sweep(now, reply) => {
                while self.sweep(now).await == Due::More {}
                let _ = reply.send(());
            }
            Job::Retry(reply) => {
                self.let_go_of_failed();
                if self.db.is_none() {
                    self.retry().await;
                }
                let _ = reply.send(());
            }
            Job::Close(_) => {}
            #[cfg(test)]
            Job::Pragma(pragma, reply) => {
                if let Some((db, _)) = &mut self.db {
                    sqlx::query(&pragma).execute(db).await.unwrap();
                }
                let _ = reply.send(());
            }
        }
    }

    /// One round of housekeeping; more may be due at once.
    async fn tick(&mut self) -> Due {
        self.let_go_of_failed();
        if self.db.is_none() {
            if self.shared.path.is_some() && Instant::now() >= self.next_try {
                self.retry().await;
            }
            return Due::Nothing;
        }
        self.follow_file().await;
        self.follow_others().await;
        let left = self.flush().await;
        if self.shared.path.as_deref().is_some_and(|path| wal_bytes(path) >= WAL_BYTES_PER_CHECKPOINT) {
            let _ = self.queries.upgrade().map(|queries| queries.try_send(Query::Checkpoint));
        }
        self.ticks_to_sweep = self.ticks_to_sweep.saturating_sub(1);
        if self.ticks_to_sweep == 0 {
            if self.sweep(now()).await == Due::More {
                return Due::More;
            }
            self.ticks_to_sweep = TICKS_PER_SWEEP;
        }
        left
    }

    /// Opens the file and reads what memory needs of it.
    pub(super) async fn open(&mut self, probe: Probe) -> Result<(), OpenError> {
        let Some(path) = self.shared.path.clone() else { return Ok(()) };
        let secret = self.shared.secret();
        let opened = tokio::time::timeout(OPEN_BOUND, sqlite::open(&path, &secret, probe)).await;
        let opened = opened.map_err(|_| OpenError::Slow(path.clone()))??;
        self.db = Some((opened.db, opened.identity));
        self.shared.opened(opened.secret);
        self.backoff = FIRST_RETRY;
        self.changes = -1;
        self.follow_others().await;
        self.restore_learned().await;
        Ok(())
    }

    async fn retry(&mut self) {
        match self.open(Probe::Room).await {
            Ok(()) => tracing::info!(file = ?self.shared.path, "store recovered"),
            Err(error) => {
                tracing::debug!(%error, "store still degraded");
                self.next_try = Instant::now() + self.backoff;
                self.backoff = (self.backoff * 2).min(LAST_RETRY);
            }
        }
    }

    /// After the first opening failed: the loop retries.
    pub(super) fn start_degraded(&mut self, error: &OpenError) {
        tracing::warn!(%error, "store degraded from the start");
        self.next_try = Instant::now() + self.backoff;
    }

    fn let_go_of_failed(&mut self) {
        if self.db.is_some() && self.shared.health() == Health::Degraded {
            self.db = None;
            self.next_try = Instant::now() + self.backoff;
        }
    }

    /// A file that was deleted or replaced is opened anew at its path; memory stays valid.
    async fn follow_file(&mut self) {
        let Some(path) = &self.shared.path else { return };
        if self.db.as_ref().is_some_and(|(_, open)| identity(path) != Some(*open)) {
            tracing::warn!(file = ?path, "the state file was deleted or replaced: opening it anew");
            self.db = None;
            if let Err(error) = self.open(Probe::None).await {
                self.shared.degrade(&error);
            }
        }
    }

    /// Looks for changes of another process.
    async fn follow_others(&mut self) {
        let Some((db, _)) = &mut self.db else { return };
        let query = sqlx::query("SELECT value FROM meta WHERE key = 'changes'");
        match query.fetch_one(db).await.and_then(|row| row.try_get(0)) {
            Ok(change) if change == self.changes => {}
            Ok(change) => self.read_marks(change),
            Err(error) => self.failed(&error),
        }
    }

    /// A change of this process.
    fn changed(&mut self, change: i64) {
        if change == self.changes + 1 {
            self.changes = change;
        } else {
            self.read_marks(change);
        }
    }

    /// What has no mark may have rows after all: until a reader has read all marks anew, unknown digests
    /// cost a query.
    fn read_marks(&mut self, change: i64) {
        let turn = self.shared.memory().forget_completeness();
        if self.queries.upgrade().is_some_and(|queries| queries.try_send(Query::Marks(turn)).is_ok()) {
            self.changes = change;
        }
    }

    async fn restore_learned(&mut self) {
        let Some((db, _)) = &mut self.db else { return };
        match notes::learned(db, now()).await {
            Ok(entries) => {
                let mut learned = self.shared.learned();
                entries.into_iter().for_each(|(id, entry)| learned.restore(id, entry));
            }
            Err(error) => self.failed(&error),
        }
    }

    async fn commit(&mut self, tenant: &Tenant, batch: &Batch, ticket: &Ticket) -> Result<(), CommitError> {
        self.let_go_of_failed();
        self.follow_file().await;
        let packed = prepare(batch).ok_or(CommitError::Failed)?;
        let owner = Owner { tenant, root: &batch.root, now: now() };
        match self.apply(owner, &packed, ticket).await {
            Ok(Applied::Committed(rows, overlays, change)) => {
                {
                    let mut memory = self.shared.memory();
                    memory.adopt(tenant, &batch.root, rows);
                    memory.overlaid(packed.least_overlaid());
                    memory.adopt_overlays(tenant, &packed.overlaid(), overlays);
                }
                self.changed(change);
                Ok(())
            }
            Ok(Applied::GivenUp) => Err(CommitError::Slow),
            Err(error) if is_busy(&error) => Err(CommitError::Slow),
            Err(error) => {
                self.failed(&error);
                Err(CommitError::Failed)
            }
        }
    }

    async fn apply(&mut self, owner: Owner<'_>, packed: &Packed, ticket: &Ticket) -> Result<Applied, sqlx::Error> {
        let Some((db, _)) = &mut self.db else { return Err(sqlx::Error::PoolClosed) };
        bounded(apply(db, owner, packed, ticket)).await
    }

    async fn change_memory(&mut self, keeper: &Keeper, change: &Change) -> Changed {
        self.let_go_of_failed();
        self.follow_file().await;
        let Some((db, _)) = &mut self.db else { return Err(MemoryError::Unavailable) };
        match bounded(files::apply(db, keeper, change, now())).await {
            Ok(changed) => changed,
            Err(error) => {
                self.failed(&error);
                Err(MemoryError::Unavailable)
            }
        }
    }

    async fn quarantine(&mut self, tenant: &Tenant, digest: &Digest) {
        let Some((db, _)) = &mut self.db else { return };
        let query = "UPDATE checkpoints SET state = 2 WHERE tenant = ?1 AND digest = ?2 AND level = \
                     (SELECT max(level) FROM checkpoints WHERE tenant = ?1 AND digest = ?2 AND state = 1)";
        let query = sqlx::query(query).bind(tenant.0.as_slice()).bind(digest.as_slice());
        if let Err(error) = bounded(query.execute(db)).await {
            self.failed(&error);
        }
    }

    /// Writes notes and last uses, as many as one transaction should.
    async fn flush(&mut self) -> Due {
        let touched = self.shared.memory().take_touches();
        self.touches.extend(touched);
        let Some((db, _)) = &mut self.db else {
            // Both wait for the file, up to their bounds; memory has them meanwhile.
            if self.touches.len() > MAX_TOUCHES {
                self.touches.clear();
            }
            return Due::Nothing;
        };
        let some = self.notes.len().min(NOTES_PER_FLUSH);
        let notes = self.notes.make_contiguous().get(..some).unwrap_or_default();
        if notes.is_empty() && self.touches.is_empty() {
            return Due::Nothing;
        }
        match bounded(notes::write(db, notes, &self.touches, now())).await {
            Ok(change) => {
                self.notes.drain(..some);
                self.touches.clear();
                self.changed(change);
                if self.notes.is_empty() { Due::Nothing } else { Due::More }
            }
            Err(error) => {
                self.failed(&error);
                Due::Nothing
            }
        }
    }

    /// Writes some of the log, or drops it: it says nothing of the store's health.
    async fn log(&mut self, written: Written) {
        let group = match written {
            Written::Group(group) => group,
            Written::Flush(reply) => {
                let _ = reply.send(());
                return;
            }
        };
        self.let_go_of_failed();
        self.follow_file().await;
        let result = match &mut self.db {
            Some((db, _)) => bounded(log::write(db, &group)).await,
            None => Err(sqlx::Error::PoolClosed),
        };
        if let Err(error) = result {
            tracing::debug!(%error, "messages not logged");
            self.shared.log.dropped(group.messages().max(1));
            self.shared.log.forget();
        }
    }

    async fn sweep(&mut self, now: i64) -> Due {
        let Some((db, _)) = &mut self.db else { return Due::Nothing };
        let retention = i64::try_from(self.shared.limits.retention.as_secs()).unwrap_or(i64::MAX);
        let bounds = Bounds { cutoff: now.saturating_sub(retention), max_size: self.shared.limits.max_size, now };
        match bounded(sweep(db, bounds)).await {
            Ok(swept) => swept,
            Err(error) => {
                self.failed(&error);
                Due::Nothing
            }
        }
    }

    async fn close(&mut self) {
        while self.flush().await == Due::More {}
        if let Some((db, _)) = self.db.take() {
            let _ = db.close().await;
        }
        self.shared.closed();
    }

    fn failed(&mut self, error: &sqlx::Error) {
        if is_busy(error) {
            return;
        }
        self.shared.degrade(error);
        self.let_go_of_failed();
    }
}

/// An operation that hangs loses its connection: its error is none of "busy".
async fn bounded<T>(operation: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    tokio::time::timeout(OPERATION_BOUND, operation).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
}
