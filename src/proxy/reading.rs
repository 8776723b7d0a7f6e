//! Reading removed texts back: how many at once, within what memory, on which threads. The one way to them for the
//! reserved paths and for the model's tools.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::budget::{Budget, Permit};
use super::memory::mirror::Mirrors;
use super::recent::Recent;
use super::workers::Workers;
use crate::compact::TextId;
use crate::store::{ReadError, Store, Tenant};

/// Reads in one second of one tenant, and of all together of whom nothing is known.
pub const READS_A_SECOND: u32 = 100;
/// Reads in one second of all clients together: more than one of them may use up.
pub const ALL_READS_A_SECOND: u32 = 1_000;
/// Pages that are cut or searched at once; others wait.
pub const MAX_PAGES: usize = 2;
/// Tenants that are known to have been seen; others cost a query.
const MAX_SEEN: usize = 10_000;

/// How many reads one second admits.
#[derive(Debug, Clone, Copy)]
pub struct Shares {
    pub each: u32,
    pub all: u32,
}

impl Default for Shares {
    fn default() -> Self {
        Self { each: READS_A_SECOND, all: ALL_READS_A_SECOND }
    }
}

/// Who reads: whose share it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Who {
    /// A tenant that has sent something to a model through the proxy.
    Seen(Tenant),
    /// Whoever else reaches the port, with or without a credential: one share for all of them.
    Anyone,
}

/// What all reading shares.
pub struct Reading {
    pub store: Arc<Store>,
    /// Where changes of memory go on to.
    pub mirrors: Arc<Mirrors>,
    budget: Arc<Budget>,
    reads: Mutex<PerSecond>,
    seen: Mutex<Recent<Tenant, ()>>,
    pages: Workers,
}

/// Room for what is read, taken before it is and given back when nobody has it any more.
#[derive(Clone)]
pub struct Room(Arc<Mutex<Permit>>);

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
        Self::with(store, budget, Shares::default())
    }

    /// With other shares than those of serving.
    pub fn with(store: Arc<Store>, budget: Arc<Budget>, shares: Shares) -> Self {
        let (reads, seen) = (Mutex::new(PerSecond::new(Instant::now(), shares)), Mutex::new(Recent::new(MAX_SEEN)));
        let mirrors = Arc::new(Mirrors::new(Arc::clone(&store)));
        Self { store, mirrors, budget, reads, seen, pages: Workers::new(MAX_PAGES) }
    }

    /// The first of these tenants of which something was seen.
    pub async fn first_seen(&self, tenants: &[Tenant]) -> Option<Tenant> {
        for tenant in tenants {
            if lock(&self.seen).contains(*tenant) || self.store.is_seen(tenant).await {
                lock(&self.seen).insert(*tenant, ());
                return Some(*tenant);
            }
        }
        None
    }

    /// Counts a read.
    ///
    /// # Errors
    /// [`Unread::TooMany`]
    pub fn admit(&self, who: Who) -> Result<(), Unread> {
        if lock(&self.reads).admit(who, Instant::now()) { Ok(()) } else { Err(Unread::TooMany) }
    }

    /// Does something with a removed text, on a thread where it may take its time.
    ///
    /// # Errors
    /// Why it could not be read.
    pub async fn text<T: Send + 'static>(
        &self,
        who: Who,
        id: TextId,
        work: impl FnOnce(&str) -> T + Send + 'static,
    ) -> Result<T, Unread> {
        self.admit(who)?;
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
        let room = self.room();
        if room.take(bytes) { self.work_in(room, work).await } else { Err(Unread::Full) }
    }

    /// The same with what was read into a room.
    ///
    /// # Errors
    /// [`Unread::Failed`]
    pub async fn work_in<T: Send + 'static>(
        &self,
        room: Room,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Unread> {
        let work = move || {
            let _room = room;
            work()
        };
        self.pages.run(work).await.ok_or(Unread::Failed)
    }

    /// Room for nothing yet.
    pub fn room(&self) -> Room {
        Room(Arc::new(Mutex::new(Permit::empty(&self.budget))))
    }
}

impl Room {
    /// Whether so many bytes more have room.
    #[must_use]
    pub fn take(&self, bytes: usize) -> bool {
        lock(&self.0).grow(bytes)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts what happens within the current second. Never more entries than reads in one.
struct PerSecond {
    shares: Shares,
    start: Instant,
    /// Whole seconds since the start.
    second: u64,
    all: u32,
    of: HashMap<Who, u32>,
}

impl PerSecond {
    fn new(start: Instant, shares: Shares) -> Self {
        Self { shares, start, second: 0, all: 0, of: HashMap::new() }
    }

    /// Whether one more of theirs may happen at this time.
    fn admit(&mut self, who: Who, at: Instant) -> bool {
        let second = at.saturating_duration_since(self.start).as_secs();
        if second != self.second {
            (self.second, self.all) = (second, 0);
            self.of.clear();
        }
        if self.all >= self.shares.all {
            return false;
        }
        let count = self.of.entry(who).or_default();
        if *count >= self.shares.each {
            return false;
        }
        *count += 1;
        self.all += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_second_admits_to_each_its_share_and_nobody_uses_up_anothers() {
        let start = Instant::now();
        let mut reads = PerSecond::new(start, Shares::default());
        let who = |n: u8| Who::Seen(Tenant([n; 16]));
        let mut admitted = |who: Who, at: Instant| (0..2_000).filter(|_| reads.admit(who, at)).count() as u32;
        assert_eq!(admitted(Who::Anyone, start), READS_A_SECOND);
        assert_eq!(admitted(who(1), start), READS_A_SECOND, "whatever those do of whom nothing is known");
        let others: u32 = (2..200).map(|n| admitted(who(n), start)).sum();
        assert_eq!(others, ALL_READS_A_SECOND - 2 * READS_A_SECOND, "all together");
        let later = start + Duration::from_secs(1);
        assert_eq!(admitted(who(1), later), READS_A_SECOND);
        assert!(reads.of.len() == 1 && reads.all == READS_A_SECOND);
    }

    #[tokio::test]
    async fn only_who_was_seen_has_a_share() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("state.db").display());
        let store = Store::open(&url, crate::store::Limits::default()).await.unwrap();
        let reading = Reading::new(Arc::clone(&store), Budget::new(1 << 20));
        let (known, unknown) = (store.tenant(&[b"known"]), store.tenant(&[b"unknown"]));
        assert_eq!(reading.first_seen(&[unknown, known]).await, None);
        store.remember_forwarded(&known, &[[1; 32], [2; 32]], crate::store::Lasting::Yes);
        store.flush().await;
        assert_eq!(reading.first_seen(&[unknown, known]).await, Some(known));
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
            assert_eq!(reading.text(Who::Anyone, removed.id, str::len).await, expected);
            assert_eq!(reading.text(Who::Anyone, TextId([1; 16]), str::len).await, Err(Unread::Unknown));
            assert_eq!(budget.used(), 0);
        }
    }
}
