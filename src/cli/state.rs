//! The state file of the configuration: where it is, and its bounds.

use std::io::ErrorKind;
use std::sync::Arc;

use super::Failure;
use crate::config::Config;
use crate::store::{Limits, OpenError, Store};

/// For tests of what is kept: how many seconds a request waits for the state file. On a busy machine the bounds of a
/// store in service are missed now and then, and what is asked for goes whole, as it should. Release builds look for
/// no such variable.
#[cfg(debug_assertions)]
const PATIENCE: &str = "COMPACTPROXY_TEST_STORE_SECONDS";

pub fn limits(config: &Config) -> Limits {
    let limits = Limits { retention: config.state.retention, max_size: config.state.max_size, ..Limits::default() };
    #[cfg(debug_assertions)]
    if let Some(seconds) = std::env::var(PATIENCE).ok().and_then(|seconds| seconds.parse().ok()) {
        let bound = std::time::Duration::from_secs(seconds);
        return Limits { commit_bound: bound, lookup_bound: bound, ..limits };
    }
    limits
}

/// The state file's path, absolute: a relative one says nothing to who stands in the wrong folder.
pub fn file(config: &Config) -> String {
    let url = config.state.url.as_str();
    let path = url.strip_prefix("sqlite://").unwrap_or(url);
    std::path::absolute(path).map_or_else(|_| path.to_owned(), |path| path.display().to_string())
}

/// Opens the state file for a command that looks into it. None is made.
pub async fn existing(config: &Config) -> Result<Arc<Store>, Failure> {
    Store::open_existing(&config.state.url, limits(config)).await.map_err(|error| match error {
        OpenError::File { source, .. } if source.kind() == ErrorKind::NotFound => Failure::Runtime(format!(
            "there is no state file {}: name the configuration of the serving proxy with --config; a relative path in \
             state.url counts from the working directory",
            file(config)
        )),
        error => Failure::Runtime(error.to_string()),
    })
}
