//! Trim checkpoints: old arguments truncated, older results pruned. No model call; each breaks the
//! cached prefix once, so it must gain enough to pay for that.

use crate::wire::{Role, SlotKind};

use super::pins::Pinned;
use super::plan::{Actions, Load, Shape, Situation, checkpoint};
use super::prune::{Pruner, gain, prune};
use super::rows::{Checkpoint, Cut, Level, Removed};
use super::truncate::truncate;
use super::{cuts, estimate};

/// A trim that pays, not yet activated.
#[derive(Debug)]
pub struct Trim {
    pub checkpoint: Checkpoint,
    pub texts: Vec<Removed>,
    pub actions: Actions,
}

/// How much a trim may take.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// Arguments of items from here on are left alone.
    pub arguments_upto: usize,
    /// Results of items from here on are left alone.
    pub results_upto: usize,
    /// Tokens of the newest tool output before `results_upto` that prune leaves alone.
    pub protect: u64,
    /// Least gains, uncalibrated tokens.
    pub arguments_gain: u64,
    pub results_gain: u64,
}

/// The trim that is due at this load, if one pays.
pub fn planned(situation: &Situation, load: Load, pinned: &Pinned) -> Option<Trim> {
    let mut trim = trim(situation, due(situation, load)?, pinned)?;
    // Whatever it is laid over, a summary or a fold of the same history has to be able to take its place.
    trim.checkpoint.level = Level::Trim;
    Some(trim)
}

/// Whether a trim could be due and pay at this load, by counts that are remembered.
pub fn could_pay(situation: &Situation, load: Load) -> bool {
    due(situation, load).is_some()
}

/// What a trim may take that is due at this load. `None`: it could not pay.
fn due(situation: &Situation, load: Load) -> Option<Scope> {
    let budget = situation.budget;
    let summary_due = situation.strategies.compaction.is_some() && budget.summary_due(load.tokens, load.messages);
    let due = budget.trim_due(load.tokens, load.messages) || summary_due;
    let settings = situation.strategies.truncate.as_ref().filter(|_| due);
    let everything = Scope {
        arguments_upto: settings.map_or(0, |_| situation.conversation.items.len()),
        results_upto: unread(situation),
        protect: situation.uncalibrated(budget.protect),
        arguments_gain: situation.uncalibrated(budget.truncate_gain),
        results_gain: situation.uncalibrated(budget.prune_gain),
    };
    // Mostly there is too little in all, and where the tail begins takes far longer to find out.
    if !pays(situation, everything) {
        return None;
    }
    let keep = settings.map(|settings| settings.keep_messages);
    let arguments_upto = keep.and_then(|keep| cuts::cut_for_messages(situation.conversation, keep)).unwrap_or(0);
    Some(Scope { arguments_upto, ..everything }).filter(|scope| pays(situation, *scope))
}

fn pays(situation: &Situation, scope: Scope) -> bool {
    let bound = Bound::of(situation, situation.summarized(), scope);
    bound.arguments >= scope.arguments_gain.max(1) || bound.results >= scope.results_gain.max(1)
}

/// The first item that no answer of the model's has followed yet.
fn unread(situation: &Situation) -> usize {
    situation.conversation.items.iter().rposition(|item| item.facts.role == Role::Assistant).unwrap_or(0)
}

/// Trims what `scope` allows and the sections in force offer.
pub fn trim(situation: &Situation, scope: Scope, pinned: &Pinned) -> Option<Trim> {
    let from = situation.summarized();
    let standing = |item, slot| estimate::standing(situation.conversation, situation.known, (item, slot));
    let gain = |cuts: &[Cut]| gain(situation.conversation, cuts, situation.tokens, &standing);
    let free = |cut: &Cut| !edited(situation, cut) && !pinned.holds(cut.item, cut.replacement.slot);
    let (mut cuts, mut actions) = (Vec::new(), Actions::default());
    let bound = Bound::of(situation, from, scope);
    if let Some(settings) = &situation.strategies.truncate
        && bound.arguments >= scope.arguments_gain.max(1)
    {
        let mut found = truncate(situation.conversation, from..scope.arguments_upto, settings, situation.key);
        found.retain(free);
        if !found.is_empty() && gain(&found) >= scope.arguments_gain.max(1) {
            cuts = found;
            actions.truncated = true;
        }
    }
    // A trim that breaks the prefix anyway takes the older results along.
    let least = if actions.truncated { 1 } else { scope.results_gain.max(1) };
    if let Some(settings) = &situation.strategies.prune
        && bound.results >= least
    {
        let Situation { key, tokens, .. } = *situation;
        let pruner = Pruner { settings, key, tokens, ways: situation.ways, protect: scope.protect, min_gain: least };
        let mut found = prune(situation.conversation, from..scope.results_upto, &pruner, &standing);
        found.retain(free);
        if !found.is_empty() && gain(&found) >= least {
            cuts.extend(found);
            actions.pruned = true;
        }
    }
    (!cuts.is_empty()).then(|| assemble(situation, cuts, actions))
}

/// What cuts could gain at most, in uncalibrated tokens, from counts and lengths that are remembered: the
/// gate before any text is decoded.
struct Bound {
    arguments: u64,
    results: u64,
}

impl Bound {
    fn of(situation: &Situation, from: usize, scope: Scope) -> Self {
        let Situation { conversation, known, strategies, tokens, .. } = *situation;
        let longest_argument = strategies.truncate.as_ref().map_or(usize::MAX, |settings| settings.max_arg_length);
        let longest_result = strategies.prune.as_ref().map_or(usize::MAX, |settings| settings.max_output_chars);
        let (mut bound, mut newer) = (Self { arguments: 0, results: 0 }, 0_u64);
        for index in (from..scope.results_upto.max(scope.arguments_upto)).rev() {
            let Some(item) = conversation.items.get(index) else { continue };
            let now = || match known.evictions.get(&item.chain) {
                Some(row) => row.tokens.after,
                None => tokens.count_item(conversation, index),
            };
            if index < scope.arguments_upto {
                let arguments = |kind| matches!(kind, SlotKind::Arguments(_) | SlotKind::Input(_));
                bound.arguments += within(hidden(situation, index, longest_argument, arguments), now);
            }
            if index < scope.results_upto && !item.facts.results.is_empty() {
                if newer >= scope.protect {
                    let results = |kind| matches!(kind, SlotKind::Result(_));
                    bound.results += within(hidden(situation, index, longest_result, results), now);
                }
                newer += now();
            }
        }
        bound
    }
}

/// What is hidden of an item, at most all of it. Of most items nothing is, and they need not be counted.
fn within(hidden: u64, now: impl Fn() -> u64) -> u64 {
    if hidden == 0 { 0 } else { hidden.min(now()) }
}

/// Bytes, and so tokens at most, by which an item's texts of some kind exceed the longest that stays.
/// What a checkpoint has replaced stays as it is.
fn hidden(situation: &Situation, index: usize, longest: usize, kind: impl Fn(SlotKind) -> bool) -> u64 {
    let Situation { conversation, known, .. } = *situation;
    let Some(item) = conversation.items.get(index) else { return 0 };
    let edits = known.active.as_deref().map_or(&[][..], |active| estimate::edits_of(active, index));
    let slots = item.facts.slots.iter().enumerate().filter(|(_, slot)| kind(slot.kind));
    let hidden = slots.filter(|(at, _)| edits.iter().all(|(_, edit)| edit.slot != *at)).map(|(at, slot)| {
        let eviction = known.evictions.get(&item.chain).map_or(&[][..], |row| &row.replacements);
        let evicted = eviction.iter().find(|replacement| replacement.slot == at);
        let length = evicted.map_or(slot.span.len(), |replacement| replacement.text.len());
        length.saturating_sub(longest) as u64
    });
    hidden.sum()
}

/// Whether the active checkpoint has replaced that slot already: what was replaced stays as it is.
pub fn edited(situation: &Situation, cut: &Cut) -> bool {
    let edits = situation.known.active.as_deref().map_or(&[][..], |active| &active.edits);
    edits.iter().any(|(item, edit)| *item == cut.item && edit.slot == cut.replacement.slot)
}

/// The active checkpoint with `cuts` laid over it.
pub fn assemble(situation: &Situation, cuts: Vec<Cut>, actions: Actions) -> Trim {
    let active = situation.known.active.as_deref();
    let mut edits = active.map_or_else(Vec::new, |active| active.edits.clone());
    let mut texts = Vec::new();
    let mut covers = 0;
    for cut in cuts {
        covers = covers.max(cut.item + 1);
        edits.retain(|(item, edit)| (*item, edit.slot) != (cut.item, cut.replacement.slot));
        edits.push((cut.item, cut.replacement));
        texts.extend(cut.removed);
    }
    edits.sort_by_key(|(item, edit)| (*item, edit.slot));
    let level = active.map_or(Level::Trim, |active| active.level);
    let head = active.and_then(|active| active.head.clone());
    let covers = situation.beyond_active(covers);
    Trim { checkpoint: checkpoint(situation, Shape { level, covers, head, edits }), texts, actions }
}

#[cfg(test)]
#[path = "tests/trim.rs"]
mod tests;
