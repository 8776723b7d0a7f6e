//! The load generator: a closed loop over kept-alive connections.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::Error;
use crate::api::Api;
use crate::bodies::Pieces;
use crate::upstream::ANSWER;

/// A first request may wait for a summary (30 s at most); nothing else takes that long.
const PATIENCE: Duration = Duration::from_secs(45);
/// compactproxy's word on what it did to a request.
const ACTION: &str = "x-compactproxy-action";

/// Bytes of a stream's end that tell whether it is whole.
const END: usize = 16;

/// How much load, and until when.
#[derive(Clone, Copy)]
pub struct Load {
    pub api: Api,
    pub connections: usize,
    pub requests: usize,
    /// No request begins later than this after the start.
    pub time: Duration,
    /// Between two requests of a connection.
    pub pause: Duration,
    /// The answer that is asked of the upstream: `json` or `sse`.
    pub answer: &'static str,
}

/// What came of it. Times in microseconds.
#[derive(Default)]
pub struct Measured {
    pub total: Vec<f64>,
    pub first: Vec<f64>,
    pub failures: Vec<String>,
    /// Answers that said that the request was rewritten.
    pub rewritten: usize,
}

/// Sends what `next` gives until it gives nothing, or the load's bounds are met.
pub async fn run(target: SocketAddr, load: Load, next: &dyn Fn() -> Option<Pieces>) -> Measured {
    let end = Instant::now() + load.time;
    let left = std::cell::Cell::new(load.requests);
    let take = || {
        let more = left.get().checked_sub(1).filter(|_| Instant::now() < end)?;
        left.set(more);
        next()
    };
    let mut all = Measured::default();
    for part in join_all((0..load.connections).map(|_| connection(target, load, &take))).await {
        all.total.extend(part.total);
        all.first.extend(part.first);
        all.failures.extend(part.failures);
        all.rewritten += part.rewritten;
    }
    all
}

async fn connection(target: SocketAddr, load: Load, take: &dyn Fn() -> Option<Pieces>) -> Measured {
    let mut measured = Measured::default();
    let mut open = None;
    while let Some(body) = take() {
        let sender = match open.take() {
            Some(sender) => Ok(sender),
            None => connect(target).await,
        };
        let outcome = match sender {
            Ok(sender) => match timeout(PATIENCE, exchange(sender, load, body)).await {
                Ok(outcome) => outcome,
                Err(_) => Err("no whole answer in time".into()),
            },
            Err(error) => Err(error),
        };
        match outcome {
            Ok((sender, times)) => {
                measured.total.push(times.total);
                measured.first.push(times.first);
                measured.rewritten += usize::from(times.rewritten);
                open = Some(sender);
            }
            Err(error) => measured.failures.push(error.to_string()),
        }
        if !load.pause.is_zero() {
            tokio::time::sleep(load.pause).await;
        }
    }
    measured
}

struct Times {
    first: f64,
    total: f64,
    rewritten: bool,
}

async fn connect(target: SocketAddr) -> Result<SendRequest<Pieces>, Error> {
    let stream = TcpStream::connect(target).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = Builder::new().handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn send(
    sender: &mut SendRequest<Pieces>,
    (api, answer): (Api, &str),
    body: Pieces,
) -> Result<Response<Incoming>, Error> {
    sender.ready().await?;
    let mut request = Request::post(api.path())
        .header(HOST, "127.0.0.1")
        .header(CONTENT_TYPE, "application/json")
        .header(ANSWER, answer)
        .body(body)?;
    for (name, value) in api.headers() {
        request.headers_mut().insert(*name, HeaderValue::from_static(value));
    }
    let response = sender.send_request(request).await?;
    match response.status() {
        StatusCode::OK => Ok(response),
        status => {
            let text = response.into_body().collect().await?.to_bytes();
            Err(format!("{status}: {}", String::from_utf8_lossy(text.get(..300).unwrap_or(&text))).into())
        }
    }
}

async fn exchange(
    mut sender: SendRequest<Pieces>,
    load: Load,
    body: Pieces,
) -> Result<(SendRequest<Pieces>, Times), Error> {
    let start = Instant::now();
    let micros = || start.elapsed().as_nanos() as f64 / 1e3;
    let response = send(&mut sender, (load.api, load.answer), body).await?;
    let rewritten = response.headers().contains_key(ACTION);
    let mut body = response.into_body();
    let (mut first, mut end) = (None, Vec::new());
    while let Some(frame) = body.frame().await {
        first.get_or_insert_with(micros);
        if let Ok(data) = frame?.into_data() {
            keep_end(&mut end, &data);
        }
    }
    let total = micros();
    let whole = end.len() == END && load.api.stream().closing.as_bytes().ends_with(&end);
    if load.answer == "sse" && !whole {
        return Err("the stream broke off".into());
    }
    Ok((sender, Times { first: first.unwrap_or(total), total, rewritten }))
}

/// The end of a stream may come in two pieces: the last bytes of all that were read.
fn keep_end(end: &mut Vec<u8>, piece: &[u8]) {
    end.extend_from_slice(piece.get(piece.len().saturating_sub(END)..).unwrap_or_default());
    end.drain(..end.len().saturating_sub(END));
}

/// Opens `count` streams that stay idle after their first event; they close when the return value is dropped.
pub async fn idle_streams(
    (target, api): (SocketAddr, Api),
    count: usize,
    next: &dyn Fn() -> Pieces,
) -> Result<Vec<(SendRequest<Pieces>, Incoming)>, Error> {
    let mut streams = Vec::with_capacity(count);
    for _ in 0..count {
        let mut sender = connect(target).await?;
        let response =
            timeout(PATIENCE, send(&mut sender, (api, "hold"), next())).await.map_err(|_| "no stream in time")??;
        let mut body = response.into_body();
        timeout(PATIENCE, body.frame()).await.map_err(|_| "no first event in time")?.ok_or("an empty stream")??;
        streams.push((sender, body));
    }
    Ok(streams)
}
