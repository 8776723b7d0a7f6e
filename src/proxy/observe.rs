//! What is learned from an answer that passes: its last bytes, decoded, and how it ended.

use std::collections::VecDeque;

use bytes::Bytes;

use super::encoding::{Decoder, Encoding};

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

/// The last bytes of a body.
#[derive(Debug, Default)]
pub struct Tail {
    pieces: VecDeque<Bytes>,
    len: usize,
    cut: bool,
}

/// Sees an answer pass and tells of its end, once.
pub struct Watch {
    tail: Tail,
    /// `None`: not encoded.
    decoder: Option<Decoder>,
    on_end: Box<dyn FnOnce(Ending, Tail) + Send>,
}

impl Tail {
    pub fn push(&mut self, piece: Bytes) {
        self.len += piece.len();
        self.pieces.push_back(piece);
        // The oldest piece goes once the others fill the tail without it.
        while let Some(oldest) = self.pieces.front().map(Bytes::len) {
            if self.len - oldest < TAIL_BYTES {
                break;
            }
            self.pieces.pop_front();
            self.len -= oldest;
            self.cut = true;
        }
    }

    /// The last bytes, at most [`TAIL_BYTES`].
    pub fn bytes(&self) -> Vec<u8> {
        let all: Vec<u8> = self.pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
        let from = all.len().saturating_sub(TAIL_BYTES);
        all.get(from..).unwrap_or_default().to_vec()
    }

    /// Whether these are all bytes of the body.
    pub fn is_whole(&self) -> bool {
        !self.cut && self.len <= TAIL_BYTES
    }
}

impl Watch {
    /// `on_end` runs on the shard's thread: it may parse the tail, nothing longer.
    pub fn new(encoding: Encoding, on_end: impl FnOnce(Ending, Tail) + Send + 'static) -> Box<Self> {
        let decoder = Decoder::new(encoding, DECODED_BYTES);
        Box::new(Self { tail: Tail::default(), decoder, on_end: Box::new(on_end) })
    }

    pub fn see(&mut self, data: &Bytes) {
        match &mut self.decoder {
            None => self.tail.push(data.clone()),
            Some(decoder) => decoder.feed(data.clone(), |decoded| self.tail.push(Bytes::copy_from_slice(decoded))),
        }
    }

    pub fn end(self, ending: Ending) {
        (self.on_end)(ending, self.tail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_keeps_the_last_bytes_and_little_more() {
        let mut tail = Tail::default();
        for n in 0..=TAIL_BYTES {
            assert!(tail.is_whole());
            tail.push(Bytes::from(vec![(n % 251) as u8]));
        }
        assert!(!tail.is_whole());
        assert_eq!(tail.pieces.len(), TAIL_BYTES);
        let expected: Vec<u8> = (1..=TAIL_BYTES).map(|n| (n % 251) as u8).collect();
        assert_eq!(tail.bytes(), expected);
    }

    #[test]
    fn one_large_piece_is_cut_to_the_tail() {
        let mut tail = Tail::default();
        tail.push(Bytes::from(vec![1; TAIL_BYTES]));
        assert!(tail.is_whole());
        tail.push(Bytes::from(vec![2; TAIL_BYTES + 1]));
        assert_eq!(tail.bytes(), vec![2; TAIL_BYTES]);
        assert!(!tail.is_whole());
    }
}
