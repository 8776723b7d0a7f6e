//! What a request's state asks for: new rows, and whether a summary is needed. Proposals only; they
//! count once the store has them.

use std::sync::Arc;

use crate::config::{EvictionSettings, Strategies};
use crate::wire::{Conversation, Digest, Sight};

pub use super::actions::Actions;
use super::binding::{self, Binding};
use super::budget::Budget;
use super::evict::{Evictor, Ways, evictions};
use super::pins::Pinned;
use super::rows::{Change, Checkpoint, Eviction, Head, Known, Level, Removed, Replacement, TextKey};
use super::tokens::{PER_MESSAGE, Tokens};
use super::{estimate, head, pictures, trim};

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
    /// Ways to removed texts.
    pub ways: Ways<'a>,
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

impl Situation<'_> {
    /// Calibrated tokens.
    pub fn calibrated(&self, tokens: u64) -> u64 {
        (tokens as f64 * self.calibration).ceil() as u64
    }

    /// Uncalibrated tokens that make `tokens` calibrated ones.
    pub fn uncalibrated(&self, tokens: u64) -> u64 {
        (tokens as f64 / self.calibration).floor() as u64
    }

    /// Uncalibrated tokens of what goes beside the items.
    pub fn overhead(&self) -> u64 {
        self.tokens.overhead(self.conversation) + PER_MESSAGE + self.remembered()
    }

    /// Uncalibrated tokens of what memory said when the conversation began.
    pub fn remembered(&self) -> u64 {
        self.known.remembered.as_deref().map_or(0, |remembered| remembered.tokens)
    }

    /// The situation as it would be with other rows.
    pub fn with<'b>(&'b self, known: &'b Known) -> Situation<'b> {
        Situation { known, ..*self }
    }

    /// How many items the active checkpoint's head stands for.
    pub fn summarized(&self) -> usize {
        self.known.active.as_deref().map_or(0, Checkpoint::summarized)
    }

    /// The chain digest of the history that a checkpoint covers.
    pub fn digest_at(&self, covers: usize) -> Option<Digest> {
        Some(self.conversation.items.get(covers.checked_sub(1)?)?.chain)
    }

    /// A length of history for a new checkpoint: at least `covers`, and beyond the active one, since one
    /// digest holds one checkpoint of a level and the longest digest applies; and up to where signed thinking
    /// allows one.
    pub fn beyond_active(&self, covers: usize) -> usize {
        let active = self.known.active.as_deref().map_or(0, |active| active.covers + 1);
        covers.max(active).max(binding::least_covers(self)).min(self.conversation.items.len())
    }

    /// Whether a row for `checkpoint` can be written and applies: the store keeps the first of a level, also where the
    /// provider refused it.
    pub fn applies(&self, checkpoint: &Checkpoint) -> bool {
        let depth = |checkpoint: &Checkpoint| (checkpoint.covers, checkpoint.level);
        let deepest = self.known.active.as_deref().is_none_or(|active| depth(checkpoint) > depth(active));
        deepest && !self.known.refused.contains(&depth(checkpoint))
    }

    /// Whether a summary is due at this load, or the provider would not take it.
    pub fn is_due(&self, load: Load) -> bool {
        self.budget.summary_due(load.tokens, load.messages) || !self.budget.fits(load.tokens)
    }

    /// The load of the request under the known rows, counted.
    pub fn load(&self) -> Load {
        let messages = estimate::messages(self.conversation, self.known.active.as_deref());
        Load { tokens: self.calibrated(estimate::total(self).after), messages }
    }
}

/// How large a request is as it would be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Calibrated.
    pub tokens: u64,
    /// Non-system, non-reasoning elements.
    pub messages: usize,
}

/// Plans a request on its way to the provider.
pub fn plan(situation: &Situation) -> Proposal {
    planned(situation, Ahead::Asked)
}

/// The same where no summary was to be made ahead at about this load: until one is due, that is not asked again, which
/// takes longer than all else.
pub fn plan_again(situation: &Situation) -> Proposal {
    planned(situation, Ahead::Answered)
}

/// Whether a summary may be made ahead.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ahead {
    Asked,
    /// With no, a moment ago.
    Answered,
}

fn planned(situation: &Situation, ahead: Ahead) -> Proposal {
    let mut proposal = Proposal::default();
    let mut known = situation.known.clone();
    let pinned = Pinned::of(situation.conversation);
    first_sight(situation, &mut known, &mut proposal, &pinned);
    if situation.conversation.sight() == Sight::Partial || situation.conversation.fields.managed {
        return proposal;
    }

    let messages = estimate::messages(situation.conversation, known.active.as_deref());
    let bound = situation.calibrated(estimate::bound(&situation.with(&known)));
    if !situation.budget.may_act(bound, messages) {
        return proposal;
    }
    let mut load = situation.with(&known).load();
    let waits = ahead == Ahead::Answered && !situation.is_due(load);
    if binding::of(&situation.with(&known)) == Binding::Live {
        if waits {
            proposal.tokens = Some(calibrated_total(&situation.with(&known)));
            return proposal;
        }
        bound_turn(&situation.with(&known), load, &mut proposal);
        return proposal;
    }
    let trim = trim::planned(&situation.with(&known), load, &pinned);
    if let Some(trim) = trim.filter(|trim| situation.applies(&trim.checkpoint)) {
        proposal.actions = proposal.actions.and(trim.actions);
        proposal.texts.extend(trim.texts);
        proposal.activate(situation, &mut known, trim.checkpoint);
        load = situation.with(&known).load();
    }
    if situation.strategies.compaction.is_some()
        && !waits
        && let Some(checkpoint) = summarize(&situation.with(&known), load, &mut proposal)
        && situation.applies(&checkpoint)
    {
        proposal.actions.summarized = true;
        proposal.activate(situation, &mut known, checkpoint);
    }
    proposal.tokens = Some(calibrated_total(&situation.with(&known)));
    proposal
}

fn calibrated_total(situation: &Situation) -> Change {
    let Change { before, after } = estimate::total(situation);
    Change { before: situation.calibrated(before), after: situation.calibrated(after) }
}

/// In a turn whose thinking is signed: waits while the request fits, then folds everything.
fn bound_turn(situation: &Situation, load: Load, proposal: &mut Proposal) {
    proposal.tokens = Some(calibrated_total(situation));
    if situation.strategies.compaction.is_none() {
        return;
    }
    if !situation.budget.fits(load.tokens) {
        let Some((checkpoint, texts)) = binding::fold(situation, load) else { return };
        proposal.actions.folded = true;
        proposal.texts.extend(texts);
        let mut known = situation.known.clone();
        proposal.activate(situation, &mut known, checkpoint);
        proposal.tokens = Some(calibrated_total(&situation.with(&known)));
    } else if situation.budget.summary_near(load.tokens, load.messages) && usable(situation).is_none() {
        proposal.summary = head::cut(situation, load).map_or(Need::No, |cut| Need::Ahead { cut });
    }
}

/// What would be evicted at first sight, for a request that asks nothing of the model.
pub fn sighted(situation: &Situation) -> Vec<(Digest, Arc<Eviction>)> {
    let (mut known, mut proposal) = (situation.known.clone(), Proposal::default());
    first_sight(situation, &mut known, &mut proposal, &Pinned::of(situation.conversation));
    proposal.evictions
}

impl Proposal {
    /// Whether it proposes nothing, and asks for nothing.
    pub fn is_nothing(&self) -> bool {
        self.evictions.is_empty() && self.checkpoint.is_none() && self.summary == Need::No
    }

    fn activate(&mut self, situation: &Situation, known: &mut Known, checkpoint: Checkpoint) {
        let checkpoint = Arc::new(checkpoint);
        self.checkpoint = situation.digest_at(checkpoint.covers).map(|digest| (digest, checkpoint.clone()));
        known.active = Some(checkpoint);
    }
}

/// Evicts oversized results that were never forwarded before.
fn first_sight(situation: &Situation, known: &mut Known, proposal: &mut Proposal, pinned: &Pinned) {
    let Some(settings) = &situation.strategies.eviction else { return };
    let covered = known.active.as_deref().map_or(0, |checkpoint| checkpoint.covers);
    for (index, replacements, texts) in situation.evictions(settings, known.seen.max(covered), pinned) {
        let Some(item) = situation.conversation.items.get(index) else { continue };
        if known.evictions.contains_key(&item.chain) {
            continue;
        }
        let before = situation.tokens.count_item(situation.conversation, index);
        let after = estimate::rewritten(situation, index, &replacements.iter().collect::<Vec<_>>());
        let eviction = Arc::new(Eviction { replacements, tokens: Change { before, after } });
        known.evictions.insert(item.chain, eviction.clone());
        proposal.evictions.push((item.chain, eviction));
        proposal.texts.extend(texts);
        proposal.actions.evicted = true;
    }
}

impl Situation<'_> {
    /// The evictions that `settings` ask for from item `from` on, without those of pinned texts.
    pub fn evictions(
        &self,
        settings: &EvictionSettings,
        from: usize,
        pinned: &Pinned,
    ) -> Vec<(usize, Vec<Replacement>, Vec<Removed>)> {
        let evictor = Evictor { settings, key: self.key, tokens: self.tokens, ways: self.ways };
        let mut found = evictions(self.conversation, from, &evictor);
        for (item, replacements, _) in &mut found {
            replacements.retain(|replacement| !pinned.holds(*item, replacement.slot));
        }
        found.retain(|(_, replacements, _)| !replacements.is_empty());
        found
    }
}

/// The prepared summary to activate where the trigger is reached; else says whether one is needed.
fn summarize(situation: &Situation, load: Load, proposal: &mut Proposal) -> Option<Checkpoint> {
    let budget = situation.budget;
    // A window that the upstream itself told is kept to, whatever the triggers are.
    let clash = budget.told && !budget.fits(load.tokens);
    if !budget.summary_near(load.tokens, load.messages) && !clash {
        return None;
    }
    let overflows = !budget.fits(load.tokens);
    let due = budget.summary_due(load.tokens, load.messages) || overflows;
    let mut missed = None;
    if let Some(prepared) = usable(situation) {
        // Without the edits behind it the request is a little larger, but nothing has to be read for that.
        if !due && reaches_target(situation, &prepared, load) {
            return None;
        }
        let merged = merge(situation, &prepared);
        if reaches_target(situation, &merged, load) {
            return due.then_some(merged);
        }
        missed = Some(merged);
    }
    let cut = head::cut(situation, load)?;
    if let Some(missed) = missed.filter(|missed| missed.summarized() >= cut) {
        // The same side call again would bring no other summary.
        let helps = due && overflows && load_under(situation, &missed).tokens < load.tokens;
        return helps.then_some(missed);
    }
    if !overflows && !pays(situation, cut, load) {
        return None;
    }
    proposal.summary = match due {
        _ if overflows => Need::Now { cut },
        false => Need::Ahead { cut },
        true => Need::Late { cut },
    };
    None
}

/// The prepared summary, if it stands for more than the active one. One that points to texts of an
/// earlier summary is usable only while that one is known: else its texts may be gone with it.
fn usable(situation: &Situation) -> Option<Arc<Checkpoint>> {
    let kept = |checkpoint: &Checkpoint| checkpoint.head.as_ref().map_or_else(Vec::new, |head| head.offloaded.clone());
    let active = situation.known.active.as_deref().map_or_else(Vec::new, kept);
    let stands =
        |prepared: &Checkpoint| kept(prepared).split_last().is_none_or(|(_, earlier)| active.starts_with(earlier));
    let prepared = situation.known.prepared.clone()?;
    (prepared.summarized() > situation.summarized() && stands(&prepared)).then_some(prepared)
}

/// A summary with the active checkpoint's edits behind it.
pub fn merge(situation: &Situation, summary: &Checkpoint) -> Checkpoint {
    let active = situation.known.active.as_deref();
    let kept = active.map_or(&[][..], |active| &active.edits).iter();
    let edits = kept.filter(|(item, _)| *item >= summary.summarized()).cloned().collect();
    let covers = situation.beyond_active(summary.covers);
    checkpoint(situation, Shape { level: summary.level, covers, head: summary.head.clone(), edits })
}

/// The parts of a checkpoint that decide what it becomes.
pub struct Shape {
    pub level: Level,
    pub covers: usize,
    pub head: Option<Head>,
    pub edits: Vec<(usize, Replacement)>,
}

/// Completes a checkpoint with the tokens of the history it covers.
pub fn checkpoint(situation: &Situation, shape: Shape) -> Checkpoint {
    let Shape { level, covers, head, edits } = shape;
    let mut checkpoint = Checkpoint { level, covers, head, edits, tokens: Change::default() };
    let items = estimate::per_item(situation, Some(&checkpoint));
    let head = checkpoint.head.as_ref().map_or(0, |head| situation.tokens.count_text(&head.text) + PER_MESSAGE);
    let asking = checkpoint.head.as_ref().filter(|head| head.asks);
    let pictures = asking.map_or(0, |head| pictures::tokens(situation.conversation, head.upto));
    checkpoint.tokens = Change {
        before: situation.tokens.count_items(situation.conversation, 0..covers),
        after: head + pictures + items.iter().take(covers).map(|tokens| u64::from(*tokens)).sum::<u64>(),
    };
    checkpoint
}

/// The load of the request under `checkpoint`.
pub fn load_under(situation: &Situation, checkpoint: &Checkpoint) -> Load {
    let known = Known { active: Some(Arc::new(checkpoint.clone())), ..situation.known.clone() };
    situation.with(&known).load()
}

/// Whether activating `checkpoint` now brings the request down to the target, so that the next
/// activation is far; where what cannot be removed is above the target, a quarter must go.
fn reaches_target(situation: &Situation, checkpoint: &Checkpoint, load: Load) -> bool {
    let after = load_under(situation, checkpoint);
    let tokens = situation.budget.target().is_none_or(|target| {
        let smallest = head::smallest_tail(situation).is_none_or(|tail| tail <= checkpoint.summarized());
        after.tokens <= target || smallest && after.tokens <= load.tokens / 4 * 3
    });
    let messages = situation.budget.trigger_messages.is_none_or(|trigger| after.messages < trigger.min(load.messages));
    tokens && messages
}

/// Whether a summary of the first `cut` items is expected to shorten the request enough to be paid for.
fn pays(situation: &Situation, cut: usize, load: Load) -> bool {
    let items = estimate::per_item(situation, situation.known.active.as_deref());
    let tail: u64 = items.iter().skip(cut).map(|tokens| u64::from(*tokens)).sum();
    let after = situation.calibrated(tail + head::expected(situation, cut, &items) + situation.overhead());
    let by_messages = situation.budget.trigger_messages.is_some_and(|trigger| load.messages * 100 >= trigger * 85);
    by_messages || after <= load.tokens / 4 * 3
}
