//! The wire APIs: which one a path names, and which file reads it.

use std::ops::Range;

use super::conversation::{Conversation, Dialect, Facts, Fields, Role};
use super::scan::{Cursor, Unreadable};
use super::{anthropic, anthropic_item, chat_item, hosted, openai_chat, openai_responses, responses_item};

/// What a request of a dialect asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errand {
    /// The model's next turn.
    Generate,
    /// The provider's own compaction of the history (`…/responses/compact`).
    Compact,
    /// How many tokens the request has (`…/messages/count_tokens`).
    Count,
    /// Nothing but that the provider's cache is filled (`max_tokens: 0`, A25).
    Warm,
}

impl Errand {
    /// What a request path asks for; anything but the two known others is a turn.
    pub fn of_path(path: &str) -> Self {
        match path_alone(path) {
            path if path.ends_with("/responses/compact") => Self::Compact,
            path if path.ends_with("/messages/count_tokens") || hosted::counts(path) => Self::Count,
            _ => Self::Generate,
        }
    }
}

impl Conversation<'_> {
    /// What the request asks for at `path`.
    pub fn errand(&self, path: &str) -> Errand {
        match Errand::of_path(path) {
            Errand::Generate if self.dialect == Dialect::Messages && self.max_output() == Some(0) => Errand::Warm,
            errand => errand,
        }
    }
}

impl Dialect {
    /// The dialect that a request path names by its suffix.
    pub fn of_path(path: &str) -> Option<Self> {
        let path = path_alone(path);
        let ends = |suffixes: &[&str]| suffixes.iter().any(|suffix| path.ends_with(suffix));
        match path {
            _ if ends(&["/chat/completions"]) => Some(Self::Chat),
            _ if ends(&["/responses", "/responses/compact"]) => Some(Self::Responses),
            _ if ends(&["/messages", "/messages/count_tokens"]) => Some(Self::Messages),
            _ => hosted::takes_messages(path).then_some(Self::Messages),
        }
    }

    /// Whether answers that follow each other are one to the provider (A5).
    pub fn joins_answers(self) -> bool {
        self == Self::Messages
    }

    /// Whether an answer may be several items, with what others said between them.
    pub fn parts_answers(self) -> bool {
        self == Self::Responses
    }

    /// The member that holds the conversation.
    pub fn array(self) -> &'static str {
        match self {
            Self::Chat | Self::Messages => "messages",
            Self::Responses => "input",
        }
    }

    /// Whether a top-level member decides something beside those that all dialects share.
    pub(super) fn reads(self, key: &str) -> bool {
        let read = match self {
            Self::Chat => openai_chat::READ,
            Self::Responses => openai_responses::READ,
            Self::Messages => anthropic::READ,
        };
        read.contains(&key)
    }

    /// Takes note of a top-level member.
    pub(super) fn member(self, fields: &mut Fields, body: &[u8], key: &str, span: &Range<usize>) {
        match self {
            Self::Chat => openai_chat::member(fields, body, key, span),
            Self::Responses => openai_responses::member(fields, body, key, span),
            Self::Messages => anthropic::member(fields, body, key, span),
        }
    }

    /// The role of an item, if it has a readable one.
    pub(super) fn role(self, raw: &[u8]) -> Result<Role, Unreadable> {
        match self {
            Self::Chat => chat_item::role(raw),
            Self::Responses => responses_item::role(raw),
            Self::Messages => anthropic_item::role(raw),
        }
    }

    /// What is known of an item from its bytes.
    pub(super) fn facts(self, raw: &[u8]) -> Result<Facts, Unreadable> {
        match self {
            Self::Chat => chat_item::facts(raw),
            Self::Responses => responses_item::facts(raw),
            Self::Messages => anthropic_item::facts(raw),
        }
    }

    /// What is known of a conversation that is one JSON string, where the dialect allows it.
    pub(super) fn facts_of_text(self, raw: &[u8]) -> Result<Facts, Unreadable> {
        match self {
            Self::Chat | Self::Messages => Err(Cursor::new(raw, 0).fail("a conversation is no array")),
            Self::Responses => responses_item::facts_of_text(raw),
        }
    }
}

/// A path without its query.
pub(super) fn path_alone(path: &str) -> &str {
    // By bytes: asked several times a request.
    let query = memchr::memchr(b'?', path.as_bytes());
    query.and_then(|at| path.get(..at)).unwrap_or(path).trim_end_matches('/')
}
