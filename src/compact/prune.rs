//! Pruning: older tool results become their head, a pointer and their tail, once enough is gained together.

use std::ops::Range;

use crate::config::PruneSettings;
use crate::wire::{Conversation, SlotKind};

use super::evict::{Preview, Ways, clip};
use super::exclusions::{NEVER_PRUNED, excluded, tool_of};
use super::tokens::Tokens;
use super::{Cut, Removed, Replacement, TextKey};

/// What pruning needs beside the conversation.
#[derive(Clone, Copy)]
pub struct Pruner<'a> {
    pub settings: &'a PruneSettings,
    pub key: &'a TextKey,
    pub tokens: &'a Tokens,
    pub ways: Ways<'a>,
    /// Tokens of the newest tool output that stay.
    pub protect: u64,
    /// Least gain in tokens, all cuts together; less gives none.
    pub min_gain: u64,
}

/// The text that stands for a slot (item, slot) in the body as it is sent now, where it is not the client's
/// own: an earlier edit of a checkpoint, or an eviction.
pub type Standing<'a> = dyn Fn(usize, usize) -> Option<&'a str> + 'a;

/// Characters of a page that a pointer proposes.
const PAGE: usize = 4_000;

/// The cuts of older results in a range of items, oldest first; none where they would gain less than
/// `min_gain` together.
///
/// Walking back from the end of the range, results stay until those behind them reach `protect` tokens as
/// sent; of the others, each text longer than `max_output_chars` keeps half of that as head and half as tail.
/// New texts are made from the client's bytes, never from a stub; gains are counted against what `standing`
/// says is sent. Tools in [`NEVER_PRUNED`] keep their results and take no part in the protected tokens.
pub fn prune(
    conversation: &Conversation<'_>,
    range: Range<usize>,
    pruner: &Pruner<'_>,
    standing: &Standing<'_>,
) -> Vec<Cut> {
    let (mut cuts, mut newer, mut total) = (Vec::new(), 0, 0);
    for item in (range.start..range.end.min(conversation.items.len())).rev() {
        let Some(facts) = conversation.items.get(item).map(|item| &item.facts) else { continue };
        let old = newer >= pruner.protect;
        for (slot, at) in facts.slots.iter().enumerate().rev() {
            let SlotKind::Result(result) = at.kind else { continue };
            if tool_of(conversation, item, result).is_some_and(|name| excluded(name, NEVER_PRUNED)) {
                continue;
            }
            let Some(text) = conversation.text(item, at) else { continue };
            let sent = standing(item, slot).unwrap_or(&text);
            let now = pruner.tokens.count_text(sent);
            newer += now;
            if !old {
                continue;
            }
            let Some((clipped, removed)) = pruner.clipped(&text, sent) else { continue };
            total += now.saturating_sub(pruner.tokens.count_text(&clipped));
            cuts.push(Cut { item, replacement: Replacement { slot, text: clipped.into() }, removed: vec![removed] });
        }
    }
    cuts.reverse();
    if total >= pruner.min_gain { cuts } else { Vec::new() }
}

impl Pruner<'_> {
    /// The new text of a result, if it is smaller than the one that is sent now.
    fn clipped(&self, text: &str, sent: &str) -> Option<(String, Removed)> {
        let most = self.settings.max_output_chars;
        if text.len() <= most || text.chars().count() <= most {
            return None;
        }
        let id = self.key.id(text);
        let clipped = clip(text, id, Preview { chars: most / 2, page: PAGE }, self.ways);
        let smaller = clipped.len() < sent.len() && self.tokens.count_text(&clipped) < self.tokens.count_text(sent);
        smaller.then(|| (clipped, Removed { id, text: text.to_owned() }))
    }
}

/// Tokens that some cuts take off the body as it is sent now.
pub fn gain(conversation: &Conversation<'_>, cuts: &[Cut], tokens: &Tokens, standing: &Standing<'_>) -> u64 {
    let of = |cut: &Cut| {
        let slot = conversation.items.get(cut.item)?.facts.slots.get(cut.replacement.slot)?;
        let now = match standing(cut.item, cut.replacement.slot) {
            Some(text) => tokens.count_text(text),
            None => tokens.count_text(&conversation.text(cut.item, slot)?),
        };
        Some(now.saturating_sub(tokens.count_text(&cut.replacement.text)))
    };
    cuts.iter().filter_map(of).sum()
}

#[cfg(test)]
#[path = "prune_tests.rs"]
mod tests;
