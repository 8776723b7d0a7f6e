//! A store in memory that keeps to the real one's rules, and can be made to lose writes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::compact::evict::went_whole;
use crate::compact::rows::{Checkpoint, Eviction, Known, Level, Removed, TextId};
use crate::store::{Batch, CommitError, Stage};
use crate::wire::{Conversation, Digest};

#[derive(Default)]
pub struct Store {
    pub evictions: HashMap<Digest, Arc<Eviction>>,
    prepared: HashMap<(Digest, usize), Arc<Checkpoint>>,
    activated: HashMap<(Digest, usize), Arc<Checkpoint>>,
    pub texts: HashMap<TextId, String>,
    seen: HashSet<Digest>,
    condemned: HashSet<(Digest, usize)>,
    /// How many of the next commits fail.
    pub lost: usize,
}

fn depth(level: Level) -> usize {
    [Level::Trim, Level::Summary, Level::Fold].iter().position(|other| *other == level).unwrap()
}

impl Store {
    pub fn commit(&mut self, batch: Batch) -> Result<(), CommitError> {
        if self.lost > 0 {
            self.lost -= 1;
            return Err(CommitError::Failed);
        }
        self.texts.extend(batch.texts.into_iter().map(|Removed { id, text }| (id, text)));
        for (digest, eviction) in batch.evictions {
            self.evictions.entry(digest).or_insert(eviction);
        }
        if let Some((digest, checkpoint, stage)) = batch.checkpoint
            && !self.condemned.contains(&(digest, depth(checkpoint.level)))
        {
            let rows = match stage {
                Stage::Prepared => &mut self.prepared,
                Stage::Activated => &mut self.activated,
            };
            rows.entry((digest, depth(checkpoint.level))).or_insert(checkpoint);
        }
        Ok(())
    }

    pub fn known(&self, conversation: &Conversation) -> Known {
        let chain: Vec<Digest> = conversation.chain().copied().collect();
        let longest = |rows: &HashMap<(Digest, usize), Arc<Checkpoint>>| {
            chain.iter().rev().find_map(|digest| (0..3).rev().find_map(|level| rows.get(&(*digest, level)).cloned()))
        };
        Known {
            evictions: chain.iter().filter_map(|d| Some((*d, self.evictions.get(d)?.clone()))).collect(),
            active: longest(&self.activated),
            prepared: longest(&self.prepared),
            seen: chain.iter().rposition(|digest| self.seen.contains(digest)).map_or(0, |last| last + 1),
            refused: chain.iter().enumerate().flat_map(|(index, digest)| self.refused(index, digest)).collect(),
            remembered: None,
            incomplete: false,
        }
    }

    fn refused(&self, index: usize, digest: &Digest) -> Vec<(usize, Level)> {
        let levels = [Level::Trim, Level::Summary, Level::Fold].into_iter();
        let refused = levels.filter(|level| self.condemned.contains(&(*digest, depth(*level))));
        refused.map(|level| (index + 1, level)).collect()
    }

    /// The checkpoint that applies at a digest never does again.
    pub fn quarantine(&mut self, digest: &Digest) {
        let Some(level) = (0..3).rev().find(|level| self.activated.contains_key(&(*digest, *level))) else { return };
        self.activated.remove(&(*digest, level));
        self.condemned.insert((*digest, level));
    }

    /// Of what went out the store knows the end, and what is too large to be small.
    pub fn saw(&mut self, conversation: &Conversation, known: &Known) {
        self.seen.extend(went_whole(conversation, known).map(|item| conversation.items[item].chain));
        self.seen.extend(conversation.chain().last());
    }

    pub fn forget(&mut self) {
        self.seen.clear();
    }
}
