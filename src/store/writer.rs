//! The one writer: a loop over commits, notes and housekeeping on the store's own thread.

mod opening;
mod writes;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::sqlite::SqliteConnection;
use tokio::sync::{mpsc, oneshot};

use super::commit::{Packed, Ticket, Weight};
use super::files::{Change, Changed, Keeper};
use super::log::Written;
use super::memory::Key;
use super::notes::Note;
use super::reader::Query;
use super::retention::Due;
use super::shared::{Keeps, Shared, now};
use super::sqlite::{Files, OpenError, wal_bytes};
use super::{CommitError, Tenant};
use crate::wire::Digest;

/// Housekeeping: notes are written, the file is looked at.
const TICK: Duration = Duration::from_millis(500);
/// Ticks between two looks for expired sessions when nothing was due.
const TICKS_PER_SWEEP: u32 = 20;
/// Notes in one transaction, so that a commit never waits long.
const NOTES_PER_FLUSH: usize = 256;
/// Last uses kept for a database that cannot be written.
const MAX_TOUCHES: usize = 4_096;
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
        packed: Box<Packed>,
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
    /// Look whether the file is still the one that is open.
    Follow,
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
    db: Option<(SqliteConnection, Files)>,
    notes: VecDeque<Note>,
    touches: HashSet<Key>,
    backoff: Duration,
    next_try: Instant,
    /// When what went out before it was committed is tried again.
    late_again: Instant,
    /// The last change this process knows of; another one's leaves a gap.
    changes: i64,
    ticks_to_sweep: u32,
    /// Who serves without the file, should its first opening take long.
    pub(super) first: Option<Reply<Result<(), OpenError>>>,
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
            late_again: next_try,
            changes: -1,
            ticks_to_sweep: 0,
            first: None,
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
            Job::Commit { tenant, packed, ticket, reply } => {
                self.shared.writing(packed.weight());
                let result = if ticket.is_given_up() { Ok(()) } else { self.commit(&tenant, &packed, &ticket).await };
                self.shared.writing(Weight::Light);
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
                while self.write_late().await == Due::More {}
                while self.flush().await == Due::More {}
                self.follow_others().await;
                let _ = reply.send(());
            }
            Job::Follow => self.follow_file().await,
            Job::Sweep(now, reply) => {
                while self.sweep(now).await == Due::More {}
                let _ = reply.send(());
            }
            Job::Retry(reply) => {
                self.let_go_of_failed().await;
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
        if self.shared.keeps == Keeps::Nothing {
            return Due::Nothing;
        }
        self.let_go_of_failed().await;
        if self.db.is_none() {
            if self.shared.path.is_some() && Instant::now() >= self.next_try {
                self.retry().await;
            }
            return Due::Nothing;
        }
        self.follow_file().await;
        self.follow_others().await;
        let left = match self.write_late().await {
            Due::More => Due::More,
            Due::Nothing => self.flush().await,
        };
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

    async fn close(&mut self) {
        self.write_last().await;
        while self.flush().await == Due::More {}
        self.let_go_for_good().await;
        self.shared.closed();
    }
}

#[cfg(test)]
mod tests;
