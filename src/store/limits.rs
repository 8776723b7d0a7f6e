//! The store's bounds (L8).

use std::time::Duration;

use super::writer::OPEN_BOUND;
use super::{COMMIT_BOUND, LOOKUP_BOUND, TEXT_BOUND, log};

/// The store's bounds.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// From a session's last use.
    pub retention: Duration,
    /// Bytes that the database may hold; beyond it the oldest sessions go.
    pub max_size: u64,
    /// Bytes of evictions and checkpoints kept in memory.
    pub row_cache_bytes: usize,
    /// Bytes of "what is known of this conversation" kept in memory, with the rows that apply to it.
    pub session_cache_bytes: usize,
    /// Bytes of texts kept in memory that no database has.
    pub volatile_text_bytes: usize,
    /// Bytes, in their stored form, of batches that went out before they were committed and wait to be written; of more
    /// the oldest last no longer than the process.
    pub max_late_bytes: usize,
    /// Digests with rows known by 8 bytes each; beyond it unknown digests cost a query.
    pub max_row_marks: usize,
    /// Forwarded digests known by 8 bytes each; beyond it unknown digests cost a query.
    pub max_forwarded_marks: usize,
    /// Digests with overlays known by 8 bytes each; beyond it unknown digests cost a query.
    pub max_overlay_marks: usize,
    /// Bytes of overlays kept in memory.
    pub overlay_cache_bytes: usize,
    /// Commits that may wait; more fail as slow.
    pub max_queued_commits: usize,
    /// Notes that may wait to be written; more are dropped and counted.
    pub max_queued_notes: usize,
    /// Bytes of messages that may wait to be logged; more are dropped and counted. One request alone may have more.
    pub max_queued_log_bytes: usize,
    /// Messages known to be logged by 8 bytes each; others cost a query behind the request.
    pub max_log_marks: usize,
    /// A batch is committed within this time or does not count: a request waits for it (L5).
    pub commit_bound: Duration,
    /// Rows that are not in memory are waited for this long; then the request goes on without them.
    pub lookup_bound: Duration,
    /// A search through the log takes this long at most.
    pub search_bound: Duration,
    /// Serving waits this long for a file of an earlier version to be brought to this one's schema; then it begins without.
    pub migration_patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            retention: Duration::from_secs(30 * 24 * 3_600),
            max_size: 10 << 30,
            row_cache_bytes: 6 << 20,
            session_cache_bytes: 4 << 20,
            volatile_text_bytes: 8 << 20,
            max_late_bytes: 64 << 20,
            max_row_marks: 1 << 17,
            max_forwarded_marks: 1 << 18,
            max_overlay_marks: 1 << 16,
            overlay_cache_bytes: 8 << 20,
            max_queued_commits: 256,
            max_queued_notes: 4_096,
            max_queued_log_bytes: 16 << 20,
            max_log_marks: 1 << 17,
            commit_bound: COMMIT_BOUND,
            lookup_bound: LOOKUP_BOUND,
            search_bound: log::SEARCH_BOUND,
            migration_patience: OPEN_BOUND,
        }
    }
}

impl Limits {
    /// Who asks for a text or for the log waits this long at most: [`TEXT_BOUND`], or as long as a look-up may take.
    pub fn text_bound(&self) -> Duration {
        self.lookup_bound.max(TEXT_BOUND)
    }
}
