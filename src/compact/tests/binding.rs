//! A provider that signs its thinking over the exact bytes it received, and checks every block it gets back.

use std::collections::HashMap;

use proptest::prelude::*;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::rows::{Change, Head, Level, Replacement};
use super::{Checkpoint, leaves_none};
use crate::compact::budget::Window;
use crate::compact::model::strategies;
use crate::compact::model::terms::{Provider, Tells};
use crate::compact::model::turn::Turn;
use crate::compact::model::world::World;
use crate::wire::Dialect;
use crate::wire::memo::Memo;

/// What the client does next.
#[derive(Clone, Debug)]
enum Step {
    /// A message of the user's, of some words.
    Says(usize),
    /// Results of some words, for every call of the last answer; then some more such turns. Behind some of them the
    /// user says something, in a message of its own.
    Works(usize, usize),
    /// Back to an earlier point, in tenths.
    Rewinds(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (1_usize..400).prop_map(Step::Says),
        5 => ((1_usize..900), (1_usize..8)).prop_map(|(words, turns)| Step::Works(words, turns)),
        1 => (5_usize..10).prop_map(Step::Rewinds),
    ];
    prop::collection::vec(step, 4..24)
}

fn words(seed: usize, count: usize) -> String {
    (0..count).map(|n| format!("word{} ", (n * 7 + seed * 13) % 97)).collect()
}

/// The client's history, and what every signature was made over.
#[derive(Default)]
struct Session {
    messages: Vec<String>,
    /// Signature to the messages that went before its own, as the provider saw them.
    signed: HashMap<String, Vec<String>>,
    /// How many calls the last answer makes.
    open: usize,
    clock: usize,
}

impl Session {
    fn body(&self) -> Vec<u8> {
        format!(
            r#"{{"model":"claude-x","max_tokens":100,"system":"be brief","thinking":{{"type":"adaptive"}},"messages":[{}]}}"#,
            self.messages.join(",")
        )
        .into_bytes()
    }

    fn says(&mut self, count: usize) {
        let text = words(self.clock, count);
        let content = if count.is_multiple_of(2) { json!(text) } else { json!([{ "type": "text", "text": text }]) };
        self.messages.push(json!({ "role": "user", "content": content }).to_string());
    }

    /// Back to before a message of the user's.
    fn rewinds(&mut self, tenths: usize) {
        let upto = self.messages.len() * tenths / 10;
        let typed = |message: &String| message.contains(r#""role":"user""#) && !message.contains("tool_result");
        let at = self.messages.iter().take(upto + 1).rposition(typed).unwrap_or(0);
        self.messages.truncate(at);
    }

    fn results(&mut self, count: usize) {
        let blocks: Vec<Value> = (0..self.open)
            .map(|n| {
                let id = format!("toolu_{}_{n}", self.clock);
                json!({ "type": "tool_result", "tool_use_id": id, "content": words(n, count) })
            })
            .collect();
        self.messages.push(json!({ "role": "user", "content": blocks }).to_string());
    }

    /// The provider's answer to what it received.
    fn answer(&mut self, received: &[String], calls: usize) {
        self.clock += 1;
        self.open = calls;
        let mut content = Vec::new();
        if !self.clock.is_multiple_of(5) {
            let signature = format!("sig{}", self.clock);
            self.signed.insert(signature.clone(), received.to_vec());
            let thought = words(self.clock, 60);
            content.push(json!({ "type": "thinking", "thinking": thought, "signature": signature }));
        }
        if calls == 0 || self.clock.is_multiple_of(3) {
            content.push(json!({ "type": "text", "text": words(self.clock, 20) }));
        }
        for n in 0..calls {
            let input = json!({ "path": format!("/f{n}"), "content": words(n, 150) });
            let id = format!("toolu_{}_{n}", self.clock);
            content.push(json!({ "type": "tool_use", "id": id, "name": "write_file", "input": input }));
        }
        self.messages.push(json!({ "role": "assistant", "content": content }).to_string());
    }

    /// Whether all that the provider receives is as it was when it signed; and valid beside that.
    fn verify(&self, received: &[String]) -> Result<(), TestCaseError> {
        let mut open: Vec<String> = Vec::new();
        for (at, message) in received.iter().enumerate() {
            let message: Value = serde_json::from_str(message).unwrap();
            let blocks = message["content"].as_array().cloned().unwrap_or_default();
            prop_assert!(message["content"].is_string() || !blocks.is_empty(), "an empty message");
            let of = |kind: &str, key: &str| -> Vec<String> {
                let found = blocks.iter().filter(|block| block["type"] == kind);
                found.map(|block| block[key].as_str().unwrap().to_owned()).collect()
            };
            prop_assert_eq!(of("tool_result", "tool_use_id"), open, "calls and results part at {}", at);
            open = of("tool_use", "id");
            for signature in of("thinking", "signature") {
                let seen = &self.signed[&signature];
                prop_assert_eq!(&received[..at], &seen[..], "{} is bound to something else", signature);
            }
        }
        let first: Value = serde_json::from_str(&received[0]).unwrap();
        prop_assert_eq!(&first["role"], "user");
        self.verify_loop(received)
    }

    /// Whether no thinking is missing from the tool loop that goes on. Messages of one role are one to the provider.
    fn verify_loop(&self, received: &[String]) -> Result<(), TestCaseError> {
        let messages: Vec<Value> = received.iter().map(|message| serde_json::from_str(message).unwrap()).collect();
        for run in messages.rsplit(|message| message["role"] == "assistant") {
            let blocks = run.iter().filter_map(|message| message["content"].as_array()).flatten();
            if !blocks.into_iter().any(|block| block["type"] == "tool_result") {
                break;
            }
            let answer =
                messages.iter().rev().find(|message| message["role"] == "assistant" && is_before(message, run));
            let Some(blocks) = answer.and_then(|answer| answer["content"].as_array()) else { continue };
            let call = blocks.iter().find(|block| block["type"] == "tool_use").unwrap();
            let clock = call["id"].as_str().unwrap().split('_').nth(1).unwrap();
            let thought = blocks.iter().any(|block| block["type"] == "thinking");
            prop_assert!(
                thought || !self.signed.contains_key(&format!("sig{clock}")),
                "no thinking before {}",
                call["id"]
            );
        }
        Ok(())
    }
}

/// Whether a message stands before those of `run`, both of the same list.
fn is_before(message: &Value, run: &[Value]) -> bool {
    std::ptr::from_ref(message) < run.as_ptr()
}

/// The messages of a body, as they are spelt.
fn received(body: &[u8]) -> Vec<String> {
    #[derive(serde::Deserialize)]
    struct Body<'b> {
        #[serde(borrow)]
        messages: Vec<&'b RawValue>,
    }
    let body: Body = serde_json::from_slice(body).unwrap();
    body.messages.into_iter().map(|raw| raw.get().to_owned()).collect()
}

fn world(choice: usize, window: u64, told: Tells) -> World {
    let known = (told == Tells::Nothing).then(|| Window::new(Some(window), None).unwrap());
    let mut world = World::new(strategies(choice), known, Provider { limit: window, factor: 1.0, tells: told });
    world.dialect = Some(Dialect::Messages);
    world
}

/// One request and its answer.
fn exchange(session: &mut Session, world: &mut World, calls: usize) -> Result<Turn, TestCaseError> {
    let turn = world.turn(session.body());
    let sent = received(&turn.out);
    session.verify(&sent)?;
    if turn.accepted {
        session.answer(&sent, calls);
    }
    Ok(turn)
}

fn run(steps: &[Step], choice: usize, window: u64, told: Tells) -> Result<Vec<&'static str>, TestCaseError> {
    let (mut session, mut world) = (Session::default(), world(choice, window, told));
    let mut ways = Vec::new();
    session.says(30);
    ways.extend(exchange(&mut session, &mut world, 0)?.ways());
    for step in steps {
        let turns = match step {
            Step::Says(count) => {
                session.says(*count);
                vec![(0, 0)]
            }
            Step::Works(count, turns) => {
                session.says(20);
                (0..*turns).map(|n| (if n + 1 == *turns { 0 } else { 1 + n % 3 }, *count)).collect()
            }
            Step::Rewinds(tenths) => {
                session.rewinds(*tenths);
                session.says(25);
                vec![(0, 0)]
            }
        };
        for (calls, count) in turns {
            let turn = exchange(&mut session, &mut world, calls)?;
            ways.extend(turn.ways());
            if !turn.accepted {
                return Ok(ways);
            }
            if calls > 0 {
                session.results(count);
                if count % 4 == calls {
                    session.says(15);
                }
            }
        }
    }
    Ok(ways)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// For all histories with signed thinking, settings and windows: no block that is sent has anything
    /// before it that was different when it was made.
    #[test]
    fn nothing_changes_before_a_signed_block_that_stays(
        steps in steps(),
        choice in 0_usize..64,
        window in 3_000_u64..30_000,
        numbers in any::<bool>(),
    ) {
        run(&steps, choice, window, if numbers { Tells::Numbers } else { Tells::Nothing })?;
    }
}

/// What the user says behind results is merged with them: the loop goes on.
#[test]
fn a_message_behind_results_begins_no_turn() {
    let said = |text: &str| json!({ "role": "user", "content": text });
    let call = json!({ "role": "assistant", "content": [{ "type": "tool_use", "id": "a", "name": "f", "input": {} }] });
    let result = json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "a", "content": "r" }] });
    let answer = json!({ "role": "assistant", "content": "b" });
    let messages = [said("x"), said("y"), call, result, said("also"), answer, said("z")];
    let body = json!({ "model": "m", "messages": messages }).to_string();
    let conversation = crate::wire::read(Dialect::Messages, body.as_bytes(), &Memo::new(0), [0; 16]).unwrap();
    let turns: Vec<_> = (0..=8).map(|upto| conversation.turn(upto)).collect();
    assert_eq!(turns, [None, Some(0), Some(1), Some(1), Some(1), Some(1), Some(1), Some(6), Some(6)]);
}

/// Tools may be added where no signed block is sent.
#[test]
fn a_cut_leaves_no_signed_block_only_where_it_begins_before_the_first() {
    let said = |text: &str| json!({"role": "user", "content": text});
    let thought = json!([{"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "text", "text": "a"}]);
    let thought = json!({"role": "assistant", "content": thought});
    let messages = [said("x"), thought.clone(), said("y"), said("z"), thought, said("q"), said("r")];
    let body = json!({"model": "m", "messages": messages}).to_string();
    let conversation = crate::wire::read(Dialect::Messages, body.as_bytes(), &Memo::new(0), [0; 16]).unwrap();
    let cut = |covers: usize, upto: Option<usize>, edited: &[usize]| {
        let head = upto.map(|upto| Head { upto, text: String::new(), ..Head::default() });
        let edits = edited.iter().map(|item| (*item, Replacement { slot: 0, text: "".into() })).collect();
        leaves_none(&conversation, &Checkpoint { level: Level::Trim, covers, head, edits, tokens: Change::default() })
    };
    assert!(cut(7, Some(7), &[]), "all is replaced");
    assert!(cut(7, None, &[0]), "all thinking is left out");
    assert!(!cut(7, None, &[2]), "what stands before the first change stays");
    assert!(!cut(4, Some(3), &[]), "what follows the history that it speaks for stays");
    assert!(cut(6, Some(3), &[]), "the rest belongs to a turn that is over");
}

/// The ways of the property are taken: it would hold for a proxy that does nothing.
#[test]
fn the_property_meets_every_kind_of_cut() {
    let works = |turns| vec![Step::Works(300, turns), Step::Says(50)];
    let many: Vec<Step> = (0..12).flat_map(|n| works(2 + n % 6)).collect();
    let mut ways = run(&many, 16, 9_000, Tells::Nothing).unwrap();
    ways.extend(run(&many, 0, 14_000, Tells::Nothing).unwrap());
    ways.extend(run(&vec![Step::Works(10, 3); 40], 7, 9_000, Tells::Nothing).unwrap());
    ways.extend(run(&[Step::Works(500, 60)], 0, 16_000, Tells::Nothing).unwrap());
    ways.extend(run(&[Step::Works(500, 60)], 0, 16_000, Tells::Numbers).unwrap());
    for way in ["truncated", "summarized", "folded", "recovered", "checkpoint"] {
        assert!(ways.contains(&way), "{way}");
    }
}
