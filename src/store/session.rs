//! What the process remembers of one session: what was known of its conversations.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use super::memory::Key;
use super::row::{checkpoint_bytes, eviction_bytes};
use crate::compact::{Checkpoint, Known};
use crate::wire::Digest;

/// Ends of conversations remembered per session: forks, sub-agents and retries side by side.
const TAILS_PER_SESSION: usize = 8;
/// What an eviction costs in each map that has it.
const EVICTION_ENTRY_BYTES: usize = 64;

pub(super) struct Session {
    pub(super) tails: VecDeque<Tail>,
    /// When its last use was written down.
    pub(super) touched: Instant,
    /// What the tails hold, however many of them, and how many bytes that is.
    held: (Vec<usize>, usize),
}

/// What was known of a conversation's first `len` items.
pub(super) struct Tail {
    pub(super) len: usize,
    pub(super) digest: Digest,
    pub(super) known: Known,
}

impl Session {
    pub(super) fn new(touched: Instant) -> Self {
        Self { tails: VecDeque::new(), touched, held: (Vec::new(), 0) }
    }

    /// What the longest tail that `chain` begins with says, and its length.
    pub(super) fn longest_tail(&mut self, chain: &[Digest]) -> Option<(usize, Known)> {
        let fits = |tail: &Tail| tail.len.checked_sub(1).and_then(|last| chain.get(last)) == Some(&tail.digest);
        let fitting = self.tails.iter().enumerate().filter(|(_, tail)| fits(tail));
        let (place, _) = fitting.max_by_key(|(_, tail)| tail.len)?;
        // The latest used are the last to go.
        let tail = self.tails.remove(place)?;
        let found = (tail.len, tail.known.clone());
        self.tails.push_back(tail);
        Some(found)
    }

    pub(super) fn put(&mut self, chain: &[Digest], len: usize, known: &Known) {
        let Some(digest) = len.checked_sub(1).and_then(|last| chain.get(last)) else { return };
        self.tails.retain(|tail| tail.digest != *digest);
        self.tails.push_back(Tail { len, digest: *digest, known: known.clone() });
        if self.tails.len() > TAILS_PER_SESSION {
            self.tails.pop_front();
        }
    }

    /// Estimated bytes in memory, with all that would go with the session: no other cache may have it any more.
    pub(super) fn bytes(&mut self) -> usize {
        let holds: Vec<usize> = self.tails.iter().flat_map(|tail| addresses(&tail.known)).collect();
        // From turn to turn the same rows apply.
        if holds != self.held.0 {
            self.held = (holds, held_bytes(&self.tails));
        }
        size_of::<Key>() + size_of::<Self>() + self.tails.len() * size_of::<Tail>() + self.held.1
    }
}

/// Tells what is held apart.
fn addresses(known: &Known) -> [usize; 4] {
    let of = |checkpoint: &Option<Arc<Checkpoint>>| {
        checkpoint.as_ref().map_or(0, |checkpoint| Arc::as_ptr(checkpoint).addr())
    };
    let remembered = known.remembered.as_ref().map_or(0, |remembered| Arc::as_ptr(remembered).addr());
    [known.evictions.address(), of(&known.active), of(&known.prepared), remembered]
}

/// Bytes of what the tails hold: what they share counts once.
fn held_bytes(tails: &VecDeque<Tail>) -> usize {
    let (mut counted, mut bytes) = (HashSet::new(), 0);
    for Tail { known, .. } in tails {
        if counted.insert(known.evictions.address()) {
            bytes += known.evictions.len() * EVICTION_ENTRY_BYTES;
            let new = known.evictions.iter().filter(|(_, eviction)| counted.insert(Arc::as_ptr(eviction).addr()));
            bytes += new.map(|(_, eviction)| eviction_bytes(eviction)).sum::<usize>();
        }
        let checkpoints = known.active.iter().chain(&known.prepared);
        let new = checkpoints.filter(|checkpoint| counted.insert(Arc::as_ptr(checkpoint).addr()));
        bytes += new.map(|checkpoint| checkpoint_bytes(checkpoint)).sum::<usize>();
        let remembered = known.remembered.iter();
        let new = remembered.filter(|remembered| counted.insert(Arc::as_ptr(remembered).addr()));
        bytes += new.map(|remembered| remembered.text.len()).sum::<usize>();
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compact::{Change, Eviction, Replacement};

    fn known(evictions: &[(u8, &Arc<Eviction>)]) -> Known {
        let evictions = evictions.iter().map(|(digest, eviction)| ([*digest; 32], Arc::clone(eviction))).collect();
        Known { evictions, ..Known::default() }
    }

    /// Rows live as long as a session that has them, whatever the cache of rows has let go of.
    #[test]
    fn a_session_is_charged_once_with_each_row_that_it_holds() {
        let row = || {
            let replacements = vec![Replacement { slot: 0, text: "x".repeat(10_000).into() }];
            Arc::new(Eviction { replacements, tokens: Change::default() })
        };
        let (first, second) = (row(), row());
        let mut session = Session::new(Instant::now());
        let chain: Vec<Digest> = (0..4).map(|n| [n; 32]).collect();
        let empty = session.bytes();
        session.put(&chain, 1, &known(&[(1, &first)]));
        let one = session.bytes();
        assert!(one - empty > 20_000, "text and JSON: {one}");
        session.put(&chain, 2, &known(&[(1, &first)]));
        assert!(session.bytes() - one < 1_000, "the same row");
        session.put(&chain, 3, &known(&[(1, &first), (2, &second)]));
        assert!(session.bytes() - one > 20_000);
        for len in 1..4 {
            session.put(&chain, len, &Known::default());
        }
        assert!(session.bytes() < empty + 1_000, "nothing is held any more");
    }
}
