//! Round after round, until the answer ends.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use serde::de::IgnoredAny;
use tokio::sync::mpsc;

use super::super::outcome::Outcome;
use super::super::relay::RelayError;
use super::super::reply::{self, Fault};
use super::call::{Call, Reading};
use super::sink::Sink;
use super::{End, Rounds};
use crate::wire::overflow;
use crate::wire::rounds::{Ending, Form, Look, Looks};

/// What follows on the answer of one model call: another, or the end.
type Next = Result<Reading, End>;

/// Any object.
type Told = HashMap<String, IgnoredAny>;

fn too_long() -> Fault {
    Fault::new(Outcome::AnswerBroken, "the upstream's answer is too long to be put together")
}

fn no_answer() -> Fault {
    Fault::new(Outcome::AnswerBroken, "the upstream sent no answer")
}

impl Rounds {
    /// Writes a stream, until its end or until the client has gone.
    pub(super) async fn stream(mut self, first: Call, pieces: mpsc::Sender<Result<Bytes, RelayError>>) {
        let gone = pieces.clone();
        let mut sink = Sink::Stream { pieces, shown: false, dialect: self.draft.dialect };
        let end = tokio::select! {
            biased;
            () = gone.closed() => End::Gone,
            end = self.drive(first, &mut sink) => end,
        };
        match end {
            End::Complete => self.tally.finish(),
            End::Gone | End::TooLong => {}
            End::Broken(error) => drop(gone.send(Err(error)).await),
            End::Relay(call) => {
                let error = call.error(self.idle()).await;
                self.fail(&error, &mut sink).await;
            }
            End::Nothing(other) if !other.is_empty() => self.fail(&other, &mut sink).await,
            End::Nothing(_) => {
                self.fail(&reply::error_body(Some(self.draft.dialect), &no_answer()), &mut sink).await;
            }
            End::Fault(fault) => self.fail(&reply::error_body(Some(self.draft.dialect), &fault), &mut sink).await,
        }
    }

    /// Ends a stream with an error.
    async fn fail(&mut self, error: &[u8], sink: &mut Sink) {
        let pieces = self.draft.answer.fail(error);
        sink.give_all(pieces).await;
        self.tally.finish();
    }

    /// The whole of a JSON answer, or what is relayed in its place.
    pub(super) async fn whole(mut self, first: Call) -> Result<Bytes, End> {
        let mut sink = Sink::Whole(Vec::new());
        match self.drive(first, &mut sink).await {
            End::Complete => Ok(sink.taken().concat().into()),
            // Half of a JSON answer is of no use to anybody, and may name tools that are none of the client's.
            End::Broken(_) => {
                Err(End::Fault(Fault::new(Outcome::AnswerBroken, "the upstream broke off in its answer")))
            }
            // An error of the provider's, within a success.
            End::Nothing(other) if serde_json::from_slice::<Told>(&other).is_ok() => Ok(other),
            End::Nothing(_) => Err(End::Fault(no_answer())),
            end => Err(end),
        }
    }

    /// How long the upstream may be silent.
    pub(super) fn idle(&self) -> Duration {
        self.shard.upstream(self.index).map(|(route, _)| route.upstream.idle_timeout).unwrap_or_default()
    }

    async fn drive(&mut self, first: Call, sink: &mut Sink) -> End {
        let mut reading = self.read(first);
        loop {
            self.let_go(sink);
            let next = match self.pump(reading, sink).await {
                Ok(None) => self.next(sink).await,
                Ok(Some(error)) => self.give_way(End::Broken(error), sink).await,
                Err(End::Gone) => return End::Gone,
                Err(end) => self.give_way(end, sink).await,
            };
            reading = match next {
                Ok(reading) => reading,
                Err(End::Broken(error)) => return self.break_off(error, sink).await,
                Err(end) => return end,
            };
        }
    }

    fn read(&self, call: Call) -> Reading {
        call.read(self.draft.form, self.idle(), &self.tally)
    }

    /// Begins to read the answer of a further model call, as far as it takes to see that it is one. Of JSON that is seen
    /// at its end.
    async fn begun(&mut self, call: Result<Call, End>, sink: &mut Sink) -> Next {
        let mut reading = self.read(Call::judged(call)?);
        if self.draft.form == Form::Json {
            return Ok(reading);
        }
        let mut look = Look::new(self.draft.dialect);
        while let Some(data) = reading.next().await? {
            match look.push(&data) {
                Looks::Unclear(alive) => {
                    if !sink.pass(alive).await {
                        return Err(End::Gone);
                    }
                }
                Looks::Answer => {
                    reading.put_back(look.into_held());
                    return Ok(reading);
                }
                Looks::Other(other) => return Err(End::Nothing(other)),
            }
        }
        let other = look.into_held().concat().into();
        Err(reading.end().await.map_or(End::Nothing(other), End::Broken))
    }

    /// Hands on what the client is to see of one model call's answer, and tells how that broke off, if it did.
    async fn pump(&mut self, mut reading: Reading, sink: &mut Sink) -> Result<Option<RelayError>, End> {
        while let Some(data) = reading.next().await? {
            let pieces = self.draft.answer.push(&data);
            self.weigh();
            if !sink.give_all(pieces).await {
                return Err(End::Gone);
            }
            self.let_go(sink);
            if self.draft.answer.is_stuck() {
                return Err(End::TooLong);
            }
            if self.draft.answer.hides() && self.draft.answer.is_between_events() && reading.is_over() {
                break;
            }
            // An answer that long has no end that is worth waiting for.
            if self.draft.form == Form::Json && self.draft.answer.is_raw() {
                return Err(reading.relayed(sink.taken()));
            }
        }
        Ok(reading.end().await)
    }

    /// Has what is held for the answer counted. Where there is no room for it, no more is held than has to be: this is
    /// the last round then.
    fn weigh(&mut self) {
        if !self.share.resize(self.held()) {
            self.draft.answer.hold_no_more();
            self.share.insist(self.held());
        }
    }

    /// Bytes that are held: the results among what was added once more as they are.
    pub(super) fn held(&self) -> usize {
        self.draft.answer.held() + 2 * self.added.len()
    }

    /// Gives back what no other call will need.
    fn let_go(&mut self, sink: &Sink) {
        if sink.is_shown() {
            self.intake = None;
        }
        if self.draft.is_at_limit() {
            (self.client, self.added) = (None, Vec::new());
        }
    }

    /// What follows on an answer that has come whole.
    async fn next(&mut self, sink: &mut Sink) -> Next {
        if self.draft.answer.is_unended() {
            return self.give_way(End::Broken(RelayError::Unended), sink).await;
        }
        let round = match self.draft.answer.end() {
            Ending::Answered if self.is_further() && self.draft.answer.is_other() => {
                self.draft.count("failed");
                let other = self.draft.answer.finish().concat().into();
                return self.give_way(End::Nothing(other), sink).await;
            }
            Ending::Answered => return Err(self.finish(sink).await),
            Ending::Handed(round) => {
                self.draft.run(&round).await;
                self.draft.count("handed");
                return Err(self.finish(sink).await);
            }
            Ending::Again(round) => round,
        };
        if self.draft.is_at_limit() {
            self.draft.refuse(&round, "limit");
            self.draft.break_silence();
            return Err(self.finish(sink).await);
        }
        let said = self.draft.run(&round).await;
        self.added.extend([b",", &*round.turn, b",", &*said].concat());
        self.draft.keep_offer().await;
        let Some(intake) = self.continued(said).await else {
            self.draft.take_back(&round);
            self.draft.break_silence();
            return Err(self.finish(sink).await);
        };
        self.draft.count("again");
        let asked = self.ask_on(intake).await;
        match self.begun(asked, sink).await {
            Ok(reading) => {
                self.draft.answer.next_round();
                Ok(reading)
            }
            Err(End::Gone) => Err(End::Gone),
            // What was said cannot be taken back: the turn ends here, and what the calls found is there in the next. Thoughts
            // alone would be taken for an empty answer: behind them the client gets the error.
            Err(_) if sink.is_shown() && !self.draft.answer.is_silent() => {
                self.draft.count("failed");
                Err(self.finish(sink).await)
            }
            Err(end) => {
                self.draft.count("failed");
                self.give_way(end, sink).await
            }
        }
    }

    /// Whether the answer that has come is to another call than the first.
    fn is_further(&self) -> bool {
        self.draft.calls > 1 || self.draft.forgotten
    }

    /// Where a later call fails, or any answer is too long to be put together or has no end, and nothing was shown yet, the
    /// client's own request takes its place; but not where its history is bound to the proxy's tools, and nobody is asked
    /// again at once who wants fewer requests (L6).
    async fn give_way(&mut self, end: End, sink: &mut Sink) -> Next {
        let status = match &end {
            End::Relay(call) => Some(call.held.answer.status().as_u16()),
            End::Nothing(other) => overflow::status_told(other),
            _ => None,
        };
        let limited = status.is_some_and(overflow::is_busy);
        let is_clients = !self.is_further() && !matches!(end, End::TooLong | End::Broken(RelayError::Unended));
        if is_clients || !self.draft.may_begin_anew() || limited || sink.is_shown() {
            return Err(if matches!(end, End::TooLong) { End::Fault(too_long()) } else { end });
        }
        let asked = self.ask_anew().await;
        self.begun(asked, sink).await
    }

    /// Ends the answer, once what the client did not see of it is kept.
    async fn finish(&mut self, sink: &mut Sink) -> End {
        (self.intake, self.client, self.added) = (None, None, Vec::new());
        self.draft.keep().await;
        let pieces = self.draft.answer.finish();
        if sink.give_all(pieces).await { End::Complete } else { End::Gone }
    }

    /// The upstream has broken off: what it said for sure goes out, then the break.
    async fn break_off(&mut self, error: RelayError, sink: &mut Sink) -> End {
        let pieces = self.draft.answer.break_off();
        self.draft.keep().await;
        if sink.give_all(pieces).await { End::Broken(error) } else { End::Gone }
    }
}
