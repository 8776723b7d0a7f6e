//! Looks at HTTP/1 message heads as they arrive and finds those whose framing is ambiguous: what two
//! parsers could take for two different messages is refused before it is parsed at all.
//!
//! The check follows message boundaries only as far as they are plain. Where they are not, it steps
//! aside and leaves the rest of the connection to the HTTP library's own, stricter reading.

mod heads;

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::heads::Heads;
use crate::wire::Dialect;

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
