//! What is stored under one chain digest, and what a conversation's digests add up to.

use std::sync::Arc;

use crate::compact::tokens::PER_MESSAGE;
use crate::compact::{Checkpoint, Eviction, Known, Level, Replacement};
use crate::wire::Digest;

use super::Stage;

/// A checkpoint's state in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Prepared,
    Activated,
    /// Kept for reading; never applies again, and nothing takes its place.
    Quarantined,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) checkpoint: Arc<Checkpoint>,
    pub(super) state: State,
}

/// Everything under one (tenant, digest).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) eviction: Option<Arc<Eviction>>,
    /// At most one of each level, shallow levels first.
    pub(super) checkpoints: Vec<Kept>,
}

/// What a row costs in memory beside its texts: map entry, key, reference counts.
const ROW_OVERHEAD_BYTES: usize = 256;

/// Estimated bytes of an eviction in memory.
pub(super) fn eviction_bytes(eviction: &Eviction) -> usize {
    size_of::<Eviction>() + eviction.replacements.iter().map(replacement_bytes).sum::<usize>()
}

/// Estimated bytes of a checkpoint in memory.
pub(super) fn checkpoint_bytes(checkpoint: &Checkpoint) -> usize {
    let head = checkpoint.head.as_ref();
    let head = head.map_or(0, |head| head.text.len() + head.summary.len() + size_of_val(&*head.offloaded));
    let edits = checkpoint.edits.iter().map(|(_, replacement)| replacement_bytes(replacement) + size_of::<usize>());
    size_of::<Checkpoint>() + head + edits.sum::<usize>()
}

fn replacement_bytes(replacement: &Replacement) -> usize {
    replacement.text.weight() + size_of::<Replacement>()
}

impl From<Stage> for State {
    fn from(stage: Stage) -> Self {
        match stage {
            Stage::Prepared => Self::Prepared,
            Stage::Activated => Self::Activated,
        }
    }
}

impl State {
    pub(super) fn code(self) -> i64 {
        match self {
            Self::Prepared => 0,
            Self::Activated => 1,
            Self::Quarantined => 2,
        }
    }

    /// Codes of a damaged row count as quarantined.
    pub(super) fn from_code(code: i64) -> Self {
        match code {
            0 => Self::Prepared,
            1 => Self::Activated,
            _ => Self::Quarantined,
        }
    }
}

/// The order of depth, as stored.
pub(super) fn level_code(level: Level) -> i64 {
    match level {
        Level::Trim => 0,
        Level::Summary => 1,
        Level::Fold => 2,
    }
}

impl Row {
    /// Estimated bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        let eviction = self.eviction.as_deref().map_or(0, eviction_bytes);
        let checkpoints = self.checkpoints.iter().map(|kept| checkpoint_bytes(&kept.checkpoint));
        ROW_OVERHEAD_BYTES + eviction + checkpoints.sum::<usize>()
    }

    /// Fewest bytes of a body to which some of this can apply. What it took out and what it covers stood in the
    /// history, and however a client spells that, there are no fewer bytes than tokens (beside media, which
    /// are looked for apart). Only members that nobody knows could be spelled in less than the quarter at
    /// which they are counted.
    pub(super) fn least_bytes(&self) -> usize {
        let evicted = self.eviction.iter().map(|eviction| eviction.tokens.before.saturating_sub(PER_MESSAGE));
        let covered = self.checkpoints.iter().map(|kept| kept.checkpoint.tokens.before);
        evicted.chain(covered).min().map_or(usize::MAX, |tokens| usize::try_from(tokens).unwrap_or(usize::MAX))
    }

    /// Adds a checkpoint as a commit would: what has this level and at least this state stays, a
    /// prepared one gives way to an activation.
    pub(super) fn put(&mut self, checkpoint: Arc<Checkpoint>, stage: Stage) {
        let level = level_code(checkpoint.level);
        let new = Kept { checkpoint, state: stage.into() };
        match self.checkpoints.iter_mut().find(|kept| level_code(kept.checkpoint.level) == level) {
            Some(kept) if kept.state == State::Prepared => *kept = new,
            Some(_) => {}
            None => {
                self.checkpoints.push(new);
                self.checkpoints.sort_by_key(|kept| level_code(kept.checkpoint.level));
            }
        }
    }

    /// The activated checkpoint of a level.
    pub(super) fn activated_at(&self, level: Level) -> Option<&Arc<Checkpoint>> {
        let kept =
            self.checkpoints.iter().find(|kept| kept.state == State::Activated && kept.checkpoint.level == level);
        kept.map(|kept| &kept.checkpoint)
    }

    /// Keeps what only memory has beside what the database has; where both have something, the
    /// database's counts, unless it is only prepared.
    pub(super) fn keep_held(&mut self, held: &Self) {
        if self.eviction.is_none() {
            self.eviction.clone_from(&held.eviction);
        }
        for old in &held.checkpoints {
            match self.checkpoints.iter_mut().find(|kept| kept.checkpoint.level == old.checkpoint.level) {
                Some(kept) if kept.state == State::Prepared && old.state != State::Prepared => kept.clone_from(old),
                Some(_) => {}
                None => self.checkpoints.push(old.clone()),
            }
        }
        self.checkpoints.sort_by_key(|kept| level_code(kept.checkpoint.level));
    }

    /// The deepest checkpoint that applies.
    pub(super) fn activated(&self) -> Option<&Kept> {
        self.checkpoints.iter().rev().find(|kept| kept.state == State::Activated)
    }

    /// Takes the checkpoint that applies out of use; says which level that was.
    pub(super) fn quarantine(&mut self) -> Option<Level> {
        let kept = self.checkpoints.iter_mut().rev().find(|kept| kept.state == State::Activated)?;
        kept.state = State::Quarantined;
        Some(kept.checkpoint.level)
    }
}

/// Adds what is stored at item `index` to what is known of the items before it.
pub(super) fn extend(known: &mut Known, index: usize, digest: &Digest, row: &Row) {
    if let Some(eviction) = &row.eviction {
        known.evictions.insert(*digest, Arc::clone(eviction));
    }
    // A checkpoint that speaks of another number of items than its key does is damaged.
    let fits = |kept: &&Kept| kept.checkpoint.covers == index + 1;
    let refused = row.checkpoints.iter().filter(fits).filter(|kept| kept.state == State::Quarantined);
    known.refused.extend(refused.map(|kept| (kept.checkpoint.covers, kept.checkpoint.level)));
    let active = row.activated().filter(fits);
    if let Some(kept) = active {
        known.active = Some(Arc::clone(&kept.checkpoint));
        known.prepared = None;
    }
    let depth = active.map_or(-1, |kept| level_code(kept.checkpoint.level));
    let deeper = |kept: &&Kept| kept.state == State::Prepared && level_code(kept.checkpoint.level) > depth;
    if let Some(kept) = row.checkpoints.iter().rev().filter(fits).find(deeper) {
        known.prepared = Some(Arc::clone(&kept.checkpoint));
    }
}
