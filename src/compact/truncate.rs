//! Argument truncation: long strings in the arguments of old calls are clipped, the JSON around them keeps
//! its spelling (C6).
//!
//! Works on the client's bytes alone: whatever was replaced before wins over what is proposed here, and the
//! caller drops the cuts of pinned calls (plans, todo lists).

use std::ops::Range;

use memchr::memchr2;
use serde::de::IgnoredAny;

use crate::config::TruncateSettings;
use crate::wire::{Conversation, SlotKind};

use super::evict::whole_character;
use super::{Cut, Removed, Replacement, TextKey};

/// Clips the arguments and custom inputs of the calls in a range of items. Each cut is smaller than what it
/// replaces; whether they gain enough together is for the caller to say.
pub fn truncate(
    conversation: &Conversation<'_>,
    range: Range<usize>,
    settings: &TruncateSettings,
    key: &TextKey,
) -> Vec<Cut> {
    let mut cuts = Vec::new();
    for item in range.start..range.end.min(conversation.items.len()) {
        let Some(facts) = conversation.items.get(item).map(|item| &item.facts) else { break };
        for (index, slot) in facts.slots.iter().enumerate() {
            // Characters are never more than bytes: short arguments need no look inside.
            if slot.span.len() <= settings.max_arg_length {
                continue;
            }
            let clipped = match slot.kind {
                SlotKind::Arguments(_) => {
                    conversation.text(item, slot).and_then(|json| clip_arguments(&json, settings, key))
                }
                SlotKind::Input(_) => conversation
                    .text(item, slot)
                    .and_then(|text| clip_string(text, settings, key))
                    .map(|(text, removed)| (text, vec![removed])),
                _ => None,
            };
            if let Some((text, removed)) = clipped {
                cuts.push(Cut { item, replacement: Replacement { slot: index, text: text.into() }, removed });
            }
        }
    }
    cuts
}

/// Clips the long string values of a JSON text, at any depth, and leaves all else as it is spelt. `None`
/// where it is not JSON or nothing is gained.
fn clip_arguments(json: &str, settings: &TruncateSettings, key: &TextKey) -> Option<(String, Vec<Removed>)> {
    serde_json::from_str::<IgnoredAny>(json).ok()?;
    let (mut clipped, mut removed, mut copied) = (String::new(), Vec::new(), 0);
    for span in string_values(json).filter(|span| span.len() > settings.max_arg_length) {
        let spelt = json.get(span.clone())?;
        // A lone surrogate cannot be decoded: such a string stays.
        let Ok(text) = serde_json::from_str::<String>(spelt) else { continue };
        let Some((text, original)) = clip_string(text, settings, key) else { continue };
        let text = serde_json::to_string(&text).ok()?;
        if text.len() < spelt.len() {
            clipped.push_str(json.get(copied..span.start)?);
            clipped.push_str(&text);
            copied = span.end;
            removed.push(original);
        }
    }
    clipped.push_str(json.get(copied..)?);
    (!removed.is_empty()).then_some((clipped, removed))
}

/// The spans, quotes included, of all strings in a valid JSON text that are not keys.
fn string_values(json: &str) -> impl Iterator<Item = Range<usize>> {
    let bytes = json.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let start = at + memchr::memchr(b'"', bytes.get(at..)?)?;
            let end = string_end(bytes, start)?;
            at = end;
            let follower = bytes.get(end..)?.iter().find(|byte| !byte.is_ascii_whitespace());
            if follower != Some(&b':') {
                return Some(start..end);
            }
        }
    })
}

/// Where the string that starts at `start` ends, behind its closing quote.
fn string_end(json: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        at += memchr2(b'"', b'\\', json.get(at..)?)?;
        match json.get(at)? {
            b'"' => return Some(at + 1),
            _ => at += 2,
        }
    }
}

/// Head of a text and the truncation text, `max_arg_length` characters at most. `None` where the text is not
/// longer than that, was clipped before, or would not get smaller.
fn clip_string(text: String, settings: &TruncateSettings, key: &TextKey) -> Option<(String, Removed)> {
    let chars = text.chars().count();
    if chars <= settings.max_arg_length || ends_with_template(&text, &settings.truncation_text) {
        return None;
    }
    let id = key.id(&text);
    let notice =
        |hidden: usize| settings.truncation_text.replace("{n}", &hidden.to_string()).replace("{id}", &id.to_string());
    // Fewer characters are hidden than there are, and a smaller number is not longer.
    let kept = settings.max_arg_length.checked_sub(notice(chars).chars().count())?;
    let end = text.char_indices().nth(kept).map_or(text.len(), |(at, _)| at);
    let head = text.get(..whole_character(&text, end))?;
    let clipped = format!("{head}{}", notice(chars - head.chars().count()));
    (clipped.len() < text.len()).then_some((clipped, Removed { id, text }))
}

/// Whether a text ends with the truncation text, filled in: a model may have copied one.
fn ends_with_template(text: &str, template: &str) -> bool {
    let opening = template.split('{').next().unwrap_or_default();
    if opening.is_empty() {
        return false;
    }
    text.rfind(opening).and_then(|at| text.get(at..)).is_some_and(|rest| fills(rest, template))
}

/// Whether a text is exactly a template with its `{n}` as digits and its `{id}` as hexadecimal digits.
fn fills(text: &str, template: &str) -> bool {
    let (mut text, mut template) = (text, template);
    while !template.is_empty() {
        let digits = |radix| text.trim_start_matches(move |c: char| c.is_digit(radix));
        (text, template) = if let Some(rest) = template.strip_prefix("{n}") {
            (digits(10), rest)
        } else if let Some(rest) = template.strip_prefix("{id}") {
            (digits(16), rest)
        } else {
            let mut characters = template.chars();
            let Some(rest) = characters.next().and_then(|c| text.strip_prefix(c)) else { return false };
            (rest, characters.as_str())
        };
    }
    text.is_empty()
}

#[cfg(test)]
#[path = "truncate_tests.rs"]
mod tests;
