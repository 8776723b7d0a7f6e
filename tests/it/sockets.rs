//! Responses over WebSocket: what passes as it is.

mod end;
mod lanes;
mod looking;
mod recovery;
mod rounds;
mod unread;

use compactproxy::config::Config;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::support::chat::{parsed, words};
use crate::support::proxy::{Served, start};
use crate::support::wire::{Listener, connect, patiently, values};

const HANDSHAKE: &str = "GET /v1/responses HTTP/1.1\r\nHost: p\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Authorization: Bearer k\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n";
const SECTIONS: &str = "[tool_result_eviction]\nmax_result_chars = 20_000\n[truncate_args]\n[prune]\n[compaction]\n";

type Client = WebSocketStream<MaybeTlsStream<TcpStream>>;
type Upstream = WebSocketStream<TcpStream>;

/// A client and the upstream whose part the test plays, with the proxy between them.
struct Ends {
    client: Client,
    upstream: Upstream,
    proxy: Served,
}

async fn ends(sections: &str) -> Ends {
    ends_with(sections, |_| {}).await
}

async fn ends_with(sections: &str, change: impl FnOnce(&mut Config)) -> Ends {
    let listener = Listener::bind().await;
    let mut config = parsed(&format!("{}/v1", listener.url()), sections);
    change(&mut config);
    over(start(config), listener).await
}

/// A socket through `proxy`, whose upstream is `listener`. No summary is to be had.
async fn over(proxy: Served, listener: Listener) -> Ends {
    let (ends, listener) = joined(proxy, listener).await;
    tokio::spawn(async move {
        loop {
            refuse(&mut listener.0.accept().await.unwrap().0).await;
        }
    });
    ends
}

async fn refuse(side_call: &mut TcpStream) {
    let _ = side_call.write_all(b"HTTP/1.1 500 X\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await;
}

/// A socket through `proxy`, and where its side calls come.
async fn joined(proxy: Served, listener: Listener) -> (Ends, Listener) {
    let url = format!("ws://{}/v1/responses", proxy.proxy_addr);
    let config = WebSocketConfig::default().max_frame_size(None);
    let client = tokio_tungstenite::connect_async_with_config(url, Some(config), false);
    let upstream = async { tokio_tungstenite::accept_async(listener.accept().await.stream).await };
    let (client, upstream) = patiently("the handshakes", async { tokio::join!(client, upstream) }).await;
    let (client, upstream) = (client.unwrap().0, upstream.unwrap());
    (Ends { client, upstream, proxy }, listener)
}

impl Ends {
    async fn ask(&mut self, body: &Value) {
        self.client.send(Message::text(body.to_string())).await.unwrap();
    }

    /// The next text that the upstream gets.
    async fn asked(&mut self) -> String {
        text(patiently("a request", self.upstream.next()).await.unwrap().unwrap())
    }

    async fn tell(&mut self, event: &Value) {
        self.upstream.send(Message::text(event.to_string())).await.unwrap();
    }

    /// The next event that the client gets.
    async fn told(&mut self) -> Value {
        serde_json::from_str(&text(patiently("an event", self.client.next()).await.unwrap().unwrap())).unwrap()
    }

    /// A whole answer with one message, up to the client.
    async fn answer(&mut self, id: &str, said: &str) {
        let item = json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": said}]});
        let response =
            json!({"id": id, "output": [item], "usage": {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}});
        for event in [
            json!({"type": "response.created", "response": {"id": id}}),
            json!({"type": "response.output_text.delta", "delta": said}),
            json!({"type": "response.output_item.done", "item": item}),
            json!({"type": "response.completed", "response": response}),
        ] {
            self.tell(&event).await;
            assert_eq!(self.told().await, event);
        }
    }
}

fn text(message: Message) -> String {
    message.into_text().unwrap().to_string()
}

fn request(previous: Option<&str>, input: Value) -> Value {
    let mut body = json!({"type": "response.create", "model": "m", "store": false, "input": input});
    if let Some(previous) = previous {
        body["previous_response_id"] = json!(previous);
    }
    body
}

fn user(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
}

fn call(n: usize) -> Value {
    json!({"type": "function_call", "call_id": format!("call_{n}"), "name": "exec_command", "arguments": "{\"cmd\":\"ls\"}"})
}

fn result(n: usize, text: &str) -> Value {
    json!({"type": "function_call_output", "call_id": format!("call_{n}"), "output": text})
}

fn too_long() -> Value {
    json!({"type": "error", "status": 400, "error": {"type": "invalid_request_error", "code": "context_length_exceeded",
        "message": "Your input exceeds the context window of this model. Please adjust your input and try again."}})
}

#[tokio::test]
async fn all_that_is_no_request_passes_both_ways_and_so_does_the_end() {
    let mut ends = ends(SECTIONS).await;
    let messages = [
        Message::text(r#"{"type":"response.cancel"}"#),
        Message::binary(vec![7; 700_000]),
        Message::text("no JSON"),
        Message::Ping(vec![1, 2, 3].into()),
        Message::text("x".repeat(700_000)),
    ];
    for message in messages {
        ends.client.send(message.clone()).await.unwrap();
        assert_eq!(patiently("a message", ends.upstream.next()).await.unwrap().unwrap(), message);
        if !message.is_ping() {
            ends.upstream.send(message.clone()).await.unwrap();
            let mut back = patiently("an echo", ends.client.next()).await.unwrap().unwrap();
            // The pong to the ping comes first.
            if back.is_pong() {
                back = patiently("an echo", ends.client.next()).await.unwrap().unwrap();
            }
            assert_eq!(back, message);
        }
    }
    let goodbye = CloseFrame { code: CloseCode::Library(4_321), reason: "enough".into() };
    ends.client.close(Some(goodbye.clone())).await.unwrap();
    assert_eq!(
        patiently("the close", ends.upstream.next()).await.unwrap().unwrap(),
        Message::Close(Some(goodbye.clone()))
    );
    while ends.upstream.next().await.is_some() {}
    let Ends { mut client, upstream, proxy: _proxy } = ends;
    drop(upstream);
    assert_eq!(patiently("its echo", client.next()).await.unwrap().unwrap(), Message::Close(Some(goodbye)));
    assert!(patiently("the end", client.next()).await.is_none());
}

#[tokio::test]
async fn a_request_in_which_nothing_is_due_arrives_as_the_bytes_that_were_sent() {
    let listener = Listener::bind().await;
    let proxy = start(parsed(&format!("{}/v1", listener.url()), SECTIONS));
    let mut client = connect(proxy.proxy_addr).await;
    client.send(HANDSHAKE).await;
    let mut server = listener.accept().await;
    let head = server.head().await;
    // What is compressed could not be read.
    assert!(values(&head, "sec-websocket-extensions").is_empty(), "{head}");
    assert_eq!(values(&head, "authorization"), ["Bearer k"]);
    server.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n").await;
    client.head().await;
    // In three frames, masked in three ways, with a ping between them.
    let body = request(None, json!([user(&words(1, 9_000))])).to_string();
    let (first, rest) = body.as_bytes().split_at(100);
    let (second, third) = rest.split_at(20_000);
    let sent = [
        frame(0x01, first, [1, 2, 3, 4]),
        frame(0x00, second, [0, 0, 0, 0]),
        frame(0x89, b"p", [9, 9, 9, 9]),
        frame(0x80, third, [200, 3, 1, 255]),
    ];
    client.send(sent.concat()).await;
    // The ping need not wait for the message's end.
    let due = [&sent[2][..], &sent[0], &sent[1], &sent[3]].concat();
    let got = server.exactly(due.len()).await;
    assert!(got == due);
    server.send([0x81, 5]).await;
    server.send("hello").await;
    assert_eq!(client.exactly(7).await, b"\x81\x05hello");
}

/// A client's frame with this first byte.
fn frame(first: u8, payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        short @ ..126 => frame.push(0x80 | short as u8),
        medium => {
            frame.push(0x80 | 126);
            frame.extend((medium as u16).to_be_bytes());
        }
    }
    frame.extend(mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

#[tokio::test]
async fn an_upstreams_refusal_is_relayed_exactly() {
    for refusal in [
        "HTTP/1.1 426 Upgrade Required\r\ncontent-length: 2\r\nx-a: 1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nno",
        "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\nx-a: 1\r\n\r\nno",
    ] {
        let listener = Listener::bind().await;
        let proxy = start(parsed(&format!("{}/v1", listener.url()), SECTIONS));
        let mut client = connect(proxy.proxy_addr).await;
        client.send(HANDSHAKE).await;
        let mut server = listener.accept().await;
        server.head().await;
        server.send(refusal).await;
        assert_eq!(client.exactly(refusal.len()).await, refusal.as_bytes());
    }
}

#[tokio::test]
async fn a_large_result_is_evicted_on_a_socket_too() {
    let mut ends = ends(SECTIONS).await;
    let large = words(3, 12_000);
    let body = request(None, json!([user("look"), call(1), result(1, &large)]));
    ends.ask(&body).await;
    let asked: Value = serde_json::from_str(&ends.asked().await).unwrap();
    let output = asked["input"][2]["output"].as_str().unwrap();
    assert!(output.len() < 10_000 && output.contains("/_compactproxy/evicted/"), "{output}");
    assert_eq!((&asked["input"][1], &asked["type"]), (&body["input"][1], &body["type"]));
    ends.answer("resp_1", "seen").await;
}

#[tokio::test]
async fn a_refused_rewrite_is_followed_by_the_original_on_a_socket_too() {
    let mut ends = ends(SECTIONS).await;
    let body = request(None, json!([user("look"), call(1), result(1, &words(3, 12_000))]));
    ends.ask(&body).await;
    assert_ne!(ends.asked().await, body.to_string());
    let refusal = json!({"type": "error", "status": 400, "error": {"type": "invalid_request_error", "message": "no"}});
    ends.tell(&refusal).await;
    assert_eq!(ends.asked().await, body.to_string());
    ends.upstream.close(None).await.unwrap();
    assert_eq!(ends.told().await, refusal);
}
