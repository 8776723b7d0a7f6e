//! `compact` against serving: the same bytes, in every dialect, whatever is on.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use compactproxy::config::Config;
use compactproxy::demo::answer::ToolCall;
use compactproxy::demo::provider::{Provider, Settings};
use compactproxy::demo::script::{Behaviour, Fault};
use compactproxy::memory::MemoryPath;
use compactproxy::store::{LearnedWindow, Rewrite, Store, Tenant, WindowKey};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::chat::{attempts, file, send_to, whole, with, words};
use crate::support::dialects::{ALL, Dialect};
use crate::support::program::run;
use crate::support::proxy::{open, serve};
use crate::support::recall::{EVICTION, long};

/// What is tried: a configuration, what the store knows before, and what the client sends.
#[derive(Default)]
struct Case {
    sections: String,
    /// Keys of `[server]`.
    server: &'static str,
    /// Results of the first request, each of about so many tokens.
    results: (usize, usize),
    /// Most output tokens asked for.
    output: Option<u64>,
    /// Input and output together, as the upstream told it to who asked for this beta feature.
    told: Option<(&'static str, u64)>,
    headers: &'static [(&'static str, &'static str)],
    memory: &'static str,
    /// What `compact` says it did with the first request.
    actions: &'static [&'static str],
}

fn cases() -> Vec<Case> {
    let plain = |more: &str| {
        let sections = format!("{EVICTION}{more}");
        Case { sections, results: (2, 900), actions: &["evicted"], ..Case::default() }
    };
    let told = |more: &str| {
        let sections = format!("[compaction]\n{more}");
        Case { told: Some(("x-small", 6_000)), results: (14, 600), sections, ..Case::default() }
    };
    let small = "[[window]]\nmodel = \"*\"\ntotal = 6000\n[tools]\n";
    vec![
        plain(""),
        plain("[tools]\n"),
        Case { results: (1, 5), actions: &[], ..plain("[tools]\ninject = \"always\"\n") },
        Case { memory: "- Ana uses tabs.", ..plain("[memory]\ninject = true\n") },
        Case { actions: &["summarized"], ..told(small) },
        Case { headers: &[("anthropic-beta", "x-small")], actions: &["summarized"], ..told("") },
        // Who does not ask for the feature has another window.
        told(""),
        Case {
            told: Some(("", 12_000)),
            output: Some(9_000),
            results: (6, 600),
            actions: &["output-lowered"],
            ..told("")
        },
        Case { server: "max_body_bytes = \"2KiB\"\n", actions: &[], ..plain("") },
        Case { headers: &[("x-compactproxy-bypass", "1")], actions: &[], ..plain("") },
    ]
}

impl Case {
    fn body(&self, dialect: &dyn Dialect, number: usize) -> Value {
        let mut items = vec![dialect.user(&format!("Case {number}. Rule 1: never touch the folder vendor."))];
        let (results, tokens) = self.results;
        for n in 0..results {
            let (id, text) = (format!("call_{n}"), words((number * 100 + n) as u64, tokens));
            let arguments = "{}".to_owned();
            items.extend(dialect.said("", &[ToolCall { id: id.clone(), name: "execute".into(), arguments }]));
            items.extend(dialect.results(&[(&id, &[text])]));
        }
        let body = dialect.request(items, false);
        let Some(output) = self.output else { return body };
        let key = match dialect.path() {
            "/v1/responses" => "max_output_tokens",
            "/v1/messages" => "max_tokens",
            _ => "max_completion_tokens",
        };
        with(&body, json!({ key: output }))
    }

    /// The body that the client sends next.
    fn next(dialect: &dyn Dialect, body: &Value) -> Value {
        let mut body = body.clone();
        let items = body[dialect.array()].as_array_mut().unwrap();
        let call = ToolCall { id: "call_next".into(), name: "execute".into(), arguments: "{}".into() };
        items.extend(dialect.said("Done.", std::slice::from_ref(&call)));
        items.extend(dialect.results(&[("call_next", &[long()])]));
        body
    }

    /// What the store has before the first request.
    async fn prepare(&self, store: &Store, tenant: Tenant, (dialect, body): (&dyn Dialect, &Value)) {
        if let Some((betas, total)) = self.told {
            let model = body["model"].as_str().unwrap();
            let key = WindowKey { tenant: &tenant, upstream: "up", path: dialect.path(), model, betas };
            store.replace_window(&key, LearnedWindow { input: None, total: Some(total) });
        }
        if !self.memory.is_empty() {
            let rewrite = Rewrite { content: self.memory.to_owned(), expected: 0, merged: Vec::new() };
            store.replace_memory(&tenant, "unknown", MemoryPath::Curated, rewrite).await.unwrap();
        }
        store.flush().await;
    }
}

/// The state that a store has written, and nobody writes to, in another folder.
async fn copied(store: &Store, from: &Path, toml: &str) -> TempDir {
    store.flush().await;
    let to = tempfile::tempdir().unwrap();
    for name in ["state.db", "state.db-wal"] {
        std::fs::copy(from.join(name), to.path().join(name)).unwrap();
    }
    std::fs::write(to.path().join("proxy.toml"), format!("{toml}[state]\nurl = \"sqlite://state.db\"\n")).unwrap();
    to
}

async fn compare(dialect: &dyn Dialect, case: &Case, number: usize) {
    // Serving asks for a summary where `compact` takes the digest.
    let behaviour = Behaviour::default().with_failing_summaries(Fault::ServerError);
    let provider = Provider::start(Settings { behaviour, ..Settings::default() }).await.unwrap();
    let served = tempfile::tempdir().unwrap();
    let toml =
        file(&provider.base_url(), &case.sections).replacen("[server]\n", &format!("[server]\n{}", case.server), 1);
    let mut config = Config::parse(&toml, &|_| None).unwrap();
    config.state.url = format!("sqlite://{}", served.path().join("state.db").display());
    let (name, secret) = dialect.credential("k");
    let headers: Vec<(&str, &str)> =
        [(name, secret.as_str())].into_iter().chain(case.headers.iter().copied()).collect();

    let store = open(&config.state.url);
    let tenant = store.tenant(&[b"credential", b"up", b"", name.as_bytes(), secret.as_bytes()]);
    let first = case.body(dialect, number);
    case.prepare(&store, tenant, (dialect, &first)).await;
    let lines: Vec<String> = headers.iter().map(|(name, value)| format!("--header={name}: {value}")).collect();
    let api = dialect.path().rsplit('/').find(|part| *part != "completions").unwrap();
    let args: Vec<&str> = ["compact", "--api", api].into_iter().chain(lines.iter().map(String::as_str)).collect();

    let proxy = serve(config.clone(), Some(Arc::clone(&store)), None);
    // Serving learns from the first answer what a limit leaves room for.
    let lowers = case.output.is_some() || case.told.is_some();
    let turns = if lowers { 1 } else { 2 };
    for (turn, body) in [first.clone(), Case::next(dialect, &first)].iter().take(turns).enumerate() {
        let what = format!("case {number} {dialect:?} turn {turn}");
        let body = dialect.bytes(body);
        let shown = copied(&store, served.path(), &toml).await;
        let output = run(shown.path(), &args, &body);
        let url = format!("http://{}{}", proxy.proxy_addr, dialect.path());
        let answer = whole(send_to(&url, &headers, body.clone()).await.unwrap()).await;
        assert_eq!(answer.status, 200, "{what}: {}", answer.text());
        let sent = attempts(&provider).pop().unwrap().body;
        let report: Value = serde_json::from_slice(&output.stderr).unwrap();
        let shown = Bytes::from(output.stdout);
        assert!(shown == sent, "{what}: {report}\n{:?}\n{:?}", answer.actions(), differing(&shown, &sent));
        let done: Vec<&str> = report["actions"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert_eq!(done, answer.actions(), "{what}");
        if turn == 0 {
            assert_eq!(done, case.actions, "{what}: {report}");
            let adds = case.sections.contains("always") || !case.memory.is_empty();
            assert_eq!(shown != body, adds || !case.actions.is_empty(), "{what}");
        }
    }
}

/// Where two bodies part.
fn differing(one: &[u8], other: &[u8]) -> (String, String) {
    let at = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let from =
        |body: &[u8]| String::from_utf8_lossy(&body[at.saturating_sub(80)..body.len().min(at + 200)]).into_owned();
    (from(one), from(other))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compact_writes_the_bytes_that_a_served_upstream_receives() {
    for (number, case) in cases().iter().enumerate() {
        for dialect in ALL {
            compare(dialect, case, number).await;
        }
    }
}

/// What a session has in force is shown, and for what only asks for a compaction nothing is begun.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_force_is_shown() {
    let case = Case {
        sections: "[compaction]\n[[window]]\nmodel = \"*\"\ninput = 6000\n".to_owned(),
        results: (14, 600),
        ..Case::default()
    };
    let behaviour = Behaviour::default().with_failing_summaries(Fault::ServerError);
    let provider = Provider::start(Settings { behaviour, ..Settings::default() }).await.unwrap();
    let served = tempfile::tempdir().unwrap();
    let toml = file(&provider.base_url(), &case.sections);
    let mut config = Config::parse(&toml, &|_| None).unwrap();
    config.state.url = format!("sqlite://{}", served.path().join("state.db").display());
    let store = open(&config.state.url);
    let proxy = serve(config, Some(Arc::clone(&store)), None);
    let dialect = ALL.iter().find(|dialect| dialect.path() == "/v1/responses").unwrap();
    let (name, secret) = dialect.credential("k");
    let body = case.body(*dialect, 1);
    let url = format!("http://{}{}", proxy.proxy_addr, dialect.path());
    let answer = whole(send_to(&url, &[(name, secret.as_str())], dialect.bytes(&body)).await.unwrap()).await;
    assert_eq!((answer.status, answer.actions()), (200, vec!["summarized"]));
    let sent = attempts(&provider).pop().unwrap().body;
    let state = copied(&store, served.path(), &toml).await;
    let header = format!("--header={name}: {secret}");
    let compact = |body: &Value| {
        let output = run(state.path(), &["compact", "--api", "responses", &header], body.to_string().as_bytes());
        let report: Value = serde_json::from_slice(&output.stderr).unwrap();
        (output.stdout, report["actions"].clone())
    };
    assert!(compact(&body) == (sent.to_vec(), json!(["checkpoint"])));
    let asks = |body: &Value| {
        let mut body = body.clone();
        body["input"].as_array_mut().unwrap().push(json!({"type": "compaction_trigger"}));
        body
    };
    let (shown, actions) = compact(&asks(&body));
    assert_eq!(actions, json!(["checkpoint"]), "what is in force, and nothing new");
    assert!(shown.len() < body.to_string().len());
    let other = asks(&case.body(*dialect, 2));
    assert!(compact(&other).0 == other.to_string().as_bytes(), "it starts nothing");
    let mut continued = body;
    continued["previous_response_id"] = json!("resp_1");
    assert!(compact(&continued).0 == continued.to_string().as_bytes(), "the same items continue another history");
}
