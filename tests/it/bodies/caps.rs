//! What is held of a body, and what is not: up to its caps, while others hold as much, and while nobody reads.

use std::net::SocketAddr;
use std::time::Duration;

use memchr::memmem;
use tokio::io::AsyncWriteExt;

use crate::support::chat::{get, history, parsed};
use crate::support::proxy::{Served, config, start, with_strategy};
use crate::support::wire::{Listener, Wire, connect, patiently, values};

/// How a body's end is told.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Framed {
    Length,
    Chunks,
}

const EVICTION: &str = "[tool_result_eviction]\nmax_result_chars = 2000\npreview_chars = 200\n";
const POINTER: &[u8] = b"/_compactproxy/evicted/";

/// A conversation of exactly so many bytes, in which an eviction is due.
fn due(size: usize) -> Vec<u8> {
    let mut body = history("a", 1, 1_000);
    let bare = body.to_string().len();
    let asked = body["messages"][1]["content"].as_str().unwrap().to_owned();
    let filling = "river stone ".repeat(size / 12);
    body["messages"][1]["content"] = (asked + &filling[..size - bare]).into();
    body.to_string().into_bytes()
}

fn post_head(framed: Framed, size: usize) -> String {
    let length = match framed {
        Framed::Length => format!("Content-Length: {size}"),
        Framed::Chunks => "Transfer-Encoding: chunked".to_owned(),
    };
    format!("POST /v1/chat/completions HTTP/1.1\r\nHost: p\r\nContent-Type: application/json\r\n{length}\r\n\r\n")
}

fn chunk(piece: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat()
}

/// What the upstream receives of a body.
async fn received(listener: &Listener, proxy: SocketAddr, body: &[u8], framed: Framed) -> Vec<u8> {
    let mut request = post_head(framed, body.len()).into_bytes();
    match framed {
        Framed::Length => request.extend(body),
        Framed::Chunks => {
            body.chunks(30_000).for_each(|piece| request.extend(chunk(piece)));
            request.extend(b"0\r\n\r\n");
        }
    }
    let mut client = connect(proxy).await;
    let receive = async {
        let mut server = listener.accept().await;
        let head = server.head().await;
        let length = values(&head, "content-length").first().map(|length| length.parse().unwrap());
        let received = match length {
            Some(length) => server.exactly(length).await,
            None => server.chunked().await.0,
        };
        server.send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await;
        received
    };
    let (_, received) = tokio::join!(client.send(request), receive);
    client.head().await;
    received
}

/// The next `count` bytes of a body on its way.
async fn arrived(server: &mut Wire, framed: Framed, count: usize) -> Vec<u8> {
    if framed == Framed::Length {
        return server.exactly(count).await;
    }
    let mut data = Vec::new();
    while data.len() < count {
        let line = String::from_utf8(server.until("\r\n").await).unwrap();
        data.extend(server.exactly(usize::from_str_radix(line.trim_end(), 16).unwrap()).await);
        server.exactly(2).await;
    }
    data
}

/// Waits until this many bytes of bodies are held.
async fn buffered(proxy: &Served, wanted: impl Fn(usize) -> bool) {
    let held = async {
        loop {
            let page = get(proxy.admin_addr, "/metrics").await;
            let line = page.text().lines().find_map(|line| line.strip_prefix("compactproxy_buffered_bytes "));
            if wanted(line.unwrap().parse().unwrap()) {
                return;
            }
        }
    };
    patiently("the buffers", held).await;
}

#[tokio::test]
async fn what_is_due_is_done_up_to_each_cap_and_not_beyond() {
    let listener = Listener::bind().await;
    let cap = 100_000;
    for (max_body_bytes, max_buffered_bytes) in [(cap, usize::MAX), (usize::MAX, cap)] {
        let mut settings = parsed(&listener.url(), EVICTION);
        (settings.server.max_body_bytes, settings.server.max_buffered_bytes) = (max_body_bytes, max_buffered_bytes);
        let proxy = start(settings);
        for framed in [Framed::Length, Framed::Chunks] {
            for size in [cap, cap + 1] {
                let body = due(size);
                let sent = received(&listener, proxy.proxy_addr, &body, framed).await;
                let rewritten = memmem::find(&sent, POINTER).is_some() && sent.len() < size;
                assert_eq!((rewritten, sent != body), (size == cap, size == cap), "{max_body_bytes} {size} {framed:?}");
            }
        }
    }
}

#[tokio::test]
async fn what_others_hold_of_the_buffers_is_not_there_for_a_body_until_they_give_it_back() {
    let listener = Listener::bind().await;
    let cap = 100_000;
    let mut settings = parsed(&listener.url(), EVICTION);
    settings.server.max_buffered_bytes = cap;
    let proxy = start(settings);
    for framed in [Framed::Length, Framed::Chunks] {
        let mut other = connect(proxy.proxy_addr).await;
        other.send([post_head(Framed::Chunks, 0).as_bytes(), &chunk(&[b' '; 50_000])].concat()).await;
        buffered(&proxy, |bytes| bytes >= 50_000).await;
        let body = due(cap);
        assert!(received(&listener, proxy.proxy_addr, &body, framed).await == body, "{framed:?}");
        drop(other);
        buffered(&proxy, |bytes| bytes == 0).await;
        // What went whole stays whole; another conversation is rewritten again.
        let other = String::from_utf8(body).unwrap().replace("Work on a.", "Work on b.").into_bytes();
        assert!(received(&listener, proxy.proxy_addr, &other, framed).await != other, "{framed:?}");
    }
}

#[tokio::test]
async fn of_a_body_over_a_cap_the_beginning_goes_out_before_the_end_exists() {
    let listener = Listener::bind().await;
    let cap = 100_000;
    for (max_body_bytes, max_buffered_bytes) in [(cap, usize::MAX), (usize::MAX, cap)] {
        let mut settings = with_strategy(config(&listener.url()));
        (settings.server.max_body_bytes, settings.server.max_buffered_bytes) = (max_body_bytes, max_buffered_bytes);
        let proxy = start(settings);
        for framed in [Framed::Length, Framed::Chunks] {
            let mut client = connect(proxy.proxy_addr).await;
            let (beginning, end) = (vec![b'y'; cap + 1], vec![b'z'; cap]);
            client.send(post_head(framed, beginning.len() + end.len())).await;
            let coded = |piece: &[u8]| if framed == Framed::Chunks { chunk(piece) } else { piece.to_vec() };
            let first = async {
                let mut server = listener.accept().await;
                server.head().await;
                assert!(arrived(&mut server, framed, beginning.len()).await == beginning);
                server
            };
            let (_, mut server) = tokio::join!(client.send(coded(&beginning)), first);
            let (_, rest) = tokio::join!(client.send(coded(&end)), arrived(&mut server, framed, end.len()));
            assert!(rest == end);
            if framed == Framed::Chunks {
                client.send("0\r\n\r\n").await;
            }
            server.send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await;
            client.head().await;
        }
    }
}

/// Pieces of 64 KiB that a client gets rid of before it is stopped, of `all`.
async fn written(client: &mut Wire, piece: &[u8], all: usize) -> usize {
    for written in 0..all {
        // Stalled for this long: everybody between here and the upstream is full.
        match tokio::time::timeout(Duration::from_millis(300), client.stream.write_all(piece)).await {
            Ok(result) => result.unwrap(),
            Err(_) => return written,
        }
    }
    all
}

#[tokio::test]
async fn an_upstream_that_does_not_read_stops_the_client() {
    let listener = Listener::bind().await;
    let (piece, all) = ([b'x'; 0x10000], 1_000);
    for settings in [config(&listener.url()), with_strategy(config(&listener.url()))] {
        let proxy = start(settings);
        let put = format!("PUT /files HTTP/1.1\r\nHost: p\r\nContent-Length: {}\r\n\r\n", all * piece.len());
        for (head, piece) in [(put, piece.to_vec()), (post_head(Framed::Chunks, 0), chunk(&piece))] {
            let mut client = connect(proxy.proxy_addr).await;
            client.send(&head).await;
            let (sent, _server) = tokio::join!(written(&mut client, &piece, all), listener.accept());
            assert!(sent < all / 2, "{sent} pieces of 64 KiB went somewhere: {head}");
        }
    }
}
