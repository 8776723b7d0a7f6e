//! `content-encoding`: a bounded decoded copy of a request's body, and decoders that follow a response.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use async_compression::tokio::bufread::{BrotliDecoder, DeflateDecoder, GzipDecoder, ZlibDecoder, ZstdDecoder};
use async_compression::zstd::DParameter;
use bytes::{Buf, Bytes};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use tokio::io::{AsyncBufRead, AsyncRead, ReadBuf};

/// Decoded bytes are handed on in steps of this size.
const STEP: usize = 8 * 1024;
/// The largest window that `zstd` as a content-encoding may ask for: 8 MiB (RFC 9659).
const ZSTD_WINDOW_LOG: u32 = 23;

/// How a body is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Identity,
    Gzip,
    Brotli,
    Zstd,
    /// A zlib stream by the standard; some send it without the wrapper.
    Deflate,
}

/// No decoded copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("the body is not what its content-encoding says")]
    Broken,
    #[error("the decoded body is over its cap")]
    TooLarge,
}

impl Encoding {
    /// The encoding that the headers name; `None` for unknown ones and for lists.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(CONTENT_ENCODING).iter();
        let Some(value) = values.next() else { return Some(Self::Identity) };
        if values.next().is_some() {
            return None;
        }
        match value.to_str().ok()?.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Some(Self::Identity),
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "br" => Some(Self::Brotli),
            "zstd" => Some(Self::Zstd),
            "deflate" => Some(Self::Deflate),
            _ => None,
        }
    }
}

/// The decoded body, at most `cap` bytes long. An unencoded one is not copied.
pub fn decode(encoding: Encoding, body: &Bytes, cap: usize) -> Result<Bytes, DecodeError> {
    decode_while(encoding, body, cap, |_| true)
}

/// The same, as long as `admit` takes the bytes that each step adds; it is asked before they are kept.
pub fn decode_while(
    encoding: Encoding,
    body: &Bytes,
    cap: usize,
    mut admit: impl FnMut(usize) -> bool,
) -> Result<Bytes, DecodeError> {
    let Some(mut decoder) = Decoder::new(encoding, cap) else { return Ok(body.clone()) };
    let mut out = Vec::new();
    let mut keep = |piece: &[u8]| {
        let admitted = admit(piece.len());
        if admitted {
            out.extend_from_slice(piece);
        }
        admitted
    };
    decoder.take(body.clone(), &mut keep);
    decoder.end(&mut keep)?;
    Ok(Bytes::from(out))
}

/// Decodes a body piece by piece as it passes.
pub struct Decoder {
    encoding: Encoding,
    inner: Option<Inner>,
    /// Decoded bytes that may still come.
    left: usize,
    failed: Option<DecodeError>,
}

enum Inner {
    Gzip(Box<GzipDecoder<Feed>>),
    Brotli(Box<BrotliDecoder<Feed>>),
    Zstd(Box<ZstdDecoder<Feed>>),
    Zlib(Box<ZlibDecoder<Feed>>),
    Raw(Box<DeflateDecoder<Feed>>),
}

impl Decoder {
    /// `None` where there is nothing to decode. After `cap` decoded bytes it gives up.
    pub fn new(encoding: Encoding, cap: usize) -> Option<Self> {
        (encoding != Encoding::Identity).then_some(Self { encoding, inner: None, left: cap, failed: None })
    }

    /// Why it gave up, if it did; then it hands on nothing more.
    pub fn failed(&self) -> Option<DecodeError> {
        self.failed
    }

    /// Hands on what `data` completes.
    pub fn feed(&mut self, data: Bytes, mut sink: impl FnMut(&[u8])) {
        self.take(data, |piece| {
            sink(piece);
            true
        });
    }

    /// Hands on the rest. An error if the encoded bytes were not whole or the cap was reached.
    pub fn finish(self, mut sink: impl FnMut(&[u8])) -> Result<(), DecodeError> {
        self.end(|piece| {
            sink(piece);
            true
        })
    }

    /// [`feed`](Self::feed) into a sink that may refuse, which ends it as the cap does.
    fn take(&mut self, data: Bytes, sink: impl FnMut(&[u8]) -> bool) {
        let Some(first) = data.first().copied() else { return };
        let encoding = self.encoding;
        self.inner.get_or_insert_with(|| Inner::new(encoding, first)).feed().queue.push_back(data);
        self.drain(sink);
    }

    fn end(mut self, sink: impl FnMut(&[u8]) -> bool) -> Result<(), DecodeError> {
        let Some(inner) = &mut self.inner else { return Err(DecodeError::Broken) };
        inner.feed().ended = true;
        let ended = self.drain(sink);
        match self.failed {
            Some(error) => Err(error),
            None if ended => Ok(()),
            None => Err(DecodeError::Broken),
        }
    }

    /// Decodes what is at hand; `true` at the end of the encoded bytes.
    fn drain(&mut self, mut sink: impl FnMut(&[u8]) -> bool) -> bool {
        let Some(inner) = self.inner.as_mut().filter(|_| self.failed.is_none()) else { return false };
        // The source never waits for anybody else, so nobody needs to be woken.
        let mut cx = Context::from_waker(Waker::noop());
        let mut step = [0; STEP];
        loop {
            let mut buf = ReadBuf::new(&mut step);
            match inner.poll_read(&mut cx, &mut buf) {
                Poll::Pending => return false,
                Poll::Ready(Ok(())) if buf.filled().is_empty() => return true,
                Poll::Ready(Ok(())) if buf.filled().len() > self.left => {
                    self.failed = Some(DecodeError::TooLarge);
                    return false;
                }
                Poll::Ready(Ok(())) => {
                    self.left -= buf.filled().len();
                    if !sink(buf.filled()) {
                        self.failed = Some(DecodeError::TooLarge);
                        return false;
                    }
                }
                Poll::Ready(Err(_)) => {
                    self.failed = Some(DecodeError::Broken);
                    return false;
                }
            }
        }
    }
}

impl Inner {
    fn new(encoding: Encoding, first: u8) -> Self {
        let feed = Feed::default();
        // Every zlib stream begins with compression method 8.
        let is_zlib = first & 0x0f == 8;
        match encoding {
            Encoding::Brotli => Self::Brotli(Box::new(BrotliDecoder::new(feed))),
            Encoding::Zstd => {
                let window = DParameter::window_log_max(ZSTD_WINDOW_LOG);
                let mut decoder = ZstdDecoder::with_params(feed, &[window]);
                decoder.multiple_members(true);
                Self::Zstd(Box::new(decoder))
            }
            Encoding::Deflate if is_zlib => Self::Zlib(Box::new(ZlibDecoder::new(feed))),
            Encoding::Deflate => Self::Raw(Box::new(DeflateDecoder::new(feed))),
            Encoding::Gzip | Encoding::Identity => {
                let mut decoder = GzipDecoder::new(feed);
                decoder.multiple_members(true);
                Self::Gzip(Box::new(decoder))
            }
        }
    }

    fn feed(&mut self) -> &mut Feed {
        match self {
            Self::Gzip(decoder) => decoder.get_mut(),
            Self::Brotli(decoder) => decoder.get_mut(),
            Self::Zstd(decoder) => decoder.get_mut(),
            Self::Zlib(decoder) => decoder.get_mut(),
            Self::Raw(decoder) => decoder.get_mut(),
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Gzip(decoder) => Pin::new(decoder).poll_read(cx, buf),
            Self::Brotli(decoder) => Pin::new(decoder).poll_read(cx, buf),
            Self::Zstd(decoder) => Pin::new(decoder).poll_read(cx, buf),
            Self::Zlib(decoder) => Pin::new(decoder).poll_read(cx, buf),
            Self::Raw(decoder) => Pin::new(decoder).poll_read(cx, buf),
        }
    }
}

/// The encoded bytes that have come so far.
#[derive(Default)]
struct Feed {
    queue: VecDeque<Bytes>,
    ended: bool,
}

impl AsyncBufRead for Feed {
    fn poll_fill_buf(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        while this.queue.front().is_some_and(Bytes::is_empty) {
            this.queue.pop_front();
        }
        match this.queue.front() {
            Some(data) => Poll::Ready(Ok(data)),
            None if this.ended => Poll::Ready(Ok(&[])),
            None => Poll::Pending,
        }
    }

    fn consume(self: Pin<&mut Self>, amount: usize) {
        if let Some(data) = self.get_mut().queue.front_mut() {
            data.advance(amount.min(data.len()));
        }
    }
}

impl AsyncRead for Feed {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let data = std::task::ready!(self.as_mut().poll_fill_buf(cx))?;
        let taken = data.len().min(buf.remaining());
        buf.put_slice(data.get(..taken).unwrap_or_default());
        self.consume(taken);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
#[path = "encoding_tests.rs"]
mod tests;
