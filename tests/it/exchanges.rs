//! Recorded exchanges with many providers through the real proxy with every strategy on and nothing to do:
//! what the client sent arrives, and what the provider answered comes back, byte for byte.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use compactproxy::config::{Api, Config, SHIPPED, Upstream};
use http::{StatusCode, Uri};
use serde::Deserialize;

use crate::support::proxy::{self, Served};
use crate::support::scripted::{Message, Scripted, ask, end_to_end};
use crate::support::wire::{Wire, connect};

/// A window in which nothing recorded comes near any trigger.
const ROOMY: &str = "[[window]]\nmodel = \"*\"\ntotal = 10_000_000\n";

#[derive(Deserialize)]
struct Exchange {
    id: String,
    api: String,
    host: String,
    stream: bool,
    request: Request,
    response: Response,
}

#[derive(Deserialize)]
struct Request {
    method: String,
    url: String,
    headers: Vec<(String, String)>,
    body: String,
    body_exact: bool,
}

#[derive(Deserialize)]
struct Response {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
    body_exact: bool,
}

/// How many exchanges were replayed.
#[derive(Debug, Default, PartialEq)]
struct Count {
    exchanges: usize,
    streamed: usize,
    /// Requests and answers whose bytes are those of the record, not spelled anew by the recorder.
    exact: (usize, usize),
    /// Overflows that had something to compact: one more attempt, to the same end.
    recoveries: usize,
    by_api: BTreeMap<String, usize>,
}

/// The proxy in front of one upstream for each recorded host.
struct Stage {
    hosts: BTreeMap<String, Scripted>,
    proxy: Served,
}

/// OpenAI and Anthropic are known by the paths of their APIs, the others by a prefix.
fn selected_by_path(host: &str) -> Option<Api> {
    match host {
        "api.openai.com" => Some(Api::Openai),
        "api.anthropic.com" => Some(Api::Anthropic),
        _ => None,
    }
}

fn prefix(host: &str) -> String {
    format!("/{}", host.replace(':', "-"))
}

impl Stage {
    async fn new(exchanges: &[Exchange]) -> Self {
        let mut hosts = BTreeMap::new();
        let names = exchanges.iter().map(|exchange| exchange.host.as_str());
        for host in names.chain(["api.openai.com", "api.anthropic.com"]) {
            if !hosts.contains_key(host) {
                hosts.insert(host.to_owned(), Scripted::start().await);
            }
        }
        let mut config = Config::parse(&format!("{SHIPPED}\n{ROOMY}"), &|_| None).unwrap();
        config.server = proxy::config("http://unused").server;
        config.upstreams = hosts.iter().map(|(host, upstream)| configured(host, &upstream.url()).into()).collect();
        Self { hosts, proxy: proxy::start(config) }
    }

    /// How many further attempts there were.
    async fn replay(&self, client: &mut Wire, exchange: &Exchange) -> usize {
        let upstream = &self.hosts[&exchange.host];
        let answer = answer(exchange);
        upstream.will_answer(answer.clone());
        let target = target(exchange);
        let request = request(exchange, &target);
        let prefix = prefix(&exchange.host);
        let asked = match selected_by_path(&exchange.host) {
            Some(_) => request.clone(),
            None => {
                Message { start: format!("{} {prefix}{target} HTTP/1.1", exchange.request.method), ..request.clone() }
            }
        };
        let answered = ask(client, &asked).await;
        let what = format!("{} {} {target}", exchange.id, exchange.request.method);
        assert!(answered == answer, "{what}: the answer differs: {answered:?}\n{answer:?}");
        let arrived = upstream.take();
        assert!(arrived[0] == request, "{what}: the request differs: {:?}\n{request:?}", arrived[0]);
        assert!(arrived.len() == 1 || too_long(exchange), "{what}: {} attempts", arrived.len());
        arrived.len() - 1
    }
}

fn configured(host: &str, url: &str) -> Upstream {
    match selected_by_path(host) {
        Some(Api::Openai) => proxy::upstream(host, &format!("{url}/v1"), Api::Openai),
        Some(api) => proxy::upstream(host, url, api),
        None => Upstream { prefix: Some(prefix(host)), ..proxy::upstream(host, url, Api::Auto) },
    }
}

/// The recorded path and query.
fn target(exchange: &Exchange) -> String {
    exchange.request.url.parse::<Uri>().unwrap().path_and_query().unwrap().to_string()
}

fn request(exchange: &Exchange, target: &str) -> Message {
    let recorded = exchange.request.headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("authorization"));
    // Each is a tenant of its own: what one recorded error teaches is nothing to the others.
    let key = ("authorization".to_owned(), format!("Bearer {}", exchange.id));
    let start = format!("{} {target} HTTP/1.1", exchange.request.method);
    let fields = end_to_end(recorded.cloned().chain([key]));
    let made = if exchange.request.body.is_empty() { Message::open } else { Message::whole };
    made(start, fields, exchange.request.body.clone().into_bytes())
}

fn answer(exchange: &Exchange) -> Message {
    let status = StatusCode::from_u16(exchange.response.status).unwrap();
    let start = format!("HTTP/1.1 {} {}", status.as_u16(), status.canonical_reason().unwrap());
    let fields = end_to_end(exchange.response.headers.iter().cloned());
    let made = if exchange.stream { Message::open } else { Message::whole };
    made(start, fields, exchange.response.body.clone().into_bytes())
}

/// Whether the provider refused it for its length, in one of the recorded wordings.
fn too_long(exchange: &Exchange) -> bool {
    let wordings = ["context_length_exceeded", "maximum context length", "prompt is too long", "exceed_context_size"];
    exchange.response.status == 400 && wordings.iter().any(|wording| exchange.response.body.contains(wording))
}

fn read(file: &Path) -> Vec<Exchange> {
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

async fn replay_all(exchanges: &[Exchange]) -> Count {
    let stage = Stage::new(exchanges).await;
    let mut client = connect(stage.proxy.proxy_addr).await;
    let mut count = Count::default();
    for exchange in exchanges {
        count.recoveries += stage.replay(&mut client, exchange).await;
        count.exchanges += 1;
        count.streamed += usize::from(exchange.stream);
        count.exact.0 += usize::from(exchange.request.body_exact);
        count.exact.1 += usize::from(exchange.response.body_exact);
        *count.by_api.entry(exchange.api.clone()).or_default() += 1;
    }
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_exchanges_pass_unchanged() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/corpus/exchanges"));
    let Ok(entries) = std::fs::read_dir(folder) else {
        println!("the recorded exchanges are not here: only the self-written ones are replayed");
        return;
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let exchanges: Vec<Exchange> = files.iter().flat_map(|file| read(file)).collect();
    let count = replay_all(&exchanges).await;
    println!("{count:?}");
    assert!(count.exchanges >= 1_000 && count.streamed >= 300 && count.by_api.len() >= 10, "{count:?}");
    assert!(count.exact.0 >= 800 && count.exact.1 >= 800, "{count:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn self_written_exchanges_pass_unchanged() {
    let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/exchanges.jsonl"));
    let exchanges = read(file);
    let count = replay_all(&exchanges).await;
    println!("{count:?}");
    assert!(count.exchanges >= 21 && count.by_api.len() >= 8 && count.streamed >= 9, "{count:?}");
    assert!(count.exact.0 >= 21 && count.exact.1 >= 21, "{count:?}");
}
