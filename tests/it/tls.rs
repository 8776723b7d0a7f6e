//! TLS on both sides, HTTP/2 on both sides, and the way through another proxy.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;

use crate::support::chat;
use crate::support::program::Program;
use crate::support::proxy::{config, start, with_upstream};
use crate::support::tls::Authority;
use crate::support::wire::{Listener, Wire, connect, patiently, values};

/// Answers one HTTP/2 connection with what it saw.
async fn serve_http2(listener: &Listener, authority: &Authority) {
    let stream = authority.server(&["h2"]).accept(listener.accept().await.stream).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let service = service_fn(|request: Request<Incoming>| async {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let seen = format!("{} {} {:?} {:?}", parts.method, parts.uri, parts.headers.get("host"), body);
        Ok::<_, Infallible>(Response::builder().header("x-up", "1").body(Full::new(Bytes::from(seen))).unwrap())
    });
    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let _ended = builder.serve_connection(TokioIo::new(stream), service).await;
}

#[tokio::test]
async fn an_upstream_that_speaks_http2_is_spoken_to_in_it() {
    let (listener, authority) = (Listener::bind().await, Authority::new());
    let url = format!("https://{}", listener.addr());
    let proxy = start(with_upstream(config(&url), |upstream| upstream.ca_file = Some(authority.file())));
    let exchange = async {
        let mut client = connect(proxy.proxy_addr).await;
        client.send("POST /v1/x?q HTTP/1.1\r\nHost: p\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi").await;
        let head = client.head().await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert_eq!(values(&head, "x-up"), ["1"]);
        let length = values(&head, "content-length")[0].parse().unwrap();
        let seen = String::from_utf8(client.exactly(length).await).unwrap();
        assert_eq!(seen, format!("POST {url}/v1/x?q None b\"hi\""));
    };
    tokio::select! {
        () = exchange => {}
        () = serve_http2(&listener, &authority) => panic!("the upstream ended first"),
    }
}

#[tokio::test]
async fn an_upstream_that_speaks_only_http1_over_tls_gets_its_host() {
    let (listener, authority) = (Listener::bind().await, Authority::new());
    let url = format!("https://{}", listener.addr());
    let proxy = start(with_upstream(config(&url), |upstream| upstream.ca_file = Some(authority.file())));
    let mut client = connect(proxy.proxy_addr).await;
    client.send("GET /x HTTP/1.1\r\nHost: p\r\n\r\n").await;
    let stream = authority.server(&[]).accept(listener.accept().await.stream).await.unwrap();
    let mut server = Wire::new(stream);
    assert_eq!(server.head().await, format!("GET /x HTTP/1.1\r\nHost: {}\r\n\r\n", listener.addr()));
    server.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    client.until("ok").await;
}

#[tokio::test]
async fn an_upstream_that_is_not_trusted_gets_nothing() {
    let (listener, authority, other) = (Listener::bind().await, Authority::new(), Authority::new());
    let url = format!("https://{}", listener.addr());
    let proxy = start(with_upstream(config(&url), |upstream| upstream.ca_file = Some(other.file())));
    let mut client = connect(proxy.proxy_addr).await;
    client.send("GET /x HTTP/1.1\r\nHost: p\r\n\r\n").await;
    assert!(authority.server(&[]).accept(listener.accept().await.stream).await.is_err());
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    assert!(String::from_utf8(client.until("}}").await).unwrap().contains("upstream_tls_failed"));
}

#[tokio::test]
async fn clients_may_use_tls_with_either_protocol() {
    let (listener, authority) = (Listener::bind().await, Authority::new());
    let mut settings = config(&listener.url());
    settings.server.tls = Some(authority.files());
    let proxy = start(settings);
    let name = ServerName::try_from("localhost").unwrap();
    let dial = async |alpn: &[&str]| {
        let stream = TcpStream::connect(proxy.proxy_addr).await.unwrap();
        authority.client(alpn).connect(name.clone(), stream).await.unwrap()
    };

    let mut client = Wire::new(dial(&["http/1.1"]).await);
    client.send("GET /1 HTTP/1.1\r\nHost: p\r\n\r\n").await;
    let mut server = listener.accept().await;
    assert!(server.head().await.starts_with("GET /1 "));
    server.send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok").await;
    client.until("ok").await;

    let stream = dial(&["h2"]).await;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::post("https://localhost/2?q")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .body(Full::new(Bytes::from("body")))
        .unwrap();
    let answer = tokio::spawn(async move { sender.send_request(request).await.unwrap() });
    let mut server = listener.accept().await;
    let head = server.head().await;
    assert!(head.starts_with("POST /2?q HTTP/1.1\r\n"), "{head}");
    assert_eq!(values(&head, "host"), [listener.addr().to_string()]);
    assert_eq!(values(&head, "cookie"), ["a=1; b=2"], "HTTP/1.1 has one line for them");
    assert_eq!(server.exactly(4).await, b"body");
    server
        .send(
            "HTTP/1.1 201 Created\r\nkeep-alive: 1\r\nx-a: 1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        )
        .await;
    let answer = patiently("the answer", answer).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.version()), (201, Version::HTTP_2));
    assert_eq!(answer.headers().keys().collect::<Vec<_>>(), ["x-a"]);
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "ok");
}

#[tokio::test]
async fn a_renewed_certificate_needs_no_restart() {
    let (listener, old, new) = (Listener::bind().await, Authority::new(), Authority::new());
    let mut settings = config(&listener.url());
    settings.server.tls = Some(old.files());
    let proxy = start(settings);
    let name = ServerName::try_from("localhost").unwrap();
    let dial = async |authority: &Authority| {
        let stream = TcpStream::connect(proxy.proxy_addr).await.unwrap();
        authority.client(&["http/1.1"]).connect(name.clone(), stream).await
    };
    let mut open = Wire::new(dial(&old).await.unwrap());
    // Another length as well: clocks of files are coarse.
    let copy = |from: &std::path::Path, to: &std::path::Path| {
        std::fs::write(to, std::fs::read_to_string(from).unwrap() + "\n").unwrap();
    };
    copy(&new.files().key, &old.files().key);
    copy(&new.files().cert, &old.files().cert);
    let stream = patiently("the new certificate", async {
        loop {
            if let Ok(stream) = dial(&new).await {
                return stream;
            }
        }
    })
    .await;
    // What was open goes on.
    for client in [&mut open, &mut Wire::new(stream)] {
        client.send("GET /1 HTTP/1.1\r\nHost: p\r\n\r\n").await;
        let mut server = listener.accept().await;
        assert!(server.head().await.starts_with("GET /1 "));
        server.send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok").await;
        client.until("ok").await;
    }
}

#[tokio::test]
async fn https_upstreams_are_reached_through_the_configured_proxy() {
    let (listener, between, authority) = (Listener::bind().await, Listener::bind().await, Authority::new());
    let url = format!("https://{}", listener.addr());
    let settings = with_upstream(config(&url), |upstream| upstream.ca_file = Some(authority.file()));
    let through = Matcher::builder().https(format!("http://user:pass@{}", between.addr())).build();
    let proxy = compactproxy::proxy::Proxy::with_proxies(settings, None, &through).unwrap();
    let proxy = compactproxy::server::start(proxy, Default::default()).unwrap();
    let mut client = connect(proxy.proxy_addr).await;
    client.send("GET /x HTTP/1.1\r\nHost: p\r\n\r\n").await;
    let mut tunnel = between.accept().await;
    let head = tunnel.head().await;
    assert!(head.starts_with(&format!("CONNECT {} HTTP/1.1\r\n", listener.addr())), "{head}");
    assert_eq!(values(&head, "proxy-authorization"), ["Basic dXNlcjpwYXNz"]);
    tunnel.send("HTTP/1.1 200 OK\r\n\r\n").await;
    let mut onward = TcpStream::connect(listener.addr()).await.unwrap();
    tokio::spawn(async move { copy_bidirectional(&mut tunnel.stream, &mut onward).await });
    let stream = authority.server(&[]).accept(listener.accept().await.stream).await.unwrap();
    let mut server = Wire::new(stream);
    assert!(server.head().await.starts_with("GET /x HTTP/1.1\r\n"));
    server.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    client.until("ok").await;
}

#[tokio::test]
async fn the_environment_says_which_upstreams_are_reached_through_which_proxy() {
    let (listener, between, authority) = (Listener::bind().await, Listener::bind().await, Authority::new());
    let folder = tempfile::tempdir().unwrap();
    let trusted = format!("ca_file = \"{}\"\n", authority.file().display());
    let file = chat::file(&format!("https://{}", listener.addr()), &trusted);
    std::fs::write(folder.path().join("proxy.toml"), file).unwrap();
    let through = between.url();
    for (variables, tunnelled) in [
        (vec![], false),
        (vec![("HTTPS_PROXY", &*through)], true),
        (vec![("https_proxy", &*through)], true),
        (vec![("HTTPS_PROXY", &*through), ("NO_PROXY", "127.0.0.1")], false),
        (vec![("HTTPS_PROXY", &*through), ("no_proxy", "127.0.0.1")], false),
        (vec![("HTTPS_PROXY", &*through), ("NO_PROXY", "elsewhere.example")], true),
    ] {
        let program = Program::within(folder.path(), &variables);
        let mut client = connect(program.proxy).await;
        client.send("GET /x HTTP/1.1\r\nHost: p\r\n\r\n").await;
        if tunnelled {
            let head = between.accept().await.head().await;
            assert!(head.starts_with(&format!("CONNECT {} ", listener.addr())), "{variables:?}: {head}");
        } else {
            // A TLS handshake begins.
            assert_eq!(listener.accept().await.exactly(1).await, [0x16], "{variables:?}");
        }
    }
}
