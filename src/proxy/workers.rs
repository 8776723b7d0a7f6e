//! Threads for what would delay an event loop: reading, counting, cutting, decoding, searching.

use std::sync::Arc;
use std::thread::available_parallelism;

use tokio::sync::Semaphore;

/// Work of one kind; a named number of it runs at once in the process, the rest waits its turn.
pub struct Workers {
    free: Arc<Semaphore>,
}

impl Workers {
    /// At most `most` at once.
    pub fn new(most: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(most.max(1))) }
    }

    /// As many at once as there are cores: more would only take memory and each other's time.
    pub fn one_per_core() -> Self {
        Self::new(available_parallelism().map_or(1, std::num::NonZero::get))
    }

    /// Runs `work` on a thread of its own when its turn comes. `None` if it did not end.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let turn = Arc::clone(&self.free).acquire_owned().await.ok()?;
        let running = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(turn);
            done
        });
        running.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn no_more_run_at_once_than_may() {
        let (workers, running, most) = (Workers::new(2), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let work = || {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            workers.run(move || {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::yield_now();
                running.fetch_sub(1, Ordering::SeqCst);
            })
        };
        let ran = futures_util::future::join_all((0..50).map(|_| work())).await;
        assert!(ran.into_iter().all(|ended| ended.is_some()));
        assert!(most.load(Ordering::SeqCst) <= 2);
        let failed = workers.run(|| panic!("as it should")).await;
        assert!(failed.is_none());
        assert_eq!(workers.run(|| 1).await, Some(1), "a failure gives its turn back");
        assert_eq!(workers.free.available_permits(), 2);
    }
}
