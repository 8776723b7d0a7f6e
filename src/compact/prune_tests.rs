use proptest::prelude::*;

use super::*;
use crate::compact::fixture::{Chat, exchange, user};

const KEY: TextKey = TextKey([5; 32]);

fn output(n: usize) -> String {
    (0..200).map(|line| format!("result {n}, line {line}: some words\n")).collect()
}

/// Five results of some 2,000 tokens each, by these tools.
fn session(tools: [&str; 5]) -> Chat {
    let mut messages = vec![user("go")];
    for (n, tool) in tools.iter().enumerate() {
        messages.extend(exchange(&format!("c{n}"), tool, &output(n)));
    }
    Chat::new(&messages)
}

fn pruned(chat: &Chat, max: usize, protect: u64, min_gain: u64, standing: &Standing<'_>) -> Vec<Cut> {
    let settings = PruneSettings {
        protect_tokens: crate::config::Auto::Auto,
        min_gain_tokens: crate::config::Auto::Auto,
        max_output_chars: max,
    };
    let tokens = Tokens::default();
    let pruner =
        Pruner { settings: &settings, key: &KEY, tokens: &tokens, ways: Default::default(), protect, min_gain };
    let conversation = chat.conversation();
    let all = 0..conversation.items.len();
    prune(&conversation, all, &pruner, standing)
}

fn items(cuts: &[Cut]) -> Vec<usize> {
    cuts.iter().map(|cut| cut.item).collect()
}

const SHELLS: [&str; 5] = ["bash"; 5];

#[test]
fn the_newest_output_stays() {
    let chat = session(SHELLS);
    let one = Tokens::default().count_text(&output(4));
    assert_eq!(items(&pruned(&chat, 2_000, 0, 0, &|_, _| None)), [2, 4, 6, 8, 10]);
    assert_eq!(items(&pruned(&chat, 2_000, 1, 0, &|_, _| None)), [2, 4, 6, 8]);
    assert_eq!(items(&pruned(&chat, 2_000, one, 0, &|_, _| None)), [2, 4, 6, 8]);
    assert_eq!(items(&pruned(&chat, 2_000, one + 1, 0, &|_, _| None)), [2, 4, 6]);
    assert_eq!(items(&pruned(&chat, 2_000, one * 9, 0, &|_, _| None)), [] as [usize; 0]);
}

#[test]
fn head_pointer_tail() {
    let cuts = pruned(&session(SHELLS), 2_000, 0, 0, &|_, _| None);
    let (text, original) = (&cuts[0].replacement.text, output(0));
    let (head, rest) = text.split_once("[compactproxy notice: ").unwrap();
    let (notice, tail) = rest.split_once("goes on.]\n").unwrap();
    assert!(original.starts_with(head) && original.ends_with(tail));
    assert!((750..=1_000).contains(&head.len()) && (750..=1_000).contains(&tail.len()));
    assert!(notice.contains(&format!("/_compactproxy/evicted/{}", KEY.id(&original))));
    assert_eq!(cuts[0].removed, [KEY.removed(original)]);
}

#[test]
fn all_or_nothing_by_gain() {
    let chat = session(SHELLS);
    let cuts = pruned(&chat, 2_000, 0, 0, &|_, _| None);
    let total = gain(&chat.conversation(), &cuts, &Tokens::default(), &|_, _| None);
    assert_eq!(pruned(&chat, 2_000, 0, total, &|_, _| None), cuts);
    assert_eq!(pruned(&chat, 2_000, 0, total + 1, &|_, _| None), []);
}

#[test]
fn short_results_stay() {
    assert_eq!(pruned(&session(SHELLS), output(0).len(), 0, 0, &|_, _| None), []);
    assert_eq!(
        pruned(&session(SHELLS), output(0).len() - 1, 0, 0, &|_, _| None),
        [],
        "the notice is longer than the gain"
    );
}

#[test]
fn reads_are_pruned_memory_and_plans_are_not() {
    let chat = session(["read_file", "mcp__m__memory_search", "todo_write", "Skill", "bash"]);
    assert_eq!(items(&pruned(&chat, 2_000, 1, 0, &|_, _| None)), [2]);
}

/// An evicted result counts as what is sent of it, and is pruned from its original.
#[test]
fn evicted_results() {
    let chat = session(SHELLS);
    let stub = "stub ".repeat(1_200);
    let tiny = "stub";
    let standing = |item, _| match item {
        2 => Some(stub.as_str()),
        4 => Some(tiny),
        _ => None,
    };
    let cuts = pruned(&chat, 2_000, 1, 0, &standing);
    assert_eq!(items(&cuts), [2, 6, 8], "nothing is gained over the tiny stub");
    assert!(cuts[0].replacement.text.starts_with("result 0"));
    assert_eq!(cuts[0].removed, [KEY.removed(output(0))]);
    let conversation = chat.conversation();
    let tokens = Tokens::default();
    let against_stub = tokens.count_text(&stub) - tokens.count_text(&cuts[0].replacement.text);
    assert_eq!(gain(&conversation, &cuts[..1], &tokens, &standing), against_stub);
    let done: Vec<String> = cuts.iter().map(|cut| cut.replacement.text.to_string()).collect();
    let again = |item, _| match item {
        2 => Some(done[0].as_str()),
        4 => Some(tiny),
        6 => Some(done[1].as_str()),
        8 => Some(done[2].as_str()),
        _ => None,
    };
    assert_eq!(pruned(&chat, 2_000, 1, 0, &again), [], "what is pruned is not pruned again");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every cut gains, the gain is that of the body, and the newest output stays.
    #[test]
    fn gains_are_real(
        texts in proptest::collection::vec("([a-z ]{0,60}\n|[é的\u{301}👩\u{200d}]{0,30}){0,80}", 1..6),
        max in 0usize..1_500,
        protect in 0u64..1_000,
        min_gain in 0u64..1_000,
    ) {
        let mut messages = vec![user("go")];
        for (n, text) in texts.iter().enumerate() {
            messages.extend(exchange(&format!("c{n}"), "bash", text));
        }
        let chat = Chat::new(&messages);
        let conversation = chat.conversation();
        let tokens = Tokens::default();
        let cuts = pruned(&chat, max, protect, min_gain, &|_, _| None);
        prop_assert_eq!(&cuts, &pruned(&chat, max, protect, min_gain, &|_, _| None));
        let total = gain(&conversation, &cuts, &tokens, &|_, _| None);
        prop_assert!(cuts.is_empty() || total >= min_gain.max(1));
        for cut in &cuts {
            let original = &texts[cut.item / 2 - 1];
            prop_assert_eq!(&cut.removed, &vec![KEY.removed(original.clone())]);
            prop_assert!(original.chars().count() > max && cut.replacement.text.len() < original.len());
            let newer: u64 = texts[cut.item / 2..].iter().map(|text| tokens.count_text(text)).sum();
            prop_assert!(newer >= protect);
        }
        let body = chat.rewritten(&cuts);
        prop_assert!(serde_json::from_slice::<serde_json::Value>(&body).is_ok());
    }
}
