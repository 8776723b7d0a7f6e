//! The provider of the benchmark: it drains the request and answers at once, with as little work as hyper allows.
//! What it answers is the request's [`ANSWER`] header: `sse` (all events ready at once), `hold` (one event, then
//! nothing until the client goes), else one JSON answer, which also passes for a summary. Its path says in which API.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::Error;
use crate::api::{Api, Stream};
use crate::minimal::announce;

/// Request header that chooses the answer; proxies pass it on like any other.
pub const ANSWER: &str = "x-bench-answer";
/// Events of an `sse` answer, without those that open and close it.
pub const EVENTS: u32 = 50;

/// Whole answers so far: each has an id of its own, by which others could continue it.
static SERVED: AtomicU64 = AtomicU64::new(0);

/// Reads as a summary with the four sections, so that side calls succeed.
const TEXT: &str = "## SESSION INTENT\\nMeasure what the proxy costs.\\n\\n## SUMMARY\\nFiles were read one after \
    the other and nothing was changed in them. Each step named a file, showed a part of it and went on to the next \
    one. No error came up, no decision is open, and the tools answered as expected throughout.\\n\\n## ARTIFACTS\\n\
    - benches/envelope: read\\n- results: none written yet\\n\\n## NEXT STEPS\\nGo on with the next file and report \
    the figures when all of them have been seen.";

/// Serves until the process ends.
pub fn serve() -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        announce(listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)));
        }
    })
}

type Answer = Either<Full<Bytes>, Events>;

async fn answer(request: Request<Incoming>) -> Result<Response<Answer>, hyper::Error> {
    let kind = request.headers().get(ANSWER).cloned();
    let Some(api) = Api::ALL.into_iter().find(|api| api.path() == request.uri().path()) else {
        let mut response = Response::new(Either::Left(Full::default()));
        *response.status_mut() = StatusCode::NOT_FOUND;
        return Ok(response);
    };
    let mut body = request.into_body();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        bytes += frame?.data_ref().map_or(0, Bytes::len);
    }
    Ok(match kind.as_ref().map(HeaderValue::as_bytes) {
        Some(b"sse") => typed("text/event-stream", Either::Right(Events::new(api, EVENTS, Then::End))),
        Some(b"hold") => typed("text/event-stream", Either::Right(Events::new(api, 1, Then::Hold))),
        _ => typed("application/json", Either::Left(Full::new(whole(api, bytes)))),
    })
}

fn typed(media_type: &'static str, body: Answer) -> Response<Answer> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// The reported usage fits the body (about 4 bytes a token): proxies may calibrate their estimates by it.
fn whole(api: Api, request_bytes: usize) -> Bytes {
    Bytes::from(api.answer(SERVED.fetch_add(1, Ordering::Relaxed), request_bytes / 4, TEXT))
}

enum Then {
    End,
    Hold,
    Done,
}

struct Events {
    stream: Stream,
    left: u32,
    then: Then,
}

impl Events {
    fn new(api: Api, left: u32, then: Then) -> Self {
        Self { stream: api.stream(), left, then }
    }
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = |text: &'static str| Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(text.as_bytes())))));
        let opening = std::mem::take(&mut self.stream.opening);
        if !opening.is_empty() {
            return piece(opening);
        }
        if self.left > 0 {
            self.left -= 1;
            return piece(self.stream.event);
        }
        match self.then {
            Then::End => {
                self.then = Then::Done;
                piece(self.stream.closing)
            }
            // No waker: hyper itself sees the client go and drops the body.
            Then::Hold => Poll::Pending,
            Then::Done => Poll::Ready(None),
        }
    }
}
