//! Responses over WebSocket: what passes as it is, and what is recovered.

use std::time::{Duration, Instant};

use compactproxy::config::Config;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
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
    let proxy = start(config);
    let url = format!("ws://{}/v1/responses", proxy.proxy_addr);
    let client = tokio_tungstenite::connect_async(url);
    let upstream = async { tokio_tungstenite::accept_async(listener.accept().await.stream).await };
    let (client, upstream) = patiently("the handshakes", async { tokio::join!(client, upstream) }).await;
    let (client, upstream) = (client.unwrap().0, upstream.unwrap());
    // No summary is to be had.
    tokio::spawn(async move {
        loop {
            let mut side_call = listener.0.accept().await.unwrap().0;
            let _ = side_call.write_all(b"HTTP/1.1 500 X\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await;
        }
    });
    Ends { client, upstream, proxy }
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

/// A chain on one socket that overflows at its fourth turn; gives the end with which it was asked last.
async fn overflowing(ends: &mut Ends) {
    let mut previous: Option<String> = None;
    for n in 0..4 {
        let input = match n {
            0 => json!([user("Rule: never touch main.rs. Begin.")]),
            n => json!([result(n - 1, &words(n as u64, 3_000))]),
        };
        let body = request(previous.as_deref(), input);
        ends.ask(&body).await;
        assert_eq!(ends.asked().await, body.to_string(), "{n}");
        if n == 3 {
            return;
        }
        let id = format!("resp_{n}");
        let response = json!({"id": id, "output": [], "usage": {"input_tokens": 10, "output_tokens": 2}});
        for event in [
            json!({"type": "response.created", "response": {"id": id}}),
            json!({"type": "response.output_item.done", "item": call(n)}),
            json!({"type": "response.completed", "response": response}),
        ] {
            ends.tell(&event).await;
            assert_eq!(ends.told().await, event);
        }
        previous = Some(id);
    }
}

#[tokio::test]
async fn an_overflow_of_a_chain_begins_a_new_one_with_the_whole_history_compacted() {
    let mut ends = ends(SECTIONS).await;
    overflowing(&mut ends).await;
    ends.tell(&json!({"type": "response.created", "response": {"id": "resp_refused"}})).await;
    ends.tell(&too_long()).await;
    let again: Value = serde_json::from_str(&ends.asked().await).unwrap();
    assert_eq!((again.get("previous_response_id"), &again["type"]), (None, &json!("response.create")));
    let text = again["input"].to_string();
    assert!(text.contains("never touch main.rs"), "{text}");
    assert!(text.len() < 40_000, "{}", text.len());
    let ids = |kind: &str| {
        let items = again["input"].as_array().unwrap().iter().filter(|item| item["type"] == kind);
        items.map(|item| item["call_id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids("function_call"), ids("function_call_output"));
    // Of the refused attempt the client sees nothing; the next turn continues the new chain.
    ends.answer("resp_3", "done").await;
    let body = request(Some("resp_3"), json!([user("and now?")]));
    ends.ask(&body).await;
    assert_eq!(ends.asked().await, body.to_string());
    ends.answer("resp_4", "nothing").await;
}

#[tokio::test]
async fn where_the_second_attempt_fails_too_the_client_sees_the_first_error() {
    let mut ends = ends(SECTIONS).await;
    overflowing(&mut ends).await;
    let created = json!({"type": "response.created", "response": {"id": "resp_refused"}});
    ends.tell(&created).await;
    ends.tell(&too_long()).await;
    ends.asked().await;
    ends.tell(&json!({"type": "response.created", "response": {"id": "resp_again"}})).await;
    let mut second = too_long();
    second["error"]["message"] = json!("Your input exceeds the context window of this model, again.");
    ends.tell(&second).await;
    assert_eq!((ends.told().await, ends.told().await), (created, too_long()));
}

/// OpenAI tells of one failure twice. The second event belongs to the answer that was given up, not to the second
/// attempt's.
#[tokio::test]
async fn what_trails_behind_an_error_is_not_taken_for_the_second_attempts() {
    let mut ends = ends(SECTIONS).await;
    overflowing(&mut ends).await;
    ends.tell(&json!({"type": "response.created", "response": {"id": "resp_refused"}})).await;
    ends.tell(&too_long()).await;
    ends.asked().await;
    let error = &too_long()["error"];
    ends.tell(&json!({"type": "response.failed", "response": {"id": "resp_refused", "error": error}})).await;
    ends.answer("resp_3", "done").await;
    // What fails now is another answer.
    let body = request(Some("resp_3"), json!([user("and now?")]));
    ends.ask(&body).await;
    assert_eq!(ends.asked().await, body.to_string());
    let events = [
        json!({"type": "response.created", "response": {"id": "resp_4"}}),
        json!({"type": "response.output_text.delta", "delta": "x"}),
        json!({"type": "error", "error": {"type": "server_error", "message": "no"}}),
    ];
    for event in events {
        ends.tell(&event).await;
        assert_eq!(ends.told().await, event);
    }
    // The client need not wait for what trails.
    let next = request(Some("resp_3"), json!([user("again?")]));
    ends.ask(&next).await;
    assert_eq!(ends.asked().await, next.to_string());
    let failed = json!({"type": "response.failed", "response": {"id": "resp_4", "error": error}});
    ends.tell(&failed).await;
    assert_eq!(ends.told().await, failed);
    ends.answer("resp_5", "done").await;
}

/// Of an event that is too long, its beginning tells whether it is the last one; if not there, the next end does.
#[tokio::test]
async fn an_event_that_is_too_long_to_be_read_ends_compaction_for_no_longer_than_its_answer() {
    let long = "x".repeat(5 * 1024 * 1024);
    let first = format!(r#"{{"type":"response.completed","response":{{"id":"r","output":"{long}"}}}}"#);
    let hidden = format!(r#"{{"response":{{"id":"r","output":"{long}"}},"type":"response.completed"}}"#);
    for (completed, missed) in [(first, 0), (hidden, 1)] {
        let mut ends = ends(SECTIONS).await;
        let body = request(None, json!([user("look"), call(1), result(1, &words(3, 12_000))]));
        ends.ask(&request(None, json!([user("begin")]))).await;
        ends.asked().await;
        let opening = json!({"type": "response.output_text.delta", "delta": "x"});
        ends.tell(&opening).await;
        assert_eq!(ends.told().await, opening);
        let Ends { client, upstream, .. } = &mut ends;
        let (sent, got) = tokio::join!(upstream.send(Message::text(completed.clone())), patiently("it", client.next()));
        sent.unwrap();
        assert!(text(got.unwrap().unwrap()) == completed);
        for n in 0..=missed {
            ends.ask(&body).await;
            assert_eq!(ends.asked().await.contains("/_compactproxy/evicted/"), n == missed, "{n} of {missed}");
            ends.answer(&format!("resp_{n}"), "done").await;
        }
    }
}

#[tokio::test]
async fn an_overflow_of_a_chain_that_was_not_seen_whole_passes() {
    let mut ends = ends(SECTIONS).await;
    let body = request(Some("resp_elsewhere"), json!([result(1, &words(5, 3_000))]));
    ends.ask(&body).await;
    assert_eq!(ends.asked().await, body.to_string());
    ends.tell(&too_long()).await;
    assert_eq!(ends.told().await, too_long());
}

#[tokio::test]
async fn an_upstream_that_goes_away_while_it_is_held_back_takes_nothing_with_it() {
    let mut ends = ends(SECTIONS).await;
    ends.ask(&request(None, json!([user(&words(1, 9_000))]))).await;
    ends.asked().await;
    let created = json!({"type": "response.created", "response": {"id": "r"}});
    ends.tell(&created).await;
    ends.upstream.close(None).await.unwrap();
    assert_eq!(ends.told().await, created);
}

/// The second attempt is out when the upstream goes: what it said first is what the client is to know.
#[tokio::test]
async fn an_upstream_that_goes_away_during_the_second_attempt_leaves_the_first_error() {
    let mut ends = ends(SECTIONS).await;
    overflowing(&mut ends).await;
    ends.tell(&too_long()).await;
    ends.asked().await;
    ends.tell(&json!({"type": "response.created", "response": {"id": "resp_again"}})).await;
    ends.upstream.close(None).await.unwrap();
    assert_eq!(ends.told().await, too_long());
}

#[tokio::test]
async fn an_overflow_that_no_byte_bound_foresaw_is_mended_if_it_comes_first() {
    let window = format!("{SECTIONS}[[window]]\nmodel = \"m\"\ninput = 400_000\n");
    let mut ends = ends(&window).await;
    let turns = (1..5).flat_map(|n| [call(n), result(n, &words(n as u64, 3_000))]);
    let input: Vec<Value> = [user("begin")].into_iter().chain(turns).collect();
    ends.ask(&request(None, json!(input))).await;
    let first = ends.asked().await;
    let mut error = too_long();
    error["error"]["message"] =
        json!("This model's maximum context length is 8000 tokens. However, your messages resulted in 12200 tokens.");
    ends.tell(&error).await;
    let second = ends.asked().await;
    assert!(second.len() < first.len(), "{} bytes, then {}", first.len(), second.len());
    ends.answer("resp_1", "done").await;
}

#[tokio::test]
async fn an_overflow_that_passes_on_a_socket_teaches_the_window() {
    let mut ends = ends(SECTIONS).await;
    let item = json!({"type": "message", "role": "assistant", "content": []});
    let mut error = too_long();
    error["error"]["message"] =
        json!("This model's maximum context length is 8000 tokens. However, your messages resulted in 12200 tokens.");
    ends.ask(&request(None, json!([user("begin")]))).await;
    ends.asked().await;
    for event in [json!({"type": "response.output_item.added", "item": item}), error] {
        ends.tell(&event).await;
        assert_eq!(ends.told().await, event);
    }
    // A busy disk may keep one from being planned (L5).
    let mut sizes = Vec::new();
    for again in 0..10 {
        let turns = (1..5).flat_map(|n| [call(n), result(n, &words(again * 10 + n as u64, 3_000))]);
        let body = request(None, [user("begin")].into_iter().chain(turns).collect());
        ends.ask(&body).await;
        let (asked, sent) = (ends.asked().await.len(), body.to_string().len());
        if asked < sent / 2 {
            return;
        }
        sizes.push((asked, sent));
        ends.answer(&format!("resp_{again}"), "done").await;
    }
    panic!("not compacted before it is refused: {sizes:?}");
}

#[tokio::test]
async fn requests_that_overlap_pass_and_so_do_their_answers() {
    let mut ends = ends(SECTIONS).await;
    let large = words(3, 12_000);
    let bodies = [request(None, json!([user("one")])), request(None, json!([user("two"), call(1), result(1, &large)]))];
    for body in &bodies {
        ends.ask(body).await;
        assert_eq!(ends.asked().await, body.to_string());
    }
    // The errors of neither are taken for the other's.
    for event in [too_long(), json!({"type": "response.created", "response": {"id": "r"}}), too_long()] {
        ends.tell(&event).await;
        assert_eq!(ends.told().await, event);
    }
    // From then on requests are looked at again.
    ends.ask(&bodies[1]).await;
    assert!(ends.asked().await.contains("/_compactproxy/evicted/"));
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

fn going_away(message: Message) -> bool {
    matches!(message, Message::Close(Some(frame)) if frame.code == CloseCode::Away)
}

/// A drain waits for the response that is being given, and for no other.
#[tokio::test]
async fn a_drain_closes_a_socket_behind_the_response_that_is_on_its_way() {
    let patient = |config: &mut Config| config.server.drain_timeout = Duration::from_secs(20);
    let mut ends = ends_with(SECTIONS, patient).await;
    ends.ask(&request(None, json!([user("Hello.")]))).await;
    ends.asked().await;
    let opening = json!({"type": "response.created", "response": {"id": "r1"}});
    let said = json!({"type": "response.output_text.delta", "delta": "Hi"});
    for event in [&opening, &said] {
        ends.tell(event).await;
        assert_eq!(&ends.told().await, event);
    }
    ends.proxy.stop();
    ends.tell(&said).await;
    assert_eq!(ends.told().await, said, "the response goes on");
    let last = json!({"type": "response.completed", "response": {"id": "r1", "output": []}});
    ends.tell(&last).await;
    assert_eq!(ends.told().await, last);
    assert!(going_away(patiently("the close", ends.client.next()).await.unwrap().unwrap()));
    assert!(going_away(patiently("the close", ends.upstream.next()).await.unwrap().unwrap()));
    assert!(patiently("the end", ends.client.next()).await.is_none());
    assert!(patiently("the end", ends.upstream.next()).await.is_none());
    let proxy = ends.proxy;
    patiently("the drain", tokio::task::spawn_blocking(move || proxy.join())).await.unwrap();
}

/// The upstream's idle timeout is that of its sockets; a ping is a sign of life.
#[tokio::test]
async fn a_silent_socket_is_closed_and_a_ping_is_no_silence() {
    let idle = Duration::from_secs(2);
    let short = |config: &mut Config| {
        let upstream = std::sync::Arc::make_mut(&mut config.upstreams[0]);
        upstream.idle_timeout = idle;
    };
    let mut ends = ends_with(SECTIONS, short).await;
    let (began, mut last) = (Instant::now(), Instant::now());
    while began.elapsed() < idle / 2 {
        last = Instant::now();
        ends.client.send(Message::Ping(vec![1].into())).await.unwrap();
        assert!(patiently("a ping", ends.upstream.next()).await.unwrap().unwrap().is_ping());
        ends.upstream.flush().await.unwrap();
        assert!(patiently("a pong", ends.client.next()).await.unwrap().unwrap().is_pong());
    }
    assert!(going_away(patiently("the close", ends.client.next()).await.unwrap().unwrap()));
    assert!(going_away(patiently("the close", ends.upstream.next()).await.unwrap().unwrap()));
    assert!(last.elapsed() >= idle, "the pings count");
}
