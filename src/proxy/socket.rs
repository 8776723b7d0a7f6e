//! Responses over WebSocket: every `response.create` of the client's is a request body like any other, and what
//! the provider says first of its answer is held back like the beginning of a stream. All else passes as it is.
//! Each lane has its own turn. A message is the unit: what has come of one waits for the rest of it.

mod answers;
mod ends;
mod lane;
mod looking;
mod rounds;
mod side;
mod telling;
mod turn;

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use self::ends::{Answers, Ends, mask};
use self::lane::{Lane, Lanes, Owner};
use self::looking::Looking;
use self::rounds::Ran;
use self::side::{Reading, Side};
use self::turn::{Mended, Message, Turn};
use super::Shard;
use super::work::Work;
use crate::wire::frames::{Piece, close_frame};
use crate::wire::rounds::MOST_WHOLE;

/// Bytes of a client's message that is read; a longer one passes as it is.
const MESSAGE_BYTES: usize = 16 * 1024 * 1024;
/// Bytes of an upstream's message that is read.
const EVENT_BYTES: usize = MOST_WHOLE;
/// Bytes of messages that wait at most until the one before them was looked at.
const LATER_BYTES: usize = 1024 * 1024;

/// The close code of an end that goes away.
const GOING_AWAY: u16 = 1001;
/// The close code of an end that got a message too long to be read.
const TOO_BIG: u16 = 1009;

/// A socket between a client and an upstream.
pub struct Socket {
    ends: Ends,
    lanes: Lanes,
    /// The client's message that is looked at.
    looking: Option<Looking>,
    /// What the client sent behind it.
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
    /// What was made for the lane at this place.
    Mended(usize, Mended),
    /// What was done for an answer of the lane at this place; `None`: it was lost.
    Ran(usize, Option<Ran>),
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
            ends: Ends {
                client: Side::new(TokioIo::new(client), limit, budget),
                upstream: Side::new(TokioIo::new(upstream), EVENT_BYTES, budget),
                index,
                parts: Arc::new(parts),
                shard,
                reached: Answers::default(),
                names_lanes: false,
                stuck: false,
            },
            lanes: Lanes::default(),
            looking: None,
            later: VecDeque::new(),
            later_bytes: 0,
            leaving: Leaving::No,
            moved: Instant::now(),
            idle,
        }
    }

    /// Relays until both directions have ended or the client's has failed.
    pub async fn relay(mut self) -> io::Result<()> {
        while self.ends.are_in_use() {
            let event = self.next().await;
            if matches!(event, Event::Client(_) | Event::Upstream(_)) {
                self.moved = Instant::now();
            }
            match event {
                Event::Client(moved) => moved?,
                // What came of it before still goes to the client.
                Event::Upstream(Err(error)) => {
                    tracing::debug!(%error, "an upstream's side of a socket broke off");
                    self.ends.upstream.fail();
                }
                Event::Upstream(Ok(())) => {}
                Event::Looked(work) => self.looked(work),
                Event::Mended(at, mended) => {
                    if let Some(lane) = self.lanes.get_mut(at) {
                        lane.mended(&mut self.ends, mended);
                    }
                }
                Event::Ran(at, Some(ran)) => {
                    if let Some(lane) = self.lanes.get_mut(at) {
                        lane.ran(&mut self.ends, ran);
                    }
                }
                Event::Ran(_, None) => self.ends.stuck = true,
                Event::Deadline => self.waited_enough(),
                Event::Ending => self.leaving = Leaving::Due,
                Event::Idle => {
                    if self.leaving == Leaving::Said || !self.ends.are_between() {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    self.leave(GOING_AWAY);
                }
            }
            self.take_in();
            if self.ends.stuck && self.leaving != Leaving::Said {
                self.leave(TOO_BIG);
            }
            if self.leaving == Leaving::Due && self.is_at_rest() && self.ends.are_between() {
                self.leave(GOING_AWAY);
            }
        }
        Ok(())
    }

    /// Whether no request is on its way.
    fn is_at_rest(&self) -> bool {
        self.looking.is_none() && self.lanes.are_all_idle()
    }

    /// What was held back for as long as may be passes.
    fn waited_enough(&mut self) {
        let (now, hold_time) = (Instant::now(), self.ends.shard.proxy.hold_time);
        for lane in self.lanes.iter_mut() {
            if lane.since().is_some_and(|since| since + hold_time <= now) {
                lane.let_pass(&mut self.ends);
            }
        }
    }

    /// Tells both ends that the proxy goes away, and why (RFC 6455, 7.4.1). Their answers are waited for, and go nowhere.
    fn leave(&mut self, why: u16) {
        self.leaving = Leaving::Said;
        self.moved = Instant::now();
        self.ends.client.put(close_frame(why, None));
        self.ends.upstream.put(close_frame(why, Some(mask())));
        self.ends.client.end();
        self.ends.upstream.end();
    }

    /// Waits for the next thing to happen.
    async fn next(&mut self) -> Event {
        let shard = &self.ends.shard;
        let since = self.lanes.iter().filter_map(Lane::since).min();
        let deadline = since.map(|since| since + shard.proxy.hold_time);
        let ending = shard.ending.clone();
        let may = |may| if may { Reading::On } else { Reading::Paused };
        let from_client = may(self.ends.upstream.has_room() && self.later_bytes < LATER_BYTES);
        // Behind a refusal little is to come; should it be more, it waits.
        let from_upstream = may(self.ends.client.has_room() && self.lanes.are_all_quiet());
        let sleep = tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now));
        let idle = self.moved.checked_add(self.idle);
        let silence = tokio::time::sleep_until(idle.unwrap_or_else(Instant::now));
        tokio::select! {
            moved = self.ends.client.advance(from_client) => Event::Client(moved),
            moved = self.ends.upstream.advance(from_upstream) => Event::Upstream(moved),
            () = sleep, if deadline.is_some() => Event::Deadline,
            () = ending.cancelled(), if self.leaving == Leaving::No => Event::Ending,
            () = silence, if idle.is_some() => Event::Idle,
            event = finished(&mut self.looking, &mut self.lanes) => event,
        }
    }

    /// Sends on what has come.
    fn take_in(&mut self) {
        let told = self.leaving == Leaving::Said;
        self.send_later();
        while let Some(piece) = self.ends.client.frames.next_piece() {
            match told {
                true => self.ends.client.open &= !matches!(piece, Piece::Close(_)),
                false => self.client_sent(piece),
            }
        }
        while let Some(piece) = self.ends.upstream.frames.next_piece() {
            match told {
                true => self.ends.upstream.open &= !matches!(piece, Piece::Close(_)),
                false => self.upstream_sent(piece),
            }
        }
        self.send_waiting();
        if !self.ends.client.open {
            self.client_left();
        }
        if !self.ends.upstream.open {
            self.break_off();
            self.ends.client.end();
        }
    }

    fn client_sent(&mut self, piece: Piece) {
        match piece {
            Piece::Control(frame) => self.ends.upstream.put(frame),
            piece if self.looking.is_some() => {
                self.later_bytes += piece.bytes();
                self.later.push_back(piece);
            }
            Piece::Text { raw, text } => {
                let message = Message::of(&text);
                match message.is_request().then(|| self.lanes.place(message.lane())).flatten() {
                    Some(at) if self.lanes.is_idle(at) => self.look(at, raw, text.into()),
                    Some(at) => {
                        if let Some(lane) = self.lanes.get_mut(at) {
                            lane.wait(&mut self.ends, raw, text.into());
                        }
                    }
                    None if message.cancels() => self.cancelled(message.lane(), raw, &text),
                    None => self.ends.send_upstream(raw),
                }
            }
            Piece::Opaque(bytes) => {
                // It may be a request that is too long to be read.
                self.lanes.let_pass(&mut self.ends);
                self.ends.upstream.put(bytes);
            }
            Piece::Close(bytes) => self.ends.upstream.put(bytes),
        }
    }

    /// The client wants an answer cancelled.
    fn cancelled(&mut self, lane: Option<&str>, raw: Vec<Bytes>, text: &[u8]) {
        match self.lanes.owner(lane) {
            Owner::Lane(at) => {
                if let Some(lane) = self.lanes.get_mut(at) {
                    lane.cancel(&mut self.ends, raw, Bytes::copy_from_slice(text));
                }
            }
            Owner::Nobody | Owner::Unknown => self.ends.send_upstream(raw),
        }
    }

    /// Nobody is left to answer: what is looked at or waits goes out as it is, and what is made is given up.
    fn client_left(&mut self) {
        if let Some(Looking { raw, .. }) = self.looking.take() {
            self.ends.send_upstream(raw);
        }
        for lane in self.lanes.iter_mut() {
            lane.give_up_mending(&mut self.ends);
            lane.go_no_further();
            lane.overlap(&mut self.ends);
        }
        while let Some(piece) = self.later.pop_front() {
            self.ends.pass(piece);
        }
        self.later_bytes = 0;
        self.ends.upstream.end();
    }

    /// The upstream says no more.
    fn break_off(&mut self) {
        for lane in self.lanes.iter_mut() {
            lane.break_off(&mut self.ends);
        }
    }

    /// Sends what came behind a message that was looked at, up to the next one that is.
    fn send_later(&mut self) {
        while self.looking.is_none()
            && let Some(piece) = self.later.pop_front()
        {
            self.later_bytes -= piece.bytes();
            self.client_sent(piece);
        }
    }

    /// Looks at the next request whose lane has become free.
    fn send_waiting(&mut self) {
        while self.looking.is_none()
            && let Some((at, raw, body)) = self.lanes.next()
        {
            self.look(at, raw, body);
        }
    }

    fn upstream_sent(&mut self, piece: Piece) {
        match piece {
            Piece::Control(bytes) => self.ends.client.put(bytes),
            Piece::Close(bytes) => {
                self.break_off();
                self.ends.client.put(bytes);
            }
            Piece::Opaque(bytes) => {
                self.lanes.passed_unread(&mut self.ends, &bytes);
                if !self.ends.stuck {
                    self.ends.client.put(bytes);
                }
            }
            Piece::Text { raw, text } => {
                let event = Message::of(&text);
                self.ends.names_lanes |= event.lane().is_some();
                let owner = self.lanes.owner(event.lane());
                match owner {
                    Owner::Lane(at) => {
                        if let Some(lane) = self.lanes.get_mut(at) {
                            lane.on_event(&mut self.ends, raw, (&text, &event));
                        }
                    }
                    Owner::Nobody => self.ends.send_client(raw),
                    Owner::Unknown => {
                        self.lanes.iter_mut().for_each(|lane| lane.lost(&mut self.ends));
                        self.ends.send_client(raw);
                    }
                }
            }
        }
    }
}

/// Waits for what is under way: the look, a mending, something that is done for an answer.
async fn finished(looking: &mut Option<Looking>, lanes: &mut Lanes) -> Event {
    std::future::poll_fn(|cx| {
        if let Some(looking) = looking
            && let Poll::Ready(work) = Pin::new(&mut looking.work).poll(cx)
        {
            return Poll::Ready(Event::Looked(work.ok().flatten()));
        }
        for (at, lane) in lanes.iter_mut().enumerate() {
            match &mut lane.turn {
                Turn::Mending { mending, .. } => {
                    if let Poll::Ready(mended) = Pin::new(mending).poll(cx) {
                        return Poll::Ready(Event::Mended(at, mended.ok().flatten()));
                    }
                }
                Turn::Running(running) => {
                    if let Poll::Ready(ran) = Pin::new(&mut running.task).poll(cx) {
                        return Poll::Ready(Event::Ran(at, ran.ok()));
                    }
                }
                _ => {}
            }
        }
        Poll::Pending
    })
    .await
}
