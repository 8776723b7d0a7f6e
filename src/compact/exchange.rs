//! Tool calls read together with what answered them.

use serde_json::Value;

use super::cuts::pairs;
use super::exclusions::bare_names;
use crate::wire::{Conversation, SlotKind};

/// One call of a tool with its result.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchange {
    /// Item that makes the call.
    pub item: usize,
    /// Slot of its arguments or input, if it has one.
    pub slot: Option<usize>,
    /// The tool's name as the client wrote it.
    pub name: String,
    /// Arguments or input as text; empty where there are none.
    pub arguments: String,
    pub result: Option<Answer>,
}

/// What answered a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub item: usize,
    /// Slots of its text, in order.
    pub slots: Vec<usize>,
    /// The texts, joined by line breaks.
    pub text: String,
}

/// The conversation's exchanges in order of the calls.
pub fn exchanges(conversation: &Conversation<'_>) -> Vec<Exchange> {
    pairs(conversation)
        .into_iter()
        .filter_map(|pair| {
            let (item, call) = pair.call;
            let name = conversation.items.get(item)?.facts.calls.get(call)?.name.clone();
            let wanted = [SlotKind::Arguments(call), SlotKind::Input(call)];
            let slots = slots_of(conversation, item, |kind| wanted.contains(&kind));
            let arguments = texts(conversation, item, &slots);
            let result = pair.result.map(|(item, result)| {
                let slots = slots_of(conversation, item, |kind| kind == SlotKind::Result(result));
                Answer { item, text: texts(conversation, item, &slots), slots }
            });
            Some(Exchange { item, slot: slots.first().copied(), name, arguments, result })
        })
        .collect()
}

impl Exchange {
    /// The tool's shortest name without case and separators: `mcp__x__todo_write`, `functions.todo_write` and
    /// `TodoWrite` are one tool.
    pub fn tool(&self) -> String {
        let name = bare_names(&self.name).pop().unwrap_or_default();
        name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
    }

    /// The arguments as JSON; `Null` where they do not parse.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.arguments).unwrap_or(Value::Null)
    }

    /// The result's text; empty while there is none.
    pub fn answer(&self) -> &str {
        self.result.as_ref().map_or("", |answer| answer.text.as_str())
    }
}

/// Member of a call's arguments as a string, by the first of `keys` that is there.
pub fn argument(arguments: &Value, keys: &[&str]) -> Option<String> {
    keys.iter().find_map(|key| match arguments.get(key)? {
        Value::String(text) if !text.trim().is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    })
}

/// Indices of an item's slots whose kind is wanted.
pub fn slots_of(conversation: &Conversation<'_>, item: usize, wanted: impl Fn(SlotKind) -> bool) -> Vec<usize> {
    let Some(item) = conversation.items.get(item) else { return Vec::new() };
    item.facts.slots.iter().enumerate().filter(|(_, slot)| wanted(slot.kind)).map(|(i, _)| i).collect()
}

/// The decoded texts of an item's slots, joined by line breaks; what does not decode is left out.
pub fn texts(conversation: &Conversation<'_>, item: usize, slots: &[usize]) -> String {
    let Some(facts) = conversation.items.get(item).map(|item| &item.facts) else { return String::new() };
    let decoded = slots.iter().filter_map(|&slot| conversation.text(item, facts.slots.get(slot)?));
    decoded.collect::<Vec<_>>().join("\n")
}

/// The item's own text (its role's words), parts joined by line breaks.
pub fn words(conversation: &Conversation<'_>, item: usize) -> String {
    texts(conversation, item, &slots_of(conversation, item, |kind| kind == SlotKind::Text))
}
