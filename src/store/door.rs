//! Who may have the state file open: the readers while the writer has it, and nobody while the writer opens it.
//!
//! SQLite finds a database's log by name. Were a connection opened, or closed, while the file of that name is deleted
//! and made anew, it could come to one file with the log of the other, or take the new one's log away. So the writer
//! opens when all connections of this process are closed, and readers open only what the writer has opened.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, watch};

use super::held::Held;
use super::sqlite::Files;

pub(super) struct Door {
    /// Readers have it while they are connected, the writer while it opens.
    room: Arc<RwLock<()>>,
    /// Changes when readers are to leave.
    calls: watch::Sender<u64>,
    /// What the writer has opened, and a hold on it.
    open: Mutex<Option<(Files, Option<Held>)>>,
}

/// A reader is connected, or about to be.
pub(super) type Inside = OwnedRwLockReadGuard<()>;
/// Nobody is connected.
pub(super) type Alone = OwnedRwLockWriteGuard<()>;

impl Door {
    pub(super) fn new() -> Self {
        Self { room: Arc::default(), calls: watch::Sender::new(0), open: Mutex::new(None) }
    }

    /// Waits until the writer does not open.
    pub(super) async fn enter(&self) -> Inside {
        Arc::clone(&self.room).read_owned().await
    }

    /// Asks the readers to leave and waits until they have.
    pub(super) async fn clear(&self) -> Alone {
        self.calls.send_modify(|calls| *calls += 1);
        Arc::clone(&self.room).write_owned().await
    }

    /// Changes whenever readers are to leave.
    pub(super) fn calls(&self) -> watch::Receiver<u64> {
        self.calls.subscribe()
    }

    /// What the writer has opened; `None` before it has opened anything.
    pub(super) fn open(&self) -> Option<Files> {
        self.lock().as_ref().map(|(files, _)| *files)
    }

    /// The writer has opened these files at a path.
    pub(super) fn opened(&self, path: &Path, files: Files) {
        *self.lock() = Some((files, Held::new(path, files)));
    }

    /// Whether the database that the writer has opened was deleted or replaced: what was read from it points nowhere.
    pub(super) fn is_gone(&self) -> bool {
        self.if_gone(|| ())
    }

    /// The same, and `then`, before the writer can have opened another.
    pub(super) fn if_gone(&self, then: impl FnOnce()) -> bool {
        let open = self.lock();
        let gone = open.as_ref().and_then(|(_, held)| held.as_ref()).is_some_and(Held::is_gone);
        if gone {
            then();
        }
        gone
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Files, Option<Held>)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
