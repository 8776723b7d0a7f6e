//! `demo`: the whole thing, embedded.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{DemoArgs, Failure, serve, state};
use crate::config::{self, Config, Upstream};
use crate::demo::chart::Screen;
use crate::demo::request::Api;
use crate::demo::{self, Ending};
use crate::server::Running;
use crate::store::Limits;

/// How long the demo's proxy waits for its state.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs the demonstration; fails unless every claim it prints held.
pub fn run(config: Config, args: DemoArgs) -> Result<(), Failure> {
    let failure = |error: &dyn std::fmt::Display| Failure::Runtime(error.to_string());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| failure(&error))?;
    let mut out = std::io::stdout().lock();
    let api = args.api();
    let start = async |provider| start(config, api, provider).await;
    let ended = runtime.block_on(demo::run(&mut out, Screen::of_stdout(), api, start));
    match ended {
        Ok(Ending::AllHeld) => Ok(()),
        Ok(Ending::SomeBroken) => Err(Failure::Runtime("not everything that the demo claims held".into())),
        Err(error) => Err(failure(&error)),
    }
}

/// The proxy of the demo, and the folder of its state; both end with it.
struct Guard {
    _running: Running,
    folder: PathBuf,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The given configuration on free ports, with the provider as its only upstream and its state in a
/// temporary folder.
async fn start(mut config: Config, api: Api, provider: SocketAddr) -> Result<(SocketAddr, Guard), String> {
    let folder = std::env::temp_dir().join(format!("compactproxy-demo-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    (config.server.listen, config.server.admin_listen) = (loopback, loopback);
    config.state.url = format!("sqlite://{}", folder.join("demo.db").display());
    let first = config.upstreams.first().ok_or("there is no upstream")?;
    let base_url = format!("http://{provider}/v1").parse().map_err(|error| format!("{error}"))?;
    let api = match api {
        Api::Chat | Api::Responses => config::Api::Openai,
        Api::Messages => config::Api::Anthropic,
    };
    config.upstreams = vec![Arc::new(Upstream { base_url, api, prefix: None, api_key: None, ..(**first).clone() })];
    // What the demo shows is what the strategies do: a machine that is busy with other things is to be waited for.
    let limits = Limits { commit_bound: PATIENCE, lookup_bound: PATIENCE, ..state::limits(&config) };
    let store = serve::store_within(&config, limits).await.map_err(|failure| failure.to_string())?;
    let running = serve::start(config, store).map_err(|failure| failure.to_string())?;
    Ok((running.proxy_addr, Guard { _running: running, folder }))
}
