//! What the store's callers and its threads have in common.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use super::commit::Weight;
use super::door::Door;
use super::late::Late;
use super::learned::Learned;
use super::memory::{Alone, Memory};
use super::secret::InstallationSecret;
use super::sqlite::Files;
use super::{Health, Limits, log};

/// What becomes of what is given to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeps {
    /// It is written to the file.
    All,
    /// It is this process's alone: the file is read, and stays as it is.
    Nothing,
}

/// Commits or lookups that miss their bound one after the other before the store counts as failed.
const MAX_SLOW_IN_A_ROW: u32 = 3;

pub(super) struct Shared {
    /// `None`: there is no file.
    pub(super) path: Option<PathBuf>,
    pub(super) limits: Limits,
    pub(super) keeps: Keeps,
    pub(super) log: log::Shared,
    memory: Mutex<Memory>,
    learned: Mutex<Learned>,
    late: Mutex<Late>,
    secret: RwLock<InstallationSecret>,
    degraded: AtomicBool,
    /// Queries met no database since it was last opened for writing.
    unreadable: AtomicBool,
    slow: AtomicU32,
    /// The writer has a heavy batch in hand: others wait behind it.
    heavy: AtomicBool,
    slow_lookups: AtomicU32,
    /// Notes that found their queue full.
    dropped: AtomicU64,
    pub(super) door: Door,
}

impl Shared {
    pub(super) fn new(path: Option<PathBuf>, limits: Limits, secret: InstallationSecret) -> Self {
        let alone = if path.is_some() { Alone::No } else { Alone::Yes };
        Self {
            log: log::Shared::new(&limits),
            memory: Mutex::new(Memory::new(&limits, alone)),
            learned: Mutex::new(Learned::new()),
            late: Mutex::new(Late::new(limits.max_late_bytes)),
            secret: RwLock::new(secret),
            degraded: AtomicBool::new(true),
            unreadable: AtomicBool::new(true),
            slow: AtomicU32::new(0),
            heavy: AtomicBool::new(false),
            slow_lookups: AtomicU32::new(0),
            dropped: AtomicU64::new(0),
            door: Door::new(),
            path,
            limits,
            keeps: Keeps::All,
        }
    }

    /// The same, for a store that writes nothing: without a file it has all that there is.
    pub(super) fn rehearsing(self) -> Self {
        let degraded = AtomicBool::new(self.path.is_some());
        Self { keeps: Keeps::Nothing, degraded, ..self }
    }

    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn learned(&self) -> MutexGuard<'_, Learned> {
        self.learned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn late(&self) -> MutexGuard<'_, Late> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn secret(&self) -> InstallationSecret {
        self.secret.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A note found its queue full.
    pub(super) fn dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn dropped_notes(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(super) fn health(&self) -> Health {
        if self.degraded.load(Ordering::Acquire) { Health::Degraded } else { Health::Up }
    }

    /// The file is open for writing, with this secret.
    pub(super) fn opened(&self, files: Files, secret: InstallationSecret) {
        if let Some(path) = &self.path {
            self.door.opened(path, files);
        }
        *self.secret.write().unwrap_or_else(PoisonError::into_inner) = secret;
        self.slow.store(0, Ordering::Relaxed);
        self.slow_lookups.store(0, Ordering::Relaxed);
        // Another file may lie there now.
        self.log.forget();
        self.unreadable.store(false, Ordering::Release);
        self.degraded.store(false, Ordering::Release);
    }

    /// Until the file is opened anew, commits fail at once.
    pub(super) fn degrade(&self, reason: &dyn std::fmt::Display) {
        if !self.degraded.swap(true, Ordering::AcqRel) {
            tracing::warn!(%reason, file = ?self.path, "store degraded: known rewrites go on from memory, new ones wait");
        }
    }

    pub(super) fn closed(&self) {
        self.degraded.store(true, Ordering::Release);
        self.set_unreadable();
    }

    /// A batch of this weight missed its bound. Where there is much to write that says nothing of the store, neither for
    /// this batch nor for those behind it.
    pub(super) fn was_slow(&self, weight: Weight) {
        if weight == Weight::Heavy || self.heavy.load(Ordering::Acquire) {
            return;
        }
        if self.slow.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_SLOW_IN_A_ROW {
            self.degrade(&"it does not answer in time");
        }
    }

    /// The writer takes up a batch of this weight.
    pub(super) fn writing(&self, weight: Weight) {
        self.heavy.store(weight == Weight::Heavy, Ordering::Release);
    }

    pub(super) fn was_quick(&self) {
        self.slow.store(0, Ordering::Relaxed);
    }

    /// A look-up missed its bound. One may be bad luck on a busy machine.
    pub(super) fn found_too_late(&self) {
        if self.slow_lookups.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_SLOW_IN_A_ROW {
            self.set_unreadable();
            self.degrade(&"queries take too long");
        }
    }

    pub(super) fn found_in_time(&self) {
        self.slow_lookups.store(0, Ordering::Relaxed);
    }

    pub(super) fn set_unreadable(&self) {
        self.unreadable.store(true, Ordering::Release);
    }

    pub(super) fn is_unreadable(&self) -> bool {
        self.unreadable.load(Ordering::Acquire)
    }
}

/// The time in unix seconds.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
