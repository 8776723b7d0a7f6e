//! `demo`: the whole thing, embedded.

use super::Failure;
use crate::config::Config;

/// Runs the demonstration; fails unless every claim it prints held.
pub fn run(config: Config) -> Result<(), Failure> {
    // Integration: the demonstration is called here.
    let _ = config;
    Err(Failure::Runtime("demo is not connected yet".into()))
}
