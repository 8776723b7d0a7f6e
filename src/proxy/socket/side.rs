//! One end of a socket: what is read from it, and what waits to be written to it.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};

use super::super::budget::{Budget, Permit};
use crate::wire::frames::Frames;

/// Bytes that one read takes at most.
const READ_BYTES: usize = 16 * 1024;
/// From so many bytes on that wait for one end, nothing more is read for it.
const WAITING_BYTES: usize = 256 * 1024;

/// One end.
pub struct Side<S> {
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    pub frames: Frames,
    /// Whether more may come from it.
    pub open: bool,
    out: Out,
    /// What the messages that are being put together cost of `max_buffered_bytes`.
    permit: Permit,
    budget: Arc<Budget>,
}

/// What waits to be written.
struct Out {
    waiting: VecDeque<Bytes>,
    bytes: usize,
    flushed: bool,
    end: End,
}

/// The end of what is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    NotYet,
    Due,
    Said,
}

/// Whether an end may be read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    On,
    /// The other end, or the message before, must get further first.
    Paused,
}

impl<S: AsyncRead + AsyncWrite> Side<S> {
    /// Texts of up to `limit` bytes are read, as far as `budget` allows.
    pub fn new(stream: S, limit: usize, budget: &Arc<Budget>) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        let out = Out { waiting: VecDeque::new(), bytes: 0, flushed: true, end: End::NotYet };
        let (permit, budget) = (Permit::empty(budget), Arc::clone(budget));
        Self { reader, writer, frames: Frames::new(limit), open: true, out, permit, budget }
    }

    /// Waits until one step was taken: something was read (where `reading` allows it), or written of what waits.
    /// Loses nothing when dropped.
    pub async fn advance(&mut self, reading: Reading) -> io::Result<()> {
        let mut buffer = [0; READ_BYTES];
        let (reads, writes) = (self.open && reading == Reading::On, self.is_busy());
        tokio::select! {
            read = self.reader.read(&mut buffer), if reads => {
                match read? {
                    // What was begun counts as it is.
                    0 => {
                        self.open = false;
                        self.frames.finish();
                    }
                    read => self.frames.push(buffer.get(..read).unwrap_or_default()),
                }
                self.account();
                Ok(())
            }
            written = self.out.advance(&mut self.writer), if writes => written,
            () = std::future::pending(), if !reads && !writes => Ok(()),
        }
    }

    /// Lets the budget know what is held; a message that it has no room for passes unread.
    fn account(&mut self) {
        let (held, counted) = (self.frames.held(), self.permit.bytes());
        match held.checked_sub(counted) {
            Some(more) => {
                if !self.permit.grow(more) {
                    self.frames.give_up();
                }
            }
            None => {
                let mut permit = Permit::empty(&self.budget);
                if permit.grow(held) {
                    self.permit = permit;
                }
            }
        }
    }

    /// Nothing can be read from it or written to it any more.
    pub fn fail(&mut self) {
        self.open = false;
        self.frames.finish();
        self.out = Out { waiting: VecDeque::new(), bytes: 0, flushed: true, end: End::Said };
    }

    /// Puts bytes behind those that wait to be written.
    pub fn put(&mut self, bytes: Bytes) {
        if self.out.end == End::Said {
            return;
        }
        self.out.bytes += bytes.len();
        self.out.waiting.push_back(bytes);
    }

    /// Whether more may be read for this end.
    pub fn has_room(&self) -> bool {
        self.out.bytes < WAITING_BYTES
    }

    /// Says that nothing more is put.
    pub fn end(&mut self) {
        if self.out.end == End::NotYet {
            self.out.end = End::Due;
        }
    }

    /// Whether something waits to be written.
    pub fn is_busy(&self) -> bool {
        !self.out.waiting.is_empty() || !self.out.flushed || self.out.end == End::Due
    }
}

impl Out {
    /// Writes once, flushes, or shuts the direction down.
    async fn advance<W: AsyncWrite + Unpin>(&mut self, writer: &mut W) -> io::Result<()> {
        if let Some(first) = self.waiting.front_mut() {
            let written = writer.write(first).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            first.advance(written);
            self.bytes -= written;
            if first.is_empty() {
                self.waiting.pop_front();
            }
            self.flushed = false;
        } else if !self.flushed {
            writer.flush().await?;
            self.flushed = true;
        } else {
            writer.shutdown().await?;
            self.end = End::Said;
        }
        Ok(())
    }
}
