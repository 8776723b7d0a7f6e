//! `health`: one request to the local instance's `/readyz`, without a runtime, so that probes stay cheap.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::Failure;

/// The whole question may take this long.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Bytes of the answer that are looked at: the status line is all that matters.
const HEAD_BYTES: usize = 512;

/// Succeeds if the instance with this admin address says that it is ready.
pub fn run(admin: SocketAddr) -> Result<(), Failure> {
    if admin.port() == 0 {
        return Err(Failure::Runtime("the admin port is 0: name the real address with --admin".into()));
    }
    let address = SocketAddr::new(reachable(admin.ip()), admin.port());
    let head = ask(address, Instant::now() + TIMEOUT)
        .map_err(|error| Failure::Runtime(format!("{address} does not answer: {error}")))?;
    match status(&head) {
        Some(200) => Ok(()),
        Some(status) => Err(Failure::Runtime(format!("{address} is not ready: status {status}"))),
        None => Err(Failure::Runtime(format!("{address} does not speak HTTP"))),
    }
}

/// A listener on every interface is asked over loopback.
fn reachable(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(any) if any.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(any) if any.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        one => one,
    }
}

/// The first bytes of the answer, up to the end of its status line.
fn ask(address: SocketAddr, deadline: Instant) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    write!(stream, "GET /readyz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
    let mut head = Vec::with_capacity(HEAD_BYTES);
    let mut piece = [0; HEAD_BYTES];
    while head.len() < HEAD_BYTES && !head.contains(&b'\n') {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece)? {
            0 => break,
            read => head.extend_from_slice(piece.get(..read).unwrap_or_default()),
        }
    }
    Ok(head)
}

/// The status of an HTTP/1.1 status line.
fn status(head: &[u8]) -> Option<u16> {
    let line = std::str::from_utf8(head.split(|byte| *byte == b'\r').next()?).ok()?;
    line.strip_prefix("HTTP/1.1 ")?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// What `health` says of a server that answers with these bytes.
    fn against(answer: &'static str) -> Result<(), String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
                request.push(byte[0]);
            }
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8(request).unwrap()
        });
        let said = run(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port)).map_err(|failure| failure.to_string());
        assert!(server.join().unwrap().starts_with("GET /readyz HTTP/1.1\r\nhost: 127.0.0.1:"));
        said
    }

    #[test]
    fn ready_is_status_200() {
        assert_eq!(against("HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\ndegraded"), Ok(()));
        assert!(against("HTTP/1.1 503 Service Unavailable\r\n\r\n").is_err_and(|said| said.contains("status 503")));
        assert!(against("SSH-2.0-x\r\n").is_err_and(|said| said.contains("does not speak HTTP")));
        assert!(against("").is_err());
    }

    #[test]
    fn nobody_there_is_a_failure() {
        // A port that was free a moment ago, and held so that nobody else gets it, but not listening.
        let held = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        held.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        let port = held.local_addr().unwrap().as_socket().unwrap().port();
        assert!(run(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).is_err());
        assert!(run(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).is_err());
    }
}
