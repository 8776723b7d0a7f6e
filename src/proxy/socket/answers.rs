//! What becomes of an answer that is held back on a socket.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio_util::task::AbortOnDropHandle;

use super::super::foresight;
use super::super::learning;
use super::super::observe::Ending;
use super::super::origin::Tools;
use super::super::outcome::Outcome;
use super::super::second::Attempt;
use super::super::work::Work;
use super::ends::Ends;
use super::lane::Lane;
use super::rounds::Rounds;
use super::turn::{Answering, HEAD_BYTES, Looking, Mended, Refused, Remedy, Seen, Sent, Step, Turn, begins_last};
use crate::telemetry::metrics::FailOpen;
use crate::wire::overflow::{self, Verdict};

impl Lane {
    /// Takes the step that an event asks for: what it says, and whether it is the last one of its answer.
    pub(super) fn take(&mut self, ends: &mut Ends, step: Step, (text, last): (&[u8], bool)) {
        let Turn::Holding(mut sent) = std::mem::replace(&mut self.turn, Turn::Passing) else { return };
        match step {
            Step::Hold => self.turn = Turn::Holding(sent),
            Step::Answered => {
                self.answered(ends, *sent);
                self.observe((text, last));
            }
            Step::Failed => {
                if sent.attempt == Attempt::Shorter {
                    ends.shard.proxy.metrics.recovery_ended("refused");
                }
                if sent.remedy == Some(Remedy::WithoutTools) {
                    ends.refused_twice(&sent.work, text);
                }
                let refusal = match sent.first_stands(text) {
                    true => std::mem::take(&mut sent.refusal),
                    false => self.refused(&mut sent, text),
                };
                let work = self.failed(ends, *sent, (refusal, overflow::status_told(text)));
                foresight::told(work, text);
            }
            Step::Mend(verdict) => {
                let refusal = self.refused(&mut sent, text);
                self.mend(ends, *sent, (refusal, verdict));
            }
            Step::WithoutTools => self.without_tools(ends, *sent, text),
            Step::Original => {
                let upstream = &*sent.work.origin.upstream;
                tracing::warn!(upstream, "a rewritten body was refused: the original goes out");
                let refusal = self.refused(&mut sent, text);
                sent.work.send_original();
                let Sent { raw, work, reached, rounds, .. } = *sent;
                let sent = Sent::new(raw, work, Attempt::Original, refusal);
                self.send(ends, sent.of(reached, rounds));
            }
            Step::FirstError { condemned } => {
                if condemned && sent.work.activated.is_some() {
                    ends.quarantine(&sent.work);
                }
                if sent.refuses_tools(text) {
                    ends.told_of_no_tools(&sent.work);
                }
                ends.shard.proxy.metrics.recovery_ended("failed");
                let refusal = std::mem::take(&mut sent.refusal);
                self.failed(ends, *sent, (refusal, Some(400)));
            }
        }
    }

    /// The provider took the request: all that was held goes to the client, and what follows is observed.
    fn answered(&mut self, ends: &mut Ends, mut sent: Sent) {
        match sent.attempt {
            Attempt::First => {}
            Attempt::Shorter => ends.shard.proxy.metrics.recovery_ended("recovered"),
            Attempt::Original if sent.remedy == Some(Remedy::WithoutTools) => ends.takes_no_tools(&sent.work),
            Attempt::Original => {
                ends.shard.proxy.metrics.failed_open(FailOpen::Refused);
                ends.refused(&sent.work);
            }
        }
        if let Some(record) = self.record.as_mut().filter(|_| sent.rounds.is_none()) {
            record.status = StatusCode::OK.as_u16();
            record.compacted(&sent.work);
        }
        let events = sent.take_events();
        let watch = learning::of_call(&ends.shard, &mut sent.work, (StatusCode::OK, &HeaderMap::new()));
        let rounds = match sent.rounds.take() {
            Some(mut rounds) => {
                rounds.goes_on(&sent.work, watch);
                Ok(rounds)
            }
            None => Rounds::of(ends.asker(), (&sent.work, &sent.raw), sent.reached.take(), watch),
        };
        match rounds {
            Ok(rounds) => self.begin_telling(ends, rounds, events),
            // What may be in it could not be hidden.
            Err(_) if sent.work.offered().is_some() => ends.stuck = true,
            Err(watch) => {
                events.into_iter().for_each(|(raw, _)| ends.send_client(raw));
                self.turn = Turn::Answering(Answering::one(watch));
            }
        }
    }

    /// An error goes to the client, unless it is that of a further request of the proxy's. Gives the request back.
    fn failed(&mut self, ends: &mut Ends, mut sent: Sent, (refusal, status): (Refused, Option<u16>)) -> Box<Work> {
        if let (Some(compactor), Some(status)) = (&ends.shard.proxy.compactor, status) {
            let origin = &sent.work.origin;
            let now = std::time::Instant::now();
            compactor.breaker.observe(origin.tenant, &origin.upstream, (status, &HeaderMap::new()), now);
        }
        match sent.rounds.take() {
            Some(rounds) => self.give_way(ends, rounds, (refusal, status)),
            None => self.show(ends, refusal.frames, status),
        }
        sent.work
    }

    /// Shows the refusal with which a request has ended.
    pub(super) fn show(&mut self, ends: &mut Ends, refusal: Vec<Bytes>, status: Option<u16>) {
        self.close(status.unwrap_or(StatusCode::BAD_REQUEST.as_u16()));
        ends.send_client(refusal);
    }

    /// Closes the account of the request that was out.
    pub(super) fn close(&mut self, status: u16) {
        if let Some(mut record) = self.record.take() {
            record.status = status;
            record.close(Outcome::Relayed);
        }
    }

    /// Sends what the look at a request has led to, and what came behind it.
    pub(super) fn looked(&mut self, ends: &mut Ends, work: Seen) {
        let turn = std::mem::replace(&mut self.turn, Turn::Passing);
        let Turn::Looking(Looking { raw, behind, reached, .. }) = turn else { return };
        match work {
            Some(work) => {
                let sent = Sent::new(raw, work, Attempt::First, Refused::default());
                self.send(ends, sent.of(reached, None));
            }
            None => {
                ends.send_upstream(raw);
                self.turn = Turn::Answering(Answering::one(None));
            }
        }
        ends.send_upstream(behind);
    }

    /// Sends the body that a request has now, and holds its answer back.
    pub(super) fn send(&mut self, ends: &mut Ends, sent: Sent) {
        ends.send(&sent);
        self.offers(&sent);
        self.turn = Turn::Holding(Box::new(sent));
    }

    /// Begins to make a shorter body.
    fn mend(&mut self, ends: &Ends, sent: Sent, (refusal, verdict): (Refused, Verdict)) {
        let shard = Arc::clone(&ends.shard);
        let Sent { raw, mut work, reached, rounds, .. } = sent;
        // Only what recovery itself activates is given up should that be refused too.
        work.activated = None;
        let mending = tokio::spawn(async move {
            let compactor = shard.proxy.compactor.as_ref()?;
            compactor.recover(&mut work, verdict).await.then_some(work)
        });
        let (remedy, mending) = (Remedy::Shorter, AbortOnDropHandle::new(mending));
        self.turn = Turn::Mending { remedy, raw, refusal, reached, rounds, mending };
    }

    /// Begins to make the same body without the proxy's tools.
    fn without_tools(&mut self, ends: &Ends, mut sent: Sent, text: &[u8]) {
        let (asker, refusal) = (ends.asker(), self.refused(&mut sent, text));
        let Sent { raw, mut work, reached, rounds, .. } = sent;
        let of_look = reached.clone();
        let mending = tokio::spawn(async move {
            let overlaid = work.overlaid.as_ref()?;
            let asked = (overlaid.client.clone(), overlaid.permit.clone());
            let Some(mut again) = asker.look(asked, (Tools::Without, of_look)).await else {
                work.send_original();
                return Some(work);
            };
            if again.pieces.is_some() {
                (again.actions, again.tokens, again.activated) = (work.actions, work.tokens, work.activated);
            }
            Some(again)
        });
        let (remedy, mending) = (Remedy::WithoutTools, AbortOnDropHandle::new(mending));
        self.turn = Turn::Mending { remedy, raw, refusal, reached, rounds, mending };
    }

    pub(super) fn mended(&mut self, ends: &mut Ends, mended: Mended) {
        let turn = std::mem::replace(&mut self.turn, Turn::Passing);
        let Turn::Mending { remedy, raw, refusal, reached, rounds, .. } = turn else { return };
        let cancelled = rounds.as_ref().is_some_and(|rounds| rounds.closed);
        if let Some(work) = mended.filter(|_| !cancelled) {
            let attempt = if remedy == Remedy::Shorter { Attempt::Shorter } else { Attempt::Original };
            let mut sent = Sent::new(raw, work, attempt, refusal);
            sent.remedy = Some(remedy);
            return self.send(ends, sent.of(reached, rounds));
        }
        if remedy == Remedy::Shorter {
            ends.shard.proxy.metrics.recovery_ended("hopeless");
        }
        self.unmended(ends, rounds, refusal);
    }

    /// Nothing shorter is sent in place of what was refused.
    fn unmended(&mut self, ends: &mut Ends, rounds: Option<Box<Rounds>>, refusal: Refused) {
        let status = Some(StatusCode::BAD_REQUEST.as_u16());
        match rounds {
            Some(rounds) => self.give_way(ends, rounds, (refusal, status)),
            None => self.show(ends, refusal.frames, status),
        }
    }

    /// Holds nothing back any longer: what is looked at goes out as it is, and what is out is taken for answered.
    pub(super) fn let_pass(&mut self, ends: &mut Ends) {
        match std::mem::replace(&mut self.turn, Turn::Passing) {
            turn @ Turn::Looking(_) => {
                self.turn = turn;
                self.looked(ends, None);
            }
            Turn::Holding(sent) => self.answered(ends, *sent),
            Turn::Mending { refusal, mut rounds, .. } => {
                rounds.iter_mut().for_each(|rounds| rounds.closed = true);
                self.unmended(ends, rounds, refusal);
            }
            turn => self.turn = turn,
        }
    }

    /// Something that is not looked at goes out behind the answer on this lane, or may be its end.
    pub(super) fn go_no_further(&mut self) {
        match &mut self.turn {
            Turn::Telling(rounds) => rounds.closed = true,
            Turn::Running(running) => running.stopped = true,
            _ => {}
        }
    }

    /// Nobody is left for whom a shorter body could be made.
    pub(super) fn give_up_making(&mut self, ends: &mut Ends) {
        if matches!(self.turn, Turn::Looking(_) | Turn::Mending { .. }) {
            self.let_pass(ends);
        }
    }

    /// The upstream says no more: a second attempt that came to nothing leaves the first one's error.
    pub(super) fn break_off(&mut self, ends: &mut Ends) {
        match std::mem::replace(&mut self.turn, Turn::Passing) {
            Turn::Holding(mut sent) if sent.rounds.is_none() => match sent.attempt {
                Attempt::First => ends.send_client(self.held(&mut sent)),
                Attempt::Shorter | Attempt::Original => ends.send_client(sent.refusal.frames),
            },
            Turn::Mending { refusal, rounds: None, .. } => ends.send_client(refusal.frames),
            turn @ Turn::Looking(_) => self.turn = turn,
            turn => self.break_off_telling(ends, turn),
        }
    }

    /// Holds nothing back any longer, and nothing waits.
    pub(super) fn stop_waiting(&mut self, ends: &mut Ends) {
        self.let_pass(ends);
        self.go_no_further();
        self.overlap(ends);
    }

    /// It cannot be told any longer when the answer that is out ends: the next end that is read will do, and nothing waits
    /// for it.
    pub(super) fn lost(&mut self, ends: &mut Ends) {
        self.stop_waiting(ends);
        if let Turn::Answering(answering) = &mut self.turn {
            answering.unread = true;
        }
    }

    /// Shows an answer's event to its observer.
    pub(super) fn observe(&mut self, (text, last): (&[u8], bool)) {
        let Turn::Answering(Answering { watch, begun, .. }) = &mut self.turn else { return };
        begun.clear();
        if let Some(watch) = watch {
            watch.see(&[b"data: ", text, b"\n\n"].concat().into());
        }
        if last {
            self.ended(Ending::Complete);
        }
    }

    /// Some bytes of the upstream's pass unread. Should they end an answer without saying so where it is looked for,
    /// the next end that is read makes up for it.
    pub(super) fn passed_unread(&mut self, bytes: &[u8]) {
        let Turn::Answering(answering) = &mut self.turn else { return };
        let room = HEAD_BYTES.saturating_sub(answering.begun.len());
        // A message may pass in many pieces, and ends one answer.
        let counted = begins_last(&answering.begun);
        answering.begun.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        match begins_last(&answering.begun) {
            true if counted => {}
            true => self.ended(Ending::Failed),
            false => answering.unread |= answering.begun.len() == HEAD_BYTES,
        }
    }

    /// An answer is over.
    fn ended(&mut self, ending: Ending) {
        let Turn::Answering(answering) = &mut self.turn else { return };
        if let Some(watch) = answering.watch.take() {
            watch.end(ending);
        }
        answering.open = if answering.unread { 0 } else { answering.open.saturating_sub(1) };
        if answering.open == 0 {
            self.turn = Turn::Passing;
            self.close(StatusCode::OK.as_u16());
        }
    }
}
