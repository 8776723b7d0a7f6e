//! What a conversation costs as the client sent it and as it would go out, in uncalibrated tokens.

use crate::wire::{Conversation, Digest};

use super::rows::{Change, Checkpoint, Eviction, Known, Replacement};
use super::tokens::Tokens;

/// Upper bound of [`total`]'s `after` in tokens, from bytes alone: no text is looked at.
/// A token is at least one byte of text, escapes and structure only add bytes.
pub fn bound(tokens: &Tokens, conversation: &Conversation, known: &Known) -> u64 {
    let covered = known.active.as_deref().map_or(0, |checkpoint| checkpoint.covers);
    let items = conversation.items.iter().skip(covered);
    let open: u64 = items
        .map(|item| match known.evictions.get(&item.chain) {
            Some(eviction) => eviction.tokens.after,
            None => (item.facts.text_bytes as u64).saturating_add(media(item)),
        })
        .sum();
    let covered = known.active.as_deref().map_or(0, |checkpoint| checkpoint.tokens.after);
    covered + open + tokens.overhead_bound(conversation)
}

fn media(item: &crate::wire::Item) -> u64 {
    item.facts.media.iter().map(|media| u64::from(media.tokens)).sum()
}

/// Tokens of the whole request, before and after the known rewrites. Counts what was not counted yet.
pub fn total(tokens: &Tokens, conversation: &Conversation, known: &Known) -> Change {
    let active = known.active.as_deref();
    let covered = active.map_or(0, |checkpoint| checkpoint.covers);
    let overhead = tokens.overhead(conversation);
    let mut sum = active.map_or(Change::default(), |checkpoint| checkpoint.tokens);
    for (index, item) in conversation.items.iter().enumerate().skip(covered) {
        let change = match known.evictions.get(&item.chain) {
            Some(eviction) => eviction.tokens,
            None => same(tokens.count_item(conversation, index)),
        };
        sum.before += change.before;
        sum.after += change.after;
    }
    Change { before: sum.before + overhead, after: sum.after + overhead }
}

fn same(count: u64) -> Change {
    Change { before: count, after: count }
}

/// Tokens of item `index` with `replacements` in place of its slots' texts.
pub fn rewritten(tokens: &Tokens, conversation: &Conversation, index: usize, replacements: &[&Replacement]) -> u64 {
    let Some(item) = conversation.items.get(index) else { return 0 };
    replacements.iter().fold(tokens.count_item(conversation, index), |count, replacement| {
        let old = item.facts.slots.get(replacement.slot).and_then(|slot| conversation.text(index, slot));
        let old = old.map_or(0, |text| tokens.count_text(&text));
        count.saturating_sub(old) + tokens.count_text(&replacement.text)
    })
}

/// The replacements in force for item `index`: a checkpoint's edits, and an eviction's where they
/// leave a slot alone.
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
    all
}

/// The run of a checkpoint's edits (ascending by item) that belong to item `index`.
fn edits_of(checkpoint: &Checkpoint, index: usize) -> &[(usize, Replacement)] {
    let from = checkpoint.edits.partition_point(|(item, _)| *item < index);
    let upto = checkpoint.edits.partition_point(|(item, _)| *item <= index);
    checkpoint.edits.get(from..upto).unwrap_or_default()
}

/// Tokens of every item as it would go out under `checkpoint`; 0 for those its head stands for.
pub fn per_item(
    tokens: &Tokens,
    conversation: &Conversation,
    known: &Known,
    checkpoint: Option<&Checkpoint>,
) -> Vec<u64> {
    let upto = checkpoint.and_then(|checkpoint| checkpoint.head.as_ref()).map_or(0, |head| head.upto);
    let eviction = |chain: &Digest| known.evictions.get(chain).map(|eviction| &**eviction);
    let count = |(index, item): (usize, &crate::wire::Item)| match index {
        _ if index < upto => 0,
        _ => rewritten(tokens, conversation, index, &in_force(checkpoint, eviction(&item.chain), index)),
    };
    conversation.items.iter().enumerate().map(count).collect()
}
