//! Looks at HTTP/1 message heads as they arrive and finds those whose framing is ambiguous: what two
//! parsers could take for two different messages is refused before it is parsed at all.
//!
//! The check follows message boundaries only as far as they are plain. Where they are not, it steps
//! aside and leaves the rest of the connection to the HTTP library's own, stricter reading.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use memchr::memchr;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::wire::Dialect;

/// Longest line of a head; the HTTP library has its own limit for the whole head.
const MAX_LINE: usize = 128 * 1024;

/// A message that is not read further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    pub reason: &'static str,
    /// Dialect of the request's path.
    pub dialect: Option<Dialect>,
}

/// What a connection's check and its service tell each other.
#[derive(Default)]
pub struct Watched {
    /// Set once, when the connection's framing was refused.
    refusal: OnceLock<Refusal>,
    /// A 101 goes out: what follows is not HTTP.
    switched: AtomicBool,
    /// Responses that have begun and not ended.
    running: AtomicUsize,
    /// Bytes of a response wait for the client to read.
    blocked: AtomicBool,
}

impl Watched {
    pub fn refusal(&self) -> Option<Refusal> {
        self.refusal.get().copied()
    }

    /// Whether the proxy may write an answer of its own: in the middle of another it would be part of that.
    pub fn is_quiet(&self) -> bool {
        self.running.load(Ordering::Acquire) == 0 && !self.blocked.load(Ordering::Acquire)
    }

    /// A 101 is about to go out.
    pub fn switch(&self) {
        self.switched.store(true, Ordering::Release);
    }

    /// A request was taken up; its response runs until this is dropped.
    pub fn begin(self: &Arc<Self>) -> Running {
        self.running.fetch_add(1, Ordering::AcqRel);
        Running(Arc::clone(self))
    }
}

/// A response on its way.
pub struct Running(Arc<Watched>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A client's connection whose message heads are checked.
pub struct Checked<S> {
    io: S,
    heads: Heads,
    watched: Arc<Watched>,
}

impl<S> Checked<S> {
    pub fn new(io: S) -> (Self, Arc<Watched>) {
        let watched = Arc::<Watched>::default();
        (Self { io, heads: Heads::default(), watched: Arc::clone(&watched) }, watched)
    }

    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.watched.blocked.store(written.is_pending(), Ordering::Release);
        written
    }

    pub fn into_inner(self) -> S {
        self.io
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Checked<S> {
    /// After a refusal nothing more is read: whoever polls the connection sees the verdict.
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.watched.refusal.get().is_some() {
            return Poll::Pending;
        }
        if this.watched.switched.load(Ordering::Acquire) {
            return Pin::new(&mut this.io).poll_read(cx, buf);
        }
        let before = buf.filled().len();
        std::task::ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
        let fresh = buf.filled().get(before..).unwrap_or_default();
        if let Err(refusal) = this.heads.read(fresh) {
            buf.set_filled(before);
            let _first = this.watched.refusal.set(refusal);
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Checked<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.wrote(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

/// Follows the messages of one connection.
#[derive(Debug, Default)]
struct Heads {
    place: Place,
    head: Head,
    /// The beginning of a line that has not ended yet.
    partial: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    #[default]
    RequestLine,
    Fields,
    /// Bytes of a body to pass over.
    Body(u64),
    ChunkSize,
    /// A chunk's bytes to pass over, its line end included.
    Chunk(u64),
    Trailers,
    /// No longer looking.
    Aside,
}

/// What the lines of one head said so far.
#[derive(Debug, Default)]
struct Head {
    /// As it came: what it says of the dialect is asked only where the message is refused.
    request_line: Vec<u8>,
    length: Option<u64>,
    chunked: bool,
    host: bool,
}

impl Heads {
    fn read(&mut self, mut bytes: &[u8]) -> Result<(), Refusal> {
        while !bytes.is_empty() {
            match self.place {
                Place::Aside => return Ok(()),
                Place::Body(left) => {
                    let (rest, left) = pass(bytes, left);
                    bytes = rest;
                    self.place = if left == 0 { Place::RequestLine } else { Place::Body(left) };
                }
                Place::Chunk(left) => {
                    let (rest, left) = pass(bytes, left);
                    bytes = rest;
                    self.place = if left == 0 { Place::ChunkSize } else { Place::Chunk(left) };
                }
                Place::RequestLine | Place::Fields | Place::ChunkSize | Place::Trailers => {
                    let Some(end) = memchr(b'\n', bytes) else { return self.keep(bytes) };
                    let (line, rest) = bytes.split_at(end + 1);
                    bytes = rest;
                    self.whole_line(line)?;
                }
            }
        }
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        if self.partial.len() + bytes.len() > MAX_LINE {
            return Err(self.head.refuse("a line of the head is too long"));
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    fn whole_line(&mut self, line: &[u8]) -> Result<(), Refusal> {
        if self.partial.is_empty() {
            return self.line(line);
        }
        let mut whole = std::mem::take(&mut self.partial);
        whole.extend_from_slice(line);
        self.line(&whole)
    }

    fn line(&mut self, line: &[u8]) -> Result<(), Refusal> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match self.place {
            // Empty lines before a request are skipped, as the HTTP library does.
            Place::RequestLine if line.is_empty() => {}
            Place::RequestLine => {
                self.head.begin(line);
                self.place = Place::Fields;
            }
            Place::Fields if line.is_empty() => self.place = self.head.end()?,
            Place::Fields => self.head.field(line)?,
            Place::ChunkSize => self.place = after_chunk_size(line),
            Place::Trailers if line.is_empty() => self.place = Place::RequestLine,
            Place::Trailers | Place::Body(_) | Place::Chunk(_) | Place::Aside => {}
        }
        Ok(())
    }
}

impl Head {
    fn begin(&mut self, line: &[u8]) {
        let mut request_line = std::mem::take(&mut self.request_line);
        request_line.clear();
        request_line.extend_from_slice(line);
        *self = Self { request_line, ..Self::default() };
    }

    fn dialect(&self) -> Option<Dialect> {
        let target = self.request_line.split(|&byte| byte == b' ').nth(1)?;
        let path = std::str::from_utf8(target).ok()?.split('?').next()?;
        crate::proxy::route::error_dialect(path)
    }

    fn field(&mut self, line: &[u8]) -> Result<(), Refusal> {
        if line.starts_with(b" ") || line.starts_with(b"\t") {
            return Err(self.refuse("a header is folded over several lines"));
        }
        let Some(colon) = memchr(b':', line) else { return Ok(()) };
        let (name, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value).trim_ascii();
        if name.ends_with(b" ") || name.ends_with(b"\t") {
            return Err(self.refuse("there is a space before a header's colon"));
        }
        if name.eq_ignore_ascii_case(b"content-length") {
            self.content_length(value)
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.transfer_encoding(value)
        } else if name.eq_ignore_ascii_case(b"host") {
            self.host()
        } else {
            Ok(())
        }
    }

    /// RFC 9112 3.2, also where the lines are the same.
    fn host(&mut self) -> Result<(), Refusal> {
        match std::mem::replace(&mut self.host, true) {
            true => Err(self.refuse("there is more than one Host")),
            false => Ok(()),
        }
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), Refusal> {
        let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        let length = std::str::from_utf8(value).ok().filter(|_| digits).and_then(|text| text.parse().ok());
        let Some(length) = length else { return Err(self.refuse("Content-Length is no number")) };
        if self.length.is_some_and(|other| other != length) {
            return Err(self.refuse("there are two different Content-Lengths"));
        }
        self.length = Some(length);
        Ok(())
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Refusal> {
        if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
            return Err(self.refuse("Transfer-Encoding is other than one \"chunked\""));
        }
        if self.request_line.ends_with(b"HTTP/1.0") {
            return Err(self.refuse("HTTP/1.0 has no Transfer-Encoding"));
        }
        self.chunked = true;
        Ok(())
    }

    fn end(&self) -> Result<Place, Refusal> {
        match (self.chunked, self.length) {
            (true, Some(_)) => Err(self.refuse("there are both Content-Length and Transfer-Encoding")),
            (true, None) => Ok(Place::ChunkSize),
            (false, None | Some(0)) => Ok(Place::RequestLine),
            (false, Some(length)) => Ok(Place::Body(length)),
        }
    }

    fn refuse(&self, reason: &'static str) -> Refusal {
        Refusal { reason, dialect: self.dialect() }
    }
}

fn after_chunk_size(line: &[u8]) -> Place {
    let digits = line.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
    let size = std::str::from_utf8(digits).ok().and_then(|text| u64::from_str_radix(text, 16).ok());
    match size {
        Some(0) => Place::Trailers,
        Some(size) => size.checked_add(2).map_or(Place::Aside, Place::Chunk),
        None => Place::Aside,
    }
}

/// The bytes behind the first `left`, and how many of those are still to come.
fn pass(bytes: &[u8], left: u64) -> (&[u8], u64) {
    let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
    (bytes.get(here..).unwrap_or_default(), left - here as u64)
}

#[cfg(test)]
#[path = "framing_tests.rs"]
mod tests;
