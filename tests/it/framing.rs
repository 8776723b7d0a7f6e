//! Ambiguous messages are refused before any upstream hears of them.

use crate::support::proxy::{config, start, with_strategy};
use crate::support::wire::{Listener, connect};

#[tokio::test]
async fn smuggling_attempts_get_400_and_a_closed_connection() {
    let listener = Listener::bind().await;
    let proxy = start(config(&listener.url()));
    for fields in [
        "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "Content-Length: 5, 6\r\n\r\nhello",
        "Content-Length: -1\r\n\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: identity\r\n\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "X-A: 1\r\n folded\r\n\r\n",
        "Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
        "X-A\r\n\r\n",
        "Host: q\r\n\r\n",
        "X-A: a\x00b\r\n\r\n",
    ] {
        let mut client = connect(proxy.proxy_addr).await;
        client.send(format!("POST /v1/chat/completions HTTP/1.1\r\nHost: p\r\n{fields}")).await;
        let answer = String::from_utf8(client.rest().await).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{fields:?} got {answer:?}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer:?}");
    }
    assert_is_first(&listener, proxy.proxy_addr).await;
}

#[tokio::test]
async fn a_refusal_has_the_dialects_shape() {
    let proxy = start(config("http://127.0.0.1:1"));
    for (path, pointer) in [("/v1/chat/completions", "/error/code"), ("/v1/messages", "/type")] {
        let mut client = connect(proxy.proxy_addr).await;
        client.send(format!("POST {path} HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n")).await;
        let head = client.head().await;
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head}");
        let body: serde_json::Value = serde_json::from_slice(&client.rest().await).unwrap();
        assert_eq!(body["error"]["type"], "compactproxy_error");
        assert!(body.pointer(pointer).is_some(), "{body}");
    }
}

#[tokio::test]
async fn a_refused_second_message_does_not_ride_on_the_first() {
    let listener = Listener::bind().await;
    let proxy = start(config(&listener.url()));
    let mut client = connect(proxy.proxy_addr).await;
    client.send("POST /a HTTP/1.1\r\nHost: p\r\nContent-Length: 2\r\n\r\nab").await;
    let mut server = listener.accept().await;
    server.until("ab").await;
    server.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    client.head().await;
    client.send("POST /b HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").await;
    assert!(client.head().await.starts_with("HTTP/1.1 400 "));
}

/// `Upgrade` alone is no upgrade: what follows on the connection is looked at as before.
#[tokio::test]
async fn an_upgrade_that_does_not_happen_blinds_nobody() {
    let listener = Listener::bind().await;
    let proxy = start(config(&listener.url()));
    for fields in ["Upgrade: x\r\n", "Connection: upgrade\r\nUpgrade: x\r\n"] {
        let mut client = connect(proxy.proxy_addr).await;
        client.send(format!("GET /a HTTP/1.1\r\nHost: p\r\n{fields}\r\n")).await;
        let mut server = listener.accept().await;
        server.head().await;
        server.send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await;
        client.head().await;
        client.send("POST /b HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").await;
        assert!(client.head().await.starts_with("HTTP/1.1 400 "), "{fields:?}");
    }
    assert_is_first(&listener, proxy.proxy_addr).await;
}

#[tokio::test]
async fn a_refusal_never_stands_in_another_answer() {
    let listener = Listener::bind().await;
    let proxy = start(config(&listener.url()));
    let mut client = connect(proxy.proxy_addr).await;
    client.send("POST /a HTTP/1.1\r\nHost: p\r\nContent-Length: 2\r\n\r\nab").await;
    let mut server = listener.accept().await;
    server.until("ab").await;
    server.send("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nbegun").await;
    client.until("begun").await;
    client.send("POST /b HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").await;
    assert_eq!(client.rest().await, b"", "closed without a word");
}

#[tokio::test]
async fn broken_chunks_never_become_a_whole_request() {
    let listener = Listener::bind().await;
    for settings in [config(&listener.url()), with_strategy(config(&listener.url()))] {
        let proxy = start(settings);
        for chunks in ["zz\r\nab\r\n", "2\r\nabX\r\n0\r\n\r\n", "2\nab\n0\n\n", "ffffffffffffffff1\r\n", "-2\r\nab\r\n"]
        {
            let mut client = connect(proxy.proxy_addr).await;
            client
                .send(format!(
                    "POST /v1/chat/completions HTTP/1.1\r\nHost: p\r\nContent-Type: application/json\r\n\
                     Transfer-Encoding: chunked\r\n\r\n{chunks}"
                ))
                .await;
            let answer = String::from_utf8(client.rest().await).unwrap();
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{chunks:?} got {answer:?}");
        }
    }
}

#[tokio::test]
async fn bare_line_feeds_arrive_as_a_plain_message() {
    let listener = Listener::bind().await;
    let proxy = start(config(&listener.url()));
    let mut client = connect(proxy.proxy_addr).await;
    client.send("POST /a HTTP/1.1\nHost: p\nContent-Length: 2\n\nab").await;
    let mut server = listener.accept().await;
    let head = format!("POST /a HTTP/1.1\r\nHost: {}\r\nContent-Length: 2\r\n\r\n", listener.addr());
    assert_eq!(server.head().await, head);
    assert_eq!(server.exactly(2).await, b"ab");
}

/// Fails if the listener has seen anything before a good request.
async fn assert_is_first(listener: &Listener, proxy: std::net::SocketAddr) {
    let mut client = connect(proxy).await;
    client.send("GET /good HTTP/1.1\r\nHost: p\r\n\r\n").await;
    assert!(listener.accept().await.head().await.starts_with("GET /good "));
}
