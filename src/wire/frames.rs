//! WebSocket frames (RFC 6455) as they pass: text messages are put together and read, all else goes on as it
//! came, in order. Nothing is answered here: pings and closes are between the two ends.

use std::collections::VecDeque;
use std::io::Cursor;

use bytes::{Buf, Bytes, BytesMut};
use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Control, Data, OpCode};

/// What has come of one direction, in order.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// A whole text message: its frames as they came, and what it says (unmasked, not checked to be UTF-8).
    Text { raw: Vec<Bytes>, text: Vec<u8> },
    /// A ping or pong, whole. It may stand between the frames of a message.
    Control(Bytes),
    /// A close, whole: the last frame of its direction.
    Close(Bytes),
    /// Some bytes of anything else.
    Opaque(Bytes),
}

impl Piece {
    /// Bytes on the wire.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text { raw, .. } => raw.iter().map(Bytes::len).sum(),
            Self::Control(raw) | Self::Close(raw) | Self::Opaque(raw) => raw.len(),
        }
    }
}

/// What a frame counts beside its bytes, so that empty ones do not come for nothing.
const FRAME_COST: usize = 64;
/// Payload of a ping, pong or close (RFC 6455, 5.5).
const MOST_CONTROL: u64 = 125;

/// Takes the bytes of one direction apart.
pub struct Frames {
    buffer: BytesMut,
    /// Bytes of a text message that are put together at most; longer ones are opaque.
    limit: usize,
    gathering: Option<Gathering>,
    /// Bytes of the current frame that are still to be passed on.
    through: u64,
    /// What comes next continues a message that is passed on.
    continues: bool,
    /// What came is no WebSocket: all that follows is passed on.
    lost: bool,
    ready: VecDeque<Piece>,
}

#[derive(Default)]
struct Gathering {
    raw: Vec<Bytes>,
    text: Vec<u8>,
    /// Of the frames so far: their bytes on the wire and [`FRAME_COST`] each.
    cost: usize,
}

/// A frame's header: its own length in bytes, and its payload's.
struct Head {
    header: FrameHeader,
    len: usize,
    payload: u64,
}

impl Frames {
    pub fn new(limit: usize) -> Self {
        let (buffer, ready) = (BytesMut::new(), VecDeque::new());
        Self { buffer, limit, gathering: None, through: 0, continues: false, lost: false, ready }
    }

    /// Takes in what was read.
    pub fn push(&mut self, data: &[u8]) {
        self.buffer.extend_from_slice(data);
        while self.step() {}
    }

    /// What is complete.
    pub fn next_piece(&mut self) -> Option<Piece> {
        self.ready.pop_front()
    }

    /// The direction has ended: what was begun is passed on as it is.
    pub fn finish(&mut self) {
        self.spill();
        let rest = self.buffer.split();
        self.pass(rest);
    }

    /// Bytes held of what is not complete: frames, and what they say.
    pub fn held(&self) -> usize {
        self.buffer.len() + self.gathering.as_ref().map_or(0, |gathering| gathering.cost + gathering.text.len())
    }

    /// Whether all that came of it was whole messages: nothing would be torn apart by a frame put here.
    pub fn is_between(&self) -> bool {
        let within = self.through > 0 || self.continues || self.lost;
        self.buffer.is_empty() && self.gathering.is_none() && !within
    }

    /// Passes on, unread, the message that is being put together.
    pub fn give_up(&mut self) {
        let begun = self.gathering.is_some();
        self.spill();
        self.continues |= begun;
        if let Ok(Some(head)) = self.head() {
            let data = matches!(head.header.opcode, OpCode::Data(_));
            if data && self.through == 0 {
                self.continues = !head.header.is_final;
                self.through = head.payload.saturating_add(head.len as u64);
                while self.step() {}
            }
        }
    }

    /// Takes one step; whether another may follow.
    fn step(&mut self) -> bool {
        if self.buffer.is_empty() {
            return false;
        }
        if self.lost {
            let rest = self.buffer.split();
            self.pass(rest);
            return false;
        }
        if self.through > 0 {
            let len = usize::try_from(self.through).unwrap_or(usize::MAX).min(self.buffer.len());
            let part = self.buffer.split_to(len);
            self.through -= len as u64;
            self.pass(part);
            return true;
        }
        match self.head() {
            Ok(Some(head)) => self.frame(&head),
            Ok(None) => false,
            Err(()) => {
                self.spill();
                self.lost = true;
                true
            }
        }
    }

    fn head(&self) -> Result<Option<Head>, ()> {
        let mut cursor = Cursor::new(&self.buffer);
        let parsed = FrameHeader::parse(&mut cursor).map_err(|_| ())?;
        let len = cursor.position() as usize;
        Ok(parsed.map(|(header, payload)| Head { header, len, payload }))
    }

    /// Takes the frame that the buffer begins with; false if it is not complete and must be.
    fn frame(&mut self, head: &Head) -> bool {
        let whole = usize::try_from(head.payload).ok().and_then(|payload| payload.checked_add(head.len));
        match head.header.opcode {
            OpCode::Control(_) if head.payload > MOST_CONTROL || !head.header.is_final => {
                self.spill();
                self.lost = true;
                true
            }
            OpCode::Control(control) => {
                let Some(frame) = whole.filter(|whole| *whole <= self.buffer.len()) else { return false };
                let frame = self.buffer.split_to(frame).freeze();
                let close = control == Control::Close;
                self.ready.push_back(if close { Piece::Close(frame) } else { Piece::Control(frame) });
                true
            }
            OpCode::Data(data) => {
                let begins = data == Data::Text && !self.continues && self.gathering.is_none();
                let goes_on = data == Data::Continue && self.gathering.is_some();
                let compressed = head.header.rsv1 || head.header.rsv2 || head.header.rsv3;
                let held = self.gathering.as_ref().map_or(0, |gathering| gathering.cost);
                let fits = whole.filter(|whole| whole.saturating_add(held) <= self.limit);
                match fits.filter(|_| (begins || goes_on) && !compressed) {
                    Some(whole) if whole > self.buffer.len() => false,
                    Some(whole) => {
                        self.gather(head, whole);
                        true
                    }
                    None => {
                        self.spill();
                        self.continues = !head.header.is_final;
                        self.through = head.payload.saturating_add(head.len as u64);
                        true
                    }
                }
            }
        }
    }

    /// Adds a whole frame to the message that it belongs to.
    fn gather(&mut self, head: &Head, whole: usize) {
        let frame = self.buffer.split_to(whole).freeze();
        let mut gathering = self.gathering.take().unwrap_or_default();
        let from = gathering.text.len();
        gathering.text.extend_from_slice(frame.get(head.len..).unwrap_or_default());
        if let (Some(mask), Some(new)) = (head.header.mask, gathering.text.get_mut(from..)) {
            masked(new, mask);
        }
        gathering.cost += frame.len() + FRAME_COST;
        gathering.raw.push(frame);
        match head.header.is_final {
            true => self.ready.push_back(Piece::Text { raw: gathering.raw, text: gathering.text }),
            false => self.gathering = Some(gathering),
        }
    }

    /// Passes on what was gathered of a message.
    fn spill(&mut self) {
        let gathered = self.gathering.take().unwrap_or_default();
        self.ready.extend(gathered.raw.into_iter().map(Piece::Opaque));
    }

    fn pass(&mut self, mut part: BytesMut) {
        if part.has_remaining() {
            self.ready.push_back(Piece::Opaque(part.split().freeze()));
        }
    }
}

/// One text frame that says `text`; a client's is masked, a server's is not (RFC 6455, 5.1).
pub fn text_frame(text: &[Bytes], mask: Option<[u8; 4]>) -> Bytes {
    let payload: usize = text.iter().map(Bytes::len).sum();
    let header = FrameHeader { opcode: OpCode::Data(Data::Text), mask, ..FrameHeader::default() };
    let mut frame = Vec::with_capacity(header.len(payload as u64) + payload);
    // Writing to memory does not fail.
    let _ = header.format(payload as u64, &mut frame);
    let from = frame.len();
    text.iter().for_each(|piece| frame.extend_from_slice(piece));
    if let (Some(mask), Some(new)) = (mask, frame.get_mut(from..)) {
        masked(new, mask);
    }
    frame.into()
}

/// A close frame; a client's is masked, a server's is not.
pub fn close_frame(code: u16, mask: Option<[u8; 4]>) -> Bytes {
    let header = FrameHeader { opcode: OpCode::Control(Control::Close), mask, ..FrameHeader::default() };
    let (mut frame, mut payload) = (Vec::new(), code.to_be_bytes());
    let _ = header.format(payload.len() as u64, &mut frame);
    if let Some(mask) = mask {
        masked(&mut payload, mask);
    }
    frame.extend_from_slice(&payload);
    frame.into()
}

/// Masks and unmasks.
fn masked(text: &mut [u8], mask: [u8; 4]) {
    text.iter_mut().zip(mask.into_iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
}

#[cfg(test)]
#[path = "tests/frames.rs"]
mod tests;
