//! The whole of planning against a world that loses things: one driver for all three dialects, a generator for each
//! ([`chat`], [`items`], [`blocks`]). Random histories, restarts, lost writes, forks, other configurations, other
//! providers; and what must hold of every turn.
//!
//! What must hold of every body that is sent (INVARIANTS §6), and where it is asserted:
//!
//! | § | what | where |
//! | --- | --- | --- |
//! | 1 | call ids and result ids | [`invariants::paired`], and the pairing rules of [`judge`] (C1, C2, R1, R2, A1, A2, A4) |
//! | 2 | Chat's order of roles | [`invariants::in_order`], and the profiles of [`judge`] (D1–D12) |
//! | 2 | the last message is the client's | [`laws::only_what_is_on`] |
//! | 3 | Messages | [`judge`] (A1–A27, with signatures bound to the history) |
//! | 3 | the turn that goes on | [`invariants::turn_is_whole`]: where its thinking is signed; else nothing in it is bound |
//! | 4 | Responses | [`judge`] (R1–R20), with calls that are answered one by one (R4) |
//! | 4 | what is out of sight | [`invariants::out_of_sight`]; recorded chains: `tests/it/chains.rs` |
//! | 4 | what a compaction stands for | [`laws::recoverable`]: no byte before the first item that may be touched differs |
//! | 5 | arguments that parsed still parse | [`laws::recoverable`] |
//! | 6 | byte identity of all that is not replaced | [`laws::recoverable`], [`invariants::spliced`] |
//! | 7 | smaller, or the error | [`laws::recovered`], [`invariants::smaller`] |
//! | 8 | frozen between activations | [`laws::frozen`], [`laws::stays_whole`] |
//! | 9 | unknown types survive | [`invariants::novel_survives`] |
//! | 10 | output limits | [`invariants::output_only_lowered`]; through the whole proxy: `tests/it/output_floor.rs` |
//!
//! What is random, and where it is made:
//!
//! | what | where |
//! | --- | --- |
//! | calls made in parallel, of all families; empty results, pictures in them | `tool_messages`, `tool_items`, `tool_blocks` |
//! | reasoning among them, sealed, signed, or as a text | the same, [`blocks`]' `thought`, [`items`]' `reasoning_item` |
//! | what the provider runs or compacts; types that nobody knows | `hosted_*`, `compaction_*` |
//! | pictures, recordings, files, documents | `picture_*` |
//! | Unicode, also escaped; giant single items | [`history::prose`], [`history::quoted`], [`steps`] |
//! | configurations, windows, providers | [`setup`] |
//! | histories that grow, go back, fork, are edited; what is lost beside them | [`steps::anything`] |
//! | many generations of summaries | asserted in [`sessions_come_through_every_way`] |

mod blocks;
mod chat;
mod examples;
mod history;
mod invariants;
mod items;
mod judge;
mod laws;
mod regressions;
mod session;
mod setup;
mod states;
mod steps;
mod store;
pub mod terms;
pub mod turn;
pub mod world;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use self::session::Session;
pub use self::setup::strategies;
use self::setup::{calm, setup};
use self::steps::{Step, anything, growth};
use self::turn::Turn;
use super::budget::Window;
use super::plan::Need;
use super::rows::Level;

/// How many sessions each property is asked of; `PROPTEST_CASES` may say otherwise.
fn config(usual: u32) -> ProptestConfig {
    let told = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let cases = told.unwrap_or(usual);
    ProptestConfig { cases, max_shrink_iters: 400, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(20))]

    /// For all histories and mishaps: every turn is valid, recoverable and frozen, and no rule is forgotten.
    #[test]
    fn the_laws_hold_for_all_sessions(setup in setup(), steps in prop::collection::vec(anything(), 1..40)) {
        let mut session = Session::new(&setup);
        steps.iter().for_each(|step| session.step(step));
    }

    /// For all sessions that only grow: compaction is deep and therefore rare, and nothing overflows twice.
    #[test]
    fn compaction_is_deep_and_rare(setup in calm(), steps in prop::collection::vec(growth(), 15..45)) {
        let mut session = Session::new(&setup);
        rare(&mut session, &steps);
    }
}

/// The sessions reach what they are to test: nothing above holds only because it never happens.
#[test]
fn sessions_come_through_every_way() {
    let mut runner = TestRunner::deterministic();
    let sessions = (setup(), prop::collection::vec(anything(), 30..40));
    let mut ways: BTreeMap<&str, usize> = BTreeMap::new();
    let mut generations = 0;
    for _ in 0..24 {
        let (setup, steps) = sessions.new_tree(&mut runner).unwrap().current();
        let mut session = Session::new(&setup);
        let mut heads = BTreeSet::new();
        for step in &steps {
            session.step(step);
            let Some(turn) = session.last[session.at_work].as_ref().filter(|_| step.sends()) else { continue };
            heads.extend(turn.known.active.as_deref().and_then(|active| Some(active.head.as_ref()?.text.clone())));
            turn.ways().into_iter().for_each(|way| *ways.entry(way).or_default() += 1);
        }
        generations = generations.max(heads.len());
    }
    assert!(generations > 4, "{generations} summaries one upon the other at most");
    let wanted = [
        "bytes",
        "checkpoint",
        "evicted",
        "folded",
        "late",
        "lost",
        "lowered or with the option",
        "now",
        "original",
        "output",
        "prepared",
        "pruned",
        "recovered",
        "refused",
        "shortened",
        "summarized",
        "truncated",
        "untouched",
    ];
    let missing: Vec<_> = wanted.iter().filter(|way| !ways.contains_key(**way)).collect();
    assert!(missing.is_empty(), "{missing:?} never happened: {ways:?}");
}

fn rare(session: &mut Session, steps: &[Step]) {
    let (mut activations, mut recovered_before, mut raw_before) = (0_u64, false, 0);
    for step in steps {
        session.step(step);
        let Some(turn) = &session.last[0] else { continue };
        let raw = session.world.count(&turn.raw);
        // What comes at once may be too much by itself.
        let little = raw - raw_before < session.world.provider.limit / 4;
        raw_before = raw;
        activations += u64::from(turn.known.active != turn.before.active);
        let Some(trigger) = turn.budget.trigger else { continue };
        deep(turn, trigger);
        if let Some(recovery) = &turn.recovery {
            let known = turn.budget.window.is_some_and(|window| window.input == session.world.provider.limit);
            let sizes = [&turn.raw, &recovery.first, &turn.out].map(|body| session.world.count(body));
            let again = recovered_before && known && little && recovery.rung.is_some();
            assert!(!again, "it overflowed again: {sizes:?}, {:?}, {:?}", turn.load, recovery.goal);
        }
        recovered_before = turn
            .recovery
            .as_ref()
            .is_some_and(|recovery| recovery.rung.as_ref().is_some_and(|rung| recovery.reaches(rung.tokens)));
        // Where the window is thought to be larger than it is, the provider's refusal is what fires.
        let fires = trigger.min(session.world.provider.limit);
        let most = 2 * raw.div_ceil(fires - fires / 2) + 1;
        assert!(activations <= most, "{activations} activations for {raw} tokens at a trigger of {fires}");
    }
}

/// A summary that was activated by plan brings the estimate down to its target.
fn deep(turn: &Turn, trigger: u64) {
    let summarized = turn.proposal.actions.summarized || matches!(turn.proposal.summary, Need::Now { .. });
    // What would not make the body smaller is not laid over it.
    let activated = turn.known.active != turn.before.active;
    if !summarized || !activated || !turn.stored || turn.recovery.is_some() {
        return;
    }
    let raw = laws::read(&turn.raw);
    let summarized = turn.known.active.as_deref().map_or(0, super::Checkpoint::summarized);
    let smallest = super::cuts::boundaries(&raw).into_iter().rfind(|cut| *cut < raw.items.len()) <= Some(summarized);
    assert!(smallest || turn.load.tokens <= trigger / 2, "{:?}, {trigger}, {:?}", turn.load, turn.proposal);
}
