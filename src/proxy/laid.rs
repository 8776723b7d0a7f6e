//! A summary laid over what a plan proposes besides: in serving, and in the command that shows it.

use std::sync::Arc;

use super::jobs::Made;
use crate::compact::head::{self, Source};
use crate::compact::plan::{Proposal, Situation, merge};
use crate::compact::{Change, Checkpoint, Known, Removed, estimate};
use crate::wire::Digest;

/// A summary, merged with what else applies to the items behind it.
pub struct Laid {
    digest: Digest,
    checkpoint: Checkpoint,
    texts: Vec<Removed>,
    tokens: Change,
}

/// The rows that would be in force with `proposal`.
pub fn known_with(known: &Known, proposal: &Proposal) -> Known {
    let mut known = known.clone();
    known.evictions.extend(proposal.evictions.iter().cloned());
    if let Some((_, trimmed)) = &proposal.checkpoint {
        known.active = Some(Arc::clone(trimmed));
    }
    known
}

/// The summary that was made, or else the deterministic digest of the first `cut` items. `None`: there is
/// nothing to say of them.
pub fn lay(situation: &Situation, cut: usize, made: Made) -> Option<Laid> {
    let (summary, texts) = match made {
        Some(made) => ((*made.checkpoint).clone(), made.texts.to_vec()),
        None => head::summary(situation, cut, Source::Digest)?,
    };
    let checkpoint = merge(situation, &summary);
    let known = Known { active: Some(Arc::new(checkpoint.clone())), ..situation.known.clone() };
    let Change { before, after } = estimate::total(&situation.with(&known));
    let tokens = Change { before: situation.calibrated(before), after: situation.calibrated(after) };
    Some(Laid { digest: situation.digest_at(checkpoint.covers)?, checkpoint, texts, tokens })
}

impl Laid {
    /// Takes the proposed checkpoint's place, where that makes the request smaller.
    pub fn over(self, proposal: &mut Proposal) {
        if proposal.tokens.is_some_and(|now| self.tokens.after >= now.after) {
            return;
        }
        proposal.checkpoint = Some((self.digest, Arc::new(self.checkpoint)));
        proposal.texts.extend(self.texts);
        proposal.tokens = Some(self.tokens);
        proposal.actions.summarized = true;
    }
}
