//! Taking a request's body in, within its caps. What exceeds them streams through untouched.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http::HeaderMap;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE};
use http_body::Body;
use http_body_util::BodyExt;

use super::Proxy;
use super::body::{Framing, Pieces, SendBody, Spilled};
use super::budget::Permit;
use super::encoding::{Encoding, decode_while};
use super::headers::BYPASS;
use super::origin::Incoming;
use super::outcome::Outcome;
use super::reply::Fault;
use super::workers::Workers;

/// First allocation for a body that comes in several reads; a promise of the client's is not trusted further.
const FIRST_ALLOCATION: usize = 8 * 1024 * 1024;

/// A whole request body, as the client sent it.
pub struct Intake {
    /// The original bytes, still encoded if `content-encoding` says so.
    pub body: Bytes,
    pub framing: Framing,
    pub trailers: Option<HeaderMap>,
    /// Its share of `max_buffered_bytes`; whoever keeps the bytes keeps it.
    pub permit: Arc<Permit>,
}

/// A body after the attempt to take it in.
pub enum Taken {
    Whole(Intake),
    /// Over a cap, or no longer wanted: it goes out as it is.
    Passing(SendBody),
}

impl Intake {
    /// The body as it came, for sending; can be made more than once.
    pub fn original(&self) -> SendBody {
        let pieces = Pieces::new([self.body.clone()], self.framing, Some(Arc::clone(&self.permit)));
        SendBody::Pieces(pieces.with_trailers(self.trailers.clone()))
    }

    /// Other bytes in the body's place. A rewritten body has a length, so no trailers.
    pub fn rewritten(&self, pieces: Vec<Bytes>) -> SendBody {
        SendBody::Pieces(Pieces::new(pieces, Framing::Length, Some(Arc::clone(&self.permit))))
    }
}

/// What may be done with a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    Rewrite,
    /// A bypassed turn: it passes untouched, what it showed the provider is remembered.
    Remember,
    /// It streams through.
    Away,
}

/// What the content type of a body that is looked at begins with.
const JSON: &[u8] = b"application/json";

/// What headers and query allow: only JSON that is not signed as a whole and not over the cap is looked at.
pub fn permits(headers: &HeaderMap, query: Option<&str>, max_body_bytes: usize) -> Look {
    let json = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.as_bytes().get(..JSON.len()))
        .is_some_and(|start| start.eq_ignore_ascii_case(JSON));
    let bypass = headers.get(BYPASS).is_some_and(|value| value == "1");
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    match json && !is_signed(headers, query) && length.is_none_or(|length| length <= max_body_bytes) {
        true if bypass => Look::Remember,
        true => Look::Rewrite,
        false => Look::Away,
    }
}

/// Headers that hold a digest or a signature of the body's bytes.
const OVER_THE_BODY: [&str; 6] =
    ["content-digest", "digest", "content-md5", "x-amz-content-sha256", "signature-input", "signature"];

/// A signature or a digest covers the body's bytes: such a request is not to be changed.
fn is_signed(headers: &HeaderMap, query: Option<&str>) -> bool {
    let in_header = |value: &http::HeaderValue| value.as_bytes().trim_ascii_start().starts_with(b"AWS4-");
    headers.keys().any(|name| OVER_THE_BODY.contains(&name.as_str()))
        || headers.get_all(AUTHORIZATION).iter().any(in_header)
        || query.is_some_and(|query| query.to_ascii_lowercase().contains("x-amz-signature="))
}

/// A decoded copy, with its share of the buffer cap.
pub struct Decoded {
    pub body: Bytes,
    pub permit: Permit,
}

/// Decodes a body on a thread where it delays nobody. `None`: it is not what its encoding says, or the copy
/// would be over a cap. The copy's share of the buffers grows with it.
pub async fn decoded(workers: &Workers, incoming: &Incoming<'_>, encoding: Encoding) -> Option<Decoded> {
    let proxy = &incoming.shard.proxy;
    let (body, cap) = (incoming.body.clone(), proxy.config.server.max_body_bytes);
    let mut permit = Permit::empty(&proxy.budget);
    let work = move || {
        let body = decode_while(encoding, &body, cap, |bytes| permit.grow(bytes)).ok()?;
        Some(Decoded { body, permit })
    };
    workers.run(work).await?
}

/// Takes the body in. `idle`: how long the client may be silent in between.
pub async fn take(proxy: &Proxy, body: hyper::body::Incoming, idle: Duration) -> Result<Taken, Fault> {
    take_while(proxy, body, idle, |_| true).await
}

/// Takes the body in as long as what has come of it is `wanted`.
pub async fn take_while(
    proxy: &Proxy,
    mut body: hyper::body::Incoming,
    idle: Duration,
    mut wanted: impl FnMut(&[u8]) -> bool,
) -> Result<Taken, Fault> {
    let promised = body.size_hint().exact();
    let framing = if promised.is_some() { Framing::Length } else { Framing::Chunked };
    let mut read = Reading { permit: Permit::empty(&proxy.budget), first: Bytes::new(), joined: BytesMut::new() };
    let mut trailers = None;
    while let Some(frame) = next_frame(&mut body, idle).await? {
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(frame) => {
                trailers = frame.into_trailers().ok();
                continue;
            }
        };
        let fits = read.len() + data.len() <= proxy.config.server.max_body_bytes && read.permit.grow(data.len());
        if !fits {
            let (pieces, permit) = read.finish();
            let read = Pieces::new([pieces, data], framing, Some(Arc::new(permit)));
            return Ok(Taken::Passing(SendBody::Spilled(Box::new(Spilled::new(read, body)))));
        }
        read.add(data, promised);
        if body.is_end_stream() {
            break;
        }
        if !wanted(read.bytes()) {
            let (read, permit) = read.finish();
            let read = Pieces::new([read], framing, Some(Arc::new(permit)));
            return Ok(Taken::Passing(SendBody::Spilled(Box::new(Spilled::new(read, body)))));
        }
    }
    let (body, permit) = read.finish();
    Ok(Taken::Whole(Intake { body, framing, trailers, permit: Arc::new(permit) }))
}

/// The bytes so far. A body that comes in one read is never copied.
struct Reading {
    permit: Permit,
    first: Bytes,
    joined: BytesMut,
}

impl Reading {
    fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    fn bytes(&self) -> &[u8] {
        if self.joined.is_empty() { &self.first } else { &self.joined }
    }

    fn add(&mut self, data: Bytes, promised: Option<u64>) {
        if self.len() == 0 {
            self.first = data;
            return;
        }
        if !self.first.is_empty() {
            let promised = promised.and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
            self.joined.reserve(promised.min(FIRST_ALLOCATION).max(self.first.len() + data.len()));
            self.joined.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.joined.extend_from_slice(&data);
    }

    fn finish(self) -> (Bytes, Permit) {
        let body = if self.joined.is_empty() { self.first } else { self.joined.freeze() };
        (body, self.permit)
    }
}

async fn next_frame(
    body: &mut hyper::body::Incoming,
    idle: Duration,
) -> Result<Option<http_body::Frame<Bytes>>, Fault> {
    // Mostly it is here, or it has ended: then no timer is made.
    let frame = match body.frame().now_or_never() {
        Some(frame) => Ok(frame),
        None => tokio::time::timeout(idle, body.frame()).await,
    };
    match frame {
        Ok(Some(Ok(frame))) => Ok(Some(frame)),
        Ok(None) => Ok(None),
        Ok(Some(Err(error))) => Err(Fault::new(Outcome::BadBody, format!("the request's body is broken: {error}"))),
        Err(_) => Err(Fault::new(Outcome::BadBody, "the request's body stopped coming")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permitted(lines: &[(&'static str, &str)], query: Option<&str>) -> bool {
        look(lines, query) == Look::Rewrite
    }

    fn look(lines: &[(&'static str, &str)], query: Option<&str>) -> Look {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.insert(*name, value.parse().unwrap());
        }
        permits(&headers, query, 100)
    }

    #[test]
    fn only_unsigned_json_within_the_cap_is_looked_at() {
        let json = ("content-type", "Application/JSON; charset=utf-8");
        assert!(permitted(&[json], None));
        assert!(permitted(&[json, ("content-length", "100")], Some("a=b")));
        assert!(!permitted(&[json, ("content-length", "101")], None));
        assert!(!permitted(&[("content-type", "multipart/form-data")], None));
        assert!(!permitted(&[], None));
        assert_eq!(look(&[json, ("x-compactproxy-bypass", "1")], None), Look::Remember);
        assert!(permitted(&[json, ("x-compactproxy-bypass", "0")], None));
        assert!(!permitted(&[json, ("authorization", "AWS4-HMAC-SHA256 Credential=x")], None));
        for name in OVER_THE_BODY {
            assert!(!permitted(&[json, (name, "x")], None), "{name}");
        }
        assert!(!permitted(&[json], Some("X-Amz-Signature=00")));
    }
}
