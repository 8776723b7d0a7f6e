//! Trim checkpoints: old arguments truncated, older results pruned. No model call; each breaks the
//! cached prefix once, so it must gain enough to pay for that.

use std::collections::BTreeMap;

use super::plan::{Actions, Load, Shape, Situation, checkpoint};
use super::rows::{Checkpoint, Cut, Level, Removed, Replacement};
use super::{cuts, estimate, pins, prune, truncate};

/// A trim that pays, not yet activated.
#[derive(Debug)]
pub struct Trim {
    pub checkpoint: Checkpoint,
    pub texts: Vec<Removed>,
    pub actions: Actions,
    /// Uncalibrated tokens by which the request shrinks.
    pub gain: u64,
}

/// How much a trim may take.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// Items from here on are left alone.
    pub arguments_upto: usize,
    pub results_upto: usize,
    /// Tokens of the newest tool output that prune leaves alone.
    pub protect_tokens: u64,
    /// Least gains, uncalibrated tokens.
    pub arguments_gain: u64,
    pub results_gain: u64,
}

/// The trim that is due at this load, if one pays.
pub fn planned(situation: &Situation, load: Load) -> Option<Trim> {
    let budget = situation.budget;
    let count = situation.conversation.items.len();
    let summary_due = situation.strategies.compaction.is_some() && budget.summary_due(load.tokens, load.messages);
    let truncate_due = budget.truncate_due(load.tokens, load.messages) || summary_due;
    let keep = situation.strategies.truncate.as_ref().map_or(0, |settings| settings.keep_messages);
    let scope = Scope {
        arguments_upto: match truncate_due {
            true => cuts::cut_for_messages(situation.conversation, keep).unwrap_or(0),
            false => 0,
        },
        results_upto: count,
        protect_tokens: budget.prune_protect,
        arguments_gain: situation.uncalibrated(budget.truncate_gain),
        results_gain: situation.uncalibrated(budget.prune_gain),
    };
    trim(situation, scope)
}

/// Trims what `scope` allows and the sections in force offer.
pub fn trim(situation: &Situation, scope: Scope) -> Option<Trim> {
    let pinned = pins::pinned_slots(situation.conversation);
    let active = situation.known.active.as_deref();
    let untouched = |cut: &Cut| {
        let edited = active.is_some_and(|active| {
            active.edits.iter().any(|(item, edit)| *item == cut.item && edit.slot == cut.replacement.slot)
        });
        !edited && !pinned.contains(&(cut.item, cut.replacement.slot))
    };
    let from = active.and_then(|active| active.head.as_ref()).map_or(0, |head| head.upto);
    let (mut cuts, mut actions, mut gain) = (Vec::new(), Actions::default(), 0);
    if let Some(settings) = &situation.strategies.truncate {
        let found = truncate::truncate(situation.conversation, from..scope.arguments_upto, settings, situation.key);
        let found: Vec<Cut> = found.into_iter().filter(untouched).collect();
        let gained = gain_of(situation, &found);
        if !found.is_empty() && gained >= scope.arguments_gain {
            (cuts, gain, actions.truncated) = (found, gained, true);
        }
    }
    if situation.strategies.prune.is_some() {
        let found: Vec<Cut> = prune::prune(situation, from..scope.results_upto, scope.protect_tokens)
            .into_iter()
            .filter(untouched)
            .collect();
        let gained = gain_of(situation, &found);
        // A trim that breaks the prefix anyway takes the older results along.
        if !found.is_empty() && gained > 0 && (actions.truncated || gained >= scope.results_gain) {
            cuts.extend(found);
            gain += gained;
            actions.pruned = true;
        }
    }
    (gain > 0).then(|| assemble(situation, cuts, actions, gain))
}

/// Tokens by which `cuts` shrink the request as it stands, known rewrites included.
pub fn gain_of(situation: &Situation, cuts: &[Cut]) -> u64 {
    let mut items: BTreeMap<usize, Vec<&Replacement>> = BTreeMap::new();
    for cut in cuts {
        items.entry(cut.item).or_default().push(&cut.replacement);
    }
    let gain = |(index, new): (usize, Vec<&Replacement>)| {
        let Some(item) = situation.conversation.items.get(index) else { return 0 };
        let eviction = situation.known.evictions.get(&item.chain).map(|row| &**row);
        let now = estimate::in_force(situation.known.active.as_deref(), eviction, index);
        let kept = now.iter().filter(|old| !new.iter().any(|other| other.slot == old.slot)).copied();
        let next: Vec<&Replacement> = kept.chain(new.iter().copied()).collect();
        let tokens = |replacements: &[&Replacement]| {
            estimate::rewritten(situation.tokens, situation.conversation, index, replacements)
        };
        tokens(&now).saturating_sub(tokens(&next))
    };
    items.into_iter().map(gain).sum()
}

/// The active checkpoint with `cuts` laid over it.
pub fn assemble(situation: &Situation, cuts: Vec<Cut>, actions: Actions, gain: u64) -> Trim {
    let active = situation.known.active.as_deref();
    let mut edits = active.map_or_else(Vec::new, |active| active.edits.clone());
    let mut texts = Vec::new();
    let mut covers = active.map_or(0, |active| active.covers);
    for cut in cuts {
        covers = covers.max(cut.item + 1);
        edits.retain(|(item, edit)| (*item, edit.slot) != (cut.item, cut.replacement.slot));
        edits.push((cut.item, cut.replacement));
        texts.extend(cut.removed);
    }
    edits.sort_by_key(|(item, edit)| (*item, edit.slot));
    let level = active.map_or(Level::Trim, |active| active.level);
    let head = active.and_then(|active| active.head.clone());
    // One digest holds one checkpoint of a level: a deeper trim speaks for a longer history.
    let taken = active.is_some_and(|active| active.covers == covers);
    let covers = if taken { (covers + 1).min(situation.conversation.items.len()) } else { covers };
    Trim { checkpoint: checkpoint(situation, Shape { level, covers, head, edits }), texts, actions, gain }
}
