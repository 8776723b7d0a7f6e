//! Rounds of OpenAI Responses.

mod continued;
mod failing;
mod items;
mod offers;
mod put_back;
mod repeated;
mod retold;
mod said;

use bytes::Bytes;

pub(super) use self::continued::{behind, continued};
pub(super) use self::items::results;
use self::items::{counts, is_call, is_kept_by_provider, is_reasoning, outputs, texts, without_id};
pub(super) use self::offers::{appended, declared, may_keep, may_offer, offer};
pub(super) use self::put_back::put_back;
pub(super) use self::retold::retold;
use super::answer::Out;
use super::events::Event;
use super::object::{NO_ARGUMENTS, Object, bounded, edited, readable, utf8};
use super::told::{Told, Written};
use super::{Alias, Aside, Conversation, Edit, Ending, MOST_ARGUMENTS, Offer, Own, OwnCall, OwnResult, Reach, Round};
use crate::wire::scan::elements;
use crate::wire::writing::quoted;

/// Makes the answers of several rounds one.
#[derive(Debug)]
pub struct Splicer {
    own: Own,
    told: Told,
    is_first: bool,
    items: Vec<Item>,
    /// Bytes of the items; once full, no more of them are kept.
    held: usize,
    full: bool,
    /// The calls of this round are run: they will be put back.
    kept: bool,
    /// An error has come, behind which nothing follows.
    failed: bool,
    /// The answer in its last state: of the last event, or the JSON body.
    last: Bytes,
    /// The same of the round before.
    previous: Bytes,
    /// The response as it began, in the first round. Empty: the answer is no stream.
    begun: Bytes,
    /// The next number of an event, and whether it differs from the provider's.
    next: (u64, bool),
    /// Tokens of the rounds before: output, and of it reasoning.
    before: (u64, u64),
    /// Items that the client saw of the rounds before.
    shown: Vec<Bytes>,
    /// The item that the client sees where there is no other.
    filler: Option<Bytes>,
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
    pub(super) fn new(own: Own) -> Self {
        Self {
            own,
            told: Told::default(),
            is_first: true,
            items: Vec::new(),
            held: 0,
            full: false,
            kept: false,
            failed: false,
            last: Bytes::new(),
            previous: Bytes::new(),
            begun: Bytes::new(),
            next: (0, false),
            before: (0, 0),
            shown: Vec::new(),
            filler: None,
        }
    }

    /// No tool of the proxy's is offered any more.
    pub(super) fn offers_nothing(&mut self) {
        self.own = Own::default();
    }

    pub(super) fn event(&mut self, event: Event, out: &mut Out) {
        let data = event.data().clone();
        let Some(object) = Object::read(&data, 0) else {
            // `[DONE]` stands behind the end; comments need not wait.
            let waits = !data.is_empty() && self.hides();
            return if waits { out.ends.push(event.bytes) } else { out.now.push(event.bytes) };
        };
        match object.string("type").as_ref() {
            "response.created" | "response.in_progress" | "response.queued" if !self.is_first => self.next.1 = true,
            "response.created" | "response.in_progress" | "response.queued" => {
                let begun = Bytes::copy_from_slice(object.raw("response").unwrap_or_default());
                let tools = Object::read(&begun, 0).map(|response| self.without_tools(&response));
                self.begun = edited(&begun, tools.unwrap_or_default());
                let edits = object.object("response").map(|response| self.without_tools(&response));
                out.now.push(self.numbered(&event, &object, edits.unwrap_or_default()));
            }
            "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" => {
                self.last = self.with_short_arguments(object.raw("response").unwrap_or_default());
                if self.hides() {
                    return out.ends.push(event.bytes);
                }
                let edits = object.object("response").map(|response| self.without_tools(&response));
                out.now.push(self.numbered(&event, &object, edits.unwrap_or_default()));
            }
            // Nothing overtakes the end.
            _ if self.hides() && !self.last.is_empty() && object.get("output_index").is_none() => {
                out.ends.push(event.bytes);
            }
            kind => {
                self.failed |= kind == "error";
                out.now.extend(self.of_item(&event, &object));
            }
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
            let kept = self.kept_item(&Bytes::copy_from_slice(raw));
            if let Some(found) = self.items.get_mut(at).filter(|_| !self.full) {
                self.held += kept.len();
                found.done = Some(kept);
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

    /// Whether the client does not see all of the answer.
    pub(super) fn hides(&self) -> bool {
        self.told.hides() || self.is_calling()
    }

    /// Whether a call of the proxy's came in this round, or began to come.
    fn is_calling(&self) -> bool {
        self.told.is_calling() || self.items.iter().any(|item| item.shown.is_none())
    }

    pub(super) fn held(&self) -> usize {
        let shown: usize = self.shown.iter().map(Bytes::len).sum();
        self.held + shown + self.last.len() + self.previous.len() + self.begun.len() + self.told.held()
    }

    pub(super) fn hold_no_more(&mut self) {
        self.items.iter_mut().for_each(|item| item.done = None);
        (self.held, self.full) = (0, true);
    }

    pub(super) fn broke_off(&mut self) -> bool {
        self.is_calling()
    }

    fn is_own(&self, item: &Object<'_>) -> bool {
        let name = item.string("name");
        item.string("type") == "function_call" && item.get("namespace").is_none() && self.own.has(&name)
    }

    /// An item is whole: the client saw it, or it is a call of the proxy's.
    fn tell(&mut self, raw: &[u8]) {
        let Some(item) = Object::read(raw, 0) else { return };
        if self.is_own(&item) {
            let (id, name) = (item.string("call_id").into_owned(), self.own.kept(&item.string("name")));
            let arguments = bounded(item.string("arguments").into_owned());
            let kept = self.kept_item(&Bytes::copy_from_slice(raw));
            return self.told.hide(utf8(&kept), OwnCall { id, name, arguments });
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

    /// An item as it may stand in a history.
    fn kept_item(&self, raw: &Bytes) -> Bytes {
        if !Object::read(raw, 0).is_some_and(|item| self.is_own(&item)) {
            return raw.clone();
        }
        let raw = self.own.renamed(raw);
        let arguments = Object::read(&raw, 0).and_then(|item| {
            let wrong = !readable(item.string("arguments").as_bytes());
            item.set("arguments", quoted(NO_ARGUMENTS)).filter(|_| wrong)
        });
        edited(&raw, Vec::from_iter(arguments))
    }

    /// A response without the arguments of the proxy's calls that are too long.
    fn with_short_arguments(&self, response: &[u8]) -> Bytes {
        let raw = Bytes::copy_from_slice(response);
        if raw.len() <= MOST_ARGUMENTS {
            return raw;
        }
        let items = Object::read(&raw, 0).map(|response| response.elements("output")).unwrap_or_default();
        let edit = |span: std::ops::Range<usize>| {
            let (item, with) = (raw.slice(span.clone()), self.kept_item(&raw.slice(span.clone())));
            (item != with).then_some(Edit { span, with })
        };
        edited(&raw, items.into_iter().filter_map(edit).collect())
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

    pub(super) fn is_unended(&self) -> bool {
        !self.failed && self.last.is_empty() && self.is_calling()
    }

    pub(super) fn end(&mut self, _out: &mut Out) -> Ending {
        let output = self.output();
        self.ending(output)
    }

    pub(super) fn end_json(&mut self, body: &Bytes) -> Ending {
        self.last = body.clone();
        let output = self.output();
        output.iter().for_each(|item| self.tell(item));
        self.ending(output)
    }

    /// The items of this round. Some servers leave them out of the last event.
    fn output(&self) -> Vec<Bytes> {
        let spans = Object::read(&self.last, 0).map(|response| response.elements("output")).unwrap_or_default();
        match spans.is_empty() {
            true => self.items.iter().filter_map(|item| item.done.clone()).collect(),
            false => spans.into_iter().map(|span| self.last.slice(span)).collect(),
        }
    }

    fn ending(&mut self, mut output: Vec<Bytes>) -> Ending {
        let last = self.last.clone();
        let Some(response) = Object::read(&last, 0) else { return Ending::Answered };
        let completed = matches!(response.string("status").as_ref(), "completed" | "");
        if !completed || self.full {
            return Ending::Answered;
        }
        let handed = self.told.hands();
        let calls = self.told.end();
        if calls.is_empty() {
            return Ending::Answered;
        }
        self.kept = true;
        output = output.iter().map(|item| self.kept_item(item)).collect();
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

    pub(super) fn next_round(&mut self, _json: &Bytes) {
        let (output, reasoning) = Object::read(&self.last, 0).map_or((0, 0), |response| counts(&response));
        self.before = (self.before.0 + output, self.before.1 + reasoning);
        let shown = self.shown_of_round();
        self.shown.extend(shown);
        self.told.next_round();
        self.next.1 |= !self.begun.is_empty();
        (self.is_first, self.kept, self.failed) = (false, false, false);
        self.previous = std::mem::take(&mut self.last);
        (self.items, self.held) = (Vec::new(), 0);
    }

    /// Items of this round that the client sees. Where a call is left out for good, reasoning before it goes with it:
    /// it may not stand without what followed it (R4).
    fn shown_of_round(&self) -> Vec<Bytes> {
        let mut output = self.output();
        let is_own = |item: &Bytes| Object::read(item, 0).is_some_and(|item| self.is_own(&item));
        let cut = !self.kept && output.last().is_some_and(is_own);
        output.retain(|item| !is_own(item));
        while cut && output.last().is_some_and(|item| is_reasoning(item)) {
            output.pop();
        }
        output
    }

    /// The last round's JSON answer with what the client sees of all.
    pub(super) fn whole(&mut self, body: Bytes) -> Bytes {
        let edits = Object::read(&body, 0).map(|response| self.of_all(&response)).unwrap_or_default();
        if edits.is_empty() { body } else { edited(&body, edits) }
    }

    /// An event of the end.
    pub(super) fn ended(&mut self, event: Event) -> Bytes {
        let data = event.data().clone();
        let Some(object) = Object::read(&data, 0) else { return event.bytes };
        let edits = object.object("response").map(|response| self.of_all(&response));
        self.numbered(&event, &object, edits.unwrap_or_default())
    }

    /// The edits that make a round's response that of all rounds.
    fn of_all(&self, response: &Object<'_>) -> Vec<Edit> {
        let mut edits = self.without_tools(response);
        if !self.hides() {
            return edits;
        }
        let begun = Object::read(&self.begun, 0);
        if let Some(begun) = &begun {
            for key in ["id", "created_at", "previous_response_id"] {
                edits.extend(begun.raw(key).and_then(|value| response.set(key, Bytes::copy_from_slice(value))));
            }
        }
        // Some servers leave it out: the items were events.
        if !response.elements("output").is_empty() || begun.is_none() {
            let shown = [&*self.shown, &*self.shown_of_round(), self.filler.as_slice()].concat();
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

    pub(super) fn aside(&self, results: &[Vec<OwnResult>]) -> Option<Aside> {
        self.told.aside(results, Written { whole: outputs, beside: outputs })
    }
}

#[cfg(test)]
#[path = "../tests/rounds_responses.rs"]
mod tests;
