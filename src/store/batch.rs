//! What a request wants to be stored before it is sent.

use std::sync::Arc;

use super::{Overlay, Said};
use crate::compact::{Checkpoint, Eviction, Removed};
use crate::wire::Digest;

/// New rows that one request wants. They are written in one transaction, before it is sent (L5).
#[derive(Clone, Default)]
pub struct Batch {
    /// The chain's first digest: rows of one root are one session and expire together. All zeros if
    /// it is not known.
    pub root: Digest,
    pub texts: Vec<Removed>,
    /// First-sight evictions by chain digest. A row that exists already stays as it is, and what is
    /// remembered as forwarded gets none: what went whole stays whole.
    pub evictions: Vec<(Digest, Arc<Eviction>)>,
    /// A checkpoint with the digest of the history it covers. First writer wins within a digest and
    /// level; an activation takes the place of a prepared row. Of several levels the deepest applies.
    pub checkpoint: Option<(Digest, Arc<Checkpoint>, Stage)>,
    /// What is added to the conversation from now on. Of each kind under a digest the first stays, but for asides.
    pub overlays: Vec<Overlay>,
    /// What the checkpoint's summary replaces, where it is to be read for memory. Should the batch be given up in
    /// the moment of its commit, this may stay: it was said all the same.
    pub said: Option<Arc<Said>>,
}

impl Batch {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        let Self { texts, evictions, checkpoint, overlays, .. } = self;
        texts.is_empty() && evictions.is_empty() && checkpoint.is_none() && overlays.is_empty()
    }

    /// Bytes of the removed texts.
    pub fn text_bytes(&self) -> usize {
        self.texts.iter().map(|removed| removed.text.len()).sum()
    }
}

/// Says how much there is, not what it says.
impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let checkpoint = self.checkpoint.as_ref().map(|(_, checkpoint, stage)| (checkpoint.level, *stage));
        f.debug_struct("Batch")
            .field("texts", &self.texts.iter().map(|removed| removed.text.len()).collect::<Vec<_>>())
            .field("evictions", &self.evictions.len())
            .field("checkpoint", &checkpoint)
            .field("overlays", &self.overlays.len())
            .finish_non_exhaustive()
    }
}

/// A checkpoint's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Made ahead; applies to nothing yet.
    Prepared,
    /// Applies to every request whose chain holds its digest.
    Activated,
}

/// Whether to remember beyond this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasting {
    Yes,
    No,
}
