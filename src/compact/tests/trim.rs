use std::sync::Arc;

use super::*;
use crate::compact::Known;
use crate::compact::budget::Budget;
use crate::compact::fixture::{Chat, Message, call, result, user};
use crate::compact::rows::{Change, Head, TextKey};
use crate::compact::tokens::Tokens;
use crate::config::{Auto, Strategies, TruncateSettings};

/// Calls with long arguments, two messages each, behind one of the user's.
const CALLS: usize = 10;

fn chat() -> Chat {
    let mut messages: Vec<Message> = vec![user("Write the files.")];
    for n in 0..CALLS {
        let id = format!("c{n}");
        let text = (0..300).map(|word| format!("w{} ", (word * 7 + n) % 100)).collect::<String>();
        messages.extend([call(&id, "write_file", &format!(r#"{{"text":"{text}"}}"#)), result(&id, "ok")]);
    }
    Chat::new(&messages)
}

/// What is trimmed where the last `keep` messages stay and `least` tokens must be gained.
fn planned_for(known: &Known, keep: usize, least: u64) -> Option<Trim> {
    let truncate = TruncateSettings {
        trigger_messages: 5,
        trigger_tokens: Auto::Auto,
        keep_messages: keep,
        max_arg_length: 300,
        truncation_text: "... [{n} characters hidden, id {id}]".to_owned(),
        min_gain_tokens: Auto::Fixed(least),
    };
    let strategies = Strategies { truncate: Some(truncate), ..Strategies::default() };
    let (chat, budget) = (chat(), Budget::new(&strategies, None, None));
    let conversation = chat.conversation();
    let situation = Situation {
        conversation: &conversation,
        known,
        strategies: &strategies,
        budget: &budget,
        calibration: 1.0,
        key: &TextKey([3; 32]),
        tokens: &Tokens::default(),
        ways: Default::default(),
    };
    planned(&situation, situation.load(), &Pinned::of(&conversation))
}

fn edited_items(trim: &Trim) -> Vec<usize> {
    trim.checkpoint.edits.iter().map(|(item, _)| *item).collect()
}

#[test]
fn arguments_of_the_messages_that_are_kept_stay_whole() {
    let calls = |count: usize| (0..count).map(|n| 1 + 2 * n).collect::<Vec<usize>>();
    let trimmed = |keep| planned_for(&Known::default(), keep, 1).as_ref().map(edited_items);
    assert_eq!(trimmed(4), Some(calls(CALLS - 2)));
    // A result does not stay without its call.
    assert_eq!(trimmed(5), Some(calls(CALLS - 3)));
    assert_eq!(trimmed(2 * CALLS), None, "all are kept");
}

#[test]
fn a_trim_gains_at_least_what_is_configured_or_is_none() {
    let all = planned_for(&Known::default(), 4, 1).unwrap().checkpoint.tokens;
    let gain = all.before - all.after;
    assert!(planned_for(&Known::default(), 4, gain).is_some());
    assert!(planned_for(&Known::default(), 4, gain + 1).is_none());
}

/// Else neither a summary nor a fold of the same history could take its place.
#[test]
fn a_trim_is_the_least_deep_whatever_it_is_laid_over() {
    let head = Head { upto: 3, text: "What was before.".to_owned(), ..Head::default() };
    let fold =
        Checkpoint { level: Level::Fold, covers: 3, head: Some(head), edits: Vec::new(), tokens: Change::default() };
    let known = Known { active: Some(Arc::new(fold)), ..Known::default() };
    let trim = planned_for(&known, 4, 1).unwrap();
    assert_eq!((trim.checkpoint.level, edited_items(&trim).first()), (Level::Trim, Some(&3)));
    assert_eq!(trim.checkpoint.head.map(|head| head.upto), Some(3), "it repeats what it is laid over");
}
