//! What is written into a conversation, in any dialect.

use bytes::Bytes;

use super::conversation::{Conversation, Dialect, Media, Role, Slot, SlotKind};
use super::splice::Edit;
use super::{anthropic, openai_chat, openai_responses};

impl Conversation<'_> {
    /// `text` as it must stand in the body in place of `slot` of item `item`: a JSON string, or JSON as it is
    /// where arguments stand as an object. A block keeps the cache breakpoint that the client has on it now.
    pub fn replacement(&self, item: usize, slot: &Slot, text: &str) -> Bytes {
        match self.raw(item).get(slot.span.start) {
            Some(b'{') if slot.kind == SlotKind::Media && self.dialect == Dialect::Messages => {
                let raw = self.raw(item).get(slot.span.clone()).unwrap_or_default();
                anthropic::marked_as(raw, text).unwrap_or_else(|| text.to_owned()).into()
            }
            Some(b'{') => Bytes::from(text.to_owned()),
            _ => quoted(text).into(),
        }
    }

    /// A user message with `text` to stand for the first `upto` items.
    pub fn head_message(&self, upto: usize, text: &str) -> String {
        self.head_message_beside(upto, text, &[])
    }

    /// The same, with [parts](Self::media_parts) behind the text.
    pub fn head_message_beside(&self, upto: usize, text: &str, parts: &[String]) -> String {
        match self.dialect {
            Dialect::Chat => openai_chat::user_message(text, parts, "text"),
            Dialect::Responses => openai_responses::head_message(self, upto, (text, parts)),
            Dialect::Messages => anthropic::head_message(self, upto, (text, parts)),
        }
    }

    /// The pictures, sounds and files of item `item` as parts of another message, as the client wrote them but for the
    /// cache breakpoints of Messages, which move from turn to turn.
    pub fn media_parts(&self, item: usize) -> Vec<String> {
        let raw = self.raw(item);
        let media = self.items.get(item).map_or(&[][..], |item| &item.facts.media);
        let part = |media: &Media| match self.dialect {
            Dialect::Chat | Dialect::Responses => {
                std::str::from_utf8(raw.get(media.span.clone())?).ok().map(str::to_owned)
            }
            Dialect::Messages => anthropic::unmarked(raw, &media.span),
        };
        media.iter().filter_map(part).collect()
    }

    /// The edits, in order, that put `text` in front of the text of the user message `item`. `None` for other roles
    /// and shapes.
    pub fn fold_into(&self, item: usize, text: &str) -> Option<Vec<Edit>> {
        match self.dialect {
            Dialect::Chat => openai_chat::fold_into(self, item, text, "text").map(|edit| vec![edit]),
            Dialect::Responses => openai_responses::fold_into(self, item, text).map(|edit| vec![edit]),
            Dialect::Messages => anthropic::fold_into(self, item, text),
        }
    }

    /// The edits that put `text` before the first that the user says: into its text, which is the one place that no
    /// upstream refuses (a second system message, D5; the client's instructions, R15; a user message before another,
    /// D3), or in Messages as a block of its own, so that the client's block and its cache breakpoint stay as they are
    /// however the client spells them. None where no user's message is in sight, or it is of another shape.
    pub fn before_opening(&self, text: &str) -> Vec<Edit> {
        if !self.settled.is_empty() {
            return self.settled_alone().before_opening(text);
        }
        let Some(first) = self.opening().iter().position(|item| item.facts.role == Role::User) else {
            return Vec::new();
        };
        match self.dialect {
            Dialect::Chat | Dialect::Responses => self.fold_into(first, &format!("{text}\n\n")).unwrap_or_default(),
            Dialect::Messages => anthropic::before(self, first, text).unwrap_or_default(),
        }
    }

    /// The edits that leave out the signed thinking of item `item`; none where it has none.
    pub fn without_signed(&self, item: usize) -> Vec<Edit> {
        match self.dialect {
            Dialect::Chat | Dialect::Responses => Vec::new(),
            Dialect::Messages => anthropic::without_signed(self, item),
        }
    }

    /// The edit that asks the provider to drop signed thinking that no longer fits what precedes it. `None` where
    /// the request does not think, or speaks of it itself.
    pub fn drop_blocks(&self) -> Option<Edit> {
        match self.dialect {
            Dialect::Chat | Dialect::Responses => None,
            Dialect::Messages => anthropic::drop_blocks(self),
        }
    }

    /// The edits that lower every output limit above `tokens` to it; none is added or raised (P8).
    pub fn lower_output(&self, tokens: u64) -> Vec<Edit> {
        let limits = self.fields.max_output.iter().filter(|limit| limit.value > tokens);
        limits.map(|limit| Edit { span: limit.span.clone(), with: tokens.to_string().into() }).collect()
    }
}

/// `text` as a JSON string with the shortest escapes.
pub(super) fn quoted(text: &str) -> String {
    // Room for some escapes: texts of many KB are written anew for each request.
    let mut json = Vec::with_capacity(text.len() + text.len() / 16 + 2);
    let written = serde_json::to_writer(&mut json, text).ok().and_then(|()| String::from_utf8(json).ok());
    written.unwrap_or_else(|| serde_json::Value::from(text).to_string())
}

/// `text` escaped for the inside of a JSON string.
pub(super) fn inner(text: &str) -> String {
    let quoted = quoted(text);
    quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or_default().to_owned()
}

#[cfg(test)]
#[path = "tests/opening.rs"]
mod opening_tests;
