//! A shard's listener and the connections it takes in.

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::drain::Drain;
use super::framing::{Checked, Refusal, Running, Watched};
use super::tls::Certificate;
use crate::proxy::outcome::{Outcome, Record};
use crate::proxy::reply::{self, Fault, ReplyBody};
use crate::proxy::upstream::{CONNECTION_BUFFER, MAX_HEADERS};
use crate::proxy::{self, Shard};

/// How long a client may take for a request's head, a kept-alive connection's idle time included. Long, so
/// that not the proxy but the client or its pool is the one that closes.
const HEAD_TIMEOUT: Duration = Duration::from_secs(300);
/// How long a client may take for its TLS handshake.
const TLS_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Bytes on their way to one HTTP/2 stream's client.
const HTTP2_SEND_BUFFER: usize = CONNECTION_BUFFER;

/// What the connections of a shard have in common.
pub struct Door {
    pub shard: Arc<Shard>,
    pub drain: Drain,
    pub tls: Option<Arc<Certificate>>,
    /// A permit for each connection that may be open.
    pub room: Arc<Semaphore>,
}

/// Takes connections in until the drain begins.
pub async fn accept(door: Arc<Door>, listener: TcpListener) {
    let mut draining = pin!(door.drain.notified());
    draining.as_mut().enable();
    if door.drain.has_begun() {
        return;
    }
    loop {
        let accepted = tokio::select! {
            accepted = next(&door.room, &listener) => accepted,
            () = draining.as_mut() => return,
        };
        match accepted {
            Ok((stream, place)) => {
                let door = Arc::clone(&door);
                let tasks = door.shard.tasks.clone();
                tasks.spawn(async move {
                    connection(door, stream).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The next connection, once there is room for it.
async fn next(room: &Arc<Semaphore>, listener: &TcpListener) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(room).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, place))
}

async fn connection(door: Arc<Door>, stream: TcpStream) {
    let _best_effort = stream.set_nodelay(true);
    let Some(tls) = &door.tls else { return http1_connection(&door, stream).await };
    match tokio::time::timeout(TLS_TIMEOUT, tls.acceptor(Instant::now()).accept(stream)).await {
        Ok(Ok(stream)) if stream.get_ref().1.alpn_protocol() == Some(b"h2") => {
            Box::pin(http2_connection(&door, stream)).await;
        }
        Ok(Ok(stream)) => Box::pin(http1_connection(&door, stream)).await,
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

async fn http1_connection<S>(door: &Arc<Door>, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (checked, watched) = Checked::new(stream);
    let (shard, told) = (Arc::clone(&door.shard), Arc::clone(&watched));
    let service = service_fn(move |request| answer_watched(Arc::clone(&shard), Arc::clone(&told), request));
    let mut connection = http1::Builder::new()
        .auto_date_header(false)
        .preserve_header_case(true)
        .max_buf_size(CONNECTION_BUFFER)
        .max_headers(MAX_HEADERS)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(checked), service)
        .with_upgrades();
    let mut draining = pin!(door.drain.notified());
    let mut told = false;
    let mut listening = false;
    let refused = std::future::poll_fn(|cx| {
        loop {
            match Pin::new(&mut connection).poll(cx) {
                Poll::Ready(Ok(())) => return Poll::Ready(None),
                Poll::Ready(Err(error)) => {
                    tracing::debug!(%error, "a client's connection ended");
                    return Poll::Ready(None);
                }
                Poll::Pending => {}
            }
            if let Some(refusal) = watched.refusal() {
                return Poll::Ready(Some(refusal));
            }
            // One poll registers the task for good; a lock for every chunk of a stream would cost more.
            if !listening {
                listening = true;
                let _registered = draining.as_mut().poll(cx);
            }
            if told || !door.drain.has_begun() {
                return Poll::Pending;
            }
            told = true;
            Pin::new(&mut connection).graceful_shutdown();
        }
    });
    if let Some(refusal) = refused.await
        && watched.is_quiet()
        && let Some(parts) = connection.into_parts()
    {
        let record = Record::open(Arc::clone(&door.shard));
        if let Err(error) = refuse(parts.io.into_inner().into_inner(), refusal, record).await {
            tracing::debug!(%error, "a refused client did not wait for the answer");
        }
    }
}

async fn http2_connection<S>(door: &Arc<Door>, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let shard = Arc::clone(&door.shard);
    let service = service_fn(move |request| answer(Arc::clone(&shard), request));
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.auto_date_header(false).timer(TokioTimer::new()).max_send_buf_size(HTTP2_SEND_BUFFER);
    builder.max_header_list_size(CONNECTION_BUFFER as u32);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut draining = pin!(door.drain.notified());
    draining.as_mut().enable();
    if door.drain.has_begun() {
        connection.as_mut().graceful_shutdown();
    }
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = draining => {
            connection.as_mut().graceful_shutdown();
            connection.as_mut().await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a client's connection ended");
    }
}

async fn answer(shard: Arc<Shard>, request: Request<Incoming>) -> Result<Response<ReplyBody>, Infallible> {
    Ok(proxy::serve(shard, request).await)
}

/// Tells the connection's check when the response begins and ends.
async fn answer_watched(
    shard: Arc<Shard>,
    watched: Arc<Watched>,
    request: Request<Incoming>,
) -> Result<Response<Whole>, Infallible> {
    let running = watched.begin();
    // The connection keeps room for this future while it is open, and a stream stays open long.
    let response = Box::pin(proxy::serve(shard, request)).await;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        watched.switch();
    }
    Ok(response.map(|body| Whole { body, _running: running }))
}

/// A response's body; while it is there, its response runs.
struct Whole {
    body: ReplyBody,
    _running: Running,
}

impl Body for Whole {
    type Data = <ReplyBody as Body>::Data;
    type Error = <ReplyBody as Body>::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Says why and closes.
async fn refuse<S: AsyncWrite + Unpin>(mut stream: S, refusal: Refusal, mut record: Record) -> io::Result<()> {
    let fault = Fault::new(Outcome::BadFraming, refusal.reason);
    record.close(fault.outcome);
    stream.write_all(&reply::raw_error(refusal.dialect, &fault)).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn a_full_house_lets_the_next_client_wait_until_one_leaves() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (addr, room) = (listener.local_addr().unwrap(), Arc::new(Semaphore::new(1)));
        let _clients = (TcpStream::connect(addr).await.unwrap(), TcpStream::connect(addr).await.unwrap());
        let (_first, place) = next(&room, &listener).await.unwrap();
        let mut second = pin!(next(&room, &listener));
        let waits = poll_fn(|cx| Poll::Ready(second.as_mut().poll(cx).is_pending())).await;
        assert!(waits);
        drop(place);
        let _second = second.await.unwrap();
    }
}
