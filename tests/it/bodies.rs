//! Streaming: order, back-pressure, trailers, caps, ends.

mod caps;

use std::time::Duration;

use tokio::io::AsyncWriteExt;

use crate::support::proxy::{config, start, with_strategy, with_upstream};
use crate::support::wire::{Listener, Wire, connect};

const STREAM_HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const ASK: &str =
    "POST /v1/chat/completions HTTP/1.1\r\nHost: p\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";

/// A client and an upstream in the middle of a stream.
async fn stream(listener: &Listener, proxy: std::net::SocketAddr) -> (Wire, Wire) {
    let mut client = connect(proxy).await;
    client.send(ASK).await;
    let mut server = listener.accept().await;
    server.until("{}").await;
    server.send(STREAM_HEAD).await;
    assert_eq!(client.head().await, STREAM_HEAD);
    (client, server)
}

#[tokio::test]
async fn an_event_arrives_before_the_next_exists() {
    let listener = Listener::bind().await;
    for settings in [config(&listener.url()), with_strategy(config(&listener.url()))] {
        let proxy = start(settings);
        let (mut client, mut server) = stream(&listener, proxy.proxy_addr).await;
        for n in 0..20 {
            let event = format!("data: {n:02}\n\n");
            server.send(format!("a\r\n{event}\r\n")).await;
            assert_eq!(client.until("\n\n\r\n").await, format!("A\r\n{event}\r\n").as_bytes());
        }
        server.send("0\r\n\r\n").await;
        assert_eq!(client.until("0\r\n\r\n").await, b"0\r\n\r\n");
    }
}

#[tokio::test]
async fn chunks_that_are_ready_together_are_the_same_bytes() {
    let listener = Listener::bind().await;
    let proxy = start(config(&listener.url()));
    let (mut client, mut server) = stream(&listener, proxy.proxy_addr).await;
    let mut sent = Vec::new();
    let mut coded = Vec::new();
    for n in 0..3000_usize {
        let piece = vec![(n % 251) as u8; 1 + (n * 7919) % 300];
        coded.extend(format!("{:x}\r\n", piece.len()).into_bytes());
        coded.extend(&piece);
        coded.extend(b"\r\n");
        sent.extend(piece);
    }
    coded.extend(b"0\r\n\r\n");
    let (_, (received, _)) = tokio::join!(server.send(coded), client.chunked());
    assert!(received == sent);
}

#[tokio::test]
async fn trailers_pass_both_ways() {
    let listener = Listener::bind().await;
    for settings in [config(&listener.url()), with_strategy(config(&listener.url()))] {
        let proxy = start(settings);
        let mut client = connect(proxy.proxy_addr).await;
        client
            .send(
                "POST /v1/chat/completions HTTP/1.1\r\nHost: p\r\nTE: trailers\r\nContent-Type: application/json\r\n\
                 Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\nX-Sum: up\r\n\r\n",
            )
            .await;
        let mut server = listener.accept().await;
        let head = server.head().await;
        assert!(
            head.contains("Trailer: X-Sum\r\n") && head.to_lowercase().contains("transfer-encoding: chunked"),
            "{head}"
        );
        let (data, trailers) = server.chunked().await;
        assert_eq!((data, trailers.to_lowercase()), (b"{}".to_vec(), "x-sum: up\r\n\r\n".into()));
        server
            .send("HTTP/1.1 200 OK\r\nTrailer: X-End\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-End: down\r\n\r\n")
            .await;
        assert!(client.head().await.contains("Trailer: X-End\r\n"));
        let (data, trailers) = client.chunked().await;
        assert_eq!((data, trailers.to_lowercase()), (b"hi".to_vec(), "x-end: down\r\n\r\n".into()));
    }
}

#[tokio::test]
async fn a_chunked_body_of_any_method_reaches_the_upstream() {
    let listener = Listener::bind().await;
    let proxy = start(config(&listener.url()));
    for method in ["POST", "DELETE", "GET"] {
        let mut client = connect(proxy.proxy_addr).await;
        client
            .send(format!("{method} /x HTTP/1.1\r\nHost: p\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"))
            .await;
        let mut server = listener.accept().await;
        assert!(server.head().await.to_lowercase().contains("transfer-encoding: chunked\r\n"), "{method}");
        assert_eq!(server.chunked().await.0, b"abc");
    }
}

#[tokio::test]
async fn bodies_over_a_cap_pass_untouched() {
    let listener = Listener::bind().await;
    let cap = 100_000;
    for (max_body_bytes, max_buffered_bytes) in [(cap, usize::MAX), (usize::MAX, cap)] {
        let mut settings = with_strategy(config(&listener.url()));
        settings.server.max_body_bytes = max_body_bytes;
        settings.server.max_buffered_bytes = max_buffered_bytes;
        let proxy = start(settings);
        for (size, chunked) in [(cap, false), (cap + 1, false), (cap, true), (cap + 1, true), (5 * cap, true)] {
            let body: Vec<u8> = (0..size).map(|n| (n % 253) as u8).collect();
            let length = if chunked { "Transfer-Encoding: chunked".into() } else { format!("Content-Length: {size}") };
            let mut client = connect(proxy.proxy_addr).await;
            let mut request = format!(
                "POST /v1/chat/completions HTTP/1.1\r\nHost: p\r\nContent-Type: application/json\r\n{length}\r\n\r\n"
            )
            .into_bytes();
            if chunked {
                for piece in body.chunks(30_000) {
                    request.extend(format!("{:x}\r\n", piece.len()).into_bytes());
                    request.extend(piece);
                    request.extend(b"\r\n");
                }
                request.extend(b"0\r\n\r\n");
            } else {
                request.extend(&body);
            }
            let receive = async {
                let mut server = listener.accept().await;
                server.head().await;
                let received = if chunked { server.chunked().await.0 } else { server.exactly(size).await };
                server.send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await;
                received
            };
            let (_, received) = tokio::join!(client.send(request), receive);
            assert!(received == body, "{size} {chunked}");
            client.head().await;
        }
    }
}

#[tokio::test]
async fn a_slow_client_stops_the_upstream() {
    let listener = Listener::bind().await;
    let proxy = start(config(&listener.url()));
    let (mut client, mut server) = stream(&listener, proxy.proxy_addr).await;
    let chunk = [b"10000\r\n".to_vec(), vec![b'x'; 0x10000], b"\r\n".to_vec()].concat();
    let all = 1_000;
    let mut sent = 0;
    // Stalled for this long: everybody between here and the client is full.
    while sent < all {
        match tokio::time::timeout(Duration::from_millis(300), server.stream.write_all(&chunk)).await {
            Ok(written) => written.unwrap(),
            Err(_) => break,
        }
        sent += 1;
    }
    assert!(sent < all / 2, "{sent} chunks of 64 KiB went somewhere");
    drop(server);
    client.rest().await;
}

#[tokio::test]
async fn a_client_that_leaves_cancels_the_call() {
    let listener = Listener::bind().await;
    let proxy = start(config(&listener.url()));
    let (client, mut server) = stream(&listener, proxy.proxy_addr).await;
    drop(client);
    assert_eq!(server.rest().await, b"");

    for settings in [config(&listener.url()), with_strategy(config(&listener.url()))] {
        let proxy = start(settings);
        let mut client = connect(proxy.proxy_addr).await;
        client.send(ASK).await;
        let mut server = listener.accept().await;
        server.until("{}").await;
        drop(client);
        assert_eq!(server.rest().await, b"", "before any answer");
    }
}

#[tokio::test]
async fn an_upstream_that_dies_never_looks_like_an_end() {
    let listener = Listener::bind().await;
    let proxy = start(config(&listener.url()));
    let (mut client, mut server) = stream(&listener, proxy.proxy_addr).await;
    server.send("5\r\nhello\r\n").await;
    client.until("hello\r\n").await;
    drop(server);
    let end = client.rest().await;
    assert!(!end.ends_with(b"0\r\n\r\n"), "{end:?}");

    let mut client = connect(proxy.proxy_addr).await;
    client.send(ASK).await;
    let mut server = listener.accept().await;
    server.until("{}").await;
    server.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await;
    drop(server);
    client.head().await;
    assert_eq!(client.rest().await, b"half");
}

#[tokio::test]
async fn an_upstream_that_falls_silent_is_given_up() {
    let listener = Listener::bind().await;
    let proxy = start(with_upstream(config(&listener.url()), |upstream| {
        upstream.idle_timeout = Duration::from_secs(1);
    }));
    let (mut client, mut server) = stream(&listener, proxy.proxy_addr).await;
    server.send("5\r\nhello\r\n").await;
    let end = client.rest().await;
    assert!(end.starts_with(b"5\r\nhello\r\n") && !end.ends_with(b"0\r\n\r\n"), "{end:?}");
    assert_eq!(server.rest().await, b"");
}

#[tokio::test]
async fn continue_is_the_upstreams_word_where_the_body_streams() {
    let listener = Listener::bind().await;
    let proxy = start(config(&listener.url()));
    let ask = "PUT /f HTTP/1.1\r\nHost: p\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
    let mut client = connect(proxy.proxy_addr).await;
    client.send(ask).await;
    let mut server = listener.accept().await;
    assert!(server.head().await.contains("Expect: 100-continue\r\n"));
    server.send("HTTP/1.1 100 Continue\r\n\r\n").await;
    assert_eq!(client.head().await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("body").await;
    assert_eq!(server.exactly(4).await, b"body");
    server.send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await;
    assert!(client.head().await.starts_with("HTTP/1.1 200 "));

    let mut client = connect(proxy.proxy_addr).await;
    client.send(ask).await;
    let mut server = listener.accept().await;
    server.head().await;
    server.send("HTTP/1.1 417 Expectation Failed\r\ncontent-length: 0\r\n\r\n").await;
    assert!(client.head().await.starts_with("HTTP/1.1 417 "), "the refusal comes first and alone");
}

/// hyper's server cannot send them on; they disturb nothing.
#[tokio::test]
async fn interim_answers_are_left_out_and_the_answer_passes() {
    let listener = Listener::bind().await;
    for settings in [config(&listener.url()), with_strategy(config(&listener.url()))] {
        let proxy = start(settings);
        let mut client = connect(proxy.proxy_addr).await;
        client.send(ASK).await;
        let mut server = listener.accept().await;
        server.until("{}").await;
        server.send("HTTP/1.1 102 Processing\r\n\r\n").await;
        server.send("HTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload\r\n\r\n").await;
        server.send(STREAM_HEAD).await;
        assert_eq!(client.head().await, STREAM_HEAD);
        server.send("5\r\nhello\r\n0\r\n\r\n").await;
        assert_eq!(client.until("0\r\n\r\n").await, b"5\r\nhello\r\n0\r\n\r\n");
    }
}

#[tokio::test]
async fn a_body_that_is_looked_at_is_asked_for_at_once() {
    let listener = Listener::bind().await;
    let proxy = start(with_strategy(config(&listener.url())));
    let mut client = connect(proxy.proxy_addr).await;
    client
        .send(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: p\r\nContent-Type: application/json\r\n\
             Expect: 100-continue\r\nContent-Length: 2\r\n\r\n",
        )
        .await;
    assert_eq!(client.head().await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("{}").await;
    let mut server = listener.accept().await;
    assert!(!server.head().await.contains("Expect"));
    assert_eq!(server.exactly(2).await, b"{}");
}
