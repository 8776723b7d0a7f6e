//! What a request's state asks for: new rows, and whether a summary is needed. Proposals only; they
//! count once the store has them.

use std::sync::Arc;

use crate::config::Strategies;
use crate::wire::{Conversation, Digest};

use super::budget::Budget;
use super::rows::{Change, Checkpoint, Eviction, Head, Known, Level, Removed, TextKey};
use super::tokens::Tokens;
use super::{cuts, estimate, evict, trim};

/// Everything that planning looks at.
#[derive(Clone, Copy)]
pub struct Situation<'a> {
    pub conversation: &'a Conversation<'a>,
    pub known: &'a Known,
    pub strategies: &'a Strategies,
    pub budget: &'a Budget,
    /// Reported tokens per estimated token.
    pub calibration: f64,
    pub key: &'a TextKey,
    pub tokens: &'a Tokens,
    /// `workspace_dir/<tenant>`, where removed texts are also written.
    pub workspace: Option<&'a str>,
}

/// New rows for the store, and what else is to be done.
#[derive(Debug, Default)]
pub struct Proposal {
    pub evictions: Vec<(Digest, Arc<Eviction>)>,
    /// To be activated.
    pub checkpoint: Option<(Digest, Arc<Checkpoint>)>,
    pub texts: Vec<Removed>,
    pub actions: Actions,
    pub summary: Need,
    /// Tokens before and after, calibrated; `None` where nothing had to be counted.
    pub tokens: Option<Change>,
}

/// Whether a summary is wanted, of the first `cut` items.
#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
pub enum Need {
    #[default]
    No,
    /// The trigger is near: make it in the background.
    Ahead { cut: usize },
    /// The trigger is reached and the request still fits its window: make it in the background.
    Late { cut: usize },
    /// The request would overflow: wait for it.
    Now { cut: usize },
}

/// What a rewrite did, for the header, the log and the metrics.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Actions {
    pub evicted: bool,
    pub truncated: bool,
    pub pruned: bool,
    pub summarized: bool,
    pub folded: bool,
    pub checkpoint: bool,
    pub recovered: bool,
    pub output_lowered: bool,
}

impl Actions {
    /// The names of DESIGN §5, in its order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        [
            (self.evicted, "evicted"),
            (self.truncated, "truncated"),
            (self.pruned, "pruned"),
            (self.summarized, "summarized"),
            (self.folded, "folded"),
            (self.checkpoint, "checkpoint"),
            (self.recovered, "recovered"),
            (self.output_lowered, "output-lowered"),
        ]
        .into_iter()
        .filter_map(|(on, name)| on.then_some(name))
    }

    /// Adds what `other` did.
    pub fn and(self, other: Self) -> Self {
        Self {
            evicted: self.evicted | other.evicted,
            truncated: self.truncated | other.truncated,
            pruned: self.pruned | other.pruned,
            summarized: self.summarized | other.summarized,
            folded: self.folded | other.folded,
            checkpoint: self.checkpoint | other.checkpoint,
            recovered: self.recovered | other.recovered,
            output_lowered: self.output_lowered | other.output_lowered,
        }
    }
}

impl Situation<'_> {
    /// Calibrated tokens.
    pub fn calibrated(&self, tokens: u64) -> u64 {
        (tokens as f64 * self.calibration).ceil() as u64
    }

    /// Uncalibrated tokens that make `tokens` calibrated ones.
    pub fn uncalibrated(&self, tokens: u64) -> u64 {
        (tokens as f64 / self.calibration).floor() as u64
    }

    /// The situation as it would be with other rows.
    pub fn with<'b>(&'b self, known: &'b Known) -> Situation<'b> {
        Situation { known, ..*self }
    }

    /// The chain digest of the history that a checkpoint covers.
    pub fn digest_at(&self, covers: usize) -> Option<Digest> {
        Some(self.conversation.items.get(covers.checked_sub(1)?)?.chain)
    }
}

/// Plans a request on its way to the provider.
pub fn plan(situation: &Situation) -> Proposal {
    let mut proposal = Proposal::default();
    let mut known = situation.known.clone();
    first_sight(situation, &mut known, &mut proposal);

    let messages = cuts::messages_sent(situation.conversation, known.active.as_deref());
    let bound = situation.calibrated(estimate::bound(situation.tokens, situation.conversation, &known));
    if !situation.budget.may_act(bound, messages) {
        return proposal;
    }
    let change = estimate::total(situation.tokens, situation.conversation, &known);
    proposal.tokens = Some(change);
    let load = Load { tokens: situation.calibrated(change.after), messages };

    let load = match trim::planned(&situation.with(&known), load) {
        Some(trim) => {
            let after = change.after.saturating_sub(trim.gain);
            proposal.actions = proposal.actions.and(trim.actions);
            proposal.texts.extend(trim.texts);
            let checkpoint = Arc::new(trim.checkpoint);
            known.active = Some(checkpoint.clone());
            proposal.checkpoint = situation.digest_at(checkpoint.covers).map(|digest| (digest, checkpoint));
            Load { tokens: situation.calibrated(after), messages }
        }
        None => load,
    };
    summarize(&situation.with(&known), load, &mut proposal);
    if let Some((_, checkpoint)) = &proposal.checkpoint {
        known.active = Some(checkpoint.clone());
        proposal.tokens = Some(estimate::total(situation.tokens, situation.conversation, &known));
    }
    proposal.tokens = proposal.tokens.map(|change| Change {
        before: situation.calibrated(change.before),
        after: situation.calibrated(change.after),
    });
    proposal
}

/// How large a request is as it would be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Calibrated.
    pub tokens: u64,
    /// Non-system, non-reasoning elements.
    pub messages: usize,
}

/// Evicts oversized results that were never forwarded before.
fn first_sight(situation: &Situation, known: &mut Known, proposal: &mut Proposal) {
    let Some(settings) = &situation.strategies.eviction else { return };
    let covered = known.active.as_deref().map_or(0, |checkpoint| checkpoint.covers);
    let from = known.seen.max(covered);
    for (index, eviction, texts) in evict::evictions(situation, from, settings) {
        let Some(item) = situation.conversation.items.get(index) else { continue };
        if known.evictions.contains_key(&item.chain) {
            continue;
        }
        let eviction = Arc::new(eviction);
        known.evictions.insert(item.chain, eviction.clone());
        proposal.evictions.push((item.chain, eviction));
        proposal.texts.extend(texts);
        proposal.actions.evicted = true;
    }
}

/// Activates a prepared summary where the trigger is reached, or says that one is needed.
fn summarize(situation: &Situation, load: Load, proposal: &mut Proposal) {
    let budget = situation.budget;
    let near = budget.summary_near(load.tokens, load.messages);
    if !near || situation.strategies.compaction.is_none() {
        return;
    }
    let due = budget.summary_due(load.tokens, load.messages);
    if let Some(prepared) = usable(situation) {
        let merged = merge(situation.known.active.as_deref(), &prepared, situation);
        let reached = reaches_target(situation, &merged, load);
        match (due, reached) {
            (false, true) => return,
            (true, true) => {
                proposal.actions.summarized = true;
                let merged = Arc::new(merged);
                proposal.checkpoint = situation.digest_at(merged.covers).map(|digest| (digest, merged));
                return;
            }
            (_, false) => {}
        }
    }
    let Some(cut) = cuts::summary_cut(situation, load) else { return };
    proposal.summary = match due {
        false => Need::Ahead { cut },
        true if budget.fits(load.tokens) => Need::Late { cut },
        true => Need::Now { cut },
    };
}

/// The prepared summary, if it stands for more than the active one.
fn usable(situation: &Situation) -> Option<Arc<Checkpoint>> {
    let prepared = situation.known.prepared.clone()?;
    let upto = |checkpoint: &Checkpoint| checkpoint.head.as_ref().map_or(0, |head| head.upto);
    let active = situation.known.active.as_deref().map_or(0, upto);
    (upto(&prepared) > active).then_some(prepared)
}

/// A summary with the active checkpoint's edits behind it.
pub fn merge(active: Option<&Checkpoint>, summary: &Checkpoint, situation: &Situation) -> Checkpoint {
    let upto = summary.head.as_ref().map_or(0, |head| head.upto);
    let kept = active.map_or(&[][..], |active| &active.edits).iter().filter(|(item, _)| *item >= upto);
    let mut edits: Vec<_> = kept.cloned().collect();
    for edit in &summary.edits {
        edits.retain(|(item, replacement)| (*item, replacement.slot) != (edit.0, edit.1.slot));
        edits.push(edit.clone());
    }
    edits.sort_by_key(|(item, replacement)| (*item, replacement.slot));
    let covers = summary.covers.max(active.map_or(0, |active| active.covers));
    checkpoint(situation, Shape { level: summary.level, covers, head: summary.head.clone(), edits })
}

/// The parts of a checkpoint that decide what it becomes.
pub struct Shape {
    pub level: Level,
    pub covers: usize,
    pub head: Option<Head>,
    pub edits: Vec<(usize, super::rows::Replacement)>,
}

/// Completes a checkpoint with the tokens of the history it covers.
pub fn checkpoint(situation: &Situation, shape: Shape) -> Checkpoint {
    let Shape { level, covers, head, edits } = shape;
    let mut checkpoint = Checkpoint { level, covers, head, edits, tokens: Change::default() };
    let Situation { tokens, conversation, known, .. } = *situation;
    let items = estimate::per_item(tokens, conversation, known, Some(&checkpoint));
    let head = checkpoint.head.as_ref().map_or(0, |head| tokens.count_text(&head.text) + 4);
    checkpoint.tokens = Change {
        before: (0..covers).map(|index| tokens.count_item(conversation, index)).sum(),
        after: head + items.iter().take(covers).sum::<u64>(),
    };
    checkpoint
}

/// Tokens (calibrated) of the request under `checkpoint`.
pub fn tokens_under(situation: &Situation, checkpoint: &Checkpoint) -> u64 {
    let known = Known { active: Some(Arc::new(checkpoint.clone())), ..situation.known.clone() };
    situation.calibrated(estimate::total(situation.tokens, situation.conversation, &known).after)
}

/// Whether activating `checkpoint` now brings the request down to the target, so that the next
/// activation is far.
fn reaches_target(situation: &Situation, checkpoint: &Checkpoint, load: Load) -> bool {
    let messages = cuts::messages_sent(situation.conversation, Some(checkpoint));
    let after = Load { tokens: tokens_under(situation, checkpoint), messages };
    situation.budget.reaches_target(load.tokens, after.tokens) && after.messages < load.messages
}
