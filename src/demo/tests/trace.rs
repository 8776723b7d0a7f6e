use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::json;

use super::super::agent::{Outcome, Turn};
use super::super::answer::Usage;
use super::super::client;
use super::super::request::{Api, STEP_HEADER};
use super::*;

fn call(id: &str, arguments: &str) -> Value {
    let function = json!({"name": "execute", "arguments": arguments});
    json!({"role": "assistant", "content": null, "tool_calls": [{"id": id, "type": "function", "function": function}]})
}

fn result(id: &str, content: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": content})
}

fn history() -> Vec<Value> {
    vec![
        json!({"role": "user", "content": "go"}),
        call("a", "{\"content\":\"long long long\"}"),
        result("a", "a long result"),
        call("b", "{}"),
        result("b", "another long result"),
        call("c", "{}"),
        result("c", "x"),
    ]
}

/// A run whose calls carried the first 1, 3, 5 and 7 messages.
fn run() -> Run {
    let turns = [1, 3, 5, 7].map(|messages| Turn {
        request_bytes: 0,
        messages,
        headers: HeaderMap::new(),
        usage: Usage::default(),
        answer: Bytes::new(),
    });
    Run { turns: turns.to_vec(), outcome: Outcome::Finished, history: history().iter().map(Value::to_string).collect() }
}

fn passages(run: &Run, exchanges: &[Exchange]) -> Vec<Passage> {
    super::passages(client::of(Api::Chat), run, exchanges)
}

fn exchange(step: usize, messages: &[Value], verdict: Verdict, prompt: u64) -> Exchange {
    let mut headers = HeaderMap::new();
    headers.insert(STEP_HEADER, step.into());
    Exchange {
        api: Some(Api::Chat),
        dropped: 0,
        told: Default::default(),
        method: Method::POST,
        target: "/v1/chat/completions".to_owned(),
        headers,
        body: Bytes::from(json!({"model": "m", "messages": messages}).to_string()),
        verdict,
        origin: Origin::Agent,
        usage: Usage { prompt, completion: 1, ..Usage::default() },
    }
}

#[test]
fn an_untouched_history_has_no_events() {
    let history = history();
    let exchanges: Vec<Exchange> =
        [1, 3, 5, 7].iter().enumerate().map(|(i, n)| exchange(i, &history[..*n], Verdict::Accepted, 9)).collect();
    let passages = passages(&run(), &exchanges);
    assert_eq!(passages.len(), 4);
    assert!(passages.iter().all(|passage| passage.events.is_empty() && passage.sent == 9));
}

#[test]
fn each_change_is_told_once_by_what_it_is() {
    let history = history();
    let mut evicted = history.clone();
    evicted[2] = result("a", "short");
    let mut later = evicted.clone();
    later[1] = call("a", "{}");
    later[4] = result("b", "cut");
    let summary = json!({"role": "user", "content": "go, and a summary"});
    let summarized = [&[summary][..], &later[3..]].concat();
    let exchanges = [
        exchange(0, &history[..1], Verdict::Accepted, 5),
        exchange(1, &evicted[..3], Verdict::Accepted, 6),
        exchange(2, &evicted[..5], Verdict::Overflow, 9),
        exchange(2, &[&history[..1], &[history[3].clone(), history[4].clone()]].concat(), Verdict::Accepted, 7),
        exchange(3, &summarized, Verdict::Accepted, 8),
    ];
    let events: Vec<Vec<Event>> = passages(&run(), &exchanges).into_iter().map(|passage| passage.events).collect();
    assert_eq!(events[0], []);
    assert_eq!(events[1], [Event::Evicted { tool: "execute".to_owned(), before: 13, after: 5 }]);
    assert_eq!(events[2], [Event::Summarized { calls: 1 }, Event::Recovered { refused: 9, accepted: 7 }]);
    assert_eq!(events[3], [Event::Pruned { results: 1, before: 19, after: 3 }]);
}

#[test]
fn shorter_arguments_are_told() {
    let mut history = history();
    let whole = exchange(0, &history[..1], Verdict::Accepted, 5);
    history[1] = call("a", "{}");
    let passages = passages(&run(), &[whole, exchange(1, &history[..3], Verdict::Accepted, 5)]);
    assert_eq!(passages[1].events, [Event::Truncated { calls: 1, before: 28, after: 2 }]);
}

#[test]
fn side_calls_are_not_the_agents() {
    let own = exchange(0, &history()[..1], Verdict::Accepted, 5);
    let side = Exchange { origin: Origin::SideCall, ..exchange(0, &history()[..1], Verdict::Accepted, 50) };
    assert_eq!(passages(&run(), &[side, own])[0].sent, 5);
}
