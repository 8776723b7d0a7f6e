//! An answer's body whose pieces are written together when they are ready together.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// What is gathered at most before it goes out.
const MOST: usize = 64 * 1024;
/// hyper's client hands over one piece, then needs a turn to read the next one: so often the body steps back in
/// favour of other tasks before it takes the source for idle.
const TURNS: u8 = 3;

pub struct Joined {
    source: Incoming,
    gathered: BytesMut,
    trailers: Option<Frame<Bytes>>,
    turns: u8,
    over: bool,
}

impl Joined {
    pub fn new(source: Incoming) -> Self {
        Self { source, gathered: BytesMut::new(), trailers: None, turns: 0, over: false }
    }

    fn hand_out(&mut self) -> Option<Frame<Bytes>> {
        self.turns = 0;
        if self.gathered.is_empty() {
            return self.trailers.take();
        }
        Some(Frame::data(self.gathered.split().freeze()))
    }
}

impl Body for Joined {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        while !self.over && self.trailers.is_none() && self.gathered.len() < MOST {
            match Pin::new(&mut self.source).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        self.turns = 0;
                        self.gathered.extend_from_slice(&data);
                    }
                    Err(trailers) => self.trailers = Some(trailers),
                },
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => self.over = true,
                Poll::Pending if self.gathered.is_empty() => return Poll::Pending,
                Poll::Pending if self.turns < TURNS => {
                    self.turns += 1;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Pending => break,
            }
        }
        Poll::Ready(self.hand_out().map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.gathered.is_empty() && self.trailers.is_none() && (self.over || self.source.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match self.gathered.is_empty() {
            true => self.source.size_hint(),
            false => SizeHint::default(),
        }
    }
}
