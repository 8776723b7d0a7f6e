//! Every combination of the strategy sections: one that is off contributes nothing.

use compactproxy::demo::window::Limit;

use super::bytes::not_spliced;
use super::document::Document;
use super::stage::Stage;
use super::walk::window;

/// Each section with the actions that are its alone, at limits that the fixture goes beyond.
const SECTIONS: [(&str, &[&str]); 4] = [
    ("[tool_result_eviction]\nmax_result_chars = 5_000\nexcluded_tools = []\n", &["evicted"]),
    ("[truncate_args]\nkeep_messages = 4\nmin_gain_tokens = 500\n", &["truncated"]),
    ("[prune]\nprotect_tokens = 1_000\nmin_gain_tokens = 500\n", &["pruned"]),
    ("[compaction]\n[overflow_recovery]\n", &["summarized", "folded", "recovered"]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_section_that_is_off_contributes_nothing() {
    let document = Document::fixture("reused-ids");
    let window = window(&document);
    for on in 0..16_usize {
        let is_on = |section: usize| on >> section & 1 == 1;
        let sections = (0..4).filter(|section| is_on(*section)).map(|section| SECTIONS[section].0);
        let toml = format!("{}[[window]]\nmodel = \"*\"\ntotal = {window}\n", sections.collect::<String>());
        // Without compaction the window is not enforced: it is the trims' measure all the same.
        let limit = if is_on(3) { Limit::of(window) } else { Limit::default() };
        let stage = Stage::with(window, limit, &toml).await;
        let mut done = Vec::new();
        for count in document.turns().into_iter().step_by(3) {
            let body = document.body(count);
            let answered = stage.send(&body).await;
            assert!(answered.is_well(), "{on:04b} {count}: {answered:?}");
            assert_eq!(not_spliced(&body, answered.sent()), Ok(()), "{on:04b} {count}");
            assert_eq!(answered.actions.is_empty(), answered.sent() == &body, "{on:04b} {count}");
            done.extend(answered.actions);
        }
        for (section, (_, actions)) in SECTIONS.iter().enumerate() {
            let acted = actions.iter().any(|action| done.iter().any(|done| done == action));
            assert_eq!(acted, is_on(section), "{on:04b} {actions:?} {done:?}");
        }
    }
}

/// Recovery works with compaction alone and with everything: the window is smaller than anybody was told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recovery_works_whatever_else_is_on() {
    let document = Document::fixture("endless-loop");
    for on in 0..8_usize {
        let sections = (0..3).filter(|section| on >> section & 1 == 1).map(|section| SECTIONS[section].0);
        let toml = format!("{}[compaction]\n", sections.collect::<String>());
        let stage = Stage::with(12_000, Limit::of(12_000), &toml).await;
        let mut recovered = 0;
        for count in document.turns().into_iter().step_by(15) {
            let body = document.body(count);
            let answered = stage.send(&body).await;
            assert!(answered.is_well(), "{on:03b} {count}: {answered:?}");
            assert_eq!(not_spliced(&body, answered.sent()), Ok(()), "{on:03b} {count}");
            assert_eq!(answered.overflows(), usize::from(answered.did("recovered")), "{on:03b} {count}");
            recovered += answered.overflows();
        }
        // The first overflow teaches the window; triggers see to the rest.
        assert!((1..=2).contains(&recovered), "{on:03b} {recovered}");
    }
}
