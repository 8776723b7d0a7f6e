//! `evicted`: a removed text, or a page of it.

use super::{EvictedArgs, Failure, Unit};
use crate::compact::page::{self, Query};
use crate::config::Config;
use crate::store::{Limits, Store};

/// Prints the same bytes as `GET /_compactproxy/evicted/{id}` answers with.
pub fn run(config: Config, args: &EvictedArgs) -> Result<(), Failure> {
    let failure = |error: &dyn std::fmt::Display| Failure::Runtime(error.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| failure(&e))?;
    let limits = Limits { retention: config.state.retention, max_size: config.state.max_size, ..Limits::default() };
    let text = runtime.block_on(async {
        let store = Store::open(&config.state.url, limits).await.map_err(|e| failure(&e))?;
        let text = store.text(&args.id).await.map_err(|e| failure(&e));
        store.close().await;
        text
    })?;
    let Some(text) = text else {
        return Err(Failure::Runtime(format!("no text is kept under {} in {}", args.id, config.state.url)));
    };
    let unit = match args.unit {
        Unit::Lines => page::Unit::Lines,
        Unit::Chars => page::Unit::Chars,
    };
    let query = Query { offset: args.offset, limit: args.limit, unit, pattern: args.pattern.clone() };
    super::print(query.page(&text).map_err(|e| failure(&e))?.as_bytes())
}
