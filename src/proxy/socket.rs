//! Responses over WebSocket: every `response.create` of the client's is a request body like any other, and what
//! the provider says first of its answer is held back like the beginning of a stream. All else passes as it is.

mod side;
mod turn;

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use self::side::{Reading, Side};
use self::turn::{Asked, Attempt, Sent, Step, Turn, is_last, is_request};
use super::Shard;
use super::budget::Permit;
use super::chains::Beginning;
use super::learning;
use super::observe::{Ending, Watch};
use super::origin::Incoming;
use super::work::Work;
use crate::wire::Dialect;
use crate::wire::frames::{Piece, text_frame};
use crate::wire::overflow::Verdict;

/// Bytes of messages that wait at most until the one before them was looked at.
const LATER_BYTES: usize = 1024 * 1024;

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
    /// What the client sent behind a message that is looked at.
    later: VecDeque<Piece>,
    later_bytes: usize,
}

/// What has happened.
enum Event {
    Moved,
    Looked(Option<Box<Work>>),
    Mended(Option<Box<Work>>),
    Deadline,
}

impl Socket {
    pub fn new(shard: Arc<Shard>, index: usize, parts: Parts, (client, upstream): (Upgraded, Upgraded)) -> Self {
        let limit = shard.proxy.config.server.max_body_bytes;
        Self {
            shard,
            index,
            parts: Arc::new(parts),
            client: Side::new(TokioIo::new(client), limit),
            upstream: Side::new(TokioIo::new(upstream), limit),
            turn: Turn::Passing,
            later: VecDeque::new(),
            later_bytes: 0,
        }
    }

    /// Relays until both directions have ended or one has failed.
    pub async fn relay(mut self) -> io::Result<()> {
        while self.client.open || self.upstream.open || self.client.is_busy() || self.upstream.is_busy() {
            match self.next().await? {
                Event::Moved => {}
                Event::Looked(work) => self.looked(work),
                Event::Mended(work) => self.mended(work),
                Event::Deadline => self.release(),
            }
            self.take_in();
        }
        Ok(())
    }

    /// Waits for the next thing to happen.
    async fn next(&mut self) -> io::Result<Event> {
        let deadline = match &self.turn {
            Turn::Holding(sent) => sent.since.map(|since| since + self.shard.proxy.hold_time),
            _ => None,
        };
        let may = |may| if may { Reading::On } else { Reading::Paused };
        let from_client = may(self.upstream.has_room() && self.later_bytes < LATER_BYTES);
        let from_upstream = may(self.client.has_room() && !matches!(self.turn, Turn::Mending { .. }));
        tokio::select! {
            moved = self.client.advance(from_client) => moved.map(|()| Event::Moved),
            moved = self.upstream.advance(from_upstream) => moved.map(|()| Event::Moved),
            () = tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => Ok(Event::Deadline),
            event = finished(&mut self.turn) => Ok(event),
        }
    }

    /// Sends on what has come.
    fn take_in(&mut self) {
        while let Some(piece) = self.client.frames.next_piece() {
            self.client_sent(piece);
        }
        while let Some(piece) = self.upstream.frames.next_piece() {
            self.upstream_sent(piece);
        }
        if !self.client.open && self.later.is_empty() && !matches!(self.turn, Turn::Looking { .. }) {
            self.upstream.end();
        }
        if !self.upstream.open {
            self.release();
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
            (Piece::Opaque(bytes) | Piece::Close(bytes), _) => self.upstream.put(bytes),
            (Piece::Text { raw, text }, Turn::Passing | Turn::Answering(_)) if is_request(&text) => {
                self.look(raw, text.into());
            }
            (Piece::Text { raw, text }, _) => {
                // Which of two answers an event belongs to, nobody could tell.
                if is_request(&text) {
                    self.release();
                }
                raw.into_iter().for_each(|frame| self.upstream.put(frame));
            }
        }
    }

    /// Begins to look at a request.
    fn look(&mut self, raw: Vec<Bytes>, body: Bytes) {
        let mut permit = Permit::empty(&self.shard.proxy.budget);
        if !permit.grow(body.len()) {
            return raw.into_iter().for_each(|frame| self.upstream.put(frame));
        }
        let (shard, index, parts) = (Arc::clone(&self.shard), self.index, Arc::clone(&self.parts));
        let permit = vec![Arc::new(permit)];
        let looking = tokio::spawn(async move {
            let compactor = shard.proxy.compactor.as_ref()?;
            let dialect = Dialect::Responses;
            let incoming =
                Incoming { shard: &shard, index, parts: &parts, dialect, chains: Beginning::Any, body, permit };
            compactor.look(incoming).await.map(Box::new)
        });
        self.turn = Turn::Looking { asked: Asked { raw }, looking };
    }

    /// Sends what the look has led to, and what waited behind it.
    fn looked(&mut self, work: Option<Box<Work>>) {
        let Turn::Looking { asked, .. } = std::mem::replace(&mut self.turn, Turn::Passing) else { return };
        match work {
            Some(work) if work.may_overflow || work.pieces.is_some() => {
                self.send(Sent::new(asked, work, Attempt::First));
            }
            work => {
                asked.raw.into_iter().for_each(|frame| self.upstream.put(frame));
                self.turn = Turn::Answering(work.and_then(|mut work| self.watch(&mut work)));
            }
        }
        self.later_bytes = 0;
        for piece in std::mem::take(&mut self.later) {
            self.client_sent(piece);
        }
    }

    /// Sends the body that a request has now, and holds its answer back.
    fn send(&mut self, sent: Sent) {
        match &sent.work.pieces {
            Some(pieces) => self.upstream.put(text_frame(pieces, Some(mask()))),
            None => sent.asked.raw.iter().for_each(|frame| self.upstream.put(frame.clone())),
        }
        self.turn = Turn::Holding(Box::new(sent));
    }

    fn upstream_sent(&mut self, piece: Piece) {
        match (piece, &mut self.turn) {
            (Piece::Control(bytes) | Piece::Opaque(bytes), _) => self.client.put(bytes),
            (Piece::Close(bytes), _) => {
                self.release();
                self.client.put(bytes);
            }
            (Piece::Text { raw, text }, Turn::Holding(sent)) => {
                let step = sent.on_event(raw, &text, Instant::now());
                self.take(step, &text);
            }
            // What follows the refusal belongs to it.
            (Piece::Text { raw, .. }, Turn::Mending { refusal, .. }) => refusal.extend(raw),
            (Piece::Text { raw, text }, _) => {
                self.send_client(raw);
                self.observe(&text);
            }
        }
    }

    fn send_client(&mut self, frames: Vec<Bytes>) {
        frames.into_iter().for_each(|frame| self.client.put(frame));
    }

    /// Takes the step that the event `text` asks for.
    fn take(&mut self, step: Step, text: &[u8]) {
        let Turn::Holding(mut sent) = std::mem::replace(&mut self.turn, Turn::Passing) else { return };
        match step {
            Step::Hold => self.turn = Turn::Holding(sent),
            Step::Release => {
                if matches!(sent.attempt, Attempt::Shorter { .. }) {
                    self.shard.proxy.metrics.recovery_ended("refused");
                }
                self.send_client(sent.take_held());
            }
            Step::Answered => {
                self.answered(&sent);
                self.send_client(sent.take_held());
                self.turn = Turn::Answering(self.watch(&mut sent.work));
                self.observe(text);
            }
            Step::Mend(verdict) => self.mend(*sent, verdict),
            Step::Original => {
                let upstream = &*sent.work.origin.upstream;
                tracing::warn!(upstream, "a rewritten body was refused: the original goes out");
                sent.work.send_original();
                let Sent { asked, work, .. } = *sent;
                self.send(Sent::new(asked, work, Attempt::Original));
            }
            Step::FirstError { condemned } => {
                if condemned && let Some(compactor) = &self.shard.proxy.compactor {
                    compactor.quarantine(&sent.work);
                }
                self.shard.proxy.metrics.recovery_ended("failed");
                if let Attempt::Shorter { refusal } = sent.attempt {
                    self.send_client(refusal);
                }
            }
        }
    }

    /// A second attempt has come through.
    fn answered(&self, sent: &Sent) {
        match &sent.attempt {
            Attempt::First => {}
            Attempt::Shorter { .. } => self.shard.proxy.metrics.recovery_ended("recovered"),
            Attempt::Original => {
                if let Some(compactor) = &self.shard.proxy.compactor {
                    compactor.quarantine(&sent.work);
                }
            }
        }
    }

    /// Begins to make a shorter body.
    fn mend(&mut self, mut sent: Sent, verdict: Verdict) {
        let (shard, refusal) = (Arc::clone(&self.shard), sent.take_held());
        let Sent { asked, mut work, .. } = sent;
        let mending = tokio::spawn(async move {
            let compactor = shard.proxy.compactor.as_ref()?;
            compactor.recover(&mut work, verdict).await.then_some(work)
        });
        self.turn = Turn::Mending { asked, refusal, mending };
    }

    fn mended(&mut self, work: Option<Box<Work>>) {
        let Turn::Mending { asked, refusal, .. } = std::mem::replace(&mut self.turn, Turn::Passing) else { return };
        match work {
            Some(work) => self.send(Sent::new(asked, work, Attempt::Shorter { refusal })),
            None => {
                self.shard.proxy.metrics.recovery_ended("hopeless");
                self.send_client(refusal);
            }
        }
    }

    /// Gives up holding back.
    fn release(&mut self) {
        match std::mem::replace(&mut self.turn, Turn::Passing) {
            Turn::Holding(mut sent) => {
                self.send_client(sent.take_held());
                self.turn = Turn::Answering(self.watch(&mut sent.work));
            }
            Turn::Mending { refusal, .. } => self.send_client(refusal),
            turn @ (Turn::Looking { .. } | Turn::Answering(_)) => self.turn = turn,
            Turn::Passing => {}
        }
    }

    /// The observer of an answer that passes.
    fn watch(&self, work: &mut Work) -> Option<Box<Watch>> {
        learning::of_call(&self.shard, work, (StatusCode::OK, &HeaderMap::new()))
    }

    /// Shows an answer's event to its observer.
    fn observe(&mut self, text: &[u8]) {
        let Turn::Answering(watch) = &mut self.turn else { return };
        if let Some(watch) = watch {
            watch.see(&[b"data: ", text, b"\n\n"].concat().into());
        }
        if is_last(text) {
            if let Some(watch) = watch.take() {
                watch.end(Ending::Complete);
            }
            self.turn = Turn::Passing;
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
