//! The response's body on its way to the client: chunks that are ready together go out together,
//! none waits while its source is idle, and every body ends exactly once.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Sleep;

use super::last::Last;
use super::observe::{Ending, Watch};
use super::outcome::{Outcome, Record};

/// Data at hand from which on it goes out without a look at what else is ready.
const JOINED_BYTES: usize = 64 * 1024;
/// A lone chunk of this size is not worth joining.
const WHOLE_BYTES: usize = 8 * 1024;
/// First room for chunks that are joined: most events of a stream that are ready together fit.
const JOINED_ROOM: usize = 16 * 1024;
/// How often the other tasks of the shard get their turn before a dry source counts as idle: one turn
/// hands over the next chunk that the upstream's connection has read already.
const TURNS: u8 = 2;

/// Why a body broke off.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    #[error("the upstream broke off")]
    Upstream(#[source] hyper::Error),
    #[error("the upstream fell silent")]
    Idle,
    /// In a stream whose end could not be told from a break.
    #[error("the upstream's answer ended before it was whole")]
    Unended,
    /// The proxy's own fault.
    #[error("the answer was not put together to its end")]
    Lost,
}

/// A response's body with its account.
pub struct Relay {
    /// Pieces that were held back; they go first.
    held: VecDeque<Bytes>,
    source: Incoming,
    ready: Ready,
    /// The source's failure, told only after what came before it has gone out.
    failure: Option<hyper::Error>,
    state: State,
    /// Something was handed on. What comes first waits for nothing: it goes out with the response's head.
    begun: bool,
    turns: u8,
    idle: Idle,
    last: Last,
    watch: Option<Box<Watch>>,
    record: Record,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// The source has failed; the connection gets one turn to write what it was given.
    Failing,
    /// The source has ended; what is at hand still goes out.
    Ended,
    Closed,
}

impl Relay {
    /// `idle`: how long the source may be silent.
    pub fn new(source: Incoming, idle: Duration, record: Record) -> Self {
        Self {
            held: VecDeque::new(),
            source,
            ready: Ready::default(),
            failure: None,
            state: State::Open,
            begun: false,
            turns: 0,
            idle: Idle { limit: idle, since: None, timer: None },
            last: Last::of(record.dialect()),
            watch: None,
            record,
        }
    }

    /// Sends `held` before the rest of the source; `trailers` and `failure` are what came behind them.
    pub fn after(mut self, held: VecDeque<Bytes>, trailers: Option<HeaderMap>, failure: Option<hyper::Error>) -> Self {
        self.held = held;
        self.ready.trailers = trailers;
        if failure.is_some() {
            self.failure = failure;
            self.state = State::Failing;
        }
        self
    }

    /// Shows everything that is sent to `watch`.
    pub fn watched_by(mut self, watch: Option<Box<Watch>>) -> Self {
        self.watch = watch;
        self
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        if let Some(piece) = self.held.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        loop {
            if self.state == State::Failing {
                return self.poll_failure(cx);
            }
            if self.state != State::Open || self.ready.is_full() {
                return Poll::Ready(self.ready.take().map(Ok));
            }
            match Pin::new(&mut self.source).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    self.idle.since = None;
                    self.turns = 0;
                    match frame.into_data() {
                        Ok(data) => self.ready.add(data),
                        Err(frame) => self.ready.trailers = frame.into_trailers().ok(),
                    }
                    // A body of known length has ended here: nothing more is waited for.
                    if self.source.is_end_stream() {
                        self.state = State::Ended;
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    self.failure = Some(error);
                    self.state = State::Failing;
                    self.turns = 0;
                }
                Poll::Ready(None) => self.state = State::Ended,
                Poll::Pending if self.ready.is_empty() => {
                    return self.idle.poll_over(cx).map(|()| Some(Err(RelayError::Idle)));
                }
                Poll::Pending if !self.begun || self.turns == TURNS => return Poll::Ready(self.ready.take().map(Ok)),
                Poll::Pending => {
                    self.turns += 1;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
        }
    }

    /// Data, then a turn for the connection to write it, then the failure: an error that follows at once
    /// would take what is still buffered with it.
    fn poll_failure(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        if let Some(frame) = self.ready.take() {
            return Poll::Ready(Some(Ok(frame)));
        }
        if self.turns == 0 {
            self.turns = 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.failure.take().map(|error| Err(RelayError::Upstream(error))))
    }

    /// Whether all that the upstream sent has been handed on.
    fn is_finished(&self) -> bool {
        let ended = match self.state {
            State::Open => self.source.is_end_stream(),
            State::Failing => false,
            State::Ended | State::Closed => true,
        };
        ended && self.held.is_empty() && self.ready.is_empty()
    }

    fn close(&mut self, outcome: Outcome, ending: Ending) {
        self.state = State::Closed;
        self.record.close(outcome);
        if let Some(watch) = self.watch.take() {
            watch.end(ending);
        }
    }
}

impl Body for Relay {
    type Data = Bytes;
    type Error = RelayError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        let this = self.get_mut();
        let next = this.poll_next(cx);
        match &next {
            Poll::Ready(Some(Ok(frame))) => {
                this.begun = true;
                if let Some(data) = frame.data_ref() {
                    this.last.add(data);
                    if let Some(watch) = &mut this.watch {
                        watch.see(data);
                    }
                }
            }
            Poll::Ready(Some(Err(RelayError::Upstream(_) | RelayError::Unended | RelayError::Lost))) => {
                this.close(Outcome::BrokenMidway, Ending::Failed)
            }
            Poll::Ready(Some(Err(RelayError::Idle))) => this.close(Outcome::IdleMidway, Ending::Failed),
            Poll::Ready(None) => this.close(Outcome::Relayed, Ending::Complete),
            Poll::Pending => {}
        }
        next
    }

    fn is_end_stream(&self) -> bool {
        self.is_finished()
    }

    fn size_hint(&self) -> SizeHint {
        let at_hand = self.ready.len() + self.held.iter().map(Bytes::len).sum::<usize>();
        match self.source.size_hint().exact() {
            Some(rest) => SizeHint::with_exact(rest + at_hand as u64),
            None => SizeHint::default(),
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if self.state == State::Closed {
            return;
        }
        if self.is_finished() || self.last.is_final_event() {
            self.close(Outcome::Relayed, Ending::Complete);
        } else {
            self.close(Outcome::ClientGone, Ending::Dropped);
        }
    }
}

/// Chunks at hand. A lone one passes without a copy.
#[derive(Default)]
struct Ready {
    first: Bytes,
    joined: BytesMut,
    trailers: Option<HeaderMap>,
}

impl Ready {
    fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0 && self.trailers.is_none()
    }

    fn is_full(&self) -> bool {
        self.trailers.is_some() || self.first.len() >= WHOLE_BYTES || self.joined.len() >= JOINED_BYTES
    }

    fn add(&mut self, data: Bytes) {
        if self.first.is_empty() && self.joined.is_empty() {
            self.first = data;
            return;
        }
        if self.joined.is_empty() {
            self.joined = BytesMut::with_capacity(JOINED_ROOM.max(self.first.len() + data.len()));
            self.joined.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.joined.extend_from_slice(&data);
    }

    /// The data at hand; once there is none, the trailers.
    fn take(&mut self) -> Option<Frame<Bytes>> {
        if !self.joined.is_empty() {
            // Without what is left of its room, which would stay as long as the stream.
            return Some(Frame::data(std::mem::take(&mut self.joined).freeze()));
        }
        if !self.first.is_empty() {
            return Some(Frame::data(std::mem::take(&mut self.first)));
        }
        self.trailers.take().map(Frame::trailers)
    }
}

/// Watches for silence. The timer is made when the source first runs dry and is moved only when it fires.
struct Idle {
    limit: Duration,
    since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Idle {
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let since = *self.since.get_or_insert_with(Instant::now);
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.limit)));
        while timer.as_mut().poll(cx).is_ready() {
            let left = self.limit.saturating_sub(since.elapsed());
            if left.is_zero() {
                return Poll::Ready(());
            }
            timer.as_mut().reset(tokio::time::Instant::now() + left);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_chunk_is_not_copied_and_several_are_joined() {
        let mut ready = Ready::default();
        let lone = Bytes::from("abc");
        ready.add(lone.clone());
        assert_eq!(ready.take().unwrap().into_data().unwrap().as_ptr(), lone.as_ptr());
        for part in ["a", "b", "c"] {
            ready.add(Bytes::from(part));
        }
        ready.trailers = Some(HeaderMap::new());
        assert_eq!(ready.take().unwrap().into_data().unwrap(), "abc");
        assert!(ready.take().unwrap().is_trailers());
        assert!(ready.take().is_none());
    }
}
