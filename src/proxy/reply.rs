//! All answers that the proxy itself makes, in the shape of the request's dialect.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::BoxBody;
use serde_json::json;

use super::outcome::Outcome;
use super::relay::{Relay, RelayError};
use super::spliced::Spliced;
use crate::wire::Dialect;

/// A response's body.
#[expect(clippy::large_enum_variant, reason = "nearly all are the large one; a box would cost each an allocation")]
pub enum ReplyBody {
    /// The upstream's answer.
    Relay(Relay),
    /// One answer made of several of the upstream's.
    Spliced(Box<Spliced>),
    /// The proxy's own bytes.
    Own(Bytes),
    /// An answer of the MCP server's.
    Mcp(BoxBody<Bytes, Infallible>),
}

/// Why a request got no answer from its upstream.
#[derive(Debug, thiserror::Error)]
#[error("{detail}")]
pub struct Fault {
    pub outcome: Outcome,
    /// What failed, for people; holds no credentials and no body.
    pub detail: String,
}

impl Fault {
    pub fn new(outcome: Outcome, detail: impl Into<String>) -> Self {
        Self { outcome, detail: detail.into() }
    }

    fn status(&self) -> StatusCode {
        self.outcome.status().unwrap_or(StatusCode::BAD_GATEWAY)
    }
}

/// The error response for a fault; Chat's shape where the dialect is unknown.
pub fn error(dialect: Option<Dialect>, fault: &Fault) -> Response<ReplyBody> {
    own(fault.status(), "application/json", error_body(dialect, fault))
}

/// A complete HTTP/1.1 message with the error, for a connection that is closed after it.
pub fn raw_error(dialect: Option<Dialect>, fault: &Fault) -> Vec<u8> {
    let (status, body) = (fault.status(), error_body(dialect, fault));
    let reason = status.canonical_reason().unwrap_or_default();
    let head = format!(
        "HTTP/1.1 {} {reason}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        status.as_u16(),
        body.len()
    );
    [head.as_bytes(), &body].concat()
}

/// A response made here.
pub fn own(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::Own(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

pub(super) fn error_body(dialect: Option<Dialect>, fault: &Fault) -> Bytes {
    let culprit = fault.outcome.culprit().map_or("proxy", super::outcome::Culprit::label);
    let message = format!("compactproxy: {} (fault: {culprit})", fault.detail);
    let kind = "compactproxy_error";
    let body = match dialect {
        Some(Dialect::Messages) => json!({"type": "error", "error": {"type": kind, "message": message}}),
        Some(Dialect::Chat | Dialect::Responses) | None => {
            json!({"error": {"message": message, "type": kind, "param": null, "code": fault.outcome.label()}})
        }
    };
    Bytes::from(body.to_string())
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = RelayError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        match self.get_mut() {
            Self::Relay(relay) => Pin::new(relay).poll_frame(cx),
            Self::Spliced(spliced) => spliced.poll_frame(cx),
            Self::Own(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Own(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Mcp(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Relay(relay) => relay.is_end_stream(),
            Self::Spliced(_) => false,
            Self::Own(bytes) => bytes.is_empty(),
            Self::Mcp(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Relay(relay) => relay.size_hint(),
            Self::Spliced(_) => SizeHint::default(),
            Self::Own(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Mcp(body) => body.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(dialect: Option<Dialect>) -> serde_json::Value {
        let fault = Fault::new(Outcome::ConnectFailed, "no connection to upstream \"a\"");
        serde_json::from_slice(&error_body(dialect, &fault)).unwrap()
    }

    #[test]
    fn errors_have_the_dialects_own_shape() {
        let message = "compactproxy: no connection to upstream \"a\" (fault: upstream)";
        for dialect in [None, Some(Dialect::Chat), Some(Dialect::Responses)] {
            assert_eq!(
                body(dialect)["error"],
                json!({"message": message, "type": "compactproxy_error", "param": null, "code": "upstream_connect_failed"})
            );
        }
        let expected = json!({"type": "error", "error": {"type": "compactproxy_error", "message": message}});
        assert_eq!(body(Some(Dialect::Messages)), expected);
    }

    #[test]
    fn a_raw_error_is_one_whole_message() {
        let raw = String::from_utf8(raw_error(None, &Fault::new(Outcome::BadFraming, "x"))).unwrap();
        let (head, body) = raw.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head}");
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
    }
}
