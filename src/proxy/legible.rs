//! An answer's bytes as they are read: without their content coding, and Amazon's frames as server-sent events.

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;

use super::encoding::{Decoder, Encoding};
use crate::wire::amazon::{EventStream, MEDIA_TYPE};

/// Makes an answer legible piece by piece as it passes.
pub struct Legible {
    /// `None`: not encoded.
    decoder: Option<Decoder>,
    /// `None`: no such frames.
    frames: Option<EventStream>,
}

impl Legible {
    /// For an answer with these headers. `None`: its coding is not known. After `cap` decoded bytes it gives up.
    pub fn of(headers: &HeaderMap, cap: usize) -> Option<Self> {
        let decoder = Decoder::new(Encoding::of(headers)?, cap);
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.as_bytes().get(..MEDIA_TYPE.len()));
        let framed = kind.is_some_and(|kind| kind.eq_ignore_ascii_case(MEDIA_TYPE.as_bytes()));
        Some(Self { decoder, frames: framed.then(EventStream::default) })
    }

    /// Whether the answer is as it is read.
    pub fn is_plain(&self) -> bool {
        self.decoder.is_none() && self.frames.is_none()
    }

    /// Hands on what `data` completes.
    pub fn feed(&mut self, data: &Bytes, mut sink: impl FnMut(&[u8])) {
        match (&mut self.decoder, &mut self.frames) {
            (None, None) => sink(data),
            (None, Some(frames)) => frames.push(data, sink),
            (Some(decoder), None) => decoder.feed(data.clone(), sink),
            (Some(decoder), Some(frames)) => decoder.feed(data.clone(), |piece| frames.push(piece, &mut sink)),
        }
    }

    /// Whether something came that could not be read; then it hands on nothing more.
    pub fn has_given_up(&self) -> bool {
        self.decoder.as_ref().is_some_and(|decoder| decoder.failed().is_some())
            || self.frames.as_ref().is_some_and(EventStream::has_given_up)
    }
}
