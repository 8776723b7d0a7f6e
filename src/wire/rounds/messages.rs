//! Rounds of Anthropic Messages.

mod block;
mod offers;
mod put_back;

use bytes::Bytes;

use self::block::{Block, is_blank};
pub(super) use self::offers::{added, appended, declared, may_keep, may_offer, offer};
pub(super) use self::put_back::put_back;
use super::answer::Out;
use super::events::Event;
use super::object::{NO_ARGUMENTS, Object, bounded, edited, readable, utf8};
use super::told::{Told, Written};
use super::{Aside, Conversation, Edit, Ending, Offer, Own, OwnCall, OwnResult, Round};
use crate::wire::writing::quoted;

/// Counts of the input, which the client is told of the last round.
const INPUT: [&str; 3] = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"];

/// Makes the answers of several rounds one.
#[derive(Debug)]
pub struct Splicer {
    own: Own,
    told: Told,
    is_first: bool,
    blocks: Vec<Block>,
    /// Bytes of the blocks; once full, no more of them are kept.
    held: usize,
    full: bool,
    stop: String,
    failed: bool,
    /// Output tokens of the rounds before, and of this one.
    output: (u64, u64),
    /// Counts of this round's input, as it began.
    input: Vec<(&'static str, u64)>,
    /// Blocks of the JSON answers before this one that the client sees.
    before: Vec<Bytes>,
    /// The block that the client sees where there is no other.
    filler: Option<Bytes>,
}

impl Splicer {
    pub(super) fn new(own: Own) -> Self {
        Self {
            own,
            told: Told::default(),
            is_first: true,
            blocks: Vec::new(),
            held: 0,
            full: false,
            stop: String::new(),
            failed: false,
            output: (0, 0),
            input: Vec::new(),
            before: Vec::new(),
            filler: None,
        }
    }

    /// No tool of the proxy's is offered any more.
    pub(super) fn offers_nothing(&mut self) {
        self.own = Own::default();
    }

    pub(super) fn event(&mut self, event: Event, out: &mut Out) {
        let data = event.data().clone();
        let Some(object) = Object::read(&data, 0) else { return out.now.push(event.bytes) };
        match object.string("type").as_ref() {
            "message_start" => {
                if let Some(usage) = object.object("message").and_then(|message| message.object("usage")) {
                    self.input = INPUT.into_iter().filter_map(|key| Some((key, usage.number(key)?))).collect();
                }
                out.now.extend(self.is_first.then_some(event.bytes));
            }
            "content_block_start" | "content_block_delta" | "content_block_stop" => {
                out.now.extend(self.of_block(event, &object));
            }
            "message_delta" => {
                if let Some(delta) = object.object("delta") {
                    self.stop = delta.string("stop_reason").into_owned();
                }
                let output = object.object("usage").and_then(|usage| usage.number("output_tokens"));
                self.output.1 = output.unwrap_or(self.output.1);
                self.at_end(event, out);
            }
            "message_stop" => self.at_end(event, out),
            form => {
                self.failed |= form == "error";
                // Nothing overtakes the end.
                if self.stop.is_empty() { out.now.push(event.bytes) } else { self.at_end(event, out) }
            }
        }
    }

    /// An event about a block, as the client sees it: not at all where the block is a call of the proxy's.
    fn of_block(&mut self, event: Event, object: &Object<'_>) -> Option<Bytes> {
        let Some(index) = object.number("index") else { return Some(event.bytes) };
        let form = object.string("type");
        if form == "content_block_start"
            && let Some(block) = object.object("content_block")
        {
            self.start(index, &block, object.raw("content_block").unwrap_or_default());
        }
        let Some(at) = self.blocks.iter().rposition(|block| block.index == index) else { return Some(event.bytes) };
        match form.as_ref() {
            "content_block_delta" => self.add(at, &object.object("delta")?),
            "content_block_stop" => self.hide(at),
            _ => {}
        }
        Some(numbered(&event, object, self.blocks.get(at)?.shown?))
    }

    fn start(&mut self, index: u64, block: &Object<'_>, raw: &[u8]) {
        let is_own = self.is_own(block);
        let shown = (!is_own).then(|| self.told.parts());
        let whole = Bytes::copy_from_slice(raw);
        self.blocks.push(Block::new(index, shown, if is_own { self.own.renamed(&whole) } else { whole }));
        self.held += raw.len();
        if !is_own {
            self.show(block);
        }
    }

    fn add(&mut self, at: usize, delta: &Object<'_>) {
        let Some(block) = self.blocks.get_mut(at) else { return };
        if !self.full {
            self.held += block.add(delta);
        }
        if block.shown.is_some() && delta.string("type") == "text_delta" {
            self.told.say(&delta.string("text"));
        }
    }

    fn is_own(&self, block: &Object<'_>) -> bool {
        let name = block.string("name");
        block.string("type") == "tool_use" && self.own.has(&name)
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

    /// The block is whole: if it is a call of the proxy's, it is run.
    fn hide(&mut self, at: usize) {
        let Some(block) = self.blocks.get(at).filter(|block| block.shown.is_none()) else { return };
        let Some(raw) = block.whole() else { return };
        let Some(call) = own_call(&raw, block.input()) else { return };
        self.told.hide(utf8(&raw), call);
    }

    fn at_end(&mut self, event: Event, out: &mut Out) {
        if self.hides() { out.ends.push(event.bytes) } else { out.now.push(event.bytes) }
    }

    /// Whether the client does not see all of the answer.
    pub(super) fn hides(&self) -> bool {
        self.told.hides() || self.is_calling()
    }

    /// Whether a call of the proxy's came in this round.
    fn is_calling(&self) -> bool {
        self.told.is_calling() || self.blocks.iter().any(|block| block.shown.is_none())
    }

    pub(super) fn held(&self) -> usize {
        self.held + self.told.held() + self.before.iter().map(Bytes::len).sum::<usize>()
    }

    pub(super) fn hold_no_more(&mut self) {
        self.blocks.iter_mut().for_each(Block::forget);
        (self.held, self.full) = (0, true);
    }

    pub(super) fn broke_off(&mut self) -> bool {
        self.is_calling()
    }

    pub(super) fn is_unended(&self) -> bool {
        !self.failed && self.stop.is_empty() && self.is_calling()
    }

    pub(super) fn end(&mut self, _out: &mut Out) -> Ending {
        let content = self.blocks.iter().filter_map(Block::whole).collect();
        self.ending(content)
    }

    pub(super) fn end_json(&mut self, body: &Bytes) -> Ending {
        let content = self.read(body).unwrap_or_default();
        self.ending(content)
    }

    fn ending(&mut self, content: Vec<Bytes>) -> Ending {
        if self.failed || self.stop != "tool_use" || self.full {
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
    fn read(&mut self, body: &Bytes) -> Option<Vec<Bytes>> {
        let message = Object::read(body, 0)?;
        self.stop = message.string("stop_reason").into_owned();
        self.output.1 = message.object("usage").and_then(|usage| usage.number("output_tokens")).unwrap_or(0);
        let mut content = Vec::new();
        for span in message.elements("content") {
            let raw = body.slice(span);
            let block = Object::read(&raw, 0)?;
            if !self.is_own(&block) {
                self.show(&block);
                content.push(raw);
                continue;
            }
            let raw = self.own.renamed(&raw);
            let kept = with_readable_input(&raw);
            if let Some(call) = own_call(&raw, None) {
                self.told.hide(utf8(&kept), call);
            }
            content.push(kept);
        }
        content.retain(|block| !is_blank(block));
        Some(content)
    }

    pub(super) fn next_round(&mut self, json: &Bytes) {
        let shown = self.shown(json);
        self.before.extend(shown);
        self.told.next_round();
        self.output = (self.output.0 + self.output.1, 0);
        (self.is_first, self.failed, self.held) = (false, false, 0);
        (self.blocks, self.input, self.stop) = (Vec::new(), Vec::new(), String::new());
    }

    /// Blocks of a JSON answer that the client sees.
    fn shown(&self, body: &Bytes) -> Vec<Bytes> {
        let Some(message) = Object::read(body, 0) else { return Vec::new() };
        let is_own = |at: usize| Object::read(body, at).is_some_and(|block| self.is_own(&block));
        let shown = message.elements("content").into_iter().filter(|span| !is_own(span.start));
        shown.map(|span| body.slice(span)).collect()
    }

    /// The last round's JSON answer with what the client sees of all.
    pub(super) fn whole(&mut self, body: Bytes) -> Bytes {
        let Some(message) = Object::read(&body, 0).filter(|_| self.hides()) else { return body };
        let all = [&*self.before, &*self.shown(&body), self.filler.as_slice()].concat();
        let content = [b"[", &*all.join(&b","[..]), b"]"].concat();
        let edit = message.set("content", content);
        self.totalled(&edited(&body, Vec::from_iter(edit)))
    }

    pub(super) fn is_silent(&self) -> bool {
        self.told.is_silent()
    }

    pub(super) fn break_silence(&mut self, text: &str) -> Vec<Bytes> {
        if !self.told.is_silent() {
            return Vec::new();
        }
        let (index, quoted) = (self.told.parts(), quoted(text));
        self.told.part(false);
        self.told.say(text);
        self.filler = Some(format!(r#"{{"type":"text","text":{quoted}}}"#).into());
        let event = |kind: &str, rest: &str| {
            format!("event: {kind}\ndata: {{\"type\":\"{kind}\",\"index\":{index}{rest}}}\n\n").into()
        };
        let delta = format!(r#","delta":{{"type":"text_delta","text":{quoted}}}"#);
        vec![
            event("content_block_start", r#","content_block":{"type":"text","text":""}"#),
            event("content_block_delta", &delta),
            event("content_block_stop", ""),
        ]
    }

    /// An event of the end.
    pub(super) fn ended(&mut self, event: Event) -> Bytes {
        event.with(&self.totalled(event.data()))
    }

    /// A whole answer, or the event before the last: why it ended, and what all rounds took.
    fn totalled(&self, text: &Bytes) -> Bytes {
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

    pub(super) fn error(&self, error: &[u8]) -> Bytes {
        let told = Object::read(error, 0).is_some_and(|object| object.string("type") == "error");
        let data = match told {
            true => utf8(error).replace(['\n', '\r'], " "),
            false => {
                let message = quoted(&String::from_utf8_lossy(error));
                format!(r#"{{"type":"error","error":{{"type":"api_error","message":{message}}}}}"#)
            }
        };
        format!("event: error\ndata: {data}\n\n").into()
    }

    pub(super) fn aside(&self, results: &[Vec<OwnResult>]) -> Option<Aside> {
        self.told.aside(results, Written { whole: message_of_results, beside: blocks_of_results })
    }
}

/// Thinking is what clients leave out, once a turn is over (A13).
fn is_reasoning(form: &str) -> bool {
    matches!(form, "thinking" | "redacted_thinking")
}

/// A call as it may stand in a history.
fn with_readable_input(raw: &Bytes) -> Bytes {
    let Some(block) = Object::read(raw, 0) else { return raw.clone() };
    let wrong = block.raw("input").is_none_or(|input| !readable(input));
    edited(raw, block.set("input", NO_ARGUMENTS).into_iter().filter(|_| wrong).collect())
}

fn own_call(raw: &[u8], written: Option<String>) -> Option<OwnCall> {
    let block = Object::read(raw, 0)?;
    let arguments = written.unwrap_or_else(|| block.raw("input").map(utf8).unwrap_or_default());
    let (id, name) = (block.string("id").into_owned(), block.string("name").into_owned());
    Some(OwnCall { id, name, arguments: bounded(arguments) })
}

/// The event with another index, where that differs.
fn numbered(event: &Event, object: &Object<'_>, shown: usize) -> Bytes {
    if object.number("index") == Some(shown as u64) {
        return event.bytes.clone();
    }
    let edits = Vec::from_iter(object.set("index", shown.to_string()));
    event.with(&edited(event.data(), edits))
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
