//! `check`: the configuration, resolved.

use super::Failure;
use crate::config::Config;

/// Prints the configuration with every default written out, secrets masked.
pub fn run(config: &Config) -> Result<(), Failure> {
    super::print(config.to_string().as_bytes())
}
