//! What of a message its author typed, and what a harness put there.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::Regex;

use super::exchange::slots_of;
use crate::wire::{Conversation, Facts, Role, SlotKind};

/// Blocks that harnesses put into user messages, by tag. What stands beside them counts as typed.
const BLOCKS: &[&str] = &[
    "system-reminder",
    "environment_context",
    "environment_details",
    "local-command-stdout",
    "local-command-stderr",
    "local-command-caveat",
    "bash-stdout",
    "bash-stderr",
    "command-message",
    "task-notification",
    "user-prompt-submit-hook",
    "ide_opened_file",
    "ide_selection",
    "ide_diagnostics",
    "tool_response",
    "tool_result",
    "function_results",
    "turn_aborted",
];

/// Blocks that only text-action agents send: stripped where such a block opens the message.
const OUTPUT_BLOCKS: &[&str] =
    &["returncode", "output", "output_head", "output_tail", "elided_chars", "warning", "exception", "observation"];

/// The proxy's own notices carry a nonce behind this label.
pub const NOTICE: &str = "compactproxy-notice";

/// Labels with which harnesses begin tool output in user messages, whoever the agent is. A person may write
/// them as well: what counts is said at [`Typed::behind_output`].
const LABELS: &[&str] = &[
    r"\[[\w.-]+(?: for [^\n]*)?\] Result:",
    r"EXECUTION RESULT of \[[^\n\]]*\]:?",
    r"\[(?i:tool|command|shell) ?(?i:output|result)[^\n\]]*\]:?",
    r"OBSERVATION\b:?",
    r"(?i:tool (?:output|result)):",
    r"Tool: [^\n]+\nResult:",
    r"Current browser:",
];

/// Labels that count only where the agent calls no tools.
const TEXT_ACTION_LABELS: &[&str] = &[
    r"(?i:observations?):",
    r"(?i:outputs?):",
    r"(?i:command outputs?):",
    r"(?i:execution results?):",
    r"(?i:stdout):",
    r"(?i:stderr):",
    r"(?i:results?):",
];

/// Marks of a screen or shell that count where the agent calls no tools.
static SCREENS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let forms = [
        r"bash-\$\s*\z",
        r"\(Current directory: [^\n]*\)\s*\z",
        r"Here is a screenshot of \[",
        r"\AAddress: \S+\n(?s:.*)Viewport position:",
    ];
    Regex::new(&forms.join("|")).ok()
});

/// One label: at the beginning of a text, and alone on its line with something behind it.
struct Label {
    begins: Regex,
    alone: Regex,
}

static LABEL_FORMS: LazyLock<Vec<Label>> = LazyLock::new(|| {
    let form = |label: &&str| {
        let begins = Regex::new(&format!(r"\A(?:{label})")).ok()?;
        let alone = Regex::new(&format!(r"\A(?:{label})[ \t]*\r?\n\s*\S")).ok()?;
        Some(Label { begins, alone })
    };
    LABELS.iter().chain(TEXT_ACTION_LABELS).filter_map(form).collect()
});

static BLANK_LINE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\n[ \t]*\r?\n").ok());

/// In how many user messages a label has to recur to be the harness's where text follows it on its line.
const RECURS: usize = 2;

/// Reads typed text out of one conversation.
#[derive(Clone, Debug)]
pub struct Typed<'c, 'b> {
    conversation: &'c Conversation<'b>,
    /// The item that opens the conversation: a task, whatever it looks like.
    first: Option<usize>,
    /// The agent calls no tools: its user messages may be tool output.
    text_actions: bool,
    /// How many user messages behind the first begin with each label.
    labels: Vec<usize>,
}

impl<'c, 'b> Typed<'c, 'b> {
    /// Judges by the first `upto` items alone, so that later turns change nothing.
    pub fn new(conversation: &'c Conversation<'b>, upto: usize) -> Self {
        let items = || conversation.items.iter().take(upto);
        let first = items().position(|item| item.facts.role == Role::User && item.facts.results.is_empty());
        let text_actions = items().all(|item| item.facts.calls.is_empty());
        let mut typed = Self { conversation, first, text_actions, labels: Vec::new() };
        let mut counts = vec![0; typed.labels().len()];
        for (i, item) in items().enumerate().filter(|(i, item)| item.facts.role == Role::User && first != Some(*i)) {
            let text = typed.texts(i, &item.facts).join("\n");
            for (count, label) in counts.iter_mut().zip(typed.labels()) {
                *count += usize::from(label.begins.is_match(text.trim_start()));
            }
        }
        typed.labels = counts;
        typed
    }

    /// The labels that may begin tool output in this conversation.
    fn labels(&self) -> &'static [Label] {
        let all = LABEL_FORMS.as_slice();
        let known = if self.text_actions { all.len() } else { LABELS.len() };
        all.get(..known).unwrap_or(all)
    }

    fn texts(&self, item: usize, facts: &Facts) -> Vec<String> {
        let slots = slots_of(self.conversation, item, |kind| kind == SlotKind::Text);
        slots.iter().filter_map(|&slot| self.conversation.text(item, facts.slots.get(slot)?)).collect()
    }

    /// The typed text of an item, verbatim, or `None`: not a user's or system's message, or nothing of it was typed.
    pub fn text(&self, item: usize) -> Option<String> {
        let facts = &self.conversation.items.get(item)?.facts;
        if !matches!(facts.role, Role::User | Role::System) {
            return None;
        }
        let mut texts = self.texts(item, facts);
        if facts.role == Role::User && self.first != Some(item) {
            texts = self.behind_output(texts);
        }
        let typed: Vec<String> =
            texts.iter().map(|text| without_blocks(text)).filter(|text| !text.is_empty()).collect();
        (!typed.is_empty()).then(|| typed.join("\n"))
    }

    /// What of a user message may be typed. None of it where the same label begins several messages, or where it ends or
    /// begins as a screen does. Where a label stands alone on its line once, somebody pasted output: what follows its
    /// first blank line may be their words, and where the agent calls tools, all of it. One sentence behind a label
    /// ("Output: always JSON") is somebody's words.
    fn behind_output(&self, texts: Vec<String>) -> Vec<String> {
        let joined = texts.join("\n");
        let text = joined.trim_start();
        let mut labels = self.labels().iter().zip(&self.labels);
        let screen = || self.text_actions && SCREENS.as_ref().is_some_and(|form| form.is_match(text));
        if labels.clone().any(|(label, count)| *count >= RECURS && label.begins.is_match(text)) || screen() {
            return Vec::new();
        }
        match labels.find_map(|(label, _)| label.alone.find(text)).filter(|_| self.text_actions) {
            None => texts,
            Some(label) => {
                let behind = text.get(label.end()..).unwrap_or_default();
                let blank = BLANK_LINE.as_ref().and_then(|blank| blank.find(behind));
                blank.and_then(|blank| behind.get(blank.end()..)).map(str::to_owned).into_iter().collect()
            }
        }
    }
}

/// `text` without harness blocks, trimmed.
fn without_blocks(text: &str) -> String {
    let mut rest = text.to_owned();
    for tag in BLOCKS {
        rest = without_block(&rest, tag);
    }
    rest = without_notices(&rest);
    let opens =
        |tag: &str| rest.trim_start().strip_prefix('<').is_some_and(|rest| rest.starts_with(&format!("{tag}>")));
    if OUTPUT_BLOCKS.iter().copied().any(opens) {
        for tag in OUTPUT_BLOCKS {
            rest = without_block(&rest, tag);
        }
    }
    rest.trim().to_owned()
}

/// Takes out the blocks of one tag. Where openings and closings do not match, only openings at the beginning of a
/// line count: others are mentioned in a sentence. Where they still do not match, something inside a block pretends
/// to end it: then everything from the first opening to the last closing is the block. An unclosed opening is text.
fn without_block(text: &str, tag: &str) -> String {
    let (opening, closing) = (format!("<{tag}"), format!("</{tag}>"));
    let mut opens: Vec<usize> = text
        .match_indices(&opening)
        .map(|(at, _)| at)
        .filter(|at| text.get(at + opening.len()..).is_some_and(|rest| rest.starts_with(['>', ' ', '\n', '/'])))
        .collect();
    let closes: Vec<usize> = text.match_indices(&closing).map(|(at, _)| at + closing.len()).collect();
    if !alternate(&opens, &closes) {
        opens.retain(|&at| begins_line(text, at));
    }
    let (Some(&first), Some(&last)) = (opens.first(), closes.last()) else { return text.to_owned() };
    if last < first {
        return text.to_owned();
    }
    if !alternate(&opens, &closes) {
        return join(text.get(..first), text.get(last..));
    }
    let mut kept = String::new();
    let mut from = 0;
    for (&open, &close) in opens.iter().zip(&closes) {
        kept.push_str(text.get(from..open).unwrap_or_default());
        from = close;
    }
    kept + text.get(from..).unwrap_or_default()
}

/// Whether every opening is followed by its closing before the next one.
fn alternate(opens: &[usize], closes: &[usize]) -> bool {
    opens.len() == closes.len()
        && opens.iter().zip(closes).all(|(open, close)| open < close)
        && opens.iter().skip(1).zip(closes).all(|(open, close)| open >= close)
}

fn begins_line(text: &str, at: usize) -> bool {
    let before = text.get(..at).unwrap_or_default().trim_end_matches([' ', '\t']);
    before.is_empty() || before.ends_with('\n')
}

fn join(before: Option<&str>, after: Option<&str>) -> String {
    format!("{}{}", before.unwrap_or_default(), after.unwrap_or_default())
}

/// `text` without our own notices, in one pass however many there seem to be. A notice ends at the closing with
/// its nonce; where that does not match the openings, at the last one.
fn without_notices(text: &str) -> String {
    let marks = |mark: &str| -> Vec<(usize, usize, &str)> {
        let found = text.match_indices(mark).filter_map(|(at, mark)| {
            let from = at + mark.len();
            let rest = text.get(from..)?;
            let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
            (digits > 0).then_some((at, from + digits, rest.get(..digits)?))
        });
        found.collect()
    };
    let behind = |at: usize| text.get(at..).unwrap_or_default();
    let mut opens = marks(&format!("<{NOTICE}-"));
    opens.retain(|(_, end, _)| behind(*end).starts_with(['>', ' ', '\n', '/']));
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let mut closes: HashMap<&str, Vec<usize>> = HashMap::new();
    for (_, _, nonce) in &opens {
        *counts.entry(nonce).or_default() += 1;
    }
    for (_, end, nonce) in marks(&format!("</{NOTICE}-")) {
        if behind(end).starts_with('>') {
            closes.entry(nonce).or_default().push(end + 1);
        }
    }
    let (mut kept, mut from) = (String::new(), 0);
    for (open, _, nonce) in opens {
        let Some(closes) = closes.get(nonce).filter(|_| open >= from) else { continue };
        let matched = counts.get(nonce) == Some(&closes.len());
        let next = closes.get(closes.partition_point(|close| *close < open));
        let Some(end) = next.and_then(|next| if matched { Some(next) } else { closes.last() }) else { continue };
        kept.push_str(text.get(from..open).unwrap_or_default());
        from = *end;
    }
    kept + behind(from)
}

#[cfg(test)]
#[path = "tests/typed.rs"]
mod tests;
