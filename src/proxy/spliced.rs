//! The body of an answer that is made of several: what the driver of its rounds hands on, with its account.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Frame;
use tokio::sync::mpsc;

use super::last::Last;
use super::outcome::{Outcome, Record};
use super::relay::RelayError;
use crate::telemetry::metrics::Rounds;
use crate::wire::usage::Usage;

/// Pieces that wait for the client; beyond it the upstream waits.
pub const WAITING: usize = 4;

/// What the rounds of an answer came to.
#[derive(Debug, Default)]
pub struct Tally {
    calls: AtomicU64,
    input: AtomicU64,
    cached: AtomicU64,
    output: AtomicU64,
    finished: AtomicBool,
}

impl Tally {
    /// An upstream's answer has ended.
    pub fn round(&self, usage: Option<Usage>) {
        let Usage { prompt_tokens, completion_tokens, cached_tokens } =
            usage.unwrap_or(Usage { prompt_tokens: 0, completion_tokens: 0, cached_tokens: 0 });
        let counts = [(&self.calls, 1), (&self.input, prompt_tokens), (&self.cached, cached_tokens)];
        for (count, more) in counts.into_iter().chain([(&self.output, completion_tokens)]) {
            count.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// The answer has been written to its end. Without this it has broken off, whatever became of its driver.
    pub fn finish(&self) {
        self.finished.store(true, Ordering::Release);
    }

    /// Model calls, and the tokens of all of them.
    pub fn totals(&self) -> Rounds {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (calls, input, cached, output) = (of(&self.calls), of(&self.input), of(&self.cached), of(&self.output));
        Rounds { calls, input, cached, output }
    }
}

/// A body that its driver writes.
pub struct Spliced {
    pieces: Pieces,
    last: Last,
    record: Record,
    closed: bool,
}

/// What the driver hands on, and how it ends.
struct Pieces {
    queue: mpsc::Receiver<Result<Bytes, RelayError>>,
    tally: Arc<Tally>,
    /// Why the answer broke off: told only once the connection had a turn to write what it was given.
    failure: Option<RelayError>,
}

impl Spliced {
    pub fn new(pieces: mpsc::Receiver<Result<Bytes, RelayError>>, tally: Arc<Tally>, record: Record) -> Self {
        let pieces = Pieces { queue: pieces, tally, failure: None };
        Self { pieces, last: Last::default(), record, closed: false }
    }

    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        let next = self.pieces.poll_next(cx);
        match &next {
            Poll::Ready(Some(Ok(data))) => self.last.add(data),
            Poll::Ready(Some(Err(RelayError::Upstream(_) | RelayError::Unended | RelayError::Lost))) => {
                self.close(Outcome::BrokenMidway);
            }
            Poll::Ready(Some(Err(RelayError::Idle))) => self.close(Outcome::IdleMidway),
            Poll::Ready(None) => self.close(Outcome::Relayed),
            Poll::Pending => {}
        }
        next.map(|next| next.map(|piece| piece.map(Frame::data)))
    }

    fn close(&mut self, outcome: Outcome) {
        self.closed = true;
        self.record.made_of(self.pieces.tally.totals());
        self.record.close(outcome);
    }
}

impl Pieces {
    /// The next piece. A driver that is gone before the end (it panicked, or its runtime ended) leaves an answer that
    /// has broken off, not one that is complete.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, RelayError>>> {
        if let Some(failure) = self.failure.take() {
            return Poll::Ready(Some(Err(failure)));
        }
        let failure = match ready!(self.queue.poll_recv(cx)) {
            None if self.tally.finished.load(Ordering::Acquire) => return Poll::Ready(None),
            None => RelayError::Lost,
            Some(Err(error)) => error,
            Some(Ok(piece)) => return Poll::Ready(Some(Ok(piece))),
        };
        self.failure = Some(failure);
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Spliced {
    fn drop(&mut self) {
        if !self.closed {
            let whole = self.last.is_final_event();
            self.close(if whole { Outcome::Relayed } else { Outcome::ClientGone });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn an_answer_whose_driver_is_lost_has_broken_off() {
        for finished in [true, false] {
            let (sender, queue) = mpsc::channel(WAITING);
            let tally = Arc::new(Tally::default());
            let mut pieces = Pieces { queue, tally: Arc::clone(&tally), failure: None };
            let told = tally;
            let driver = tokio::spawn(async move {
                let _ = sender.send(Ok(Bytes::from("a"))).await;
                if finished {
                    told.finish();
                } else {
                    std::panic::resume_unwind(Box::new("lost"));
                }
            });
            assert!(matches!(poll_fn(|cx| pieces.poll_next(cx)).await, Some(Ok(piece)) if piece == "a"));
            let end = poll_fn(|cx| pieces.poll_next(cx)).await;
            match finished {
                true => assert!(end.is_none()),
                false => assert!(matches!(end, Some(Err(RelayError::Lost)))),
            }
            let _ = driver.await;
        }
    }
}
