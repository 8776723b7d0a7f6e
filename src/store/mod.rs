//! State: removed texts, evictions, checkpoints, what went whole, learned numbers.
//! One narrow interface over an embedded database with byte-capped caches in front.
//! Nothing here panics or waits without a bound; a failed store degrades (L8).
//!
//! The database runs on a thread of the store's own: one writer, two readers, and three for the session log. Callers on
//! any runtime talk to them over bounded channels.

mod batch;
mod cache;
mod commit;
mod door;
mod files;
mod flushes;
mod held;
mod late;
mod learned;
mod limits;
pub mod log;
mod lookups;
mod marks;
mod memory;
mod migrations;
mod notes;
mod overlays;
mod reader;
mod reads;
mod retention;
mod row;
mod secret;
mod session;
mod shared;
mod sqlite;
#[cfg(test)]
mod tests;
mod texts;
mod thread;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::compact::{TextId, TextKey};
use crate::wire::Digest;

pub use batch::{Batch, Lasting, Stage};
use commit::{Packed, Ticket};
pub use files::{
    MAX_AGENT_BYTES, MAX_FILE_BYTES, MAX_TENANT_BYTES, MAX_TENANT_FILES, MemoryEntry, MemoryError, Rewrite,
};
pub use flushes::{Flush, Said, Waiting};
pub use learned::{LearnedWindow, ToolUse, ToolUseKey, WindowKey};
pub use limits::Limits;
pub use lookups::Until;
use notes::Note;
pub use overlays::{FoundOverlays, Overlay, OverlayKind};
use reader::Query;
pub use shared::now;
use shared::{Keeps, Shared};
pub use sqlite::OpenError;
use thread::Start;
use writer::Job;

/// A batch is committed within this time, once it is packed, or does not count (L5), in the default limits.
pub const COMMIT_BOUND: Duration = Duration::from_millis(250);
/// Rows that are not in memory are waited for this long, in the default limits; then the request goes on without
/// them. Longer than for a commit: what is known and not found in time breaks the provider's cache, which costs more
/// than the wait.
pub const LOOKUP_BOUND: Duration = Duration::from_secs(1);
/// Texts of a batch that are compressed on the caller's thread: a tenth of a millisecond.
const PACKED_INLINE: usize = 64 * 1024;
/// A text is waited for this long.
pub const TEXT_BOUND: Duration = Duration::from_secs(5);
/// Closing waits this long for what is queued.
pub const CLOSE_BOUND: Duration = Duration::from_secs(5);

/// A tenant: a keyed hash of its credential. All rows are keyed by it (L7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tenant(pub [u8; 16]);

/// A batch that was not committed; the rows do not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    #[error("the store did not commit within its time bound")]
    Slow,
    #[error("the store is read-only, full or gone")]
    Failed,
}

/// A text that cannot be read now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error("the store does not answer")]
    Unavailable,
    #[error("the stored text is damaged")]
    Damaged,
    #[error("it took too long: narrow it")]
    Late,
    #[error("the proxy's buffers are full: try again later")]
    NoRoom,
}

/// What `/readyz` and metrics say of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// No strategy is on: there is no store.
    Off,
    Up,
    Degraded,
}

/// The store. Shared by all runtimes of the process.
pub struct Store {
    shared: Arc<Shared>,
    jobs: mpsc::Sender<Job>,
    notes: mpsc::Sender<Note>,
    lookups: mpsc::Sender<Query>,
    texts: mpsc::Sender<Query>,
    log_in: mpsc::Sender<log::Given>,
    log_pages: mpsc::Sender<log::LogQuery>,
    log_searches: mpsc::Sender<log::LogQuery>,
}

impl Store {
    /// Opens (or creates, mode 0600) the file of `sqlite://PATH`, for a command that needs it.
    ///
    /// # Errors
    /// Whatever is wrong with it, and what to do.
    pub async fn open(url: &str, limits: Limits) -> Result<Arc<Self>, OpenError> {
        thread::start(Some(sqlite::path_of(url)?), limits, Start::OpenOrFail).await
    }

    /// The same for a command that only reads: what is not there is not created.
    ///
    /// # Errors
    /// Also if there is no such file.
    pub async fn open_existing(url: &str, limits: Limits) -> Result<Arc<Self>, OpenError> {
        let path = sqlite::path_of(url)?;
        match std::fs::metadata(&path) {
            Ok(_) => Self::open(url, limits).await,
            Err(source) => Err(OpenError::File { path, source }),
        }
    }

    /// The same for serving: a file that cannot be used leaves the store degraded, everything
    /// volatile, and is tried again in the background.
    ///
    /// # Errors
    /// Only if `url` names no file at all, or the system gives no thread or no randomness.
    pub async fn serve(url: &str, limits: Limits) -> Result<Arc<Self>, OpenError> {
        thread::start(Some(sqlite::path_of(url)?), limits, Start::OpenOrRetry).await
    }

    /// The same for a command that shows what serving would do: what is committed is this process's alone, and the file
    /// stays as it is. Where there is none, none is created.
    ///
    /// # Errors
    /// Also if another version has written the file.
    pub async fn rehearse(url: &str, limits: Limits) -> Result<Arc<Self>, OpenError> {
        let path = sqlite::path_of(url)?;
        let there = sqlite::is_there(&path)?;
        thread::start(Some(path).filter(|_| there), limits, Start::ReadOrFail).await
    }

    /// A store without a file: commits fail, what recovery holds lives as long as the process.
    ///
    /// # Errors
    /// If the system gives no thread or no randomness.
    pub async fn in_memory_only(limits: Limits) -> Result<Arc<Self>, OpenError> {
        thread::start(None, limits, Start::OpenOrRetry).await
    }

    /// The tenant that these parts name (upstream, credential, …); their boundaries count.
    pub fn tenant(&self, parts: &[&[u8]]) -> Tenant {
        self.shared.secret().tenant(parts)
    }

    /// The key of a tenant's text ids.
    pub fn text_key(&self, tenant: &Tenant) -> TextKey {
        self.shared.secret().text_key(tenant)
    }

    pub fn health(&self) -> Health {
        self.shared.health()
    }

    /// Commits that wait to be written, those among them that went out already.
    pub fn queued(&self) -> usize {
        self.jobs.max_capacity() - self.jobs.capacity() + self.shared.late().len()
    }

    /// Notes that were dropped because their queue was full.
    pub fn dropped_notes(&self) -> u64 {
        self.shared.dropped_notes()
    }

    /// Writes a batch in one transaction. After success read [`known`](Self::known) anew: another
    /// writer may have been first.
    ///
    /// # Errors
    /// The rows do not exist and will not: what the batch wanted to remove goes whole.
    pub async fn commit(&self, tenant: &Tenant, batch: Batch) -> Result<(), CommitError> {
        if self.health() != Health::Up {
            return Err(CommitError::Failed);
        }
        if batch.is_empty() {
            return Ok(());
        }
        if self.shared.keeps == Keeps::Nothing {
            self.hold_in_memory(tenant, &batch);
            return Ok(());
        }
        let packed = self.pack(tenant, batch).await.ok_or(CommitError::Failed)?;
        let weight = packed.weight();
        let result = self.commit_bounded(tenant, packed).await;
        match result {
            Ok(()) => self.shared.was_quick(),
            Err(CommitError::Slow) => self.shared.was_slow(weight),
            Err(CommitError::Failed) => {}
        }
        result
    }

    /// A batch in its stored form, a long one made so where it delays nobody. It takes as long as it takes: the bound
    /// is the writer's. `None`: it is over the store's limits.
    async fn pack(&self, tenant: &Tenant, mut batch: Batch) -> Option<Packed> {
        self.shared.memory().prefer_held(tenant, &mut batch);
        if batch.text_bytes() <= PACKED_INLINE {
            return commit::prepare(&batch);
        }
        tokio::task::spawn_blocking(move || commit::prepare(&batch)).await.ok()?
    }

    async fn commit_bounded(&self, tenant: &Tenant, packed: Packed) -> Result<(), CommitError> {
        let ticket = Arc::new(Ticket::default());
        let (reply, mut answer) = oneshot::channel();
        let packed = Box::new(packed);
        let job = Job::Commit { tenant: *tenant, packed, ticket: Arc::clone(&ticket), reply };
        self.jobs.try_send(job).map_err(|_| CommitError::Slow)?;
        match timeout(self.shared.limits.commit_bound, &mut answer).await {
            Ok(answer) => answer.unwrap_or(Err(CommitError::Failed)),
            Err(_) if ticket.give_up() => Err(CommitError::Slow),
            // It was committed in this very moment.
            Err(_) => answer.await.unwrap_or(Err(CommitError::Failed)),
        }
    }

    /// Keeps a batch that goes out though it could not be committed (L5): in memory at once, in the database as soon as
    /// that can write it, at the latest when the store is closed.
    pub async fn keep(&self, tenant: &Tenant, batch: Batch) {
        self.hold_in_memory(tenant, &batch);
        if self.shared.path.is_none() {
            return;
        }
        let Some(packed) = self.pack(tenant, batch).await else {
            return tracing::warn!("a batch over the store's limits is kept in memory alone");
        };
        match self.shared.late().push(*tenant, packed) {
            0 => {}
            lost => tracing::warn!(lost, "too much waits for the store: batches are kept in memory alone"),
        }
    }

    /// Keeps a batch for this process only. What is stored already stays.
    pub fn hold_in_memory(&self, tenant: &Tenant, batch: &Batch) {
        self.shared.memory().hold(tenant, batch);
    }

    /// Remembers that a request with this conversation went out. Known at once; what is to last is written
    /// behind.
    pub fn remember_forwarded(&self, tenant: &Tenant, chain: &[Digest], lasting: Lasting) {
        let (Some(root), Some(digest)) = (chain.first(), chain.last()) else { return };
        let known = {
            let mut memory = self.shared.memory();
            let known = memory.was_forwarded(tenant, digest);
            memory.remember_forwarded(tenant, chain);
            known
        };
        if !known && lasting == Lasting::Yes {
            self.note(Note::Forwarded { tenant: *tenant, root: *root, digest: *digest });
        }
    }

    /// An aside is in use: where there are many under its digest, others go first.
    pub fn used_overlay(&self, tenant: &Tenant, overlay: &Overlay) {
        if self.shared.memory().note_overlay(tenant, overlay) {
            let (digest, variant) = (overlay.digest, overlay.variant());
            self.note(Note::Used { tenant: *tenant, digest, variant });
        }
    }

    /// Whether any conversation may have an overlay.
    pub fn may_overlay(&self) -> bool {
        self.shared.memory().may_overlay()
    }

    /// Whether a row may apply to a body of so many bytes. While it is not known what the database holds, one
    /// may to any.
    pub fn may_cover(&self, bytes: usize) -> bool {
        self.shared.memory().may_cover(bytes)
    }

    /// The checkpoint that applies at this digest (the deepest) never applies again.
    pub fn quarantine(&self, tenant: &Tenant, digest: &Digest) {
        self.shared.memory().quarantine(tenant, digest);
        self.shared.late().quarantine(tenant, digest);
        if self.jobs.try_send(Job::Quarantine { tenant: *tenant, digest: *digest }).is_err() {
            self.shared.dropped();
        }
    }

    /// The removed text with this id, exactly; `None` if there is none.
    ///
    /// # Errors
    /// If the database does not answer within [`TEXT_BOUND`] or the text is damaged.
    pub async fn text(&self, id: &TextId) -> Result<Option<String>, ReadError> {
        if let Some(text) = self.shared.memory().text(id) {
            return Ok(Some(text.as_ref().to_owned()));
        }
        let late = self.shared.late().text(id);
        if let Some((packed, length)) = late {
            let unpacked = tokio::task::spawn_blocking(move || texts::unpack_text(&packed, length as i64)).await;
            return unpacked.map_err(|_| ReadError::Unavailable)?.map(Some).map_err(|_| ReadError::Damaged);
        }
        if self.shared.path.is_none() {
            return Ok(None);
        }
        let (reply, answer) = oneshot::channel();
        self.texts.try_send(Query::Text { id: *id, reply }).map_err(|_| ReadError::Unavailable)?;
        let answer = timeout(self.shared.limits.text_bound(), answer).await.map_err(|_| ReadError::Unavailable)?;
        answer.unwrap_or(Err(ReadError::Unavailable))
    }

    /// Whether anything of a tenant's was stored: it has sent a request that was looked at. `false` if the database
    /// does not answer within [`TEXT_BOUND`].
    pub async fn is_seen(&self, tenant: &Tenant) -> bool {
        let tenant = *tenant;
        self.query(|reply| Query::Seen { tenant, reply }).await.unwrap_or(false)
    }

    fn note(&self, note: Note) {
        let kept = self.shared.path.is_some() && self.shared.keeps == Keeps::All;
        if kept && self.notes.try_send(note).is_err() {
            self.shared.dropped();
        }
    }

    /// Waits until all that was noted so far is written, or cannot be.
    pub async fn flush(&self) {
        self.ask(Job::Flush).await;
    }

    /// Tries a failed file again now rather than at the next retry.
    pub async fn retry_now(&self) {
        self.ask(Job::Retry).await;
    }

    /// Removes all that is due at a time (unix seconds) rather than piecemeal in the background.
    pub async fn sweep_at(&self, now: i64) {
        self.ask(|reply| Job::Sweep(now, reply)).await;
    }

    /// Writes what is queued and closes the file, within [`CLOSE_BOUND`]. Later commits fail.
    pub async fn close(&self) {
        let written = async {
            self.flush_log().await;
            self.ask(Job::Close).await;
        };
        let _ = timeout(CLOSE_BOUND, written).await;
    }

    async fn ask(&self, job: impl FnOnce(writer::Reply<()>) -> Job) {
        let (reply, done) = oneshot::channel();
        if self.jobs.send(job(reply)).await.is_ok() {
            let _ = done.await;
        }
    }
}
