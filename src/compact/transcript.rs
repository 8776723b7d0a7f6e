//! A prefix as text for a side call: fenced, so that nothing in it can pass for an instruction, and clipped to fit.

use std::collections::HashMap;
use std::ops::Range;

use super::cuts::groups;
use super::digest::paths;
use super::excerpt::{excerpt, fenced, nonce};
use super::exchange::{Exchange, exchanges, words};
use crate::wire::{Conversation, Role};

/// Characters of one text, head and tail together, tried from generous to tight.
const CLIPS: [usize; 9] = [16_000, 8_000, 4_000, 2_000, 1_000, 500, 240, 120, 60];
/// A text that needs more bytes a token than this is not worth counting: it does not fit.
const BYTES_PER_TOKEN: usize = 8;
/// Side calls that one summary may take; beyond them the transcripts are clipped harder.
pub const MAX_STEPS: u64 = 8;
const CLIPPED: &str = "[… clipped …]";

/// One item, read for rendering.
struct Entry {
    heading: String,
    texts: Vec<String>,
    /// Paths named in arguments, said again where a clip may have taken them.
    notes: Vec<String>,
}

/// The items in `range` as text inside a fence whose nonce comes from the content, in at most `budget` tokens by
/// `count` (fence aside). Pictures become placeholders.
pub fn transcript(
    conversation: &Conversation<'_>,
    range: Range<usize>,
    budget: usize,
    count: &dyn Fn(&str) -> usize,
) -> String {
    let content = clipped(conversation, range, budget, count);
    fenced("transcript", &nonce(&content), &content)
}

/// The transcript's content, without the fence.
pub fn clipped(
    conversation: &Conversation<'_>,
    range: Range<usize>,
    budget: usize,
    count: &dyn Fn(&str) -> usize,
) -> String {
    let entries = entries(conversation, range);
    let mut content = String::new();
    for clip in CLIPS {
        content = entries.iter().map(|entry| entry.render(clip)).collect::<Vec<_>>().join("\n\n");
        if content.len() <= budget.saturating_mul(BYTES_PER_TOKEN) && count(&content) <= budget {
            return content;
        }
    }
    // Even stubs of all items are too long: the middle is left out, half as much each time.
    let mut chars = content.chars().count().min(budget.saturating_mul(BYTES_PER_TOKEN));
    while chars > 0 && count(&content) > budget {
        chars /= 2;
        content = excerpt(&content, chars / 3, chars - chars / 3, CLIPPED);
    }
    content
}

/// `range` in consecutive parts that end at group ends and have at most `budget` tokens each, where a group allows it;
/// each part is summarised together with the summary of those before. At most [`MAX_STEPS`] parts.
pub fn steps(conversation: &Conversation<'_>, range: Range<usize>, counts: &[u32], budget: u64) -> Vec<Range<usize>> {
    let cost = |part: &Range<usize>| -> u64 {
        counts.get(part.clone()).unwrap_or_default().iter().map(|&tokens| u64::from(tokens)).sum()
    };
    let budget = budget.max(cost(&range).div_ceil(MAX_STEPS.div_ceil(2))).max(1);
    let mut steps: Vec<Range<usize>> = Vec::new();
    let mut left = 0;
    for group in groups(conversation) {
        let part = group.start.max(range.start)..group.end.min(range.end);
        if part.is_empty() {
            continue;
        }
        let tokens = cost(&part);
        match steps.last_mut() {
            Some(step) if tokens <= left => {
                step.end = part.end;
                left -= tokens;
            }
            _ => {
                left = budget.saturating_sub(tokens);
                steps.push(part);
            }
        }
    }
    steps
}

/// The items in `range` as they stand in a transcript, each text in at most about `clip` characters.
pub fn rendered(conversation: &Conversation<'_>, range: Range<usize>, clip: usize) -> Vec<String> {
    entries(conversation, range).iter().map(|entry| entry.render(clip)).collect()
}

fn entries(conversation: &Conversation<'_>, range: Range<usize>) -> Vec<Entry> {
    let exchanges = exchanges(conversation);
    let mut calls: HashMap<usize, Vec<&Exchange>> = HashMap::new();
    let mut answers: HashMap<usize, Vec<&Exchange>> = HashMap::new();
    for exchange in &exchanges {
        calls.entry(exchange.item).or_default().push(exchange);
        if let Some(answer) = &exchange.result {
            answers.entry(answer.item).or_default().push(exchange);
        }
    }
    let none = Vec::new();
    let calls = |item| calls.get(&item).unwrap_or(&none);
    let answers = |item| answers.get(&item).unwrap_or(&none);
    range.filter_map(|item| entry(conversation, item, calls(item), answers(item))).collect()
}

fn entry(conversation: &Conversation<'_>, item: usize, calls: &[&Exchange], answers: &[&Exchange]) -> Option<Entry> {
    let facts = &conversation.items.get(item)?.facts;
    let heading = match facts.role {
        Role::System => "### system".to_owned(),
        Role::User => "### user".to_owned(),
        Role::Assistant => "### assistant".to_owned(),
        Role::Tool if answers.is_empty() => "### tool result".to_owned(),
        Role::Tool => format!("### tool result ({})", names(answers)),
        Role::Unknown => "### other".to_owned(),
    };
    let mut texts: Vec<String> = Some(words(conversation, item)).filter(|text| !text.is_empty()).into_iter().collect();
    let mut notes = Vec::new();
    for call in calls {
        texts.push(format!("The assistant ran the tool {} with these arguments: {}", call.name, call.arguments));
        notes.extend(paths(call));
    }
    texts.extend(answers.iter().map(|exchange| exchange.answer().to_owned()));
    if answers.is_empty() && !facts.results.is_empty() {
        texts.push("(the result of an unknown call)".to_owned());
    }
    texts.extend(facts.media.iter().map(|_| "[a picture, sound or file stood here]".to_owned()));
    Some(Entry { heading, texts, notes })
}

fn names(exchanges: &[&Exchange]) -> String {
    exchanges.iter().map(|exchange| exchange.name.as_str()).collect::<Vec<_>>().join(", ")
}

impl Entry {
    fn render(&self, clip: usize) -> String {
        let mut lines = vec![self.heading.clone()];
        let mut shortened = false;
        for text in &self.texts {
            let short = excerpt(text, clip * 2 / 3, clip - clip * 2 / 3, CLIPPED);
            shortened |= short.len() < text.len();
            lines.push(short);
        }
        let lost: Vec<&str> = self
            .notes
            .iter()
            .map(String::as_str)
            .filter(|path| !lines.iter().any(|line| line.contains(path)))
            .collect();
        if shortened && !lost.is_empty() {
            lines.push(format!("(paths named: {})", lost.join(", ")));
        }
        lines.join("\n")
    }
}

#[cfg(test)]
#[path = "tests/transcript.rs"]
mod tests;
