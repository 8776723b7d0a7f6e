//! What is on its way on a socket: one request at a time, its answer held back as far as it may end in another
//! attempt. At most two attempts, the second only while nothing of the answer went to the client (L6).

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::super::hold::{STREAM_BYTES, Told, told_of};
use super::super::observe::Watch;
use super::super::work::Work;
use crate::wire::overflow::Verdict;

/// The client's message.
pub struct Asked {
    /// Its frames as they came.
    pub raw: Vec<Bytes>,
}

/// A request that was sent, and the beginning of its answer.
pub struct Sent {
    pub asked: Asked,
    pub work: Box<Work>,
    pub attempt: Attempt,
    held: Vec<Bytes>,
    held_bytes: usize,
    /// When the answer began.
    pub since: Option<Instant>,
}

/// Which attempt is out.
pub enum Attempt {
    First,
    /// A shorter body, after this beginning of an answer that says that the first one was too long.
    Shorter {
        refusal: Vec<Bytes>,
    },
    /// The client's own body, after a refusal of a rewritten one.
    Original,
}

/// What goes on.
pub enum Turn {
    /// Nothing that could be mended: all passes.
    Passing,
    /// The client's message is looked at.
    Looking { asked: Asked, looking: JoinHandle<Option<Box<Work>>> },
    /// What comes of the answer is held back.
    Holding(Box<Sent>),
    /// The provider found the prompt too long, and said so in these frames: a shorter body is made.
    Mending { asked: Asked, refusal: Vec<Bytes>, mending: JoinHandle<Option<Box<Work>>> },
    /// The model answers.
    Answering(Option<Box<Watch>>),
}

/// What an event of the answer asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    Hold,
    /// The model answers: relay all that was held, and what follows.
    Answered,
    /// As nobody can mend it: relay all that was held, and what follows.
    Release,
    /// Too long, and recovery may help.
    Mend(Verdict),
    /// A rewritten body was refused: the client's own.
    Original,
    /// The second attempt failed too; `condemned`: what it was made with is to blame.
    FirstError {
        condemned: bool,
    },
}

impl Sent {
    pub fn new(asked: Asked, work: Box<Work>, attempt: Attempt) -> Self {
        Self { asked, work, attempt, held: Vec::new(), held_bytes: 0, since: None }
    }

    /// Takes in an event of the answer: its frames, and what it says.
    pub fn on_event(&mut self, raw: Vec<Bytes>, text: &[u8], now: Instant) -> Step {
        self.since.get_or_insert(now);
        self.held_bytes += raw.iter().map(Bytes::len).sum::<usize>();
        self.held.extend(raw);
        match told_of(text) {
            Told::Bookkeeping if self.held_bytes > STREAM_BYTES => Step::Release,
            Told::Bookkeeping => Step::Hold,
            Told::Output => Step::Answered,
            Told::Error(verdict) => self.judge(verdict, status(text)),
        }
    }

    fn judge(&self, verdict: Verdict, status: Option<u64>) -> Step {
        let refused = matches!(status, Some(400 | 422)) && self.work.pieces.is_some();
        match self.attempt {
            Attempt::First => match verdict {
                Verdict::Other if refused => Step::Original,
                Verdict::Other => Step::Release,
                verdict if self.work.recovers() => Step::Mend(verdict),
                _ if refused => Step::Original,
                _ => Step::Release,
            },
            // A rate limit or a failure says nothing of the request: the client is to see it and wait.
            Attempt::Shorter { .. } if matches!(status, Some(429 | 500..=599)) => Step::Release,
            Attempt::Shorter { .. } => Step::FirstError { condemned: refused || verdict != Verdict::Other },
            Attempt::Original => Step::Release,
        }
    }

    /// What was held, in order.
    pub fn take_held(&mut self) -> Vec<Bytes> {
        self.held_bytes = 0;
        self.since = None;
        std::mem::take(&mut self.held)
    }
}

/// The status that an error event names; an invalid request is one of 400.
fn status(text: &[u8]) -> Option<u64> {
    let event: Value = serde_json::from_slice(text).ok()?;
    let told = |pointer: &&str| event.pointer(pointer).and_then(Value::as_u64);
    let invalid = |pointer: &&str| {
        event.pointer(pointer).and_then(Value::as_str).is_some_and(|kind| kind == "invalid_request_error")
    };
    let kinds = ["/error/type", "/response/error/type", "/type"];
    ["/status", "/status_code", "/error/status"].iter().find_map(told).or(kinds.iter().any(invalid).then_some(400))
}

/// Whether an event is the last one of an answer.
pub fn is_last(text: &[u8]) -> bool {
    matches!(&*kind(text), "response.completed" | "response.incomplete" | "response.failed" | "error")
}

/// Whether a client's message is a request for a response.
pub fn is_request(text: &[u8]) -> bool {
    kind(text) == "response.create"
}

/// The type of a message; empty where it has none.
fn kind(text: &[u8]) -> Cow<'_, str> {
    #[derive(Deserialize)]
    struct Message<'t> {
        #[serde(rename = "type", borrow)]
        kind: Cow<'t, str>,
    }
    serde_json::from_slice::<Message>(text).map_or(Cow::Borrowed(""), |message| message.kind)
}
