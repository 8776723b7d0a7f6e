//! Side calls: the proxy's own requests for a summary, and their answers, in any dialect.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::conversation::{Conversation, Dialect, Item, Role};
use super::scan::{members, string};
use super::splice::Edit;
use super::{anthropic_side, chain, chat_side, responses_side};

/// What a side call came back with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    pub text: String,
    pub finish_reason: Option<String>,
    /// The model called a tool instead of answering.
    pub called_tool: bool,
    /// The model declined (`refusal`).
    pub refused: bool,
    /// Reported tokens of prompt and completion together.
    pub tokens: u64,
}

/// What a side call of one message says beside it: what the client's own request says, and no more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Envelope {
    /// Absent where the path names the model (Vertex, Bedrock, Azure's deployments).
    pub model: Option<String>,
    /// `anthropic_version`, which those hosts want in the body.
    pub version: Option<String>,
    /// `store`, where the client sent it.
    pub store: Option<bool>,
    /// Tokens that are left for the answer; sent only where the API wants a number.
    pub room: u64,
}

impl Envelope {
    /// The client's.
    pub fn of(conversation: &Conversation) -> Self {
        let fields = &conversation.fields;
        let version = fields.members.iter().find(|(key, _)| key.as_ref() == "anthropic_version");
        let version = version.and_then(|(_, span)| string(conversation.body, span)).map(Cow::into_owned);
        Self { model: fields.model.as_deref().map(str::to_owned), version, store: fields.store, room: 0 }
    }

    /// A body with these members before the others.
    pub(super) fn body(&self, members: Value) -> Vec<u8> {
        let mut body = Map::new();
        body.extend(self.model.clone().map(|model| ("model".to_owned(), Value::from(model))));
        if let Value::Object(members) = members {
            body.extend(members);
        }
        Value::Object(body).to_string().into_bytes()
    }
}

/// Most output tokens that a warm side call asks for, and the fewest with which it is worth making.
const OUTPUT: std::ops::RangeInclusive<u64> = 1_024..=4_096;

/// The edits that turn the client's own request into a side call over its first `cut` items: what
/// follows is left out, `instruction` comes last, `store` is off, a high output limit is lowered (S8: no
/// cache key has it); all else (tools, `tool_choice`, parameters) stays, so that the provider reads the
/// prefix from its cache. `edits` are the request's own. `None` where what stays would spoil the answer, or
/// would be refused.
pub fn warm_edits(conversation: &Conversation, edits: Vec<Edit>, cut: usize, instruction: &str) -> Option<Vec<Edit>> {
    let upto = conversation.items.get(cut.checked_sub(1)?)?.span.end;
    let end = conversation.items.last()?.span.end;
    let limits = &conversation.fields.max_output;
    // What thinking may take of the output comes on top.
    let (least, most) = (*OUTPUT.start() + conversation.fields.least_output, *OUTPUT.end());
    if breaks_a_loop(conversation, &edits, cut) {
        return None;
    }
    if !conversation.dialect.answers_freely(conversation) || limits.iter().any(|limit| limit.value < least) {
        return None;
    }
    let mut kept: Vec<Edit> = edits.into_iter().filter(|edit| edit.span.end <= upto).collect();
    kept.push(Edit { span: upto..end, with: Bytes::from(format!(",{}", conversation.head_message(0, instruction))) });
    kept.extend(conversation.lower_output(most + conversation.fields.least_output));
    kept.extend(unstored(conversation));
    kept.extend(of_a_socket(conversation));
    kept.sort_by_key(|edit| edit.span.start);
    Some(kept)
}

/// Whether the first `cut` items end within a tool loop of which `edits` leave out signed thinking. The turn
/// was over when it was left out, but cut off there it goes on, and then it may not be missing (A10).
fn breaks_a_loop(conversation: &Conversation, edits: &[Edit], cut: usize) -> bool {
    let items = conversation.items.get(..cut).unwrap_or_default();
    let turn = items.iter().skip(conversation.turn(cut).unwrap_or_default());
    // The instruction becomes one with what precedes it (A5): behind results it begins no turn.
    let mut latest = items.iter().rev().take_while(|item| item.facts.role != Role::Assistant);
    let goes_on = latest.any(|item| !item.facts.results.is_empty());
    let gone = |item: &Item, edit: &Edit| edit.span.start <= item.span.start && item.span.end <= edit.span.end;
    let thoughtless = |item: &Item| {
        item.facts.signed.iter().any(|block| {
            let (start, end) = (item.span.start + block.start, item.span.start + block.end);
            edits.iter().any(|edit| edit.span.start < end && start < edit.span.end && !gone(item, edit))
        })
    };
    goes_on && turn.into_iter().any(thoughtless)
}

/// The edit after which the provider does not keep the answer: where the client sent `store`, and on
/// Responses always, since there it is on unless it is off.
fn unstored(conversation: &Conversation) -> Option<Edit> {
    let fields = &conversation.fields;
    let sent = fields.members.iter().find(|(key, _)| key.as_ref() == "store");
    match (conversation.dialect, sent) {
        (_, Some(_)) if fields.store == Some(false) => None,
        (Dialect::Responses, Some((_, span))) => Some(Edit { span: span.clone(), with: Bytes::from_static(b"false") }),
        (Dialect::Responses, None) => {
            let behind = memchr::memchr(b'{', conversation.body)? + 1;
            Some(Edit { span: behind..behind, with: Bytes::from_static(b"\"store\":false,") })
        }
        (_, Some((_, span))) if fields.store == Some(true) => {
            Some(Edit { span: span.clone(), with: Bytes::from_static(b"false") })
        }
        _ => None,
    }
}

/// The edit that takes out what only a message on a socket has: there `type` tells it from others.
fn of_a_socket(conversation: &Conversation) -> Option<Edit> {
    if conversation.dialect != Dialect::Responses {
        return None;
    }
    let all = members(conversation.body, 0).ok()?;
    let kind = all.iter().position(|(key, _)| key == "type")?;
    chain::without(conversation.body, &all, kind)
}

impl Dialect {
    /// A request of one user message.
    pub fn transcript_body(self, envelope: &Envelope, prompt: &str) -> Vec<u8> {
        match self {
            Self::Chat => chat_side::transcript_body(envelope, prompt),
            Self::Responses => responses_side::transcript_body(envelope, prompt),
            Self::Messages => anthropic_side::transcript_body(envelope, prompt),
        }
    }

    /// Reads the answer of a side call, JSON or a whole event stream. `None`: not UTF-8 or not understood.
    pub fn read_answer(self, body: &[u8]) -> Option<Answer> {
        let text = std::str::from_utf8(body).ok()?.trim_start();
        match (self, text.starts_with('{')) {
            (Self::Chat, true) => chat_side::read_json(text),
            (Self::Chat, false) => chat_side::read_stream(text),
            (Self::Responses, true) => responses_side::read_json(text),
            (Self::Responses, false) => responses_side::read_stream(text),
            (Self::Messages, true) => anthropic_side::read_json(text),
            (Self::Messages, false) => anthropic_side::read_stream(text),
        }
    }

    /// The path of a side call at an upstream, behind its version segment.
    pub fn path(self) -> &'static str {
        match self {
            Self::Chat => "/chat/completions",
            Self::Responses => "/responses",
            Self::Messages => "/messages",
        }
    }

    /// Whether nothing in a request keeps the model from one answer of plain text.
    fn answers_freely(self, conversation: &Conversation) -> bool {
        match self {
            Self::Chat => chat_side::answers_freely(conversation),
            Self::Responses => responses_side::answers_freely(conversation),
            Self::Messages => anthropic_side::answers_freely(conversation),
        }
    }
}
