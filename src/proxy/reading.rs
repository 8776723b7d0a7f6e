//! Reading removed texts back: how many at once, within what memory, on which threads. The one way to them for the
//! reserved paths and for the model's tools.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::budget::{Budget, Permit};
use super::workers::Workers;
use crate::compact::TextId;
use crate::store::{ReadError, Store};

/// Reads in one second, of all clients together.
pub const READS_A_SECOND: u32 = 200;
/// Pages that are cut or searched at once; others wait.
pub const MAX_PAGES: usize = 2;

/// What all reading shares.
pub struct Reading {
    pub store: Arc<Store>,
    budget: Arc<Budget>,
    reads: PerSecond,
    pages: Workers,
}

/// Why there is nothing to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    #[error("too many reads of removed texts at once: try again in a second")]
    TooMany,
    #[error("no text is kept under this id")]
    Unknown,
    #[error("{0}")]
    Store(#[from] ReadError),
    #[error("the proxy's buffers are full: try again later")]
    Full,
    #[error("the text could not be searched")]
    Failed,
}

impl Reading {
    pub fn new(store: Arc<Store>, budget: Arc<Budget>) -> Self {
        Self { store, budget, reads: PerSecond::new(READS_A_SECOND), pages: Workers::new(MAX_PAGES) }
    }

    /// Counts a read.
    ///
    /// # Errors
    /// [`Unread::TooMany`]
    pub fn admit(&self) -> Result<(), Unread> {
        if self.reads.admit(Instant::now()) { Ok(()) } else { Err(Unread::TooMany) }
    }

    /// Does something with a removed text, on a thread where it may take its time.
    ///
    /// # Errors
    /// Why it could not be read.
    pub async fn text<T: Send + 'static>(
        &self,
        id: TextId,
        work: impl FnOnce(&str) -> T + Send + 'static,
    ) -> Result<T, Unread> {
        self.admit()?;
        let text = self.store.text(&id).await?.ok_or(Unread::Unknown)?;
        self.work(text.len(), move || work(&text)).await
    }

    /// Does something with so many bytes that were read, on a thread where it may take its time.
    ///
    /// # Errors
    /// [`Unread::Full`] and [`Unread::Failed`]
    pub async fn work<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Unread> {
        let mut permit = Permit::empty(&self.budget);
        if !permit.grow(bytes) {
            return Err(Unread::Full);
        }
        let work = move || {
            let _share = permit;
            work()
        };
        self.pages.run(work).await.ok_or(Unread::Failed)
    }
}

/// Counts what happens within the current second.
struct PerSecond {
    start: Instant,
    most: u32,
    /// The second since the start, and what happened in it.
    now: AtomicU64,
}

impl PerSecond {
    fn new(most: u32) -> Self {
        Self { start: Instant::now(), most, now: AtomicU64::new(0) }
    }

    /// Whether one more may happen at this time.
    fn admit(&self, at: Instant) -> bool {
        let second = at.saturating_duration_since(self.start).as_secs();
        let counted = self.now.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
            let (current, count) = (now >> 32, now & 0xffff_ffff);
            match current == second {
                true if count >= u64::from(self.most) => None,
                true => Some(now + 1),
                false => Some((second << 32) | 1),
            }
        });
        counted.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_second_admits_its_share() {
        let limit = PerSecond::new(2);
        let at = limit.start;
        assert!(limit.admit(at) && limit.admit(at));
        assert!(!limit.admit(at));
        let later = at + Duration::from_secs(1);
        assert!(limit.admit(later) && limit.admit(later) && !limit.admit(later));
    }

    #[tokio::test]
    async fn what_does_not_fit_the_budget_is_not_read() {
        let store = Store::in_memory_only(crate::store::Limits::default()).await.unwrap();
        let tenant = store.tenant(&[b"t"]);
        let removed = store.text_key(&tenant).removed("twelve bytes".to_owned());
        let batch = crate::store::Batch { texts: vec![removed.clone()], ..Default::default() };
        store.hold_in_memory(&tenant, &batch);
        for (bytes, expected) in [(11, Err(Unread::Full)), (12, Ok(12))] {
            let budget = Budget::new(bytes);
            let reading = Reading::new(Arc::clone(&store), Arc::clone(&budget));
            assert_eq!(reading.text(removed.id, str::len).await, expected);
            assert_eq!(reading.text(TextId([1; 16]), str::len).await, Err(Unread::Unknown));
            assert_eq!(budget.used(), 0);
        }
    }
}
