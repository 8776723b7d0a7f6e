//! State: removed texts, evictions, checkpoints, what went whole, learned numbers.
//! One narrow interface over an embedded database with byte-capped caches in front.
//! Nothing here panics or waits without a bound; a failed store degrades (L8).

pub mod sqlite;

use std::sync::Arc;

use crate::compact::{Checkpoint, Eviction, Removed};
use crate::wire::Digest;

/// A tenant: a keyed hash of its credential. All rows are keyed by it (L7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tenant(pub [u8; 16]);

/// New rows that one request wants. They are written in one transaction, before it is sent (L5).
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub texts: Vec<Removed>,
    /// First-sight evictions by chain digest. A row that exists already stays as it is.
    pub evictions: Vec<(Digest, Arc<Eviction>)>,
    /// A checkpoint with the digest of the history it covers. A row that exists already with the
    /// same state stays as it is: first writer wins.
    pub checkpoint: Option<(Digest, Arc<Checkpoint>, Stage)>,
}

/// A checkpoint's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Made ahead; applies to nothing yet.
    Prepared,
    /// Applies to every request whose chain holds its digest.
    Activated,
}

/// A batch that was not committed; the rows do not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    #[error("the store did not commit within its time bound")]
    Slow,
    #[error("the store is read-only, full or gone")]
    Failed,
}

/// What `/readyz` and metrics say of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// No strategy is on: there is no store.
    Off,
    Up,
    Degraded,
}
