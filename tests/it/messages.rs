//! Anthropic Messages through the proxy, against an upstream that is played by hand.

mod agents;
mod binding;
mod counts;
mod late;

use std::net::SocketAddr;
use std::sync::Arc;

use compactproxy::config::TenantRule;
use compactproxy::proxy::tenant::{Asker, Verified, identify};
use compactproxy::store::WindowKey;
use http::{HeaderMap, Uri};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::support::chat::{over, parsed, words};
use crate::support::proxy::{Served, open, start};
use crate::support::wire::{Listener, Wire, connect};

const EVICTION: &str = "[tool_result_eviction]\nmax_result_chars = 2000\npreview_chars = 100\n";
const SYSTEM: &str = "You are the agent.";

async fn served(sections: &str) -> (Listener, Served) {
    let listener = Listener::bind().await;
    let proxy = start(parsed(&listener.url(), sections));
    (listener, proxy)
}

/// Sends a request in the background; the answer is the whole response as text.
fn ask(addr: SocketAddr, path: &str, body: String) -> tokio::task::JoinHandle<String> {
    ask_as(addr, "x-api-key: k", path, body)
}

/// The same with another header for the credential.
fn ask_as(addr: SocketAddr, credential: &str, path: &str, body: String) -> tokio::task::JoinHandle<String> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: h\r\n{credential}\r\nanthropic-version: 2023-06-01\r\n\
         anthropic-beta: some-beta\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    tokio::spawn(async move {
        let mut client = connect(addr).await;
        client.send(head + &body).await;
        String::from_utf8(client.rest().await).unwrap()
    })
}

/// What the upstream receives next: head (lower case) and body, and where the answer goes.
async fn received(listener: &Listener) -> (String, String, Wire<TcpStream>) {
    let mut server = listener.accept().await;
    let head = server.head().await.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let body = String::from_utf8(server.exactly(length.trim().parse().unwrap()).await).unwrap();
    (head, body, server)
}

/// What the upstream receives of the agent's next attempt, answered with `answer`. Side calls fail.
async fn answered(listener: &Listener, answer: &str) -> (String, String) {
    loop {
        let (head, body, mut server) = received(listener).await;
        let agent =
            body.contains(SYSTEM) && !body.contains("CONTEXT CHECKPOINT") && !body.contains("conversation-summary");
        let answer = if agent { answer } else { "HTTP/1.1 500 No\r\nconnection: close\r\ncontent-length: 0\r\n\r\n" };
        server.send(answer).await;
        if agent {
            return (head, body);
        }
    }
}

fn reply(status: &str, kind: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn done() -> String {
    let body = r#"{"type":"message","role":"assistant","model":"claude-x","content":[{"type":"text","text":"Done."}],"stop_reason":"end_turn","usage":{"input_tokens":5,"output_tokens":2}}"#;
    reply("200 OK", "application/json", body)
}

fn body(messages: &[Value]) -> Value {
    json!({ "model": "claude-x", "max_tokens": 500, "system": SYSTEM, "thinking": { "type": "adaptive" }, "messages": messages })
}

/// A user's message, and some calls with results; each thought is signed.
fn loop_of(calls: usize, tokens: usize) -> Vec<Value> {
    let mut messages = vec![json!({ "role": "user", "content": "Look around." })];
    for n in 0..calls {
        let thought = json!({ "type": "thinking", "thinking": "hm", "signature": format!("s{n}") });
        let call = json!({ "type": "tool_use", "id": format!("t{n}"), "name": "shell", "input": { "command": "ls" } });
        messages.push(json!({ "role": "assistant", "content": [thought, call] }));
        let result =
            json!({ "type": "tool_result", "tool_use_id": format!("t{n}"), "content": words(n as u64, tokens) });
        messages.push(json!({ "role": "user", "content": [result] }));
    }
    messages
}

#[tokio::test]
async fn a_request_that_warms_the_cache_passes() {
    let (listener, proxy) = served(EVICTION).await;
    let mut warming = body(&loop_of(1, 3_000));
    warming["max_tokens"] = json!(0);
    let asked = ask(proxy.proxy_addr, "/v1/messages", warming.to_string());
    let (_, sent) = answered(&listener, &done()).await;
    assert_eq!(sent, warming.to_string());
    // What is in the cache stays as it is.
    warming["max_tokens"] = json!(100);
    asked.await.unwrap();
    let asked = ask(proxy.proxy_addr, "/v1/messages", warming.to_string());
    assert_eq!(answered(&listener, &done()).await.1, warming.to_string());
    asked.await.unwrap();
}

#[tokio::test]
async fn of_too_many_bytes_the_oldest_pictures_go() {
    let (listener, proxy) = served("[compaction]\n").await;
    let picture = |n: usize| {
        let data = format!("{n}{}", "A".repeat(60_000));
        json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": data } })
    };
    let shown = |n: usize| json!({ "role": "user", "content": [picture(n), { "type": "text", "text": "Look." }] });
    let seen = || json!({ "role": "assistant", "content": "Seen." });
    let messages = [shown(0), seen(), shown(1), seen(), shown(2)];
    let asked = ask(proxy.proxy_addr, "/v1/messages", body(&messages).to_string());
    let refusal = r#"{"error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#;
    answered(&listener, &reply("413 Too Large", "application/json", refusal)).await;
    let (_, sent) = answered(&listener, &done()).await;
    let sent: Value = serde_json::from_str(&sent).unwrap();
    let kinds: Vec<_> =
        [0, 2, 4].iter().map(|at| sent["messages"][*at]["content"][0]["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["text", "text", "image"]);
    let answer = asked.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("recovered"), "{answer}");
}

#[tokio::test]
async fn an_overflow_behind_the_first_events_is_mended_by_a_full_fold() {
    let sections = "[compaction]\n[[window]]\nmodel = \"claude*\"\ninput = 30000\n";
    let (listener, proxy) = served(sections).await;
    let asked = ask(proxy.proxy_addr, "/v1/messages", body(&loop_of(6, 1_500)).to_string());
    let events = concat!(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"type\":\"message\",\"content\":[]}}\n\n",
        "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"prompt is too long: 9000 tokens > 5000 maximum\"}}\n\n",
    );
    answered(&listener, &reply("200 OK", "text/event-stream", events)).await;
    let (_, sent) = answered(&listener, &done()).await;
    let sent: Value = serde_json::from_str(&sent).unwrap();
    let roles: Vec<_> = sent["messages"].as_array().unwrap().iter().map(|message| message["role"].clone()).collect();
    assert_eq!(roles, ["user"], "signed thinking of the turn in progress leaves nothing else");
    let answer = asked.await.unwrap();
    assert!(answer.contains("x-compactproxy-action: folded, recovered") && !answer.contains("too long"), "{answer}");
}

/// The error of a rewritten body may come in a stream that began well.
#[tokio::test]
async fn a_rewrite_that_is_refused_inside_a_success_is_followed_by_the_original() {
    let (listener, proxy) = served(EVICTION).await;
    let large = body(&loop_of(1, 3_000)).to_string();
    let asked = ask(proxy.proxy_addr, "/v1/messages", large.clone());
    let events = concat!(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"type\":\"message\",\"content\":[]}}\n\n",
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"no\"}}\n\n",
    );
    assert!(answered(&listener, &reply("200 OK", "text/event-stream", events)).await.1.len() < large.len());
    assert_eq!(answered(&listener, &done()).await.1, large);
    let answer = asked.await.unwrap();
    assert!(answer.contains("Done.") && !answer.contains("invalid_request_error"), "{answer}");
}

/// A limit for the output that is not above the thinking's budget is refused (A14).
#[tokio::test]
async fn an_output_is_not_lowered_to_the_budget_of_the_thinking() {
    let sections = "[compaction]\n[[window]]\nmodel = \"claude*\"\ninput = 30000\n";
    let refusal = r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 9000 + 8000 > 16000, decrease input length or `max_tokens` and try again"}}"#;
    for (budget, lowered) in [(5_000, true), (7_500, false)] {
        let (listener, proxy) = served(sections).await;
        let mut own = body(&loop_of(6, 1_400));
        own["max_tokens"] = json!(8_000);
        own["thinking"] = json!({ "type": "enabled", "budget_tokens": budget });
        let asked = ask(proxy.proxy_addr, "/v1/messages", own.to_string());
        answered(&listener, &reply("400 Bad", "application/json", refusal)).await;
        let sent: Value = serde_json::from_str(&answered(&listener, &done()).await.1).unwrap();
        assert!(sent["max_tokens"].as_u64().unwrap() > budget, "{}", sent["max_tokens"]);
        assert_eq!(sent["messages"] == own["messages"], lowered, "{budget}: else the history is shortened");
        assert!(asked.await.unwrap().starts_with("HTTP/1.1 200"));
    }
}

/// Where the model stopped because its window was full, that is its window: but one sample never halves what is known.
#[tokio::test]
async fn a_window_that_was_filled_is_learned_with_care() {
    for (input, learned) in [(1_500, None), (5_500, Some(6_000))] {
        let listener = Listener::bind().await;
        let config = parsed(&listener.url(), "[compaction]\n");
        let store = open(&config.state.url);
        let proxy = over(config, Arc::clone(&store), |_| {});
        let mut own = body(&loop_of(3, 1_200));
        own["model"] = json!("gpt-4");
        let asked = ask(proxy.proxy_addr, "/v1/messages", own.to_string());
        let answer = json!({ "type": "message", "role": "assistant", "model": "gpt-4", "content": [{ "type": "text", "text": "…" }],
            "stop_reason": "model_context_window_exceeded", "usage": { "input_tokens": input, "output_tokens": 500 } });
        let (_, sent) = answered(&listener, &reply("200 OK", "application/json", &answer.to_string())).await;
        assert_eq!(sent, own.to_string());
        asked.await.unwrap();
        let headers = HeaderMap::from_iter([("x-api-key".parse().unwrap(), "k".parse().unwrap())]);
        let asker = Asker { upstream: "up", headers: &headers, uri: &Uri::default() };
        let tenant = identify(&store, &TenantRule::Credential, &Verified::default(), &asker).tenant;
        let key =
            WindowKey { tenant: &tenant, upstream: "up", path: "/v1/messages", model: "gpt-4", betas: "some-beta" };
        assert_eq!(store.window(&key).and_then(|window| window.total), learned);
    }
}

/// A result of a call in a message that holds the provider's compaction belongs to it and stays whole, however large it
/// is. What follows is a history like any other.
#[tokio::test]
async fn what_answers_a_compactions_own_message_stays_whole() {
    let (listener, proxy) = served(EVICTION).await;
    let mut messages = loop_of(2, 3_000);
    messages[1]["content"][0] = json!({ "type": "compaction", "content": "What was said before." });
    messages[3]["content"].as_array_mut().unwrap().remove(0);
    let asked = ask(proxy.proxy_addr, "/v1/messages", body(&messages).to_string());
    let sent: Value = serde_json::from_str(&answered(&listener, &done()).await.1).unwrap();
    assert_eq!(sent["messages"].as_array().unwrap()[..4], messages[..4]);
    assert!(sent["messages"][4].to_string().contains("/_compactproxy/evicted/"), "{sent}");
    asked.await.unwrap();
}
