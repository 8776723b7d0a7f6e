//! Nothing comes later because tools are offered: what the upstream has sent the client has, before the upstream sends
//! any more. Causal order alone: the upstream sends an event when it is let to, and is let to when the client has the last.

use compactproxy::demo::script::Gate;
use http::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::support::chat::{attempts, pair};
use crate::support::recall::EVICTION;
use crate::support::wire::patiently;

use super::*;

/// A stream in the reading.
struct Reader {
    answer: Response<Incoming>,
    seen: String,
}

impl Reader {
    /// Reads until `there` says that it is there.
    async fn until(&mut self, what: &str, there: impl Fn(&str) -> bool) {
        while !there(&self.seen) {
            let frame = patiently(what, self.answer.body_mut().frame()).await;
            let frame = frame.unwrap_or_else(|| panic!("ended before {what}: {}", self.seen)).unwrap();
            self.seen += std::str::from_utf8(&frame.into_data().unwrap()).unwrap();
        }
    }
}

fn whole_events(seen: &str) -> usize {
    seen.matches("\n\n").count()
}

fn paced(gate: &Gate, text: &str, calls: Vec<ToolCall>) -> Reply {
    Reply::Say(Answer { pace: Some(gate.clone()), text: Some(text.to_owned()), calls, ..Answer::default() })
}

/// The ways in which a request may be sent: without tools, and with one offered.
fn both() -> [String; 2] {
    [EVICTION.to_owned(), sections("")]
}

fn streams() -> impl Iterator<Item = Cell> {
    cells().filter(|cell| cell.stream)
}

async fn asks(cell: Cell, proxy: &Served, name: &str) -> Reader {
    let answer = cell.dialect.send(proxy.proxy_addr, "k", &cell.asked(name)).await;
    Reader { answer, seen: String::new() }
}

/// A text, and then the client's own call: event for event, the last of them aside, which end the answer.
#[tokio::test]
async fn no_event_waits_for_the_next() {
    for cell in streams() {
        let mut counts = Vec::new();
        for sections in both() {
            let gate = Gate::new();
            let pace = gate.clone();
            let steps = vec![step(move |_| paced(&pace, "One. ", vec![clients(7)]))];
            let (provider, proxy) = pair(scripted(steps), &sections).await;
            gate.permit(1);
            let mut reader = asks(cell, &proxy, "pace").await;
            let mut given = 1;
            reader.until("the first event", |seen| whole_events(seen) >= 1).await;
            // Up to the call's arguments, which are in one event.
            while !reader.seen.contains("\\\"command\\\"") {
                gate.permit(1);
                given += 1;
                reader.until("the next event", |seen| whole_events(seen) >= given).await;
            }
            assert!(reader.seen.contains("One. ") && given > cell.dialect.openings() + 1);
            counts.push(given);
            gate.open();
            patiently("the rest", reader.answer.into_body().collect()).await.unwrap();
            assert_eq!(attempts(&provider).len(), 1);
            assert_unhurt(&provider);
        }
        assert_eq!(counts[0], counts[1], "{cell:?}: with tools as without");
    }
}

/// The upstream sends no more than its first delta, and the client has it.
#[tokio::test]
async fn the_first_delta_is_there_before_a_second_one_is_sent() {
    for cell in streams() {
        for sections in both() {
            let gate = Gate::new();
            let pace = gate.clone();
            let steps = vec![step(move |_| paced(&pace, &"first second ".repeat(20), vec![]))];
            let (provider, proxy) = pair(scripted(steps), &sections).await;
            gate.permit(cell.dialect.openings() + 1);
            let mut reader = asks(cell, &proxy, "delta").await;
            reader.until("the first delta", |seen| seen.contains("first")).await;
            assert_eq!(whole_events(&reader.seen), cell.dialect.openings() + 1, "{cell:?}");
            gate.open();
            patiently("the rest", reader.answer.into_body().collect()).await.unwrap();
            assert_unhurt(&provider);
        }
    }
}

/// The proxy's own call has begun, and is not whole: the text before it is with the client, and of the call nothing.
#[tokio::test]
async fn text_before_an_own_call_does_not_wait_for_it() {
    for cell in streams() {
        let gate = Gate::new();
        let pace = gate.clone();
        let steps = vec![
            step(move |request| paced(&pace, "At once. ", vec![own(request, 1)])),
            step(|request| says(if told(request) { "Later." } else { "?" }, vec![])),
        ];
        let (provider, proxy) = staged(steps, "").await;
        // The text's delta and end, and the beginning of the call.
        gate.permit(cell.dialect.openings() + 4);
        let mut reader = asks(cell, &proxy, "begun").await;
        reader.until("the text", |seen| seen.contains("At once. ")).await;
        assert!(!reader.seen.contains("own_1") && !reader.seen.contains("read_evicted"), "{}", reader.seen);
        assert_eq!(attempts(&provider).len(), 1);
        gate.open();
        reader.until("the second round's text", |seen| seen.contains("Later.")).await;
        assert_unhurt(&provider);
    }
}

/// The second round has not begun to answer: the text before it is with the client.
#[tokio::test]
async fn text_comes_before_the_tool_is_run() {
    for cell in streams() {
        let gate = Gate::new();
        let late = gate.clone();
        let steps = vec![
            step(|request| says("At once. ", vec![own(request, 1)])),
            step(move |_| Reply::Late(late.clone(), Answer::text("Later."))),
        ];
        let (provider, proxy) = staged(steps, "").await;
        let mut reader = asks(cell, &proxy, "at once").await;
        reader.until("the text", |seen| seen.contains("At once. ")).await;
        gate.open();
        reader.until("the rest", |seen| seen.contains("Later.")).await;
        assert_unhurt(&provider);
    }
}

/// The same of a later round: its first delta is with the client before it sends the next.
#[tokio::test]
async fn the_first_delta_of_a_later_round_does_not_wait() {
    for cell in streams() {
        let gate = Gate::new();
        let pace = gate.clone();
        let steps = vec![
            step(|request| says("Look. ", vec![own(request, 1)])),
            step(move |_| paced(&pace, &"first second ".repeat(20), vec![])),
        ];
        let (provider, proxy) = staged(steps, "").await;
        gate.permit(cell.dialect.openings() + 1);
        let mut reader = asks(cell, &proxy, "later").await;
        reader.until("the first delta", |seen| seen.contains("first")).await;
        gate.open();
        patiently("the rest", reader.answer.into_body().collect()).await.unwrap();
        assert_unhurt(&provider);
    }
}

fn pondering(gate: &Gate, thought: &str, text: &str, calls: Vec<ToolCall>) -> Reply {
    let Reply::Say(answer) = thinks(thought, text, calls) else { unreachable!() };
    Reply::Say(Answer { pace: Some(gate.clone()), ..answer })
}

async fn ponders(cell: Cell, proxy: &Served, name: &str) -> Reader {
    let answer = cell.dialect.send(proxy.proxy_addr, "k", &cell.thinking(name)).await;
    Reader { answer, seen: String::new() }
}

/// More than one delta of thoughts.
fn thoughts() -> String {
    format!("early {}late", "and then ".repeat(20))
}

/// Thoughts, text, and the client's own call: event for event, with a tool as without.
#[tokio::test]
async fn no_event_of_thinking_waits_for_the_next() {
    for cell in streams() {
        let mut counts = Vec::new();
        for sections in both() {
            let gate = Gate::new();
            let pace = gate.clone();
            let steps = vec![step(move |_| pondering(&pace, &thoughts(), "One. ", vec![clients(7)]))];
            let (provider, proxy) = pair(scripted(steps), &sections).await;
            gate.permit(1);
            let mut reader = ponders(cell, &proxy, "pace").await;
            let (mut given, mut places) = (1, Vec::new());
            reader.until("the first event", |seen| whole_events(seen) >= 1).await;
            for mark in ["early", "late", "One. ", "\\\"command\\\""] {
                while !reader.seen.contains(mark) {
                    gate.permit(1);
                    given += 1;
                    reader.until("the next event", |seen| whole_events(seen) >= given).await;
                }
                places.push(given);
            }
            assert!(places[1] > places[0], "{cell:?}: in several deltas: {places:?}");
            counts.push(places);
            gate.open();
            patiently("the rest", reader.answer.into_body().collect()).await.unwrap();
            assert_eq!(attempts(&provider).len(), 1);
            assert_unhurt(&provider);
        }
        assert_eq!(counts[0], counts[1], "{cell:?}: with tools as without");
    }
}

/// In each round thoughts are with the client while no more than their first delta was sent, and before the tool is run.
#[tokio::test]
async fn thinking_flows_in_every_round_before_an_own_call_and_after() {
    for cell in streams() {
        let [first, second] = [Gate::new(), Gate::new()];
        let (one, two) = (first.clone(), second.clone());
        let steps = vec![
            step(move |request| pondering(&one, &thoughts(), "", vec![own(request, 1)])),
            step(move |_| pondering(&two, &format!("again {}", thoughts()), "Found.", vec![])),
        ];
        let (provider, proxy) = staged(steps, "").await;
        let mut reader = ponders(cell, &proxy, "rounds").await;
        let mut given = 0;
        while !reader.seen.contains("early") {
            given += 1;
            first.permit(1);
            reader.until("the next event", |seen| whole_events(seen) >= given).await;
        }
        assert!(!reader.seen.contains("late") && attempts(&provider).len() == 1, "{cell:?}");
        first.open();
        reader.until("all thoughts of the first round", |seen| seen.contains("late")).await;
        // As many events as before it in the first round, some of which only an answer's beginning has.
        second.permit(given);
        reader.until("the first thought of the second round", |seen| seen.contains("again")).await;
        let (_, behind) = reader.seen.split_once("again").unwrap();
        assert!(!behind.contains("late") && !reader.seen.contains("Found."), "{cell:?} {behind}");
        second.open();
        reader.until("the answer", |seen| seen.contains("Found.")).await;
        patiently("the rest", reader.answer.into_body().collect()).await.unwrap();
        assert_eq!(attempts(&provider).len(), 2);
        assert_unhurt(&provider);
    }
}

/// A refusal is said in deltas of its own: they do not wait for the reason with which it ends.
#[tokio::test]
async fn the_first_delta_of_a_refusal_does_not_wait_in_a_later_round() {
    for cell in streams() {
        let gate = Gate::new();
        let pace = gate.clone();
        let refusal = Answer { refusal: Some("first second ".repeat(20)), pace: Some(pace), ..Answer::default() };
        let steps =
            vec![step(|request| says("Look. ", vec![own(request, 1)])), step(move |_| Reply::Say(refusal.clone()))];
        let (provider, proxy) = staged(steps, "").await;
        gate.permit(cell.dialect.openings() + 1);
        let mut reader = asks(cell, &proxy, "refusal").await;
        reader.until("the first delta", |seen| seen.contains("first")).await;
        gate.open();
        patiently("the rest", reader.answer.into_body().collect()).await.unwrap();
        assert_eq!(attempts(&provider).len(), 2);
        assert_unhurt(&provider);
    }
}

/// What the model declined is shown: no other answer follows it, and no error takes it for nothing.
#[tokio::test]
async fn a_refusal_that_was_shown_stays_where_a_later_round_fails() {
    for cell in streams() {
        let steps = vec![
            step(|request| {
                let refusal = Some("I will not. ".to_owned());
                Reply::Say(Answer {
                    refusal,
                    finish: finish(request),
                    calls: vec![own(request, 1)],
                    ..Answer::default()
                })
            }),
            step(move |_| cell.dialect.broken("out of order")),
            step(|_| says("Without.", vec![])),
        ];
        let (provider, proxy) = staged(steps, "").await;
        let mut reader = asks(cell, &proxy, "declined").await;
        reader.until("the refusal", |seen| seen.contains("I will not. ")).await;
        let rest = patiently("the rest", reader.answer.into_body().collect()).await.unwrap().to_bytes();
        let all = reader.seen + std::str::from_utf8(&rest).unwrap();
        assert!(!all.contains("Without.") && !all.contains("out of order"), "{cell:?} {all}");
        assert_eq!(attempts(&provider).len(), 2, "{cell:?}");
        assert_eq!(provider.violations(), []);
    }
}

/// The reason for which a turn ends that calls tools.
fn finish(request: &ModelRequest) -> Option<&'static str> {
    (request.body["max_tokens"].is_number()).then_some("tool_use")
}
