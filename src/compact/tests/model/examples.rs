//! Plain examples beside the properties, and what known history must not cost.

use super::history::{Agent, Kind, Manner, Message};
use super::laws::{read, remembered};
use super::steps::{CallSpec, Shape, Step, Words};
use super::terms::{Provider, Tells};
use super::turn::Turn;
use super::world::World;
use super::{Window, strategies};
use crate::compact::Known;
use crate::compact::budget::Budget;
use crate::compact::plan::{Need, Proposal, Situation, plan};
use crate::compact::rows::TextKey;
use crate::compact::tokens::{COUNTED, Tokens};
use crate::config::Strategies;
use crate::wire::Conversation;
use crate::wire::conversation::DECODED;

const ENDLESS: Provider = Provider { limit: u64::MAX, factor: 1.0, tells: Tells::Numbers };
/// Only compaction on, only by messages: 30 and 10.
const BY_MESSAGES: usize = 1 | 2 | 4 | 32;

fn call(arguments: usize, result: usize) -> Step {
    let shape = |chars| Shape { form: 3, chars };
    let (arguments, result) = (shape(arguments), shape(result));
    Step::Tools(vec![CallSpec { tool: 0, family: 11, arguments, result, reused: false }])
}

/// Plays steps and gives every turn to `look`.
fn play(world: &mut World, steps: &[Step], mut look: impl FnMut(&Turn, &[Message])) {
    let mut agent = Agent::new(0, Kind::Tools, Manner::default());
    for (clock, step) in steps.iter().enumerate() {
        let messages = agent.step(step);
        let turn = world.turn(agent.body(&messages, clock));
        look(&turn, &messages);
    }
}

#[test]
fn thirty_messages_become_a_summary_and_the_last_ten() {
    let mut world = World::new(strategies(BY_MESSAGES), None, ENDLESS);
    let steps: Vec<Step> = (0..60).map(|_| call(20, 40)).collect();
    let mut activations = Vec::new();
    play(&mut world, &steps, |turn, messages| {
        let sent = read(&turn.out).items.len();
        assert!(sent <= 31, "{sent} messages were sent");
        if turn.known.active != turn.before.active {
            activations.push(messages.len());
            // The request that reached 30, as system prompt, summary, and the last 10 rounded up to a group.
            assert!((11..=12).contains(&sent), "{sent}");
            assert!(turn.proposal.actions.summarized);
        }
    });
    // 31 messages at first; then one for the summary and 10 to 11 kept, so about 20 more each time.
    assert_eq!(activations, [31, 51, 71, 91, 111]);
}

#[test]
fn a_history_that_comes_long_is_summarized_once_the_summary_is_there() {
    let mut world = World::new(strategies(BY_MESSAGES), None, ENDLESS);
    world.delay = 0;
    let mut agent = Agent::new(0, Kind::Tools, Manner::default());
    (0..30).for_each(|_| drop(agent.step(&call(20, 40))));
    let messages = agent.messages.clone();
    let first = world.turn(agent.body(&messages, 1));
    assert!(matches!(first.proposal.summary, Need::Late { .. }), "{:?}", first.proposal.summary);
    assert_eq!(first.out, first.raw);
    let second = world.turn(agent.body(&messages, 2));
    assert_eq!(read(&second.out).items.len(), 11);
}

/// What a summary says depends on what it replaces alone: where the client goes back behind a later list, the one
/// before it is the latest.
#[test]
fn a_list_in_the_replaced_part_is_kept_though_a_later_one_was_known() {
    let mut world = World::new(strategies(BY_MESSAGES), None, ENDLESS);
    let calls = |count: usize| (0..count).map(|_| call(20, 40));
    let steps = [Step::Todo].into_iter().chain(calls(10)).chain([Step::Todo]).chain(calls(4)).chain([Step::Peek(5)]);
    let steps: Vec<Step> = steps.collect();
    let mut summarized = 0;
    play(&mut world, &steps, |turn, messages| {
        remembered(turn, messages);
        summarized = turn.known.active.as_ref().map_or(0, |active| active.summarized());
    });
    assert!((3..23).contains(&summarized), "{summarized}");
}

/// What stays before the head takes its room from the tail: the target is met, and so the next summary is far.
#[test]
fn the_tail_leaves_room_for_what_stays_before_the_head() {
    let limit = 8_000;
    let mut world = World::new(strategies(1 | 2 | 4), Window::new(Some(limit), None), Provider { limit, ..ENDLESS });
    let mut agent = Agent::new(0, Kind::Items, Manner::default());
    let of = |family, result: usize| {
        let shape = |chars| Shape { form: 4, chars };
        Step::Tools(vec![CallSpec { tool: 0, family, arguments: shape(20), result: shape(result), reused: false }])
    };
    let (mut activations, mut stays) = (Vec::new(), 0);
    for n in 0..90 {
        let step = if n % 4 == 0 && n < 12 { of(6, 300) } else { of(11, 700) };
        let messages = agent.step(&step);
        let turn = world.turn(agent.body(&messages, n));
        assert!(turn.accepted && turn.recovery.is_none(), "turn {n}");
        if turn.known.active != turn.before.active {
            let target = turn.budget.target().unwrap();
            assert!(turn.load.tokens <= target, "turn {n}: {} above {target}", turn.load.tokens);
            activations.push(n);
        }
        let kept = messages.iter().filter(|message| message.json.contains("tool_search_output"));
        stays = kept.map(|message| Tokens::default().count_text(&message.json)).sum();
    }
    assert!(stays > 300, "{stays}");
    assert!(activations.len() > 2, "{activations:?}");
    assert!(activations.windows(2).all(|pair| pair[1] - pair[0] >= 5), "{activations:?}");
}

#[test]
fn what_arguments_give_back_saves_summaries() {
    let window = Window::new(Some(16_000), None);
    let side_calls = |choice: usize| {
        let mut world = World::new(strategies(choice), window, Provider { limit: 16_000, ..ENDLESS });
        let steps: Vec<Step> = (0..60).map(|_| call(2_500, 100)).collect();
        play(&mut world, &steps, |turn, _| assert!(turn.accepted && turn.recovery.is_none()));
        world.side_calls
    };
    let (with, without) = (side_calls(0), side_calls(2));
    assert!(with < without, "{with} summaries with truncation, {without} without");
}

#[test]
fn every_section_that_is_off_contributes_no_edit() {
    let steps: Vec<Step> = (0..24)
        .map(|i| if i % 5 == 4 { Step::Say(Words::Rule) } else { call(1_200, if i % 3 == 0 { 8_000 } else { 1_500 }) })
        .collect();
    for choice in 0..16 {
        let on = strategies(choice);
        let limit = if on.compaction.is_some() { 12_000 } else { u64::MAX };
        let mut world = World::new(on.clone(), Window::new(Some(12_000), None), Provider { limit, ..ENDLESS });
        let mut done = [false; 4];
        play(&mut world, &steps, |turn, _| {
            let actions = turn.proposal.actions;
            done[0] |= turn.rendering.evicted;
            done[1] |= actions.truncated;
            done[2] |= actions.pruned;
            done[3] |= actions.summarized || turn.known.active.as_ref().is_some_and(|active| active.head.is_some());
            if choice == 15 {
                assert_eq!(turn.out, turn.raw);
            }
        });
        let Strategies { eviction, truncate, prune, compaction, .. } = on;
        assert!(eviction.is_some() || !done[0], "{choice}");
        assert!(truncate.is_some() || !done[1], "{choice}");
        assert!(prune.is_some() || !done[2], "{choice}");
        assert!(compaction.is_some() || !done[3], "{choice}");
        // Each on its own does what it is for.
        assert!(eviction.is_none() || done[0], "{choice}");
        if [13, 11, 7].contains(&choice) {
            assert!(done.iter().filter(|done| **done).count() == 1, "{choice}: {done:?}");
        }
    }
}

/// A megabyte that is known, with evictions and a trim in place, is planned without a look at any text.
#[test]
fn known_history_is_neither_decoded_nor_counted() {
    let window = Window::new(Some(1_000_000), None);
    for (choice, trimmed) in [(0, true), (2 | 4, false)] {
        let mut world = World::new(strategies(choice), window, ENDLESS);
        let mut agent = Agent::new(0, Kind::Tools, Manner::default());
        (0..150).for_each(|i| drop(agent.step(&call(2_000, if i % 7 == 0 { 9_000 } else { 4_500 }))));
        let messages = agent.messages.clone();
        for clock in 0..2 {
            world.turn(agent.body(&messages, clock));
        }
        agent.step(&call(20, 100));
        let last = world.turn(agent.body(&agent.messages, 3));
        assert!(last.raw.len() > 800_000 && !last.known.evictions.is_empty());
        assert_eq!(last.known.active.is_some(), trimmed);

        let conversation = world.read(&last.raw);
        let known = world.store.known(&conversation);
        let (decoded, counted) = (DECODED.get(), COUNTED.get());
        let proposal = planned(&conversation, &known, &world.strategies, window);
        assert_eq!((DECODED.get() - decoded, COUNTED.get() - counted), (0, 0), "{choice}");
        assert!(proposal.tokens.is_some_and(|tokens| tokens.after > 50_000 && tokens.after < tokens.before));
        assert!(proposal.checkpoint.is_none() && proposal.evictions.is_empty());
    }
}

/// Of a batch that went whole every large result stays whole, also where the client goes on from another end.
#[test]
fn what_went_whole_before_the_last_item_stays_whole() {
    let mut world = World::new(strategies(8), None, ENDLESS);
    let mut agent = Agent::new(0, Kind::Tools, Manner::default());
    let spec = |result| CallSpec {
        tool: 0,
        family: 11,
        arguments: Shape { form: 3, chars: 20 },
        result: Shape { form: 3, chars: result },
        reused: false,
    };
    let sent = agent.step(&Step::Tools(vec![spec(21_000), spec(40)]));
    let mut other = sent.clone();
    let mut last: serde_json::Value = serde_json::from_str(&other.last().unwrap().json).unwrap();
    last["content"] = "another result".into();
    other.last_mut().unwrap().json = last.to_string();
    world.store.lost = 1;
    for (clock, messages) in [&sent, &other, &sent].into_iter().enumerate() {
        let turn = world.turn(agent.body(messages, clock));
        assert!(turn.out == turn.raw, "turn {clock}");
    }
    let fresh = World::new(strategies(8), None, ENDLESS).turn(agent.body(&sent, 9));
    assert!(fresh.out.len() < fresh.raw.len() / 2, "it would be evicted otherwise");
}

fn planned(conversation: &Conversation, known: &Known, strategies: &Strategies, window: Option<Window>) -> Proposal {
    plan(&Situation {
        conversation,
        known,
        strategies,
        budget: &Budget::new(strategies, window, None),
        calibration: 1.0,
        key: &TextKey([3; 32]),
        tokens: &Tokens::default(),
        ways: Default::default(),
    })
}
