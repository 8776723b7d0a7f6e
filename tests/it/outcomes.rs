//! Every request is counted once, as what it was.

use std::sync::Arc;

use compactproxy::proxy::Proxy;
use compactproxy::server::{self, Running};
use compactproxy::telemetry::Metrics;

use crate::support::proxy::config;
use crate::support::wire::{Listener, Wire, connect, patiently};

fn counted(base_url: &str) -> (Running, Arc<Metrics>) {
    let proxy = Proxy::new(config(base_url), None).unwrap();
    let metrics = Arc::clone(&proxy.metrics);
    (server::start(proxy, Default::default()).unwrap(), metrics)
}

/// Waits for the first request to be counted; the shard does it after the sockets have closed.
async fn outcome(handle: &Metrics) -> String {
    let counted = async {
        loop {
            let text = handle.render();
            let mut lines = text.lines().filter(|line| line.starts_with("compactproxy_requests_total{"));
            if let Some(line) = lines.find(|line| !line.ends_with(" 0")) {
                let (_, outcome) = line.split_once("outcome=\"").unwrap();
                return outcome.split_once('"').unwrap().0.to_owned();
            }
            tokio::task::yield_now().await;
        }
    };
    patiently("the count", counted).await
}

async fn stream(listener: &Listener, proxy: &Running) -> (Wire, Wire) {
    let mut client = connect(proxy.proxy_addr).await;
    client.send("GET /s HTTP/1.1\r\nHost: p\r\n\r\n").await;
    let mut server = listener.accept().await;
    server.head().await;
    server.send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n").await;
    client.head().await;
    (client, server)
}

#[tokio::test]
async fn a_client_that_closes_after_done_has_had_it_all() {
    let listener = Listener::bind().await;
    for (event, expected) in [("data: [DONE]\n\n", "relayed"), ("data: {more}\n\n", "client_gone")] {
        let (proxy, handle) = counted(&listener.url());
        let (mut client, mut server) = stream(&listener, &proxy).await;
        server.send(format!("{:x}\r\n{event}\r\n", event.len())).await;
        client.until("\n\n").await;
        drop(client);
        assert_eq!(outcome(&handle).await, expected);
        assert_eq!(server.rest().await, b"");
    }
}

#[tokio::test]
async fn a_whole_answer_and_a_broken_one_are_told_apart() {
    let listener = Listener::bind().await;
    for (end, expected) in [("0\r\n\r\n", "relayed"), ("5\r\nhal", "upstream_broke_off")] {
        let (proxy, handle) = counted(&listener.url());
        let (_client, mut server) = stream(&listener, &proxy).await;
        server.send(end).await;
        drop(server);
        assert_eq!(outcome(&handle).await, expected);
    }
}

#[tokio::test]
async fn a_client_that_leaves_before_any_answer_is_counted() {
    let listener = Listener::bind().await;
    let (proxy, handle) = counted(&listener.url());
    let mut client = connect(proxy.proxy_addr).await;
    client.send("GET /s HTTP/1.1\r\nHost: p\r\n\r\n").await;
    let mut server = listener.accept().await;
    server.head().await;
    drop(client);
    assert_eq!(outcome(&handle).await, "client_gone");
    assert_eq!(server.rest().await, b"");
}

#[tokio::test]
async fn a_refused_framing_is_counted() {
    let (proxy, handle) = counted("http://127.0.0.1:1");
    let mut client = connect(proxy.proxy_addr).await;
    client.send("POST /s HTTP/1.1\r\nContent-Length: x\r\n\r\n").await;
    client.rest().await;
    assert_eq!(outcome(&handle).await, "bad_framing");
}
