//! The events of a stream with their own bytes, so that those which need no change pass as they are.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

/// Cuts a stream into events, wherever its pieces were cut.
#[derive(Debug, Default)]
pub(super) struct Cutter {
    pending: BytesMut,
    /// Where the line that is not whole yet begins, and up to where it was looked at.
    line: usize,
    seen: usize,
    /// The line that passes has something in it.
    begun: bool,
}

/// One event, up to and including its blank line; or what a stream ended with.
#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) bytes: Bytes,
    /// Where its data stands, if that is one line.
    data: Option<Range<usize>>,
    joined: Bytes,
}

impl Cutter {
    /// The events that are whole with `piece`.
    pub(super) fn push(&mut self, piece: &[u8]) -> Vec<Event> {
        self.pending.extend_from_slice(piece);
        let mut events = Vec::new();
        while let Some(at) = memchr::memchr(b'\n', self.pending.get(self.seen..).unwrap_or_default()) {
            let end = self.seen + at;
            let blank = matches!(self.pending.get(self.line..end), Some(b"" | b"\r"));
            (self.line, self.seen) = (end + 1, end + 1);
            if blank {
                events.push(Event::new(self.pending.split_to(end + 1).freeze()));
                (self.line, self.seen) = (0, 0);
            }
        }
        self.seen = self.pending.len();
        events
    }

    /// What has come of an event that is not whole.
    pub(super) fn pending(&self) -> &[u8] {
        &self.pending
    }

    /// The event that is not whole passes as it comes: what has come of it, taken out.
    pub(super) fn begin_passing(&mut self) -> Bytes {
        self.begun = self.pending.get(self.line..).is_some_and(|line| line.iter().any(|byte| *byte != b'\r'));
        self.rest()
    }

    /// Where the event that passes ends in `piece`.
    pub(super) fn end_of_passing(&mut self, piece: &[u8]) -> Option<usize> {
        let mut line = 0;
        for end in memchr::memchr_iter(b'\n', piece) {
            let blank = matches!(piece.get(line..end), Some(b"" | b"\r"));
            if blank && !self.begun {
                return Some(end + 1);
            }
            (self.begun, line) = (false, end + 1);
        }
        self.begun |= piece.get(line..).is_some_and(|line| line.iter().any(|byte| *byte != b'\r'));
        None
    }

    /// Bytes of an event that is not whole.
    pub(super) fn held(&self) -> usize {
        self.pending.len()
    }

    /// Bytes of an event that is not whole, taken out.
    pub(super) fn rest(&mut self) -> Bytes {
        (self.line, self.seen) = (0, 0);
        self.pending.split().freeze()
    }
}

impl Event {
    pub(super) fn new(bytes: Bytes) -> Self {
        let mut lines = Vec::new();
        let mut at = 0;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let start = at;
            at += line.len();
            let Some(rest) = line.strip_prefix(b"data:") else { continue };
            let value = rest.trim_ascii_end();
            let space = usize::from(value.first() == Some(&b' '));
            lines.push(start + 5 + space..start + 5 + value.len());
        }
        let joined = lines.iter().filter_map(|line| bytes.get(line.clone())).collect::<Vec<_>>().join(&b'\n');
        match <[_; 1]>::try_from(lines) {
            Ok([line]) => Self { joined: bytes.slice(line.clone()), data: Some(line), bytes },
            Err(_) => Self { joined: joined.into(), data: None, bytes },
        }
    }

    /// Its data lines, joined.
    pub(super) fn data(&self) -> &Bytes {
        &self.joined
    }

    /// The event with other data; `data` is JSON.
    pub(super) fn with(&self, data: &[u8]) -> Bytes {
        let around = self.data.as_ref().and_then(|line| self.bytes.get(..line.start).zip(self.bytes.get(line.end..)));
        match around {
            Some((before, behind)) => [before, data, behind].concat().into(),
            None => event(data),
        }
    }
}

/// An event with `data`, which is JSON: line breaks in it are white space.
pub(super) fn event(data: &[u8]) -> Bytes {
    let line: Vec<u8> = data.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect();
    [b"data: ", &*line, b"\n\n"].concat().into()
}
