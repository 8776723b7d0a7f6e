//! WebSocket and other tunnels.

use futures_util::{SinkExt, StreamExt};
use tokio_tungstenite::tungstenite::Message;

use crate::support::proxy::{config, start, with_strategy};
use crate::support::wire::{Listener, connect, patiently, sorted_lines, values};

const HANDSHAKE: &str = "GET /v1/realtime?model=m HTTP/1.1\r\nHost: p\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

#[tokio::test]
async fn websocket_messages_pass_both_ways_and_so_does_the_end() {
    let listener = Listener::bind().await;
    let proxy = start(with_strategy(config(&listener.url())));
    let server = async {
        let stream = listener.accept().await.stream;
        let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        while let Some(Ok(message)) = socket.next().await {
            if message.is_text() || message.is_binary() {
                socket.send(message).await.unwrap();
            }
        }
    };
    let client = async {
        let url = format!("ws://{}/v1/realtime", proxy.proxy_addr);
        let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
        for message in [Message::text("hello"), Message::binary(vec![7; 300_000])] {
            socket.send(message.clone()).await.unwrap();
            assert_eq!(socket.next().await.unwrap().unwrap(), message);
        }
        socket.close(None).await.unwrap();
        while socket.next().await.is_some() {}
    };
    patiently("the tunnel", async { tokio::join!(server, client) }).await;
}

#[tokio::test]
async fn the_handshakes_pass_unchanged() {
    let listener = Listener::bind().await;
    let proxy = start(config(&listener.url()));
    let mut client = connect(proxy.proxy_addr).await;
    client.send(HANDSHAKE).await;
    let mut server = listener.accept().await;
    let head = server.head().await;
    assert!(head.starts_with("GET /v1/realtime?model=m HTTP/1.1\r\n"), "{head}");
    assert_eq!(values(&head, "upgrade"), ["websocket"]);
    assert_eq!(values(&head, "connection"), ["Upgrade"]);
    assert_eq!(values(&head, "sec-websocket-key"), ["dGhlIHNhbXBsZSBub25jZQ=="]);
    // The first bytes of the tunnel come with the head.
    server
        .send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-A: 1\r\n\r\nX: y")
        .await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    assert_eq!(sorted_lines(&head), ["Connection: Upgrade", "Upgrade: websocket", "X-A: 1"]);
    assert_eq!(client.exactly(4).await, b"X: y");
    client.send("Content-Length : 9\r\n\r\n").await;
    assert_eq!(server.exactly(22).await, b"Content-Length : 9\r\n\r\n");
    drop(server);
    assert_eq!(client.rest().await, b"");
}

#[tokio::test]
async fn a_refusal_is_relayed_as_it_is() {
    let listener = Listener::bind().await;
    let proxy = start(config(&listener.url()));
    let mut client = connect(proxy.proxy_addr).await;
    client.send(HANDSHAKE).await;
    let mut server = listener.accept().await;
    server.head().await;
    server.send("HTTP/1.1 401 Unauthorized\r\nwww-authenticate: x\r\ncontent-length: 4\r\n\r\nnope").await;
    assert_eq!(client.head().await, "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: x\r\ncontent-length: 4\r\n\r\n");
    assert_eq!(client.exactly(4).await, b"nope");
}

#[tokio::test]
async fn a_silent_tunnel_is_given_up() {
    let listener = Listener::bind().await;
    let mut settings = config(&listener.url());
    std::sync::Arc::make_mut(&mut settings.upstreams[0]).idle_timeout = std::time::Duration::from_millis(300);
    let proxy = start(settings);
    let mut client = connect(proxy.proxy_addr).await;
    client.send(HANDSHAKE).await;
    let mut server = listener.accept().await;
    server.head().await;
    server.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n").await;
    client.head().await;
    assert_eq!((client.rest().await, server.rest().await), (Vec::new(), Vec::new()));
}

#[tokio::test]
async fn who_asks_for_no_other_protocol_gets_none() {
    for proxy in [start, |config| start(with_strategy(config))] {
        let listener = Listener::bind().await;
        let proxy = proxy(config(&listener.url()));
        let mut client = connect(proxy.proxy_addr).await;
        let body = r#"{"model":"m","messages":[{"role":"user","content":"x"}]}"#;
        let head = "POST /v1/chat/completions HTTP/1.1\r\nHost: p\r\nContent-Type: application/json\r\nContent-Length";
        client.send(format!("{head}: {}\r\n\r\n{body}", body.len())).await;
        let mut server = listener.accept().await;
        server.head().await;
        server.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n").await;
        let head = client.head().await;
        assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
        let length: usize = values(&head, "content-length")[0].parse().unwrap();
        let told = String::from_utf8(client.exactly(length).await).unwrap();
        assert!(told.contains("compactproxy_error") && told.contains("another protocol"), "{told}");
    }
}
