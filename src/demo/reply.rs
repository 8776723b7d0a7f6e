//! Sending what the behaviour decided.

use std::io;

use bytes::Bytes;
use futures_util::stream;
use http::{Response, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;

use super::answer::{Answer, Usage};
use super::encoding::{self, Encoding};
use super::request::{Api, ModelRequest};
use super::script::{Gate, Reply};
use super::serve::{Body, whole};
use super::{messages, responses};

/// The response to `request`; an error closes the connection before the head.
pub(super) async fn send(
    reply: Reply,
    request: &ModelRequest,
    usage: Usage,
    encoding: Encoding,
) -> io::Result<Response<Body>> {
    match reply {
        Reply::Say(answer) => say(&answer, request, usage, encoding).await,
        Reply::Late(gate, answer) => {
            gate.pass().await;
            say(&answer, request, usage, encoding).await
        }
        Reply::HangUp => Err(io::ErrorKind::ConnectionAborted.into()),
        Reply::CutOff { answer, after } => cut_off(&answer, request, usage, after),
        Reply::Raw { status, headers, body } => {
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(name, value);
            }
            response.body(whole(body)).map_err(io::Error::other)
        }
    }
}

async fn say(answer: &Answer, request: &ModelRequest, usage: Usage, encoding: Encoding) -> io::Result<Response<Body>> {
    let mut response = head(request);
    if encoding != Encoding::Identity {
        response = response.header(header::CONTENT_ENCODING, encoding.name());
    }
    let pieces = if request.stream() { events(answer, request, usage) } else { vec![json(answer, request, usage)] };
    let pieces = encoding::encode(encoding, &pieces).await?;
    let body = match (&answer.pace, request.stream()) {
        (None, false) => whole(pieces.concat().into()),
        (pace, _) => paced(pieces, pace.clone(), End::Complete),
    };
    response.body(body).map_err(io::Error::other)
}

fn cut_off(answer: &Answer, request: &ModelRequest, usage: Usage, after: usize) -> io::Result<Response<Body>> {
    let mut pieces = if request.stream() {
        events(answer, request, usage)
    } else {
        let body = json(answer, request, usage);
        body.chunks(1).map(Bytes::copy_from_slice).collect()
    };
    pieces.truncate(after);
    head(request).body(paced(pieces, answer.pace.clone(), End::Broken)).map_err(io::Error::other)
}

fn head(request: &ModelRequest) -> http::response::Builder {
    let kind = if request.stream() { "text/event-stream; charset=utf-8" } else { "application/json" };
    let head = Response::builder().header(header::CONTENT_TYPE, kind);
    let id = format!("req_demo{:06}", request.index);
    match request.api {
        Api::Chat | Api::Responses => head.header("x-request-id", id).header("openai-processing-ms", "12"),
        Api::Messages => head.header("request-id", id),
    }
}

/// The answer in one piece, in the request's form.
fn json(answer: &Answer, request: &ModelRequest, usage: Usage) -> Bytes {
    match request.api {
        Api::Chat => answer.json(request, usage),
        Api::Responses => responses::json(answer, request, usage),
        Api::Messages => messages::json(answer, request, usage),
    }
}

/// The answer event by event, in the request's form.
fn events(answer: &Answer, request: &ModelRequest, usage: Usage) -> Vec<Bytes> {
    match request.api {
        Api::Chat => answer.events(request, usage),
        Api::Responses => responses::events(answer, request, usage),
        Api::Messages => messages::events(answer, request, usage),
    }
}

/// How a body ends.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Complete,
    Broken,
}

fn paced(pieces: Vec<Bytes>, pace: Option<Gate>, end: End) -> Body {
    let frames = stream::unfold((pieces.into_iter(), pace, end), |(mut pieces, pace, end)| async move {
        if let Some(piece) = pieces.next() {
            if let Some(gate) = &pace {
                gate.pass().await;
            }
            return Some((Ok(Frame::data(piece)), (pieces, pace, end)));
        }
        if end == End::Complete {
            return None;
        }
        // Let the connection write what it has before it breaks.
        tokio::task::yield_now().await;
        Some((Err(io::ErrorKind::ConnectionReset.into()), (pieces, pace, End::Complete)))
    });
    BodyExt::boxed(StreamBody::new(frames))
}
