//! `evicted`: a removed text, or a page of it.

use super::{EvictedArgs, Failure};
use crate::config::Config;

/// Prints the same bytes as `GET /_compactproxy/evicted/{id}` answers with.
pub fn run(config: Config, args: &EvictedArgs) -> Result<(), Failure> {
    // Integration: the store is read here; `super::print` writes the page.
    let _ = config;
    Err(Failure::Runtime(format!("evicted {} is not connected yet", args.id)))
}
