use bytes::Bytes;

use super::*;
use crate::compact::budget::Budget;
use crate::compact::fixture::{Chat, Message, call, exchange, result, says, user};
use crate::compact::render::render;
use crate::compact::rows::TextKey;
use crate::compact::tokens::Tokens;
use crate::config::Strategies;
use crate::wire::Conversation;
use crate::wire::splice::splice;

/// Calls `look` with the situation of a chat under some rows, nothing being configured.
fn with<T>(chat: &Chat, known: &Known, look: impl FnOnce(&Situation) -> T) -> T {
    let strategies = Strategies::default();
    look(&Situation {
        conversation: &chat.conversation(),
        known,
        strategies: &strategies,
        budget: &Budget::new(&strategies, None, None),
        calibration: 1.0,
        key: &TextKey([3; 32]),
        tokens: &Tokens::default(),
        ways: Default::default(),
    })
}

fn words(seed: usize, count: usize) -> String {
    (0..count).map(|n| format!("w{} ", (n * 7 + seed * 13) % 1_000)).collect()
}

fn bytes(chat: &Chat, conversation: &Conversation, known: &Known) -> Vec<u8> {
    let body = Bytes::copy_from_slice(&chat.body);
    splice(&body, render(conversation, known).edits).unwrap().concat()
}

/// Whatever the provider refuses, the next attempt is another request, until there is none.
#[test]
fn refused_again_and_again_recovery_goes_deeper_and_ends() {
    let mut messages: Vec<Message> = vec![user("Fix the build.")];
    for n in 0..12 {
        messages.extend(exchange(&format!("c{n}"), "bash", &words(n, 900)));
    }
    messages.push(says("done"));
    messages.push(user("And the tests?"));
    let chat = Chat::new(&messages);
    let mut known = Known::default();
    let mut sent = Vec::new();
    let mut rungs = 0;
    loop {
        let step = with(&chat, &known, |situation| {
            sent.push(bytes(&chat, situation.conversation, situation.known));
            let goal = goal(&Sizes::default(), situation.load().tokens, None, None);
            match start(situation, goal) {
                Step::Summarize { cut } => finish(situation, goal, Some((cut, Source::Digest))),
                step => step,
            }
        });
        let Step::Send(rung) = step else { break };
        assert!(with(&chat, &known, |situation| situation.applies(&rung.checkpoint)));
        known.active = Some(Arc::new(rung.checkpoint));
        rungs += 1;
        assert!(rungs < 10, "no end");
    }
    assert!(rungs >= 2, "{rungs}");
    assert_eq!(sent.iter().collect::<std::collections::HashSet<_>>().len(), sent.len(), "the same bytes again");
}

/// The items of which texts are shortened where nothing else helps.
fn shortened_for(chat: &Chat, goal: Goal) -> Vec<usize> {
    with(chat, &Known::default(), |situation| {
        let rung = shortened(situation, untouched(situation).unwrap(), goal).unwrap();
        rung.checkpoint.edits.iter().map(|(item, _)| *item).collect()
    })
}

#[test]
fn results_are_shortened_first_and_short_words_of_the_user_never() {
    let mut messages = vec![user("Fix the build."), user(&words(1, 2_500)), says("ok"), user(&words(2, 380))];
    messages.extend(exchange("c1", "bash", &words(3, 9_000)));
    messages.extend([says("done"), user(&words(4, 2_500)), says("hm"), user("Go on.")]);
    let chat = Chat::new(&messages);
    let edited = |target: u64, limit: u64| shortened_for(&chat, Goal { target, limit });
    let all = with(&chat, &Known::default(), |situation| situation.load().tokens);
    // The result alone brings it below the limit: the target is not worth a user's words.
    assert_eq!(edited(all / 10, all * 9 / 10), [5]);
    // The impossible: everything long is shortened, nothing short.
    assert_eq!(edited(0, 200), [1, 5, 7]);
}

#[test]
fn an_error_without_numbers_goes_by_the_window_that_is_known() {
    let window = |total| Some(Window { input: total, total });
    let silent = |sent, output, window| goal(&Sizes::default(), sent, output, window);
    assert_eq!(silent(6_000, None, window(2_500)), Goal { target: 1_218, limit: 2_436 });
    assert_eq!(silent(6_000, Some(500), window(2_500)), Goal { target: 968, limit: 1_936 });
    // More output than half of the window is not all believed.
    assert_eq!(silent(6_000, Some(2_400), window(2_500)), Goal { target: 593, limit: 1_186 });
    // A window in which it should have fitted explains nothing.
    for unknown in [None, window(20_000), window(0)] {
        assert_eq!(silent(6_000, None, unknown), Goal { target: 3_000, limit: 6_000 });
    }
    let sizes = Sizes { limit: Some(4_000), ..Sizes::default() };
    assert_eq!(goal(&sizes, 6_000, None, window(2_500)).limit, 4_000 - MARGIN);
}

/// A page that the model asked for is of no use to it in part: everything else gives way first, then older pages.
#[test]
fn what_the_model_looked_up_is_shortened_last_and_only_as_far_as_it_must_be() {
    let mut messages = vec![user("Fix the build."), user(&words(1, 2_500)), says("ok"), user(&words(2, 2_500))];
    messages.extend(exchange("c1", "read_evicted", &words(3, 2_000)));
    messages.extend(exchange("c2", "mcp__compactproxy__read_evicted", &words(4, 3_000)));
    messages.extend(exchange("c3", "compactproxy_memory_get", &words(5, 2_000)));
    messages.extend(exchange("c4", "bash", &words(6, 3_000)));
    let chat = Chat::new(&messages);
    let edited = |target: u64, limit: u64| shortened_for(&chat, Goal { target, limit });
    let all = with(&chat, &Known::default(), |situation| situation.load().tokens);
    let (first, second, third, shell) = (5, 7, 9, 11);
    assert_eq!(edited(1, all - 100), [shell], "never for the target alone");
    for (limit, pages) in [(60, vec![]), (45, vec![first]), (16, vec![first, second, third])] {
        let limit = all * limit / 100;
        let edited = edited(1, limit);
        let of_pages: Vec<usize> =
            edited.iter().copied().filter(|item| [first, second, third].contains(item)).collect();
        assert_eq!(of_pages, pages, "{limit} of {all}: {edited:?}");
        assert!([1, 3, shell].iter().all(|item| edited.contains(item)), "{edited:?}");
    }
}

/// What the user refused and what still runs stay word for word, however much has to go.
#[test]
fn what_shows_a_pinned_state_is_not_shortened() {
    let refused = format!("The user doesn't want to proceed with this tool use. {}", words(1, 500));
    let runs = format!("Command running in background with ID: bash_1\n{}", words(2, 300));
    let mut messages = vec![user("Fix the build.")];
    messages.extend([call("c1", "Bash", r#"{"command":"rm -rf build"}"#), result("c1", &refused)]);
    let begun = call("c2", "Bash", r#"{"command":"npm run dev","run_in_background":true}"#);
    messages.extend([begun, result("c2", &runs)]);
    messages.extend(exchange("c3", "Bash", &words(3, 300)));
    messages.extend([says("done"), user("Go on.")]);
    let chat = Chat::new(&messages);
    let edited = with(&chat, &Known::default(), |situation| {
        let rung = shortened(situation, untouched(situation).unwrap(), Goal { target: 0, limit: 200 }).unwrap();
        rung.checkpoint.edits.iter().map(|(item, _)| *item).collect::<Vec<_>>()
    });
    assert_eq!(edited, [6]);
}

/// A row that was refused cannot be stored again, so that the request would go out as it was.
#[test]
fn in_place_of_what_was_refused_before_another_is_proposed() {
    let mut messages: Vec<Message> = vec![user("Fix the build.")];
    for n in 0..8 {
        messages.extend(exchange(&format!("c{n}"), "bash", &words(n, 900)));
    }
    let chat = Chat::new(&messages);
    let mut known = Known::default();
    let mut rows = Vec::new();
    loop {
        let step = with(&chat, &known, |situation| {
            let goal = goal(&Sizes::default(), situation.load().tokens, None, None);
            match start(situation, goal) {
                Step::Summarize { cut } => finish(situation, goal, Some((cut, Source::Digest))),
                step => step,
            }
        });
        let Step::Send(rung) = step else { break };
        rows.push((rung.checkpoint.covers, rung.checkpoint.level));
        known.refused = rows.clone();
        assert!(rows.len() < 20, "{rows:?}");
    }
    let different: std::collections::HashSet<_> = rows.iter().collect();
    assert_eq!(different.len(), rows.len(), "{rows:?}");
    assert!(rows.len() > 2 && rows.iter().any(|(_, level)| *level == crate::compact::Level::Fold), "{rows:?}");
}
