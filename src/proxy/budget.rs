//! The global cap on what all requests together hold in memory (`max_buffered_bytes`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts held bytes; never over its limit.
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

impl Drop for Permit {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
