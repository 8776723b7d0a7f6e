//! What is on its way on a lane of a socket: one request at a time, its answer held back as far as it may end in another
//! attempt. At most two attempts, the second only while nothing of the answer went to the client (L6).

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::super::aliases::Reached;
use super::super::hold::{STREAM_BYTES, Sent as Body, Told, told_of};
use super::super::observe::Watch;
use super::super::second::{Attempt, Blames, Next, Refusal, next};
use super::super::work::Work;
use super::ends::mask;
use super::rounds::{Rounds, Running};
use crate::wire::chain;
use crate::wire::frames::text_frame;
use crate::wire::overflow::{self, Verdict};
use crate::wire::refusal;

/// A refusal that the client may yet be told: its frames, and what the event says that it is known by.
#[derive(Debug, Default)]
pub struct Refused {
    pub frames: Vec<Bytes>,
    pub text: Bytes,
}

/// What another body is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    Shorter,
    WithoutTools,
}

/// A request that was sent, and the beginning of its answer.
pub struct Sent {
    /// The client's frames as they came.
    pub raw: Vec<Bytes>,
    pub work: Box<Work>,
    pub attempt: Attempt,
    /// What the first attempt ended in, where this is the second.
    pub refusal: Refused,
    /// What it was made for, where it was made anew.
    pub remedy: Option<Remedy>,
    /// What is known of the answer that it continues.
    pub reached: Option<Reached>,
    /// The answer that it goes on with, where it is the proxy's own request.
    pub rounds: Option<Box<Rounds>>,
    /// Frames, and what they say.
    held: Vec<(Vec<Bytes>, Bytes)>,
    held_bytes: usize,
    /// When the answer began.
    pub since: Option<Instant>,
}

/// What recovery has made of a request; `None` where nothing helps.
pub type Mended = Option<Box<Work>>;

/// What a request has become; `None` where it goes out as it came.
pub type Seen = Option<Box<Work>>;

/// What goes on.
#[derive(Default)]
pub enum Turn {
    /// No request is out.
    #[default]
    Passing,
    /// A request is looked at before it goes out.
    Looking(Looking),
    /// What comes of the answer is held back.
    Holding(Box<Sent>),
    /// The provider found the prompt too long, or takes no tools, and said so in `refusal`: another body is made.
    Mending {
        remedy: Remedy,
        raw: Vec<Bytes>,
        refusal: Refused,
        /// As [`Sent`] has them.
        reached: Option<Reached>,
        rounds: Option<Box<Rounds>>,
        mending: AbortOnDropHandle<Mended>,
    },
    /// Answers pass.
    Answering(Answering),
    /// An answer passes in which the model may call the proxy's tools.
    Telling(Box<Rounds>),
    /// Between two answers, or behind the last, the proxy's tools run and what was hidden is kept.
    Running(Running),
}

/// A request that is looked at.
pub struct Looking {
    pub raw: Vec<Bytes>,
    /// What the client sent behind it that is no request: it goes out behind it.
    pub behind: Vec<Bytes>,
    /// What is known of the answer that it continues.
    pub reached: Option<Reached>,
    pub work: AbortOnDropHandle<Seen>,
}

/// So many answers pass; a single one is observed.
pub struct Answering {
    pub open: usize,
    pub watch: Option<Box<Watch>>,
    /// How the message begins that passes unread, as it is on the wire.
    pub begun: Vec<u8>,
    /// Something passed unread that may have been the end of an answer.
    pub unread: bool,
}

/// What an event of the answer asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    Hold,
    /// The request was taken: relay all that was held, and what follows.
    Answered,
    /// An error that nothing mends: relay all that was held. The answer is over.
    Failed,
    /// Too long, and recovery may help.
    Mend(Verdict),
    /// A rewritten body was refused: the client's own.
    Original,
    /// The proxy's tools were refused: the same body without them.
    WithoutTools,
    /// The second attempt failed too: the first one's error. `condemned`: what it was made with is to blame.
    FirstError {
        condemned: bool,
    },
}

impl Answering {
    pub fn one(watch: Option<Box<Watch>>) -> Self {
        Self { watch, ..Self::several(1) }
    }

    pub fn several(open: usize) -> Self {
        Self { open, watch: None, begun: Vec::new(), unread: false }
    }
}

impl Sent {
    pub fn new(raw: Vec<Bytes>, work: Box<Work>, attempt: Attempt, refusal: Refused) -> Self {
        let (remedy, reached, rounds, held) = (None, None, None, Vec::new());
        Self { raw, work, attempt, refusal, remedy, reached, rounds, held, held_bytes: 0, since: None }
    }

    /// A request that continues what is known, for an answer that it goes on with.
    pub fn of(mut self, reached: Option<Reached>, rounds: Option<Box<Rounds>>) -> Self {
        (self.reached, self.rounds) = (reached, rounds);
        self
    }

    /// Takes in an event of the answer: its frames, and what it says.
    pub fn on_event(&mut self, raw: Vec<Bytes>, text: &[u8], now: Instant) -> Step {
        self.since.get_or_insert(now);
        self.held_bytes += raw.iter().map(Bytes::len).sum::<usize>();
        self.held.push((raw, Bytes::copy_from_slice(text)));
        match told_of(text) {
            Told::Bookkeeping if self.may_wait() => Step::Hold,
            Told::Bookkeeping | Told::Output => Step::Answered,
            Told::Error(verdict) => self.judge(verdict, text),
        }
    }

    /// Whether an error may follow bookkeeping that another attempt mends. Where nothing said so beforehand only
    /// an error that comes first is mended, and nothing waits.
    fn may_wait(&self) -> bool {
        let expected = self.work.may_overflow || self.attempt != Attempt::First;
        expected && self.held_bytes <= STREAM_BYTES
    }

    fn judge(&self, verdict: Verdict, text: &[u8]) -> Step {
        let (status, sent, overflow) = (overflow::status_told(text), self.work.sent(), self.work.overflow());
        let blames = match () {
            () if self.refuses_tools(text) => Blames::Tools,
            () if refusal::blames_form(text) => Blames::Form,
            () => Blames::Nothing,
        };
        let refusal = Refusal { verdict, status, sent, blames, overflow };
        match next(self.attempt, refusal) {
            Next::Relay => Step::Failed,
            Next::Shorten(verdict) => Step::Mend(verdict),
            Next::Original => Step::Original,
            Next::WithoutTools => Step::WithoutTools,
            Next::FirstRefusal { condemned } => Step::FirstError { condemned },
        }
    }

    /// Whether an error says that the proxy's tools are not taken.
    pub fn refuses_tools(&self, text: &[u8]) -> bool {
        self.work.sent() == Body::Offering && refusal::refuses_tools(overflow::status_told(text), text)
    }

    /// Whether the error without the proxy's tools is no better than the one with them: as over HTTP.
    pub fn first_stands(&self, text: &[u8]) -> bool {
        let of_ours = self.remedy != Some(Remedy::WithoutTools) || self.work.is_alone() || !self.work.is_rewritten();
        let is_long = matches!(told_of(text), Told::Error(verdict) if verdict != Verdict::Other);
        !of_ours && !is_long && !matches!(overflow::status_told(text), Some(429 | 500..))
    }

    /// What was held, in order, with what it says.
    pub fn take_events(&mut self) -> Vec<(Vec<Bytes>, Bytes)> {
        self.held_bytes = 0;
        self.since = None;
        std::mem::take(&mut self.held)
    }
}

/// The message that asks for a response.
const REQUEST: &str = "response.create";
/// The events that end an answer.
const LAST: [&str; 5] = ["response.completed", "response.incomplete", "response.failed", "response.cancelled", "error"];
/// Bytes of a message that passes unread in which its type stands.
pub const HEAD_BYTES: usize = 64;

/// Bytes of a lane's id.
pub const MOST_ID_BYTES: usize = 256;

/// What a message says of itself; no type where it does not read.
#[derive(Debug, Default, Deserialize)]
pub struct Message<'t> {
    #[serde(rename = "type", borrow, default)]
    pub kind: Cow<'t, str>,
    /// The lane that it belongs to, as it is written.
    #[serde(borrow, default)]
    stream_id: Option<&'t RawValue>,
    #[serde(borrow, default)]
    response: Option<Response<'t>>,
    /// The response that a client wants cancelled, as it is written.
    #[serde(borrow, default)]
    response_id: Option<&'t RawValue>,
    /// The response that a request continues.
    #[serde(borrow, default)]
    previous_response_id: Option<Cow<'t, str>>,
}

/// How a message names its lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named<'t> {
    /// Not at all, or as `null`.
    Default,
    Lane(Cow<'t, str>),
    /// By what is no text, or by more than [`MOST_ID_BYTES`] of it.
    Odd,
}

#[derive(Debug, Deserialize)]
struct Response<'t> {
    #[serde(borrow, default)]
    id: Cow<'t, str>,
}

impl<'t> Message<'t> {
    pub fn of(text: &'t [u8]) -> Self {
        serde_json::from_slice(text).unwrap_or_default()
    }

    /// Whether a client asks for a response by it.
    pub fn is_request(&self) -> bool {
        self.kind == REQUEST
    }

    /// Whether the upstream may read as a request what does not read here.
    pub fn may_be_request(&self, text: &[u8]) -> bool {
        self.kind.is_empty() && memchr::memmem::find(text, REQUEST.as_bytes()).is_some()
    }

    /// The id of the response that it is about.
    pub fn id(&self) -> Option<&str> {
        self.response.as_ref().map(|response| &*response.id).filter(|id| !id.is_empty())
    }

    /// The lane that it belongs to.
    pub fn lane(&self) -> Named<'_> {
        let Some(id) = self.stream_id else { return Named::Default };
        match serde_json::from_str::<Cow<'_, str>>(id.get()) {
            Ok(id) if id.len() <= MOST_ID_BYTES => Named::Lane(id),
            _ => Named::Odd,
        }
    }

    /// The id of the response that a request continues.
    pub fn previous(&self) -> Option<&str> {
        self.previous_response_id.as_deref()
    }

    /// Whether a client wants a response cancelled by it.
    pub fn cancels(&self) -> bool {
        self.kind == "response.cancel"
    }

    /// Whether it may be about the response that its client knows by this id: it names that one, or none.
    pub fn may_mean(&self, known: Option<&str>) -> bool {
        let Some(id) = self.response_id else { return true };
        serde_json::from_str::<Cow<'_, str>>(id.get()).is_ok_and(|id| known == Some(&*id))
    }

    /// Whether an event may belong to an answer; one that does not read may.
    pub fn is_of_answer(&self) -> bool {
        self.kind.is_empty() || self.kind.starts_with("response.") || self.is_error()
    }

    pub fn is_error(&self) -> bool {
        self.kind == "error"
    }

    /// Whether it is the last event of an answer.
    pub fn is_last(&self) -> bool {
        LAST.contains(&&*self.kind)
    }
}

/// The frame of a client's wish that a response be cancelled, with the id that the provider has for it now. `None`: it
/// names none.
pub fn cancelling(text: &Bytes, id: Option<&str>) -> Option<Vec<Bytes>> {
    Some(vec![text_frame(&chain::cancelling(text, id?)?, Some(mask()))])
}

/// Whether the first bytes of a message that passes unread, as they are on the wire, name the end of an answer.
pub fn begins_last(head: &[u8]) -> bool {
    LAST.iter().any(|kind| memchr::memmem::find(head, format!("\"type\":\"{kind}\"").as_bytes()).is_some())
}

/// Tells an event that trails behind an `error` from those of the answers after it: OpenAI sends both an `error` and a
/// `response.failed` for one answer.
#[derive(Debug, Default)]
pub struct Trail {
    /// The response that began last.
    begun: Option<String>,
    /// The one that an `error` has ended.
    ended: Option<String>,
    /// Whether the client was told the end of that one in the proxy's words.
    told: bool,
}

impl Trail {
    /// The id of the response that began last.
    pub fn begun(&self) -> Option<&str> {
        self.begun.as_deref()
    }

    /// The client was told the end of the answer that has ended last.
    pub fn tell(&mut self) {
        self.told = true;
    }

    pub fn is_told(&self) -> bool {
        self.told
    }

    /// Takes in an event; whether it ends an answer that was over already.
    pub fn is_behind(&mut self, event: &Message<'_>) -> bool {
        match &*event.kind {
            "response.created" => self.begun = event.id().map(str::to_owned),
            "error" => (self.ended, self.told) = (self.begun.take(), false),
            _ if event.is_last() && self.ended.is_some() && self.ended.as_deref() == event.id() => {
                self.ended = None;
                return true;
            }
            _ => {}
        }
        false
    }
}
