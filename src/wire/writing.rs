//! What is written into a conversation, in any dialect.

use bytes::Bytes;

use super::conversation::{Conversation, Dialect, Media, Role, Slot, SlotKind};
use super::sent::SentText;
use super::splice::Edit;
use super::{anthropic, openai_chat, openai_responses};

impl Conversation<'_> {
    /// `text` as it must stand in the body in place of `slot` of item `item`: a JSON string, or JSON as it is
    /// where arguments stand as an object. A block keeps the cache breakpoint that the client has on it now.
    pub fn replacement(&self, item: usize, slot: &Slot, text: &SentText) -> Bytes {
        match self.raw(item).get(slot.span.start) {
            Some(b'{') if slot.kind == SlotKind::Media && self.dialect == Dialect::Messages => {
                let raw = self.raw(item).get(slot.span.clone()).unwrap_or_default();
                anthropic::marked_as(raw, text).unwrap_or_else(|| str::to_owned(text)).into()
            }
            Some(b'{') => Bytes::from(str::to_owned(text)),
            _ => text.json(),
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

/// `text` as a JSON string with the shortest escapes, as serde_json spells it.
pub(super) fn quoted(text: &str) -> String {
    // Room for some escapes.
    let mut json = String::with_capacity(text.len() + text.len() / 16 + 2);
    json.push('"');
    let mut rest = text;
    while let Some((plain, behind)) = rest.split_at_checked(plain_bytes(rest.as_bytes())) {
        json.push_str(plain);
        let Some(escaped) = behind.chars().next() else { break };
        match escaped {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            '\u{8}' => json.push_str("\\b"),
            '\u{c}' => json.push_str("\\f"),
            control => json.push_str(&format!("\\u{:04x}", u32::from(control))),
        }
        rest = behind.get(1..).unwrap_or_default();
    }
    json.push('"');
    json
}

/// How many bytes stand before the first that is escaped.
fn plain_bytes(text: &[u8]) -> usize {
    let is_escaped = |byte: u8| (byte < b' ') | (byte == b'"') | (byte == b'\\');
    // Whole runs at once, which a compiler makes one comparison of.
    let (runs, _) = text.as_chunks::<16>();
    let plain = runs.iter().take_while(|run| !run.iter().fold(false, |any, byte| any | is_escaped(*byte))).count() * 16;
    let rest = text.get(plain..).unwrap_or_default();
    plain + rest.iter().position(|byte| is_escaped(*byte)).unwrap_or(rest.len())
}

/// `text` escaped for the inside of a JSON string.
pub(super) fn inner(text: &str) -> String {
    let quoted = quoted(text);
    quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or_default().to_owned()
}

#[cfg(test)]
#[path = "tests/opening.rs"]
mod opening_tests;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// For all texts: rows are spelt in the bytes in which they were always spelt (L4).
        #[test]
        fn a_text_is_quoted_as_serde_json_spells_it(text in r#"([a-z ]{0,20}["\\\n\t\r]|[\x00-\x7f]|.){0,40}"#) {
            prop_assert_eq!(quoted(&text), serde_json::to_string(&text).unwrap());
        }
    }
}
