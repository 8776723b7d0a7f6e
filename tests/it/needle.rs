//! Whatever left a request is found again: by the proxy's tool, over MCP, in its file and at its address, exactly as it
//! was; also after a restart, and after three compactions one after the other.

mod case;
mod history;
mod model;
mod pages;
mod readers;
mod ways;

use std::collections::BTreeMap;

use self::case::{Missed, When, run};
use self::readers::Channel;
use self::ways::Way;
use crate::support::dialects::ALL;

const WHEN: [When; 2] = [When::AtOnce, When::AfterRestart];
const CHANNELS: [Channel; 6] =
    [Channel::Tool, Channel::Lines, Channel::Pattern, Channel::Mcp, Channel::File, Channel::Url];

/// Every conversation of one way; `NEEDLE_CASES` may say how many. Fails with a table of what was not found.
async fn all_found(way: Way) {
    let mut missed: Vec<Missed> = Vec::new();
    let cases = std::env::var("NEEDLE_CASES").ok().map(|cases| cases.parse().unwrap());
    for dialect in ALL {
        let (mut removed, mut read) = (0, BTreeMap::new());
        for seed in 0..cases.unwrap_or(way.cases()) {
            let found = run(dialect, way, 1 + seed + 100 * way as u64).await;
            removed += found.removed;
            missed.extend(found.missed);
            found.read.into_iter().for_each(|(how, count)| *read.entry(how).or_insert(0) += count);
        }
        assert!(removed > 0, "{dialect:?} {way:?}: nothing was removed");
        println!("{dialect:?} {way:?}: {removed} needles removed; texts read: {read:?}");
        for how in WHEN.into_iter().flat_map(|when| CHANNELS.map(|channel| (when, channel))) {
            assert!(read.contains_key(&how), "{dialect:?} {way:?}: no text was read {how:?}");
        }
    }
    let table: Vec<String> = missed.iter().map(ToString::to_string).collect();
    assert!(missed.is_empty(), "{} not found:\n{}", missed.len(), table.join("\n"));
}

#[tokio::test]
async fn what_was_evicted_is_found() {
    all_found(Way::Eviction).await;
}

#[tokio::test]
async fn what_was_truncated_is_found() {
    all_found(Way::Truncation).await;
}

#[tokio::test]
async fn what_was_pruned_is_found() {
    all_found(Way::Pruning).await;
}

#[tokio::test]
async fn what_was_summarized_is_found() {
    all_found(Way::Summary).await;
}

#[tokio::test]
async fn what_recovery_took_out_is_found() {
    all_found(Way::Recovery).await;
}

#[tokio::test]
async fn what_left_one_conversation_in_every_way_is_found() {
    all_found(Way::Everything).await;
}

#[tokio::test]
async fn what_three_compactions_took_out_is_found() {
    all_found(Way::Chain).await;
}
