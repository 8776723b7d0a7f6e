//! The real program in this process, on free ports.

use std::sync::Arc;
use std::time::Duration;

use compactproxy::config::{Api, Auto, Config, PruneSettings, Server, Strategies, Upstream};
use compactproxy::proxy::Proxy;
use compactproxy::server::admin::Reports;
use compactproxy::server::{self, Running};

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

pub fn start(config: Config) -> Running {
    server::start(Proxy::new(config).unwrap(), Reports::default()).unwrap()
}
