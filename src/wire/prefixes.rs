//! Finding the longest remembered prefix of some bytes in one hashing pass, without knowing its length.
//!
//! The bytes are hashed from the start. At fixed offsets, the boundaries, the hash so far names a
//! node, which says at what lengths before the next boundary remembered prefixes end, and whether any
//! goes on behind it. Where none does the pass ends. A prefix counts only if the hash of exactly its
//! bytes is known.

use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use super::generations::{Generations, Key, Space};

/// The first boundary; shorter prefixes are not remembered, reading them costs as little.
pub(super) const FIRST_BOUNDARY: usize = 1 << 10;
/// Boundaries double up to this distance, then it is the distance between them.
const BOUNDARY_STEP: usize = 16 << 10;
/// How many prefixes may end between two boundaries of the same bytes; the latest used stay.
const MAX_ENDS: usize = 16;
/// Approximate weight of a node.
const NODE_BYTES: usize = 128 + MAX_ENDS * size_of::<usize>();

/// Values remembered under prefixes of bytes.
pub(super) struct Prefixes<T> {
    nodes: Generations<Arc<Node>>,
    values: Generations<Arc<T>>,
}

#[derive(Debug, Clone, Default)]
struct Node {
    /// Lengths at which prefixes end before the next boundary, the latest used last.
    ends: Vec<usize>,
    /// Some prefix reaches the next boundary.
    goes_on: bool,
}

/// A place in the hashing pass.
#[derive(Clone)]
pub(super) struct Walk {
    space: Space,
    hasher: Xxh3,
    at: usize,
    /// The node of the last boundary passed.
    node: Option<Key>,
}

impl Walk {
    /// At the start of some bytes.
    pub fn new(space: Space, seed: u64) -> Self {
        Self { space, hasher: Xxh3::with_seed(seed), at: 0, node: None }
    }

    fn advance(&mut self, bytes: &[u8], to: usize) {
        self.hasher.update(bytes.get(self.at..to).unwrap_or_default());
        self.at = to;
    }

    fn key(&self) -> Key {
        Key { space: self.space, hash: self.hasher.digest128() }
    }
}

/// A remembered prefix.
pub(super) struct Found<T> {
    pub value: Arc<T>,
    /// Length of the prefix.
    pub len: usize,
    /// The pass as it stood there, to remember longer ones from.
    pub walk: Walk,
}

impl<T> Prefixes<T> {
    /// At most `max_bytes` of weight.
    pub fn new(max_bytes: usize) -> Self {
        let for_nodes = max_bytes / 8;
        Self { nodes: Generations::new(for_nodes, 1), values: Generations::new(max_bytes - for_nodes, 1) }
    }

    /// The longest remembered prefix of `bytes`; `start` is a walk at their start.
    pub fn find(&self, bytes: &[u8], start: &Walk) -> Option<Found<T>> {
        let mut walk = start.clone();
        let mut best: Option<Found<T>> = None;
        loop {
            let node = walk.node.map(|key| self.nodes.get(&key).unwrap_or_default());
            let mut ends = node.as_ref().map(|node| node.ends.clone()).unwrap_or_default();
            ends.sort_unstable();
            for end in ends.into_iter().filter(|end| *end <= bytes.len()) {
                walk.advance(bytes, end);
                if let Some(value) = self.values.get(&walk.key()) {
                    best = Some(Found { value, len: end, walk: walk.clone() });
                }
            }
            let boundary = boundary_after(walk.at);
            if boundary > bytes.len() || node.is_some_and(|node| !node.goes_on) {
                break;
            }
            walk.advance(bytes, boundary);
            walk.node = Some(walk.key());
        }
        if let Some(found) = &best {
            self.ends_at(found.walk.node, found.len);
        }
        best
    }

    /// Remembers `value` under the first `len` bytes, walking there; `walk` must not be behind that.
    pub fn remember(&self, bytes: &[u8], walk: &mut Walk, len: usize, value: (Arc<T>, usize)) {
        if len < FIRST_BOUNDARY || len < walk.at || len > bytes.len() {
            return;
        }
        let mut boundary = boundary_after(walk.at);
        while boundary <= len {
            self.goes_on(walk.node);
            walk.advance(bytes, boundary);
            walk.node = Some(walk.key());
            boundary = boundary_after(boundary);
        }
        walk.advance(bytes, len);
        self.ends_at(walk.node, len);
        self.values.insert(walk.key(), value.0, value.1);
    }

    fn goes_on(&self, node: Option<Key>) {
        let Some(key) = node else { return };
        self.nodes.update(key, |node| {
            let mut node = node.unwrap_or_default();
            if !node.goes_on {
                Arc::make_mut(&mut node).goes_on = true;
            }
            (node, NODE_BYTES)
        });
    }

    fn ends_at(&self, node: Option<Key>, len: usize) {
        let Some(key) = node else { return };
        self.nodes.update(key, |node| {
            let mut node = node.unwrap_or_default();
            if node.ends.last() != Some(&len) {
                let ends = &mut Arc::make_mut(&mut node).ends;
                ends.retain(|end| *end != len);
                ends.drain(..(ends.len() + 1).saturating_sub(MAX_ENDS));
                ends.push(len);
            }
            (node, NODE_BYTES)
        });
    }
}

/// The first boundary behind offset `at`.
fn boundary_after(at: usize) -> usize {
    match at {
        _ if at < FIRST_BOUNDARY => FIRST_BOUNDARY,
        _ if at < BOUNDARY_STEP => (at + 1).next_power_of_two(),
        _ => (at / BOUNDARY_STEP + 1) * BOUNDARY_STEP,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::Dialect;

    const SPACE: Space = Space { salt: [0; 16], dialect: Dialect::Chat };

    fn start() -> Walk {
        Walk::new(SPACE, 1)
    }

    fn longest(prefixes: &Prefixes<usize>, bytes: &[u8]) -> Option<usize> {
        prefixes.find(bytes, &start()).map(|found| {
            assert_eq!(*found.value, found.len);
            found.len
        })
    }

    #[test]
    fn boundaries_double_then_step() {
        let mut at = 0;
        let mut seen = Vec::new();
        while at < 50_000 {
            at = boundary_after(at);
            seen.push(at >> 10);
        }
        assert_eq!(seen, [1, 2, 4, 8, 16, 32, 48, 64]);
    }

    #[test]
    fn a_used_end_survives_others_at_the_same_node() {
        let prefixes = Prefixes::new(1 << 20);
        let bytes = vec![b'x'; 2_000];
        prefixes.remember(&bytes, &mut start(), 1_100, (Arc::new(1_100), 0));
        for len in 1_200..1_300 {
            assert_eq!(longest(&prefixes, &bytes[..1_199]), Some(1_100));
            prefixes.remember(&bytes, &mut start(), len, (Arc::new(len), 0));
        }
        assert_eq!(longest(&prefixes, &bytes[..1_199]), Some(1_100));
        assert_eq!(longest(&prefixes, &bytes), Some(1_299));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// For all sets of remembered prefixes of two bodies that part somewhere, the longest that both
        /// bytes and length allow is found, also when each is remembered from the one before.
        #[test]
        fn finds_the_longest_that_matches(
            mut lens in prop::collection::vec(0_usize..80_000, 1..12),
            part in 0_usize..80_000,
            asked in 0_usize..80_000,
        ) {
            let first: Vec<u8> = (0..80_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            let mut second = first.clone();
            second[part] ^= 1;
            lens.sort_unstable();
            let prefixes = Prefixes::new(1 << 24);
            for len in &lens {
                let mut walk = prefixes.find(&first, &start()).map_or_else(start, |found| found.walk);
                prefixes.remember(&first, &mut walk, *len, (Arc::new(*len), 10));
            }
            let best = |limit: usize| {
                lens.iter().copied().filter(|len| *len <= limit && *len >= FIRST_BOUNDARY).max()
            };
            prop_assert_eq!(longest(&prefixes, &first[..asked]), best(asked));
            prop_assert_eq!(longest(&prefixes, &second[..asked]), best(asked.min(part)));
        }
    }
}
