//! The two reverse proxies that everything is compared with. Both stream both ways and look at no body.
//!
//! * *floor*: hyper as it comes, one runtime of several threads, one write for what each poll brings.
//! * *sharded*: one single-threaded runtime a core, each with its own listener on the shared port and its own
//!   pool of upstream connections, and [`Joined`] answers.

use std::net::SocketAddr;

use hyper::body::{Body, Incoming};
use hyper::header::{CONNECTION, HOST, TRANSFER_ENCODING};
use hyper::http::uri::{Authority, Scheme};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, Uri};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Builder;

use crate::Error;
use crate::joined::Joined;

type Upstream = Client<HttpConnector, Incoming>;

/// Serves the default proxy until the process ends.
pub fn serve_floor(upstream: &str) -> Result<(), Error> {
    let upstream: Authority = upstream.parse()?;
    let runtime = Builder::new_multi_thread().worker_threads(cores()).enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        announce(listener.local_addr()?);
        accept(listener, upstream, |answer| answer).await
    })
}

/// Serves the sharded proxy until the process ends.
pub fn serve_sharded(upstream: &str) -> Result<(), Error> {
    let upstream: Authority = upstream.parse()?;
    let first = shard_socket("127.0.0.1:0".parse()?)?;
    let address = first.local_addr()?;
    let mut sockets = vec![first];
    for _ in 1..cores() {
        sockets.push(shard_socket(address)?);
    }
    let shards: Vec<_> = sockets
        .into_iter()
        .map(|socket| {
            let upstream = upstream.clone();
            std::thread::spawn(move || -> Result<(), Error> {
                let runtime = Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(async { accept(socket.listen(4096)?, upstream, Joined::new).await })
            })
        })
        .collect();
    announce(address);
    for shard in shards {
        shard.join().map_err(|_| "a shard panicked")??;
    }
    Ok(())
}

/// The line by which every child of the runner tells its address; compactproxy prints the same.
pub fn announce(address: SocketAddr) {
    eprintln!("listening proxy={address}");
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

fn shard_socket(address: SocketAddr) -> Result<TcpSocket, Error> {
    // Binding needs no runtime; each shard listens within its own.
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

async fn accept<B>(listener: TcpListener, upstream: Authority, wrap: fn(Incoming) -> B) -> Result<(), Error>
where
    B: Body<Data = bytes::Bytes, Error = hyper::Error> + Send + 'static,
{
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Upstream = Client::builder(TokioExecutor::new()).build(connector);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (client, upstream) = (client.clone(), upstream.clone());
        let service = service_fn(move |request| forward(client.clone(), upstream.clone(), request, wrap));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn forward<B>(
    client: Upstream,
    upstream: Authority,
    mut request: Request<Incoming>,
    wrap: fn(Incoming) -> B,
) -> Result<Response<B>, Error> {
    let mut target = std::mem::take(request.uri_mut()).into_parts();
    target.scheme = Some(Scheme::HTTP);
    target.authority = Some(upstream);
    *request.uri_mut() = Uri::from_parts(target)?;
    request.headers_mut().remove(HOST);
    drop_hop_by_hop(request.headers_mut());
    let mut answer = client.request(request).await?;
    drop_hop_by_hop(answer.headers_mut());
    Ok(answer.map(wrap))
}

fn drop_hop_by_hop(headers: &mut HeaderMap) {
    headers.remove(CONNECTION);
    headers.remove(TRANSFER_ENCODING);
}
