//! Model calls on paths that name no API: known by what the body says, and left alone where that is not certain.

use serde_json::{Value, json};

use crate::support::chat::{self, parsed, words};
use crate::support::proxy::{Served, start};
use crate::support::wire::{Listener, Wire, connect};

const PATH: &str = "/gateway/generate";
const EVICTION: &str = "[tool_result_eviction]\nmax_result_chars = 2000\npreview_chars = 100\n";

async fn served(sections: &str) -> (Listener, Served) {
    let listener = Listener::bind().await;
    let proxy = start(parsed(&listener.url(), sections));
    (listener, proxy)
}

fn head(path: &str, headers: &str, length: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: h\r\nauthorization: Bearer k\r\n{headers}content-type: application/json\r\n\
         connection: close\r\ncontent-length: {length}\r\n\r\n"
    )
}

/// A request's body as the upstream receives it, answered with `answer`.
async fn received(listener: &Listener, answer: &str) -> String {
    let mut server = listener.accept().await;
    let head = server.head().await.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().trim().parse().unwrap();
    let body = String::from_utf8(server.exactly(length).await).unwrap();
    server.send(answer).await;
    body
}

fn reply(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Sends a body; gives what the upstream received, and the answer.
async fn through((listener, proxy): &(Listener, Served), path: &str, headers: &str, body: &str) -> (String, String) {
    let mut client = connect(proxy.proxy_addr).await;
    client.send(head(path, headers, body.len()) + body).await;
    let received = received(listener, &reply("200 OK", "{}")).await;
    (received, String::from_utf8(client.rest().await).unwrap())
}

fn large() -> String {
    words(1, 3_000)
}

fn chat() -> Value {
    let call = json!({ "id": "c1", "type": "function", "function": { "name": "shell", "arguments": "{}" } });
    json!({ "model": "m", "messages": [
        { "role": "user", "content": "Look." },
        { "role": "assistant", "content": null, "tool_calls": [call] },
        { "role": "tool", "tool_call_id": "c1", "content": large() },
    ] })
}

fn messages() -> Value {
    let call = json!({ "type": "tool_use", "id": "t1", "name": "shell", "input": {} });
    json!({ "model": "m", "max_tokens": 500, "messages": [
        { "role": "user", "content": "Look." },
        { "role": "assistant", "content": [call] },
        { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t1", "content": large() }] },
    ] })
}

fn responses() -> Value {
    json!({ "model": "m", "store": false, "input": [
        { "role": "user", "content": "Look." },
        { "type": "function_call", "call_id": "c1", "name": "shell", "arguments": "{}" },
        { "type": "function_call_output", "call_id": "c1", "output": large() },
    ] })
}

#[tokio::test]
async fn bodies_of_each_api_are_known_on_any_path() {
    for (api, other, headers, body) in [
        ("chat", "messages", "", chat()),
        ("messages", "openai", "", messages()),
        ("messages", "chat", "anthropic-version: 2023-06-01\r\n", messages()),
        ("responses", "chat", "", responses()),
    ] {
        let body = body.to_string();
        for api in ["auto", api] {
            let pair = served(&format!("api = \"{api}\"\n{EVICTION}")).await;
            let (sent, answer) = through(&pair, PATH, headers, &body).await;
            assert!(sent.len() < body.len() / 2 && sent.contains("/_compactproxy/evicted/"), "{api}: {sent}");
            assert!(answer.contains("x-compactproxy-action: evicted"), "{api}: {answer}");
        }
        // An upstream that does not speak it, and a path where other work is done.
        let pair = served(&format!("api = \"{other}\"\n{EVICTION}")).await;
        assert_eq!(through(&pair, PATH, headers, &body).await.0, body, "{other}");
        let pair = served(EVICTION).await;
        assert_eq!(through(&pair, "/v1/tokenize", headers, &body).await.0, body);
    }
}

#[tokio::test]
async fn an_overflow_on_any_path_is_mended() {
    let (listener, proxy) = served("[compaction]\n").await;
    let body = chat::history("a", 8, 900);
    let mut client = connect(proxy.proxy_addr).await;
    client.send(head(PATH, "", body.to_string().len()) + &body.to_string()).await;
    let refusal = r#"{"error":{"message":"This model's maximum context length is 4000 tokens. However, your messages resulted in 9000 tokens.","type":"invalid_request_error","code":"context_length_exceeded"}}"#;
    assert_eq!(received(&listener, &reply("400 Bad Request", refusal)).await, body.to_string());
    // The summary fails; the digest in its place goes out.
    let others = async {
        loop {
            let sent = received(&listener, &reply("200 OK", r#"{"choices":[]}"#)).await;
            assert!(sent.len() < body.to_string().len());
        }
    };
    let answer = tokio::select! {
        () = others => unreachable!(),
        answer = client.rest() => String::from_utf8(answer).unwrap(),
    };
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("recovered"), "{answer}");
}

/// L1, L2: what is no model call for sure, or could be in two dialects, is the same request.
#[tokio::test]
async fn what_is_not_certain_passes_unchanged() {
    let pair = served(&format!("{EVICTION}[compaction]\ntrigger_messages = 2\nkeep_messages = 1\n")).await;
    let message = json!({ "role": "user", "content": large() });
    let unsure = json!({ "model": "m", "max_tokens": 9, "messages": [message, message, message, message] });
    let texts = vec![large(); 40];
    let parts: Vec<_> = texts.iter().map(|text| json!({ "type": "text", "text": text })).collect();
    for body in [
        json!({ "model": "m", "input": large() }),
        json!({ "model": "m", "input": texts }),
        json!({ "model": "m", "input": parts }),
        json!({ "model": "m", "prompt": large() }),
        unsure,
    ] {
        // Spellings that no serializer would leave alone.
        let body = body.to_string().replacen("\"model\":", " \"mod\\u0065l\" : ", 1);
        let (sent, answer) = through(&pair, PATH, "", &body).await;
        assert!(sent == body && !answer.contains("x-compactproxy"), "{}", &body[..80]);
    }
}

/// L1: no byte of what is something else waits for the rest of it.
#[tokio::test]
async fn what_is_something_else_streams_on() {
    let (listener, proxy) = served(EVICTION).await;
    for (first, rest) in [
        (r#"{"model":"e","input":["one","#, r#""two"]}"#),
        (r#"{"documents":[{"#, "}]}"),
        ("[1,", "2]"),
        ("\"a", "b\""),
    ] {
        let mut client: Wire = connect(proxy.proxy_addr).await;
        client.send(head(PATH, "", first.len() + rest.len()) + first).await;
        let mut server = listener.accept().await;
        server.head().await;
        assert_eq!(server.exactly(first.len()).await, first.as_bytes());
        client.send(rest).await;
        assert_eq!(server.exactly(rest.len()).await, rest.as_bytes());
        server.send(reply("200 OK", "{}")).await;
        assert!(client.rest().await.ends_with(b"{}"));
    }
}
