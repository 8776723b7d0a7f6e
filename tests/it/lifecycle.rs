//! Starting, probing, draining.

use std::time::Duration;

use tokio::net::TcpStream;

use crate::support::proxy::{config, start};
use crate::support::wire::{Listener, connect, patiently};

async fn probe(admin: std::net::SocketAddr, path: &str) -> String {
    let mut client = connect(admin).await;
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")).await;
    String::from_utf8(client.rest().await).unwrap()
}

#[tokio::test]
async fn every_shard_listens_on_the_one_port() {
    let listener = Listener::bind().await;
    let proxy = start(config(&listener.url()));
    for _ in 0..20 {
        let mut client = connect(proxy.proxy_addr).await;
        client.send("GET /_compactproxy/x HTTP/1.1\r\nHost: p\r\n\r\n").await;
        assert!(client.head().await.starts_with("HTTP/1.1 404 "));
    }
}

#[tokio::test]
async fn a_port_that_is_taken_is_an_error() {
    let proxy = start(config("http://127.0.0.1:1"));
    let mut settings = config("http://127.0.0.1:1");
    settings.server.listen = proxy.proxy_addr;
    let second = compactproxy::proxy::Proxy::new(settings, None).unwrap();
    assert!(compactproxy::server::start(second, Default::default()).is_err());
}

#[tokio::test]
async fn probes_answer() {
    let proxy = start(config("http://127.0.0.1:1"));
    assert!(probe(proxy.admin_addr, "/healthz").await.starts_with("HTTP/1.1 200 "));
    let ready = probe(proxy.admin_addr, "/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 200 ") && ready.contains("\"degraded\":false"), "{ready}");
}

#[tokio::test]
async fn a_drain_finishes_streams_and_takes_nothing_new() {
    let listener = Listener::bind().await;
    let mut settings = config(&listener.url());
    settings.server.drain_timeout = Duration::from_secs(20);
    let proxy = start(settings);
    let (proxy_addr, admin_addr) = (proxy.proxy_addr, proxy.admin_addr);
    let mut idle = connect(proxy_addr).await;
    idle.send("GET /_compactproxy/x HTTP/1.1\r\nHost: p\r\n\r\n").await;
    idle.head().await;
    let mut client = connect(proxy_addr).await;
    client.send("GET /stream HTTP/1.1\r\nHost: p\r\n\r\n").await;
    let mut server = listener.accept().await;
    server.head().await;
    server.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n").await;
    client.until("ab\r\n").await;

    proxy.stop();
    idle.rest().await;
    assert!(probe(admin_addr, "/readyz").await.starts_with("HTTP/1.1 503 "));
    let refused = async { while TcpStream::connect(proxy_addr).await.is_ok() {} };
    patiently("every listener to close", refused).await;
    server.send("2\r\ncd\r\n0\r\n\r\n").await;
    assert_eq!(client.until("0\r\n\r\n").await, b"2\r\ncd\r\n0\r\n\r\n");
    assert_eq!(client.rest().await, b"");
    tokio::task::spawn_blocking(move || proxy.join()).await.unwrap();
}

#[tokio::test]
async fn what_outlives_the_drain_timeout_is_cut_off() {
    let listener = Listener::bind().await;
    let mut settings = config(&listener.url());
    settings.server.drain_timeout = Duration::from_millis(50);
    let proxy = start(settings);
    let mut client = connect(proxy.proxy_addr).await;
    client.send("GET /stream HTTP/1.1\r\nHost: p\r\n\r\n").await;
    let mut server = listener.accept().await;
    server.head().await;
    server.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n").await;
    client.until("ab\r\n").await;
    proxy.stop();
    assert_eq!(client.rest().await, b"");
    assert_eq!(server.rest().await, b"");
}
