//! The body of an answer that is made of several: what the driver of its rounds hands on, with its account.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;
use tokio::sync::mpsc;

use super::outcome::{Outcome, Record};
use super::relay::{Last, RelayError};
use crate::wire::usage::Usage;

/// Pieces that wait for the client; beyond it the upstream waits.
pub const WAITING: usize = 4;

/// What the rounds of an answer came to.
#[derive(Debug, Default)]
pub struct Tally {
    rounds: AtomicU64,
    prompt: AtomicU64,
    completion: AtomicU64,
}

impl Tally {
    /// An upstream's answer has ended.
    pub fn round(&self, usage: Option<Usage>) {
        let Usage { prompt_tokens, completion_tokens, .. } =
            usage.unwrap_or(Usage { prompt_tokens: 0, completion_tokens: 0, cached_tokens: 0 });
        self.rounds.fetch_add(1, Ordering::Relaxed);
        self.prompt.fetch_add(prompt_tokens, Ordering::Relaxed);
        self.completion.fetch_add(completion_tokens, Ordering::Relaxed);
    }

    /// Model calls, and the tokens of all of them.
    pub fn totals(&self) -> (u64, u64, u64) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (of(&self.rounds), of(&self.prompt), of(&self.completion))
    }
}

/// A body that its driver writes.
pub struct Spliced {
    pieces: mpsc::Receiver<Result<Bytes, RelayError>>,
    last: Last,
    tally: Arc<Tally>,
    record: Record,
    closed: bool,
}

impl Spliced {
    pub fn new(pieces: mpsc::Receiver<Result<Bytes, RelayError>>, tally: Arc<Tally>, record: Record) -> Self {
        Self { pieces, last: Last::default(), tally, record, closed: false }
    }

    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        let next = self.pieces.poll_recv(cx);
        match &next {
            Poll::Ready(Some(Ok(data))) => self.last.add(data),
            Poll::Ready(Some(Err(RelayError::Upstream(_)))) => self.close(Outcome::BrokenMidway),
            Poll::Ready(Some(Err(RelayError::Idle))) => self.close(Outcome::IdleMidway),
            Poll::Ready(None) => self.close(Outcome::Relayed),
            Poll::Pending => {}
        }
        next.map(|next| next.map(|piece| piece.map(Frame::data)))
    }

    fn close(&mut self, outcome: Outcome) {
        self.closed = true;
        self.record.made_of(self.tally.totals());
        self.record.close(outcome);
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
