//! Signed thinking and what may change before it (A10–A13, A27).
//!
//! A signed block is bound to everything before it, as it was when the model wrote it. So it stays only
//! where nothing before it changes any more, and goes where it may: the thinking of finished turns may be
//! left out, that of the turn in progress may not. What was replaced at first sight was never otherwise.

use std::ops::Range;

use crate::config::SignedThinking;
use crate::wire::{Conversation, Item};

use super::head::{self, Source};
use super::plan::{Load, Situation};
use super::rows::{Checkpoint, Removed};
use super::{estimate, pictures, plan};

/// What the signed blocks that would be sent allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// There are none, or the provider drops those that no longer fit: any cut.
    Free,
    /// All belong to turns before the user's last message: any cut that speaks for the history up to and
    /// including that message, because they are then left out.
    Finished {
        /// Index of that message.
        turn: usize,
    },
    /// Some belong to the turn in progress: nothing but the full fold, which leaves none.
    Live,
}

/// What the signed blocks behind the active checkpoint's head allow. Those that it leaves out count too: the turn
/// they were of is over in any case.
pub fn of(situation: &Situation) -> Binding {
    let conversation = situation.conversation;
    let signed = |item: &Item| !item.facts.signed.is_empty();
    let Some(last) = conversation.items.iter().rposition(signed).filter(|last| *last >= situation.summarized()) else {
        return Binding::Free;
    };
    match (situation.strategies.signed_thinking, conversation.turn(conversation.items.len())) {
        (SignedThinking::Dropped, _) => Binding::Free,
        (SignedThinking::Kept, Some(turn)) if last < turn => Binding::Finished { turn },
        (SignedThinking::Kept | SignedThinking::Refused, _) => Binding::Live,
    }
}

/// Whether the history holds signed thinking at all.
pub fn is_signed(conversation: &Conversation) -> bool {
    conversation.items.iter().any(|item| !item.facts.signed.is_empty())
}

/// Least number of items that a new checkpoint has to speak for.
pub fn least_covers(situation: &Situation) -> usize {
    match of(situation) {
        Binding::Finished { turn } => turn + 1,
        Binding::Free | Binding::Live => 0,
    }
}

/// The items of which `checkpoint` leaves out the signed blocks: from the first that it changes to the last
/// user message that it speaks for. A function of the history it covers alone.
pub fn left_out(conversation: &Conversation, checkpoint: &Checkpoint) -> Range<usize> {
    let first = first_change(checkpoint);
    first.zip(conversation.turn(checkpoint.covers)).map_or(0..0, |(first, turn)| first..turn.max(first))
}

/// Whether signed blocks that are sent follow what `checkpoint` changes.
pub fn is_mismatched(conversation: &Conversation, checkpoint: &Checkpoint) -> bool {
    let out = left_out(conversation, checkpoint);
    let first = first_change(checkpoint).unwrap_or(usize::MAX);
    let kept = conversation.items.iter().enumerate().skip(first).filter(|(index, _)| !out.contains(index));
    kept.into_iter().any(|(_, item)| !item.facts.signed.is_empty())
}

/// Whether no signed block at all is sent under `checkpoint`.
pub fn leaves_none(conversation: &Conversation, checkpoint: &Checkpoint) -> bool {
    let out = left_out(conversation, checkpoint);
    let replaced = checkpoint.head.as_ref().map_or(0, |head| head.upto);
    let mut sent = conversation.items.iter().enumerate().skip(replaced).filter(|(index, _)| !out.contains(index));
    sent.all(|(_, item)| item.facts.signed.is_empty())
}

fn first_change(checkpoint: &Checkpoint) -> Option<usize> {
    let edited = checkpoint.edits.first().map(|(item, _)| *item);
    checkpoint.head.as_ref().map(|head| head.upto).or(edited)
}

/// Tokens of the signed blocks of item `index`, uncalibrated.
pub fn tokens(situation: &Situation, index: usize) -> u64 {
    let Situation { conversation, tokens, .. } = *situation;
    let Some(item) = conversation.items.get(index) else { return 0 };
    let signed = |at: &Range<usize>| item.facts.signed.iter().any(|block| block.contains(&at.start));
    item.facts
        .slots
        .iter()
        .filter(|slot| signed(&slot.span))
        .map(|slot| tokens.count_slot(conversation, index, slot))
        .sum()
}

/// The whole history as one user message, told by the summary that was made ahead, if one was: for a request
/// of load `load` that would overflow and may not be cut. `None` where that is not smaller.
pub fn fold(situation: &Situation, load: Load) -> Option<(Checkpoint, Vec<Removed>)> {
    let target = situation.budget.target().map_or(u64::MAX, |target| situation.uncalibrated(target));
    let (checkpoint, texts) = fold_to(situation, target)?;
    let smaller = plan::load_under(situation, &checkpoint).tokens < load.tokens;
    (smaller && situation.applies(&checkpoint)).then_some((checkpoint, texts))
}

/// The full fold, its latest results in what is left of `target` uncalibrated tokens.
pub fn fold_to(situation: &Situation, target: u64) -> Option<(Checkpoint, Vec<Removed>)> {
    let items = estimate::per_item(situation, situation.known.active.as_deref());
    let beside = pictures::tokens(situation.conversation, items.len());
    let taken = situation.overhead() + beside + head::expected(situation, items.len(), &items);
    let keep = situation.budget.keep_tokens().min(target.saturating_sub(taken));
    let story = match of(situation) {
        Binding::Live => head::story_ahead(situation),
        Binding::Free | Binding::Finished { .. } => None,
    };
    head::fold(situation, story.as_deref().map_or(Source::Digest, Source::Model), keep)
}

#[cfg(test)]
#[path = "tests/binding.rs"]
mod tests;
