//! Passes connections on and knows how many of them are open.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// In front of a server; ends with the value.
pub struct Tap {
    addr: SocketAddr,
    open: Arc<AtomicUsize>,
    accept: AbortHandle,
}

impl Tap {
    pub async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (addr, open) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&open);
        let accept = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                connections.spawn(pass(client, server, Arc::clone(&count)));
            }
        });
        Self { addr, open, accept: accept.abort_handle() }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    pub async fn all_closed(&self) {
        while self.open() > 0 {
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

/// Both directions, until the client has closed its own.
async fn pass(mut client: TcpStream, server: SocketAddr, open: Arc<AtomicUsize>) {
    let mut server = TcpStream::connect(server).await.unwrap();
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    tokio::select! {
        _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
        _ = tokio::io::copy(&mut from_server, &mut to_client) => {}
    }
    open.fetch_sub(1, Ordering::SeqCst);
}
