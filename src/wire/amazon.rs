//! Amazon's event streams (`application/vnd.amazon.eventstream`), in which Bedrock streams, as server-sent events, so that
//! all that reads answers reads them in one form. For reading alone: what passes is the stream as it came.
//!
//! A frame: its length, its headers' length, a checksum of these two; headers; payload; a checksum of all of it. Numbers
//! are big-endian, checksums CRC-32.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use serde_json::{Value, json};

/// What such a stream is called.
pub const MEDIA_TYPE: &str = "application/vnd.amazon.eventstream";
/// Longest frame that is read, in bytes; a stream with a longer one is given up.
pub const MAX_FRAME: usize = 1024 * 1024;

/// The two lengths and their checksum.
const PRELUDE: usize = 12;
const CHECKSUM: usize = 4;

/// Reads frames out of pieces that may be cut anywhere.
#[derive(Debug, Default)]
pub struct EventStream {
    buffer: BytesMut,
    given_up: bool,
}

/// What came is no frame, or not surely one.
struct Doubtful;

impl EventStream {
    /// Takes the next piece; hands on the events that it completes.
    pub fn push(&mut self, piece: &[u8], mut sink: impl FnMut(&[u8])) {
        if self.given_up {
            return;
        }
        self.buffer.extend_from_slice(piece);
        loop {
            match self.next_frame().and_then(|frame| frame.map(|frame| event(&frame).ok_or(Doubtful)).transpose()) {
                Ok(Some(event)) => sink(event.as_bytes()),
                Ok(None) => return,
                Err(Doubtful) => {
                    *self = Self { given_up: true, ..Self::default() };
                    return;
                }
            }
        }
    }

    /// Whether something came that could not be read; no further events come then.
    pub fn has_given_up(&self) -> bool {
        self.given_up
    }

    /// The next frame, its checksum behind it left out, if it is complete.
    fn next_frame(&mut self) -> Result<Option<Bytes>, Doubtful> {
        let Some(prelude) = self.buffer.get(..PRELUDE) else { return Ok(None) };
        let length = number(prelude, 0).ok_or(Doubtful)? as usize;
        if !(PRELUDE + CHECKSUM..=MAX_FRAME).contains(&length) || !is_intact(prelude) {
            return Err(Doubtful);
        }
        if self.buffer.len() < length {
            return Ok(None);
        }
        let mut frame = self.buffer.split_to(length).freeze();
        if !is_intact(&frame) {
            return Err(Doubtful);
        }
        frame.truncate(length - CHECKSUM);
        Ok(Some(frame))
    }
}

/// Whether bytes end in the checksum of what precedes it.
fn is_intact(bytes: &[u8]) -> bool {
    let Some((checked, sum)) = bytes.split_last_chunk::<CHECKSUM>() else { return false };
    crc32fast::hash(checked) == u32::from_be_bytes(*sum)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// A frame as a server-sent event. `None`: it is not what the format says.
fn event(frame: &[u8]) -> Option<String> {
    let headers = number(frame, 4)? as usize;
    let (headers, payload) = frame.get(PRELUDE..)?.split_at_checked(headers)?;
    let named = Named::of(headers)?;
    match named.message {
        "exception" => {
            let told = serde_json::from_slice(payload).unwrap_or_else(|_| String::from_utf8_lossy(payload).into());
            Some(failure(status(named.exception), told))
        }
        "error" => Some(failure(status(named.code), named.text.into())),
        _ => Some(data(&said(payload)?)),
    }
}

/// What the headers say of a frame; empty where they do not.
#[derive(Default)]
struct Named<'h> {
    /// `event`, `exception` or `error`.
    message: &'h str,
    exception: &'h str,
    /// Of an error.
    code: &'h str,
    text: &'h str,
}

impl<'h> Named<'h> {
    fn of(mut headers: &'h [u8]) -> Option<Self> {
        let mut named = Self::default();
        while let Some((length, rest)) = headers.split_first() {
            let (name, rest) = rest.split_at_checked(usize::from(*length))?;
            let (form, rest) = rest.split_first()?;
            let (length, rest) = match form {
                // True and false; numbers of 1, 2, 4 and 8 bytes, a time, a UUID.
                0 | 1 => (0, rest),
                2 => (1, rest),
                3 => (2, rest),
                4 => (4, rest),
                5 | 8 => (8, rest),
                9 => (16, rest),
                // Bytes, and texts.
                6 | 7 => rest.split_first_chunk().map(|(length, rest)| (u16::from_be_bytes(*length).into(), rest))?,
                _ => return None,
            };
            let (value, rest) = rest.split_at_checked(length)?;
            let text = || std::str::from_utf8(value).ok();
            match name {
                b":message-type" => named.message = text()?,
                b":exception-type" => named.exception = text()?,
                b":error-code" => named.code = text()?,
                b":error-message" => named.text = text()?,
                _ => {}
            }
            headers = rest;
        }
        Some(named)
    }
}

/// What a payload says: of a model that Bedrock only passes on, its own event is inside in Base64.
fn said(payload: &[u8]) -> Option<String> {
    let wrapped = serde_json::from_slice::<Value>(payload).ok();
    let inside = wrapped.as_ref().and_then(|wrapped| wrapped.get("bytes")?.as_str());
    let text = match inside {
        Some(inside) => STANDARD.decode(inside).ok()?,
        None => payload.to_vec(),
    };
    String::from_utf8(text).ok()
}

fn data(text: &str) -> String {
    let lines: String = text.lines().map(|line| format!("data: {line}\n")).collect();
    format!("{lines}\n")
}

fn failure(status: Option<u16>, error: Value) -> String {
    format!("event: error\n{}", data(&json!({ "status": status, "error": error }).to_string()))
}

/// The status that an exception has where it comes as an answer of its own.
fn status(exception: &str) -> Option<u16> {
    Some(match exception {
        "validationException" => 400,
        "accessDeniedException" => 403,
        "modelTimeoutException" => 408,
        "modelStreamErrorException" | "modelErrorException" => 424,
        "throttlingException" | "serviceQuotaExceededException" | "modelNotReadyException" => 429,
        "internalServerException" | "internalFailure" => 500,
        "serviceUnavailableException" => 503,
        _ => return None,
    })
}

#[cfg(test)]
#[path = "tests/amazon.rs"]
mod tests;
