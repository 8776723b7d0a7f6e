//! The answer of one model call as it comes: piece by piece, decoded, and accounted for once, however it ends.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

use super::super::encoding::{Decoder, Encoding};
use super::super::hold::ERROR_BYTES;
use super::super::holding::Held;
use super::super::last::Last;
use super::super::observe::{DECODED_BYTES, Ending, Tail, Watch};
use super::super::outcome::Outcome;
use super::super::relay::RelayError;
use super::super::reply::Fault;
use super::super::spliced::Tally;
use super::End;
use crate::wire::rounds::Form;
use crate::wire::usage;

/// How long the body of an answer that has said all may take to end.
const LINGER: Duration = Duration::from_millis(100);

/// One model call's answer, of which perhaps the beginning was read.
pub(in super::super) struct Call {
    pub(super) held: Held,
    pub(super) watch: Option<Box<Watch>>,
}

/// A call's answer while it is read.
pub(super) struct Reading {
    answer: Response<Incoming>,
    pieces: VecDeque<Bytes>,
    /// What was read, decoded, and is to be read again.
    ahead: VecDeque<Bytes>,
    failure: Option<RelayError>,
    decoder: Option<Decoder>,
    /// How long the upstream may be silent.
    idle: Duration,
    seen: Seen,
}

/// Tells once what an answer was: for the totals, and for what is learned, recorded and logged of it.
struct Seen {
    watch: Option<Box<Watch>>,
    tail: Tail,
    last: Last,
    form: Form,
    tally: Option<Arc<Tally>>,
}

impl Call {
    /// An answer that is an error ends the rounds.
    pub(super) fn judged(call: Result<Self, End>) -> Result<Self, End> {
        let call = call?;
        if call.held.answer.status().is_success() { Ok(call) } else { Err(End::Relay(Box::new(call))) }
    }

    /// Begins to read it.
    pub(super) fn read(self, form: Form, idle: Duration, tally: &Arc<Tally>) -> Reading {
        let Held { answer, pieces, failure, .. } = self.held;
        let encoding = Encoding::of(answer.headers());
        let decoder = encoding.and_then(|encoding| Decoder::new(encoding, DECODED_BYTES));
        let (watch, tally) = (self.watch, Some(Arc::clone(tally)));
        let seen = Seen { watch, tail: Tail::default(), last: Last::default(), form, tally };
        let (ahead, failure) = (VecDeque::new(), failure.map(RelayError::Upstream));
        Reading { answer, pieces, ahead, failure, decoder, idle, seen }
    }

    /// The body of an error, as far as it is worth showing and comes within `idle` from piece to piece.
    pub(super) async fn error(self, idle: Duration) -> Vec<u8> {
        let Held { mut answer, pieces, .. } = self.held;
        let mut error: Vec<u8> = pieces.into_iter().flatten().collect();
        while let Ok(Some(Ok(frame))) = timeout(idle, answer.body_mut().frame()).await {
            if let Ok(data) = frame.into_data() {
                error.extend_from_slice(&data);
            }
            if error.len() > ERROR_BYTES {
                break;
            }
        }
        error
    }
}

impl Reading {
    /// What comes next, decoded. `None`: the answer has ended, well or not.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, End> {
        if let Some(piece) = self.ahead.pop_front() {
            return Ok(Some(piece));
        }
        let decoded = match (self.piece().await, &mut self.decoder) {
            (Some(data), None) => data,
            (Some(data), Some(decoder)) => {
                let mut decoded = Vec::new();
                decoder.feed(data, |piece| decoded.extend_from_slice(piece));
                if decoder.failed().is_some() {
                    return Err(undecodable());
                }
                decoded.into()
            }
            (None, _) => match self.decoder.take().filter(|_| self.failure.is_none()) {
                None => return Ok(None),
                Some(decoder) => {
                    let mut rest = Vec::new();
                    decoder.finish(|piece| rest.extend_from_slice(piece)).map_err(|_| undecodable())?;
                    rest.into()
                }
            },
        };
        self.seen.decoded(&decoded);
        Ok(Some(decoded))
    }

    /// What was read comes once more, in these pieces.
    pub(super) fn put_back(&mut self, pieces: Vec<Bytes>) {
        self.ahead.extend(pieces.into_iter().filter(|piece| !piece.is_empty()));
    }

    /// The next piece as it came.
    async fn piece(&mut self) -> Option<Bytes> {
        if let Some(piece) = self.pieces.pop_front() {
            self.seen.piece(&piece);
            return Some(piece);
        }
        while self.failure.is_none() {
            match timeout(self.idle, self.answer.body_mut().frame()).await {
                Ok(None) => return None,
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        self.seen.piece(&data);
                        return Some(data);
                    }
                }
                Ok(Some(Err(error))) => self.failure = Some(RelayError::Upstream(error)),
                Err(_) => self.failure = Some(RelayError::Idle),
            }
        }
        None
    }

    /// Whether its last event has come: nothing that is said behind it counts.
    pub(super) fn is_over(&self) -> bool {
        self.ahead.is_empty() && self.seen.form == Form::Stream && self.seen.last.is_final_event()
    }

    /// How the answer broke off, if it did. What happens behind its last event is no matter.
    pub(super) async fn end(mut self) -> Option<RelayError> {
        if self.is_over() && self.failure.is_none() {
            // A body that ends as well leaves its connection to the next call.
            let _ = timeout(LINGER, self.answer.body_mut().frame()).await;
        }
        let failure = self.failure.take().filter(|_| !self.seen.last.is_final_event());
        self.seen.end(if failure.is_some() { Ending::Failed } else { Ending::Complete });
        failure
    }

    /// The answer, of which `read` is the beginning, to be relayed as it comes.
    pub(super) fn relayed(mut self, read: Vec<Bytes>) -> End {
        if self.decoder.is_some() {
            return undecodable();
        }
        let mut held = Held::untouched(self.answer);
        held.pieces = read.into();
        held.pieces.extend(self.pieces);
        End::Relay(Box::new(Call { held, watch: self.seen.watch.take() }))
    }
}

impl Seen {
    fn piece(&mut self, data: &Bytes) {
        if let Some(watch) = &mut self.watch {
            watch.see(data);
        }
    }

    fn decoded(&mut self, data: &[u8]) {
        self.tail.push(data);
        self.last.add(data);
        // The client may close as soon as it has this.
        if self.last.is_final_event() {
            self.count();
        }
    }

    fn count(&mut self) {
        let Some(tally) = self.tally.take() else { return };
        let bytes = self.tail.bytes();
        let observed = match self.form {
            Form::Json if self.tail.is_whole() => usage::from_body(&bytes),
            Form::Json | Form::Stream => usage::from_stream_tail(&bytes, self.tail.shown()),
        };
        tally.round(observed.usage);
    }

    fn end(&mut self, ending: Ending) {
        self.count();
        if let Some(watch) = self.watch.take() {
            watch.end(ending);
        }
    }
}

/// The client has gone: after the last event with all that there was.
impl Drop for Seen {
    fn drop(&mut self) {
        let all = self.last.is_final_event();
        if let Some(watch) = self.watch.take() {
            watch.end(if all { Ending::Complete } else { Ending::Dropped });
        }
    }
}

/// An encoded answer that is broken, or too long to be put together.
fn undecodable() -> End {
    End::Fault(Fault::new(Outcome::AnswerBroken, "the upstream's encoded answer cannot be read to its end"))
}
