//! The bodies of requests to an upstream.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Sleep;

use super::budget::Permit;

/// How long a body waits for the upstream's `100 Continue` before it goes out without.
const CONTINUE_WAIT: Duration = Duration::from_secs(1);

/// A request's body on its way out.
pub enum SendBody {
    /// As it comes from the client.
    Stream(Incoming),
    /// As it comes from the client, once the upstream asks for it.
    Expected(Box<Expected>),
    /// Taken in.
    Pieces(Pieces),
    /// What was read of a body that then proved too large, and the rest as it comes.
    Spilled(Box<Spilled>),
}

/// A body that is all here, as pieces that go out one after another without being joined.
pub struct Pieces {
    queue: VecDeque<Bytes>,
    left: u64,
    framing: Framing,
    trailers: Option<HeaderMap>,
    _permit: Option<Arc<Permit>>,
}

/// How a body's end is marked on HTTP/1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// By its length.
    Length,
    /// By chunks; only such a body can carry trailers.
    Chunked,
}

pub struct Spilled {
    read: Pieces,
    rest: Incoming,
}

/// Opened by the upstream's `100 Continue`.
#[derive(Default)]
pub struct Gate {
    open: AtomicBool,
    waiting: AtomicWaker,
}

pub struct Expected {
    gate: Arc<Gate>,
    patience: Option<Pin<Box<Sleep>>>,
    inner: Incoming,
}

impl Gate {
    pub fn open(&self) {
        self.open.store(true, Ordering::Release);
        self.waiting.wake();
    }

    fn poll_open(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.waiting.register(cx.waker());
        if self.open.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Expected {
    pub fn new(inner: Incoming, gate: Arc<Gate>) -> Self {
        Self { gate, patience: None, inner }
    }

    fn poll_wanted(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.gate.poll_open(cx).is_pending() {
            let patience = self.patience.get_or_insert_with(|| Box::pin(tokio::time::sleep(CONTINUE_WAIT)));
            ready!(patience.as_mut().poll(cx));
            self.gate.open();
        }
        Poll::Ready(())
    }
}

impl Pieces {
    /// `permit` is held until the body has gone out.
    pub fn new(pieces: impl IntoIterator<Item = Bytes>, framing: Framing, permit: Option<Arc<Permit>>) -> Self {
        let queue: VecDeque<Bytes> = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
        let left = queue.iter().map(|piece| piece.len() as u64).sum();
        Self { queue, left, framing, trailers: None, _permit: permit }
    }

    /// Only a chunked body sends them.
    pub fn with_trailers(mut self, trailers: Option<HeaderMap>) -> Self {
        self.trailers = trailers.filter(|_| self.framing == Framing::Chunked);
        self
    }

    fn next(&mut self) -> Option<Frame<Bytes>> {
        match self.queue.pop_front() {
            Some(piece) => {
                self.left = self.left.saturating_sub(piece.len() as u64);
                Some(Frame::data(piece))
            }
            None => self.trailers.take().map(Frame::trailers),
        }
    }

    fn is_done(&self) -> bool {
        self.queue.is_empty() && self.trailers.is_none()
    }
}

impl Spilled {
    pub fn new(read: Pieces, rest: Incoming) -> Self {
        Self { read, rest }
    }
}

impl Body for SendBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Stream(incoming) => Pin::new(incoming).poll_frame(cx),
            Self::Expected(expected) => {
                ready!(expected.poll_wanted(cx));
                Pin::new(&mut expected.inner).poll_frame(cx)
            }
            Self::Pieces(pieces) => Poll::Ready(pieces.next().map(Ok)),
            Self::Spilled(spilled) => match spilled.read.next() {
                Some(frame) => Poll::Ready(Some(Ok(frame))),
                None => Pin::new(&mut spilled.rest).poll_frame(cx),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Stream(incoming) => incoming.is_end_stream(),
            Self::Expected(expected) => expected.inner.is_end_stream(),
            Self::Pieces(pieces) => pieces.is_done(),
            Self::Spilled(spilled) => spilled.read.is_done() && spilled.rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Stream(incoming) => incoming.size_hint(),
            Self::Expected(expected) => expected.inner.size_hint(),
            Self::Pieces(pieces) if pieces.framing == Framing::Chunked => SizeHint::default(),
            Self::Pieces(pieces) => SizeHint::with_exact(pieces.left),
            Self::Spilled(spilled) => match spilled.rest.size_hint().exact() {
                Some(rest) => SizeHint::with_exact(spilled.read.left + rest),
                None => SizeHint::default(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn pieces_go_out_whole_and_in_order_with_an_exact_length() {
        let pieces = [Bytes::from("ab"), Bytes::new(), Bytes::from("c")];
        let body = SendBody::Pieces(Pieces::new(pieces, Framing::Length, None));
        assert_eq!(body.size_hint().exact(), Some(3));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "abc");
    }

    #[tokio::test]
    async fn only_a_chunked_body_sends_trailers() {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "1".parse().unwrap());
        for (framing, sent) in [(Framing::Length, false), (Framing::Chunked, true)] {
            let pieces = Pieces::new([Bytes::from("a")], framing, None).with_trailers(Some(trailers.clone()));
            let collected = SendBody::Pieces(pieces).collect().await.unwrap();
            assert_eq!(collected.trailers().is_some(), sent);
        }
    }
}
