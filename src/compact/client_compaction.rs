//! Recognising a client's own compaction request: it gets existing checkpoints and recovery, but never
//! starts a checkpoint.

use crate::wire::{Conversation, Role, Standing};

use super::exchange::words;

/// How agents ask a model to compact their history, lower case; all words of a line must occur in the
/// last user message.
const ASKED: [&[&str]; 8] = [
    // Claude Code, Cline
    &["detailed summary of the conversation"],
    &["summary of the conversation so far"],
    // opencode
    &["detailed prompt for continuing our conversation"],
    &["summarize our conversation above"],
    // gemini-cli, qwen-code
    &["<state_snapshot>", "generate"],
    // Codex
    &["context checkpoint compaction", "handoff summary"],
    // OpenHands and others
    &["maintaining a context-aware state summary"],
    &["compact", "conversation", "summary", "context window", "continue"],
];
/// A request that is longer than this, in characters, is a task that happens to speak of summaries.
const LONGEST: usize = 12_000;

/// Whether the last message asks for a summary of the conversation itself, or the last item the provider for
/// its own compaction (R11).
pub fn asks_for_it(conversation: &Conversation) -> bool {
    let Some(last) = conversation.items.len().checked_sub(1) else { return false };
    if conversation.items.get(last).is_some_and(|item| item.facts.standing == Standing::Trigger) {
        return true;
    }
    let asked = conversation.items.get(last).filter(|item| item.facts.role == Role::User);
    if last < 2 || asked.is_none_or(|item| item.facts.text_bytes > LONGEST * 4) {
        return false;
    }
    let text = words(conversation, last).to_lowercase();
    // Asked of every turn: this search takes a third of the standard library's time.
    let says = |part: &&str| memchr::memmem::find(text.as_bytes(), part.as_bytes()).is_some();
    text.chars().count() <= LONGEST && ASKED.iter().any(|all| all.iter().all(says))
}

#[cfg(test)]
mod tests {
    use super::super::talk::Talk;
    use super::*;

    fn asks(text: &str) -> bool {
        let talk = Talk::new().user("Fix the build.").assistant("Done.").user(text);
        asks_for_it(&talk.conversation())
    }

    #[test]
    fn known_agents_are_recognised_and_tasks_are_not() {
        assert!(asks("Your task is to create a detailed summary of the conversation so far, paying close attention…"));
        assert!(asks("Provide a detailed prompt for continuing our conversation above."));
        assert!(asks("First, reason in your scratchpad. Then, generate the <state_snapshot>."));
        assert!(!asks("Write a summary of the conversion tables in README.md."));
        assert!(!asks("Summarize this file."));
        assert!(!asks_for_it(&Talk::new().user("Create a detailed summary of the conversation").conversation()));
    }
}
