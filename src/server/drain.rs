//! The graceful end: connections learn that no further request is wanted and finish what they have.

use std::sync::atomic::{AtomicBool, Ordering};

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

/// Completes at SIGTERM or SIGINT.
pub async fn signal() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
