//! Raw sockets: tests that say and see every byte. Whatever waits fails after ten seconds.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const PATIENCE: Duration = Duration::from_secs(60);

/// An upstream whose part the test plays itself.
pub struct Listener(pub TcpListener);

/// One end of a connection.
pub struct Wire<S = TcpStream> {
    pub stream: S,
    read: Vec<u8>,
}

impl Listener {
    pub async fn bind() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    pub fn addr(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr())
    }

    pub async fn accept(&self) -> Wire {
        let (stream, _) = patiently("a connection", self.0.accept()).await.unwrap();
        Wire::new(stream)
    }

    /// Waits for a connection as long as it takes.
    pub async fn accept_any(&self) -> Wire {
        Wire::new(self.0.accept().await.unwrap().0)
    }
}

pub async fn connect(addr: SocketAddr) -> Wire {
    Wire::new(TcpStream::connect(addr).await.unwrap())
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub fn new(stream: S) -> Self {
        Self { stream, read: Vec::new() }
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        patiently("room to send", self.stream.write_all(bytes.as_ref())).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// A message's head, empty line included.
    pub async fn head(&mut self) -> String {
        String::from_utf8(self.until("\r\n\r\n").await).unwrap()
    }

    /// The next head; `None` when the other side has ended, however long that takes.
    pub async fn head_or_end(&mut self) -> Option<String> {
        if self.read.is_empty() {
            let mut piece = [0; 64 * 1024];
            let read = self.stream.read(&mut piece).await.unwrap_or(0);
            self.read.extend_from_slice(&piece[..read]);
        }
        if self.read.is_empty() { None } else { Some(self.head().await) }
    }

    /// Everything up to and including `end`.
    pub async fn until(&mut self, end: &str) -> Vec<u8> {
        loop {
            if let Some(at) = self.read.windows(end.len()).position(|window| window == end.as_bytes()) {
                return self.read.drain(..at + end.len()).collect();
            }
            assert!(self.more(end).await, "closed before {end:?}; got {:?}", String::from_utf8_lossy(&self.read));
        }
    }

    pub async fn exactly(&mut self, count: usize) -> Vec<u8> {
        while self.read.len() < count {
            assert!(self.more("bytes").await, "closed after {} of {count} bytes", self.read.len());
        }
        self.read.drain(..count).collect()
    }

    /// Everything until the other side closes or resets.
    pub async fn rest(&mut self) -> Vec<u8> {
        while self.more("the end").await {}
        std::mem::take(&mut self.read)
    }

    /// A chunked body: its data, and its end from the last chunk's trailers on.
    pub async fn chunked(&mut self) -> (Vec<u8>, String) {
        let mut data = Vec::new();
        loop {
            let line = String::from_utf8(self.until("\r\n").await).unwrap();
            let size = usize::from_str_radix(line.trim_end(), 16).unwrap();
            if size == 0 {
                let mut trailers = String::new();
                while !trailers.ends_with("\r\n\r\n") && trailers != "\r\n" {
                    trailers += &String::from_utf8(self.until("\r\n").await).unwrap();
                }
                return (data, trailers);
            }
            data.extend(self.exactly(size).await);
            assert_eq!(self.exactly(2).await, b"\r\n");
        }
    }

    async fn more(&mut self, what: &str) -> bool {
        let mut piece = vec![0; 64 * 1024];
        let read = patiently(what, self.stream.read(&mut piece)).await.unwrap_or(0);
        self.read.extend_from_slice(&piece[..read]);
        read > 0
    }
}

pub async fn patiently<F: Future>(what: &str, future: F) -> F::Output {
    let Ok(output) = tokio::time::timeout(PATIENCE, future).await else { panic!("waited too long for {what}") };
    output
}

/// The values of a header in a head, in order.
pub fn values<'h>(head: &'h str, name: &str) -> Vec<&'h str> {
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    fields.filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
}

/// The lines of a head after the first, sorted: order across names is free.
pub fn sorted_lines(head: &str) -> Vec<&str> {
    let mut lines: Vec<_> = head.trim_end().lines().skip(1).collect();
    lines.sort_unstable();
    lines
}
