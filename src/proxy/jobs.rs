//! Summaries in the making: one side call for all requests that want the same prefix, however many
//! clients wait for it; it outlives the client that asked first.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::compact::{Checkpoint, Removed};
use crate::store::Tenant;
use crate::wire::Digest;

/// What came of a job: the prepared checkpoint, or nothing.
pub type Made = Option<Prepared>;

/// A summary that was made.
#[derive(Clone)]
pub struct Prepared {
    pub checkpoint: Arc<Checkpoint>,
    /// The texts it took out, where the store does not have them yet.
    pub texts: Arc<[Removed]>,
}

/// At most this many summaries are made at once; further ones are not begun.
pub const MAX_RUNNING: usize = 64;

type Key = (Tenant, Digest);
type Running = HashMap<Key, watch::Receiver<Option<Made>>>;

/// The jobs under way, by tenant and the digest of the prefix they summarize.
#[derive(Default)]
pub struct Jobs {
    running: Arc<Mutex<Running>>,
}

impl Jobs {
    /// Joins the job for this prefix, or begins it with `work`. `None`: too many are running, in all or of this tenant.
    ///
    /// A tenant (which is one upstream's) has no more of them than places are free: whoever's calls hang leaves as much
    /// room as it takes, and always some for who has none.
    pub fn join<F>(&self, key: Key, work: impl FnOnce() -> F) -> Option<Ticket>
    where
        F: Future<Output = Made> + Send + 'static,
    {
        let mut running = lock(&self.running);
        if let Some(job) = running.get(&key) {
            return Some(Ticket(job.clone()));
        }
        let own = running.keys().filter(|(tenant, _)| *tenant == key.0).count();
        if own >= MAX_RUNNING.saturating_sub(running.len()) {
            return None;
        }
        let (sender, receiver) = watch::channel(None);
        running.insert(key, receiver.clone());
        drop(running);
        let done = Done { running: Arc::clone(&self.running), key };
        let work = work();
        tokio::spawn(async move {
            let made = work.await;
            drop(done);
            sender.send_replace(Some(made));
        });
        Some(Ticket(receiver))
    }
}

fn lock(running: &Mutex<Running>) -> MutexGuard<'_, Running> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes a job from the list, also when its task is dropped or panics.
struct Done {
    running: Arc<Mutex<Running>>,
    key: Key,
}

impl Drop for Done {
    fn drop(&mut self) {
        lock(&self.running).remove(&self.key);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tenant: u8, number: usize) -> Key {
        (Tenant([tenant; 16]), *blake3::hash(&number.to_le_bytes()).as_bytes())
    }

    /// Begins so many jobs that never end; how many were begun.
    fn hang(jobs: &Jobs, tenant: u8, number: usize) -> usize {
        (0..number).filter(|n| jobs.join(key(tenant, *n), std::future::pending).is_some()).count()
    }

    #[tokio::test]
    async fn who_hangs_leaves_room_for_the_others() {
        let jobs = Jobs::default();
        assert_eq!(hang(&jobs, 1, 200), MAX_RUNNING / 2);
        assert!(jobs.join(key(1, 0), std::future::pending).is_some(), "one that runs is joined all the same");
        assert_eq!(hang(&jobs, 2, 200), MAX_RUNNING / 4);
        let begun: Vec<usize> = (3..9).map(|tenant| hang(&jobs, tenant, 200)).collect();
        assert_eq!(begun, [8, 4, 2, 1, 1, 0], "and at last everything is taken");
        assert_eq!(lock(&jobs.running).len(), MAX_RUNNING);
    }

    #[tokio::test]
    async fn what_has_ended_gives_its_place_back() {
        let jobs = Jobs::default();
        for round in 0..3 * MAX_RUNNING {
            let ticket = jobs.join(key(1, round), || async { None }).expect("a place");
            assert!(ticket.wait(Duration::from_secs(60)).await.is_none());
        }
        let failing = jobs.join(key(1, 0), || async { panic!("as it should") }).unwrap();
        assert!(failing.wait(Duration::from_secs(60)).await.is_none());
        assert!(lock(&jobs.running).is_empty());
    }
}
