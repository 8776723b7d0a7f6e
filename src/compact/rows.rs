//! The rows that compaction leaves in the store, and reads back.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::wire::Digest;
use crate::wire::sent::SentText;

/// Id of a removed text: a tenant-keyed 128-bit MAC of the text, shown as 32 lower-case hex digits.
/// The same text of the same tenant has the same id, so writing what exists is success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TextId(pub [u8; 16]);

/// The key from which a tenant's text ids are made.
#[derive(Clone)]
pub struct TextKey(pub [u8; 32]);

/// A text taken out of a request, with the id under which it can be read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    pub id: TextId,
    pub text: String,
}

/// New decoded text for one slot of an item. For `Arguments` it is the new (valid) inner JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replacement {
    /// Index into the item's [`slots`](crate::wire::Facts::slots).
    pub slot: usize,
    pub text: SentText,
}

/// What a strategy would replace in one item: the new texts and what they took out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Index into [`items`](crate::wire::Conversation::items).
    pub item: usize,
    pub replacement: Replacement,
    pub removed: Vec<Removed>,
}

/// Replacements of one oversized item at first sight, stored under the chain digest at the item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eviction {
    pub replacements: Vec<Replacement>,
    pub tokens: Change,
}

/// Estimated input tokens (uncalibrated) of a piece of history as the client sends it and as it goes
/// out. Kept with the row, so that known history is never counted again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub before: u64,
    pub after: u64,
}

/// How deep a checkpoint cuts, ascending: of those at one digest the deepest applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Level {
    /// Arguments truncated, older results pruned (by recovery also: results evicted). No model call.
    Trim,
    /// A prefix replaced by a summary.
    Summary,
    /// The whole history replaced by one user message.
    Fold,
}

/// "The history whose chain digest at item `covers` is D becomes this." Self-contained: it repeats
/// what the checkpoint before it replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub level: Level,
    /// Number of items of the history it speaks for; its key is the digest of item `covers - 1`.
    pub covers: usize,
    /// The summary that stands for the first items, if any.
    pub head: Option<Head>,
    /// Replacements of items behind the head, by item index, ascending. They win over evictions.
    pub edits: Vec<(usize, Replacement)>,
    /// Tokens of the covered items.
    pub tokens: Change,
}

/// A user message that stands for the first `upto` items.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Number of items it replaces; `0 < upto <= covers`.
    pub upto: usize,
    /// The message's whole text: ledger, summary, pins, pointers.
    pub text: String,
    /// The summary alone, without ledger, pins and pointers: input of the next one.
    pub summary: String,
    /// Texts that hold the replaced messages complete, oldest first.
    pub offloaded: Vec<TextId>,
    /// What the first `upto` items end with is still to be answered: its pictures stay beside the text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asks: bool,
}

/// A conversation's evictions by chain digest. Cheap to clone: turns of one session share them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evictions(Arc<HashMap<Digest, Arc<Eviction>>>);

/// What long-term memory said when a conversation began: it stands before the first that the user says, for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// The whole notice; empty where there was nothing.
    pub text: String,
    /// Uncalibrated input tokens of it.
    pub tokens: u64,
}

/// The rows a store knows for one incoming conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Evictions by chain digest at the item.
    pub evictions: Evictions,
    /// The longest activated checkpoint whose digest is in the chain.
    pub active: Option<Arc<Checkpoint>>,
    /// The longest prepared checkpoint, not yet activated, whose digest is in the chain.
    pub prepared: Option<Arc<Checkpoint>>,
    /// Checkpoints that the provider refused, by how many items they covered and their level: nothing takes their place.
    pub refused: Vec<(usize, Level)>,
    /// What memory said when it began. No item, and in no digest: whatever stands for the first items, this goes
    /// before it.
    pub remembered: Option<Arc<Remembered>>,
    /// How many leading items were forwarded before: what went whole then stays whole (L5).
    pub seen: usize,
    /// The store could not be asked for all of it. What is here applies; nothing new may be planned on it, since
    /// a row that was not seen would be contradicted (L4).
    pub incomplete: bool,
}

impl Checkpoint {
    /// How many items its head stands for.
    pub fn summarized(&self) -> usize {
        self.head.as_ref().map_or(0, |head| head.upto)
    }
}

impl Evictions {
    pub fn get(&self, digest: &Digest) -> Option<&Arc<Eviction>> {
        self.0.get(digest)
    }

    pub fn contains_key(&self, digest: &Digest) -> bool {
        self.0.contains_key(digest)
    }

    /// Copies the map if another turn shares it.
    pub fn insert(&mut self, digest: Digest, eviction: Arc<Eviction>) {
        Arc::make_mut(&mut self.0).insert(digest, eviction);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Turns that share it have the same.
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// In no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&Digest, &Arc<Eviction>)> {
        self.0.iter()
    }
}

impl FromIterator<(Digest, Arc<Eviction>)> for Evictions {
    fn from_iter<I: IntoIterator<Item = (Digest, Arc<Eviction>)>>(rows: I) -> Self {
        Self(Arc::new(rows.into_iter().collect()))
    }
}

impl Extend<(Digest, Arc<Eviction>)> for Evictions {
    fn extend<I: IntoIterator<Item = (Digest, Arc<Eviction>)>>(&mut self, rows: I) {
        Arc::make_mut(&mut self.0).extend(rows);
    }
}

impl fmt::Display for TextId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::str::FromStr for TextId {
    type Err = NoTextId;

    /// In either case: it is shown in small letters, and no two ids differ in no more than that.
    fn from_str(hex: &str) -> Result<Self, NoTextId> {
        let digits = hex.as_bytes();
        let whole = digits.len() == 32 && digits.iter().all(u8::is_ascii_hexdigit);
        let number = whole.then(|| u128::from_str_radix(hex, 16).ok()).flatten().ok_or(NoTextId)?;
        Ok(Self(number.to_be_bytes()))
    }
}

/// Not 32 hex digits.
#[derive(Debug, thiserror::Error)]
#[error("an id has 32 hex digits")]
pub struct NoTextId;

impl TextKey {
    /// The id of `text` for this tenant.
    pub fn id(&self, text: &str) -> TextId {
        let mut id = [0; 16];
        blake3::Hasher::new_keyed(&self.0).update(text.as_bytes()).finalize_xof().fill(&mut id);
        TextId(id)
    }

    /// `text` with its id.
    pub fn removed(&self, text: String) -> Removed {
        Removed { id: self.id(&text), text }
    }
}
