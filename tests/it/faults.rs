//! Broken connections, odd encodings, other people's credentials, failed stores.

use std::sync::{Arc, Mutex};

use async_compression::tokio::bufread::ZlibEncoder;
use bytes::Bytes;
use compactproxy::demo::answer::Answer;
use compactproxy::demo::encoding::{Encoding, encode};
use compactproxy::demo::provider::{Provider, Settings};
use compactproxy::demo::script::{Behaviour, Gate, Reply};
use compactproxy::demo::window::Limit;
use compactproxy::proxy::budget::Budget;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use crate::support::chat::{
    attempts, call, changed, history, ids, next_turn, pair, parsed, post, post_with, result, send, with, words,
};
use crate::support::proxy::Served;
use crate::support::wire::{Listener, Wire, connect, patiently};

const EVICTION: &str = "[tool_result_eviction]\nmax_result_chars = 2000\npreview_chars = 200\n";
const COMPACTION: &str = "[compaction]\n";
const STREAM_HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const QUIET: &str = "data: {\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\
                     \"content\":\"\"},\"finish_reason\":null}]}\n\n";

fn counted(base_url: &str, sections: &str) -> (Served, Arc<Budget>) {
    let budget = Mutex::new(None);
    let proxy = changed(parsed(base_url, sections), |proxy| {
        *budget.lock().unwrap() = Some(Arc::clone(&proxy.budget));
    });
    (proxy, budget.into_inner().unwrap().unwrap())
}

async fn given_back(budget: &Budget) {
    patiently("the bytes to be given back", async {
        while budget.used() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// A client that has sent a streaming conversation, and the upstream that has received it.
async fn asked(listener: &Listener, proxy: &Served, body: &Value) -> (Wire, Wire) {
    let body = with(body, json!({"stream": true})).to_string();
    let mut client = connect(proxy.proxy_addr).await;
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: p\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    client.send(head).await;
    client.send(&body).await;
    let mut server = listener.accept().await;
    server.head().await;
    server.exactly(body.len()).await;
    (client, server)
}

fn chunk(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len())
}

#[tokio::test]
async fn an_upstream_that_dies_while_held_back_never_looks_like_an_end() {
    let listener = Listener::bind().await;
    let (proxy, budget) = counted(&listener.url(), COMPACTION);
    let large = history("a", 12, 1_000);
    // Held pieces come out, then the break.
    let (mut client, mut server) = asked(&listener, &proxy, &large).await;
    server.send(STREAM_HEAD).await;
    server.send(chunk(QUIET)).await;
    drop(server);
    client.head().await;
    let rest = client.rest().await;
    assert!(!rest.ends_with(b"0\r\n\r\n"), "{:?}", String::from_utf8_lossy(&rest));
    assert!(String::from_utf8_lossy(&rest).contains(QUIET));

    // In mid-stream.
    let (mut client, mut server) = asked(&listener, &proxy, &large).await;
    server.send(STREAM_HEAD).await;
    server.send(chunk(&QUIET.replace("\"content\":\"\"", "\"content\":\"hi\""))).await;
    client.head().await;
    client.until("hi").await;
    drop(server);
    assert!(!client.rest().await.ends_with(b"0\r\n\r\n"));

    // An answer with a length, cut.
    let (mut client, mut server) = asked(&listener, &proxy, &large).await;
    server.send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 90\r\n\r\n{\"id\":\"x\",").await;
    drop(server);
    assert!(client.head().await.to_lowercase().contains("content-length: 90\r\n"));
    assert_eq!(client.rest().await, b"{\"id\":\"x\",");
    given_back(&budget).await;
}

#[tokio::test]
async fn a_client_that_leaves_cancels_the_call_at_every_stage() {
    let listener = Listener::bind().await;
    let (proxy, budget) = counted(&listener.url(), COMPACTION);
    let large = history("a", 12, 1_000);
    for answer in ["", STREAM_HEAD, &format!("{STREAM_HEAD}{}", chunk(QUIET))] {
        let (client, mut server) = asked(&listener, &proxy, &large).await;
        server.send(answer).await;
        drop(client);
        assert_eq!(server.rest().await, b"", "closed");
        given_back(&budget).await;
    }
    let (mut client, mut server) = asked(&listener, &proxy, &large).await;
    server.send(STREAM_HEAD).await;
    server.send(chunk(&QUIET.replace("\"content\":\"\"", "\"content\":\"hi\""))).await;
    client.head().await;
    drop(client);
    assert_eq!(server.rest().await, b"");
    given_back(&budget).await;
}

/// A long answer does not keep its request's body.
#[tokio::test]
async fn a_running_stream_holds_no_request_bytes() {
    let listener = Listener::bind().await;
    let (proxy, budget) = counted(&listener.url(), COMPACTION);
    let (mut client, mut server) = asked(&listener, &proxy, &history("a", 12, 1_000)).await;
    server.send(STREAM_HEAD).await;
    server.send(chunk(&QUIET.replace("\"content\":\"\"", "\"content\":\"hi\""))).await;
    client.head().await;
    client.until("hi").await;
    given_back(&budget).await;
}

#[tokio::test]
async fn encoded_bodies_are_rewritten_plain_or_pass_as_they_came() {
    for encoding in [Encoding::Gzip, Encoding::Brotli, Encoding::Zstd] {
        let (provider, proxy) = pair(Settings { encoding, ..Settings::default() }, EVICTION).await;
        let headers = [
            ("content-encoding", encoding.name()),
            ("accept-encoding", encoding.name()),
            ("authorization", "Bearer k"),
        ];
        let small = Bytes::from(encode(encoding, &[history("s", 3, 50).to_string().into()]).await.unwrap().concat());
        let answer = post_with(proxy.proxy_addr, &headers, small.clone()).await;
        assert_eq!((answer.status, answer.header("content-encoding")), (200, encoding.name()));
        let sent = attempts(&provider).pop().unwrap();
        assert_eq!((&sent.body, &sent.headers["content-encoding"]), (&small, &encoding.name().parse().unwrap()));

        let body = history("large", 3, 1_500);
        let coded = Bytes::from(encode(encoding, &[body.to_string().into()]).await.unwrap().concat());
        let answer = post_with(proxy.proxy_addr, &headers, coded).await;
        assert_eq!((answer.status, answer.actions()), (200, vec!["evicted"]));
        let sent = attempts(&provider).pop().unwrap();
        assert!(!sent.headers.contains_key("content-encoding"));
        assert_eq!(sent.headers["content-length"], sent.body.len().to_string());
        assert_eq!(ids(&sent.body).len(), 3);
        // The same conversation in plain JSON is the same conversation.
        let plain = post(proxy.proxy_addr, "k", &body).await;
        assert_eq!(plain.actions(), ["evicted"]);
        assert_eq!(attempts(&provider).pop().unwrap().body, sent.body);
        assert_eq!(provider.violations(), []);
    }
}

#[tokio::test]
async fn chunked_bodies_are_rewritten_with_a_length() {
    let listener = Listener::bind().await;
    let proxy = crate::support::proxy::start(parsed(&listener.url(), EVICTION));
    for (tokens, rewritten) in [(50, false), (1_500, true)] {
        let body = history("a", 2, tokens).to_string();
        let mut client = connect(proxy.proxy_addr).await;
        client
            .send(
                "POST /v1/chat/completions HTTP/1.1\r\nHost: p\r\nContent-Type: application/json\r\n\
                 Transfer-Encoding: chunked\r\n\r\n",
            )
            .await;
        for piece in body.as_bytes().chunks(999) {
            client.send([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat()).await;
        }
        client.send("0\r\n\r\n").await;
        let mut server = listener.accept().await;
        let head = server.head().await.to_lowercase();
        assert_eq!(head.contains("transfer-encoding: chunked"), !rewritten, "{head}");
        if rewritten {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            let sent = server.exactly(length.trim().parse().unwrap()).await;
            serde_json::from_slice::<Value>(&sent).unwrap();
            assert_eq!(ids(&sent).len(), 2);
        } else {
            assert_eq!(server.chunked().await.0, body.as_bytes());
        }
    }
}

/// A deflate body is a body like another; one that grows over the cap or is not what it says passes.
#[tokio::test]
async fn deflate_is_read_and_bombs_and_broken_codings_pass_untouched() {
    let listener = Listener::bind().await;
    let config = parsed(&listener.url(), &format!("{EVICTION}{COMPACTION}"));
    let mut config = config;
    config.server.max_body_bytes = 1 << 20;
    let proxy = crate::support::proxy::start(config);
    let bomb = Bytes::from(encode(Encoding::Gzip, &[vec![b' '; 64 << 20].into()]).await.unwrap().concat());
    assert!(bomb.len() < 1 << 20);
    let mut wrapped = Vec::new();
    let plain = history("deflated", 2, 1_500).to_string();
    ZlibEncoder::new(plain.as_bytes()).read_to_end(&mut wrapped).await.unwrap();
    let addr = proxy.proxy_addr;
    let client = tokio::spawn(async move { post_with(addr, &[("content-encoding", "deflate")], wrapped.into()).await });
    let mut server = listener.accept().await;
    let head = server.head().await.to_lowercase();
    assert!(!head.contains("content-encoding"), "{head}");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let sent = server.exactly(length.trim().parse().unwrap()).await;
    assert_eq!(ids(&sent).len(), 2, "rewritten, plain");
    server.send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}").await;
    client.await.unwrap();

    for (name, body) in [("gzip", bomb), ("gzip", Bytes::from_static(b"{}")), ("compress", Bytes::from_static(b"{}"))] {
        let asked = body.clone();
        let client = tokio::spawn(async move { post_with(addr, &[("content-encoding", name)], asked).await });
        let mut server = listener.accept().await;
        assert!(server.head().await.contains(name));
        assert_eq!(server.exactly(body.len()).await, body);
        server.send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}").await;
        assert_eq!(client.await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn what_went_whole_stays_whole() {
    let (provider, proxy) = pair(Settings::default(), EVICTION).await;
    let body = history("a", 2, 1_500);
    let bypass = [("x-compactproxy-bypass", "1"), ("authorization", "Bearer k")];
    let answer = post_with(proxy.proxy_addr, &bypass, body.to_string().into()).await;
    assert_eq!((answer.status, answer.actions().len()), (200, 0));
    let sent = attempts(&provider).pop().unwrap();
    assert_eq!(sent.body, body.to_string());
    assert!(!sent.headers.contains_key("x-compactproxy-bypass"));
    let mut other = body.clone();
    *other["messages"].as_array_mut().unwrap().last_mut().unwrap() = result(1, "another end");
    assert_eq!(post(proxy.proxy_addr, "k", &other).await.actions(), [""; 0]);
    assert_eq!(attempts(&provider).pop().unwrap().json(), other, "shown whole behind another end");
    let mut later = next_turn(&body, "Go on.");
    later["messages"].as_array_mut().unwrap().extend([call(7), result(7, &words(8, 1_500))]);
    let answer = post(proxy.proxy_addr, "k", &later).await;
    assert_eq!(answer.actions(), ["evicted"]);
    let sent = attempts(&provider).pop().unwrap().json();
    let messages = sent["messages"].as_array().unwrap();
    assert_eq!(messages[..6], body["messages"].as_array().unwrap()[..], "shown whole before");
    assert_ne!(messages.last(), later["messages"].as_array().unwrap().last());

    let signed = [("authorization", "AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature=c")];
    let body = history("signed", 2, 1_500).to_string();
    post_with(proxy.proxy_addr, &signed, body.clone().into()).await;
    assert_eq!(attempts(&provider).pop().unwrap().body, body);
}

/// A token's claim is believed once its upstream has answered this very token.
#[tokio::test]
async fn nothing_is_planned_for_a_token_that_was_never_accepted() {
    use base64::Engine;
    let part = |text: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
    let token = |exp: u32| {
        let claims = format!(r#"{{"iss":"https://issuer","sub":"someone","exp":{exp}}}"#);
        format!("{}.{}.c2ln", part(r#"{"alg":"RS256"}"#), part(&claims))
    };
    let refusal = compactproxy::demo::script::error(401, "bad token", "x", "invalid_token");
    let behaviour = Behaviour::default().after([refusal]).with_summaries();
    let (provider, proxy) = pair(Settings { behaviour, ..Settings::default() }, EVICTION).await;
    let large = |name| history(name, 2, 1_500);
    let answer = post(proxy.proxy_addr, &token(1), &large("a")).await;
    assert_eq!((answer.status, answer.actions().len()), (401, 0));
    let answer = post(proxy.proxy_addr, &token(1), &large("b")).await;
    assert_eq!((answer.status, answer.actions().len()), (200, 0), "not before the answer");
    let answer = post(proxy.proxy_addr, &token(1), &large("c")).await;
    assert_eq!((answer.status, answer.actions()), (200, vec!["evicted"]));
    let answer = post(proxy.proxy_addr, &token(2), &large("c")).await;
    assert_eq!((answer.status, answer.actions().len()), (200, 0), "another token with the same claim");
    let answer = post(proxy.proxy_addr, &token(2), &large("c")).await;
    assert_eq!((answer.status, answer.actions()), (200, vec!["evicted"]), "accepted, and the same tenant");
    assert_eq!(attempts(&provider)[1].body, large("b").to_string());
}

/// An upstream that counts a prompt has taken its token: an overflow is mended for it too.
#[tokio::test]
async fn an_overflow_is_mended_for_a_token_too() {
    let settings = Settings { limit: Limit::of(6_000), ..Settings::default() };
    let (provider, proxy) = pair(settings, COMPACTION).await;
    let token = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJpIiwic3ViIjoicyJ9.c2ln";
    let answer = post(proxy.proxy_addr, token, &history("a", 12, 1_000)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(attempts(&provider).len(), 2);
}

/// A client that reads slowly gets every byte, and what is held for it is bounded.
#[tokio::test]
async fn a_slow_client_gets_every_event() {
    let gate = Gate::new();
    let answer = Answer { pace: Some(gate.clone()), ..Answer::text(words(4, 500)) };
    let behaviour = Behaviour::default().after([Reply::Say(answer)]);
    let provider = Provider::start(Settings { behaviour, ..Settings::default() }).await.unwrap();
    let (proxy, budget) = counted(&provider.base_url(), COMPACTION);
    let body = with(&history("a", 12, 1_000), json!({"stream": true})).to_string();
    gate.permit(2);
    let mut events = send(proxy.proxy_addr, &[], body.into()).await.unwrap().into_body();
    let mut received = Vec::new();
    while let Some(frame) = events.frame().await {
        received.extend(frame.unwrap().into_data().unwrap());
        gate.permit(1);
    }
    let read = compactproxy::demo::completion::from_stream(&received).unwrap();
    assert_eq!(read.text.as_deref(), Some(words(4, 500).as_str()));
    given_back(&budget).await;
}
