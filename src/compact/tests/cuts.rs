use proptest::prelude::*;

use super::*;
use crate::compact::talk::Talk;

fn at(talk: &Talk) -> Vec<usize> {
    boundaries(&talk.conversation())
}

#[test]
fn a_tail_starts_at_an_assistant_or_at_a_user_text_that_is_not_the_last() {
    let talk = Talk::new().system("s").user("do it").tool("1", "ls", "{}", "a").assistant("done").user("more");
    // items: user, call, result, assistant, user
    assert_eq!(at(&talk), [1, 3, 5]);
    assert_eq!(at(&talk.assistant("ok")), [1, 3, 4, 5, 6]);
}

#[test]
fn parallel_calls_and_their_results_are_one_group() {
    let talk = Talk::new()
        .user("go")
        .calls("", &[("a", "ls", "{}"), ("b", "cat", "{}")])
        .result("b", "2")
        .result("a", "1")
        .assistant("end");
    let conversation = talk.conversation();
    assert_eq!(groups(&conversation), [0..1, 1..4, 4..5]);
    let pairs = pairs(&conversation);
    assert_eq!(pairs[0], Pair { call: (1, 0), result: Some((3, 0)) });
    assert_eq!(pairs[1], Pair { call: (1, 1), result: Some((2, 0)) });
}

#[test]
fn an_id_used_again_belongs_to_its_nearest_call() {
    let talk = Talk::new().user("go").tool("x", "a", "{}", "1").tool("x", "b", "{}", "2").assistant("end");
    let conversation = talk.conversation();
    assert_eq!(groups(&conversation), [0..1, 1..3, 3..5, 5..6]);
    let same =
        Talk::new().user("go").calls("", &[("x", "a", "{}"), ("x", "b", "{}")]).result("x", "1").result("x", "2");
    let pairs = pairs(&same.conversation());
    assert_eq!((pairs[0].result, pairs[1].result), (Some((2, 0)), Some((3, 0))));
}

#[test]
fn an_unanswered_old_call_does_not_swallow_the_next_answer() {
    let talk = Talk::new().user("go").call("x", "a", "{}").user("stop").tool("x", "b", "{}", "2").assistant("end");
    let conversation = talk.conversation();
    assert_eq!(pairs(&conversation)[0].result, None);
    assert_eq!(groups(&conversation), [0..1, 1..2, 2..3, 3..5, 5..6]);
}

#[test]
fn legacy_pairs_and_orphan_results_are_not_split() {
    let talk =
        Talk::new().user("go").legacy("f", "{}", "r").legacy("f", "{}", "r").result("nobody", "?").assistant("end");
    assert_eq!(groups(&talk.conversation()), [0..1, 1..3, 3..6, 6..7]);
}

#[test]
fn open_calls_stay_in_the_tail_and_forbid_the_fold() {
    let talk = Talk::new().user("go").tool("1", "a", "{}", "r").calls("", &[("2", "a", "{}"), ("3", "b", "{}")]);
    let talk = talk.result("2", "half");
    assert_eq!(at(&talk), [1, 3]);
    assert!(!may_fold(&talk.conversation()));
    assert!(may_fold(&talk.result("3", "whole").conversation()));
}

#[test]
fn reasoning_stays_with_its_follower_and_unknown_roles_with_both_neighbours() {
    let talk =
        Talk::new().user("go").reasoning("hm").tool("1", "a", "{}", "r").assistant("x").unknown("?").assistant("y");
    let conversation = talk.conversation();
    assert_eq!(groups(&conversation), [0..1, 1..4, 4..7]);
    assert_eq!(conversation.items.iter().filter(|item| is_message(&item.facts)).count(), 6);
    assert!(!may_fold(&Talk::new().user("go").reasoning("hm").conversation()));
}

#[test]
fn no_tail_starts_with_a_system_message_or_a_picture() {
    let talk = Talk::new().user("a").assistant("b").system("now").image().assistant("c").user("d");
    assert_eq!(at(&talk), [1, 4, 6]);
}

#[test]
fn the_tail_is_the_smallest_that_reaches_what_is_kept() {
    let talk = Talk::new().user("go").tool("1", "a", "{}", "r").tool("2", "a", "{}", "r").tool("3", "a", "{}", "r");
    let conversation = talk.conversation();
    let counts = [10; 7];
    assert_eq!(cut_for_tokens(&conversation, &counts, 0), Some(5));
    assert_eq!(cut_for_tokens(&conversation, &counts, 20), Some(5));
    assert_eq!(cut_for_tokens(&conversation, &counts, 21), Some(3));
    assert_eq!(cut_for_tokens(&conversation, &counts, 61), None);
    assert_eq!(cut_for_messages(&conversation, 3), Some(3));
    assert_eq!(cut_for_messages(&conversation, 7), None);
}

/// A random history of the shapes that occur, dangling calls and results included.
pub(crate) fn histories() -> impl Strategy<Value = Talk> {
    prop::collection::vec((0..12_u8, 0..4_u8), 0..40).prop_map(|steps| {
        steps.into_iter().fold(Talk::new(), |talk, (kind, id)| {
            let id = format!("id{id}");
            match kind {
                0 => talk.user("do this"),
                1 => talk.assistant("done"),
                2 => talk.system("note"),
                3 => talk.unknown("?"),
                4 => talk.reasoning("hm"),
                5 => talk.calls("", &[(&id, "a", "{}"), ("p", "b", "{}")]).result("p", "1").result(&id, "2"),
                6 => talk.call(&id, "a", "{}"),
                7 => talk.result(&id, "late"),
                8 => talk.legacy("f", "{}", "r"),
                9 => talk.image(),
                _ => talk.tool(&id, "a", "{\"path\":\"x\"}", "result"),
            }
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_boundary_splits_a_pair_or_starts_badly(talk in histories()) {
        let conversation = talk.conversation();
        let n = conversation.items.len();
        for k in boundaries(&conversation) {
            for pair in pairs(&conversation) {
                if let Some((result, _)) = pair.result {
                    prop_assert!((pair.call.0 < k) == (result < k));
                }
            }
            if k < n {
                let start = &conversation.items[k].facts;
                prop_assert!(start.results.is_empty());
                prop_assert!(matches!(start.role, Role::User | Role::Assistant));
                let before = &conversation.items[k - 1].facts;
                prop_assert!(before.role != Role::Unknown && !is_reasoning(before));
            }
        }
        let all: Vec<usize> = groups(&conversation).into_iter().flatten().collect();
        prop_assert_eq!(all, (0..n).collect::<Vec<_>>());
    }

    #[test]
    fn keeping_more_never_cuts_later(talk in histories(), keep in 0..30_usize, more in 0..10_usize) {
        let conversation = talk.conversation();
        let counts: Vec<u32> = (0..conversation.items.len()).map(|i| (i as u32 * 7) % 13).collect();
        let tail = |k: Option<usize>| k.map_or(usize::MAX, |k| conversation.items.len() - k);
        prop_assert!(tail(cut_for_messages(&conversation, keep)) <= tail(cut_for_messages(&conversation, keep + more)));
        let (little, much) = (keep as u64, (keep + more) as u64);
        prop_assert!(tail(cut_for_tokens(&conversation, &counts, little)) <= tail(cut_for_tokens(&conversation, &counts, much)));
        if let Some(k) = cut_for_tokens(&conversation, &counts, little) {
            prop_assert!(k > 0 && k < conversation.items.len());
            prop_assert!(counts[k..].iter().map(|&c| u64::from(c)).sum::<u64>() >= little);
        }
    }

    #[test]
    fn appending_keeps_old_boundaries_between_finished_groups(talk in histories()) {
        let before = talk.conversation();
        let after = talk.user("next").assistant("ok").conversation();
        let n = before.items.len();
        let later = boundaries(&after);
        for k in boundaries(&before).into_iter().filter(|&k| k < n) {
            prop_assert!(later.contains(&k));
        }
    }
}

/// One id for all calls costs no more than many; each result goes to the first open call of the nearest item.
#[test]
fn an_id_used_for_everything_is_paired_in_one_pass() {
    let many: Vec<(&str, &str, &str)> = vec![("same", "f", ""); 60_000];
    let mut talk = Talk::new().user("go").calls("", &many[..2]).calls("", &many);
    for _ in 0..3 {
        talk = talk.result("same", "x");
    }
    let conversation = talk.conversation();
    let started = std::time::Instant::now();
    let found = pairs(&conversation);
    assert!(started.elapsed().as_secs() < 5);
    let answered: Vec<_> = found.iter().filter(|pair| pair.result.is_some()).map(|pair| pair.call).collect();
    assert_eq!(answered, [(2, 0), (2, 1), (2, 2)]);
}

/// A body of items of OpenAI Responses: `r`easoning, `c`alls with their `o`utputs, `s`earches for tools with what they
/// `f`ound, the `m`odel's and the `u`ser's words.
fn body_of_items(letters: &str) -> String {
    let mut calls = 0;
    let items: Vec<serde_json::Value> = letters
        .chars()
        .map(|letter| match letter {
            'r' => serde_json::json!({ "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e" }),
            'c' => {
                calls += 1;
                serde_json::json!({ "type": "function_call", "call_id": format!("c{calls}"), "name": "f", "arguments": "{}" })
            }
            'o' => serde_json::json!({ "type": "function_call_output", "call_id": format!("c{calls}"), "output": "x" }),
            's' => serde_json::json!({ "type": "tool_search_call", "call_id": "s", "arguments": {} }),
            'f' => serde_json::json!({ "type": "tool_search_output", "call_id": "s", "tools": [] }),
            'm' => serde_json::json!({ "role": "assistant", "content": "I see." }),
            _ => serde_json::json!({ "role": "user", "content": "Go on." }),
        })
        .collect();
    serde_json::json!({ "model": "m", "input": items }).to_string()
}

fn items(body: &str) -> Conversation<'_> {
    let memo = crate::wire::memo::Memo::new(0);
    crate::wire::read(crate::wire::Dialect::Responses, body.as_bytes(), &memo, [0; 16]).unwrap()
}

fn groups_of_items(letters: &str) -> Vec<Range<usize>> {
    groups(&items(&body_of_items(letters)))
}

/// R4: a client may answer parallel calls one by one.
#[test]
fn a_call_behind_an_output_may_be_of_the_answer_before_it() {
    assert_eq!(groups_of_items("urcocom"), [0..1, 1..6, 6..7]);
    assert_eq!(groups_of_items("urmcoco"), [0..1, 1..7]);
    assert_eq!(groups_of_items("ucoco"), [0..1, 1..3, 3..5], "where nothing was reasoned nothing is missed");
    assert_eq!(groups_of_items("urcorcorco"), [0..1, 1..4, 4..7, 7..10], "reasoning begins an answer");
    assert_eq!(groups_of_items("urcomcoco"), [0..1, 1..4, 4..5, 5..7, 7..9], "so do words behind an output");
    assert_eq!(groups_of_items("urcouco"), [0..1, 1..4, 4..5, 5..7], "and the user's");
}

/// What came behind the replaced items does not decide what stays of them: it was not there at first (L4).
#[test]
fn reasoning_stays_with_the_search_that_was_of_its_answer() {
    let body = body_of_items("urcosf");
    let kept = |upto: usize| (0..upto).filter(|index| is_kept(&items(&body), *index, upto)).collect::<Vec<_>>();
    assert_eq!(kept(6), [1, 4, 5]);
    assert_eq!(kept(4), Vec::<usize>::new());
    let body = body_of_items("urcorsf");
    let kept = (0..7).filter(|index| is_kept(&items(&body), *index, 7)).collect::<Vec<_>>();
    assert_eq!(kept, [4, 5, 6], "other reasoning is of another answer");
}

/// An endless loop of calls behind one thought can be cut: no answer has so many (C8).
#[test]
fn no_answer_has_more_calls_than_the_api_takes() {
    let long = format!("ur{}", "co".repeat(MOST_CALLS + 2));
    let first = 2 + 2 * MOST_CALLS;
    assert_eq!(groups_of_items(&long), [0..1, 1..first, first..first + 2, first + 2..first + 4]);
}

#[test]
fn answers_that_follow_each_other_are_one_in_messages() {
    let said = |role: &str, content: serde_json::Value| serde_json::json!({ "role": role, "content": content });
    let call = |kind: &str, id: &str| serde_json::json!([{ "type": kind, "id": id, "name": "f", "input": {} }]);
    let answers = |kind: &str, id: &str| serde_json::json!([{ "type": kind, "tool_use_id": id, "content": "r" }]);
    let of = |messages: &[serde_json::Value]| {
        let body = serde_json::json!({ "model": "m", "messages": messages }).to_string();
        let memo = crate::wire::memo::Memo::new(0);
        groups(&crate::wire::read(crate::wire::Dialect::Messages, body.as_bytes(), &memo, [0; 16]).unwrap())
    };
    // Code that a server runs calls the client's tool, and is answered two messages later.
    let mut asks = call("server_tool_use", "s");
    asks.as_array_mut().unwrap().extend(call("tool_use", "a").as_array().unwrap().clone());
    let programmatic = [
        said("user", "x".into()),
        said("assistant", asks),
        said("user", answers("tool_result", "a")),
        said("assistant", call("tool_use", "b")),
        said("user", answers("tool_result", "b")),
        said("assistant", answers("code_execution_tool_result", "s")),
        said("user", "y".into()),
    ];
    assert_eq!(of(&programmatic), [0..1, 1..6, 6..7]);
    let paused = [
        said("user", "x".into()),
        said("assistant", "a".into()),
        said("assistant", "b".into()),
        said("user", "y".into()),
    ];
    assert_eq!(of(&paused), [0..1, 1..3, 3..4]);
}
