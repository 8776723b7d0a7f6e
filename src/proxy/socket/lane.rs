//! The lanes of a socket (`stream_id`; the one without an id is the default). Requests on one lane are answered one
//! after the other, those of different lanes side by side; every event names the lane that it belongs to (OpenAI's
//! WebSocket mode).

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::super::budget::Permit;
use super::super::offered::Offered;
use super::super::outcome::Record;
use super::super::second::Attempt;
use super::ends::Ends;
use super::rounds::without_tools;
use super::turn::{Answering, Looking, Message, Named, Refused, Sent, Trail, Turn};
use crate::wire::Dialect;

/// Lanes that are kept apart at once; requests on more of them pass as they are.
const MOST_LANES: usize = 64;

/// Requests that wait on one lane; with one more all of them pass as they are.
const MOST_WAITING: usize = 16;

/// Bytes behind a request that wait until it was looked at, and behind a refusal until that was mended; with more neither
/// is waited for.
const BEHIND_BYTES: usize = 1024 * 1024;

/// One lane.
#[derive(Default)]
pub struct Lane {
    id: Option<String>,
    pub turn: Turn,
    pub trail: Trail,
    /// The account of the request that is out.
    pub record: Option<Record>,
    /// The proxy's tools in the request that is out, or was last: an answer may repeat them.
    offered: Option<Arc<Offered>>,
    /// Requests that wait until the one before them is answered.
    waiting: VecDeque<Waiting>,
}

/// A request that waits.
struct Waiting {
    raw: Vec<Bytes>,
    body: Bytes,
    /// What it costs of `max_buffered_bytes`.
    _permit: Permit,
}

impl Lane {
    /// Whether a request may go out now.
    fn is_free(&self) -> bool {
        matches!(self.turn, Turn::Passing)
    }

    pub fn is_looking(&self) -> bool {
        matches!(self.turn, Turn::Looking(_))
    }

    /// Whether the upstream has a request that it has not answered.
    fn is_out(&self) -> bool {
        !self.is_free() && !self.is_looking()
    }

    /// Whether something of the answer that is out may have to be hidden.
    fn hides(&self) -> bool {
        match &self.turn {
            Turn::Telling(_) => true,
            Turn::Holding(sent) => sent.rounds.is_some() || sent.work.offered().is_some(),
            _ => false,
        }
    }

    /// Whether nothing is out and nothing waits.
    pub fn is_idle(&self) -> bool {
        self.is_free() && self.waiting.is_empty()
    }

    /// When what is held back began.
    pub fn since(&self) -> Option<Instant> {
        match &self.turn {
            Turn::Holding(sent) => sent.since,
            _ => None,
        }
    }

    /// Sends a message that is no request, behind the request that is looked at.
    pub fn pass(&mut self, ends: &mut Ends, raw: Vec<Bytes>) {
        let Turn::Looking(Looking { behind, .. }) = &mut self.turn else { return ends.send_upstream(raw) };
        behind.extend(raw);
        if bytes_of(behind) > BEHIND_BYTES {
            self.let_pass(ends);
        }
    }

    /// Has a request wait for the answer that is out. Where its end might not be seen, or there is no room, it passes as
    /// it is, and all that waited before it.
    pub fn wait(&mut self, ends: &mut Ends, raw: Vec<Bytes>, body: Bytes) {
        let mut permit = Permit::empty(&ends.shard.proxy.budget);
        let unread = matches!(&self.turn, Turn::Answering(Answering { unread: true, .. }));
        let room = !unread && self.waiting.len() < MOST_WAITING && permit.grow(body.len() + bytes_of(&raw));
        self.waiting.push_back(Waiting { raw, body, _permit: permit });
        if !room {
            self.overlap(ends);
        }
    }

    /// Sends all that waits as it is, before the request that is out is answered: which of them an event belongs to
    /// nobody could tell.
    pub fn overlap(&mut self, ends: &mut Ends) {
        if self.waiting.is_empty() {
            return;
        }
        self.let_pass(ends);
        self.go_no_further();
        let sent = self.waiting.len();
        for waiting in self.waiting.drain(..) {
            ends.send_upstream(waiting.raw);
        }
        let (open, unread) = match &mut self.turn {
            Turn::Answering(answering) => (answering.open, answering.unread),
            Turn::Telling(rounds) => return rounds.behind += sent,
            Turn::Running(running) => return running.behind += sent,
            _ => (0, false),
        };
        let open = open + sent;
        self.turn = Turn::Answering(Answering { unread, ..Answering::several(open) });
    }

    /// Notes which tools are in a request that goes out. What is left of the attempt before it may still be shown.
    pub(super) fn offers(&mut self, sent: &Sent) {
        match sent.work.offered() {
            None if sent.attempt != Attempt::First => {}
            offered => self.offered = offered.cloned(),
        }
    }

    /// What was held of an answer, as the client may see it: of a further request's not that an answer begins.
    pub(super) fn held(&self, sent: &mut Sent) -> Vec<Bytes> {
        let is_further = sent.rounds.is_some();
        let events = sent.take_events().into_iter().filter(|(_, text)| !is_further || !Dialect::Responses.opens(text));
        let shown = |(raw, text): (Vec<Bytes>, Bytes)| match &self.offered {
            Some(offered) => without_tools(offered, raw, &text),
            None => raw,
        };
        events.flat_map(shown).collect()
    }

    /// The same, where that is how the request was refused: with what it says.
    pub(super) fn refused(&self, sent: &mut Sent, text: &[u8]) -> Refused {
        Refused { frames: self.held(sent), text: Bytes::copy_from_slice(text) }
    }

    /// Takes in an event of this lane's: its frames, and what it says.
    pub fn on_event(&mut self, ends: &mut Ends, raw: Vec<Bytes>, (text, event): (&[u8], &Message<'_>)) {
        let behind = self.trail.is_behind(event);
        self.take_event(ends, raw, (text, event, behind));
    }

    /// The same, where it is known whether the event is `behind` an error that has ended its answer.
    pub(super) fn take_event(
        &mut self,
        ends: &mut Ends,
        raw: Vec<Bytes>,
        (text, event, behind): (&[u8], &Message<'_>, bool),
    ) {
        let last = event.is_last();
        let raw = match &self.offered {
            Some(offered) if behind || matches!(self.turn, Turn::Mending { .. }) => without_tools(offered, raw, text),
            _ => raw,
        };
        match &mut self.turn {
            // The end of the answer was told.
            _ if behind && self.trail.is_told() => {}
            // The client is to see it with the error before it, or not at all.
            Turn::Holding(sent) if behind && sent.rounds.is_none() && sent.attempt != Attempt::First => {
                sent.refusal.frames.extend(raw);
            }
            // The error before it was not shown, or was all that is to be.
            Turn::Holding(sent) if behind && sent.rounds.is_some() => {}
            Turn::Mending { rounds: Some(_), .. } if behind => {}
            Turn::Telling(_) | Turn::Running(_) if behind => {}
            Turn::Passing | Turn::Looking(_) | Turn::Holding(_) | Turn::Answering(_) if behind => ends.send_client(raw),
            Turn::Holding(sent) => {
                let step = sent.on_event(raw, text, Instant::now());
                self.take(ends, step, (text, last));
            }
            // What follows the refusal belongs to it.
            Turn::Mending { refusal, .. } => {
                refusal.frames.extend(raw);
                if bytes_of(&refusal.frames) > BEHIND_BYTES {
                    self.let_pass(ends);
                }
            }
            Turn::Telling(_) => self.tell(ends, raw, (text, event)),
            // All of the answer has come: it may belong to one of those behind it, and then nothing is asked in between.
            Turn::Running(running) => {
                running.stopped |= event.is_of_answer();
                running.kept_bytes += bytes_of(&raw) + text.len();
                running.kept.push((raw, Bytes::copy_from_slice(text)));
                ends.stuck |= running.kept_bytes > BEHIND_BYTES;
            }
            Turn::Passing | Turn::Looking(_) | Turn::Answering(_) => {
                ends.send_client(raw);
                self.observe((text, last));
            }
        }
    }
}

fn bytes_of(frames: &[Bytes]) -> usize {
    frames.iter().map(Bytes::len).sum()
}

/// All lanes of a socket.
#[derive(Default)]
pub struct Lanes {
    lanes: Vec<Lane>,
    /// The upstream has named one: what names none is the default one's.
    names_lanes: bool,
    /// A request went out on a lane that is not kept: an event that names none may be its.
    strays: bool,
}

/// The lane that an event belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    Lane(usize),
    /// No request that was looked at.
    Nobody,
    /// One of several that are out.
    Unknown,
}

impl Lanes {
    pub fn get_mut(&mut self, at: usize) -> Option<&mut Lane> {
        self.lanes.get_mut(at)
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Lane> {
        self.lanes.iter()
    }

    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, Lane> {
        self.lanes.iter_mut()
    }

    /// Where the lane of a request is; `None` if there are too many.
    pub fn place(&mut self, id: Option<&str>) -> Option<usize> {
        if let Some(at) = self.position(id) {
            return Some(at);
        }
        let lane = Lane { id: id.map(str::to_owned), ..Lane::default() };
        if self.lanes.len() < MOST_LANES {
            self.lanes.push(lane);
            return Some(self.lanes.len() - 1);
        }
        let at = self.lanes.iter().position(Lane::is_idle)?;
        *self.lanes.get_mut(at)? = lane;
        Some(at)
    }

    /// Where the lane is that a message names, if a request ever did.
    pub fn position(&self, id: Option<&str>) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.id.as_deref() == id)
    }

    /// A request goes out on a lane that is not kept.
    pub fn strayed(&mut self) {
        self.strays = true;
    }

    /// Whose an event of the upstream's is.
    pub fn owner(&mut self, named: &Named<'_>) -> Owner {
        self.names_lanes |= matches!(named, Named::Lane(_));
        self.meant(named)
    }

    /// Whose a message is, either side's.
    pub fn meant(&self, named: &Named<'_>) -> Owner {
        match named {
            Named::Odd => Owner::Nobody,
            Named::Lane(id) => self.position(Some(id)).map_or(Owner::Nobody, Owner::Lane),
            Named::Default => self.unnamed(),
        }
    }

    /// Whose an event is that names no lane. From an upstream that has named one it is the default one's; from one that
    /// may not know of lanes, the only one's that is out. The default one got the proxy's tools only while it was alone:
    /// what comes next is its answer then.
    fn unnamed(&self) -> Owner {
        let default = self.position(None);
        let mut out = self.lanes.iter().enumerate().filter(|(_, lane)| lane.is_out());
        match (out.next(), out.next()) {
            (None, _) => default.map_or(Owner::Nobody, Owner::Lane),
            (Some(_), _) if self.strays => Owner::Unknown,
            (Some((at, _)), None) => Owner::Lane(at),
            (Some(_), Some(_)) => {
                let default = default.filter(|&at| self.lanes.get(at).is_some_and(Lane::is_out));
                let hides = default.and_then(|at| self.lanes.get(at)).is_some_and(Lane::hides);
                default.filter(|_| self.names_lanes || hides).map_or(Owner::Unknown, Owner::Lane)
            }
        }
    }

    /// The lane whose next request may go out, if one waits.
    pub fn next(&mut self) -> Option<(usize, Vec<Bytes>, Bytes)> {
        let (at, lane) =
            self.lanes.iter_mut().enumerate().find(|(_, lane)| lane.is_free() && !lane.waiting.is_empty())?;
        let Waiting { raw, body, .. } = lane.waiting.pop_front()?;
        Some((at, raw, body))
    }

    pub fn are_all_idle(&self) -> bool {
        self.lanes.iter().all(Lane::is_idle)
    }

    /// Whether it is known of every event which lane it belongs to.
    pub fn are_told_apart(&self) -> bool {
        !self.strays && (self.lanes.len() < 2 || self.names_lanes)
    }

    pub fn are_looking(&self) -> bool {
        self.lanes.iter().any(Lane::is_looking)
    }

    /// Whether something is done for an answer that has come.
    pub fn are_running(&self) -> bool {
        self.lanes.iter().any(|lane| matches!(lane.turn, Turn::Running(_)))
    }

    /// Holds nothing back any longer: what is out is taken for answered, and nothing waits for it.
    pub fn let_pass(&mut self, ends: &mut Ends) {
        for lane in &mut self.lanes {
            lane.stop_waiting(ends);
        }
    }

    /// Some bytes of the upstream's pass unread, whosever they are.
    pub fn passed_unread(&mut self, ends: &mut Ends, bytes: &[u8]) {
        let mut out: Vec<&mut Lane> = self.lanes.iter_mut().filter(|lane| lane.is_out()).collect();
        out.iter_mut().for_each(|lane| lane.let_pass(ends));
        // What may be in it cannot be hidden.
        if out.iter().any(|lane| matches!(lane.turn, Turn::Telling(_))) {
            ends.stuck = true;
            return;
        }
        match out.as_mut_slice() {
            [only] => {
                only.passed_unread(bytes);
                if matches!(&only.turn, Turn::Answering(Answering { unread: true, .. })) {
                    only.overlap(ends);
                }
            }
            several => several.iter_mut().for_each(|lane| lane.lost(ends)),
        }
    }

    /// An event may be any of those that are out.
    pub fn lost(&mut self, ends: &mut Ends) {
        self.lanes.iter_mut().filter(|lane| lane.is_out()).for_each(|lane| lane.lost(ends));
        ends.stuck |= self.lanes.iter().any(|lane| matches!(lane.turn, Turn::Telling(_)));
    }
}
