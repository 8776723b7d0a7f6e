//! Overflow recovery: the provider refused the prompt, so triggers count as reached and thresholds,
//! hysteresis and breaker are ignored. Evict → trim → summary with a smaller and smaller tail →
//! shorten the oversized last messages → full fold; the first rung that reaches the target is sent.

use crate::wire::overflow::Verdict;
use crate::wire::{Role, SlotKind};

use super::head::{self, Source};
use super::plan::{Actions, Situation, tokens_under};
use super::rows::{Checkpoint, Cut, Level, Removed, Replacement};
use super::trim::{Scope, Trim, assemble, trim};
use super::{cuts, estimate, evict, plan};

/// Where recovery has to get to, in calibrated tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Goal {
    /// Deep enough that the next turns fit as well.
    pub target: u64,
    /// The compacted request must be strictly below.
    pub limit: u64,
}

/// A rewrite that recovery may send once the store (or memory) has it.
#[derive(Debug)]
pub struct Rung {
    pub checkpoint: Checkpoint,
    pub texts: Vec<Removed>,
    pub actions: Actions,
    /// Calibrated estimate of the whole request.
    pub tokens: u64,
}

/// What recovery does next.
#[derive(Debug)]
pub enum Step {
    Send(Box<Rung>),
    /// A summary of the first `cut` items is needed; call [`finish`] with what came of it.
    Summarize { cut: usize },
    /// Nothing that may be removed makes it fit (P6): the error is the client's.
    Hopeless,
}

/// Tokens below the limit that are left for what estimates miss (C13: `requested == limit` is
/// already refused; templates add a few tokens).
const MARGIN: u64 = 64;

/// The goal that an overflow error sets for a request that was estimated at `sent` calibrated tokens.
pub fn goal(verdict: &Verdict, sent: u64, requested_output: Option<u64>) -> Goal {
    let half = sent / 2;
    let Some(limit) = verdict.limit_tokens().filter(|limit| *limit > MARGIN) else {
        return Goal { target: half, limit: sent };
    };
    // A total limit leaves what the client's own output limit leaves, but never less than half.
    let room = match verdict.limit_is_total() {
        true => limit.saturating_sub(requested_output.unwrap_or(0)).max(limit / 2),
        false => limit,
    };
    // The provider's own count of the same prompt says how far the estimate is off.
    let room = match verdict.input_tokens() {
        Some(input) if input > 0 && sent > 0 => (room as u128 * u128::from(sent) / u128::from(input)) as u64,
        _ => room,
    };
    let limit = room.saturating_sub(MARGIN).min(sent);
    Goal { target: (limit / 2).min(half.max(limit / 4)), limit }
}

/// The rungs that need no model.
pub fn start(situation: &Situation, goal: Goal) -> Step {
    let overhead = situation.calibrated(situation.tokens.overhead(situation.conversation));
    if overhead >= goal.limit || situation.conversation.items.is_empty() {
        return Step::Hopeless;
    }
    if let Some(rung) = trimmed(situation).filter(|rung| rung.tokens <= goal.target) {
        return Step::Send(Box::new(rung));
    }
    match cut(situation, goal) {
        Some(cut) => Step::Summarize { cut },
        None => finish(situation, goal, None),
    }
}

/// The rungs from the summary on. `summary` is the cut and what came of it; `None` where no cut exists.
pub fn finish(situation: &Situation, goal: Goal, summary: Option<(usize, Source)>) -> Step {
    let sent = situation.calibrated(estimate::total(situation.tokens, situation.conversation, situation.known).after);
    let mut best: Option<Rung> = None;
    let mut rungs: Vec<Box<dyn Fn() -> Option<Rung> + '_>> = Vec::new();
    rungs.push(Box::new(|| summary.and_then(|(cut, source)| summarized(situation, cut, source))));
    rungs.push(Box::new(|| {
        let cut = cuts::smallest_tail(situation.conversation)?;
        summarized(situation, cut, Source::Digest).and_then(|rung| shortened(situation, Some(rung), goal))
    }));
    rungs.push(Box::new(|| shortened(situation, trimmed(situation), goal)));
    rungs.push(Box::new(|| folded(situation, goal)));
    for rung in rungs.iter().filter_map(|rung| rung()) {
        if rung.tokens <= goal.target {
            return Step::Send(Box::new(rung));
        }
        if best.as_ref().is_none_or(|best| rung.tokens < best.tokens) {
            best = Some(rung);
        }
    }
    match best.filter(|best| best.tokens < goal.limit && best.tokens < sent) {
        Some(best) => Step::Send(Box::new(best)),
        None => Step::Hopeless,
    }
}

/// Evictions of what went whole, arguments and results before the last group, without thresholds.
fn trimmed(situation: &Situation) -> Option<Rung> {
    let end = cuts::smallest_tail(situation.conversation).unwrap_or(0);
    let scope =
        Scope { arguments_upto: end, results_upto: end, protect_tokens: 0, arguments_gain: 0, results_gain: 0 };
    let first = evicted(situation);
    let known = super::Known {
        active: first.as_ref().map(|trim| trim.checkpoint.clone().into()).or(situation.known.active.clone()),
        ..situation.known.clone()
    };
    let second = trim(&situation.with(&known), scope);
    let trim = match (first, second) {
        (Some(first), Some(mut second)) => {
            second.texts.extend(first.texts);
            second.actions = second.actions.and(first.actions);
            second
        }
        (first, second) => first.or(second)?,
    };
    Some(rung(situation, trim))
}

fn rung(situation: &Situation, trim: Trim) -> Rung {
    let tokens = tokens_under(situation, &trim.checkpoint);
    Rung { checkpoint: trim.checkpoint, texts: trim.texts, actions: trim.actions, tokens }
}

/// Results over eviction's limit that were forwarded whole before, as edits of a checkpoint.
fn evicted(situation: &Situation) -> Option<Trim> {
    let settings = situation.strategies.eviction.as_ref()?;
    let active = situation.known.active.as_deref();
    let from = active.and_then(|active| active.head.as_ref()).map_or(0, |head| head.upto);
    let mut cuts = Vec::new();
    for (index, eviction, mut texts) in evict::evictions(situation, from, settings) {
        let Some(item) = situation.conversation.items.get(index) else { continue };
        if situation.known.evictions.contains_key(&item.chain) {
            continue;
        }
        for replacement in eviction.replacements {
            cuts.push(Cut { item: index, replacement, removed: std::mem::take(&mut texts) });
        }
    }
    let edited = |cut: &Cut| {
        active.is_some_and(|active| {
            active.edits.iter().any(|(item, edit)| *item == cut.item && edit.slot == cut.replacement.slot)
        })
    };
    cuts.retain(|cut| !edited(cut));
    let gain = super::trim::gain_of(situation, &cuts);
    let actions = Actions { evicted: true, ..Actions::default() };
    (!cuts.is_empty()).then(|| assemble(situation, cuts, actions, gain))
}

/// The cut whose tail is the largest that still lets the request reach the target.
fn cut(situation: &Situation, goal: Goal) -> Option<usize> {
    let trimmed = trimmed(situation).map(|rung| rung.checkpoint);
    let checkpoint = trimmed.as_ref().or(situation.known.active.as_deref());
    let items = estimate::per_item(situation.tokens, situation.conversation, situation.known, checkpoint);
    let overhead = situation.tokens.overhead(situation.conversation) + head::ALLOWANCE;
    let room = situation.uncalibrated(goal.target).saturating_sub(overhead);
    let mut keep = situation.budget.keep_tokens;
    while keep > 0 {
        let cut = cuts::cut_for_tokens(situation.conversation, &items, keep);
        if let Some(cut) = cut
            && items.iter().skip(cut).sum::<u64>() <= room
        {
            return Some(cut);
        }
        keep /= 2;
    }
    cuts::smallest_tail(situation.conversation)
}

fn summarized(situation: &Situation, cut: usize, source: Source) -> Option<Rung> {
    let (summary, mut texts) = head::summary(situation, cut, source)?;
    let trimmed = trimmed(situation);
    let actions = trimmed.as_ref().map_or(Actions::default(), |rung| rung.actions);
    let active = trimmed.as_ref().map(|rung| &rung.checkpoint).or(situation.known.active.as_deref());
    let checkpoint = plan::merge(active, &summary, situation);
    texts.extend(trimmed.into_iter().flat_map(|rung| rung.texts));
    let tokens = tokens_under(situation, &checkpoint);
    let actions = Actions { summarized: true, ..actions };
    Some(Rung { checkpoint, texts, actions, tokens })
}

/// Shortens the largest texts that are still whole, oldest first among equals, until the target is met.
fn shortened(situation: &Situation, base: Option<Rung>, goal: Goal) -> Option<Rung> {
    let checkpoint = base.as_ref().map(|rung| &rung.checkpoint).or(situation.known.active.as_deref());
    let upto = checkpoint.and_then(|checkpoint| checkpoint.head.as_ref()).map_or(0, |head| head.upto);
    let now = match &base {
        Some(rung) => rung.tokens,
        None => situation.calibrated(estimate::total(situation.tokens, situation.conversation, situation.known).after),
    };
    let excess = situation.uncalibrated(now.saturating_sub(goal.target));
    let texts = whole_texts(situation, checkpoint, upto);
    let cuts = evict::shorten(situation, &texts, excess);
    if cuts.is_empty() {
        return base;
    }
    let known = super::Known {
        active: checkpoint.map(|checkpoint| checkpoint.clone().into()),
        ..situation.known.clone()
    };
    let actions = Actions { truncated: true, ..base.as_ref().map_or(Actions::default(), |rung| rung.actions) };
    let mut trim = assemble(&situation.with(&known), cuts, actions, 0);
    trim.texts.extend(base.into_iter().flat_map(|rung| rung.texts));
    Some(rung(situation, trim))
}

/// Result and user texts behind the head that nothing has replaced yet.
fn whole_texts(situation: &Situation, checkpoint: Option<&Checkpoint>, upto: usize) -> Vec<(usize, usize)> {
    let mut whole = Vec::new();
    for (index, item) in situation.conversation.items.iter().enumerate().skip(upto) {
        let eviction = situation.known.evictions.get(&item.chain).map(|row| &**row);
        let replaced: Vec<&Replacement> = estimate::in_force(checkpoint, eviction, index);
        for (slot, found) in item.facts.slots.iter().enumerate() {
            let may = match found.kind {
                SlotKind::Result(_) => true,
                SlotKind::Text => matches!(item.facts.role, Role::User | Role::Tool),
                _ => false,
            };
            if may && !replaced.iter().any(|replacement| replacement.slot == slot) {
                whole.push((index, slot));
            }
        }
    }
    whole
}

/// The whole history as one user message.
fn folded(situation: &Situation, goal: Goal) -> Option<Rung> {
    let room = situation.uncalibrated(goal.target).saturating_sub(head::ALLOWANCE);
    let keep = situation.budget.keep_tokens.min(room / 2);
    let (checkpoint, texts) = head::fold(situation, Source::Digest, keep)?;
    debug_assert_eq!(checkpoint.level, Level::Fold);
    let tokens = tokens_under(situation, &checkpoint);
    Some(Rung { checkpoint, texts, actions: Actions { folded: true, ..Actions::default() }, tokens })
}
