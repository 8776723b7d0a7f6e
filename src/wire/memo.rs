//! The memory that makes known history cheap: a known prefix costs one hash, a known item no parse.
//!
//! It holds three things, each under a hash of the exact bytes it was read from, salted per tenant:
//! what precedes a conversation's first item, runs of items from the first one on, and single items.
//! Whatever is read through it equals what reading afresh gives.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::conversation::{Dialect, Facts, Fields, Item};
use super::generations::{Generations, Key, Space};
use super::prefixes::{Prefixes, Walk};
use super::scan::Unreadable;

/// A tenant's own salt: nothing remembered under one is found under another.
pub type Salt = [u8; 16];

/// A cap in bytes under which a dozen of sessions of a megabyte stay known, and many more shorter ones.
pub const DEFAULT_BYTES: usize = 12 << 20;
/// A run is remembered once it is this many bytes longer than what was known of it; reading fewer
/// again costs less than remembering them each time.
const WORTH_REMEMBERING: usize = 2 << 10;
/// Runs are remembered up to the last item, up to the one before it, and up to this many before it, since some clients
/// change their latest message, or messages, once more.
const TRAILING: usize = 4;
const FACTS_SHARDS: usize = 8;

/// What is remembered of bodies, shared by all threads. Bounded; the hashes' seed is random per process.
pub struct Memo {
    seed: u64,
    facts: Generations<Arc<Facts>>,
    openings: Prefixes<Opening>,
    runs: Prefixes<Run>,
}

/// What precedes a conversation's first item.
#[derive(Debug, Clone)]
pub(super) struct Opening {
    /// The members before the conversation array.
    pub fields: Fields,
    /// Leading system/developer messages within the array.
    pub lead: Vec<Range<usize>>,
    /// Offset of the conversation's `[` or `"`.
    pub array: usize,
    /// Offset of the first item's first byte, or behind the array's `]` if there is no item.
    pub end: usize,
    pub content: Content,
}

/// What a conversation is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// An array with at least one item behind its lead.
    Items,
    /// An array without.
    Nothing,
    /// One string, from `array` to `end`.
    Text,
}

/// The first `count` items, whose ranges begin at `base`.
#[derive(Debug)]
struct Run {
    items: Arc<[Item]>,
    count: usize,
    base: usize,
}

/// The memory as one tenant's requests of one dialect see it.
#[derive(Clone, Copy)]
pub(super) struct Memory<'m> {
    memo: &'m Memo,
    space: Space,
}

/// Items of a body, and how many bytes of them were known.
pub(super) struct KnownRun {
    pub items: Vec<Item>,
    /// Bytes from the first item to the end of the last known one; 0 if none is known.
    pub len: usize,
    walk: Walk,
}

impl Memo {
    /// A memory of at most `max_bytes` (approximate); 0 remembers nothing.
    pub fn new(max_bytes: usize) -> Self {
        let random = RandomState::new().build_hasher().finish();
        let for_openings = max_bytes / 8;
        let for_runs = max_bytes / 2;
        Self {
            seed: random,
            facts: Generations::new(max_bytes - for_openings - for_runs, FACTS_SHARDS),
            openings: Prefixes::new(for_openings),
            runs: Prefixes::new(for_runs),
        }
    }

    pub(super) fn of(&self, salt: Salt, dialect: Dialect) -> Memory<'_> {
        Memory { memo: self, space: Space { salt, dialect } }
    }
}

impl Memory<'_> {
    pub fn dialect(self) -> Dialect {
        self.space.dialect
    }

    /// The longest known opening that `body` begins with. What follows it may still be no item, or one
    /// that belongs to the lead.
    pub fn opening(self, body: &[u8]) -> Option<Arc<Opening>> {
        self.memo.openings.find(body, &self.walk()).map(|found| found.value)
    }

    /// Remembers what precedes the items of `body`.
    pub fn remember_opening(self, body: &[u8], opening: Arc<Opening>) {
        if opening.content == Content::Items {
            let (end, weight) = (opening.end, opening.weight());
            self.memo.openings.remember(body, &mut self.walk(), end, (opening, weight));
        }
    }

    /// The longest known run of items at the start of `region`, which begins at byte `base` of the body.
    pub fn run(self, region: &[u8], base: usize) -> KnownRun {
        let walk = self.walk();
        let Some(found) = self.memo.runs.find(region, &walk) else {
            return KnownRun { items: Vec::new(), len: 0, walk };
        };
        let run = &found.value;
        let items = run.items.iter().take(run.count).map(|item| item.moved(run.base, base)).collect();
        KnownRun { items, len: found.len, walk: found.walk }
    }

    /// Remembers the run of `items` at the start of `region`, of which `known` was known before.
    pub fn remember(self, region: &[u8], base: usize, items: &[Item], known: KnownRun) {
        let len = |count: usize| Some(items.get(count.checked_sub(1)?)?.span.end - base);
        let counts = [TRAILING, 1, 0].map(|trailing| items.len().saturating_sub(trailing));
        let worth = known.len + WORTH_REMEMBERING;
        let ends: Vec<_> = counts.into_iter().filter_map(|n| Some((n, len(n).filter(|len| *len >= worth)?))).collect();
        if ends.is_empty() {
            return;
        }
        // The runs share the items; any one of them may be the last that holds them.
        let weight = items.iter().map(Item::weight).sum::<usize>();
        let items: Arc<[Item]> = items.into();
        let mut walk = known.walk;
        for (count, len) in ends {
            let run = Arc::new(Run { items: Arc::clone(&items), count, base });
            self.memo.runs.remember(region, &mut walk, len, (run, weight + size_of::<Run>()));
        }
    }

    /// The facts of an item, as they were read before or read now.
    pub fn facts(self, raw: &[u8]) -> Result<Arc<Facts>, Unreadable> {
        let key = Key { space: self.space, hash: xxh3_128_with_seed(raw, self.memo.seed) };
        if let Some(facts) = self.memo.facts.get(&key) {
            return Ok(facts);
        }
        let facts = Arc::new(self.space.dialect.facts(raw)?);
        self.memo.facts.insert(key, Arc::clone(&facts), facts.weight());
        Ok(facts)
    }

    fn walk(self) -> Walk {
        Walk::new(self.space, self.memo.seed)
    }
}

impl Opening {
    fn weight(&self) -> usize {
        let ranges = self.lead.len() + self.fields.overhead.len() + self.fields.max_output.len();
        size_of::<Self>() + self.fields.members.len() * 80 + ranges * size_of::<Range<usize>>()
    }
}

impl Item {
    fn weight(&self) -> usize {
        size_of::<Self>() + self.facts.weight()
    }

    /// This item in a body where what began at `from` begins at `to`.
    fn moved(&self, from: usize, to: usize) -> Self {
        let moved = |offset: usize| offset - from + to;
        Self { span: moved(self.span.start)..moved(self.span.end), ..self.clone() }
    }
}

impl Facts {
    /// Approximate bytes held.
    fn weight(&self) -> usize {
        let calls: usize = self.calls.iter().map(|call| size_of_val(call) + call.id.len() + call.name.len() + 32).sum();
        let results: usize = self.results.iter().map(|id| size_of_val(id) + id.len() + 16).sum();
        size_of::<Self>()
            + size_of_val(&*self.slots)
            + size_of_val(&*self.media)
            + size_of_val(&*self.signed)
            + calls
            + results
            + 32
    }
}
