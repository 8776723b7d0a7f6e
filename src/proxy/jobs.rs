//! Summaries in the making: one side call for all requests that want the same prefix, however many
//! clients wait for it; it outlives the client that asked first.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use tokio::sync::watch;

use crate::compact::{Checkpoint, Removed};
use crate::store::Tenant;
use crate::wire::Digest;

/// What came of a job: the prepared checkpoint, or nothing.
pub type Made = Option<Prepared>;

/// A summary that was made.
#[derive(Debug, Clone)]
pub struct Prepared {
    pub checkpoint: Arc<Checkpoint>,
    /// The texts it took out, where the store does not have them yet.
    pub texts: Arc<[Removed]>,
}

/// At most this many summaries are made at once; further ones are not begun.
pub const MAX_RUNNING: usize = 64;

type Running = Arc<DashMap<(Tenant, Digest), watch::Receiver<Option<Made>>>>;

/// The jobs under way, by tenant and the digest of the prefix they summarize.
#[derive(Default)]
pub struct Jobs {
    running: Running,
}

impl Jobs {
    /// Joins the job for this prefix, or begins it with `work`. `None`: too many are running.
    pub fn join<F>(&self, key: (Tenant, Digest), work: impl FnOnce() -> F) -> Option<Ticket>
    where
        F: Future<Output = Made> + Send + 'static,
    {
        let full = self.running.len() >= MAX_RUNNING;
        let slot = match self.running.entry(key) {
            Entry::Occupied(running) => return Some(Ticket(running.get().clone())),
            Entry::Vacant(_) if full => return None,
            Entry::Vacant(slot) => slot,
        };
        let (sender, receiver) = watch::channel(None);
        slot.insert(receiver.clone());
        let done = Done { running: self.running.clone(), key };
        let work = work();
        tokio::spawn(async move {
            let made = work.await;
            drop(done);
            sender.send_replace(Some(made));
        });
        Some(Ticket(receiver))
    }
}

/// Removes a job from the list, also when its task is dropped or panics.
struct Done {
    running: Running,
    key: (Tenant, Digest),
}

impl Drop for Done {
    fn drop(&mut self) {
        self.running.remove(&self.key);
    }
}

/// A place in the queue for a job's result.
pub struct Ticket(watch::Receiver<Option<Made>>);

impl Ticket {
    /// Waits for the result, at most `patience`; `None` also when the job's task died.
    pub async fn wait(mut self, patience: Duration) -> Made {
        let made = tokio::time::timeout(patience, self.0.wait_for(Option::is_some)).await;
        made.ok()?.ok()?.clone().flatten()
    }
}
