//! `check`: the configuration, resolved.

use super::Failure;
use crate::config::Config;
use crate::proxy::Proxy;
use crate::server::tls::Certificate;

/// Prints the configuration with every default written out, secrets masked, where serving could begin with it.
pub fn run(config: Config) -> Result<(), Failure> {
    let resolved = config.to_string();
    if let Some(files) = &config.server.tls {
        Certificate::read(files).map_err(|error| Failure::Setup(error.to_string()))?;
    }
    Proxy::new(config, None).map_err(|error| Failure::Setup(error.to_string()))?;
    super::print(resolved.as_bytes())
}
