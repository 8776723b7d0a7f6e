//! The writer's connection: opened, lost, opened anew, and what changes when that happens.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection, Row as _};

use super::{FIRST_RETRY, LAST_RETRY, OPEN_BOUND, Writer};
use crate::store::Health;
use crate::store::notes::{self, Note};
use crate::store::reader::Query;
use crate::store::shared::{Keeps, now};
use crate::store::sqlite::{self, OpenError, Probe, is_busy};

/// A connection closes within this time, or within that of a commit if that is longer, or is given up.
const CLOSE_BOUND: Duration = Duration::from_secs(1);
/// A file that another process has to itself is tried again, so far apart, within the bound of an opening.
const BETWEEN_OPENINGS: Duration = Duration::from_millis(20);

/// Steps of the database's machine between two signs that it gets on: some milliseconds.
const STEPS: i32 = 100_000;

/// That a long statement gets on.
pub(super) struct Signs {
    pub(super) begun: Instant,
    /// When the last one was given, in milliseconds from then on.
    pub(super) last: Arc<AtomicU64>,
}

impl Signs {
    async fn of(db: &mut SqliteConnection) -> Self {
        let (begun, last) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let given = Arc::clone(&last);
        if let Ok(mut handle) = db.lock_handle().await {
            handle.set_progress_handler(STEPS, move || {
                given.store(millis(begun), Ordering::Relaxed);
                true
            });
        }
        Self { begun, last }
    }

    /// For as long as an opening may take.
    pub(super) fn are_missing(&self) -> bool {
        let silent = millis(self.begun).saturating_sub(self.last.load(Ordering::Relaxed));
        Duration::from_millis(silent) >= OPEN_BOUND
    }
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// What has to be done by the end of an opening.
async fn in_time<T>(
    path: &Path,
    until: Instant,
    work: impl Future<Output = Result<T, OpenError>>,
) -> Result<T, OpenError> {
    match tokio::time::timeout_at(until.into(), work).await {
        Ok(done) => done,
        Err(_) => Err(OpenError::Slow(path.to_owned())),
    }
}

impl Writer {
    /// Opens the file and reads what memory needs of it. Another process that opens or closes it has it to itself for a
    /// while, which is waited for.
    pub(in crate::store) async fn open(&mut self, probe: Probe) -> Result<(), OpenError> {
        self.open_until(probe, Instant::now() + OPEN_BOUND).await
    }

    /// One bound for all that an opening does, however often it is tried.
    pub(super) async fn open_until(&mut self, probe: Probe, until: Instant) -> Result<(), OpenError> {
        loop {
            match self.open_now(probe, until).await {
                Err(error) if error.is_busy() && Instant::now() < until => tokio::time::sleep(BETWEEN_OPENINGS).await,
                opened => return opened,
            }
        }
    }

    async fn open_now(&mut self, probe: Probe, until: Instant) -> Result<(), OpenError> {
        let Some(path) = self.shared.path.clone() else { return Ok(()) };
        let shared = Arc::clone(&self.shared);
        let connecting = async {
            let alone = shared.door.clear().await;
            self.let_go().await;
            let connected = match shared.keeps {
                Keeps::All => Some(sqlite::connect(&path).await?),
                Keeps::Nothing => None,
            };
            Ok((alone, connected))
        };
        let (alone, connected) = in_time(&path, until, connecting).await?;
        let opened = match connected {
            Some(mut connected) => {
                // What takes as long as there is to be done does not count.
                let begun = Instant::now();
                self.migrate(&path, &mut connected.db).await?;
                let until = until + begun.elapsed();
                in_time(&path, until, sqlite::make_ready(&path, connected, &shared.secret(), probe)).await?
            }
            None => in_time(&path, until, sqlite::look_into(&path)).await?,
        };
        self.db = Some((opened.db, opened.files));
        self.shared.opened(opened.files, opened.secret);
        drop(alone);
        self.backoff = FIRST_RETRY;
        let last = std::mem::replace(&mut self.changes, -1);
        self.follow_others().await;
        // Fewer changes than before: another file, or an earlier state of the same.
        if self.changes < last {
            self.shared.memory().forget_rows();
        }
        self.restore_learned().await;
        Ok(())
    }

    /// Brings the schema up to date. However much there is to be rewritten, that goes on for as long as it gets on. The
    /// store is degraded meanwhile, and who waits for the first opening need wait no longer.
    async fn migrate(&mut self, path: &Path, db: &mut SqliteConnection) -> Result<(), OpenError> {
        let signs = Signs::of(db).await;
        self.told(path, &signs, sqlite::bring_up(path, db)).await?;
        if let Ok(mut handle) = db.lock_handle().await {
            handle.remove_progress_handler();
        }
        Ok(())
    }

    /// Waits for what may take long, and says now and then that it goes on.
    async fn told(
        &mut self,
        path: &Path,
        signs: &Signs,
        migrating: impl Future<Output = Result<(), OpenError>>,
    ) -> Result<(), OpenError> {
        let mut migrating = std::pin::pin!(migrating);
        let mut patience = self.shared.limits.migration_patience;
        loop {
            match tokio::time::timeout(patience, &mut migrating).await {
                Ok(migrated) => return migrated,
                Err(_) if signs.are_missing() => return Err(OpenError::Slow(path.to_owned())),
                Err(_) => {}
            }
            patience = OPEN_BOUND;
            let seconds = signs.begun.elapsed().as_secs();
            tracing::warn!(file = ?path, seconds, "the state file is still being brought to this version's schema");
            self.go_on_without(path);
        }
    }

    /// Nobody waits for the opening any more.
    fn go_on_without(&mut self, path: &Path) {
        let migrating = OpenError::Migrating(path.to_owned());
        self.shared.degrade(&migrating);
        if let Some(first) = self.first.take() {
            self.start_degraded(&migrating);
            let _ = first.send(Ok(()));
        }
    }

    pub(super) async fn retry(&mut self) {
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
    pub(in crate::store) fn start_degraded(&mut self, error: &OpenError) {
        tracing::warn!(%error, "store degraded from the start");
        self.next_try = Instant::now() + self.backoff;
    }

    pub(super) async fn let_go_of_failed(&mut self) {
        if self.db.is_some() && self.shared.health() == Health::Degraded {
            self.let_go().await;
            self.next_try = Instant::now() + self.backoff;
        }
    }

    /// Closes the connection and waits until it is closed: whatever it still does with its files is done then.
    pub(super) async fn let_go(&mut self) {
        if let Some((db, _)) = self.db.take()
            && tokio::time::timeout(self.close_bound(), db.close()).await.is_err()
        {
            tracing::warn!(file = ?self.shared.path, "a connection to the state file does not close");
        }
    }

    /// Closes the connection when the readers have closed theirs: the last one to close has the file to itself for a
    /// while, and whoever opens it next finds it free.
    pub(super) async fn let_go_for_good(&mut self) {
        let shared = Arc::clone(&self.shared);
        let _alone = tokio::time::timeout(self.close_bound(), shared.door.clear()).await;
        self.let_go().await;
    }

    fn close_bound(&self) -> Duration {
        CLOSE_BOUND.max(self.shared.limits.commit_bound)
    }

    /// A file that was deleted or replaced, or whose log was, is opened anew at its path. With a database its texts
    /// are gone: memory forgets what points to them. What was written into a log that is gone is copied into its
    /// database when that is closed.
    pub(super) async fn follow_file(&mut self) {
        let Some(path) = &self.shared.path else { return };
        let Some(open) = self.db.as_ref().map(|(_, files)| *files) else { return };
        let there = sqlite::files(path);
        if there == Some(open) {
            return;
        }
        tracing::warn!(file = ?path, "the state file or its log was deleted or replaced: opening it anew");
        if !there.is_some_and(|there| there.is_same_database(open)) {
            self.shared.memory().forget_stored();
            self.shared.late().clear();
            // With the rows that are gone these histories went out, not whole.
            self.notes.retain(|note| !matches!(note, Note::Forwarded { .. }));
            self.changes = -1;
        }
        self.open_anew().await;
    }

    /// Opens the file anew at its path.
    pub(super) async fn open_anew(&mut self) {
        if let Err(error) = self.open(Probe::None).await {
            self.let_go().await;
            self.shared.degrade(&error);
        }
    }

    /// Looks for changes of another process.
    pub(super) async fn follow_others(&mut self) {
        let Some((db, _)) = &mut self.db else { return };
        let query = sqlx::query("SELECT value FROM meta WHERE key = 'changes'");
        match query.fetch_one(db).await.and_then(|row| row.try_get(0)) {
            Ok(change) if change == self.changes => {}
            Ok(change) => self.read_marks(change),
            Err(error) => self.failed(&error).await,
        }
    }

    /// A change of this process.
    pub(super) fn changed(&mut self, change: i64) {
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
            Err(error) => self.failed(&error).await,
        }
    }

    pub(super) async fn failed(&mut self, error: &sqlx::Error) {
        if is_busy(error) {
            return;
        }
        self.shared.degrade(error);
        self.let_go_of_failed().await;
    }
}
