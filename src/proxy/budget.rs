//! The global cap on what all requests together hold in memory (`max_buffered_bytes`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts held bytes. Over its limit are at most those that an answer of several rounds cannot let go
/// ([`Permit::insist`]).
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    used: AtomicUsize,
}

/// A share of the budget, given back on drop.
#[derive(Debug)]
pub struct Permit {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicUsize::new(0) })
    }

    /// Bytes held now.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes that may still be taken.
    pub fn free(&self) -> usize {
        self.limit.saturating_sub(self.used())
    }

    fn add(&self, bytes: usize) -> bool {
        let sum = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).is_ok()
    }
}

impl Permit {
    /// A share of nothing yet.
    pub fn empty(budget: &Arc<Budget>) -> Self {
        Self { budget: Arc::clone(budget), bytes: 0 }
    }

    /// Bytes of this share.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes `bytes` more, or nothing and `false` if that would exceed the limit.
    #[must_use]
    pub fn grow(&mut self, bytes: usize) -> bool {
        let grown = self.budget.add(bytes);
        if grown {
            self.bytes += bytes;
        }
        grown
    }
}

/// Shares that change all the time do so in steps of so many bytes: the count is shared by all threads.
const STEP: usize = 4 * 1024;

impl Permit {
    /// Makes it a share of `bytes`, rounded up to a step. False, and as it was, if that would exceed the limit.
    #[must_use]
    pub fn resize(&mut self, bytes: usize) -> bool {
        let wanted = bytes.next_multiple_of(STEP);
        match wanted.checked_sub(self.bytes) {
            Some(0) => true,
            Some(more) => self.grow(more),
            None => {
                self.budget.used.fetch_sub(self.bytes - wanted, Ordering::Relaxed);
                self.bytes = wanted;
                true
            }
        }
    }

    /// As [`resize`](Self::resize), beyond the limit if need be: of what cannot be let go.
    pub fn insist(&mut self, bytes: usize) {
        if !self.resize(bytes) {
            let more = bytes.saturating_sub(self.bytes);
            self.budget.used.fetch_add(more, Ordering::Relaxed);
            self.bytes += more;
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_that_change_go_by_steps_and_over_the_limit_only_where_they_insist() {
        let budget = Budget::new(3 * STEP);
        let mut share = Permit::empty(&budget);
        assert!(share.resize(1) && budget.used() == STEP);
        assert!(share.resize(STEP) && budget.used() == STEP);
        assert!(share.resize(3 * STEP) && budget.free() == 0);
        assert!(!share.resize(3 * STEP + 1) && budget.used() == 3 * STEP);
        share.insist(3 * STEP + 1);
        assert_eq!((budget.used(), budget.free()), (3 * STEP + 1, 0));
        assert!(!Permit::empty(&budget).grow(1));
        assert!(share.resize(2) && budget.used() == STEP);
        drop(share);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn permits_fill_the_budget_exactly_and_give_it_back() {
        let budget = Budget::new(10);
        let mut one = Permit::empty(&budget);
        let mut two = Permit::empty(&budget);
        assert!(one.grow(6) && two.grow(4));
        assert!(!one.grow(1));
        assert!(!one.grow(usize::MAX));
        drop(two);
        assert_eq!(budget.used(), 6);
        assert!(one.grow(4));
        drop(one);
        assert_eq!(budget.used(), 0);
    }
}
