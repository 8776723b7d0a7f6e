//! `evicted`: a removed text, or a page of it.

use super::state::{existing, file};
use super::{EvictedArgs, Failure, Unit};
use crate::compact::page::{self, Query};
use crate::config::Config;
use crate::tools::lookup::lookup;

/// Prints the same bytes as `GET /_compactproxy/evicted/{id}` answers with.
pub fn run(config: Config, args: &EvictedArgs) -> Result<(), Failure> {
    let failure = |error: &dyn std::fmt::Display| Failure::Runtime(error.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| failure(&e))?;
    let text = runtime.block_on(async {
        let store = existing(&config).await?;
        let text = store.text(&args.id).await.map_err(|e| failure(&e));
        store.close().await;
        text
    })?;
    let Some(text) = text else {
        return Err(Failure::Runtime(format!("no text is kept under {} in {}", args.id, file(&config))));
    };
    let unit = match args.unit {
        Unit::Lines => page::Unit::Lines,
        Unit::Chars => page::Unit::Chars,
    };
    let (offset, limit, pattern) = (args.offset, args.limit, args.pattern.clone());
    let query = Query { offset, limit, unit, pattern, char_offset: args.char_offset };
    let query = query.checked().map_err(|e| failure(&e))?;
    super::print(lookup(&text, &query).map_err(|e| failure(&e))?.as_bytes())
}
