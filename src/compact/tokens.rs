//! Counting input tokens: exact BPE counts of texts, estimates for everything around them.
//!
//! All counts are uncalibrated; [`Calibration`](super::calibration::Calibration) is a factor that the caller applies. A count never
//! exceeds [`bound`], so what cannot reach a threshold by its bytes need not be counted at all.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Deserialize;
use tiktoken_rs::CoreBPE;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::pieces::Pieces;
use crate::wire::{Conversation, Facts, Slot, SlotKind};

/// Tokens that a message costs beside its texts (role and separators, by OpenAI's own counting recipe).
pub const PER_MESSAGE: u64 = 4;

/// Tokens with which the provider opens the answer.
const PRIMER: u64 = 3;

/// Texts longer than this, in bytes, are counted by samples of this size in all, evenly spread: what one
/// text can cost has a bound, and the error stays within what calibration has to mend anyway.
const SAMPLE: usize = 512 * 1024;
const SAMPLES: usize = 64;

/// Counts of texts of this many bytes or more are remembered by a hash of the text.
const REMEMBERED: usize = 256;

/// Counts tokens as one model's vocabulary would. Costs nothing to make; the vocabulary (about 40 MB,
/// a fraction of a second) is loaded at the first text that is counted, once per process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    vocabulary: Vocabulary,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Vocabulary {
    /// GPT-4o and later; the stand-in for every other model, corrected by calibration.
    O200k,
    /// GPT-4 and GPT-3.5.
    Cl100k,
}

/// Upper bound of [`Tokens::total`] from lengths alone: a token has at least one byte.
pub fn bound(conversation: &Conversation<'_>) -> u64 {
    let items = conversation.items.iter().chain(&conversation.settled).map(|item| bound_of(&item.facts));
    let lead = conversation.lead.iter().map(|span| span.len() as u64 + PER_MESSAGE);
    let overhead = conversation.fields.overhead.iter().map(|span| span.len() as u64);
    items.chain(lead).chain(overhead).fold(PRIMER, u64::saturating_add)
}

/// Upper bound of an item's tokens.
pub fn bound_of(facts: &Facts) -> u64 {
    facts.text_bytes as u64 + media(facts) + PER_MESSAGE
}

fn media(facts: &Facts) -> u64 {
    facts.media.iter().map(|media| u64::from(media.tokens)).sum()
}

#[cfg(test)]
thread_local! {
    /// How many texts were counted on this thread: known history must cost none.
    pub static COUNTED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl Default for Tokens {
    fn default() -> Self {
        Self { vocabulary: Vocabulary::O200k }
    }
}

impl Tokens {
    /// The counter for a model as the client names it, provider prefixes included.
    pub fn for_model(model: Option<&str>) -> Self {
        let name = model.and_then(|model| model.rsplit('/').next()).unwrap_or_default();
        let newer = ["gpt-4o", "gpt-4.1", "gpt-4.5"].iter().any(|prefix| name.starts_with(prefix));
        let cl100k = ["gpt-4", "gpt-3.5", "gpt-35-turbo"].iter().any(|prefix| name.starts_with(prefix));
        Self { vocabulary: if cl100k && !newer { Vocabulary::Cl100k } else { Vocabulary::O200k } }
    }

    /// Whether counting can begin at once, without loading the vocabulary.
    pub fn is_loaded(&self) -> bool {
        self.vocabulary.slot().get().is_some()
    }

    /// Tokens of a text. Special-token spellings in it count as ordinary text.
    pub fn count_text(&self, text: &str) -> u64 {
        match text.len() {
            ..REMEMBERED => self.measure_text(text),
            _ => texts().count(hash(text.as_bytes(), self.vocabulary), || self.measure_text(text)),
        }
    }

    fn measure_text(&self, text: &str) -> u64 {
        #[cfg(test)]
        COUNTED.set(COUNTED.get() + 1);
        let Some(core) = self.vocabulary.core() else { return (text.len() as u64).div_ceil(3) };
        if text.len() <= SAMPLE {
            return self.count_pieces(core, text);
        }
        let (mut counted, mut read) = (0, 0);
        for i in 0..SAMPLES {
            let start = text.len() / SAMPLES * i;
            let sample = between(text, start, start + SAMPLE / SAMPLES);
            counted += self.count_pieces(core, sample);
            read += sample.len() as u64;
        }
        (u128::from(counted) * text.len() as u128 / u128::from(read.max(1))) as u64
    }

    fn count_pieces(&self, core: &CoreBPE, text: &str) -> u64 {
        let memo = PIECES.get_or_init(|| Memo::new(1 << 16));
        let measure = |piece: &str| core.encode_ordinary(piece).len() as u64;
        Pieces::of(text).map(|piece| memo.count(hash(piece.as_bytes(), self.vocabulary), || measure(piece))).sum()
    }

    /// Tokens of item `i`; 0 when there is none. Remembered with the item's facts for the common
    /// vocabulary, in a bounded table for the other.
    pub fn count_item(&self, conversation: &Conversation<'_>, i: usize) -> u64 {
        let Some(item) = conversation.items.get(i) else { return 0 };
        match self.vocabulary {
            Vocabulary::O200k => {
                let count = || u32::try_from(self.measure_item(conversation, i)).unwrap_or(u32::MAX);
                u64::from(*item.facts.tokens.get_or_init(count))
            }
            Vocabulary::Cl100k => {
                let hash = hash(conversation.raw(i), self.vocabulary);
                let texts = spans().count(hash, || self.measure_texts(conversation, i));
                (texts + media(&item.facts) + PER_MESSAGE).min(bound_of(&item.facts))
            }
        }
    }

    /// Tokens of the items of a range.
    pub fn count_items(&self, conversation: &Conversation<'_>, range: Range<usize>) -> u64 {
        let range = range.start..range.end.min(conversation.items.len());
        range.map(|i| self.count_item(conversation, i)).sum()
    }

    /// Tokens of what is read beside the items: leading system messages, what is settled, tools, schemas.
    pub fn overhead(&self, conversation: &Conversation<'_>) -> u64 {
        let lead =
            conversation.lead.iter().map(|span| self.count_span(conversation.body, span, lead_text) + PER_MESSAGE);
        let other = conversation.fields.overhead.iter().map(|span| self.count_span(conversation.body, span, |_| None));
        let settled = match conversation.settled.len() {
            0 => 0,
            count => self.count_items(&conversation.settled_alone(), 0..count),
        };
        lead.chain(other).sum::<u64>() + settled
    }

    /// Input tokens of the whole request, as it stands in the body.
    pub fn total(&self, conversation: &Conversation<'_>) -> u64 {
        PRIMER + self.overhead(conversation) + self.count_items(conversation, 0..conversation.items.len())
    }

    fn measure_item(&self, conversation: &Conversation<'_>, i: usize) -> u64 {
        let Some(item) = conversation.items.get(i) else { return 0 };
        let texts = self.measure_texts(conversation, i);
        (texts + media(&item.facts) + PER_MESSAGE).min(bound_of(&item.facts))
    }

    fn measure_texts(&self, conversation: &Conversation<'_>, i: usize) -> u64 {
        let Some(item) = conversation.items.get(i) else { return 0 };
        let slots = item.facts.slots.iter().map(|slot| self.count_slot(conversation, i, slot));
        let names = item.facts.calls.iter().map(|call| self.count_text(&call.name));
        slots.chain(names).sum()
    }

    /// Tokens of a slot of item `i`; media cost what [`Facts::media`] says.
    pub fn count_slot(&self, conversation: &Conversation<'_>, i: usize, slot: &Slot) -> u64 {
        match slot.kind {
            SlotKind::Media => 0,
            SlotKind::Given | SlotKind::Other => (slot.span.len() as u64).div_ceil(4),
            _ => match conversation.text(i, slot) {
                Some(text) => self.count_text(&text),
                None => self.count_bytes(conversation.raw(i).get(slot.span.clone()).unwrap_or_default()),
            },
        }
    }

    /// Tokens of a span of the body, remembered by a hash of its bytes.
    fn count_span(&self, body: &[u8], span: &Range<usize>, read: impl Fn(&[u8]) -> Option<String>) -> u64 {
        let bytes = body.get(span.clone()).unwrap_or_default();
        spans().count(hash(bytes, self.vocabulary), || match read(bytes) {
            Some(text) => self.count_text(&text),
            None => self.count_bytes(bytes),
        })
    }

    fn count_bytes(&self, bytes: &[u8]) -> u64 {
        self.count_text(&String::from_utf8_lossy(bytes)).min(bytes.len() as u64)
    }
}

/// The text between two byte offsets, each moved back to the start of its character.
fn between(text: &str, start: usize, end: usize) -> &str {
    let floor = |at: usize| (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    text.get(floor(start)..floor(end)).unwrap_or_default()
}

/// The decoded text of a leading message; `None` where it is not plain text.
fn lead_text(message: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Lead {
        content: Content,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Content {
        Text(String),
        Parts(Vec<Part>),
    }
    #[derive(Deserialize)]
    struct Part {
        text: String,
    }
    match serde_json::from_slice::<Lead>(message).ok()?.content {
        Content::Text(text) => Some(text),
        Content::Parts(parts) => Some(parts.into_iter().map(|part| part.text).collect::<Vec<_>>().join("\n")),
    }
}

static O200K: OnceLock<Option<CoreBPE>> = OnceLock::new();
static CL100K: OnceLock<Option<CoreBPE>> = OnceLock::new();

impl Vocabulary {
    fn slot(self) -> &'static OnceLock<Option<CoreBPE>> {
        match self {
            Self::O200k => &O200K,
            Self::Cl100k => &CL100K,
        }
    }

    /// The loaded vocabulary; `None` if the embedded data cannot be read.
    fn core(self) -> Option<&'static CoreBPE> {
        let load = || match self {
            Self::O200k => tiktoken_rs::o200k_base().ok(),
            Self::Cl100k => tiktoken_rs::cl100k_base().ok(),
        };
        self.slot().get_or_init(load).as_ref()
    }
}

/// The seeds differ in their high bits: of a short input this hash is little more than input xor seed.
fn hash(bytes: &[u8], vocabulary: Vocabulary) -> u64 {
    let seed = match vocabulary {
        Vocabulary::O200k => 0,
        Vocabulary::Cl100k => 0x9e37_79b9_7f4a_7c15,
    };
    xxh3_64_with_seed(bytes, seed)
}

/// Counts of pieces of text. Agents repeat themselves: nearly all pieces are known.
static PIECES: OnceLock<Memo> = OnceLock::new();

/// Counts of texts: planning asks for the same one several times.
fn texts() -> &'static Memo {
    static TEXTS: OnceLock<Memo> = OnceLock::new();
    TEXTS.get_or_init(|| Memo::new(1 << 14))
}

/// Counts of byte ranges outside the items: tools, schemas and leading system messages.
fn spans() -> &'static Memo {
    static SPANS: OnceLock<Memo> = OnceLock::new();
    SPANS.get_or_init(|| Memo::new(1 << 12))
}

/// A fixed-size table of counts by hash; a newer entry takes an older one's place. Without locks:
/// an entry is one word, its low bits the count, its high bits those of the hash.
struct Memo {
    entries: Box<[AtomicU64]>,
}

const COUNT_BITS: u32 = 24;

impl Memo {
    fn new(size: usize) -> Self {
        Self { entries: (0..size).map(|_| AtomicU64::new(0)).collect() }
    }

    fn count(&self, hash: u64, measure: impl FnOnce() -> u64) -> u64 {
        let slot = hash as usize % self.entries.len();
        let Some(entry) = self.entries.get(slot) else { return measure() };
        let known = entry.load(Ordering::Relaxed);
        if known != 0 && known >> COUNT_BITS == hash >> COUNT_BITS {
            return known & ((1 << COUNT_BITS) - 1);
        }
        let count = measure();
        if count < 1 << COUNT_BITS {
            entry.store((hash >> COUNT_BITS << COUNT_BITS) | count, Ordering::Relaxed);
        }
        count
    }
}

#[cfg(test)]
#[path = "tokens_tests.rs"]
mod tests;
