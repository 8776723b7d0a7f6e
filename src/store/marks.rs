//! Which digests have rows at all: 64 bits each, so that unknown digests never reach the database.

use std::collections::HashSet;

use crate::wire::Digest;

use super::Tenant;

/// A set of 64-bit marks with a cap. A mark stands for a (tenant, digest) pair; two pairs share one
/// with a chance of 2⁻⁶⁴, which costs a query or leaves one result uncut, never more.
pub(super) struct Marks {
    recent: HashSet<u64>,
    older: HashSet<u64>,
    cap: usize,
    complete: bool,
    /// Marks were pushed out by the cap.
    forgot: bool,
}

/// The mark of a digest of a tenant: both are hashes already.
pub(super) fn mark(tenant: &Tenant, digest: &Digest) -> u64 {
    half(&tenant.0) ^ half(digest)
}

fn half(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

impl Marks {
    /// An empty set of at most `cap` marks (at least two), taken for complete if `complete`.
    pub(super) fn new(cap: usize, complete: Completeness) -> Self {
        let complete = complete == Completeness::Complete;
        Self { recent: HashSet::new(), older: HashSet::new(), cap: cap.max(2), complete, forgot: false }
    }

    pub(super) fn insert(&mut self, mark: u64) {
        if self.older.contains(&mark) {
            return;
        }
        self.recent.insert(mark);
        // The older half goes when the newer one is full: what is in use is marked anew by its next commit,
        // and until then the database is asked.
        if self.recent.len() > self.cap / 2 {
            let forgotten = std::mem::replace(&mut self.older, std::mem::take(&mut self.recent));
            self.forgot |= !forgotten.is_empty();
        }
    }

    pub(super) fn clear(&mut self) {
        self.recent.clear();
        self.older.clear();
    }

    pub(super) fn holds(&self, mark: u64) -> bool {
        self.recent.contains(&mark) || self.older.contains(&mark)
    }

    /// Whether a mark that is not held is known to have no row.
    pub(super) fn is_complete(&self) -> bool {
        self.complete && !self.forgot
    }

    /// Whether all that the database holds was inserted, be some of it forgotten since.
    pub(super) fn is_covering(&self) -> bool {
        self.complete
    }

    /// Says whether all that the database holds was inserted; what the cap pushed out is not forgotten.
    pub(super) fn set(&mut self, complete: Completeness) {
        self.complete = complete == Completeness::Complete;
    }
}

/// Whether marks cover all that the database holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Completeness {
    Complete,
    Partial,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn up_to_half_the_cap_twice_it_stays_complete() {
        let mut marks = Marks::new(4, Completeness::Complete);
        (1..=5).for_each(|mark| marks.insert(mark));
        assert!(marks.is_complete() && (1..=5).all(|mark| marks.holds(mark)));
        marks.insert(6);
        assert!(!marks.is_complete(), "the third generation pushes the first out");
        assert!(!marks.holds(1) && marks.holds(4) && marks.holds(6));
        (7..1_000).for_each(|mark| marks.insert(mark));
        assert!(marks.recent.len() + marks.older.len() <= 5);
    }

    #[test]
    fn tenants_have_marks_of_their_own() {
        assert_ne!(mark(&Tenant([1; 16]), &[7; 32]), mark(&Tenant([2; 16]), &[7; 32]));
    }
}
