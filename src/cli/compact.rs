//! `compact`: one body from stdin to stdout, as serving would send it.

use std::io::{Read, Write};

use bytes::Bytes;
use http::HeaderMap;
use serde_json::json;

use super::state::limits;
use super::{CompactArgs, Failure};
use crate::config::Config;
use crate::proxy::rehearsal::{Rehearsal, Rehearsed};
use crate::store::Store;

/// Writes the body that would be sent, and one JSON line of report to stderr.
pub fn run(config: Config, args: CompactArgs) -> Result<(), Failure> {
    let failure = |error: std::io::Error| Failure::Runtime(error.to_string());
    let mut body = Vec::new();
    std::io::stdin().lock().read_to_end(&mut body).map_err(failure)?;
    let body = Bytes::from(body);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failure)?;
    let compacted = runtime.block_on(compact(config, args, body.clone()))?;
    let sent = compacted.pieces.map_or_else(|| body.to_vec(), |pieces| pieces.concat());
    let report = json!({
        "actions": compacted.actions.names().collect::<Vec<_>>(),
        "bytes_before": body.len(),
        "bytes_after": sent.len(),
        "tokens_before": compacted.tokens.map(|tokens| tokens.before),
        "tokens_after": compacted.tokens.map(|tokens| tokens.after),
        "note": compacted.note,
    });
    let _ = writeln!(std::io::stderr(), "{report}");
    super::print(&sent)
}

async fn compact(config: Config, args: CompactArgs, body: Bytes) -> Result<Rehearsed, Failure> {
    if !config.compacts() {
        return Ok(Rehearsed::original("no strategy is on"));
    }
    let Ok(store) = Store::rehearse(&config.state.url, limits(&config)).await else {
        return Ok(Rehearsed::original("the store cannot be opened"));
    };
    let rehearsal = Rehearsal::new(config, store.clone()).map_err(|error| Failure::Setup(error.to_string()))?;
    let dialect = args.dialect();
    let headers: HeaderMap = args.headers.into_iter().collect();
    let mut rehearsed = rehearsal.of(dialect, headers.clone(), body.clone()).await;
    if rehearsed.pieces.is_none() && rehearsed.note.is_empty() {
        rehearsed.note = rehearsal.why_unchanged(dialect, headers, &body).await;
    }
    store.close().await;
    Ok(rehearsed)
}
