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
use self::rounds::Ran;
use self::side::{Reading, Side};
use self::turn::{Looking, Mended, Message, Named, Seen, Turn};
use super::Shard;
use crate::wire::frames::{Piece, close_frame};
use crate::wire::rounds::MOST_WHOLE;

/// Bytes of a client's message that is read; a longer one passes as it is.
const MESSAGE_BYTES: usize = 16 * 1024 * 1024;
/// Bytes of an upstream's message that is read.
const EVENT_BYTES: usize = MOST_WHOLE;
/// Bytes that wait at most until all that is looked at is out.
const LATER_BYTES: usize = 1024 * 1024;

/// The close code of an end that goes away.
const GOING_AWAY: u16 = 1001;
/// The close code of an end that got a message too long to be read.
const TOO_BIG: u16 = 1009;

/// A socket between a client and an upstream.
pub struct Socket {
    ends: Ends,
    lanes: Lanes,
    /// What the client sent that may be anything, and what it sent behind that: it waits for all that is looked at.
    later: VecDeque<Piece>,
    later_bytes: usize,
    leaving: Leaving,
    /// The upstream's close, until the answers that have come are told.
    close: Option<Bytes>,
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
    /// What has become of the request of the lane at this place.
    Looked(usize, Seen),
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
                reached: Answers::new(budget),
                shard,
                stuck: false,
            },
            lanes: Lanes::default(),
            later: VecDeque::new(),
            later_bytes: 0,
            leaving: Leaving::No,
            close: None,
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
                Event::Looked(at, work) => {
                    if let Some(lane) = self.lanes.get_mut(at) {
                        lane.looked(&mut self.ends, work);
                    }
                }
                Event::Mended(at, mended) => {
                    if let Some(lane) = self.lanes.get_mut(at) {
                        lane.mended(&mut self.ends, mended);
                    }
                }
                Event::Ran(at, ran) => self.ran(at, ran),
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
        self.later.is_empty() && self.lanes.are_all_idle()
    }

    /// What was to be done for an answer of the lane at this place is done; `None`: it was lost, and what was held with it.
    fn ran(&mut self, at: usize, ran: Option<Ran>) {
        let known = self.lanes.are_told_apart();
        let Some(lane) = self.lanes.get_mut(at) else { return };
        let Some(ran) = ran else {
            (lane.turn, self.ends.stuck) = (Turn::Passing, true);
            return;
        };
        // A further answer has to be told from those of the other lanes.
        if !known {
            lane.go_no_further();
        }
        lane.ran(&mut self.ends, ran);
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
        (self.leaving, self.close) = (Leaving::Said, None);
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
        let from_upstream = may(self.ends.client.has_room());
        let sleep = tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now));
        let idle = self.moved.checked_add(self.idle);
        let silence = tokio::time::sleep_until(idle.unwrap_or_else(Instant::now));
        tokio::select! {
            moved = self.ends.client.advance(from_client) => Event::Client(moved),
            moved = self.ends.upstream.advance(from_upstream) => Event::Upstream(moved),
            () = sleep, if deadline.is_some() => Event::Deadline,
            () = ending.cancelled(), if self.leaving == Leaving::No => Event::Ending,
            () = silence, if idle.is_some() => Event::Idle,
            event = finished(&mut self.lanes) => event,
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
        }
        if !self.lanes.are_running() {
            self.close.take().into_iter().for_each(|close| self.ends.client.put(close));
            if !self.ends.upstream.open {
                self.ends.client.end();
            }
        }
    }

    fn client_sent(&mut self, piece: Piece) {
        if let Piece::Control(frame) = piece {
            return self.ends.upstream.put(frame);
        }
        self.later_bytes += piece.bytes();
        self.later.push_back(piece);
        self.send_later();
    }

    /// Sends what the client sent, up to what has to wait.
    fn send_later(&mut self) {
        while let Some(piece) = self.later.pop_front() {
            if !matches!(piece, Piece::Text { .. }) && self.lanes.are_looking() {
                return self.later.push_front(piece);
            }
            self.later_bytes -= piece.bytes();
            self.send_on(piece);
        }
    }

    fn send_on(&mut self, piece: Piece) {
        let Piece::Text { raw, text } = piece else {
            // It may be a request that is too long to be read.
            if matches!(piece, Piece::Opaque(_)) {
                self.lanes.let_pass(&mut self.ends);
            }
            return self.ends.pass(piece);
        };
        let message = Message::of(&text);
        if message.cancels()
            && let Owner::Lane(at) = self.lanes.meant(&message.lane())
            && let Some(lane) = self.lanes.get_mut(at)
        {
            return lane.cancel(&mut self.ends, raw, Bytes::copy_from_slice(&text));
        }
        let asks = message.is_request();
        let at = match message.lane() {
            Named::Odd => None,
            named => {
                let id = if let Named::Lane(id) = &named { Some(&**id) } else { None };
                if asks { self.lanes.place(id) } else { self.lanes.position(id) }
            }
        };
        if at.is_none() && asks || message.may_be_request(&text) {
            self.lanes.strayed();
        }
        let lane = at.and_then(|at| Some((at, self.lanes.get_mut(at)?)));
        match lane {
            Some((at, lane)) if asks && lane.is_idle() => self.look(at, raw, text.into()),
            Some((_, lane)) if asks => lane.wait(&mut self.ends, raw, text.into()),
            Some((_, lane)) => lane.pass(&mut self.ends, raw),
            None => self.ends.send_upstream(raw),
        }
    }

    /// Nobody is left to answer: what is looked at or waits goes out as it is, and what is made is given up.
    fn client_left(&mut self) {
        for lane in self.lanes.iter_mut() {
            lane.give_up_making(&mut self.ends);
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

    /// Looks at the next requests of the lanes that have become free.
    fn send_waiting(&mut self) {
        while let Some((at, raw, body)) = self.lanes.next() {
            self.look(at, raw, body);
        }
    }

    fn upstream_sent(&mut self, piece: Piece) {
        match piece {
            Piece::Control(bytes) => self.ends.client.put(bytes),
            Piece::Close(bytes) => {
                self.break_off();
                self.close = Some(bytes);
            }
            Piece::Opaque(bytes) => {
                self.lanes.passed_unread(&mut self.ends, &bytes);
                if !self.ends.stuck {
                    self.ends.client.put(bytes);
                }
            }
            Piece::Text { raw, text } => {
                let event = Message::of(&text);
                let owner = self.lanes.owner(&event.lane());
                match owner {
                    Owner::Lane(at) => {
                        if let Some(lane) = self.lanes.get_mut(at) {
                            lane.on_event(&mut self.ends, raw, (&text, &event));
                        }
                    }
                    Owner::Unknown if event.is_of_answer() => {
                        self.lanes.lost(&mut self.ends);
                        // What may be in it cannot be hidden.
                        if !self.ends.stuck || event.is_error() {
                            self.ends.send_client(raw);
                        }
                    }
                    Owner::Nobody | Owner::Unknown => self.ends.send_client(raw),
                }
            }
        }
    }
}

/// Waits for what is under way: a look, a mending, something that is done for an answer.
async fn finished(lanes: &mut Lanes) -> Event {
    std::future::poll_fn(|cx| {
        for (at, lane) in lanes.iter_mut().enumerate() {
            match &mut lane.turn {
                Turn::Looking(Looking { work, .. }) => {
                    if let Poll::Ready(work) = Pin::new(work).poll(cx) {
                        return Poll::Ready(Event::Looked(at, work.ok().flatten()));
                    }
                }
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
