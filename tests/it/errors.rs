//! What the proxy itself answers when there is no upstream's answer.

use std::time::Duration;

use crate::support::proxy::{config, start, with_strategy, with_upstream};
use crate::support::wire::{Listener, Wire, connect};

async fn ask(proxy: std::net::SocketAddr, path: &str) -> Wire {
    let mut client = connect(proxy).await;
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: p\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}");
    client.send(head).await;
    client
}

async fn error(client: &mut Wire) -> (String, serde_json::Value) {
    let head = client.head().await;
    let length = crate::support::wire::values(&head, "content-length")[0].parse().unwrap();
    (head, serde_json::from_slice(&client.exactly(length).await).unwrap())
}

#[tokio::test]
async fn an_unreachable_upstream_is_502_in_the_dialects_shape() {
    let gone = Listener::bind().await.url();
    for settings in [config(&gone), with_strategy(config(&gone))] {
        let proxy = start(settings);
        for (path, code) in
            [("/v1/chat/completions", "/error/code"), ("/v1/messages", "/type"), ("/other", "/error/code")]
        {
            let mut client = ask(proxy.proxy_addr, path).await;
            let (head, body) = error(&mut client).await;
            assert!(head.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{head}");
            assert_eq!(body["error"]["type"], "compactproxy_error");
            let message = body["error"]["message"].as_str().unwrap();
            assert!(message.contains("upstream \"up\"") && message.contains("fault: upstream"), "{message}");
            assert!(body.pointer(code).is_some(), "{body}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_no_http_is_502() {
    let listener = Listener::bind().await;
    let proxy = start(config(&listener.url()));
    for answer in ["nonsense\r\n\r\n", "", "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n"] {
        let mut client = ask(proxy.proxy_addr, "/v1/chat/completions").await;
        let mut server = listener.accept().await;
        server.until("{}").await;
        server.send(answer).await;
        drop(server);
        let (head, body) = error(&mut client).await;
        assert!(head.starts_with("HTTP/1.1 502 "), "{answer:?}: {head}");
        assert_eq!(body["error"]["code"], "upstream_answer_broken");
    }
}

#[tokio::test]
async fn an_upstream_that_does_not_answer_is_504() {
    let listener = Listener::bind().await;
    let proxy = start(with_upstream(config(&listener.url()), |upstream| {
        upstream.response_timeout = Duration::from_millis(50);
    }));
    let mut client = ask(proxy.proxy_addr, "/v1/chat/completions").await;
    let mut server = listener.accept().await;
    let (head, body) = error(&mut client).await;
    assert!(head.starts_with("HTTP/1.1 504 Gateway Timeout\r\n"), "{head}");
    assert_eq!(body["error"]["code"], "upstream_response_timeout");
    server.rest().await;
}

#[tokio::test]
async fn a_handshake_that_hangs_is_a_connect_timeout() {
    let listener = Listener::bind().await;
    let ca = crate::support::tls::Authority::new();
    let proxy = start(with_upstream(config(&format!("https://{}", listener.addr())), |upstream| {
        upstream.connect_timeout = Duration::from_millis(50);
        upstream.ca_file = Some(ca.file());
    }));
    let mut client = ask(proxy.proxy_addr, "/v1/chat/completions").await;
    let _silent = listener.accept().await;
    let (head, body) = error(&mut client).await;
    assert!(head.starts_with("HTTP/1.1 504 "), "{head}");
    assert_eq!(body["error"]["code"], "upstream_connect_timeout");
}

#[tokio::test]
async fn a_client_that_stops_sending_is_told() {
    let listener = Listener::bind().await;
    let proxy = start(with_upstream(with_strategy(config(&listener.url())), |upstream| {
        upstream.idle_timeout = Duration::from_millis(50);
    }));
    let mut client = connect(proxy.proxy_addr).await;
    client
        .send("POST /v1/chat/completions HTTP/1.1\r\nHost: p\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{")
        .await;
    let (head, body) = error(&mut client).await;
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
    assert_eq!(body["error"]["code"], "bad_body");
}

#[tokio::test]
async fn a_kept_connection_that_died_is_replaced_unseen() {
    let listener = Listener::bind().await;
    let proxy = start(config(&listener.url()));
    let mut client = connect(proxy.proxy_addr).await;
    for _ in 0..3 {
        client.send("POST /x HTTP/1.1\r\nHost: p\r\nContent-Length: 2\r\n\r\n{}").await;
        let mut server = listener.accept().await;
        server.until("{}").await;
        server.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        client.until("ok").await;
    }
}
