//! What of a message its author typed, and what a harness put there.

use std::sync::LazyLock;

use regex::Regex;

use super::exchange::slots_of;
use crate::wire::{Conversation, Role, SlotKind};

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

/// Beginnings of tool output in user messages, whoever the agent is.
static OUTPUT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let forms = [
        r"\[[\w.-]+(?: for [^\n]*)?\] Result:",
        r"EXECUTION RESULT of \[",
        r"\[(?i:tool|command|shell) ?(?i:output|result)[^\n\]]*\]",
        r"OBSERVATION\b",
        r"(?i:tool (?:output|result)):",
        r"Tool: [^\n]+\nResult:",
        r"Current browser:",
    ];
    Regex::new(&format!(r"\A(?:{})", forms.join("|"))).ok()
});

/// Beginnings and endings that a person might type as well: they count only where the agent has no tools.
static TEXT_ACTION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let forms = [
        r"\A(?i:observation|output|command output|execution result|stdout|stderr|result)s?:",
        r"bash-\$\s*\z",
        r"\(Current directory: [^\n]*\)\s*\z",
        r"Here is a screenshot of \[",
        r"\AAddress: \S+\n(?s:.*)Viewport position:",
    ];
    Regex::new(&forms.join("|")).ok()
});

/// Reads typed text out of one conversation.
#[derive(Clone, Copy, Debug)]
pub struct Typed<'c, 'b> {
    conversation: &'c Conversation<'b>,
    /// The item that opens the conversation: a task, whatever it looks like.
    first: Option<usize>,
    /// The agent calls no tools: its user messages may be tool output.
    text_actions: bool,
}

impl<'c, 'b> Typed<'c, 'b> {
    /// Judges by the first `upto` items alone, so that later turns change nothing.
    pub fn new(conversation: &'c Conversation<'b>, upto: usize) -> Self {
        let items = || conversation.items.iter().take(upto);
        let first = items().position(|item| item.facts.role == Role::User && item.facts.results.is_empty());
        Self { conversation, first, text_actions: items().all(|item| item.facts.calls.is_empty()) }
    }

    /// The typed text of an item, verbatim, or `None`: not a user's or system's message, or nothing of it was typed.
    pub fn text(&self, item: usize) -> Option<String> {
        let facts = &self.conversation.items.get(item)?.facts;
        if !matches!(facts.role, Role::User | Role::System) {
            return None;
        }
        let slots = slots_of(self.conversation, item, |kind| kind == SlotKind::Text);
        let texts: Vec<String> =
            slots.iter().filter_map(|&slot| self.conversation.text(item, facts.slots.get(slot)?)).collect();
        let opening = texts.iter().find(|text| !text.trim().is_empty())?;
        if facts.role == Role::User && self.first != Some(item) && self.is_output(opening) {
            return None;
        }
        let typed: Vec<String> =
            texts.iter().map(|text| without_blocks(text)).filter(|text| !text.is_empty()).collect();
        (!typed.is_empty()).then(|| typed.join("\n"))
    }

    fn is_output(&self, text: &str) -> bool {
        let matches =
            |form: &LazyLock<Option<Regex>>| form.as_ref().is_some_and(|form| form.is_match(text.trim_start()));
        matches(&OUTPUT) || (self.text_actions && matches(&TEXT_ACTION))
    }
}

/// `text` without harness blocks, trimmed.
fn without_blocks(text: &str) -> String {
    let mut rest = text.to_owned();
    for tag in BLOCKS {
        rest = without_block(&rest, tag);
    }
    while let Some(nonce) = notice_nonce(&rest) {
        let stripped = without_block(&rest, &format!("{NOTICE}-{nonce}"));
        if stripped.len() == rest.len() {
            break;
        }
        rest = stripped;
    }
    let opens =
        |tag: &str| rest.trim_start().strip_prefix('<').is_some_and(|rest| rest.starts_with(&format!("{tag}>")));
    if OUTPUT_BLOCKS.iter().copied().any(opens) {
        for tag in OUTPUT_BLOCKS {
            rest = without_block(&rest, tag);
        }
    }
    rest.trim().to_owned()
}

/// Takes out the blocks of one tag. Where openings and closings do not match, something inside a block pretends to end
/// it: then everything from the first opening to the last closing is the block. An unclosed opening is text.
fn without_block(text: &str, tag: &str) -> String {
    let (opening, closing) = (format!("<{tag}"), format!("</{tag}>"));
    let opens: Vec<usize> = text
        .match_indices(&opening)
        .map(|(at, _)| at)
        .filter(|at| text.get(at + opening.len()..).is_some_and(|rest| rest.starts_with(['>', ' ', '\n', '/'])))
        .collect();
    let closes: Vec<usize> = text.match_indices(&closing).map(|(at, _)| at + closing.len()).collect();
    let (Some(&first), Some(&last)) = (opens.first(), closes.last()) else { return text.to_owned() };
    if last < first {
        return text.to_owned();
    }
    let alternate = opens.len() == closes.len()
        && opens.iter().zip(&closes).all(|(open, close)| open < close)
        && opens.iter().skip(1).zip(&closes).all(|(open, close)| open >= close);
    if !alternate {
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

fn join(before: Option<&str>, after: Option<&str>) -> String {
    format!("{}{}", before.unwrap_or_default(), after.unwrap_or_default())
}

/// The nonce of the first notice of ours in `text`.
fn notice_nonce(text: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{NOTICE}-"))?;
    let nonce: String = rest.chars().take_while(char::is_ascii_hexdigit).collect();
    (!nonce.is_empty()).then_some(nonce)
}

#[cfg(test)]
#[path = "tests/typed.rs"]
mod tests;
