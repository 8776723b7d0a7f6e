//! `compact`: one body from stdin to stdout, as serving would send it.

use super::{CompactArgs, Failure};
use crate::config::Config;

/// Writes the body that would be sent, and one JSON line of report to stderr.
pub fn run(config: Config, args: CompactArgs) -> Result<(), Failure> {
    // Integration: the offline pipeline is called here; `super::print` writes its bytes.
    let _ = (config, args.dialect());
    Err(Failure::Runtime("compact is not connected yet".into()))
}
