//! What goes out without having been committed, since recovery and the end of an answer do not wait for the database
//! (L5): kept in its stored form, and readable, until the database has it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Tenant;
use super::commit::Packed;
use crate::compact::TextId;
use crate::wire::Digest;

/// A batch that failed so often is not tried again: each time the database is opened anew.
const MOST_TRIES: u32 = 5;

/// Batches that wait to be written, the oldest first.
pub(super) struct Late {
    batches: VecDeque<LateBatch>,
    bytes: usize,
    /// Most bytes of all, in their stored form.
    limit: usize,
}

struct LateBatch {
    tenant: Tenant,
    packed: Arc<Packed>,
    /// Its checkpoint was given up meanwhile.
    quarantined: bool,
    /// How often it could not be written.
    tries: u32,
}

impl Late {
    pub(super) fn new(limit: usize) -> Self {
        Self { batches: VecDeque::new(), bytes: 0, limit }
    }

    pub(super) fn len(&self) -> usize {
        self.batches.len()
    }

    /// Takes a batch in; gives how many, of the oldest, had to go for it.
    pub(super) fn push(&mut self, tenant: Tenant, packed: Packed) -> usize {
        self.bytes += packed.bytes();
        self.batches.push_back(LateBatch { tenant, packed: Arc::new(packed), quarantined: false, tries: 0 });
        let before = self.batches.len();
        while self.bytes > self.limit && self.pop().is_some() {}
        before - self.batches.len()
    }

    /// The oldest.
    pub(super) fn first(&self) -> Option<(Tenant, Arc<Packed>)> {
        self.batches.front().map(|batch| (batch.tenant, Arc::clone(&batch.packed)))
    }

    /// The database has `packed`. The digest of its checkpoint if that was given up meanwhile.
    pub(super) fn written(&mut self, packed: &Arc<Packed>) -> Option<Digest> {
        // Others may have pushed it out.
        if !self.batches.front().is_some_and(|batch| Arc::ptr_eq(&batch.packed, packed)) {
            return None;
        }
        self.pop().filter(|batch| batch.quarantined).and_then(|batch| batch.packed.checkpoint())
    }

    /// Forgets all of them: the database that they were meant for is gone.
    pub(super) fn clear(&mut self) {
        self.batches.clear();
        self.bytes = 0;
    }

    /// A batch could not be written: those behind it come first, and after some tries it is given up, which is `true`.
    pub(super) fn failed(&mut self, packed: &Arc<Packed>) -> bool {
        if !self.batches.front().is_some_and(|batch| Arc::ptr_eq(&batch.packed, packed)) {
            return false;
        }
        let Some(mut batch) = self.pop() else { return false };
        batch.tries += 1;
        if batch.tries == MOST_TRIES {
            return true;
        }
        self.bytes += batch.packed.bytes();
        self.batches.push_back(batch);
        false
    }

    fn pop(&mut self) -> Option<LateBatch> {
        let batch = self.batches.pop_front()?;
        self.bytes -= batch.packed.bytes();
        Some(batch)
    }

    /// A checkpoint never applies again.
    pub(super) fn quarantine(&mut self, tenant: &Tenant, digest: &Digest) {
        for batch in &mut self.batches {
            batch.quarantined |= batch.tenant == *tenant && batch.packed.checkpoint() == Some(*digest);
        }
    }

    /// A text's stored form, and its length in bytes.
    pub(super) fn text(&self, id: &TextId) -> Option<(Vec<u8>, usize)> {
        self.batches.iter().find_map(|batch| batch.packed.text(id))
    }
}
