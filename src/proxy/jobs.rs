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
type Running = HashMap<Key, Job>;

/// A summary that is being made.
struct Job {
    made: watch::Receiver<Option<Made>>,
    /// Bytes of the body that it is made of.
    bytes: usize,
}

/// The jobs under way, by tenant and the digest of the prefix they summarize.
pub struct Jobs {
    running: Arc<Mutex<Running>>,
    /// Bytes that all of them may hold; one alone always may.
    most_bytes: usize,
}

impl Jobs {
    pub fn new(most_bytes: usize) -> Self {
        Self { running: Arc::default(), most_bytes }
    }

    /// Joins the job for this prefix, or begins it with `work`, which holds `bytes` as long as it takes. `None`: too many
    /// are running, or hold too much, in all or of this tenant.
    ///
    /// A tenant (which is one upstream's) has no more of them than places are free: whoever's calls hang leaves as much
    /// room as it takes, and always some for who has none. With bytes it is the same.
    pub fn join<F>(&self, key: Key, bytes: usize, work: impl FnOnce() -> F) -> Option<Ticket>
    where
        F: Future<Output = Made> + Send + 'static,
    {
        let mut running = lock(&self.running);
        if let Some(job) = running.get(&key) {
            return Some(Ticket(job.made.clone()));
        }
        let own = || running.iter().filter(|((tenant, _), _)| *tenant == key.0).map(|(_, job)| job.bytes);
        let held: usize = running.values().map(|job| job.bytes).sum();
        let fits = own().sum::<usize>() + bytes <= self.most_bytes.saturating_sub(held) || running.is_empty();
        if own().count() >= MAX_RUNNING.saturating_sub(running.len()) || !fits {
            return None;
        }
        let (sender, receiver) = watch::channel(None);
        running.insert(key, Job { made: receiver.clone(), bytes });
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
        (0..number).filter(|n| jobs.join(key(tenant, *n), 1, std::future::pending).is_some()).count()
    }

    #[tokio::test]
    async fn who_hangs_leaves_room_for_the_others() {
        let jobs = Jobs::new(1 << 20);
        assert_eq!(hang(&jobs, 1, 200), MAX_RUNNING / 2);
        assert!(jobs.join(key(1, 0), 1, std::future::pending).is_some(), "one that runs is joined all the same");
        assert_eq!(hang(&jobs, 2, 200), MAX_RUNNING / 4);
        let begun: Vec<usize> = (3..9).map(|tenant| hang(&jobs, tenant, 200)).collect();
        assert_eq!(begun, [8, 4, 2, 1, 1, 0], "and at last everything is taken");
        assert_eq!(lock(&jobs.running).len(), MAX_RUNNING);
    }

    #[tokio::test]
    async fn what_hangs_holds_a_part_of_the_bytes() {
        let jobs = Jobs::new(100);
        let begun = |tenant: u8, number: usize, bytes: usize| {
            jobs.join(key(tenant, number), bytes, std::future::pending).is_some()
        };
        assert!(begun(1, 0, 500), "one alone, whatever it holds");
        assert!(!begun(2, 0, 1));
        let jobs = Jobs::new(100);
        let begun = |tenant: u8, number: usize, bytes: usize| {
            jobs.join(key(tenant, number), bytes, std::future::pending).is_some()
        };
        assert_eq!([0, 1, 2, 3].map(|number| begun(1, number, 20)), [true, true, true, false]);
        assert!(begun(2, 0, 20) && !begun(2, 1, 20) && begun(3, 0, 20), "as much for who has none");
        assert!(!begun(4, 0, 20) && begun(1, 0, 20), "one that runs is joined all the same");
    }

    #[tokio::test]
    async fn what_has_ended_gives_its_place_back() {
        let jobs = Jobs::new(1 << 20);
        for round in 0..3 * MAX_RUNNING {
            let ticket = jobs.join(key(1, round), 1, || async { None }).expect("a place");
            assert!(ticket.wait(Duration::from_secs(60)).await.is_none());
        }
        let failing = jobs.join(key(1, 0), 1, || async { panic!("as it should") }).unwrap();
        assert!(failing.wait(Duration::from_secs(60)).await.is_none());
        assert!(lock(&jobs.running).is_empty());
    }
}
