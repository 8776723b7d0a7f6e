//! What is learned from an answer that passes: its last bytes, decoded, and how it ended.

use std::collections::VecDeque;

use bytes::Bytes;
use http::HeaderMap;

use super::chains::Recorder;
use super::foresight::Foresight;
use super::journal::Listener;
use super::legible::Legible;
use crate::wire::usage::Shown;

/// How much of an answer's end is kept.
pub const TAIL_BYTES: usize = 16 * 1024;
/// How much of one encoded answer is decoded before its observer gives up.
pub const DECODED_BYTES: usize = 64 * 1024 * 1024;

/// How a response body ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Complete,
    /// The upstream broke off or fell silent.
    Failed,
    /// The client went away first.
    Dropped,
}

/// The last bytes of a body, at most [`TAIL_BYTES`]. Copied: a shared piece would keep the whole read
/// buffer that it was cut from.
#[derive(Debug, Default)]
pub struct Tail {
    bytes: VecDeque<u8>,
    cut: bool,
}

/// Sees an answer pass and tells of its end, once.
pub struct Watch {
    tail: Tail,
    recorder: Option<Recorder>,
    listener: Option<Listener>,
    foresight: Option<Foresight>,
    legible: Legible,
    on_end: Box<dyn FnOnce(Ending, Tail) + Send>,
}

impl Tail {
    pub fn push(&mut self, piece: &[u8]) {
        let last = piece.get(piece.len().saturating_sub(TAIL_BYTES)..).unwrap_or_default();
        let over = (self.bytes.len() + last.len()).saturating_sub(TAIL_BYTES);
        self.cut |= over > 0 || last.len() < piece.len();
        self.bytes.drain(..over);
        self.bytes.extend(last);
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.bytes.iter().copied().collect()
    }

    /// Whether these are all bytes of the body.
    pub fn is_whole(&self) -> bool {
        !self.cut
    }

    /// What the window shows of the body.
    pub fn shown(&self) -> Shown {
        if self.cut { Shown::End } else { Shown::All }
    }
}

impl Watch {
    /// `on_end` runs on the shard's thread: it may parse the tail, nothing longer.
    /// `None`: an answer with such headers cannot be read.
    pub fn new(headers: &HeaderMap, on_end: impl FnOnce(Ending, Tail) + Send + 'static) -> Option<Box<Self>> {
        let legible = Legible::of(headers, DECODED_BYTES)?;
        Some(Box::new(Self {
            tail: Tail::default(),
            recorder: None,
            listener: None,
            foresight: None,
            legible,
            on_end: Box::new(on_end),
        }))
    }

    pub fn see(&mut self, data: &Bytes) {
        let Self { tail, recorder, listener, foresight, legible, .. } = self;
        legible.feed(data, |decoded| {
            tail.push(decoded);
            if let Some(recorder) = recorder {
                recorder.see(decoded);
            }
            if let Some(listener) = listener {
                listener.see(decoded);
            }
            *foresight = foresight.take().and_then(|foresight| foresight.see(decoded));
        });
    }

    /// Shows the answer to `recorder` too.
    pub fn recorded_by(mut self: Box<Self>, recorder: Option<Recorder>) -> Box<Self> {
        self.recorder = recorder;
        self
    }

    /// Has the log hear the answer.
    pub fn heard_by(mut self: Box<Self>, listener: Option<Listener>) -> Box<Self> {
        self.listener = listener;
        self
    }

    /// Has recovery foresee what it would do.
    pub fn foreseen_by(mut self: Box<Self>, foresight: Option<Foresight>) -> Box<Self> {
        self.foresight = foresight;
        self
    }

    pub fn end(self, ending: Ending) {
        if let Some(foresight) = self.foresight {
            foresight.finish();
        }
        if let Some(listener) = self.listener.filter(|_| ending == Ending::Complete) {
            listener.finish();
        }
        (self.on_end)(ending, self.tail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_keeps_the_last_bytes() {
        let mut tail = Tail::default();
        for n in 0..TAIL_BYTES {
            tail.push(&[(n % 251) as u8]);
            assert!(tail.is_whole());
        }
        tail.push(&[7]);
        assert!(!tail.is_whole());
        let expected: Vec<u8> = (1..TAIL_BYTES).map(|n| (n % 251) as u8).chain([7]).collect();
        assert_eq!(tail.bytes(), expected);
    }

    #[test]
    fn one_large_piece_is_cut_to_the_tail() {
        let mut tail = Tail::default();
        tail.push(&[1; TAIL_BYTES]);
        assert!(tail.is_whole());
        tail.push(&[2; TAIL_BYTES + 1]);
        assert_eq!(tail.bytes(), vec![2; TAIL_BYTES]);
        assert!(!tail.is_whole());
    }
}
