//! What no strategy swallows: the latest plan and todo list, plan mode, unfinished background work, permission answers
//! and loaded skills. Read from the whole conversation, quoted as data.

mod background;
mod permission;
mod plan_mode;
mod skill;
mod todo;

use std::collections::HashSet;

use super::excerpt::{excerpt, split_at_char};
use super::exchange::{Exchange, exchanges};
use super::rows::{Removed, TextKey};
use crate::wire::Conversation;

/// What a pin keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PinKind {
    /// The latest todo list, task list or plan of steps.
    Todo,
    /// Plan mode and the plan that was written in it.
    PlanMode,
    /// Shells and subagents that still run.
    Background,
    /// What the user allowed, refused or answered through a tool.
    Permission,
    /// A skill that was loaded.
    Skill,
}

/// One state to carry over a cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    pub kind: PinKind,
    /// The first item of those that show this state: from here on the conversation itself shows it.
    pub item: usize,
    /// Quoted text: data, whoever wrote it.
    pub text: String,
}

/// The pins that a cut would swallow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pins {
    /// By kind, then in order of appearance.
    pub pins: Vec<Pin>,
    /// Full texts of what is shortened.
    pub removed: Vec<Removed>,
}

/// A state found in the conversation, before it is fitted into a text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    kind: PinKind,
    item: usize,
    text: String,
    /// Slots that show it: item and slot.
    shown: Vec<(usize, usize)>,
}

impl PinKind {
    const ALL: [Self; 5] = [Self::Todo, Self::PlanMode, Self::Background, Self::Permission, Self::Skill];

    /// Share of the budget, in percent, and most characters, of all pins of the kind.
    const fn bounds(self) -> (usize, usize) {
        match self {
            Self::Todo | Self::PlanMode => (28, 8_000),
            Self::Background => (12, 4_000),
            Self::Permission => (16, 6_000),
            Self::Skill => (16, 6_000),
        }
    }

    /// The heading under which pins of the kind stand.
    pub const fn heading(self) -> &'static str {
        match self {
            Self::Todo => "Latest plan or todo list, as the assistant last wrote it",
            Self::PlanMode => "Plan mode",
            Self::Background => "Background tasks and subagents that had not finished",
            Self::Permission => "Permission answers, quoted from tool results",
            Self::Skill => "Skills loaded",
        }
    }
}

/// The pins of the conversation whose state does not stand in the items from `cut` on, in about `budget` tokens.
pub fn pins(conversation: &Conversation<'_>, cut: usize, budget: usize, key: &TextKey) -> Pins {
    let mut pins = Pins::default();
    let states = states(conversation);
    for kind in PinKind::ALL {
        let (share, most) = kind.bounds();
        // Three characters a token is a careful reading of any tokenizer.
        let mut left = most.min(budget.saturating_mul(3).saturating_mul(share) / 100);
        // The newest come first where there is no room for all.
        let swallowed: Vec<&State> = states.iter().filter(|state| state.kind == kind && state.item < cut).collect();
        let each = left / swallowed.len().clamp(1, 4);
        let mut chosen = Vec::new();
        for state in swallowed.into_iter().rev() {
            let (text, removed) = shortened(&state.text, each, key);
            let chars = text.chars().count();
            if chars > left && !chosen.is_empty() {
                break;
            }
            left = left.saturating_sub(chars);
            pins.removed.extend(removed);
            chosen.push(Pin { kind, item: state.item, text });
        }
        pins.pins.extend(chosen.into_iter().rev());
    }
    pins
}

/// The slots, as item and slot, that show a pinned state: trim, prune and evict leave them alone.
pub fn pinned_items(conversation: &Conversation<'_>) -> HashSet<(usize, usize)> {
    states(conversation).into_iter().flat_map(|state| state.shown).collect()
}

/// The latest todo list or plan, for a digest's next steps.
pub fn latest_plan(conversation: &Conversation<'_>) -> Option<String> {
    todo::state(&exchanges(conversation)).map(|state| state.text)
}

fn states(conversation: &Conversation<'_>) -> Vec<State> {
    let exchanges = exchanges(conversation);
    let mut states = Vec::new();
    states.extend(todo::state(&exchanges));
    states.extend(plan_mode::state(&exchanges));
    states.extend(background::states(conversation, &exchanges));
    states.extend(permission::states(&exchanges));
    states.extend(skill::states(&exchanges));
    states
}

/// `text` in about `chars` characters, with a pointer to the whole where it is longer.
fn shortened(text: &str, chars: usize, key: &TextKey) -> (String, Option<Removed>) {
    let chars = chars.max(80);
    if text.chars().count() <= chars {
        return (text.to_owned(), None);
    }
    let removed = key.removed(text.to_owned());
    let pointer = format!("[… shortened here; the whole text: id {0}, /_compactproxy/evicted/{0} …]", removed.id);
    (excerpt(text, chars * 3 / 4, chars / 4, &pointer), Some(removed))
}

/// Slot of a call's arguments, as item and slot.
fn arguments_slot(exchange: &Exchange) -> Vec<(usize, usize)> {
    exchange.slot.map(|slot| (exchange.item, slot)).into_iter().collect()
}

/// Slots of a call's result, as item and slot, if it has at most `most` characters: a giant is never out of reach of the
/// strategies, its pin quotes it instead.
fn result_slots(exchange: &Exchange, most: usize) -> Vec<(usize, usize)> {
    let answer = exchange.result.iter().filter(|answer| split_at_char(&answer.text, most).1.is_empty());
    answer.flat_map(|answer| answer.slots.iter().map(|&slot| (answer.item, slot))).collect()
}

#[cfg(test)]
#[path = "tests/pins.rs"]
mod tests;
