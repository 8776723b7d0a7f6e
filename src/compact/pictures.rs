//! Pictures and files of the message that ends a folded history: its words stand in the fold, and they stand beside it.

use std::ops::Range;

use crate::wire::{Conversation, Item, Role};

use super::rows::Head;

/// The items with which the first `upto` end that say what the user asks: one message to the provider (A5).
fn asked(conversation: &Conversation, upto: usize) -> Range<usize> {
    let items = conversation.items.get(..upto).unwrap_or_default();
    let says = |item: &&Item| item.facts.role == Role::User && item.facts.results.is_empty();
    let run = items.iter().rev().take_while(says).count();
    items.len() - run..items.len()
}

/// The parts that stay beside a head, as JSON: a function of the history that it stands for alone.
pub fn kept(conversation: &Conversation, head: &Head) -> Vec<String> {
    let asked = if head.asks { asked(conversation, head.upto) } else { 0..0 };
    asked.flat_map(|item| conversation.media_parts(item)).collect()
}

/// Estimated tokens of what stays where the first `upto` items are folded.
pub fn tokens(conversation: &Conversation, upto: usize) -> u64 {
    let items = conversation.items.get(asked(conversation, upto)).unwrap_or_default();
    items.iter().flat_map(|item| &item.facts.media).map(|media| u64::from(media.tokens)).sum()
}

#[cfg(test)]
#[path = "tests/pictures.rs"]
mod tests;
