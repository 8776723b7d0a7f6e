//! Overflow recovery: the provider refused the prompt, so triggers count as reached and thresholds,
//! hysteresis and breaker are ignored. Evict → trim → summary with a smaller and smaller tail →
//! shorten the oversized last messages → full fold; the first rung that reaches the target is sent.

use std::sync::Arc;

use crate::wire::overflow::{Scope as Bounds, Sizes, Unit};
use crate::wire::{Role, Sight, SlotKind};

use super::binding::{self, Binding};
use super::budget::Window;
use super::evict::{Preview, clip};
use super::exclusions::{NEVER_PRUNED, excluded, tool_of};
use super::head::{self, Source};
use super::ledger::WHOLE_CHARS;
use super::pins::Pinned;
use super::plan::{Actions, Situation, load_under, merge};
use super::rows::{Checkpoint, Cut, Known, Removed, Replacement};
use super::trim::{Scope, assemble, edited, trim};
use super::typed::Typed;
use super::{cuts, estimate, pins};

/// Where recovery has to get to, in calibrated tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Goal {
    /// Deep enough that the next turns fit as well.
    pub target: u64,
    /// The compacted request must be strictly below.
    pub limit: u64,
}

/// A rewrite that recovery may send once the store (or memory) has it.
#[derive(Debug, Clone)]
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
    Summarize {
        cut: usize,
    },
    /// Nothing that may be removed makes it fit (P6): the error is the client's.
    Hopeless,
}

/// Tokens below the limit that are left for what estimates miss (C13: `requested == limit` is
/// already refused; templates add a few tokens).
const MARGIN: u64 = 64;
/// Fewest characters that are left of a shortened text, head and tail each.
const LEAST_PREVIEW: usize = 200;
/// Most characters that are left of a shortened text, head and tail each.
const MOST_PREVIEW: usize = 32_000;
/// Characters of a page that a pointer proposes.
const PAGE: usize = 8_000;

/// The goal that an overflow sets for a request that was estimated at `sent` calibrated tokens and
/// asked for `output` tokens at most. Numbers in other units than tokens teach nothing; where an error has none,
/// the `window` as it is known counts, if it explains the refusal.
pub fn goal(sizes: &Sizes, sent: u64, output: Option<u64>, window: Option<Window>) -> Goal {
    let limit = sizes.limit.filter(|limit| sizes.unit == Unit::Tokens && *limit > 2 * MARGIN);
    let Some(limit) = limit else { return goal_by(window, sent, output) };
    // A total limit leaves what the client's own output limit leaves, but never less than half.
    let room = match sizes.scope {
        Bounds::Total => limit.saturating_sub(output.unwrap_or(0)).max(limit / 2),
        Bounds::Input => limit,
    };
    // The provider's own count of the same prompt says how far the estimate is off.
    let room = match sizes.input.filter(|input| *input >= room && sent > 0) {
        Some(input) => (u128::from(room) * u128::from(sent) / u128::from(input)) as u64,
        None => room,
    };
    let limit = room.saturating_sub(MARGIN).min(sent);
    Goal { target: limit / 2, limit }
}

/// The goal where the error has no numbers.
fn goal_by(window: Option<Window>, sent: u64, output: Option<u64>) -> Goal {
    let beside = |total: u64| total.saturating_sub(output.unwrap_or(0)).max(total / 2);
    let room = window.map(|window| window.input.min(beside(window.total)).saturating_sub(MARGIN));
    match room.filter(|room| (MARGIN..sent).contains(room)) {
        Some(limit) => Goal { target: limit / 2, limit },
        None => Goal { target: sent / 2, limit: sent },
    }
}

/// The rungs that need no model.
pub fn start(situation: &Situation, goal: Goal) -> Step {
    let nothing = situation.conversation.items.is_empty() || situation.conversation.sight() == Sight::Partial;
    if nothing || situation.calibrated(irreducible(situation)) >= goal.limit {
        return Step::Hopeless;
    }
    if binding::of(situation) == Binding::Live {
        return finish(situation, goal, None);
    }
    let trimmed = trimmed(situation);
    if let Some(rung) = trimmed.clone().filter(|rung| situation.applies(&rung.checkpoint) && rung.tokens <= goal.target)
    {
        return Step::Send(Box::new(rung));
    }
    match cut(situation, trimmed.as_ref(), goal) {
        Some(cut) => Step::Summarize { cut },
        None => finish(situation, goal, None),
    }
}

/// Uncalibrated tokens of what stays whatever stands for the rest.
fn irreducible(situation: &Situation) -> u64 {
    let items = estimate::per_item(situation, situation.known.active.as_deref());
    situation.overhead() + estimate::kept(situation.conversation, &items, items.len())
}

/// The rungs from the summary on. `summary` is the cut and what came of it; `None` where there is no cut.
pub fn finish(situation: &Situation, goal: Goal, summary: Option<(usize, Source)>) -> Step {
    let sent = situation.load().tokens;
    if binding::of(situation) == Binding::Live {
        let folded = folded(situation, goal).filter(|rung| situation.applies(&rung.checkpoint));
        return match folded.filter(|rung| rung.tokens < goal.limit && rung.tokens < sent) {
            Some(rung) => Step::Send(Box::new(rung)),
            None => Step::Hopeless,
        };
    }
    let trimmed = trimmed(situation);
    let summarized = summary.and_then(|(cut, source)| summarized(situation, trimmed.as_ref(), (cut, source)));
    let rungs: [&dyn Fn() -> Option<Rung>; 5] = [
        &|| summarized.clone(),
        &|| shortened(situation, summarized.clone()?, goal),
        &|| smallest(situation, trimmed.as_ref(), goal),
        &|| shortened(situation, trimmed.clone().or_else(|| untouched(situation))?, goal),
        &|| folded(situation, goal),
    ];
    let mut best: Option<Rung> = None;
    // A rung whose row the store would not take is the request that was refused, once more.
    for rung in rungs.iter().filter_map(|rung| rung()).filter(|rung| situation.applies(&rung.checkpoint)) {
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
    let pinned = Pinned::of(situation.conversation);
    let evicted = evicted(situation, &pinned);
    let known = laid_over(situation, evicted.as_ref());
    let end = head::smallest_tail(situation).unwrap_or(0);
    let scope = Scope { arguments_upto: end, results_upto: end, protect: 0, arguments_gain: 0, results_gain: 0 };
    match trim(&situation.with(&known), scope, &pinned) {
        Some(trim) => Some(on_top(situation, evicted.as_ref(), trim)),
        None => evicted,
    }
}

/// The known rows with a rung's checkpoint activated.
fn laid_over(situation: &Situation, rung: Option<&Rung>) -> Known {
    let active = rung.map(|rung| Arc::new(rung.checkpoint.clone())).or_else(|| situation.known.active.clone());
    Known { active, ..situation.known.clone() }
}

/// A trim made on top of `base`, as a rung.
fn on_top(situation: &Situation, base: Option<&Rung>, trim: super::trim::Trim) -> Rung {
    let mut texts = trim.texts;
    texts.extend(base.map_or(&[][..], |base| &base.texts).iter().cloned());
    let actions = trim.actions.and(base.map_or(Actions::default(), |base| base.actions));
    let tokens = load_under(situation, &trim.checkpoint).tokens;
    Rung { checkpoint: trim.checkpoint, texts, actions, tokens }
}

/// Results over eviction's limit that were forwarded whole before, as edits of a checkpoint.
fn evicted(situation: &Situation, pinned: &Pinned) -> Option<Rung> {
    let settings = situation.strategies.eviction.as_ref()?;
    let mut cuts = Vec::new();
    for (item, replacements, texts) in situation.evictions(settings, situation.summarized(), pinned) {
        let chain = situation.conversation.items.get(item)?.chain;
        if situation.known.evictions.contains_key(&chain) {
            continue;
        }
        let mut removed = texts;
        cuts.extend(replacements.into_iter().map(|replacement| {
            let removed = std::mem::take(&mut removed);
            Cut { item, replacement, removed }
        }));
    }
    cuts.retain(|cut| !edited(situation, cut));
    let actions = Actions { evicted: true, ..Actions::default() };
    (!cuts.is_empty()).then(|| on_top(situation, None, assemble(situation, cuts, actions)))
}

/// The first item of the largest tail, of at most what is kept otherwise, that reaches the target.
fn cut(situation: &Situation, trimmed: Option<&Rung>, goal: Goal) -> Option<usize> {
    let known = laid_over(situation, trimmed);
    let items = estimate::per_item(&situation.with(&known), known.active.as_deref());
    let kept = cuts::cut_for_tokens(situation.conversation, &items, situation.budget.keep_tokens());
    let from = kept.unwrap_or(0).max(situation.summarized() + 1);
    let candidates = head::candidates(situation, from);
    head::reaching(situation, &candidates, &items, situation.uncalibrated(goal.target))
        .or_else(|| head::candidates(situation, situation.summarized() + 1).last().copied())
}

fn summarized(situation: &Situation, trimmed: Option<&Rung>, summary: (usize, Source)) -> Option<Rung> {
    let (summary, mut texts) = head::summary(situation, summary.0, summary.1)?;
    let known = laid_over(situation, trimmed);
    let checkpoint = merge(&situation.with(&known), &summary);
    texts.extend(trimmed.map_or(&[][..], |rung| &rung.texts).iter().cloned());
    let actions = Actions { summarized: true, ..trimmed.map_or(Actions::default(), |rung| rung.actions) };
    let tokens = load_under(situation, &checkpoint).tokens;
    Some(Rung { checkpoint, texts, actions, tokens })
}

/// The smallest tail behind a digest, its texts shortened.
fn smallest(situation: &Situation, trimmed: Option<&Rung>, goal: Goal) -> Option<Rung> {
    let cut = head::smallest_tail(situation)?;
    let rung = summarized(situation, trimmed, (cut, Source::Digest))?;
    shortened(situation, rung.clone(), goal).or(Some(rung))
}

/// The request as it stands, as the ground for shortening.
fn untouched(situation: &Situation) -> Option<Rung> {
    let active = situation.known.active.as_deref();
    let checkpoint = active.cloned().unwrap_or(Checkpoint {
        level: super::Level::Trim,
        covers: 0,
        head: None,
        edits: Vec::new(),
        tokens: super::Change::default(),
    });
    Some(Rung { checkpoint, texts: Vec::new(), actions: Actions::default(), tokens: situation.load().tokens })
}

/// Shortens texts of the tail: head, pointer, tail (P7: never dropped). Results come first, until the target is met;
/// then the last user message, then the others and last of all what the model looked up, older pages before newer
/// ones, only until the request is below the limit.
fn shortened(situation: &Situation, base: Rung, goal: Goal) -> Option<Rung> {
    let known = laid_over(situation, Some(&base));
    let laid = situation.with(&known);
    let excess = |most: u64| situation.uncalibrated(base.tokens.saturating_sub(most));
    let (for_target, for_limit) = (excess(goal.target), excess(goal.limit.saturating_sub(MARGIN)));
    let mut texts = tail_texts(&laid);
    texts.sort_by_key(|text| match text.turn {
        Turn::Pages => (text.turn, text.item as u64),
        _ => (text.turn, u64::MAX - text.tokens),
    });
    let mut cuts = Vec::new();
    let mut saved = 0;
    for text in texts {
        let excess = if text.turn == Turn::Results { for_target } else { for_limit };
        if saved >= excess {
            continue;
        }
        let Some((cut, gained)) = shorten(&laid, &text, excess - saved) else { continue };
        saved += gained;
        cuts.push(cut);
    }
    let actions = Actions { truncated: true, ..Actions::default() };
    (!cuts.is_empty()).then(|| on_top(situation, Some(&base), assemble(&laid, cuts, actions)))
}

/// When a text is shortened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// Results, and tool output in user messages.
    Results,
    LastUser,
    Users,
    /// Results of the tools with which the model reads what was put aside: shortened they would be of no use to it.
    Pages,
}

/// A text that may be shortened, as the client sent it.
struct Whole {
    item: usize,
    slot: usize,
    turn: Turn,
    text: String,
    /// As it is sent now.
    tokens: u64,
}

/// Result and user texts behind the head; what an earlier rung made shorter counts as it is sent now. What a user
/// typed stands whole up to the ledger's length.
fn tail_texts(situation: &Situation) -> Vec<Whole> {
    let conversation = situation.conversation;
    let mut whole = Vec::new();
    let pinned = pins::pinned_items(conversation);
    let typed = Typed::new(conversation, conversation.items.len());
    let last_user = conversation.items.iter().rposition(|item| item.facts.role == Role::User);
    for (item, found) in conversation.items.iter().enumerate().skip(situation.summarized()) {
        let user = match found.facts.role {
            Role::User if typed.text(item).is_none() => Some(Turn::Results),
            Role::User if last_user == Some(item) => Some(Turn::LastUser),
            Role::User => Some(Turn::Users),
            _ => None,
        };
        for (slot, at) in found.facts.slots.iter().enumerate() {
            let turn = match at.kind {
                SlotKind::Result(result) => Some(match tool_of(conversation, item, result) {
                    Some(name) if excluded(name, NEVER_PRUNED) => Turn::Pages,
                    _ => Turn::Results,
                }),
                SlotKind::Text => user,
                _ => None,
            };
            let Some(turn) = turn.filter(|_| !pinned.contains(&(item, slot))) else { continue };
            let Some(text) = conversation.text(item, at) else { continue };
            if matches!(turn, Turn::LastUser | Turn::Users) && text.chars().nth(WHOLE_CHARS).is_none() {
                continue;
            }
            let standing = estimate::standing(conversation, situation.known, (item, slot));
            let tokens = situation.tokens.count_text(standing.unwrap_or(&text));
            whole.push(Whole { item, slot, turn, text, tokens });
        }
    }
    whole
}

/// Shortens one text by about `excess` tokens, as far as its floor allows.
fn shorten(situation: &Situation, whole: &Whole, excess: u64) -> Option<(Cut, u64)> {
    let chars = whole.text.chars().count();
    let id = situation.key.id(&whole.text);
    let all = situation.tokens.count_text(&whole.text).max(1);
    // The pointer itself takes some hundred characters.
    let left = whole.tokens.saturating_sub(excess).saturating_sub(200);
    let share = (u128::from(left) * chars as u128 / u128::from(all)) as usize;
    let preview = Preview { chars: (share / 2).clamp(LEAST_PREVIEW, MOST_PREVIEW), page: PAGE };
    let text = clip(&whole.text, id, preview, situation.ways);
    let gained = whole.tokens.checked_sub(situation.tokens.count_text(&text)).filter(|gained| *gained > 0)?;
    let removed = vec![Removed { id, text: whole.text.clone() }];
    Some((Cut { item: whole.item, replacement: Replacement { slot: whole.slot, text: text.into() }, removed }, gained))
}

/// The whole history as one user message.
fn folded(situation: &Situation, goal: Goal) -> Option<Rung> {
    let (checkpoint, texts) = binding::fold_to(situation, situation.uncalibrated(goal.target))?;
    let tokens = load_under(situation, &checkpoint).tokens;
    Some(Rung { checkpoint, texts, actions: Actions { folded: true, ..Actions::default() }, tokens })
}

#[cfg(test)]
#[path = "tests/ladder.rs"]
mod tests;
