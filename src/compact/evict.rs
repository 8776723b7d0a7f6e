//! Eviction: one oversized result becomes its head, a pointer and its tail, at first sight and for ever.
//!
//! A page that the model reads back from `/_compactproxy/evicted/` is a tool result like any other. It needs
//! no exemption: a page below the limit is not evicted, and the pointer proposes pages that are. A page asked
//! for too large is evicted in its turn, which costs one call and leads nowhere else; the whole text read
//! back has the same id again.

use crate::config::EvictionSettings;
use crate::wire::{Conversation, Item, Sight, SlotKind};

use super::exclusions::{NEVER_PRUNED, excluded, tool_of};
use super::tokens::Tokens;
use super::{Known, Removed, Replacement, TextId, TextKey};

/// A result of fewer bytes is never evicted at first sight by any sensible setting: pointer and preview would be
/// as long. Should one be after all, the prompt cache breaks once.
const LEAST_EVICTED: usize = 1_024;

/// Characters of a plan that is pinned, at most.
const MOST_PINNED: usize = 8_000;

/// Whether some setting may evict the item's results.
pub fn is_evictable(item: &Item) -> bool {
    !item.facts.results.is_empty() && item.facts.text_bytes >= LEAST_EVICTED
}

/// The items that a request sends whole for the first time though some setting may evict them: they stay whole (L5).
pub fn went_whole<'c>(conversation: &'c Conversation<'_>, known: &'c Known) -> impl Iterator<Item = usize> + 'c {
    let new = conversation.items.iter().enumerate().skip(known.seen);
    new.filter(|(_, item)| is_evictable(item) && !known.evictions.contains_key(&item.chain)).map(|(index, _)| index)
}

/// What evicting needs beside the conversation.
#[derive(Clone, Copy)]
pub struct Evictor<'a> {
    pub settings: &'a EvictionSettings,
    pub key: &'a TextKey,
    /// Used only where `max_result_tokens` is set.
    pub tokens: &'a Tokens,
    pub ways: Ways<'a>,
}

/// The evictions of oversized results among the items from `from` on: the item, its new texts, and what they
/// take out.
pub fn evictions(
    conversation: &Conversation<'_>,
    from: usize,
    evictor: &Evictor<'_>,
) -> Vec<(usize, Vec<Replacement>, Vec<Removed>)> {
    (from..conversation.items.len())
        .filter_map(|item| {
            let (replacements, removed): (Vec<_>, Vec<_>) = evictor.item(conversation, item).into_iter().unzip();
            let removed = removed.into_iter().flatten().collect();
            (!replacements.is_empty()).then_some((item, replacements, removed))
        })
        .collect()
}

/// The text that takes an evicted text's place: a function of the text, its id and the settings alone. The
/// preview shrinks to a quarter of a short text, so that a low limit still has an effect.
pub fn stub(text: &str, id: TextId, settings: &EvictionSettings, ways: Ways<'_>) -> String {
    let preview = settings.preview_chars.min(text.chars().count() / 4);
    let page = (settings.max_result_chars / 2).clamp(1, 8_000);
    clip(text, id, Preview { chars: preview, page }, ways)
}

/// Ways to a removed text beside its address, as far as they are fixed for the conversation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ways<'a> {
    /// `<workspace_dir>/<tenant>`, where texts are written as files too.
    pub folder: Option<&'a str>,
    /// The client's own tool that reads files.
    pub reader: Option<&'a str>,
    /// The proxy's tool that reads removed texts, as it is offered.
    pub tool: Option<&'a str>,
}

/// How much of a text stays in its place.
#[derive(Clone, Copy, Debug)]
pub struct Preview {
    /// At most this many characters of the head, and of the tail.
    pub chars: usize,
    /// Characters of a page that the pointer proposes.
    pub page: usize,
}

/// Head, pointer and tail of a text. Cut after a line end where one is within a quarter of the preview, never
/// inside a character or before its combining marks. May be longer than a short text: the caller compares.
pub fn clip(text: &str, id: TextId, preview: Preview, ways: Ways<'_>) -> String {
    let (head_end, tail_start) = (head_end(text, preview.chars), tail_start(text, preview.chars));
    let head = text.get(..head_end).unwrap_or_default();
    let hidden = text.get(head_end..tail_start).unwrap_or_default();
    let tail = text.get(tail_start.max(head_end)..).unwrap_or_default();
    let (chars, lines) = (hidden.chars().count(), hidden.lines().count());
    let (head_chars, head_lines) = (head.chars().count(), head.lines().count());
    let offset = if head.is_empty() || head.ends_with('\n') { head_lines } else { head_lines.saturating_sub(1) };
    let page = preview.page;
    let reader = ways.reader.map(|reader| format!(", which the tool {reader} reads")).unwrap_or_default();
    let file = ways.folder.map(|folder| format!(" It is also in the file {folder}/{id}{reader}.")).unwrap_or_default();
    let tool = ways.tool.map(|tool| format!("call the tool {tool} with it, or ")).unwrap_or_default();
    let gap = if head.is_empty() || head.ends_with('\n') { "" } else { "\n" };
    format!(
        "{head}{gap}[compactproxy notice: {chars} characters ({lines} lines) are left out here and kept. Whole text: id {id}, \
         {tool}GET /_compactproxy/evicted/{id} at this model API's address. Page by lines with ?offset={offset}&limit=100 \
         or by characters with ?unit=chars&offset={head_chars}&limit={page}.{file} After this notice the text goes on.]\n{tail}"
    )
}

/// End of the head in bytes: at most `chars` characters.
fn head_end(text: &str, chars: usize) -> usize {
    let Some((most, _)) = text.char_indices().nth(chars) else { return text.len() };
    let least = text.char_indices().nth(chars - chars / 4).map_or(0, |(at, _)| at);
    match text.get(least..most).and_then(|end| end.rfind('\n')) {
        Some(at) => least + at + 1,
        None => whole_character(text, most),
    }
}

/// Start of the tail in bytes: at most `chars` characters before the end.
fn tail_start(text: &str, chars: usize) -> usize {
    if chars == 0 {
        return text.len();
    }
    let start_of = |count: usize| text.char_indices().rev().nth(count.max(1) - 1).map_or(0, |(at, _)| at);
    let (least, most) = (start_of(chars), start_of(chars - chars / 4));
    match text.get(least..most).and_then(|start| start.find('\n')) {
        _ if text.get(..least).is_some_and(|before| before.ends_with('\n')) => least,
        Some(at) => least + at + 1,
        None => {
            let rest = text.get(least..).unwrap_or_default();
            rest.char_indices()
                .take(MARKS)
                .find(|&(at, _)| !joined(text, least + at))
                .map_or(least, |(at, _)| least + at)
        }
    }
}

/// Most combining marks that a cut steps over.
const MARKS: usize = 32;

/// The nearest place at or before `at` that is not inside a sequence of combining marks.
pub fn whole_character(text: &str, at: usize) -> usize {
    let before = text.get(..at).unwrap_or_default();
    let steps = before.char_indices().rev().map(|(at, _)| at).take(MARKS);
    std::iter::once(at).chain(steps).find(|&at| !joined(text, at)).unwrap_or(at)
}

/// Whether the characters on both sides of `at` are drawn as one.
fn joined(text: &str, at: usize) -> bool {
    let (Some(before), Some(after)) = (text.get(..at), text.get(at..)) else { return false };
    let marked = after.chars().next().is_some_and(is_mark);
    marked || before.ends_with('\u{200d}') || before.ends_with('\r') && after.starts_with('\n')
}

/// Combining marks, joiners, variation selectors and skin tones: the common ones; no tables for the rest.
fn is_mark(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' | '\u{200d}'
        | '\u{20d0}'..='\u{20ff}' | '\u{fe00}'..='\u{fe0f}' | '\u{fe20}'..='\u{fe2f}' | '\u{1f3fb}'..='\u{1f3ff}'
        | '\u{e0100}'..='\u{e01ef}')
}

/// A text part of a result, measured.
struct Part {
    slot: usize,
    text: String,
    chars: usize,
    tokens: usize,
}

/// A new text, and what it takes out if no other replacement of the result does.
type Evicted = (Replacement, Option<Removed>);

/// Stands for a part whose text is in the stub of another: never empty, as some providers demand (C3).
const ELSEWHERE: &str = "[…]";

/// Whose result it is.
#[derive(Clone, Copy)]
enum Tool<'c> {
    Named(&'c str),
    /// No call asked for it.
    Unnamed,
    /// Its call is in a history that the provider holds.
    Unseen,
}

/// The most that a result may have.
#[derive(Clone, Copy)]
struct Limit {
    chars: usize,
    tokens: Option<usize>,
}

impl Evictor<'_> {
    fn item(&self, conversation: &Conversation<'_>, item: usize) -> Vec<Evicted> {
        let Some(facts) = conversation.items.get(item).map(|item| &item.facts) else { return Vec::new() };
        // Characters and tokens are never more than bytes: most results need no look inside.
        let least = self.settings.max_result_tokens.unwrap_or(usize::MAX).min(self.settings.max_result_chars);
        if facts.results.is_empty() || facts.text_bytes <= least {
            return Vec::new();
        }
        (0..facts.results.len()).flat_map(|result| self.result(conversation, item, result)).collect()
    }

    /// Replaces the largest text parts of one result until what is left is within the limit.
    fn result(&self, conversation: &Conversation<'_>, item: usize, result: usize) -> Vec<Evicted> {
        let tool = match (tool_of(conversation, item, result), conversation.sight()) {
            (Some(name), _) => Tool::Named(name),
            (None, Sight::Whole) => Tool::Unnamed,
            (None, Sight::Partial) => Tool::Unseen,
        };
        let Some(limit) = self.limit(tool) else { return Vec::new() };
        let mut parts = self.parts(conversation, item, result);
        let mut chars: usize = parts.iter().map(|part| part.chars).sum();
        // A plan whose call is out of sight: where it is in sight, it is pinned. A giant is never out of reach.
        let plans = |name| conversation.sight() == Sight::Partial && excluded(name, NEVER_PRUNED);
        if matches!(tool, Tool::Named(name) if plans(name)) && chars <= MOST_PINNED {
            return Vec::new();
        }
        let mut tokens: usize = parts.iter().map(|part| part.tokens).sum();
        parts.sort_by_key(|part| (std::cmp::Reverse(part.chars), part.slot));
        let mut replaced = Vec::new();
        for part in &parts {
            if chars <= limit.chars && limit.tokens.is_none_or(|most| tokens <= most) {
                break;
            }
            let id = self.key.id(&part.text);
            let text = stub(&part.text, id, self.settings, self.ways);
            let left = text.chars().count();
            if left >= part.chars || text.len() >= part.text.len() {
                continue;
            }
            chars -= part.chars - left;
            tokens = (tokens + self.tokens_of(&text)).saturating_sub(part.tokens);
            replaced.push((
                Replacement { slot: part.slot, text: text.into() },
                Some(Removed { id, text: part.text.clone() }),
            ));
        }
        if chars > limit.chars || limit.tokens.is_some_and(|most| tokens > most) {
            replaced = self.joined(&parts).unwrap_or(replaced);
        }
        replaced.sort_by_key(|(replacement, _)| replacement.slot);
        replaced
    }

    /// Many parts, each too small to be replaced by itself (largest first): one stub of the joined text in place of
    /// the largest, and a mark in place of every other.
    fn joined(&self, parts: &[Part]) -> Option<Vec<Evicted>> {
        let mut order: Vec<&Part> = parts.iter().collect();
        order.sort_by_key(|part| part.slot);
        let text = order.iter().map(|part| part.text.as_str()).collect::<Vec<_>>().join("\n");
        let (largest, others) = parts.split_first().filter(|(_, others)| !others.is_empty())?;
        let removed = self.key.removed(text);
        let stub = stub(&removed.text, removed.id, self.settings, self.ways);
        let marked = || others.iter().filter(|part| part.text.len() > ELSEWHERE.len());
        let mut replaced: Vec<Evicted> =
            marked().map(|part| (Replacement { slot: part.slot, text: ELSEWHERE.into() }, None)).collect();
        let before = largest.text.len() + marked().map(|part| part.text.len()).sum::<usize>();
        if stub.len() + replaced.len() * ELSEWHERE.len() >= before {
            return None;
        }
        replaced.push((Replacement { slot: largest.slot, text: stub.into() }, Some(removed)));
        Some(replaced)
    }

    /// The limit for a tool; `None` if it is never evicted. One that nobody knows may be excluded.
    fn limit(&self, tool: Tool<'_>) -> Option<Limit> {
        let wide = match tool {
            Tool::Named(name) => excluded(name, &self.settings.excluded_tools),
            Tool::Unnamed => false,
            Tool::Unseen => true,
        };
        let factor = if wide { self.settings.excluded_limit_factor } else { 1 };
        let scaled = |limit: usize| limit.saturating_mul(factor);
        let limit = Limit {
            chars: scaled(self.settings.max_result_chars),
            tokens: self.settings.max_result_tokens.map(scaled),
        };
        (factor > 0).then_some(limit)
    }

    fn parts(&self, conversation: &Conversation<'_>, item: usize, result: usize) -> Vec<Part> {
        let Some(facts) = conversation.items.get(item).map(|item| &item.facts) else { return Vec::new() };
        let slots = facts.slots.iter().enumerate().filter(|(_, slot)| slot.kind == SlotKind::Result(result));
        slots
            .filter_map(|(index, slot)| {
                let text = conversation.text(item, slot)?;
                Some(Part { slot: index, chars: text.chars().count(), tokens: self.tokens_of(&text), text })
            })
            .collect()
    }

    fn tokens_of(&self, text: &str) -> usize {
        self.settings.max_result_tokens.map_or(0, |_| self.tokens.count_text(text) as usize)
    }
}

#[cfg(test)]
#[path = "evict_tests.rs"]
mod tests;
