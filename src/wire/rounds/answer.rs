//! One answer for the client, put together from the answers of its rounds: how their bodies come in and how much of
//! them is held. What an event or a body means is the dialect's.

use std::sync::Arc;

use bytes::Bytes;

use super::events::{Cutter, Event};
use super::look::is_answer;
use super::object::Object;
use super::{Alias, Aside, Dialect, Ending, Form, Own, OwnResult, Reach, chat, messages, responses};

/// Most bytes that are held of an answer beside what has to be whole to be read: from there on no further round
/// follows, and the proxy's calls are left out.
pub const MOST_HELD: usize = 4 * 1024 * 1024;
/// Most bytes of one event, and of a JSON answer. A longer one passes as it comes; where the client could not make
/// sense of that, because something is hidden already, the answer is stuck.
pub const MOST_WHOLE: usize = 16 * 1024 * 1024;

/// One answer in the making.
#[derive(Debug)]
pub struct Answer {
    form: Form,
    state: State,
    own: Own,
    /// [`MOST_HELD`] and [`MOST_WHOLE`].
    most: (usize, usize),
    cutter: Cutter,
    /// A JSON body.
    body: Vec<u8>,
    json: Bytes,
    out: Out,
    /// What stood behind the last event that was whole.
    last: Vec<Bytes>,
    splicer: Splicer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Reading,
    /// The rest of an event passes as it comes.
    Passing,
    /// All passes as it comes.
    Raw,
    Stuck,
}

#[derive(Debug)]
enum Splicer {
    Chat(Box<chat::Splicer>),
    Messages(Box<messages::Splicer>),
    Responses(Box<responses::Splicer>),
}

/// Where the events of an answer go.
#[derive(Debug, Default)]
pub(super) struct Out {
    /// To the client.
    pub(super) now: Vec<Bytes>,
    /// To the client, should no other round follow: the end of this one.
    pub(super) ends: Vec<Bytes>,
}

/// Does the same in each dialect.
macro_rules! each {
    ($splicer:expr, $it:ident => $does:expr) => {
        match $splicer {
            Splicer::Chat($it) => $does,
            Splicer::Messages($it) => $does,
            Splicer::Responses($it) => $does,
        }
    };
}

impl Answer {
    /// `own`: names under which tools of the proxy's were offered beside the client's.
    pub fn new(dialect: Dialect, form: Form, own: Arc<[String]>) -> Self {
        Self::with(dialect, form, own.into())
    }

    /// An answer in which these calls are the proxy's.
    pub fn with(dialect: Dialect, form: Form, own: Own) -> Self {
        let splicer = match dialect {
            Dialect::Chat => Splicer::Chat(Box::new(chat::Splicer::new(own.clone()))),
            Dialect::Messages => Splicer::Messages(Box::new(messages::Splicer::new(own.clone()))),
            Dialect::Responses => Splicer::Responses(Box::new(responses::Splicer::new(own.clone()))),
        };
        Self {
            form,
            state: State::Reading,
            own,
            most: (MOST_HELD, MOST_WHOLE),
            cutter: Cutter::default(),
            body: Vec::new(),
            json: Bytes::new(),
            out: Out::default(),
            last: Vec::new(),
            splicer,
        }
    }

    /// Takes in the next piece of the current round's body, and gives what may go to the client now.
    pub fn push(&mut self, piece: &Bytes) -> Vec<Bytes> {
        match (self.state, self.form) {
            (State::Raw, _) => return vec![piece.clone()],
            (State::Stuck, _) => return Vec::new(),
            // Some servers send white space so that a long wait is not taken for an end.
            (_, Form::Json) if self.body.is_empty() && piece.iter().all(u8::is_ascii_whitespace) => {
                return vec![piece.clone()];
            }
            (_, Form::Json) => self.body.extend_from_slice(piece),
            (_, Form::Stream) => {
                let piece = self.pass(piece.clone());
                for event in self.cutter.push(&piece) {
                    each!(&mut self.splicer, it => it.event(event, &mut self.out));
                }
            }
        }
        if each!(&self.splicer, it => it.held()) > self.most.0 {
            self.hold_no_more();
        }
        if self.body.len().max(self.cutter.held()) > self.most.1 {
            self.overflow();
        }
        std::mem::take(&mut self.out.now)
    }

    /// The rest of an event that passes as it comes, handed on; what is behind it.
    fn pass(&mut self, piece: Bytes) -> Bytes {
        if self.state != State::Passing {
            return piece;
        }
        let end = self.cutter.end_of_passing(&piece);
        let (mut piece, at) = (piece, end.unwrap_or(usize::MAX));
        let passed = piece.split_to(at.min(piece.len()));
        self.out.now.push(passed);
        if end.is_some() {
            self.state = State::Reading;
        }
        piece
    }

    /// What has to be whole to be read is too long. It is not shown where there may be a call of the proxy's in it.
    fn overflow(&mut self) {
        let unsure = || self.hides() || self.form == Form::Json || may_call(self.cutter.pending(), &self.own);
        if !self.own.is_none() && unsure() {
            (self.state, self.body) = (State::Stuck, Vec::new());
            return;
        }
        if let Splicer::Chat(it) = &mut self.splicer {
            it.release(&mut self.out.now);
        }
        if self.form == Form::Json {
            self.state = State::Raw;
            return self.out.now.push(std::mem::take(&mut self.body).into());
        }
        // What is in it nobody knows: no other round follows.
        self.hold_no_more();
        self.state = State::Passing;
        self.out.now.push(self.cutter.begin_passing());
    }

    /// Whether the answer passes as it comes.
    pub fn is_raw(&self) -> bool {
        self.state == State::Raw
    }

    /// Whether it can be put together no more.
    pub fn is_stuck(&self) -> bool {
        self.state == State::Stuck
    }

    /// Whether the stream of the current round stands between two events.
    pub fn is_between_events(&self) -> bool {
        self.cutter.held() == 0
    }

    /// Whether the client does not see all of it.
    pub fn hides(&self) -> bool {
        each!(&self.splicer, it => it.hides())
    }

    /// Whether the JSON that has ended the current round is no answer: an error, a page, nothing.
    pub fn is_other(&self) -> bool {
        let dialect = match &self.splicer {
            Splicer::Chat(_) => Dialect::Chat,
            Splicer::Messages(_) => Dialect::Messages,
            Splicer::Responses(_) => Dialect::Responses,
        };
        self.form == Form::Json && self.state == State::Reading && !is_answer(dialect, &self.json)
    }

    /// Whether the stream of the current round has ended without a word of its end, where a call of the proxy's stands
    /// that may be cut off. To be asked before [`end`](Self::end).
    pub fn is_unended(&self) -> bool {
        let reading = self.form == Form::Stream && self.state == State::Reading;
        reading && each!(&self.splicer, it => it.is_unended())
    }

    /// Bytes that are held.
    pub fn held(&self) -> usize {
        let ends: usize = self.out.ends.iter().chain(&self.last).map(Bytes::len).sum();
        let whole = self.cutter.held() + self.body.len() + self.json.len();
        whole + ends + each!(&self.splicer, it => it.held())
    }

    /// Holds only what it must from now on: no other round will follow.
    pub fn hold_no_more(&mut self) {
        each!(&mut self.splicer, it => it.hold_no_more());
    }

    /// The current round's body has ended.
    pub fn end(&mut self) -> Ending {
        if self.state != State::Reading {
            return Ending::Answered;
        }
        if self.form == Form::Json {
            self.json = std::mem::take(&mut self.body).into();
            return each!(&mut self.splicer, it => it.end_json(&self.json));
        }
        let rest = Event::new(self.cutter.rest());
        if !rest.bytes.is_empty() && !self.is_half_a_call(&rest) {
            each!(&mut self.splicer, it => it.event(rest, &mut self.out));
            self.last = std::mem::take(&mut self.out.now);
        }
        each!(&mut self.splicer, it => it.end(&mut self.out))
    }

    /// Whether half of an event, with which a body ended, may name a tool of the proxy's. No client can read it.
    fn is_half_a_call(&self, rest: &Event) -> bool {
        !self.own.is_none() && may_call(&rest.bytes, &self.own) && Object::read(rest.data(), 0).is_none()
    }

    /// Another answer follows. What was held of the last one is dropped but for what its usage adds.
    pub fn next_round(&mut self) {
        let json = std::mem::take(&mut self.json);
        each!(&mut self.splicer, it => it.next_round(&json));
        (self.cutter, self.out, self.last) = (Cutter::default(), Out::default(), Vec::new());
        (self.body, self.state) = (Vec::new(), State::Reading);
    }

    /// Where the client has nothing of an answer that ends with calls of the proxy's: has it say `text`. What says
    /// nothing may not be sent back to every provider.
    pub fn break_silence(&mut self, text: &str) {
        let before = each!(&mut self.splicer, it => it.break_silence(text));
        self.out.ends.splice(0..0, before);
    }

    /// Whether the client has nothing, or nothing but thoughts, of an answer that ends with calls of the proxy's.
    pub fn is_silent(&self) -> bool {
        each!(&self.splicer, it => it.is_silent())
    }

    /// The answer begins anew, in a request that offers none of the proxy's tools: nothing in it is to be hidden. What the
    /// client has so far is the opening of a stream at most.
    pub fn begin_anew(&mut self) {
        self.next_round();
        self.own = Own::default();
        each!(&mut self.splicer, it => it.offers_nothing());
    }

    /// No further round: what was held, as the end of one well-formed answer. Where the last ending was not
    /// [`Ending::Answered`], its calls of the proxy's own tools are left out.
    pub fn finish(&mut self) -> Vec<Bytes> {
        if self.form == Form::Json {
            let json = std::mem::take(&mut self.json);
            let whole = (!json.is_empty()).then(|| each!(&mut self.splicer, it => it.whole(json)));
            return whole.into_iter().collect();
        }
        let ends = std::mem::take(&mut self.out.ends).into_iter().map(Event::new);
        let mut out: Vec<Bytes> = ends.map(|event| each!(&mut self.splicer, it => it.ended(event))).collect();
        out.append(&mut self.last);
        out
    }

    /// The current round's body has broken off, and nothing follows: what was held and is sure to belong to the
    /// answer. Its end is that of the whole only where no call of the proxy's came before it.
    pub fn break_off(&mut self) -> Vec<Bytes> {
        let calling = each!(&mut self.splicer, it => it.broke_off());
        if self.form == Form::Json || calling { Vec::new() } else { self.finish() }
    }

    /// A later round failed with the body `error`: the error, in this answer's own form.
    pub fn fail(&mut self, error: &[u8]) -> Vec<Bytes> {
        match self.form {
            Form::Json => vec![Bytes::copy_from_slice(error)],
            Form::Stream => vec![each!(&self.splicer, it => it.error(error))],
        }
    }

    /// The id under which its provider has the current round's answer, if that can be continued there.
    pub fn id(&self, reach: Reach) -> Option<String> {
        match &self.splicer {
            Splicer::Chat(_) | Splicer::Messages(_) => None,
            Splicer::Responses(it) => it.id(reach),
        }
    }

    /// What the client does not see of this answer; `results`: of each round that ended with calls, in order of
    /// the rounds. `None` where nothing is hidden.
    pub fn aside(&self, results: &[Vec<OwnResult>]) -> Option<Aside> {
        each!(&self.splicer, it => it.aside(results))
    }

    /// Where the provider has this answer, and the id by which the client knows it; `results` as in
    /// [`aside`](Self::aside). `None`: under that very id and complete, or nobody can continue it.
    pub fn alias(&self, results: &[Vec<OwnResult>], reach: Reach) -> Option<(String, Alias)> {
        match &self.splicer {
            Splicer::Chat(_) | Splicer::Messages(_) => None,
            Splicer::Responses(it) => it.alias(results, reach),
        }
    }
}

/// How calls, and the tools that a response repeats, are written.
const OF_CALLS: [&str; 6] =
    ["\"tool_calls\"", "\"function_call\"", "\"tool_use\"", "\"arguments\"", "\"input\"", "\"tools\""];

/// Whether a tool of the proxy's may be named in an event of which this is the beginning.
fn may_call(begun: &[u8], own: &Own) -> bool {
    let mut words = OF_CALLS.into_iter().chain(own.names());
    words.any(|word| memchr::memmem::find(begun, word.as_bytes()).is_some())
}

#[cfg(test)]
#[path = "../tests/rounds_bounds.rs"]
mod tests;
