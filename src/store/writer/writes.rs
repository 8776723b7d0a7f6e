//! What the writer writes, each in transactions of its own: commits, memory files, notes, the log, and what goes.

use std::time::{Duration, Instant};

use super::{MAX_TOUCHES, NOTES_PER_FLUSH, Writer};
use crate::store::commit::{Applied, Owner, Packed, Ticket, apply};
use crate::store::files::{self, Change, Changed, Keeper, MemoryError};
use crate::store::log::{self, Group, Written, Wrote};
use crate::store::notes;
use crate::store::retention::{Bounds, Due, sweep};
use crate::store::shared::{Keeps, now};
use crate::store::sqlite::is_busy;
use crate::store::{CommitError, Tenant};
use crate::wire::Digest;

/// An operation that takes longer than this has lost its connection.
const OPERATION_BOUND: Duration = Duration::from_secs(10);

/// A failure to write what is late leaves the store to others for this long.
const LATE_RETRY: Duration = Duration::from_secs(30);
/// At the end, whoever holds the file is waited for so long (each try waits as long as any commit does).
const LATE_CLOSE_BOUND: Duration = Duration::from_secs(3);

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
                    memory.adopt_overlays(tenant, &packed.overlaid(), &overlays);
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
        // With another file what was meant for the one that is gone goes too.
        self.follow_file().await;
        if !self.may_write_late() {
            return Due::Nothing;
        }
        match self.try_late().await {
            Some(Ok(())) => Due::More,
            None | Some(Err(CommitError::Slow)) => Due::Nothing,
            Some(Err(CommitError::Failed)) => {
                self.late_again = Instant::now() + LATE_RETRY;
                Due::Nothing
            }
        }
    }

    /// Tries to write the oldest batch that is late. `None`: there is none.
    async fn try_late(&mut self) -> Option<Result<(), CommitError>> {
        let (tenant, packed) = self.shared.late().take()?;
        let tried = self.commit(&tenant, &packed, &Ticket::default()).await;
        match tried {
            Ok(()) => {
                let quarantined = self.shared.late().written();
                if let Some(digest) = quarantined {
                    self.quarantine(&tenant, &digest).await;
                }
            }
            Err(CommitError::Slow) => {}
            Err(CommitError::Failed) => {
                if self.shared.late().failed() {
                    tracing::warn!("a batch that could not be written is kept in memory alone");
                }
            }
        }
        Some(tried)
    }

    fn may_write_late(&self) -> bool {
        self.db.is_some() && Instant::now() >= self.late_again
    }

    /// Writes all that is late, before the store is closed: each batch has its try. Where another process holds the file,
    /// that is waited for.
    pub(super) async fn write_last(&mut self) {
        let until = Instant::now() + LATE_CLOSE_BOUND;
        let left = || until.saturating_duration_since(Instant::now());
        // One that fails comes again behind all others.
        let mut failures = self.shared.late().len();
        while failures > 0 && !left().is_zero() {
            self.follow_file().await;
            if self.db.is_none() && tokio::time::timeout(left(), self.retry()).await.is_err() {
                break;
            }
            match self.try_late().await {
                Some(Err(CommitError::Failed)) => failures -= 1,
                Some(_) => {}
                None => break,
            }
        }
        match self.shared.late().len() {
            0 => {}
            lost => tracing::warn!(lost, "what waited for the store is lost with this process"),
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
        if self.shared.keeps == Keeps::Nothing {
            return Due::Nothing;
        }
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
        let written = match self.log_groups(&groups).await {
            // One of them cannot be written, and takes no other along.
            Ok(Wrote::Nothing(error)) if groups.len() > 1 && !is_busy(&error) => self.log_each(&groups).await,
            Ok(Wrote::Nothing(error)) => {
                self.not_logged(&groups, &error);
                Ok(())
            }
            Ok(Wrote::All) => Ok(()),
            Err(error) => {
                self.not_logged(&groups, &error);
                Err(error)
            }
        };
        if written.is_err() && self.db.is_some() {
            self.open_anew().await;
        }
    }

    /// Writes groups one by one. What cannot be written is lost alone.
    ///
    /// # Errors
    /// Where the connection is of no more use; what was left is lost.
    async fn log_each(&mut self, groups: &[Group]) -> Result<(), sqlx::Error> {
        for (at, group) in groups.iter().enumerate() {
            match self.log_groups(std::slice::from_ref(group)).await {
                Ok(Wrote::All) => {}
                Ok(Wrote::Nothing(error)) => self.not_logged(std::slice::from_ref(group), &error),
                Err(error) => {
                    self.not_logged(groups.get(at..).unwrap_or_default(), &error);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    async fn log_groups(&mut self, groups: &[Group]) -> Result<Wrote, sqlx::Error> {
        let Some((db, _)) = &mut self.db else { return Err(sqlx::Error::PoolClosed) };
        bounded(log::write(db, groups)).await
    }

    /// Later requests of their sessions bring these messages again.
    fn not_logged(&self, groups: &[Group], error: &sqlx::Error) {
        tracing::debug!(%error, "messages not logged");
        self.shared.log.dropped(groups.iter().map(Group::messages).sum::<usize>().max(1));
        groups.iter().for_each(|group| self.shared.log.forget_session(&group.session));
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
