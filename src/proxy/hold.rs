//! Hold-back: the beginning of an upstream's answer is kept until it is clear whether it is an
//! overflow that recovery can repair. A pure state machine: time comes as an event, bytes leave
//! in the order in which they came, and every answer ends in exactly one of the final steps.
//!
//! ```text
//! head ─┬─ error status ── whole body, bounded ──┬─ Recover   overflow or output budget
//!       ├─ 200 ─┬─ event stream: bookkeeping … ──┤
//!       │       │                                │            400/422, or 500 of a template's, on a rewritten body;
//!       │       └─ JSON that begins as an error ─┼─ Rejected  or one that takes no tools, where some are offered
//!       └─ anything else ────────────────────────┴─ Release   relay everything
//! ```

mod events;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::wire::overflow::{self, Verdict};
use crate::wire::refusal;
use crate::wire::sse::{Event, Reader};
use bytes::Bytes;
use events::Beginning;
pub use events::{Told, ended_in};

/// Longest time that a response is held, counted from its head. The caller's timer sends
/// [`Hold::on_deadline`].
pub const HOLD_TIME: Duration = Duration::from_secs(2);
/// Bytes of a stream that are held at most. Two events of Responses, each with the request's instructions and tools
/// again, may come before the error: of the largest agent on record (Codex, 24 KB) they take 48 KB.
pub const STREAM_BYTES: usize = 64 * 1024;
/// Bytes of an error body that are held at most.
pub const ERROR_BYTES: usize = overflow::EXAMINED_BYTES;

/// What was sent upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The client's own body.
    Original,
    /// A body that the proxy rewrote.
    Rewritten,
    /// Such a body in which tools of the proxy's are offered.
    Offering,
}

impl Sent {
    /// Whether it is another body than the client's own.
    pub fn is_rewritten(self) -> bool {
        self != Self::Original
    }
}

/// Whether the caller can decode the response's content coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    Readable,
    Unknown,
}

/// What to do after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing goes to the client yet.
    Hold,
    /// Final: relay the head, what was held, and all that follows.
    Release,
    /// Final: too long; never [`Verdict::Other`]. What was held is the error, should the second
    /// attempt fail too; on a stream or a giant body more of it may follow.
    Recover(Verdict),
    /// Final: a rewritten body was refused with this status (400, 422; 500 where its text blames the messages' form; any
    /// where tools were offered and it says that none are taken): send the original, or leave the tools out.
    Rejected(u16),
}

/// The hold-back of one response. Fed until a final step, then opened by [`Hold::into_held`].
pub struct Hold {
    sent: Sent,
    state: State,
    held: Vec<Bytes>,
    held_bytes: usize,
}

enum State {
    AwaitingHead,
    /// An error status whose whole body is read.
    Error {
        status: u16,
        text: Vec<u8>,
    },
    /// A success of which too little was seen.
    Unclear {
        text: Vec<u8>,
    },
    /// A success whose JSON begins as an error.
    Json {
        text: Vec<u8>,
    },
    Stream(Box<Reader>),
    Final(Step),
}

impl Hold {
    pub fn new(sent: Sent) -> Self {
        Self { sent, state: State::AwaitingHead, held: Vec::new(), held_bytes: 0 }
    }

    /// The response's head has come.
    pub fn on_head(&mut self, status: u16, coding: Coding) -> Step {
        if !matches!(self.state, State::AwaitingHead) {
            return self.step();
        }
        let refused = self.refused(status);
        self.state = match (status, coding) {
            (200, Coding::Readable) => State::Unclear { text: Vec::new() },
            (400 | 404 | 413 | 422 | 500 | 503, Coding::Readable) => State::Error { status, text: Vec::new() },
            // Which status a refusal of tools has, servers do not agree on.
            (400.., Coding::Readable) if self.sent == Sent::Offering && !overflow::is_of_the_moment(status) => {
                State::Error { status, text: Vec::new() }
            }
            _ => State::Final(refused.unwrap_or(Step::Release)),
        };
        self.step()
    }

    /// A piece of the body has come: as it is on the wire, and decoded (the same bytes where there
    /// is no content coding; empty where the decoder has nothing to give yet).
    pub fn on_data(&mut self, raw: Bytes, decoded: &[u8]) -> Step {
        self.held_bytes += raw.len();
        if !raw.is_empty() {
            self.held.push(raw);
        }
        let over_stream = self.held_bytes > STREAM_BYTES;
        match &mut self.state {
            State::AwaitingHead => self.state = State::Final(Step::Release),
            State::Error { text, .. } => {
                text.extend_from_slice(decoded);
                if text.len() > ERROR_BYTES || self.held_bytes > ERROR_BYTES {
                    self.judge_error();
                }
            }
            State::Unclear { text } => {
                text.extend_from_slice(decoded);
                let text = std::mem::take(text);
                self.find_out(text);
            }
            State::Json { text } => {
                text.extend_from_slice(decoded);
                if text.len() > ERROR_BYTES || self.held_bytes > ERROR_BYTES {
                    self.state = State::Final(Step::Release);
                }
            }
            State::Stream(reader) => {
                reader.push(decoded);
                self.read_events();
            }
            State::Final(_) => {}
        }
        if over_stream && matches!(self.state, State::Unclear { .. } | State::Stream(_)) {
            self.state = State::Final(Step::Release);
        }
        self.step()
    }

    /// The body has ended.
    pub fn on_end(&mut self) -> Step {
        match &mut self.state {
            State::Error { .. } => self.judge_error(),
            State::Json { text } => {
                let step = inside(self.sent, overflow::classify(200, text), text);
                self.state = State::Final(step);
            }
            State::Stream(reader) => {
                reader.finish();
                self.read_events();
            }
            _ => {}
        }
        self.settle()
    }

    /// The upstream broke off.
    pub fn on_failed(&mut self) -> Step {
        if let State::Error { .. } = self.state {
            self.judge_error();
        }
        self.settle()
    }

    /// [`HOLD_TIME`] has passed since the head; before the head there is nothing to release.
    pub fn on_deadline(&mut self) -> Step {
        match self.state {
            State::AwaitingHead => Step::Hold,
            State::Error { .. } => {
                self.judge_error();
                self.step()
            }
            _ => self.settle(),
        }
    }

    /// The pieces of the body that were held, in order, as they were on the wire.
    pub fn into_held(self) -> Vec<Bytes> {
        self.held
    }

    fn step(&self) -> Step {
        match self.state {
            State::Final(step) => step,
            _ => Step::Hold,
        }
    }

    /// No more is to come or to wait for: what has no verdict is released.
    fn settle(&mut self) -> Step {
        if self.step() == Step::Hold {
            self.state = State::Final(Step::Release);
        }
        self.step()
    }

    fn refused(&self, status: u16) -> Option<Step> {
        (self.sent.is_rewritten() && matches!(status, 400 | 422)).then_some(Step::Rejected(status))
    }

    /// Decides on an error status by what was read of its body.
    fn judge_error(&mut self) {
        let State::Error { status, text } = &self.state else { return };
        let step = match overflow::classify(*status, text) {
            Verdict::Other if blames(self.sent, *status, text) => Step::Rejected(*status),
            Verdict::Other => self.refused(*status).unwrap_or(Step::Release),
            verdict => Step::Recover(verdict),
        };
        self.state = State::Final(step);
    }

    /// Decides by its first bytes what a success is.
    fn find_out(&mut self, text: Vec<u8>) {
        self.state = match events::beginning(&text) {
            Beginning::Unclear => State::Unclear { text },
            Beginning::Error if text.len() <= ERROR_BYTES => State::Json { text },
            Beginning::Error => State::Final(Step::Release),
            Beginning::Answer => State::Final(match events::silent_overflow(&text) {
                Verdict::Other => Step::Release,
                verdict => Step::Recover(verdict),
            }),
            Beginning::Stream => {
                let mut reader = Box::new(Reader::with_limit(STREAM_BYTES));
                reader.push(&text);
                self.state = State::Stream(reader);
                return self.read_events();
            }
        };
    }

    /// Looks at the events that are complete, until one says more than bookkeeping.
    fn read_events(&mut self) {
        let State::Stream(reader) = &mut self.state else { return };
        while let Some(event) = reader.next_event() {
            let step = match events::told(&event) {
                Told::Bookkeeping => continue,
                Told::Output => Step::Release,
                Told::Error(verdict) => inside(self.sent, verdict, event.data.as_bytes()),
            };
            self.state = State::Final(step);
            return;
        }
        if reader.has_given_up() {
            self.state = State::Final(Step::Release);
        }
    }
}

/// Whether an error blames what was sent for what the client's own body may not have.
fn blames(sent: Sent, status: u16, text: &[u8]) -> bool {
    let form = sent.is_rewritten() && status == 500 && refusal::blames_form(text);
    form || sent == Sent::Offering && refusal::refuses_tools(Some(status), text)
}

/// What an event says that is its own message.
pub fn told_of(text: &[u8]) -> Told {
    let data = String::from_utf8_lossy(text).into_owned();
    events::told(&Event { name: None, data, end: 0 })
}

/// An error inside a success is one to recover from, the refusal of a rewritten body, or the client's to see.
fn inside(sent: Sent, verdict: Verdict, text: &[u8]) -> Step {
    match (verdict, overflow::status_told(text)) {
        (Verdict::Other, Some(status @ (400 | 422))) if sent.is_rewritten() => Step::Rejected(status),
        (Verdict::Other, told) if blames(sent, 200, text) => Step::Rejected(told.unwrap_or(400)),
        (Verdict::Other, _) => Step::Release,
        (verdict, _) => Step::Recover(verdict),
    }
}
