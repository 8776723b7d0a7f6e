//! The bounds of the state file, as the configuration has them.

use crate::config::Config;
use crate::store::Limits;

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
