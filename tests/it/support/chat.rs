//! Conversations, the strict provider behind the proxy, and a client that sees every byte.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use compactproxy::config::Config;
use compactproxy::demo::provider::{Exchange, Origin, Provider, Settings};
use compactproxy::demo::script::Reply;
use compactproxy::proxy::Proxy;
use compactproxy::store::Store;
use compactproxy::telemetry::metrics::SIDE_CALLS;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use super::proxy::{Served, open};

/// An answer that has come whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Answered {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answered {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub fn actions(&self) -> Vec<&str> {
        self.header("x-compactproxy-action").split(", ").filter(|name| !name.is_empty()).collect()
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// The file of a proxy in front of `base_url`, with these sections.
pub fn file(base_url: &str, sections: &str) -> String {
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\ndrain_timeout = \"0s\"\n\
         [[upstream]]\nname = \"up\"\nbase_url = \"{base_url}\"\n{sections}"
    )
}

pub fn parsed(base_url: &str, sections: &str) -> Config {
    Config::parse(&file(base_url, sections), &|_| None).unwrap()
}

/// A provider and the proxy in front of it.
pub async fn pair(settings: Settings, sections: &str) -> (Provider, Served) {
    let provider = Provider::start(settings).await.unwrap();
    let served = super::proxy::start(parsed(&provider.base_url(), sections));
    (provider, served)
}

/// Serves `config` after `change`, its state in a folder of its own.
pub fn changed(mut config: Config, change: impl FnOnce(&mut Proxy)) -> Served {
    let folder = tempfile::tempdir().unwrap();
    config.state.url = format!("sqlite://{}", folder.path().join("state.db").display());
    let store = open(&config.state.url);
    over(config, store, change).with_state(folder)
}

/// Serves `config` over `store` after `change`.
pub fn over(config: Config, store: Arc<Store>, change: impl FnOnce(&mut Proxy)) -> Served {
    let mut proxy = Proxy::new(config, Some(store)).unwrap();
    change(Arc::get_mut(&mut proxy).unwrap());
    Served::of(proxy)
}

/// Sends a body and gives the answer as it begins.
pub async fn send(addr: SocketAddr, headers: &[(&str, &str)], body: Bytes) -> Result<Response<Incoming>, Error> {
    send_to(&format!("http://{addr}/v1/chat/completions"), headers, body).await
}

/// Sends a body to any target.
pub async fn send_to(url: &str, headers: &[(&str, &str)], body: Bytes) -> Result<Response<Incoming>, Error> {
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let mut request = Request::post(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if !headers.iter().any(|(name, _)| *name == "content-type") {
        request = request.header("content-type", "application/json");
    }
    client.request(request.body(Full::new(body)).unwrap()).await
}

/// Sends a body as the client with this key.
pub async fn post(addr: SocketAddr, key: &str, body: &Value) -> Answered {
    post_with(addr, &[("authorization", &format!("Bearer {key}"))], body.to_string().into()).await
}

pub async fn post_with(addr: SocketAddr, headers: &[(&str, &str)], body: Bytes) -> Answered {
    whole(send(addr, headers, body).await.unwrap()).await
}

pub async fn get(addr: SocketAddr, target: &str) -> Answered {
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let request = Request::get(format!("http://{addr}{target}")).body(Full::default()).unwrap();
    whole(client.request(request).await.unwrap()).await
}

pub async fn whole(response: Response<Incoming>) -> Answered {
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Answered { status: head.status.as_u16(), headers: head.headers, body }
}

/// What the agent's own requests became, in order; the side calls are left out.
pub fn attempts(provider: &Provider) -> Vec<Exchange> {
    provider.completions().into_iter().filter(|exchange| exchange.origin == Origin::Agent).collect()
}

pub fn side_calls(provider: &Provider) -> Vec<Exchange> {
    provider.completions().into_iter().filter(|exchange| exchange.origin == Origin::SideCall).collect()
}

/// Waits until `provider` has judged `count` side calls.
pub async fn side_call_seen(provider: &Provider, count: usize) {
    super::wire::patiently("a side call", async {
        while side_calls(provider).len() < count {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Waits until `count` summaries have been made, or were not to be had.
pub async fn summaries_ended(proxy: &Served, count: usize) {
    super::wire::patiently("a summary", async {
        loop {
            let page = get(proxy.admin_addr, "/metrics").await;
            let ended = page.text().lines().filter(|line| line.starts_with(SIDE_CALLS));
            let ended = ended.filter_map(|line| line.rsplit_once(' ')?.1.parse::<usize>().ok());
            if ended.sum::<usize>() >= count {
                break;
            }
        }
    })
    .await;
}

/// About this many tokens of lines that do not repeat; other seeds give other words.
pub fn words(seed: u64, tokens: usize) -> String {
    const WORDS: [&str; 16] = [
        "river", "stone", "table", "green", "light", "paper", "house", "water", "music", "cloud", "north", "seven",
        "apple", "wheel", "glass", "field",
    ];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = String::new();
    for n in 0..tokens {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text += WORDS[(state >> 60) as usize];
        text += if n % 12 == 11 { "\n" } else { " " };
    }
    text
}

/// A conversation of `turns` tool calls with results of about `tokens` tokens; `name` tells it from others.
pub fn history(name: &str, turns: usize, tokens: usize) -> Value {
    let mut messages = vec![
        json!({"role": "system", "content": "You are a careful engineer."}),
        json!({"role": "user", "content": format!("Work on {name}. Rule 1: never touch the folder vendor.")}),
    ];
    let seed = name.bytes().fold(7_u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)));
    for turn in 0..turns {
        messages.push(call(turn));
        messages.push(result(turn, &words(seed + turn as u64, tokens)));
    }
    json!({"model": "demo-model", "messages": messages})
}

pub fn call(turn: usize) -> Value {
    let function = json!({"name": "execute", "arguments": format!("{{\"command\":\"run step {turn}\"}}")});
    json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": format!("call_{turn}"), "type": "function", "function": function}
    ]})
}

pub fn result(turn: usize, text: &str) -> Value {
    json!({"role": "tool", "tool_call_id": format!("call_{turn}"), "content": text})
}

/// The conversation after an answer and another question.
pub fn next_turn(body: &Value, question: &str) -> Value {
    let mut body = body.clone();
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": "Done."}));
    messages.push(json!({"role": "user", "content": question}));
    body
}

pub fn with(body: &Value, fields: Value) -> Value {
    let mut body = body.clone();
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

/// OpenAI's refusal of a prompt that is too long.
pub fn too_long(status: u16) -> Reply {
    let text = "This model's maximum context length is 6000 tokens. However, your messages resulted in 12000 tokens. \
                Please reduce the length of the messages.";
    compactproxy::demo::script::error(status, text, "invalid_request_error", "context_length_exceeded")
}

/// The ids of the removed texts that a body points to.
pub fn ids(body: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(body).into_owned();
    let places = text.match_indices("/_compactproxy/evicted/");
    places.map(|(at, path)| text[at + path.len()..].chars().take(32).collect()).collect()
}
