//! The server: one single-threaded runtime a core, each with its own listener on the same port and its
//! own connections to the upstreams, so that no request crosses threads.

pub mod accept;
pub mod admin;
pub mod drain;
pub mod framing;
pub mod tls;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use self::accept::Door;
use self::admin::{Admin, Reports};
use self::drain::Drain;
use self::tls::Certificate;
use crate::proxy::{Proxy, Shard};

/// Connections that wait for their accept, for each listener.
const BACKLOG: i32 = 4096;

/// Open connections of clients, for each shard. Beyond it the next ones wait for their accept until one closes.
const MAX_CONNECTIONS: usize = 16_384;

/// A client from which nothing comes is asked for a sign of life after [`PROBE_AFTER`], then at each
/// [`PROBE_EVERY`], and given up when the system's number of probes is missed: a tunnel whose client has vanished
/// would stay for ever.
const PROBE_AFTER: Duration = Duration::from_secs(60);
const PROBE_EVERY: Duration = Duration::from_secs(15);

/// Threads of a shard for what takes long: reading and planning of what is new, name lookups. More than there
/// are cores would only keep more memory, since the allocator keeps what each has freed.
const BLOCKING_THREADS: usize = 2;

/// A server that is listening.
pub struct Running {
    pub proxy_addr: SocketAddr,
    pub admin_addr: SocketAddr,
    admin: Arc<Admin>,
    stop: CancellationToken,
    threads: Vec<JoinHandle<()>>,
}

/// Why the server does not listen.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot listen on {addr}: {error}")]
    Listen { addr: SocketAddr, error: io::Error },
    #[error(transparent)]
    Tls(#[from] tls::TlsError),
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// Listens and serves until [`Running::stop`]. Prints nothing. Ports may be 0.
pub fn start(proxy: Arc<Proxy>, reports: Reports) -> Result<Running, StartError> {
    let server = &proxy.config.server;
    let tls = server.tls.as_ref().map(Certificate::read).transpose()?.map(Arc::new);
    let shards = std::thread::available_parallelism().map_or(1, usize::from);
    let listeners = listen(server.listen, shards)?;
    let admin_listener = listen(server.admin_listen, 1)?;
    let admin = Arc::new(Admin { reports, token: server.admin_token.clone(), ready: AtomicBool::new(false) });
    let mut running = Running {
        proxy_addr: address(&listeners, server.listen)?,
        admin_addr: address(&admin_listener, server.admin_listen)?,
        admin: Arc::clone(&admin),
        stop: CancellationToken::new(),
        threads: Vec::with_capacity(shards),
    };
    let mut admin_listener = admin_listener.into_iter();
    let serving = TaskTracker::new();
    serving.close();
    for (index, listener) in listeners.into_iter().enumerate() {
        let worker = Worker {
            proxy: Arc::clone(&proxy),
            tls: tls.clone(),
            listener,
            // The first shard serves the admin port as well.
            admin: admin_listener.next().map(|listener| (Arc::clone(&admin), listener)),
            stop: running.stop.clone(),
            part: serving.token(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS)
            .build()
            .map_err(StartError::Thread)?;
        let thread = std::thread::Builder::new().name(format!("shard-{index}"));
        let thread = thread.spawn(move || run(runtime, worker)).map_err(StartError::Thread)?;
        running.threads.push(thread);
    }
    admin.ready.store(true, Ordering::Release);
    Ok(running)
}

impl Running {
    /// Begins the drain: not ready, no new connections, what runs may finish within `drain_timeout`.
    pub fn stop(&self) {
        self.admin.ready.store(false, Ordering::Release);
        self.stop.cancel();
    }

    /// Waits until every shard has ended.
    pub fn join(mut self) {
        self.join_threads();
    }

    fn join_threads(&mut self) {
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a shard ended in a panic");
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
        self.join_threads();
    }
}

/// What a shard's thread works with.
struct Worker {
    proxy: Arc<Proxy>,
    tls: Option<Arc<Certificate>>,
    listener: TcpListener,
    admin: Option<(Arc<Admin>, TcpListener)>,
    stop: CancellationToken,
    /// Held until this shard has drained; the admin port is served until all have.
    part: TaskTrackerToken,
}

fn run(runtime: tokio::runtime::Runtime, worker: Worker) {
    if let Err(error) = runtime.block_on(serve(worker)) {
        tracing::error!(%error, "a shard could not listen");
    }
    // A name lookup that still hangs must not hold up the end.
    runtime.shutdown_background();
}

async fn serve(worker: Worker) -> io::Result<()> {
    let drain_timeout = worker.proxy.config.server.drain_timeout;
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let door = Arc::new(Door { shard: Shard::new(worker.proxy), drain: Drain::default(), tls: worker.tls, room });
    let listener = tokio::net::TcpListener::from_std(worker.listener)?;
    let serves_admin = worker.admin.is_some();
    if let Some((admin, listener)) = worker.admin {
        tokio::spawn(admin::serve(admin, tokio::net::TcpListener::from_std(listener)?));
    }
    let accepting = tokio::spawn(accept::accept(Arc::clone(&door), listener));
    worker.stop.cancelled().await;
    door.drain.begin();
    door.shard.ending.cancel();
    let tasks = &door.shard.tasks;
    tasks.close();
    let finished = async {
        let _ended = accepting.await;
        tasks.wait().await;
    };
    if tokio::time::timeout(drain_timeout, finished).await.is_err() {
        tracing::warn!(connections = tasks.len(), "drain_timeout is over; what still ran is cut off");
    }
    let all = worker.part.task_tracker().clone();
    drop(worker.part);
    if serves_admin {
        all.wait().await;
    }
    Ok(())
}

/// `count` listeners that share one port; the kernel spreads connections over them.
fn listen(addr: SocketAddr, count: usize) -> Result<Vec<TcpListener>, StartError> {
    let failed = |error| StartError::Listen { addr, error };
    // A port that is shared among shards could be shared with another program just as well, unnoticed.
    bind(addr, Sharing::Alone).map_err(failed)?;
    let mut bound = addr;
    let mut listeners = Vec::with_capacity(count);
    for _ in 0..count {
        let listener = bind(bound, Sharing::Shards).map_err(failed)?;
        listener.listen(BACKLOG).map_err(failed)?;
        let listener = TcpListener::from(listener);
        bound = listener.local_addr().map_err(failed)?;
        listeners.push(listener);
    }
    Ok(listeners)
}

/// Who else may bind the same port.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    Alone,
    Shards,
}

fn bind(addr: SocketAddr, sharing: Sharing) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(sharing == Sharing::Shards)?;
    // What is accepted has it from its listener.
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_EVERY))?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    Ok(socket)
}

fn address(listeners: &[TcpListener], asked: SocketAddr) -> Result<SocketAddr, StartError> {
    let bound = listeners.first().map_or(Ok(asked), TcpListener::local_addr);
    bound.map_err(|error| StartError::Listen { addr: asked, error })
}
