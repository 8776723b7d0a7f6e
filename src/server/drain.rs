//! The graceful end: connections learn that no further request is wanted and finish what they have.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Tells the connections of one shard to finish.
#[derive(Default)]
pub struct Drain {
    begun: AtomicBool,
    notify: Notify,
}

impl Drain {
    pub fn begin(&self) {
        self.begun.store(true, Ordering::Release);
        self.notify.notify_waiters();
    }

    /// A flag that costs one load to read.
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// Ready at [`begin`](Self::begin), if made before it.
    pub fn notified(&self) -> Notified<'_> {
        self.notify.notified()
    }
}

/// SIGXFSZ, the same number on Linux, macOS and the BSDs.
const SIGXFSZ: i32 = 25;

/// From now on a file at the process's size limit (`ulimit -f`, `LimitFSIZE`) is a failed write like a full disk's
/// (EFBIG): the signal that comes with it would end the process.
pub fn size_limit() -> std::io::Result<Signal> {
    signal(SignalKind::from_raw(SIGXFSZ))
}

/// Completes at SIGTERM or SIGINT.
pub async fn stop() -> std::io::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
