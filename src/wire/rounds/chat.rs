//! Rounds of Chat Completions.

mod chunk;
mod json;
mod put_back;
mod seam;
mod story;
mod stream;
mod turn;

use bytes::Bytes;

use self::chunk::Object;
use self::json::Json;
use self::story::Story;
use self::stream::Stream;
use self::turn::Standing;
use super::answer::Out;
use super::events::Event;
use super::tools::{self, MOST_TOOLS, tools};
use super::{Aside, Conversation, Edit, Ending, Offer, Own, OwnCall, OwnResult};
use crate::wire::writing::quoted;

pub(super) use self::chunk::begins;
pub(super) use self::put_back::put_back;

/// Makes the answers of several rounds one.
#[derive(Debug)]
pub struct Splicer {
    own: Own,
    story: Story,
    stream: Stream,
    json: Json,
}

impl Splicer {
    pub(super) fn new(own: Own) -> Self {
        Self { own, story: Story::default(), stream: Stream::default(), json: Json::default() }
    }

    /// No tool of the proxy's is offered any more.
    pub(super) fn offers_nothing(&mut self) {
        self.own = Own::default();
    }

    pub(super) fn event(&mut self, event: Event, out: &mut Out) {
        self.stream.event(&mut self.story, &self.own, (event, out));
    }

    /// The calls that were held: what follows passes unread.
    pub(super) fn release(&mut self, out: &mut Vec<Bytes>) {
        out.extend(self.stream.release(&mut self.story, &self.own));
    }

    /// Whether the client does not see all of the answer.
    pub(super) fn hides(&self) -> bool {
        self.story.hides(&self.own)
    }

    pub(super) fn held(&self) -> usize {
        self.stream.held() + self.story.held() + self.json.held()
    }

    pub(super) fn hold_no_more(&mut self) {
        self.story.hold_no_more();
    }

    pub(super) fn broke_off(&mut self) -> bool {
        let calling = self.story.turn.has(Standing::Own);
        self.story.ending(false);
        calling
    }

    pub(super) fn is_unended(&self) -> bool {
        self.stream.is_unended(&self.story, &self.own)
    }

    pub(super) fn end(&mut self, out: &mut Out) -> Ending {
        let released = self.stream.release(&mut self.story, &self.own);
        out.ends.splice(0..0, released);
        self.stream.end(&mut self.story)
    }

    pub(super) fn end_json(&mut self, body: &Bytes) -> Ending {
        Json::end(&mut self.story, &self.own, body)
    }

    pub(super) fn next_round(&mut self, json: &Bytes) {
        self.stream.next_round();
        if !json.is_empty() {
            self.json.next_round(&self.story);
        }
        self.story.next_round();
    }

    pub(super) fn is_silent(&self) -> bool {
        self.story.is_silent()
    }

    /// The text comes with the reason for the end; where the server gives none, with one of its own.
    pub(super) fn break_silence(&mut self, text: &str) -> Vec<Bytes> {
        let was_silent = self.story.is_silent();
        self.story.break_silence(text);
        let alone = was_silent && self.story.reason.is_none();
        alone.then(|| self.stream.said(&self.story, text)).flatten().into_iter().collect()
    }

    /// An event of the end.
    pub(super) fn ended(&mut self, event: Event) -> Bytes {
        stream::ended(&self.story, event)
    }

    /// The last round's JSON answer with what the client sees of all.
    pub(super) fn whole(&mut self, body: Bytes) -> Bytes {
        self.json.whole(&self.story, body)
    }

    pub(super) fn error(&self, error: &[u8]) -> Bytes {
        stream::error(error)
    }

    pub(super) fn aside(&self, results: &[Vec<OwnResult>]) -> Option<Aside> {
        self.story.aside(results)
    }
}

pub(super) fn may_offer(conversation: &Conversation<'_>, count: usize) -> bool {
    may_keep(conversation, count)
        && conversation.fields.members.iter().all(|(key, span)| {
            let value = conversation.body.get(span.clone()).unwrap_or_default();
            key.as_ref() != "tool_choice" || matches!(value, b"null" | b"\"auto\"")
        })
}

pub(super) fn may_keep(conversation: &Conversation<'_>, count: usize) -> bool {
    let free = conversation.fields.members.iter().all(|(key, span)| {
        let value = conversation.body.get(span.clone()).unwrap_or_default();
        match key.as_ref() {
            "response_format" => value == b"null" || is_text_format(conversation.body, span),
            "n" => matches!(value, b"null" | b"1"),
            "functions" | "function_call" | "audio" | "prediction" => value == b"null",
            _ => true,
        }
    });
    free && tools(conversation).is_some_and(|tools| tools.len() + count <= MOST_TOOLS)
}

fn is_text_format(body: &[u8], span: &std::ops::Range<usize>) -> bool {
    let format = Object::at(body, span);
    format.is_some_and(|format| format.get("type").is_some_and(|kind| format.string(kind) == "text"))
}

pub(super) fn declared(conversation: &Conversation<'_>) -> Vec<String> {
    let spans = tools(conversation).unwrap_or_default();
    let name = |tool: Object<'_>| {
        let callee = ["function", "custom"].into_iter().find_map(|form| tool.object(form))?;
        callee.get("name").map(|span| callee.string(span))
    };
    spans.iter().filter_map(|span| Object::at(conversation.body, span)).filter_map(name).collect()
}

pub(super) fn offer(conversation: &Conversation<'_>, offers: &[Offer]) -> Option<Edit> {
    let defined = offers.iter().map(|offer| {
        let (name, description) = (quoted(&offer.name), quoted(&offer.description));
        let parameters = &offer.parameters;
        format!(
            r#"{{"type":"function","function":{{"name":{name},"description":{description},"parameters":{parameters}}}}}"#
        )
    });
    tools::added(conversation, &defined.collect::<Vec<_>>().join(","))
}

pub(super) fn appended(conversation: &Conversation<'_>, items: &[u8]) -> Option<Edit> {
    let end = conversation.items.last()?.span.end;
    Some(Edit { span: end..end, with: [b",", items].concat().into() })
}

/// C1 to C3: one message a call, with text in it.
pub(super) fn results(calls: &[OwnCall], results: &[OwnResult]) -> Bytes {
    let message = |(call, result): (&OwnCall, &OwnResult)| {
        let text = if result.text.is_empty() { "(nothing)" } else { &result.text };
        format!(r#"{{"role":"tool","tool_call_id":{},"content":{}}}"#, quoted(&call.id), quoted(text))
    };
    calls.iter().zip(results).map(message).collect::<Vec<_>>().join(",").into()
}

#[cfg(test)]
#[path = "../tests/rounds_chat_put_back.rs"]
mod put_back_tests;
#[cfg(test)]
#[path = "../tests/rounds_chat_scripts.rs"]
mod scripts;
#[cfg(test)]
#[path = "../tests/rounds_chat_shapes.rs"]
mod shape_tests;
#[cfg(test)]
#[path = "../tests/rounds_chat.rs"]
mod tests;
