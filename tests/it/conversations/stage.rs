//! The proxy between a client and the strict provider, over a store that outlives it.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use compactproxy::compact::budget::{Budget, Window};
use compactproxy::config::{Config, SHIPPED};
use compactproxy::demo::names::Names;
use compactproxy::demo::provider::{Exchange, Origin, Provider, Settings, Verdict};
use compactproxy::demo::rules::{Empty, Rules};
use compactproxy::demo::window::Limit;
use compactproxy::store::Store;
use compactproxy::telemetry::metrics::FAIL_OPENS;
use http::response::Parts;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use memchr::memmem;
use tempfile::TempDir;

use super::form::Form;
use crate::support::chat::get;
use crate::support::proxy::{self, Served};

/// Actions that activate a checkpoint; the others replay.
const ACTIVATIONS: [&str; 5] = ["truncated", "pruned", "summarized", "folded", "recovered"];

pub struct Stage {
    pub provider: Provider,
    /// As strict, without a limit and without a proxy before it: for bodies that were never valid.
    judge: Provider,
    pub form: Form,
    pub window: u64,
    config: Config,
    running: Option<(Served, Option<Arc<Store>>)>,
    /// Fail-opens of the runs that have ended.
    fail_opens: Vec<String>,
    folder: TempDir,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// What became of one request.
#[derive(Debug)]
pub struct Answered {
    pub status: u16,
    /// The stream came to its end.
    pub complete: bool,
    pub actions: Vec<String>,
    /// Estimates before and after.
    pub tokens: Option<(u64, u64)>,
    /// What reached the provider for it, in order.
    pub attempts: Vec<Exchange>,
    /// The bytes that came back.
    pub answer: Bytes,
}

impl Answered {
    /// The body of the attempt that was answered.
    pub fn sent(&self) -> &Bytes {
        &self.attempts.last().unwrap().body
    }

    /// The client got the provider's bytes.
    pub fn is_relayed(&self, form: Form) -> bool {
        self.attempts.last().is_some_and(|last| is_relayed(form, last, &self.answer))
    }

    /// Whether a checkpoint was activated.
    pub fn activated(&self) -> bool {
        self.actions.iter().any(|action| ACTIVATIONS.contains(&action.as_str()))
    }

    pub fn did(&self, action: &str) -> bool {
        self.actions.iter().any(|done| done == action)
    }

    /// Attempts that were refused for their length, that of the answer included.
    pub fn overflows(&self) -> usize {
        let refused = |attempt: &&Exchange| matches!(attempt.verdict, Verdict::Overflow | Verdict::Budget);
        self.attempts.iter().filter(refused).count()
    }

    /// The client was served, and nothing that the proxy sent broke a rule.
    pub fn is_well(&self) -> bool {
        let broken = self.attempts.iter().any(|attempt| matches!(attempt.verdict, Verdict::Violated(_)));
        self.status == 200 && self.complete && !broken
    }
}

/// Whether an answer is the provider's, byte for byte. In Responses it repeats the request's tools: where the proxy has
/// offered one, that is left out of it.
pub fn is_relayed(form: Form, asked: &Exchange, answer: &[u8]) -> bool {
    let offered = memmem::find(&asked.body, b"\"read_evicted\"").is_some();
    form == Form::Responses && offered || asked.told.bytes() == answer
}

/// The shipped configuration with a window for all models.
pub fn shipped(window: u64) -> String {
    format!("{SHIPPED}\n[[window]]\nmodel = \"*\"\ntotal = {window}\n")
}

impl Stage {
    /// A provider with this window, and the shipped configuration that knows of it.
    pub async fn new(window: u64) -> Self {
        Self::with(window, Limit::of(window), &shipped(window)).await
    }

    pub async fn with(window: u64, limit: Limit, toml: &str) -> Self {
        let rules = Rules { empty: Empty::Anything, ..Rules::default() };
        // Recorded at lenient servers: names such as `查询` or with dots in them.
        let settings = Settings { rules, names: Names::Any, ..Settings::default() };
        let judge = Provider::start(settings.clone()).await.unwrap();
        let provider = Provider::start(Settings { limit, ..settings }).await.unwrap();
        let mut config = Config::parse(toml, &|_| None).unwrap();
        let usual = proxy::config(&format!("http://{}/v1", provider.addr()));
        (config.server, config.upstreams) = (usual.server, usual.upstreams);
        config.server.max_body_bytes = 64 << 20;
        config.server.max_buffered_bytes = 256 << 20;
        let folder = tempfile::tempdir().unwrap();
        config.state.url = format!("sqlite://{}", folder.path().join("state.db").display());
        let client = Client::builder(TokioExecutor::new()).build_http();
        let mut stage = Self {
            provider,
            judge,
            form: Form::Chat,
            window,
            config,
            running: None,
            fail_opens: Vec::new(),
            folder,
            client,
        };
        stage.start();
        stage
    }

    /// The same, spoken to in this form.
    pub fn speaking(self, form: Form) -> Self {
        Self { form, ..self }
    }

    /// The address that clients talk to.
    pub fn addr(&self) -> SocketAddr {
        self.running.as_ref().unwrap().0.proxy_addr
    }

    fn start(&mut self) {
        let store = self.config.compacts().then(|| proxy::open(&self.config.state.url));
        self.running = Some((proxy::serve(self.config.clone(), store.clone(), None), store));
    }

    /// Ends the proxy and starts another over the same store.
    pub async fn restart(&mut self) {
        self.stop().await;
        self.start();
    }

    /// Requests that went out less rewritten than they were due, in all runs: the counters that are not 0, as
    /// /metrics has them.
    pub async fn fail_opens(&self) -> Vec<String> {
        let admin = self.running.as_ref().unwrap().0.admin_addr;
        let page = get(admin, "/metrics").await;
        let text = page.text();
        let counted = text.lines().filter(|line| line.starts_with(FAIL_OPENS) && !line.ends_with(" 0"));
        self.fail_opens.iter().cloned().chain(counted.map(str::to_owned)).collect()
    }

    /// Whether the removed text with this id is there.
    pub async fn keeps(&self, id: &str) -> bool {
        get(self.addr(), &format!("/_compactproxy/evicted/{id}")).await.status == 200
    }

    async fn stop(&mut self) {
        self.fail_opens = self.fail_opens().await;
        let (served, store) = self.running.take().unwrap();
        tokio::task::spawn_blocking(move || {
            served.stop();
            served.join();
        })
        .await
        .unwrap();
        if let Some(store) = store {
            store.close().await;
        }
    }

    /// Deletes the state, with the proxy running or between two runs of it.
    pub async fn lose_state(&mut self, when: Loss) {
        if when == Loss::BetweenRuns {
            self.stop().await;
        }
        for entry in std::fs::read_dir(self.folder.path()).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
        if when == Loss::BetweenRuns {
            self.start();
        }
    }

    pub fn budget(&self) -> Budget {
        let window = Window { input: self.window, total: self.window };
        Budget::new(&self.config.strategies, Some(window), None)
    }

    pub async fn send(&self, body: &Bytes) -> Answered {
        self.send_as("Bearer sk-one", body).await
    }

    /// Sends one request with this credential and reads its answer. Not to be called twice at once.
    pub async fn send_as(&self, credential: &str, body: &Bytes) -> Answered {
        let from = self.provider.requests().len();
        let (head, answer) = self.ask(self.addr(), credential, body).await;
        let attempts = self.provider.requests().into_iter().skip(from);
        let attempts = attempts.filter(|attempt| attempt.origin == Origin::Agent).collect();
        Answered {
            status: head.status.as_u16(),
            complete: self.form.complete(&answer),
            actions: actions(&head.headers),
            tokens: tokens(&head.headers),
            attempts,
            answer,
        }
    }

    /// Whether the provider would take the request as it stands if it had no limit.
    pub async fn accepts(&self, body: &Bytes) -> bool {
        self.ask(self.judge.addr(), "Bearer sk-one", body).await.0.status == 200
    }

    /// Sends one request and reads its answer, as far as it comes.
    async fn ask(&self, addr: SocketAddr, credential: &str, body: &Bytes) -> (Parts, Bytes) {
        let request = Request::post(format!("http://{addr}{}", self.form.path()))
            .header("authorization", credential)
            .header("anthropic-version", "2023-06-01")
            .header("content-type", "application/json")
            .body(Full::new(body.clone()));
        let (head, answer) = self.client.request(request.unwrap()).await.unwrap().into_parts();
        (head, answer.collect().await.map(|answer| answer.to_bytes()).unwrap_or_default())
    }

    /// Sends a request until it activates nothing any more; the last answer.
    pub async fn settled(&self, body: &Bytes) -> Answered {
        for _ in 0..8 {
            let answered = self.send(body).await;
            if !answered.activated() {
                return answered;
            }
        }
        panic!("every retry activates another checkpoint");
    }
}

/// When state is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    WhileRunning,
    BetweenRuns,
}

fn actions(headers: &HeaderMap) -> Vec<String> {
    let value = headers.get("x-compactproxy-action").map_or("", |value| value.to_str().unwrap());
    value.split(", ").filter(|action| !action.is_empty()).map(str::to_owned).collect()
}

fn tokens(headers: &HeaderMap) -> Option<(u64, u64)> {
    let value = headers.get("x-compactproxy-tokens")?.to_str().unwrap();
    let (before, after) = value.strip_prefix("before=").unwrap().split_once(", after=").unwrap();
    Some((before.parse().unwrap(), after.parse().unwrap()))
}
