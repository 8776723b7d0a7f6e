//! What the process remembers of one session: what was known of its conversations.

use std::collections::VecDeque;
use std::time::Instant;

use super::memory::Key;
use crate::compact::Known;
use crate::wire::Digest;

/// Ends of conversations remembered per session: forks, sub-agents and retries side by side.
const TAILS_PER_SESSION: usize = 8;

pub(super) struct Session {
    pub(super) tails: VecDeque<Tail>,
    /// When its last use was written down.
    pub(super) touched: Instant,
}

/// What was known of a conversation's first `len` items.
pub(super) struct Tail {
    pub(super) len: usize,
    pub(super) digest: Digest,
    pub(super) known: Known,
}

impl Session {
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

    /// Estimated bytes in memory; maps shared between tails are counted with each.
    pub(super) fn bytes(&self) -> usize {
        let tails = self.tails.iter().map(|tail| size_of::<Tail>() + tail.known.evictions.len() * 64);
        size_of::<Key>() + size_of::<Self>() + tails.sum::<usize>()
    }
}
