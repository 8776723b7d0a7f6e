//! What no strategy swallows: the latest plan and todo list, plan mode, unfinished background work, permission answers
//! and loaded skills. Read from the items that are given, as of the last of them, and quoted as data.

mod background;
mod permission;
mod plan_mode;
mod skill;
mod todo;
mod tools;

use std::cell::OnceCell;
use std::collections::HashSet;

use super::excerpt::{excerpt, split_at_char};
use super::exchange::{Exchange, exchanges};
use super::rows::{Removed, TextKey};
use crate::wire::Conversation;

/// Characters that a pointer to what has no room takes.
const POINTER_CHARS: usize = 120;
/// Fewest characters that are left of a state where several compete.
const LEAST_CHARS: usize = 120;

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
    /// Tools whose definitions a search brought.
    Tools,
}

/// One state to carry over a cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    pub kind: PinKind,
    /// Quoted text: data, whoever wrote it.
    pub text: String,
}

/// The pins of replaced items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pins {
    /// By kind, then in order of appearance.
    pub pins: Vec<Pin>,
    /// Full texts of what is shortened or left out.
    pub removed: Vec<Removed>,
}

/// A state found in the conversation, before it is fitted into a text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    kind: PinKind,
    worth: Worth,
    item: usize,
    text: String,
    /// Slots that show it: item and slot.
    shown: Vec<(usize, usize)>,
}

/// Which states of a kind come first where there is no room for all; of equal ones the newest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Worth {
    First,
    Second,
}

impl PinKind {
    const ALL: [Self; 6] = [Self::Todo, Self::PlanMode, Self::Background, Self::Permission, Self::Skill, Self::Tools];

    /// Share of the budget, in percent, and most characters, of all pins of the kind.
    const fn bounds(self) -> (usize, usize) {
        match self {
            Self::Todo | Self::PlanMode => (26, 8_000),
            Self::Background => (12, 4_000),
            Self::Permission => (16, 6_000),
            Self::Skill => (16, 6_000),
            Self::Tools => (4, 2_000),
        }
    }

    /// The heading under which pins of the kind stand.
    pub const fn heading(self) -> &'static str {
        match self {
            Self::Todo => "Plan or todo list, as of the replaced messages; later messages count",
            Self::PlanMode => "Plan mode, as of the replaced messages; later messages count",
            Self::Background => {
                "Background tasks and subagents that had not finished as of the replaced messages; later messages count"
            }
            Self::Permission => "Permission answers, quoted from tool results; later messages count",
            Self::Skill => "Skills loaded, as of the replaced messages; later messages count",
            Self::Tools => {
                "Tools that a search had found. Their definitions went with the replaced messages: search for one again \
                 before calling it"
            }
        }
    }
}

/// The pins of all items of the conversation, in about `budget` tokens. Nothing goes without trace: what is shortened
/// or left out for want of room stands whole in one removed text a kind, with a pointer to it.
pub fn pins(conversation: &Conversation<'_>, budget: usize, key: &TextKey) -> Pins {
    let mut pins = Pins::default();
    let states = states(conversation);
    for kind in PinKind::ALL {
        let (share, most) = kind.bounds();
        // Three characters a token is a careful reading of any tokenizer.
        let room = most.min(budget.saturating_mul(3).saturating_mul(share) / 100);
        let found: Vec<&State> = states.iter().filter(|state| state.kind == kind).collect();
        let (texts, removed) = fitted(&found, room, key);
        pins.pins.extend(texts.into_iter().map(|text| Pin { kind, text }));
        pins.removed.extend(removed);
    }
    pins
}

/// The texts of some states in about `room` characters, in order: whole where all fit, else each shortened, then the
/// most worthy and newest, and a pointer to all that is not whole.
fn fitted(states: &[&State], room: usize, key: &TextKey) -> (Vec<String>, Option<Removed>) {
    let lengths = states.iter().map(|state| state.text.chars().count());
    if let [state] = states {
        let (text, removed) = shortened(&state.text, room, key);
        return (vec![text], removed);
    }
    if lengths.sum::<usize>() <= room {
        return (states.iter().map(|state| state.text.clone()).collect(), None);
    }
    let room = room.saturating_sub(POINTER_CHARS);
    let each = (room / states.len().max(1)).max(LEAST_CHARS);
    let mut order: Vec<usize> = (0..states.len()).collect();
    order.sort_by_key(|&at| (states.get(at).map(|state| state.worth), std::cmp::Reverse(at)));
    let mut left = room;
    let mut chosen: Vec<(usize, String)> = Vec::new();
    for at in order {
        let Some(state) = states.get(at) else { continue };
        let text = clipped(&state.text, each);
        let chars = text.chars().count();
        if chars > left && !chosen.is_empty() {
            break;
        }
        left = left.saturating_sub(chars);
        chosen.push((at, text));
    }
    chosen.sort_by_key(|(at, _)| *at);
    let whole = |at: usize| {
        chosen.iter().any(|(other, text)| *other == at && states.get(at).is_some_and(|state| state.text == *text))
    };
    let reduced: Vec<&str> =
        states.iter().enumerate().filter(|(at, _)| !whole(*at)).map(|(_, state)| state.text.as_str()).collect();
    let more = states.len() - chosen.len();
    let removed = key.removed(reduced.join("\n"));
    let pointer = format!("[… {more} more left out; whole texts: id {0}, /_compactproxy/evicted/{0} …]", removed.id);
    let mut texts: Vec<String> = chosen.into_iter().map(|(_, text)| text).collect();
    texts.push(pointer);
    (texts, Some(removed))
}

/// At most about `chars` characters of a text that is kept whole elsewhere.
fn clipped(text: &str, chars: usize) -> String {
    match split_at_char(text, chars) {
        (_, "") => text.to_owned(),
        (start, _) if !text.contains('\n') => format!("{start}…"),
        _ => excerpt(text, chars * 3 / 4, chars / 4, "[… shortened here …]"),
    }
}

/// What is pinned of a conversation, found when first asked for: all calls and results are read for it.
pub struct Pinned<'c> {
    conversation: &'c Conversation<'c>,
    found: OnceCell<HashSet<(usize, usize)>>,
}

impl<'c> Pinned<'c> {
    pub fn of(conversation: &'c Conversation<'c>) -> Self {
        Self { conversation, found: OnceCell::new() }
    }

    /// Whether a slot of an item shows a pinned state.
    pub fn holds(&self, item: usize, slot: usize) -> bool {
        self.found.get_or_init(|| pinned_items(self.conversation)).contains(&(item, slot))
    }
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
    states.extend(tools::state(conversation));
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

#[cfg(test)]
#[path = "tests/pinned.rs"]
mod pinned_tests;
