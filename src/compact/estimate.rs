//! What a conversation costs as the client sent it and as it would go out, in uncalibrated tokens.

use crate::wire::{Conversation, Item, Slot, SlotKind};

use super::plan::Situation;
use super::rows::{Change, Checkpoint, Eviction, Known, Replacement};
use super::tokens::{PER_MESSAGE, bound_of};
use super::{binding, cuts};

/// Upper bound of [`total`]'s `after`, from bytes alone: no text is looked at.
pub fn bound(situation: &Situation) -> u64 {
    let Situation { conversation, known, .. } = *situation;
    let active = known.active.as_deref();
    let items = conversation.items.iter().skip(active.map_or(0, |checkpoint| checkpoint.covers));
    let open = items.map(|item| match known.evictions.get(&item.chain) {
        Some(eviction) => eviction.tokens.after,
        None => bound_of(&item.facts),
    });
    let lead =
        conversation.lead.iter().chain(&conversation.fields.overhead).map(|span| span.len() as u64 + PER_MESSAGE);
    let settled = conversation.settled.iter().map(|item| bound_of(&item.facts));
    let remembered = known.remembered.as_deref().map_or(0, |remembered| remembered.text.len() as u64);
    let beside = lead.chain(settled).sum::<u64>() + PER_MESSAGE + remembered;
    active.map_or(0, |checkpoint| checkpoint.tokens.after) + open.sum::<u64>() + beside
}

/// Tokens of the whole request, before and after the known rewrites. Counts what was not counted yet.
pub fn total(situation: &Situation) -> Change {
    let Situation { conversation, known, tokens, .. } = *situation;
    let active = known.active.as_deref();
    let covered = active.map_or(0, |checkpoint| checkpoint.covers);
    let overhead = situation.overhead();
    let mut sum = active.map_or(Change::default(), |checkpoint| checkpoint.tokens);
    for (index, item) in conversation.items.iter().enumerate().skip(covered) {
        let change = match known.evictions.get(&item.chain) {
            Some(eviction) => eviction.tokens,
            None => {
                let count = tokens.count_item(conversation, index);
                Change { before: count, after: count }
            }
        };
        sum.before += change.before;
        sum.after += change.after;
    }
    Change { before: sum.before + overhead - situation.remembered(), after: sum.after + overhead }
}

/// Messages as they would be sent: elements that are neither system messages nor reasoning.
pub fn messages(conversation: &Conversation, active: Option<&Checkpoint>) -> usize {
    let upto = active.and_then(|checkpoint| checkpoint.head.as_ref()).map_or(0, |head| head.upto);
    let tail = conversation.items.iter().skip(upto).filter(|item| cuts::is_message(&item.facts)).count();
    tail + usize::from(upto > 0)
}

/// Tokens of item `index` with `replacements` in place of its slots' texts.
pub fn rewritten(situation: &Situation, index: usize, replacements: &[&Replacement]) -> u64 {
    let Situation { conversation, tokens, .. } = *situation;
    let Some(item) = conversation.items.get(index) else { return 0 };
    replacements.iter().fold(tokens.count_item(conversation, index), |count, replacement| {
        let old = match item.facts.slots.get(replacement.slot) {
            Some(slot) if slot.kind == SlotKind::Media => media(item, slot),
            Some(slot) => conversation.text(index, slot).map_or(0, |text| tokens.count_text(&text)),
            None => 0,
        };
        count.saturating_sub(old) + tokens.count_text(&replacement.text)
    })
}

/// Tokens of the medium at a slot.
fn media(item: &Item, slot: &Slot) -> u64 {
    let found = item.facts.media.iter().find(|media| media.span == slot.span);
    found.map_or(0, |media| u64::from(media.tokens))
}

/// Tokens of every item as it would go out under `checkpoint`; 0 for those that its head stands for.
pub fn per_item(situation: &Situation, checkpoint: Option<&Checkpoint>) -> Vec<u32> {
    let upto = checkpoint.and_then(|checkpoint| checkpoint.head.as_ref()).map_or(0, |head| head.upto);
    let left_out = checkpoint.map_or(0..0, |checkpoint| binding::left_out(situation.conversation, checkpoint));
    let count = |(index, item): (usize, &Item)| match index {
        _ if index < upto && !cuts::is_kept(situation.conversation, index, upto) => 0,
        _ => {
            let eviction = situation.known.evictions.get(&item.chain).map(|row| &**row);
            let edited = checkpoint.is_some_and(|checkpoint| !edits_of(checkpoint, index).is_empty());
            if let Some(eviction) = eviction.filter(|_| !edited) {
                return eviction.tokens.after;
            }
            let thinking = if left_out.contains(&index) { binding::tokens(situation, index) } else { 0 };
            rewritten(situation, index, &in_force(checkpoint, eviction, index)).saturating_sub(thinking)
        }
    };
    let counts = situation.conversation.items.iter().enumerate().map(count);
    counts.map(|count| u32::try_from(count).unwrap_or(u32::MAX)).collect()
}

/// Tokens of those of the first `upto` items that no head stands for; `items` are the tokens of all.
pub fn kept(conversation: &Conversation, items: &[u32], upto: usize) -> u64 {
    let kept = items.iter().enumerate().take(upto).filter(|(index, _)| cuts::is_kept(conversation, *index, upto));
    kept.map(|(_, tokens)| u64::from(*tokens)).sum()
}

/// The replacements in force for item `index`, by slot: a checkpoint's edits, and an eviction's where
/// they leave a slot alone.
pub fn in_force<'k>(
    checkpoint: Option<&'k Checkpoint>,
    eviction: Option<&'k Eviction>,
    index: usize,
) -> Vec<&'k Replacement> {
    let edits = checkpoint.map_or(&[][..], |checkpoint| edits_of(checkpoint, index));
    let mut all: Vec<&Replacement> = edits.iter().map(|(_, replacement)| replacement).collect();
    for replacement in eviction.map_or(&[][..], |eviction| &eviction.replacements) {
        if !all.iter().any(|other| other.slot == replacement.slot) {
            all.push(replacement);
        }
    }
    all.sort_by_key(|replacement| replacement.slot);
    all
}

/// The text that stands for a slot as it is sent under `known`, where it is not the client's own.
pub fn standing<'k>(conversation: &Conversation, known: &'k Known, at: (usize, usize)) -> Option<&'k str> {
    let (index, slot) = at;
    let item = conversation.items.get(index)?;
    let eviction = known.evictions.get(&item.chain).map(|row| &**row);
    let replacements = in_force(known.active.as_deref(), eviction, index);
    replacements.into_iter().find(|replacement| replacement.slot == slot).map(|replacement| &*replacement.text)
}

/// The run of a checkpoint's edits (ascending by item) that belong to item `index`.
pub fn edits_of(checkpoint: &Checkpoint, index: usize) -> &[(usize, Replacement)] {
    let from = checkpoint.edits.partition_point(|(item, _)| *item < index);
    let edits = checkpoint.edits.get(from..).unwrap_or_default();
    let count = edits.iter().take_while(|(item, _)| *item == index).count();
    edits.get(..count).unwrap_or_default()
}
