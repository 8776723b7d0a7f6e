//! L1: what is not rewritten passes unchanged, both ways.

use compactproxy::config::{Api, Secret};

use crate::support::proxy::{config, start, upstream, with_strategy, with_upstream};
use crate::support::wire::{Listener, connect, sorted_lines, values};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn all_methods_and_paths_pass_with_their_bytes() {
    let listener = Listener::bind().await;
    let proxy = start(config(&listener.url()));
    for (method, target, body) in [
        ("GET", "/", ""),
        ("GET", "/v1/models?limit=%20&&x=[1]", ""),
        ("DELETE", "/v1/files/a%2Fb//c/../d", ""),
        ("POST", "/unknown/thing;v=1", "\x00\x01 any bytes"),
        ("PUT", "/x", "{\"a\" : 1e0}"),
        ("PATCH", "/x", "{}"),
        ("OPTIONS", "/v1/chat/completions", ""),
        ("OPTIONS", "*", ""),
        ("PROPFIND", "/dav", "x"),
        ("GET", "/with-a-body", "body"),
    ] {
        let mut client = connect(proxy.proxy_addr).await;
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        client.send(format!("{method} {target} HTTP/1.1\r\nHost: proxy\r\n{length}\r\n{body}")).await;
        let mut server = listener.accept().await;
        let expected = format!("{method} {target} HTTP/1.1\r\nHost: {}\r\n{length}\r\n", listener.addr());
        assert_eq!(server.head().await, expected);
        assert_eq!(server.exactly(body.len()).await, body.as_bytes());
        server.send("HTTP/1.1 200 OK\r\nConnection: close\r\ncontent-length: 2\r\n\r\nok").await;
        assert_eq!(client.head().await, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n");
        assert_eq!(client.exactly(2).await, b"ok");
    }
}

#[tokio::test]
async fn end_to_end_headers_pass_and_hop_by_hop_ones_do_not() {
    let listener = Listener::bind().await;
    let proxy = start(config(&listener.url()));
    let mut client = connect(proxy.proxy_addr).await;
    client
        .send(
            "GET /v1/x HTTP/1.1\r\nhost: proxy\r\nX-Dup: 1\r\nAccept: a/b\r\nx-dup: 2\r\nUser-Agent: me\r\n\
             Connection: keep-alive, X-Gone\r\nX-Gone: 1\r\nKeep-Alive: 5\r\nProxy-Authorization: x\r\n\
             Proxy-Connection: keep-alive\r\nTE: trailers, gzip\r\nUpgrade: h2c\r\nAuthorization: Bearer a\r\n\
             X-CompactProxy-Session: s\r\nX-CompactProxy-Agent: a\r\nX-Compactproxy-Bypass: 1\r\nForwarded: for=_x\r\nX-Empty:\r\n\r\n",
        )
        .await;
    let mut server = listener.accept().await;
    let head = server.head().await;
    let mut expected = vec![
        "Accept: a/b".to_owned(),
        "Authorization: Bearer a".into(),
        "Forwarded: for=_x".into(),
        "TE: trailers".into(),
        "User-Agent: me".into(),
        "X-Dup: 1".into(),
        "X-Empty:".into(),
        format!("host: {}", listener.addr()),
        "x-dup: 2".into(),
    ];
    expected.sort();
    let lines: Vec<_> = sorted_lines(&head).into_iter().map(str::trim_end).collect();
    assert_eq!(lines, expected);
    server
        .send(
            "HTTP/1.1 429 Slow Down Please\r\nSet-Cookie: b\r\nRetry-After: 7\r\nset-cookie: a\r\n\
             Connection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nContent-Length: 4\r\n\r\nbusy",
        )
        .await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 429 Slow Down Please\r\n"), "{head}");
    assert_eq!(values(&head, "set-cookie"), ["b", "a"]);
    assert_eq!(sorted_lines(&head), ["Content-Length: 4", "Retry-After: 7", "Set-Cookie: b", "set-cookie: a"]);
    assert_eq!(client.exactly(4).await, b"busy");
}

#[tokio::test]
async fn answers_without_a_body_keep_their_heads() {
    let listener = Listener::bind().await;
    let proxy = start(config(&listener.url()));
    let mut client = connect(proxy.proxy_addr).await;
    client.send("HEAD /x HTTP/1.1\r\nHost: p\r\n\r\n").await;
    let mut server = listener.accept().await;
    assert!(server.head().await.starts_with("HEAD /x "));
    server.send("HTTP/1.1 200 OK\r\ncontent-length: 1234\r\nx-a: 1\r\n\r\n").await;
    assert_eq!(client.head().await, "HTTP/1.1 200 OK\r\ncontent-length: 1234\r\nx-a: 1\r\n\r\n");
    for answer in ["HTTP/1.1 204 No Content\r\nx-a: 1\r\n\r\n", "HTTP/1.1 304 Not Modified\r\netag: \"e\"\r\n\r\n"] {
        client.send("GET /x HTTP/1.1\r\nHost: p\r\n\r\n").await;
        server.head().await;
        server.send(answer).await;
        assert_eq!(client.head().await, answer);
    }
}

#[tokio::test]
async fn absolute_targets_reach_only_the_configured_upstream() {
    let listener = Listener::bind().await;
    let other = Listener::bind().await;
    let proxy = start(config(&listener.url()));
    let mut client = connect(proxy.proxy_addr).await;
    client.send(format!("GET http://{}/a?b HTTP/1.1\r\nHost: {}\r\n\r\n", other.addr(), other.addr())).await;
    let mut server = listener.accept().await;
    assert_eq!(server.head().await, format!("GET /a?b HTTP/1.1\r\nHost: {}\r\n\r\n", listener.addr()));
    server.send(OK).await;
    client.until("ok").await;
    let mut client = connect(proxy.proxy_addr).await;
    client.send(format!("CONNECT {} HTTP/1.1\r\nHost: x\r\n\r\n", other.addr())).await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 405 "), "{head}");
}

/// The HTTP library's own limit is 100.
#[tokio::test]
async fn many_header_fields_pass_both_ways_up_to_a_limit() {
    let listener = Listener::bind().await;
    let proxy = start(config(&listener.url()));
    let fields = |count: usize| (0..count).map(|n| format!("x-{n}: {n}\r\n")).collect::<String>();
    let mut client = connect(proxy.proxy_addr).await;
    client.send(format!("GET /a HTTP/1.1\r\nHost: p\r\n{}\r\n", fields(255))).await;
    let mut server = listener.accept().await;
    let head = server.head().await;
    assert_eq!(head.matches("\r\nx-").count(), 255);
    server.send(format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{}\r\n", fields(255))).await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 200 ") && head.matches("\r\nx-").count() == 255, "{head}");

    client.send("GET /b HTTP/1.1\r\nHost: p\r\n\r\n").await;
    server.head().await;
    server.send(format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{}\r\n", fields(256))).await;
    assert!(client.head().await.starts_with("HTTP/1.1 502 "));
    let mut other = connect(proxy.proxy_addr).await;
    other.send(format!("GET /c HTTP/1.1\r\nHost: p\r\n{}\r\n", fields(256))).await;
    assert!(other.head().await.starts_with("HTTP/1.1 431 "));
}

#[tokio::test]
async fn the_reserved_prefix_never_goes_upstream() {
    let proxy = start(config("http://127.0.0.1:1"));
    let mut client = connect(proxy.proxy_addr).await;
    client.send("GET /_compactproxy/evicted/00 HTTP/1.1\r\nHost: p\r\n\r\n").await;
    assert!(client.head().await.starts_with("HTTP/1.1 404 "));
}

#[tokio::test]
async fn a_held_key_replaces_the_clients_credentials() {
    let listener = Listener::bind().await;
    for (api, expected) in [(Api::Openai, "authorization: Bearer held"), (Api::Anthropic, "x-api-key: held")] {
        let proxy = start(with_upstream(config(&listener.url()), |upstream| {
            upstream.api = api;
            upstream.api_key = Some(Secret::new("held".into()));
        }));
        let mut client = connect(proxy.proxy_addr).await;
        client.send("GET / HTTP/1.1\r\nHost: p\r\nauthorization: Bearer own\r\nx-api-key: own\r\n\r\n").await;
        let mut server = listener.accept().await;
        let head = server.head().await;
        assert_eq!(
            sorted_lines(&head).into_iter().filter(|line| !line.starts_with("Host")).collect::<Vec<_>>(),
            [expected]
        );
    }
}

#[tokio::test]
async fn requests_go_to_the_upstream_that_their_path_names() {
    let (openai, anthropic) = (Listener::bind().await, Listener::bind().await);
    let mut settings = config(&openai.url());
    settings.upstreams = vec![
        upstream("openai", &format!("{}/v1", openai.url()), Api::Openai).into(),
        upstream("anthropic", &anthropic.url(), Api::Anthropic).into(),
    ];
    let proxy = start(settings);
    for (listener, target, seen) in [
        (&openai, "/v1/chat/completions", "/v1/chat/completions"),
        (&openai, "/chat/completions", "/v1/chat/completions"),
        (&anthropic, "/v1/messages?beta=true", "/v1/messages?beta=true"),
        (&openai, "/v1/models", "/v1/models"),
    ] {
        let mut client = connect(proxy.proxy_addr).await;
        client.send(format!("POST {target} HTTP/1.1\r\nHost: p\r\nContent-Length: 0\r\n\r\n")).await;
        let mut server = listener.accept().await;
        assert!(server.head().await.starts_with(&format!("POST {seen} HTTP/1.1\r\n")));
        server.send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await;
        client.head().await;
    }
}

#[tokio::test]
async fn a_body_that_was_looked_at_and_left_alone_is_the_same_request() {
    let listener = Listener::bind().await;
    let body = "{ \"messages\":[],\"n\": 1.0e0 , \"x\":\"\\u00e9\" }";
    let head = |host: &str, length: &str| {
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
             X-B: 2\r\nX-A: 1\r\n{length}\r\n"
        )
    };
    for settings in [config(&listener.url()), with_strategy(config(&listener.url()))] {
        let proxy = start(settings);
        let length = format!("Content-Length: {}\r\n", body.len());
        let mut client = connect(proxy.proxy_addr).await;
        client.send(head("p", &length)).await;
        for piece in body.as_bytes().chunks(7) {
            client.send(piece).await;
        }
        let mut server = listener.accept().await;
        assert_eq!(server.head().await, head(&listener.addr().to_string(), &length));
        assert_eq!(server.exactly(body.len()).await, body.as_bytes());
        server.send(OK).await;
        client.until("ok").await;
    }
}

#[tokio::test]
async fn an_old_client_gets_an_old_answer() {
    let listener = Listener::bind().await;
    let proxy = start(config(&listener.url()));
    let mut client = connect(proxy.proxy_addr).await;
    client.send("GET /x HTTP/1.0\r\nHost: p\r\n\r\n").await;
    let mut server = listener.accept().await;
    assert!(server.head().await.starts_with("GET /x HTTP/1.1\r\n"));
    server.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n").await;
    assert_eq!(client.rest().await, b"HTTP/1.0 200 OK\r\n\r\nok");
}
