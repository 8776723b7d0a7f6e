//! What shows a pinned state goes out byte for byte, whatever strategy is at work; what stands beside it does not.

use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::compact::budget::Budget;
use crate::compact::ladder::{Goal, Step, start};
use crate::compact::plan::{Situation, plan};
use crate::compact::render::render;
use crate::compact::rows::Known;
use crate::compact::talk::Talk;
use crate::compact::tokens::Tokens;
use crate::config::{Auto, EvictionSettings, PruneSettings, Strategies, TruncateSettings};
use crate::wire::splice::splice;

/// Where a list, a plan, what a task said when it began, and a refusal stand.
const PINNED: [usize; 4] = [1, 3, 6, 8];
/// Where as much stands that shows no state: arguments, and a result.
const BESIDE: [usize; 2] = [9, 12];

fn long(chars: usize) -> String {
    "Step by step. ".repeat(chars / 14)
}

fn talk() -> Talk {
    let list = json!({"todos": [{"content": long(5_000), "status": "in_progress"}]}).to_string();
    let plan = json!({"plan": long(5_000)}).to_string();
    let runs = format!("Command running in background with ID: bash_1\n{}", long(1_500));
    let refused = format!("The user doesn't want to proceed with this tool use. {}", long(5_000));
    let file = json!({"path": "a.rs", "content": long(5_000)}).to_string();
    Talk::new()
        .user("go")
        .tool("1", "TodoWrite", &list, "ok")
        .tool("2", "ExitPlanMode", &plan, "User has approved your plan.")
        .tool("3", "Bash", r#"{"command":"npm run dev","run_in_background":true}"#, &runs)
        .tool("4", "Bash", r#"{"command":"rm -rf build"}"#, &refused)
        .tool("5", "write_file", &file, "ok")
        .tool("6", "Bash", r#"{"command":"ls"}"#, &long(5_000))
        .assistant("done")
        .user("go on")
}

fn eviction() -> EvictionSettings {
    EvictionSettings {
        max_result_chars: 1_000,
        max_result_tokens: None,
        preview_chars: 100,
        excluded_tools: Vec::new(),
        excluded_limit_factor: 4,
        workspace_dir: None,
    }
}

fn truncation() -> TruncateSettings {
    TruncateSettings {
        trigger_messages: 2,
        trigger_tokens: Auto::Fixed(100),
        keep_messages: 1,
        max_arg_length: 300,
        truncation_text: "... [{n} characters are hidden, id {id}] ...".to_owned(),
        min_gain_tokens: Auto::Fixed(1),
    }
}

fn pruning() -> PruneSettings {
    PruneSettings { protect_tokens: Auto::Fixed(0), min_gain_tokens: Auto::Fixed(1), max_output_chars: 600 }
}

/// The rows that planning proposes.
fn planned(situation: &Situation) -> Known {
    let proposal = plan(situation);
    let active = proposal.checkpoint.map(|(_, checkpoint)| checkpoint);
    Known { evictions: proposal.evictions.into_iter().collect(), active, ..Known::default() }
}

/// The rows that recovery proposes where a little less is enough.
fn recovered(situation: &Situation) -> Known {
    let limit = situation.load().tokens;
    let Step::Send(rung) = start(situation, Goal { target: limit - 1, limit }) else { panic!("no rung") };
    Known { active: Some(rung.checkpoint.into()), ..Known::default() }
}

/// The messages that are no longer what the client sent.
fn changed(strategies: &Strategies, rows: fn(&Situation) -> Known) -> Vec<usize> {
    let conversation = talk().conversation();
    let known = Known::default();
    let known = rows(&Situation {
        conversation: &conversation,
        known: &known,
        strategies,
        budget: &Budget::new(strategies, None, None),
        calibration: 1.0,
        key: &TextKey([3; 32]),
        tokens: &Tokens::default(),
        ways: Default::default(),
    });
    let body = Bytes::copy_from_slice(conversation.body);
    let sent = splice(&body, render(&conversation, &known).edits).unwrap().concat();
    let messages = |body: &[u8]| serde_json::from_slice::<Value>(body).unwrap()["messages"].as_array().unwrap().clone();
    let (before, after) = (messages(&body), messages(&sent));
    assert_eq!(before.len(), after.len());
    (0..before.len()).filter(|at| before[*at] != after[*at]).collect()
}

/// What it is called, what is on, how it comes into force, and which items it would touch.
type Way<'s> = (&'s str, &'s Strategies, fn(&Situation) -> Known, &'s [usize]);

#[test]
fn no_strategy_and_no_recovery_touches_what_shows_a_pinned_state() {
    let conversation = talk().conversation();
    let shown: HashSet<usize> = pinned_items(&conversation).into_iter().map(|(item, _)| item).collect();
    assert!(PINNED.iter().all(|item| shown.contains(item)) && BESIDE.iter().all(|item| !shown.contains(item)));
    let evict = Strategies { eviction: Some(eviction()), ..Strategies::default() };
    let trim = Strategies { truncate: Some(truncation()), ..Strategies::default() };
    let prune = Strategies { prune: Some(pruning()), ..Strategies::default() };
    let all = Strategies {
        eviction: Some(eviction()),
        truncate: Some(truncation()),
        prune: Some(pruning()),
        ..Strategies::default()
    };
    let [arguments, result] = BESIDE;
    let ways: [Way<'_>; 5] = [
        ("evict", &evict, planned, &[result]),
        ("trim", &trim, planned, &[arguments]),
        ("prune", &prune, planned, &[result]),
        ("all", &all, planned, &[arguments, result]),
        ("recovery", &all, recovered, &[arguments, result]),
    ];
    for (name, strategies, rows, due) in ways {
        assert_eq!(changed(strategies, rows), due, "{name}");
    }
}
