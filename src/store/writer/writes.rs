//! What the writer writes, each in transactions of its own: commits, memory files, notes, the log, and what goes.

use std::time::{Duration, Instant};

use super::{MAX_TOUCHES, NOTES_PER_FLUSH, Writer};
use crate::store::commit::{Applied, Owner, Packed, Ticket, apply};
use crate::store::files::{self, Change, Changed, Keeper, MemoryError};
use crate::store::log::{self, Group, Written};
use crate::store::notes;
use crate::store::retention::{Bounds, Due, sweep};
use crate::store::shared::now;
use crate::store::sqlite::is_busy;
use crate::store::{CommitError, Tenant};
use crate::wire::Digest;

/// An operation that takes longer than this has lost its connection.
const OPERATION_BOUND: Duration = Duration::from_secs(10);

/// A failure to write what is late leaves the store to others for this long.
const LATE_RETRY: Duration = Duration::from_secs(30);

impl Writer {
    pub(super) async fn commit(
        &mut self,
        tenant: &Tenant,
        packed: &Packed,
        ticket: &Ticket,
    ) -> Result<(), CommitError> {
        self.let_go_of_failed().await;
        self.follow_file().await;
        let owner = Owner { tenant, root: &packed.root, now: now() };
        match self.apply(owner, packed, ticket).await {
            Ok(Applied::Committed(rows, overlays, change)) => {
                {
                    let mut memory = self.shared.memory();
                    memory.adopt(tenant, &packed.root, rows);
                    memory.overlaid(packed.least_overlaid());
                    memory.adopt_overlays(tenant, &packed.overlaid(), overlays);
                }
                self.changed(change);
                Ok(())
            }
            Ok(Applied::GivenUp) => Err(CommitError::Slow),
            Err(error) if is_busy(&error) => Err(CommitError::Slow),
            Err(error) => {
                self.failed(&error).await;
                Err(CommitError::Failed)
            }
        }
    }

    /// Writes the oldest batch that went out before it was committed. One that fails is not what others wait for.
    pub(super) async fn write_late(&mut self) -> Due {
        let first = self.shared.late().first();
        let Some((tenant, packed)) = first.filter(|_| self.db.is_some() && Instant::now() >= self.late_again) else {
            return Due::Nothing;
        };
        match self.commit(&tenant, &packed, &Ticket::default()).await {
            Ok(()) => {
                let quarantined = self.shared.late().written(&packed);
                if let Some(digest) = quarantined {
                    self.shared.memory().quarantine(&tenant, &digest);
                    self.quarantine(&tenant, &digest).await;
                }
                Due::More
            }
            Err(CommitError::Slow) => Due::Nothing,
            Err(CommitError::Failed) => {
                self.late_again = Instant::now() + LATE_RETRY;
                Due::Nothing
            }
        }
    }

    async fn apply(&mut self, owner: Owner<'_>, packed: &Packed, ticket: &Ticket) -> Result<Applied, sqlx::Error> {
        let Some((db, _)) = &mut self.db else { return Err(sqlx::Error::PoolClosed) };
        bounded(apply(db, owner, packed, ticket)).await
    }

    pub(super) async fn change_memory(&mut self, keeper: &Keeper, change: &Change) -> Changed {
        self.let_go_of_failed().await;
        self.follow_file().await;
        let Some((db, _)) = &mut self.db else { return Err(MemoryError::Unavailable) };
        match bounded(files::apply(db, keeper, change, now())).await {
            Ok(changed) => changed,
            Err(error) => {
                self.failed(&error).await;
                Err(MemoryError::Unavailable)
            }
        }
    }

    pub(super) async fn quarantine(&mut self, tenant: &Tenant, digest: &Digest) {
        let Some((db, _)) = &mut self.db else { return };
        let query = "UPDATE checkpoints SET state = 2 WHERE tenant = ?1 AND digest = ?2 AND level = \
                     (SELECT max(level) FROM checkpoints WHERE tenant = ?1 AND digest = ?2 AND state = 1)";
        let query = sqlx::query(query).bind(tenant.0.as_slice()).bind(digest.as_slice());
        if let Err(error) = bounded(query.execute(db)).await {
            self.failed(&error).await;
        }
    }

    /// Writes notes and last uses, as many as one transaction should.
    pub(super) async fn flush(&mut self) -> Due {
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
                self.failed(&error).await;
                Due::Nothing
            }
        }
    }

    /// Writes some of the log, or drops it: it says nothing of the store's health.
    pub(super) async fn log(&mut self, written: Written) {
        let groups = match written {
            Written::Groups(groups) => groups,
            Written::Flush(reply) => {
                let _ = reply.send(());
                return;
            }
        };
        self.let_go_of_failed().await;
        self.follow_file().await;
        let result = match &mut self.db {
            Some((db, _)) => bounded(log::write(db, &groups)).await,
            None => Err(sqlx::Error::PoolClosed),
        };
        if let Err(error) = result {
            tracing::debug!(%error, "messages not logged");
            self.shared.log.dropped(groups.iter().map(Group::messages).sum::<usize>().max(1));
            self.shared.log.forget();
            // A failed write may have ended its transaction, and the connection would take it for open for ever.
            if self.db.is_some() && !is_busy(&error) {
                self.open_anew().await;
            }
        }
    }

    pub(super) async fn sweep(&mut self, now: i64) -> Due {
        let Some((db, _)) = &mut self.db else { return Due::Nothing };
        let retention = i64::try_from(self.shared.limits.retention.as_secs()).unwrap_or(i64::MAX);
        let bounds = Bounds { cutoff: now.saturating_sub(retention), max_size: self.shared.limits.max_size, now };
        match bounded(sweep(db, bounds)).await {
            Ok(swept) => {
                if swept.of_session {
                    self.shared.memory().forget_rows();
                }
                swept.logs.iter().for_each(|session| self.shared.log.forget_session(session));
                swept.due
            }
            Err(error) => {
                // Some of it may be gone all the same.
                if !is_busy(&error) {
                    self.shared.log.forget();
                }
                self.failed(&error).await;
                Due::Nothing
            }
        }
    }
}

/// An operation that hangs loses its connection: its error is none of "busy".
async fn bounded<T>(operation: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    tokio::time::timeout(OPERATION_BOUND, operation).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
}
