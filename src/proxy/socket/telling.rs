//! What becomes of an answer in which the model may call the proxy's tools.

use bytes::Bytes;
use futures_util::FutureExt;
use http::StatusCode;

use super::super::second::Attempt;
use super::ends::Ends;
use super::lane::Lane;
use super::rounds::{Ran, Rounds, Running, Task};
use super::turn::{Answering, Message, Refused, Sent, Turn, cancelling};
use crate::wire::overflow;
use crate::wire::rounds::Ending;

impl Lane {
    /// Takes in an event of an answer in which the model may call the proxy's tools.
    pub(super) fn tell(&mut self, ends: &mut Ends, raw: Vec<Bytes>, (text, event): (&[u8], &Message<'_>)) {
        let Turn::Telling(rounds) = &mut self.turn else { return };
        let frames = rounds.tell(raw, (text, event));
        ends.send_client(frames);
        if rounds.draft.answer.is_stuck() {
            ends.stuck = true;
        }
        if event.is_last() {
            rounds.call_ended(text);
            self.told(ends);
        }
    }

    /// The answer to one model call has come whole.
    fn told(&mut self, ends: &mut Ends) {
        let Turn::Telling(mut rounds) = std::mem::take(&mut self.turn) else { return };
        let task = match rounds.draft.answer.end() {
            Ending::Answered => Task::Keep,
            Ending::Handed(round) => Task::Handed(round),
            Ending::Again(round) if rounds.may_go_on() => Task::Again(round),
            Ending::Again(round) => Task::Refused(round),
        };
        // The client has all of it already.
        if matches!(task, Task::Keep) && !rounds.draft.answer.hides() {
            self.finish(ends, rounds);
        } else {
            self.turn = Turn::Running(rounds.run(task));
        }
    }

    /// What was to be done between two answers is done.
    pub(super) fn ran(&mut self, ends: &mut Ends, ran: Ran) {
        let Turn::Running(running) = std::mem::take(&mut self.turn) else { return };
        let Ran { mut rounds, next } = ran;
        (rounds.closed, rounds.behind) = (rounds.closed | running.stopped, running.behind);
        match next {
            Some((raw, work)) if !rounds.closed => {
                // Nothing of an answer is among it.
                running.kept.into_iter().for_each(|(raw, _)| ends.send_client(raw));
                let sent = Sent::new(raw, work, Attempt::First, Refused::default());
                self.send(ends, sent.of(None, Some(rounds)));
            }
            // It is not asked, but the calls were answered: those are there in the next turn.
            Some(_) => {
                let Running { kept, kept_bytes, .. } = running;
                self.turn = Turn::Running(Running { kept, kept_bytes, ..rounds.run(Task::Keep) });
            }
            None => {
                self.finish(ends, rounds);
                for (raw, text) in running.kept {
                    self.take_event(ends, raw, (&text, &Message::of(&text), false));
                }
            }
        }
    }

    /// The answer is at its end.
    fn finish(&mut self, ends: &mut Ends, mut rounds: Box<Rounds>) {
        let frames = rounds.finish();
        ends.send_client(frames);
        self.trail.tell();
        if let Some((id, reached)) = rounds.reached() {
            ends.reached.note(id, reached);
        }
        if let Some(record) = &mut self.record {
            record.made_of(rounds.tally.totals());
        }
        self.close(StatusCode::OK.as_u16());
        self.turn = match rounds.behind {
            0 => Turn::Passing,
            open => Turn::Answering(Answering::several(open)),
        };
        // Behind an answer of which nothing was hidden only the offer is kept, for which nobody waits.
        let mut keeping = Box::pin(async move { rounds.draft.keep_offer().await });
        if keeping.as_mut().now_or_never().is_none() {
            ends.shard.tasks.spawn(keeping);
        }
    }

    /// A later request of the answer came to nothing: where nothing was shown yet the client's own takes its place, but
    /// nobody is asked again at once who wants fewer requests (L6).
    pub(super) fn give_way(
        &mut self,
        ends: &mut Ends,
        mut rounds: Box<Rounds>,
        (refusal, status): (Refused, Option<u16>),
    ) {
        rounds.draft.count("failed");
        // What was shown cannot be taken back: the turn ends here, and what the calls found is there in the next.
        if rounds.shown && !rounds.draft.forgotten {
            self.turn = Turn::Running(rounds.run(Task::Keep));
        } else if rounds.draft.forgotten || rounds.closed || status.is_some_and(overflow::is_busy) {
            let refusal = rounds.refused(refusal);
            self.show(ends, refusal, status);
            self.trail.tell();
            if rounds.behind > 0 {
                self.turn = Turn::Answering(Answering::several(rounds.behind));
            }
        } else {
            self.turn = Turn::Running(rounds.run(Task::Anew));
        }
    }

    /// The client wants the answer cancelled that is out on this lane.
    pub(super) fn cancel(&mut self, ends: &mut Ends, raw: Vec<Bytes>, text: Bytes) {
        if !self.turn.is_meant(&Message::of(&text)) {
            return ends.send_upstream(raw);
        }
        match &mut self.turn {
            // Nobody is asked any more.
            Turn::Running(running) => running.stopped = true,
            Turn::Telling(rounds) => {
                rounds.closed = true;
                ends.send_upstream(cancelling(&text, self.trail.begun()).unwrap_or(raw));
            }
            Turn::Holding(sent) => match &mut sent.rounds {
                Some(rounds) => {
                    rounds.closed = true;
                    rounds.cancel = Some((raw, text));
                }
                None => ends.send_upstream(raw),
            },
            Turn::Mending { rounds: Some(rounds), .. } => rounds.closed = true,
            Turn::Looking(_) => self.pass(ends, raw),
            Turn::Mending { .. } | Turn::Answering(_) | Turn::Passing => ends.send_upstream(raw),
        }
    }

    /// The provider took a request of an answer in which the model may call the proxy's tools.
    pub(super) fn begin_telling(&mut self, ends: &mut Ends, mut rounds: Box<Rounds>, events: Vec<(Vec<Bytes>, Bytes)>) {
        let cancel = rounds.cancel.take();
        self.turn = Turn::Telling(rounds);
        for (raw, text) in events {
            self.tell(ends, raw, (&text, &Message::of(&text)));
        }
        if let Some((raw, text)) = cancel {
            self.cancel(ends, raw, text);
        }
    }

    /// The upstream says no more: what is sure to belong to the answer goes out, and what was hidden is kept.
    pub(super) fn break_off_telling(&mut self, ends: &mut Ends, turn: Turn) {
        match turn {
            Turn::Telling(mut rounds) => {
                let frames = rounds.break_off();
                ends.send_client(frames);
                ends.shard.tasks.spawn(async move { rounds.draft.keep().await });
            }
            // What is held of it is told as soon as it is kept.
            Turn::Running(running) if ends.client.open => {
                self.turn = Turn::Running(Running { stopped: true, ..running });
            }
            Turn::Running(running) => {
                ends.shard.tasks.spawn(async move {
                    if let Ok(Ran { rounds, next: Some(_) }) = running.task.await {
                        rounds.draft.keep().await;
                    }
                });
            }
            Turn::Holding(sent) => {
                if let Some(rounds) = sent.rounds {
                    ends.shard.tasks.spawn(async move { rounds.draft.keep().await });
                }
            }
            Turn::Mending { rounds: Some(rounds), .. } => {
                ends.shard.tasks.spawn(async move { rounds.draft.keep().await });
            }
            Turn::Mending { .. } | Turn::Answering(_) | Turn::Looking(_) | Turn::Passing => {}
        }
    }
}
