//! Rounds of OpenAI Responses.

mod offers;
mod put_back;

use std::sync::Arc;

use bytes::Bytes;

pub(super) use self::offers::{appended, declared, may_offer, offer};
pub(super) use self::put_back::put_back;
use super::events::{Cutter, Event};
use super::object::{Object, edited, utf8};
use super::told::{Told, Written};
use super::{Aside, Conversation, Edit, Ending, Form, MOST_HELD, Offer, OwnCall, OwnResult, Round};
use crate::wire::scan::elements;
use crate::wire::writing::quoted;

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
    items: Vec<Item>,
    held: usize,
    /// The end of the answer, which waits.
    ends: Vec<Event>,
    /// The JSON body so far, until it is whole.
    body: Vec<u8>,
    /// The answer in its last state: of the last event, or the JSON body.
    last: Bytes,
    /// The response as it began, in the first round.
    begun: Bytes,
    /// The next number of an event, and whether it differs from the provider's.
    next: (u64, bool),
    /// Tokens of the rounds before: output, and of it reasoning.
    before: (u64, u64),
    /// Items that the client saw of the rounds before.
    shown: Vec<Bytes>,
}

/// One output item in the making.
#[derive(Debug)]
struct Item {
    index: u64,
    /// Its index for the client; `None` for a call of the proxy's.
    shown: Option<usize>,
    done: Option<Bytes>,
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
            items: Vec::new(),
            held: 0,
            ends: Vec::new(),
            body: Vec::new(),
            last: Bytes::new(),
            begun: Bytes::new(),
            next: (0, false),
            before: (0, 0),
            shown: Vec::new(),
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
        let Some(object) = Object::read(&data, 0) else {
            // `[DONE]` stands behind the end; comments need not wait.
            if data.is_empty() || !self.told.hides() {
                return Some(event.bytes);
            }
            self.ends.push(event);
            return None;
        };
        let kind = object.string("type");
        match kind.as_ref() {
            "response.created" | "response.in_progress" | "response.queued" => {
                let response = object.object("response")?;
                if !self.is_first {
                    self.next.1 = true;
                    return None;
                }
                self.begun = Bytes::copy_from_slice(object.raw("response").unwrap_or_default());
                let edits = self.without_tools(&response);
                Some(self.numbered(&event, &object, edits))
            }
            "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" => {
                self.last = Bytes::copy_from_slice(object.raw("response").unwrap_or_default());
                if self.told.hides() {
                    self.ends.push(event);
                    return None;
                }
                let edits = object.object("response").map(|response| self.without_tools(&response));
                Some(self.numbered(&event, &object, edits.unwrap_or_default()))
            }
            _ => self.of_item(&event, &object),
        }
    }

    /// An event about an output item, or about none.
    fn of_item(&mut self, event: &Event, object: &Object<'_>) -> Option<Bytes> {
        let Some(index) = object.number("output_index") else {
            return Some(self.numbered(event, object, Vec::new()));
        };
        let item = object.object("item");
        let at = self.items.iter().position(|item| item.index == index).unwrap_or_else(|| {
            let is_own = item.as_ref().is_some_and(|item| self.is_own(item));
            let place = self.shown.len() + self.items.iter().filter(|item| item.shown.is_some()).count();
            self.items.push(Item { index, shown: (!is_own).then_some(place), done: None });
            self.items.len() - 1
        });
        if object.string("type") == "response.output_item.done" {
            let raw = object.raw("item").unwrap_or_default();
            self.held += raw.len();
            if let Some(found) = self.items.get_mut(at).filter(|_| self.held <= MOST_HELD) {
                found.done = Some(Bytes::copy_from_slice(raw));
            }
            self.tell(raw);
        }
        match self.items.get(at).and_then(|item| item.shown) {
            None => {
                self.next.1 = true;
                None
            }
            Some(shown) => {
                let moved = index != shown as u64;
                let edit = object.set("output_index", shown.to_string()).filter(|_| moved);
                Some(self.numbered(event, object, Vec::from_iter(edit)))
            }
        }
    }

    fn is_own(&self, item: &Object<'_>) -> bool {
        let name = item.string("name");
        item.string("type") == "function_call"
            && item.get("namespace").is_none()
            && self.own.iter().any(|own| *own == name)
    }

    /// An item is whole: the client saw it, or it is a call of the proxy's.
    fn tell(&mut self, raw: &[u8]) {
        let Some(item) = Object::read(raw, 0) else { return };
        if self.is_own(&item) {
            let (id, name) = (item.string("call_id").into_owned(), item.string("name").into_owned());
            let arguments = item.string("arguments").into_owned();
            return self.told.hide(utf8(raw), OwnCall { id, name, arguments });
        }
        let form = item.string("type");
        self.told.part(form == "reasoning");
        if is_call(&form) && item.get("call_id").is_some() {
            self.told.call(&item.string("call_id"));
        }
        if form == "mcp_approval_request" {
            self.told.wait(&item.string("id"));
        }
        if form.ends_with("_call_output") {
            self.told.answered(&item.string("call_id"));
        }
        texts(&item).iter().for_each(|text| self.told.say(text));
    }

    /// The event with the next number and with `edits`; as it is where nothing differs.
    fn numbered(&mut self, event: &Event, object: &Object<'_>, mut edits: Vec<Edit>) -> Bytes {
        if let Some(number) = object.number("sequence_number") {
            let (next, differs) = self.next;
            if differs && number != next {
                edits.extend(object.set("sequence_number", next.to_string()));
            }
            self.next.0 = if differs { next + 1 } else { number + 1 };
        }
        if edits.is_empty() { event.bytes.clone() } else { event.with(&edited(event.data(), edits)) }
    }

    /// The edits that leave the proxy's tools out of those that a response repeats.
    fn without_tools(&self, response: &Object<'_>) -> Vec<Edit> {
        let Some(span) = response.get("tools") else { return Vec::new() };
        let tools = response.elements("tools");
        let is_own = |tool: &std::ops::Range<usize>| {
            let tool = Object::read(response.text, tool.start);
            tool.is_some_and(|tool| self.own.iter().any(|own| *own == tool.string("name")))
        };
        if !tools.iter().any(is_own) {
            return Vec::new();
        }
        let kept = tools.iter().filter(|tool| !is_own(tool)).filter_map(|tool| response.text.get(tool.clone()));
        let with = [b"[", &*kept.collect::<Vec<_>>().join(&b","[..]), b"]"].concat();
        vec![Edit { span, with: with.into() }]
    }

    fn close_body(&mut self) {
        if !self.body.is_empty() {
            self.last = std::mem::take(&mut self.body).into();
        }
    }

    pub(super) fn end(&mut self) -> Ending {
        if self.passes {
            return Ending::Answered;
        }
        self.close_body();
        let last = self.last.clone();
        let Some(response) = Object::read(&last, 0) else { return Ending::Answered };
        let mut output: Vec<Bytes> = response.elements("output").into_iter().map(|span| last.slice(span)).collect();
        match self.form {
            Form::Json => {
                output.iter().for_each(|item| self.tell(item));
            }
            // Some servers leave the output out of the last event.
            Form::Stream if output.is_empty() => {
                output = self.items.iter().filter_map(|item| item.done.clone()).collect();
            }
            Form::Stream => {}
        }
        let completed = matches!(response.string("status").as_ref(), "completed" | "");
        if !completed || self.held > MOST_HELD {
            return Ending::Answered;
        }
        let handed = self.told.hands();
        let calls = self.told.end();
        if calls.is_empty() {
            return Ending::Answered;
        }
        // What the provider does not keep has to be sent whole (R5).
        if response.raw("store") == Some(b"false") {
            let all = output.len();
            output.retain(|item| !is_kept_by_provider(item));
            // By their ids the provider would miss the reasoning before them (R4).
            if output.len() < all {
                output = output.iter().map(without_id).collect();
            }
        }
        let round = Round { turn: output.join(&b","[..]).into(), calls };
        if handed { Ending::Handed(round) } else { Ending::Again(round) }
    }

    pub(super) fn next_round(&mut self) {
        let (output, reasoning) = Object::read(&self.last, 0).map_or((0, 0), |response| counts(&response));
        self.before = (self.before.0 + output, self.before.1 + reasoning);
        let shown = self.shown_of_round();
        self.shown.extend(shown);
        self.told.next_round();
        self.is_first = false;
        self.next.1 |= self.form == Form::Stream;
        self.cutter = Cutter::default();
        (self.items, self.ends, self.last, self.held) = (Vec::new(), Vec::new(), Bytes::new(), 0);
    }

    /// Items of this round that the client sees.
    fn shown_of_round(&self) -> Vec<Bytes> {
        let output: Vec<Bytes> = match self.form {
            Form::Stream => self.items.iter().filter_map(|item| item.done.clone()).collect(),
            Form::Json => {
                let spans = Object::read(&self.last, 0).map(|response| response.elements("output"));
                spans.unwrap_or_default().into_iter().map(|span| self.last.slice(span)).collect()
            }
        };
        let is_own = |item: &Bytes| Object::read(item, 0).is_some_and(|item| self.is_own(&item));
        output.into_iter().filter(|item| !is_own(item)).collect()
    }

    pub(super) fn finish(&mut self) -> Vec<Bytes> {
        if self.form == Form::Json {
            self.close_body();
            let body = std::mem::take(&mut self.last);
            let shown = [&*self.shown, &*self.shown_of(&body)].concat();
            let edits = Object::read(&body, 0).map(|response| self.whole(&response, &shown)).unwrap_or_default();
            let body = if edits.is_empty() { body } else { edited(&body, edits) };
            return Vec::from_iter((!body.is_empty()).then_some(body));
        }
        let mut out = Vec::new();
        for event in std::mem::take(&mut self.ends) {
            let data = event.data().clone();
            let Some(object) = Object::read(&data, 0) else {
                out.push(event.bytes);
                continue;
            };
            let shown = [&*self.shown, &*self.shown_of_round()].concat();
            let edits = object.object("response").map(|response| self.whole(&response, &shown));
            out.push(self.numbered(&event, &object, edits.unwrap_or_default()));
        }
        out.push(self.cutter.rest());
        out.retain(|piece| !piece.is_empty());
        out
    }

    /// Items of the JSON answer `body` that the client sees.
    fn shown_of(&self, body: &Bytes) -> Vec<Bytes> {
        let Some(response) = Object::read(body, 0) else { return Vec::new() };
        let spans = response.elements("output").into_iter();
        let shown = spans.filter(|span| Object::read(body, span.start).is_none_or(|item| !self.is_own(&item)));
        shown.map(|span| body.slice(span)).collect()
    }

    /// The edits that make a round's response that of all rounds.
    fn whole(&self, response: &Object<'_>, shown: &[Bytes]) -> Vec<Edit> {
        let mut edits = self.without_tools(response);
        if !self.told.hides() {
            return edits;
        }
        if let Some(begun) = Object::read(&self.begun, 0).filter(|_| self.form == Form::Stream) {
            for key in ["id", "created_at"] {
                edits.extend(begun.raw(key).and_then(|value| response.set(key, Bytes::copy_from_slice(value))));
            }
        }
        // Some servers leave it out: the items were events.
        if !response.elements("output").is_empty() || self.form == Form::Json {
            let output = [b"[", &*shown.join(&b","[..]), b"]"].concat();
            edits.extend(response.set("output", output));
        }
        let (output, reasoning) = (self.before.0 + counts(response).0, self.before.1 + counts(response).1);
        if let Some(usage) = response.object("usage") {
            edits.extend(usage.set("output_tokens", output.to_string()));
            let total = usage.number("input_tokens").unwrap_or(0) + output;
            edits.extend(usage.set("total_tokens", total.to_string()));
            let details = usage.object("output_tokens_details");
            edits.extend(details.and_then(|details| details.set("reasoning_tokens", reasoning.to_string())));
        }
        edits
    }

    pub(super) fn fail(&mut self, error: &[u8]) -> Vec<Bytes> {
        if self.form == Form::Json {
            return vec![Bytes::copy_from_slice(error)];
        }
        let told = Object::read(error, 0);
        let told = told.as_ref().and_then(|object| object.object("error"));
        let code = told.as_ref().map(|error| error.string("code")).filter(|code| !code.is_empty());
        let message = told.as_ref().map(|error| error.string("message").into_owned());
        let message = message.unwrap_or_else(|| String::from_utf8_lossy(error).into_owned());
        let (code, message) = (quoted(code.as_deref().unwrap_or("server_error")), quoted(&message));
        let error = format!(r#"{{"code":{code},"message":{message}}}"#);
        let number = self.next.0;
        let begun = Object::read(&self.begun, 0).map(|response| {
            let set = [("status", "\"failed\"".to_owned()), ("error", error.clone())];
            let mut edits = self.without_tools(&response);
            edits.extend(set.into_iter().filter_map(|(key, value)| response.set(key, value)));
            utf8(&edited(&self.begun, edits))
        });
        let (name, rest) = match begun {
            Some(response) => ("response.failed", format!(r#""response":{response}"#)),
            None => ("error", format!(r#""error":{error},"code":{code},"message":{message},"param":null"#)),
        };
        let data = format!(r#"{{"type":"{name}","sequence_number":{number},{rest}}}"#);
        vec![format!("event: {name}\ndata: {}\n\n", data.replace(['\n', '\r'], " ")).into()]
    }

    pub(super) fn aside(&self, results: &[Vec<OwnResult>]) -> Option<Aside> {
        self.told.aside(results, Written { whole: outputs, beside: outputs })
    }
}

/// Whether a client's tool is called by an item of this type.
pub(super) fn is_call(form: &str) -> bool {
    form.ends_with("_call")
}

/// What the model said in an item.
pub(super) fn texts(item: &Object<'_>) -> Vec<String> {
    if item.get("content").is_some_and(|span| item.text.get(span.start) == Some(&b'"')) {
        return vec![item.string("content").into_owned()];
    }
    let parts = if item.string("type") == "reasoning" { Vec::new() } else { item.elements("content") };
    let parts = parts.iter().filter_map(|part| Object::read(item.text, part.start));
    parts.flat_map(|part| ["text", "refusal"].map(|key| part.string(key).into_owned())).collect()
}

/// Output tokens, and of them reasoning.
fn counts(response: &Object<'_>) -> (u64, u64) {
    let Some(usage) = response.object("usage") else { return (0, 0) };
    let reasoning = usage.object("output_tokens_details").and_then(|details| details.number("reasoning_tokens"));
    (usage.number("output_tokens").unwrap_or(0), reasoning.unwrap_or(0))
}

/// Whether an item is reasoning of which only the id is there.
fn is_kept_by_provider(item: &[u8]) -> bool {
    let item = Object::read(item, 0);
    item.is_some_and(|item| {
        item.string("type") == "reasoning"
            && item.get("encrypted_content").is_none()
            && item.elements("content").is_empty()
    })
}

/// A message or call without the id that ties it to its reasoning.
pub(super) fn without_id(raw: &Bytes) -> Bytes {
    let item = Object::read(raw, 0);
    let tied = item.filter(|item| matches!(&*item.string("type"), "message" | "function_call" | "custom_tool_call"));
    edited(raw, Vec::from_iter(tied.and_then(|item| item.without("id"))))
}

pub(super) fn results(calls: &[OwnCall], results: &[OwnResult]) -> Bytes {
    outputs(calls, results).into()
}

/// One item a call (R1).
fn outputs(calls: &[OwnCall], results: &[OwnResult]) -> String {
    let item = |(call, result): (&OwnCall, &OwnResult)| {
        let text = if result.text.is_empty() { "(nothing)" } else { &result.text };
        let (id, text) = (quoted(&call.id), quoted(text));
        format!(r#"{{"type":"function_call_output","call_id":{id},"output":{text}}}"#)
    };
    calls.iter().zip(results).map(item).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
#[path = "../tests/rounds_responses.rs"]
mod tests;
