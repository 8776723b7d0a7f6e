//! Round after round, until the answer ends.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tokio::sync::mpsc;

use super::super::outcome::Outcome;
use super::super::relay::RelayError;
use super::super::reply::{self, Fault};
use super::call::Call;
use super::sink::Sink;
use super::{End, Rounds};
use crate::wire::rounds::{Ending, Form};

/// What follows on the answer of one model call: another, or the end.
type Next = Result<Call, End>;

fn too_long() -> Fault {
    Fault::new(Outcome::AnswerBroken, "the upstream's answer is too long to be put together")
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
            end => Err(end),
        }
    }

    /// How long the upstream may be silent.
    pub(super) fn idle(&self) -> Duration {
        self.shard.upstream(self.index).map(|(route, _)| route.upstream.idle_timeout).unwrap_or_default()
    }

    async fn drive(&mut self, first: Call, sink: &mut Sink) -> End {
        let mut call = first;
        loop {
            self.let_go(sink);
            let next = match self.pump(call, sink).await {
                Ok(None) => self.next(sink).await,
                Ok(Some(error)) => self.give_way(End::Broken(error), sink).await,
                Err(End::Gone) => return End::Gone,
                Err(end) => self.give_way(end, sink).await,
            };
            call = match next {
                Ok(call) => call,
                Err(End::Broken(error)) => return self.break_off(error, sink).await,
                Err(end) => return end,
            };
        }
    }

    /// Hands on what the client is to see of one model call's answer, and tells how that broke off, if it did.
    async fn pump(&mut self, call: Call, sink: &mut Sink) -> Result<Option<RelayError>, End> {
        let mut reading = call.read(self.draft.form, self.idle(), &self.tally);
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
        let round = match self.draft.answer.end() {
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
            return Err(self.finish(sink).await);
        }
        let said = self.draft.run(&round).await;
        self.added.extend([b",", &*round.turn, b",", &*said].concat());
        self.draft.keep_offer().await;
        let Some(intake) = self.continued(said).await else {
            self.draft.take_back(&round);
            return Err(self.finish(sink).await);
        };
        self.draft.count("again");
        match Call::judged(self.ask_on(intake).await) {
            Ok(call) => {
                self.draft.answer.next_round();
                Ok(call)
            }
            // What was shown cannot be taken back: the turn ends here, and what the calls found is there in the next.
            Err(_) if sink.is_shown() => {
                self.draft.count("failed");
                Err(self.finish(sink).await)
            }
            Err(end) => {
                self.draft.count("failed");
                self.give_way(end, sink).await
            }
        }
    }

    /// Where a later call fails, or any answer is too long to be put together, and nothing was shown yet, the client's own
    /// request takes its place; but nobody is asked again at once who wants fewer requests (L6).
    async fn give_way(&mut self, end: End, sink: &Sink) -> Next {
        let limited = matches!(&end, End::Relay(call) if call.held.answer.status() == StatusCode::TOO_MANY_REQUESTS);
        let is_clients = self.draft.calls == 1 && !matches!(end, End::TooLong);
        if is_clients || self.draft.forgotten || limited || sink.is_shown() {
            return Err(if matches!(end, End::TooLong) { End::Fault(too_long()) } else { end });
        }
        Call::judged(self.ask_anew().await)
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
