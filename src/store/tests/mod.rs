//! The store over real files.

mod bounds;
mod commits;
mod deleted;
mod durability;
mod failures;
mod files;
mod flushes;
mod isolation;
mod late;
mod log_bounds;
mod log_branches;
mod log_pages;
#[path = "log.rs"]
mod log_rows;
mod rehearsing;
mod sweeping;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tempfile::TempDir;

use super::*;
use crate::compact::{Change, Checkpoint, Eviction, Head, Known, Level, Replacement};

/// A folder, a store in it, and a tenant.
struct Fixture {
    folder: TempDir,
    store: Arc<Store>,
    tenant: Tenant,
}

impl Fixture {
    /// Waits for the store as long as a loaded machine may take.
    async fn new() -> Self {
        Self::with(patient()).await
    }

    /// Waits as serving does.
    async fn impatient() -> Self {
        Self::with(Limits::default()).await
    }

    async fn with(limits: Limits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&url(folder.path()), limits).await.unwrap();
        let tenant = store.tenant(&[b"openai", b"key"]);
        Self { folder, store, tenant }
    }

    fn url(&self) -> String {
        url(self.folder.path())
    }

    async fn another(&self) -> Arc<Store> {
        Store::open(&self.url(), patient()).await.unwrap()
    }

    async fn known(&self, chain: &[Digest]) -> Known {
        self.store.known(&self.tenant, chain).await
    }

    async fn commit(&self, batch: Batch) -> Result<(), CommitError> {
        self.store.commit(&self.tenant, batch).await
    }

    /// A connection of another process.
    async fn outsider(&self) -> sqlx::sqlite::SqliteConnection {
        sqlite::open_reader(&file(self.folder.path())).await.unwrap()
    }
}

/// Limits for tests that are not about time: on a busy machine the bounds of a store in service are missed now and
/// then.
fn patient() -> Limits {
    let bound = std::time::Duration::from_secs(60);
    Limits { commit_bound: bound, lookup_bound: bound, search_bound: bound, ..Limits::default() }
}

fn file(folder: &Path) -> std::path::PathBuf {
    folder.join("state.db")
}

fn url(folder: &Path) -> String {
    format!("sqlite://{}", file(folder).display())
}

/// The chain of a conversation with `len` items; another `name`, another conversation.
fn chain(name: &str, len: usize) -> Vec<Digest> {
    let mut digest = *blake3::hash(name.as_bytes()).as_bytes();
    let next = |_| {
        digest = *blake3::hash(&digest).as_bytes();
        digest
    };
    (0..len).map(next).collect()
}

fn eviction(text: &str) -> Arc<Eviction> {
    Arc::new(Eviction { replacements: vec![Replacement { slot: 0, text: text.into() }], tokens: Change::default() })
}

fn checkpoint(level: Level, covers: usize, text: &str) -> Arc<Checkpoint> {
    let head = Head { upto: 1, text: text.to_owned(), ..Head::default() };
    Arc::new(Checkpoint { level, covers, head: Some(head), edits: Vec::new(), tokens: Change::default() })
}

/// A batch that evicts the last item of a chain.
fn evicting(chain: &[Digest], text: &str) -> Batch {
    let evictions = vec![(*chain.last().unwrap(), eviction(text))];
    Batch { root: chain[0], evictions, ..Batch::default() }
}

/// A batch with a checkpoint for a whole chain.
fn folding(chain: &[Digest], level: Level, text: &str, stage: Stage) -> Batch {
    let checkpoint = Some((*chain.last().unwrap(), checkpoint(level, chain.len(), text), stage));
    Batch { root: chain[0], checkpoint, ..Batch::default() }
}

fn head(known: Option<&Arc<Checkpoint>>) -> Option<&str> {
    Some(known?.head.as_ref()?.text.as_str())
}
