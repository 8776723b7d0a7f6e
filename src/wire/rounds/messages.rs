//! Rounds of Anthropic Messages.

mod block;
mod put_back;

use std::sync::Arc;

use bytes::Bytes;

use self::block::{Block, is_blank};
pub(super) use self::put_back::put_back;
use super::events::{Cutter, Event};
use super::object::{Object, edited, utf8};
use super::told::{Told, Written};
use super::{Aside, Conversation, Edit, Ending, Form, MOST_HELD, Offer, OwnCall, OwnResult, Round};
use crate::wire::scan::{elements, kind};
use crate::wire::writing::quoted;

/// Counts of the input, which the client is told of the last round.
const INPUT: [&str; 3] = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"];

/// Makes the answers of several rounds one.
#[derive(Debug)]
pub struct Splicer {
    own: Arc<[String]>,
    form: Form,
    told: Told,
    cutter: Cutter,
    /// Something was too long to be held: all passes from there on.
    passes: bool,
    is_first: bool,
    blocks: Vec<Block>,
    held: usize,
    /// The end of the answer, which waits.
    ends: Vec<Event>,
    stop: String,
    failed: bool,
    /// Output tokens of the rounds before, and of this one.
    output: (u64, u64),
    /// Counts of this round's input, as it began.
    input: Vec<(&'static str, u64)>,
    /// A JSON answer, and the blocks of those before it that the client sees.
    body: Vec<u8>,
    before: Vec<Bytes>,
}

impl Splicer {
    pub(super) fn new(form: Form, own: Arc<[String]>) -> Self {
        Self {
            own,
            form,
            told: Told::default(),
            cutter: Cutter::default(),
            passes: false,
            is_first: true,
            blocks: Vec::new(),
            held: 0,
            ends: Vec::new(),
            stop: String::new(),
            failed: false,
            output: (0, 0),
            input: Vec::new(),
            body: Vec::new(),
            before: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, piece: &Bytes) -> Vec<Bytes> {
        if self.passes {
            return vec![piece.clone()];
        }
        if self.form == Form::Json {
            self.body.extend_from_slice(piece);
            self.passes = self.body.len() > MOST_HELD;
            return if self.passes { vec![std::mem::take(&mut self.body).into()] } else { Vec::new() };
        }
        match self.cutter.push(piece) {
            Some(events) => events.into_iter().filter_map(|event| self.event(event)).collect(),
            None => {
                self.passes = true;
                let ends = std::mem::take(&mut self.ends).into_iter().map(|event| event.bytes);
                ends.chain([self.cutter.rest()]).collect()
            }
        }
    }

    fn event(&mut self, event: Event) -> Option<Bytes> {
        let data = event.data().clone();
        let Some(object) = Object::read(&data, 0) else { return Some(event.bytes) };
        match object.string("type").as_ref() {
            "message_start" => {
                if let Some(usage) = object.object("message").and_then(|message| message.object("usage")) {
                    self.input = INPUT.into_iter().filter_map(|key| Some((key, usage.number(key)?))).collect();
                }
                self.is_first.then_some(event.bytes)
            }
            "content_block_start" => self.start(&event, &object),
            "content_block_delta" => {
                let index = object.number("index")?;
                let delta = object.object("delta")?;
                let room = self.held <= MOST_HELD;
                let block = self.blocks.iter_mut().rfind(|block| block.index == index);
                let Some(block) = block else { return Some(event.bytes) };
                if room {
                    self.held += block.add(&delta);
                }
                let shown = block.shown?;
                if delta.string("type") == "text_delta" {
                    self.told.say(&delta.string("text"));
                }
                Some(numbered(&event, &object, shown))
            }
            "content_block_stop" => {
                let index = object.number("index")?;
                let block = self.blocks.iter().rfind(|block| block.index == index);
                let Some(block) = block else { return Some(event.bytes) };
                let shown = block.shown;
                if shown.is_none() {
                    self.hide(index);
                }
                Some(numbered(&event, &object, shown?))
            }
            "message_delta" => {
                if let Some(delta) = object.object("delta") {
                    self.stop = delta.string("stop_reason").into_owned();
                }
                let output = object.object("usage").and_then(|usage| usage.number("output_tokens"));
                self.output.1 = output.unwrap_or(self.output.1);
                self.at_end(event)
            }
            "message_stop" => self.at_end(event),
            "error" => {
                self.failed = true;
                Some(event.bytes)
            }
            _ => Some(event.bytes),
        }
    }

    fn start(&mut self, event: &Event, object: &Object<'_>) -> Option<Bytes> {
        let index = object.number("index")?;
        let block = object.object("content_block")?;
        let raw = object.raw("content_block").unwrap_or_default();
        let is_own = self.is_own(&block);
        let shown = (!is_own).then(|| self.told.parts());
        self.blocks.push(Block::new(index, shown, raw));
        self.held += raw.len();
        if !is_own {
            self.show(&block);
        }
        Some(numbered(event, object, shown?))
    }

    fn is_own(&self, block: &Object<'_>) -> bool {
        let name = block.string("name");
        block.string("type") == "tool_use" && self.own.iter().any(|own| *own == name)
    }

    /// The client sees `block`, as far as it has come.
    fn show(&mut self, block: &Object<'_>) {
        let form = block.string("type");
        self.told.part(is_reasoning(&form));
        match form.as_ref() {
            "tool_use" => self.told.call(&block.string("id")),
            "text" => self.told.say(&block.string("text")),
            _ => {}
        }
    }

    /// The call of the proxy's at `index` is whole.
    fn hide(&mut self, index: u64) {
        let Some(block) = self.blocks.iter().rfind(|block| block.index == index) else { return };
        let Some(raw) = block.whole() else { return };
        let Some(call) = own_call(&raw, block.input()) else { return };
        self.told.hide(utf8(&raw), call);
    }

    fn at_end(&mut self, event: Event) -> Option<Bytes> {
        if self.told.hides() {
            self.ends.push(event);
            return None;
        }
        Some(event.bytes)
    }

    pub(super) fn end(&mut self) -> Ending {
        if self.passes {
            return Ending::Answered;
        }
        let content = match self.form {
            Form::Stream => self.blocks.iter().filter_map(Block::whole).collect(),
            Form::Json => self.read().unwrap_or_default(),
        };
        if self.failed || self.stop != "tool_use" || self.held > MOST_HELD {
            return Ending::Answered;
        }
        let handed = self.told.hands();
        let calls = self.told.end();
        if calls.is_empty() {
            return Ending::Answered;
        }
        let turn = [br#"{"role":"assistant","content":["#, &*content.join(&b","[..]), b"]}"].concat().into();
        let round = Round { turn, calls };
        if handed { Ending::Handed(round) } else { Ending::Again(round) }
    }

    /// Reads a JSON answer, and gives its blocks.
    fn read(&mut self) -> Option<Vec<Bytes>> {
        let body = Bytes::from(std::mem::take(&mut self.body));
        self.body = body.to_vec();
        let message = Object::read(&body, 0)?;
        self.stop = message.string("stop_reason").into_owned();
        self.output.1 = message.object("usage").and_then(|usage| usage.number("output_tokens")).unwrap_or(0);
        let mut content = Vec::new();
        for span in message.elements("content") {
            let raw = body.slice(span);
            let block = Object::read(&raw, 0)?;
            if !self.is_own(&block) {
                self.show(&block);
            } else if let Some(call) = own_call(&raw, None) {
                self.told.hide(utf8(&raw), call);
            }
            content.push(raw);
        }
        content.retain(|block| !is_blank(block));
        Some(content)
    }

    pub(super) fn next_round(&mut self) {
        if self.form == Form::Json {
            self.before.extend(self.shown());
        }
        self.told.next_round();
        self.output = (self.output.0 + self.output.1, 0);
        self.is_first = false;
        self.cutter = Cutter::default();
        (self.blocks, self.ends, self.body, self.input) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        (self.held, self.failed) = (0, false);
        self.stop = String::new();
    }

    /// Blocks of a JSON answer that the client sees.
    fn shown(&self) -> Vec<Bytes> {
        let Some(message) = Object::read(&self.body, 0) else { return Vec::new() };
        let shown = |span: &std::ops::Range<usize>| {
            let is_own = Object::read(&self.body, span.start).is_some_and(|block| self.is_own(&block));
            self.body.get(span.clone()).filter(|_| !is_own).map(Bytes::copy_from_slice)
        };
        message.elements("content").iter().filter_map(shown).collect()
    }

    pub(super) fn finish(&mut self) -> Vec<Bytes> {
        if self.form == Form::Stream {
            let ends = std::mem::take(&mut self.ends);
            let mut out: Vec<Bytes> = ends.iter().map(|event| event.with(&self.ended(event.data()))).collect();
            out.push(self.cutter.rest());
            out.retain(|piece| !piece.is_empty());
            return out;
        }
        let content = self.shown();
        let body = Bytes::from(std::mem::take(&mut self.body));
        if body.is_empty() || !self.told.hides() || Object::read(&body, 0).is_none() {
            return Vec::from_iter((!body.is_empty()).then_some(body));
        }
        let all = [&*self.before, &*content].concat();
        let content = [b"[", &*all.join(&b","[..]), b"]"].concat();
        let edit = Object::read(&body, 0).and_then(|message| message.set("content", content));
        vec![self.ended(&edited(&body, Vec::from_iter(edit)))]
    }

    /// A whole answer, or the event before the last: why it ended, and what all rounds took.
    fn ended(&self, text: &Bytes) -> Bytes {
        let Some(object) = Object::read(text, 0) else { return text.clone() };
        let mut edits = Vec::new();
        if !self.told.hands() && self.stop == "tool_use" {
            let reason = || Bytes::from_static(b"\"end_turn\"");
            let inner = object.object("delta").filter(|delta| delta.get("stop_reason").is_some());
            edits.extend(inner.as_ref().or(Some(&object)).and_then(|said| {
                said.get("stop_reason")?;
                said.set("stop_reason", reason())
            }));
        }
        if let Some(usage) = object.object("usage") {
            edits.extend(usage.set("output_tokens", (self.output.0 + self.output.1).to_string()));
            let missing = self.input.iter().filter(|(key, _)| usage.get(key).is_none() && !self.is_first);
            for (key, count) in missing {
                match usage.set(key, count.to_string()) {
                    Some(edit) => edits.push(edit),
                    None => edits.extend(usage.members.first().and_then(|_| {
                        let at = object.get("usage")?.start + 1;
                        Some(Edit { span: at..at, with: format!("\"{key}\":{count},").into() })
                    })),
                }
            }
        }
        edited(text, edits)
    }

    pub(super) fn fail(&mut self, error: &[u8]) -> Vec<Bytes> {
        if self.form == Form::Json {
            return vec![Bytes::copy_from_slice(error)];
        }
        let told = Object::read(error, 0).is_some_and(|object| object.string("type") == "error");
        let data = match told {
            true => utf8(error).replace(['\n', '\r'], " "),
            false => {
                let message = quoted(&String::from_utf8_lossy(error));
                format!(r#"{{"type":"error","error":{{"type":"api_error","message":{message}}}}}"#)
            }
        };
        vec![format!("event: error\ndata: {data}\n\n").into()]
    }

    pub(super) fn aside(&self, results: &[Vec<OwnResult>]) -> Option<Aside> {
        self.told.aside(results, Written { whole: message_of_results, beside: blocks_of_results })
    }
}

/// Thinking is what clients leave out, once a turn is over (A13).
fn is_reasoning(form: &str) -> bool {
    matches!(form, "thinking" | "redacted_thinking")
}

fn own_call(raw: &[u8], written: Option<String>) -> Option<OwnCall> {
    let block = Object::read(raw, 0)?;
    let arguments = written.unwrap_or_else(|| block.raw("input").map(utf8).unwrap_or_default());
    Some(OwnCall { id: block.string("id").into_owned(), name: block.string("name").into_owned(), arguments })
}

/// The event with another index, where that differs.
fn numbered(event: &Event, object: &Object<'_>, shown: usize) -> Bytes {
    if object.number("index") == Some(shown as u64) {
        return event.bytes.clone();
    }
    let edits = Vec::from_iter(object.set("index", shown.to_string()));
    event.with(&edited(event.data(), edits))
}

pub(super) fn may_offer(conversation: &Conversation<'_>, _count: usize) -> bool {
    let body = conversation.body;
    let free = conversation.fields.members.iter().all(|(key, span)| match (key.as_ref(), kind(body, span)) {
        (_, b'n') => true,
        ("tool_choice", _) => Object::read(body, span.start).is_some_and(|choice| choice.string("type") == "auto"),
        ("output_config", _) => Object::read(body, span.start).is_some_and(|config| config.get("format").is_none()),
        ("output_format" | "thread" | "fallback_credit_token", _) => false,
        _ => true,
    });
    free && tools(conversation).is_some_and(|tools| !tools.is_empty())
}

/// Where the client's tools stand.
fn tools(conversation: &Conversation<'_>) -> Option<Vec<std::ops::Range<usize>>> {
    elements(conversation.body, array(conversation, "tools")?.start).ok()
}

/// Where the array `key` of the request stands.
pub(super) fn array(conversation: &Conversation<'_>, key: &str) -> Option<std::ops::Range<usize>> {
    let (_, span) = conversation.fields.members.iter().find(|(name, _)| name.as_ref() == key)?;
    Some(span.clone()).filter(|span| kind(conversation.body, span) == b'[')
}

pub(super) fn declared(conversation: &Conversation<'_>) -> Vec<String> {
    let spans = tools(conversation).unwrap_or_default();
    let read = spans.iter().filter_map(|span| Object::read(conversation.body, span.start));
    read.map(|tool| tool.string("name").into_owned()).filter(|name| !name.is_empty()).collect()
}

pub(super) fn offer(conversation: &Conversation<'_>, offers: &[Offer]) -> Option<Edit> {
    let defined = offers.iter().map(|offer| {
        let (name, description) = (quoted(&offer.name), quoted(&offer.description));
        format!(r#"{{"name":{name},"description":{description},"input_schema":{}}}"#, offer.parameters)
    });
    added(conversation, "tools", &defined.collect::<Vec<_>>().join(","))
}

/// The edit that puts `elements` behind those of the array `key` of the request.
pub(super) fn added(conversation: &Conversation<'_>, key: &str, more: &str) -> Option<Edit> {
    let span = array(conversation, key)?;
    let spans = elements(conversation.body, span.start).ok()?;
    let end = spans.last().map_or(span.start + 1, |last| last.end);
    let comma = if spans.is_empty() || more.is_empty() { "" } else { "," };
    Some(Edit { span: end..end, with: format!("{comma}{more}").into() })
}

pub(super) fn appended(conversation: &Conversation<'_>, items: &[u8]) -> Option<Edit> {
    added(conversation, "messages", &utf8(items))
}

/// One message with the results of all calls (A1 to A3).
pub(super) fn results(calls: &[OwnCall], results: &[OwnResult]) -> Bytes {
    message_of_results(calls, results).into()
}

fn message_of_results(calls: &[OwnCall], results: &[OwnResult]) -> String {
    format!(r#"{{"role":"user","content":[{}]}}"#, blocks_of_results(calls, results))
}

fn blocks_of_results(calls: &[OwnCall], results: &[OwnResult]) -> String {
    let block = |(call, result): (&OwnCall, &OwnResult)| {
        let error = if result.failed { r#","is_error":true"# } else { "" };
        let (id, text) = (quoted(&call.id), quoted(&result.text));
        format!(r#"{{"type":"tool_result","tool_use_id":{id},"content":{text}{error}}}"#)
    };
    calls.iter().zip(results).map(block).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
#[path = "../tests/rounds_messages.rs"]
mod tests;
