//! Reading through a memory equals reading afresh, and nothing makes the reader panic.

use proptest::prelude::*;
use serde_json::value::RawValue;

use super::bodies::{Client, Style, client, session};
use crate::wire::Dialect;
use crate::wire::memo::{Memo, Salt};
use crate::wire::{glance, read, read_known};

const SALT: Salt = [7; 16];

/// Reads through `memo` and afresh; both must be the same.
fn check(dialect: Dialect, body: &[u8], memo: &Memo) -> Result<(), TestCaseError> {
    let fresh = read(dialect, body, &Memo::new(0), SALT);
    prop_assert_eq!(&read(dialect, body, memo, SALT), &fresh);
    if fresh.is_ok() {
        prop_assert!(serde_json::from_slice::<&RawValue>(body).is_ok());
    }
    Ok(())
}

/// A change of some bytes.
type Mutation = (prop::sample::Index, u8, u8);

fn mutate(body: &mut Vec<u8>, (at, how, byte): &Mutation) {
    let at = at.index(body.len().max(1)).min(body.len());
    match how % 4 {
        0 => body.truncate(at),
        1 => body.insert(at, *byte),
        2 => drop(body.splice(at..(at + 1).min(body.len()), [])),
        _ => drop(body.splice(at..(at + 1).min(body.len()), *b"\"")),
    }
}

fn chain(client: &Client) -> Vec<[u8; 32]> {
    read(client.dialect, client.body().as_bytes(), &Memo::new(0), SALT).unwrap().chain().copied().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// For all histories of requests (turns, edits, rewinds, clocks, other spelling and member order, system
    /// messages that come and go), with a memory that has room and one that hardly has any.
    #[test]
    fn a_memory_changes_nothing((mut client, steps) in session()) {
        let (roomy, tight) = (Memo::new(8 << 20), Memo::new(100 << 10));
        check(client.dialect, client.body().as_bytes(), &roomy)?;
        for step in steps {
            client.take(step);
            for memo in [&roomy, &roomy, &tight] {
                check(client.dialect, client.body().as_bytes(), memo)?;
            }
        }
    }

    /// For all valid bodies with some bytes changed, after the valid one was read.
    #[test]
    fn broken_bodies_neither_panic_nor_profit(
        client in client(),
        mutations in prop::collection::vec(any::<Mutation>(), 1..4),
    ) {
        let memo = Memo::new(8 << 20);
        let mut body = client.body().into_bytes();
        check(client.dialect, &body, &memo)?;
        for mutation in &mutations {
            mutate(&mut body, mutation);
            check(client.dialect, &body, &memo)?;
        }
    }

    /// For all bytes, and all texts made of JSON's own characters.
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), json in "[{}\\[\\]\",:a0 \\\\]{0,40}") {
        let memo = Memo::new(1 << 20);
        for dialect in [Dialect::Chat, Dialect::Responses] {
            let array = dialect.array();
            check(dialect, &bytes, &memo)?;
            check(dialect, json.as_bytes(), &memo)?;
            check(dialect, format!(r#"{{"{array}":{json}}}"#).as_bytes(), &memo)?;
            check(dialect, format!(r#"{{"{array}":[{json}]}}"#).as_bytes(), &memo)?;
            check(dialect, format!(r#"{{"{array}":[{{"role":"user","content":{json}}}]}}"#).as_bytes(), &memo)?;
            check(dialect, format!(r#"{{"{array}":[{{"type":"x_output","output":{json}}}]}}"#).as_bytes(), &memo)?;
        }
    }

    /// For all conversations: the chain depends on neither spelling, order of members, tools nor clock.
    #[test]
    fn the_chain_is_that_of_the_history(client in client()) {
        // A system message that comes first is the lead's, with a clock before it or without.
        let mut other = Client { turn: 3, clock: client.clock + 1, tools: serde_json::json!([]), ..client.clone() };
        for style in [Style::Compact, Style::Spaced, Style::Reversed] {
            other.style = style;
            prop_assert_eq!(chain(&client), chain(&other));
        }
    }
}

/// The longest prefix that `memo` finds known, in items and bytes: by what it does not read again.
fn known(body: &str, memo: &Memo) -> usize {
    let memory = memo.of(SALT, crate::wire::Dialect::Chat);
    memory
        .opening(body.as_bytes())
        .map_or(0, |opening| memory.run(&body.as_bytes()[opening.end..], opening.end).items.len())
}

fn long_body(clock: &str, last: &str) -> String {
    let text = "x".repeat(2_000);
    let turn = format!(r#"{{"role":"user","content":"{text}"}},{{"role":"assistant","content":"{text}"}},"#);
    let system = format!(r#"{{"role":"system","content":"{clock}{text}"}}"#);
    format!(r#"{{"messages":[{system},{}{{"role":"user","content":"{last}"}}],"model":"m"}}"#, turn.repeat(20))
}

#[test]
fn what_was_read_is_known_and_what_was_not_is_not() {
    let memo = Memo::new(8 << 20);
    let first = long_body("", "one");
    assert_eq!(known(&first, &memo), 0);
    read(Dialect::Chat, first.as_bytes(), &memo, SALT).unwrap();
    assert_eq!(known(&first, &memo), 41);
    // The last message is another: all before it are known.
    let other = long_body("", "two");
    assert_eq!(known(&other, &memo), 40);
    // So is the one before it: all but the trailing items are known.
    let (before, answer) = other.split_at(other.rfind("assistant").unwrap());
    assert_eq!(known(&format!("{before}{}", answer.replacen('x', "y", 1)), &memo), 37);
    // Nothing of one tenant is known to another.
    let other = memo.of([8; 16], crate::wire::Dialect::Chat);
    assert!(other.opening(first.as_bytes()).is_none());
}

#[test]
fn the_same_beginning_may_go_on_otherwise() {
    let memo = Memo::new(8 << 20);
    let body = |messages: &str| format!(r#"{{"x":"{}","messages":[{messages}]}}"#, "x".repeat(2_000));
    let user = r#"{"role":"user","content":"u"}"#;
    let system = r#"{"role":"system","content":"s"}"#;
    for messages in
        [user.into(), String::new(), format!("{system},{user}"), system.into(), format!(" {user}"), "{}".into()]
    {
        for _ in 0..2 {
            check(Dialect::Chat, body(&messages).as_bytes(), &memo).unwrap();
        }
    }
}

#[test]
fn a_clock_in_the_system_prompt_costs_the_opening_only() {
    let memo = Memo::new(8 << 20);
    read(Dialect::Chat, long_body("12:01", "one").as_bytes(), &memo, SALT).unwrap();
    let later = long_body("12:02", "one");
    assert_eq!(known(&later, &memo), 0);
    let items = later.find(r#"{"role":"user""#).unwrap();
    let memory = memo.of(SALT, crate::wire::Dialect::Chat);
    assert_eq!(memory.run(&later.as_bytes()[items..], items).items.len(), 41);
}

#[test]
fn facts_are_shared_between_requests() {
    let memo = Memo::new(8 << 20);
    let (first, second) = (long_body("12:01", "one"), long_body("12:02", "two"));
    let (first, second) = (
        read(Dialect::Chat, first.as_bytes(), &memo, SALT).unwrap(),
        read(Dialect::Chat, second.as_bytes(), &memo, SALT).unwrap(),
    );
    first.items[0].facts.tokens.set(42).unwrap();
    assert_eq!(second.items[0].facts.tokens.get(), Some(&42));
}

#[test]
fn threads_share_a_memory() {
    let memo = Memo::new(1 << 20);
    let bodies: Vec<_> = (0..40).map(|n| long_body("", &"y".repeat(n * 200))).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| bodies.iter().for_each(|body| check(Dialect::Chat, body.as_bytes(), &memo).unwrap()));
        }
    });
}

/// Bodies that begin with `opening` and go on with a megabyte in all, of which only the last message differs.
fn long(opening: &str, last: usize) -> String {
    let turn = format!(r#"{{"role":"user","content":"{}"}},"#, "a".repeat(10_000));
    format!(r#"{opening}{}{{"role":"user","content":"{last}"}}]}}"#, turn.repeat(100))
}

/// What is known of a long body is found on the event loop, however short or changeable its opening.
#[test]
fn a_known_history_behind_any_opening_needs_no_other_thread() {
    let clock = |n: usize| format!(r#"{{"messages":[{{"role":"system","content":"{n}{}"}},"#, "b".repeat(2_000));
    for opening in [|_| r#"{"messages":["#.to_owned(), clock] {
        let memo = Memo::new(8 << 20);
        let inline = |body: &str| read_known(Dialect::Chat, body.as_bytes(), &memo, SALT, 64 << 10).is_some();
        let (first, second) = (long(&opening(1), 1), long(&opening(2), 2));
        assert!(!inline(&first), "new");
        read(Dialect::Chat, first.as_bytes(), &memo, SALT).unwrap();
        assert!(inline(&second), "known but for its last message");
        let through = read_known(Dialect::Chat, second.as_bytes(), &memo, SALT, 64 << 10).unwrap();
        assert_eq!(through, read(Dialect::Chat, second.as_bytes(), &Memo::new(0), SALT).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// For all bodies: what is read beside the conversation is what reading the whole gives.
    #[test]
    fn fields_alone_are_those_of_the_whole((mut client, steps) in session()) {
        for step in steps {
            client.take(step);
            let body = client.body();
            let whole = read(client.dialect, body.as_bytes(), &Memo::new(0), SALT).unwrap();
            let alone = glance(client.dialect, body.as_bytes()).unwrap().fields;
            prop_assert_eq!(&alone.model, &whole.fields.model);
            prop_assert_eq!(alone.most_output(), whole.max_output());
        }
    }
}
