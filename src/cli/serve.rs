//! Serving.

use std::io::Write;
use std::sync::Arc;

use super::Failure;
use super::state::limits;
use crate::config::Config;
use crate::proxy::Proxy;
use crate::server::admin::Reports;
use crate::server::{self, Running, StartError, drain};
use crate::store::{Health, Limits, Store};
use crate::telemetry::subscriber::{self, LogFormat};

/// Serves until a signal; once ready, one line on stderr says where.
pub fn run(config: Config, log_format: Option<LogFormat>) -> Result<(), Failure> {
    subscriber::start(log_format);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(runtime_failure)?;
    runtime.block_on(async {
        let _size_limit = drain::size_limit().map_err(runtime_failure)?;
        let store = store(&config).await?;
        let running = start(config, store.clone())?;
        let (proxy, admin) = (running.proxy_addr, running.admin_addr);
        let _ = writeln!(std::io::stderr(), "listening proxy={proxy} admin={admin}");
        drain::stop().await.map_err(runtime_failure)?;
        tracing::info!("ending: open requests may finish");
        running.stop();
        let joined = tokio::task::spawn_blocking(move || running.join()).await;
        if let Some(store) = store {
            store.close().await;
        }
        joined.map_err(runtime_failure)
    })
}

/// The state that the configuration asks for; none where no strategy is on.
pub async fn store(config: &Config) -> Result<Option<Arc<Store>>, Failure> {
    store_within(config, limits(config)).await
}

/// The same within other limits.
pub async fn store_within(config: &Config, limits: Limits) -> Result<Option<Arc<Store>>, Failure> {
    if !config.compacts() {
        return Ok(None);
    }
    Store::serve(&config.state.url, limits).await.map(Some).map_err(runtime_failure)
}

/// Listens, on as many threads as there are cores. To be called on a runtime.
pub fn start(config: Config, store: Option<Arc<Store>>) -> Result<Running, Failure> {
    let proxy = Proxy::new(config, store.clone()).map_err(setup_failure)?;
    tokio::spawn(Arc::clone(&proxy.metrics).upkeep());
    let (told, measured) = (store.clone(), Arc::clone(&proxy));
    let reports = Reports {
        store: Box::new(move || told.as_ref().map_or(Health::Off, |store| store.health())),
        metrics: Box::new(move || {
            if let Some(store) = &store {
                measured.metrics.store(store.health(), store.queued(), store.dropped_notes());
                measured.metrics.log_dropped(store.dropped_messages());
            }
            measured.metrics.buffered(measured.budget.used());
            measured.metrics.render()
        }),
    };
    server::start(proxy, reports).map_err(|error| match error {
        StartError::Tls(error) => setup_failure(error),
        error => runtime_failure(error),
    })
}

fn setup_failure(error: impl std::fmt::Display) -> Failure {
    Failure::Setup(error.to_string())
}

fn runtime_failure(error: impl std::fmt::Display) -> Failure {
    Failure::Runtime(error.to_string())
}
