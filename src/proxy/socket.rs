//! Responses over WebSocket: every `response.create` of the client's is a request body like any other, and what
//! the provider says first of its answer is held back like the beginning of a stream. All else passes as it is.
//! A message is the unit: what has come of one waits for the rest of it.

mod answers;
mod side;
mod turn;

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use self::side::{Reading, Side};
use self::turn::{Answering, Message, Sent, Trail, Turn, is_request};
use super::Shard;
use super::budget::Permit;
use super::chains::Beginning;
use super::hold::STREAM_BYTES;
use super::look::Looked;
use super::origin::{Incoming, Tools};
use super::outcome::Record;
use super::second::Attempt;
use super::work::Work;
use crate::wire::Dialect;
use crate::wire::frames::{Piece, close_frame, text_frame};

/// Bytes of a client's message that is read; a longer one passes as it is.
const MESSAGE_BYTES: usize = 16 * 1024 * 1024;
/// Bytes of an upstream's message that is read.
const EVENT_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of messages that wait at most until the one before them was looked at.
const LATER_BYTES: usize = 1024 * 1024;

/// The close code of an end that goes away.
const GOING_AWAY: u16 = 1001;

/// A socket between a client and an upstream.
pub struct Socket {
    shard: Arc<Shard>,
    /// Index of the upstream.
    index: usize,
    /// The handshake's, as a request of its own would have them.
    parts: Arc<Parts>,
    client: Side<TokioIo<Upgraded>>,
    upstream: Side<TokioIo<Upgraded>>,
    turn: Turn,
    trail: Trail,
    /// The account of the request that is out.
    record: Option<Record>,
    /// What the client sent behind a message that is looked at.
    later: VecDeque<Piece>,
    later_bytes: usize,
    leaving: Leaving,
    /// When something last came from either end.
    moved: Instant,
    /// How long nothing may come from either.
    idle: Duration,
}

/// Whether the proxy ends the socket itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaving {
    No,
    /// As soon as nothing is being answered and no message is on its way.
    Due,
    /// Both ends were told.
    Said,
}

/// What has happened.
enum Event {
    Client(io::Result<()>),
    Upstream(io::Result<()>),
    Looked(Option<Box<Work>>),
    Mended(Option<Box<Work>>),
    Deadline,
    /// The process is about to end.
    Ending,
    Idle,
}

impl Socket {
    pub fn new(shard: Arc<Shard>, index: usize, parts: Parts, (client, upstream): (Upgraded, Upgraded)) -> Self {
        let budget = &shard.proxy.budget;
        let limit = MESSAGE_BYTES.min(shard.proxy.config.server.max_body_bytes);
        let idle = shard.proxy.config.upstreams.get(index).map_or(Duration::MAX, |upstream| upstream.idle_timeout);
        Self {
            client: Side::new(TokioIo::new(client), limit, budget),
            upstream: Side::new(TokioIo::new(upstream), EVENT_BYTES, budget),
            index,
            parts: Arc::new(parts),
            turn: Turn::Passing,
            trail: Trail::default(),
            record: None,
            later: VecDeque::new(),
            later_bytes: 0,
            leaving: Leaving::No,
            moved: Instant::now(),
            idle,
            shard,
        }
    }

    /// Relays until both directions have ended or the client's has failed.
    pub async fn relay(mut self) -> io::Result<()> {
        while self.client.open || self.upstream.open || self.client.is_busy() || self.upstream.is_busy() {
            let event = self.next().await;
            if matches!(event, Event::Client(_) | Event::Upstream(_)) {
                self.moved = Instant::now();
            }
            match event {
                Event::Client(moved) => moved?,
                // What came of it before still goes to the client.
                Event::Upstream(Err(error)) => {
                    tracing::debug!(%error, "an upstream's side of a socket broke off");
                    self.upstream.fail();
                }
                Event::Upstream(Ok(())) => {}
                Event::Looked(work) => self.looked(work),
                Event::Mended(work) => self.mended(work),
                Event::Deadline => self.let_pass(),
                Event::Ending => self.leaving = Leaving::Due,
                Event::Idle => {
                    if self.leaving == Leaving::Said || !self.is_between() {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    self.leave();
                }
            }
            self.take_in();
            if self.leaving == Leaving::Due && matches!(self.turn, Turn::Passing) && self.is_between() {
                self.leave();
            }
        }
        Ok(())
    }

    /// Whether neither end is in the midst of a message.
    fn is_between(&self) -> bool {
        self.client.frames.is_between() && self.upstream.frames.is_between()
    }

    /// Tells both ends that the proxy goes away (RFC 6455, 7.4.1). Their answers are waited for, and go nowhere.
    fn leave(&mut self) {
        self.leaving = Leaving::Said;
        self.moved = Instant::now();
        self.client.put(close_frame(GOING_AWAY, None));
        self.upstream.put(close_frame(GOING_AWAY, Some(mask())));
        self.client.end();
        self.upstream.end();
    }

    /// Waits for the next thing to happen.
    async fn next(&mut self) -> Event {
        let deadline = match &self.turn {
            Turn::Holding(sent) => sent.since.map(|since| since + self.shard.proxy.hold_time),
            _ => None,
        };
        let may = |may| if may { Reading::On } else { Reading::Paused };
        let from_client = may(self.upstream.has_room() && self.later_bytes < LATER_BYTES);
        // Behind a refusal little is to come; should it be more, it waits.
        let quiet = match &self.turn {
            Turn::Mending { refusal, .. } => refusal.iter().map(Bytes::len).sum::<usize>() <= STREAM_BYTES,
            _ => true,
        };
        let from_upstream = may(self.client.has_room() && quiet);
        let sleep = tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now));
        let ending = self.shard.ending.clone();
        let idle = self.moved.checked_add(self.idle);
        let silence = tokio::time::sleep_until(idle.unwrap_or_else(Instant::now));
        tokio::select! {
            moved = self.client.advance(from_client) => Event::Client(moved),
            moved = self.upstream.advance(from_upstream) => Event::Upstream(moved),
            () = sleep, if deadline.is_some() => Event::Deadline,
            () = ending.cancelled(), if self.leaving == Leaving::No => Event::Ending,
            () = silence, if idle.is_some() => Event::Idle,
            event = finished(&mut self.turn) => event,
        }
    }

    /// Sends on what has come.
    fn take_in(&mut self) {
        let told = self.leaving == Leaving::Said;
        while let Some(piece) = self.client.frames.next_piece() {
            match told {
                true => self.client.open &= !matches!(piece, Piece::Close(_)),
                false => self.client_sent(piece),
            }
        }
        while let Some(piece) = self.upstream.frames.next_piece() {
            match told {
                true => self.upstream.open &= !matches!(piece, Piece::Close(_)),
                false => self.upstream_sent(piece),
            }
        }
        if !self.client.open {
            self.client_left();
        }
        if !self.upstream.open {
            self.break_off();
            self.client.end();
        }
    }

    fn client_sent(&mut self, piece: Piece) {
        match (piece, &self.turn) {
            (Piece::Control(frame), _) => self.upstream.put(frame),
            (piece, Turn::Looking { .. }) => {
                self.later_bytes += piece.bytes();
                self.later.push_back(piece);
            }
            (Piece::Text { raw, text }, Turn::Passing) if is_request(&text) => self.look(raw, text.into()),
            (Piece::Text { raw, text }, _) => {
                if is_request(&text) {
                    self.overlap();
                }
                self.send_upstream(raw);
            }
            (Piece::Opaque(bytes), _) => {
                // It may be a request that is too long to be read.
                self.let_pass();
                self.upstream.put(bytes);
            }
            (Piece::Close(bytes), _) => self.upstream.put(bytes),
        }
    }

    fn send_upstream(&mut self, frames: Vec<Bytes>) {
        frames.into_iter().for_each(|frame| self.upstream.put(frame));
    }

    fn send_client(&mut self, frames: Vec<Bytes>) {
        frames.into_iter().for_each(|frame| self.client.put(frame));
    }

    /// Nobody is left to answer: what is looked at goes out as it is, and what is made is given up.
    fn client_left(&mut self) {
        match std::mem::replace(&mut self.turn, Turn::Passing) {
            Turn::Looking { raw, .. } => self.send_upstream(raw),
            Turn::Mending { refusal, .. } => self.send_client(refusal),
            turn => self.turn = turn,
        }
        self.send_later();
        self.upstream.end();
    }

    /// A second request before the first one is answered: which of them an event belongs to, nobody could tell.
    fn overlap(&mut self) {
        self.let_pass();
        let (open, unread) = match &self.turn {
            Turn::Answering(answering) => (answering.open + 1, answering.unread),
            _ => (1, false),
        };
        self.turn = Turn::Answering(Answering { open, watch: None, begun: Vec::new(), unread });
    }

    /// Begins to look at a request.
    fn look(&mut self, raw: Vec<Bytes>, body: Bytes) {
        let mut permit = Permit::empty(&self.shard.proxy.budget);
        if !permit.grow(body.len()) {
            self.turn = Turn::Answering(Answering::one(None));
            return self.send_upstream(raw);
        }
        let mut record = Record::open(Arc::clone(&self.shard));
        record.asked(Some(Dialect::Responses), self.index);
        self.record = Some(record);
        let (shard, index, parts) = (Arc::clone(&self.shard), self.index, Arc::clone(&self.parts));
        let permit = vec![Arc::new(permit)];
        let looking = tokio::spawn(async move {
            let compactor = shard.proxy.compactor.as_ref()?;
            let (dialect, chains) = (Dialect::Responses, Beginning::Any);
            let incoming = Incoming {
                shard: &shard,
                index,
                parts: &parts,
                dialect,
                chains,
                body,
                permit,
                overlaid: false,
                tools: Tools::Without,
            };
            match compactor.look(incoming).await {
                Looked::Read(work) => Some(work),
                Looked::Unread(_) | Looked::Continued(..) => None,
            }
        });
        self.turn = Turn::Looking { raw, looking: AbortOnDropHandle::new(looking) };
    }

    /// Sends what the look has led to, and what waited behind it.
    fn looked(&mut self, work: Option<Box<Work>>) {
        let Turn::Looking { raw, .. } = std::mem::replace(&mut self.turn, Turn::Passing) else { return };
        match work {
            Some(work) => self.send(Sent::new(raw, work, Attempt::First, Vec::new())),
            None => {
                self.send_upstream(raw);
                self.turn = Turn::Answering(Answering::one(None));
            }
        }
        self.send_later();
    }

    fn send_later(&mut self) {
        self.later_bytes = 0;
        for piece in std::mem::take(&mut self.later) {
            self.client_sent(piece);
        }
    }

    /// Sends the body that a request has now, and holds its answer back.
    fn send(&mut self, sent: Sent) {
        match &sent.work.pieces {
            Some(pieces) => self.upstream.put(text_frame(pieces, Some(mask()))),
            None => self.send_upstream(sent.raw.clone()),
        }
        self.turn = Turn::Holding(Box::new(sent));
    }

    fn upstream_sent(&mut self, piece: Piece) {
        let event = match &piece {
            Piece::Text { text, .. } => Message::of(text),
            _ => Message::default(),
        };
        let (behind, last) = (self.trail.is_behind(&event), event.is_last());
        match (piece, &mut self.turn) {
            (Piece::Control(bytes), _) => self.client.put(bytes),
            (Piece::Close(bytes), _) => {
                self.break_off();
                self.client.put(bytes);
            }
            (Piece::Opaque(bytes), _) => {
                self.let_pass();
                self.passed_unread(&bytes);
                self.client.put(bytes);
            }
            // The client is to see it with the error before it, or not at all.
            (Piece::Text { raw, .. }, Turn::Holding(sent)) if behind && sent.attempt != Attempt::First => {
                sent.refusal.extend(raw);
            }
            (Piece::Text { raw, .. }, Turn::Passing | Turn::Looking { .. } | Turn::Holding(_) | Turn::Answering(_))
                if behind =>
            {
                self.send_client(raw);
            }
            (Piece::Text { raw, text }, Turn::Holding(sent)) => {
                let step = sent.on_event(raw, &text, Instant::now());
                self.take(step, (&text, last));
            }
            // What follows the refusal belongs to it.
            (Piece::Text { raw, .. }, Turn::Mending { refusal, .. }) => refusal.extend(raw),
            (Piece::Text { raw, text }, _) => {
                self.send_client(raw);
                self.observe((&text, last));
            }
        }
    }
}

/// Waits for the look or the mending that is under way.
async fn finished(turn: &mut Turn) -> Event {
    match turn {
        Turn::Looking { looking, .. } => Event::Looked(looking.await.ok().flatten()),
        Turn::Mending { mending, .. } => Event::Mended(mending.await.ok().flatten()),
        Turn::Passing | Turn::Holding(_) | Turn::Answering(_) => std::future::pending().await,
    }
}

/// A client's mask: any number that is not foreseen.
fn mask() -> [u8; 4] {
    let [a, b, c, d, ..] = RandomState::new().build_hasher().finish().to_le_bytes();
    [a, b, c, d]
}
