//! The ledger: what the user typed, verbatim. Computed from the original items every time, never from a summary, and
//! from user and system messages alone: no tool result can add to it or take from it.

use std::collections::HashMap;

use super::excerpt::{excerpt, split_at_char};
use super::rows::{Removed, TextId, TextKey};
use super::typed::Typed;
use crate::wire::{Conversation, Role};

/// Messages of at most this many characters stand whole.
pub const WHOLE_CHARS: usize = 2_000;
/// Head and tail of a longer message, and of any message where the budget is short, in characters.
const CLIPS: [(usize, usize); 2] = [(1_000, 1_000), (300, 300)];
/// Head and tail of the opening task: agents that get one message get everything in it. It has them only where half
/// of the budget is enough.
const TASK_CLIP: (usize, usize) = (6_000, 2_000);
/// A fenced block longer than this is pasted rather than typed, where the message is too long to stand whole.
const PASTED_CHARS: usize = 400;
/// Tokens that the lines around an entry cost.
const FRAME_TOKENS: usize = 6;
/// Between messages that were left out, in the text that keeps them.
const SEPARATOR: &str = "\n\n----------\n\n";

/// One message in the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Item at which it first appears.
    pub item: usize,
    /// The text as it stands in the ledger: verbatim, or head, pointer and tail.
    pub text: String,
    /// A system or developer message in mid-conversation.
    pub system: bool,
    /// The same words were typed again later.
    pub again: bool,
}

/// The typed messages of a prefix, in order of appearance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    pub entries: Vec<Entry>,
    /// The text that keeps the messages for which the budget had no room.
    pub omitted: Option<TextId>,
    /// Full texts of what is shortened or left out.
    pub removed: Vec<Removed>,
}

struct Message {
    item: usize,
    text: String,
    chars: usize,
    system: bool,
    again: bool,
    /// The first message of a user.
    opening: bool,
}

/// The ledger of the first `upto` items in at most `budget` tokens by `count` (the pointer to omitted messages comes on
/// top). Where the budget is short the shortest messages come first, then the opening task, then the newest.
pub fn ledger(
    conversation: &Conversation<'_>,
    upto: usize,
    budget: usize,
    key: &TextKey,
    count: &dyn Fn(&str) -> usize,
) -> Ledger {
    let messages = messages(conversation, upto);
    let mut left = budget;
    let mut ledger = Ledger::default();
    let mut omitted = Vec::new();
    for message in in_order_of_worth(&messages) {
        let fitting = forms(message, key).into_iter().find_map(|(text, removed)| {
            let cost = count(&text) + FRAME_TOKENS;
            let room = if text.chars().count() > 2 * WHOLE_CHARS { left.min(budget / 2) } else { left };
            (cost <= room).then_some((text, removed, cost))
        });
        let Some((text, removed, cost)) = fitting else {
            omitted.push(message);
            continue;
        };
        left -= cost;
        ledger.removed.extend(removed);
        ledger.entries.push(Entry { item: message.item, text, system: message.system, again: message.again });
    }
    ledger.entries.sort_by_key(|entry| entry.item);
    if !omitted.is_empty() {
        omitted.sort_by_key(|message| message.item);
        let texts: Vec<&str> = omitted.iter().map(|message| message.text.as_str()).collect();
        let removed = key.removed(texts.join(SEPARATOR));
        ledger.omitted = Some(removed.id);
        ledger.removed.push(removed);
    }
    ledger
}

/// Every typed message once, in order of appearance.
fn messages(conversation: &Conversation<'_>, upto: usize) -> Vec<Message> {
    let typed = Typed::new(conversation, upto);
    let mut messages: Vec<Message> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut opened = false;
    for (i, item) in conversation.items.iter().enumerate().take(upto) {
        let Some(text) = typed.text(i) else { continue };
        if let Some(message) = known.get(&text).and_then(|&at| messages.get_mut(at)) {
            message.again = true;
            continue;
        }
        known.insert(text.clone(), messages.len());
        let chars = text.chars().count();
        let system = item.facts.role == Role::System;
        let opening = !system && !opened;
        opened |= opening;
        messages.push(Message { item: i, text, chars, system, again: false, opening });
    }
    messages
}

fn in_order_of_worth(messages: &[Message]) -> Vec<&Message> {
    let mut order: Vec<&Message> = messages.iter().collect();
    order.sort_by_key(|message| match message.chars <= WHOLE_CHARS {
        true => (0, message.chars, message.item),
        false if message.opening => (1, 0, 0),
        false => (2, usize::MAX - message.item, 0),
    });
    order
}

/// The forms in which a message may stand, best first, each with what it leaves out.
fn forms(message: &Message, key: &TextKey) -> Vec<(String, Option<Removed>)> {
    let mut forms = Vec::new();
    if message.chars <= WHOLE_CHARS {
        forms.push((message.text.clone(), None));
    }
    let removed = key.removed(message.text.clone());
    let pointer = format!("[… shortened here; the whole message: id {0}, /_compactproxy/evicted/{0} …]", removed.id);
    let clip = |(head, tail): (usize, usize)| (excerpt(&message.text, head, tail, &pointer), Some(removed.clone()));
    if message.opening && message.chars > WHOLE_CHARS {
        let whole = message.chars <= TASK_CLIP.0 + TASK_CLIP.1;
        forms.push(if whole { (message.text.clone(), None) } else { clip(TASK_CLIP) });
    }
    let unpasted = without_pasted(&message.text);
    if message.chars > WHOLE_CHARS && unpasted.chars().count() <= WHOLE_CHARS {
        forms.push((format!("{unpasted}\n{pointer}"), Some(removed.clone())));
    }
    forms.extend(CLIPS.into_iter().filter(|(head, tail)| message.chars > head + tail).map(clip));
    forms
}

/// `text` with its long fenced blocks left out: the sentences around pasted output stay verbatim.
fn without_pasted(text: &str) -> String {
    let mut kept = String::new();
    for (i, part) in text.split("```").enumerate() {
        let pasted = i % 2 == 1 && !split_at_char(part, PASTED_CHARS).1.is_empty();
        if i > 0 {
            kept.push_str("```");
        }
        kept.push_str(if pasted { "[… pasted text left out …]" } else { part });
    }
    kept
}

#[cfg(test)]
#[path = "tests/ledger.rs"]
mod tests;
