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
    /// The batch that the writer has in hand.
    writing: Option<LateBatch>,
    /// Of all of them.
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
        Self { batches: VecDeque::new(), writing: None, bytes: 0, limit }
    }

    pub(super) fn len(&self) -> usize {
        self.all().count()
    }

    fn all(&self) -> impl Iterator<Item = &LateBatch> {
        self.writing.iter().chain(&self.batches)
    }

    /// Takes a batch in; gives how many, of the oldest that wait, had to go for it.
    pub(super) fn push(&mut self, tenant: Tenant, packed: Packed) -> usize {
        self.bytes += packed.bytes();
        self.batches.push_back(LateBatch { tenant, packed: Arc::new(packed), quarantined: false, tries: 0 });
        let before = self.batches.len();
        while self.bytes > self.limit && self.pop().is_some() {}
        before - self.batches.len()
    }

    /// Puts the oldest into the writer's hand, which says what becomes of it.
    pub(super) fn take(&mut self) -> Option<(Tenant, Arc<Packed>)> {
        if self.writing.is_none() {
            self.writing = self.batches.pop_front();
        }
        self.writing.as_ref().map(|batch| (batch.tenant, Arc::clone(&batch.packed)))
    }

    fn put_down(&mut self) -> Option<LateBatch> {
        let batch = self.writing.take()?;
        self.bytes -= batch.packed.bytes();
        Some(batch)
    }

    /// The database has what was in hand. The digest of its checkpoint if that was given up meanwhile.
    pub(super) fn written(&mut self) -> Option<Digest> {
        self.put_down().filter(|batch| batch.quarantined).and_then(|batch| batch.packed.checkpoint())
    }

    /// Forgets all of them: the database that they were meant for is gone.
    pub(super) fn clear(&mut self) {
        self.batches.clear();
        self.writing = None;
        self.bytes = 0;
    }

    /// What was in hand could not be written: those behind it come first, and after some tries it is given up, which is
    /// `true`.
    pub(super) fn failed(&mut self) -> bool {
        let Some(mut batch) = self.put_down() else { return false };
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
        for batch in self.writing.iter_mut().chain(&mut self.batches) {
            batch.quarantined |= batch.tenant == *tenant && batch.packed.checkpoint() == Some(*digest);
        }
    }

    /// A text's stored form, and its length in bytes.
    pub(super) fn text(&self, id: &TextId) -> Option<(Vec<u8>, usize)> {
        self.all().find_map(|batch| batch.packed.text(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compact::{Change, Checkpoint, Level};
    use crate::store::{Batch, Stage, commit};

    const TENANT: Tenant = Tenant([1; 16]);

    fn packed(n: u8) -> Packed {
        let checkpoint =
            Checkpoint { level: Level::Fold, covers: 1, head: None, edits: Vec::new(), tokens: Change::default() };
        let checkpoint = Some(([n; 32], Arc::new(checkpoint), Stage::Activated));
        commit::prepare(&Batch { root: [n; 32], checkpoint, ..Batch::default() }).unwrap()
    }

    fn holding(most: usize) -> Late {
        let mut late = Late::new(packed(0).bytes() * most);
        assert_eq!((0..most as u8).map(|n| late.push(TENANT, packed(n))).sum::<usize>(), 0);
        late
    }

    fn in_hand(late: &mut Late) -> Option<Digest> {
        late.take().and_then(|(_, packed)| packed.checkpoint())
    }

    #[test]
    fn what_cannot_be_written_is_given_up_after_five_tries_and_keeps_no_other_waiting() {
        let mut late = holding(2);
        for tries in 1..=MOST_TRIES {
            for n in 0..2 {
                assert_eq!(in_hand(&mut late), Some([n; 32]));
                assert_eq!(late.failed(), tries == MOST_TRIES);
            }
        }
        assert_eq!((late.len(), late.bytes, in_hand(&mut late)), (0, 0, None));
    }

    #[test]
    fn what_is_in_hand_is_given_up_by_nobody_else_and_its_quarantine_is_not_lost() {
        let mut late = holding(2);
        assert_eq!(in_hand(&mut late), Some([0; 32]));
        assert_eq!((late.push(TENANT, packed(2)), late.push(TENANT, packed(3))), (1, 1));
        late.quarantine(&TENANT, &[0; 32]);
        late.quarantine(&Tenant([2; 16]), &[3; 32]);
        assert_eq!((late.written(), in_hand(&mut late)), (Some([0; 32]), Some([3; 32])));
        assert_eq!((late.written(), late.bytes), (None, 0));
    }

    #[test]
    fn a_batch_counts_with_its_keys_and_with_what_was_said_in_it() {
        let said = |text: &str| {
            let messages = vec![([0; 32], text.to_owned())];
            Batch { said: Some(Arc::new(crate::store::Said { agent: "a".into(), messages })), ..Batch::default() }
        };
        let bytes = |batch: Batch| commit::prepare(&batch).unwrap().bytes();
        assert!(bytes(said(&"x".repeat(1_000))) >= bytes(said("")) + 1_000);
        assert!(packed(0).bytes() > packed(0).root.len());
    }
}
