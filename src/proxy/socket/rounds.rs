//! Rounds on a socket: where the model calls the proxy's own tools, they are run, and the same turn goes on with
//! another request on its lane, which continues the answer before by its id.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use tokio_util::task::AbortOnDropHandle;

use super::super::Shard;
use super::super::aliases::Reached;
use super::super::budget::Permit;
use super::super::chains::Beginning;
use super::super::look::Looked;
use super::super::observe::{Ending, Watch};
use super::super::offered::Offered;
use super::super::origin::{Incoming, Tools};
use super::super::rounds::{Draft, told};
use super::super::spliced::Tally;
use super::super::work::Work;
use super::ends::{Ends, mask};
use super::turn::{Message, Refused, Turn};
use crate::wire::Dialect;
use crate::wire::frames::text_frame;
use crate::wire::rounds::{Answer, Form, Reach, Round};
use crate::wire::splice::splice;
use crate::wire::usage;

/// What its client is told where a request cannot be sent again.
const LOST: &[u8] = br#"{"error":{"code":"server_error","message":"compactproxy: the answer could not be continued"}}"#;

/// An answer in which the model may call the proxy's tools.
pub struct Rounds {
    pub draft: Draft,
    asker: Asker,
    /// The client's request: its frames, while it may be sent once more, its text, and the shares of the buffer cap that it has.
    raw: Vec<Bytes>,
    body: Bytes,
    permit: Vec<Arc<Permit>>,
    /// What is known of the answer that it continues.
    reached: Option<Reached>,
    /// The share of the buffer cap that is held of the answers.
    share: Permit,
    /// The id by which its client knows the answer.
    known: Option<String>,
    /// Something beyond the answer's opening has gone out.
    pub shown: bool,
    /// Sees the current call's answer.
    watch: Option<Box<Watch>>,
    pub tally: Tally,
    /// No further round follows: something stands behind this answer already, or the client cancels it.
    pub closed: bool,
    /// Requests that were sent behind this one.
    pub behind: usize,
    /// The client's wish that this be cancelled, until it is known what that is called.
    pub cancel: Option<(Vec<Bytes>, Bytes)>,
    /// The client's request cannot be sent again.
    lost: bool,
}

/// Who asks, and whom.
#[derive(Clone)]
pub struct Asker {
    pub shard: Arc<Shard>,
    pub index: usize,
    pub parts: Arc<Parts>,
}

/// What is done between two answers, or behind the last.
pub enum Task {
    /// The calls are run, and another request made.
    Again(Round),
    /// The calls are run: the rest is the client's turn.
    Handed(Round),
    /// The calls are not run: the turn ends.
    Refused(Round),
    /// The turn ends.
    Keep,
    /// The client's own request once more, without tools.
    Anew,
}

/// Something that is done.
pub struct Running {
    /// No further request is to go out.
    pub stopped: bool,
    pub behind: usize,
    /// As [`Rounds`] has it.
    pub known: Option<String>,
    /// What came meanwhile: frames, and what they say.
    pub kept: Vec<(Vec<Bytes>, Bytes)>,
    pub kept_bytes: usize,
    pub task: AbortOnDropHandle<Ran>,
}

/// What has come of it.
pub struct Ran {
    pub rounds: Box<Rounds>,
    /// The next request: its frames, where it is sent as it is, and what was made of it. `None`: the answer is at its end.
    pub next: Option<(Vec<Bytes>, Box<Work>)>,
}

impl Asker {
    /// Looks at a request of the socket's.
    pub async fn look(
        &self,
        (body, permit): (Bytes, Vec<Arc<Permit>>),
        (tools, reached): (Tools, Option<Reached>),
    ) -> Option<Box<Work>> {
        let compactor = self.shard.proxy.compactor.as_ref()?;
        let (dialect, chains) = (Dialect::Responses, Beginning::Any);
        let (shard, index, parts) = (&self.shard, self.index, &*self.parts);
        let overlaid = false;
        let incoming =
            Incoming { shard, index, parts, dialect, chains, body, permit, overlaid, tools, reached: reached.as_ref() };
        match compactor.look(incoming).await {
            Looked::Read(work) => Some(work),
            Looked::Unread(_) | Looked::Continued(..) => None,
        }
    }
}

impl Rounds {
    /// `None`: the model cannot call the proxy's tools in the answer to this request.
    pub fn of(
        asker: Asker,
        (work, raw): (&Work, &[Bytes]),
        reached: Option<Reached>,
        watch: Option<Box<Watch>>,
    ) -> Result<Box<Self>, Option<Box<Watch>>> {
        let (Some(draft), Some(overlaid)) = (Draft::of(&asker.shard, work, Form::Stream), work.overlaid.as_ref())
        else {
            return Err(watch);
        };
        Ok(Box::new(Self {
            share: Permit::empty(&asker.shard.proxy.budget),
            draft,
            asker,
            raw: raw.to_vec(),
            body: overlaid.client.clone(),
            permit: overlaid.permit.clone(),
            reached,
            known: None,
            shown: false,
            watch,
            tally: Tally::default(),
            closed: false,
            behind: 0,
            cancel: None,
            lost: false,
        }))
    }

    /// The provider took another request: its answer follows.
    pub fn goes_on(&mut self, work: &Work, watch: Option<Box<Watch>>) {
        self.watch = watch;
        self.draft.show(told(work));
        if !self.draft.forgotten {
            self.draft.answer.next_round();
        }
    }

    /// Takes in an event of an answer, and gives the frames that the client is to see of it.
    pub fn tell(&mut self, raw: Vec<Bytes>, (text, message): (&[u8], &Message<'_>)) -> Vec<Bytes> {
        let event = event(text);
        if let Some(watch) = &mut self.watch {
            watch.see(&event);
        }
        let pieces = self.draft.answer.push(&event);
        if !self.share.resize(self.draft.answer.held()) {
            self.draft.answer.hold_no_more();
            self.share.insist(self.draft.answer.held());
        }
        self.shown = self.shown || pieces.iter().any(|piece| !Dialect::Responses.opens(piece));
        if self.shown {
            self.raw = Vec::new();
        }
        if self.known.is_none() {
            self.known = message.id().map(str::to_owned);
        }
        match &*pieces {
            [only] if *only == event => raw,
            _ => frames(&pieces),
        }
    }

    /// The current call's answer has ended with this event.
    pub fn call_ended(&mut self, text: &[u8]) {
        self.tally.round(usage::from_stream_tail(&event(text), usage::Shown::All).usage);
        if let Some(watch) = self.watch.take() {
            watch.end(Ending::Complete);
        }
    }

    /// Whether the calls of the current round can be answered in another one.
    pub fn may_go_on(&self) -> bool {
        !self.closed && !self.draft.is_at_limit()
    }

    /// What the client is to see of the end.
    pub fn finish(&mut self) -> Vec<Bytes> {
        let pieces = if self.lost { self.draft.answer.fail(LOST) } else { self.draft.answer.finish() };
        frames(&pieces)
    }

    /// What the client is to see of a refusal with which the answer ends: not the id of a response that it has never seen.
    pub fn refused(&mut self, refusal: Refused) -> Vec<Bytes> {
        let of_another = Message::of(&refusal.text).id().is_some_and(|id| self.known.as_deref() != Some(id));
        match of_another && self.known.is_some() {
            true => frames(&self.draft.answer.fail(&refusal.text)),
            false => refusal.frames,
        }
    }

    /// What is sure to belong to an answer that has broken off.
    pub fn break_off(&mut self) -> Vec<Bytes> {
        frames(&self.draft.answer.break_off())
    }

    /// By which id the client knows the answer, and what is known of it.
    pub fn reached(&self) -> Option<(String, Reached)> {
        let offered = Arc::clone(&self.draft.offered);
        match self.draft.alias(Reach::Connection) {
            Some((shown, alias)) => Some((shown, Reached { alias: Some(alias), offered })),
            None => Some((self.draft.answer.id(Reach::Connection)?, Reached { alias: None, offered })),
        }
    }

    /// Does what is to be done.
    pub fn run(self: Box<Self>, task: Task) -> Running {
        let (behind, stopped, known) = (self.behind, self.closed, self.known.clone());
        let task = AbortOnDropHandle::new(tokio::spawn(self.ran(task)));
        Running { stopped, behind, known, kept: Vec::new(), kept_bytes: 0, task }
    }

    async fn ran(mut self: Box<Self>, task: Task) -> Ran {
        match task {
            Task::Keep => {}
            Task::Refused(round) => self.draft.refuse(&round, "limit"),
            Task::Handed(round) => {
                self.draft.run(&round).await;
                self.draft.count("handed");
            }
            Task::Again(round) => {
                let said = self.draft.run(&round).await;
                self.draft.keep_offer().await;
                if let Some(next) = self.next(&said).await {
                    self.draft.count("again");
                    return Ran { rounds: self, next: Some(next) };
                }
                self.draft.take_back(&round);
            }
            Task::Anew => {
                self.draft.forget();
                let (asked, reached) = ((self.body.clone(), self.permit.clone()), self.reached.clone());
                if let Some(work) = self.asker.look(asked, (Tools::Without, reached)).await {
                    return Ran { next: Some((self.raw.clone(), work)), rounds: self };
                }
                self.lost = true;
            }
        }
        self.draft.keep().await;
        Ran { rounds: self, next: None }
    }

    /// The request that goes on with what was `said` to the calls of the current round. `None`: there is no room for it.
    async fn next(&mut self, said: &[u8]) -> Option<(Vec<Bytes>, Box<Work>)> {
        let compactor = self.asker.shard.proxy.compactor.as_ref()?;
        let id = self.draft.answer.id(Reach::Connection)?;
        let mut permit = Permit::empty(&self.asker.shard.proxy.budget);
        if !permit.grow(self.body.len() + said.len()) {
            return None;
        }
        let conversation = compactor.read(Dialect::Responses, &self.body, self.draft.owner.0).await?;
        let body: Bytes = splice(&self.body, conversation.behind(&id, said)?).ok()?.concat().into();
        drop(conversation);
        self.draft.calls += 1;
        let raw = vec![text_frame(std::slice::from_ref(&body), Some(mask()))];
        let reached = Reached { alias: None, offered: Arc::clone(&self.draft.offered) };
        let work = self.asker.look((body, vec![Arc::new(permit)]), (self.draft.tools(), Some(reached))).await?;
        Some((raw, work))
    }
}

impl Turn {
    /// Whether a client's wish to cancel is about the answer of several rounds that is out, if there is one.
    pub fn is_meant(&self, cancel: &Message<'_>) -> bool {
        let known = match self {
            Self::Telling(rounds) | Self::Mending { rounds: Some(rounds), .. } => &rounds.known,
            Self::Running(running) => &running.known,
            Self::Holding(sent) => match &sent.rounds {
                Some(rounds) => &rounds.known,
                None => return true,
            },
            _ => return true,
        };
        cancel.may_mean(known.as_deref())
    }
}

impl Ends {
    pub fn asker(&self) -> Asker {
        Asker { shard: Arc::clone(&self.shard), index: self.index, parts: Arc::clone(&self.parts) }
    }
}

/// A message as an event of a stream. Line breaks in it are white space.
fn event(text: &[u8]) -> Bytes {
    let mut event = [b"data: ", text, b"\n\n"].concat();
    let end = event.len() - 2;
    for byte in event.iter_mut().take(end).filter(|byte| matches!(byte, b'\n' | b'\r')) {
        *byte = b' ';
    }
    event.into()
}

/// An event of an answer that is not told, its frames and what it says, without the proxy's tools.
pub fn without_tools(offered: &Offered, raw: Vec<Bytes>, text: &[u8]) -> Vec<Bytes> {
    let event = event(text);
    let pieces = Answer::new(Dialect::Responses, Form::Stream, offered.names()).push(&event);
    match &*pieces {
        [only] if *only == event => raw,
        _ => frames(&pieces),
    }
}

/// Events of a stream as messages.
fn frames(events: &[Bytes]) -> Vec<Bytes> {
    let data = |event: &Bytes| {
        let line = event.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"data: "))?;
        Some(event.slice_ref(line))
    };
    events.iter().filter_map(data).map(|data| text_frame(&[data], None)).collect()
}
