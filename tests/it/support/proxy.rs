//! The real program in this process, on free ports.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use compactproxy::config::{Api, Auto, Config, PruneSettings, Server, Strategies, Upstream};
use compactproxy::proxy::Proxy;
use compactproxy::server::admin::Reports;
use compactproxy::server::{self, Running};
use compactproxy::store::{Health, Limits, Store};
use tempfile::TempDir;

/// A configuration with one upstream and no strategy.
pub fn config(base_url: &str) -> Config {
    let mut config = Config::parse("", &|_| None).unwrap();
    config.server = Server {
        listen: "127.0.0.1:0".parse().unwrap(),
        admin_listen: "127.0.0.1:0".parse().unwrap(),
        admin_token: None,
        max_body_bytes: 1 << 20,
        max_buffered_bytes: 4 << 20,
        drain_timeout: Duration::ZERO,
        tls: None,
    };
    config.upstreams = vec![Arc::new(upstream("up", base_url, Api::Auto))];
    config
}

pub fn upstream(name: &str, base_url: &str, api: Api) -> Upstream {
    Upstream {
        name: name.into(),
        base_url: base_url.parse().unwrap(),
        prefix: None,
        api,
        api_key: None,
        ca_file: None,
        connect_timeout: Duration::from_secs(5),
        response_timeout: Duration::from_secs(20),
        idle_timeout: Duration::from_secs(20),
    }
}

/// Changes the only upstream.
pub fn with_upstream(mut config: Config, change: impl FnOnce(&mut Upstream)) -> Config {
    let mut upstream = (*config.upstreams[0]).clone();
    change(&mut upstream);
    config.upstreams = vec![Arc::new(upstream)];
    config
}

/// A strategy that never finds anything to do, so that bodies are taken in.
pub fn with_strategy(mut config: Config) -> Config {
    let never = Auto::Fixed(u64::MAX);
    let prune = PruneSettings { protect_tokens: never, min_gain_tokens: never, max_output_chars: 2_000 };
    config.strategies = Arc::new(Strategies { prune: Some(prune), ..Strategies::default() });
    config
}

/// The program, with the folder of its state.
pub struct Served {
    running: Option<Running>,
    _state: Option<TempDir>,
}

impl Deref for Served {
    type Target = Running;

    fn deref(&self) -> &Running {
        self.running.as_ref().unwrap()
    }
}

impl Served {
    pub fn of(proxy: Arc<Proxy>) -> Self {
        let reports = reports(&proxy);
        Self { running: Some(server::start(proxy, reports).unwrap()), _state: None }
    }

    pub fn with_state(mut self, folder: TempDir) -> Self {
        self._state = Some(folder);
        self
    }

    pub fn join(mut self) {
        self.running.take().unwrap().join();
    }
}

/// Serves `config`, with its state in a folder of its own where a strategy is on.
pub fn start(mut config: Config) -> Served {
    let state = config.compacts().then(|| tempfile::tempdir().unwrap());
    if let Some(folder) = &state {
        config.state.url = format!("sqlite://{}", folder.path().join("state.db").display());
    }
    let store = state.is_some().then(|| open(&config.state.url));
    let proxy = Proxy::new(config, store).unwrap();
    let reports = reports(&proxy);
    Served { running: Some(server::start(proxy, reports).unwrap()), _state: state }
}

/// What the program itself reports.
fn reports(proxy: &Arc<Proxy>) -> Reports {
    let measured = Arc::clone(proxy);
    let metrics = move || {
        measured.metrics.buffered(measured.budget.used());
        measured.metrics.render()
    };
    Reports { metrics: Box::new(metrics), ..Reports::default() }
}

/// Serves `config` over a store that is kept elsewhere.
pub fn serve(config: Config, store: Option<Arc<Store>>, state: Option<TempDir>) -> Served {
    let proxy = Proxy::new(config, store).unwrap();
    let reports = reports(&proxy);
    Served { running: Some(server::start(proxy, reports).unwrap()), _state: state }
}

/// How long tests wait for the store: a loaded machine is no failure.
const STORE_BOUND: Duration = Duration::from_secs(30);

/// Opens a store; it runs on a thread of its own.
pub fn open(url: &str) -> Arc<Store> {
    open_within(url, Limits { commit_bound: STORE_BOUND, lookup_bound: STORE_BOUND, ..Limits::default() })
}

/// Opens one for which nobody waits longer than in service when it commits.
pub fn open_impatient(url: &str) -> Arc<Store> {
    open_within(url, Limits { lookup_bound: STORE_BOUND, ..Limits::default() })
}

/// The same within other limits, commits taking as long as they take.
pub fn open_with(url: &str, limits: Limits) -> Arc<Store> {
    open_within(url, Limits { commit_bound: STORE_BOUND, ..limits })
}

fn open_within(url: &str, limits: Limits) -> Arc<Store> {
    let url = url.to_owned();
    let opening = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = Store::serve(&url, limits).await.unwrap();
            // On a loaded machine the first opening may miss its bound; it is repeated.
            while store.health() != Health::Up {
                store.retry_now().await;
            }
            store
        })
    });
    opening.join().unwrap()
}
