use bytes::Bytes;
use http::{HeaderMap, HeaderValue};

use super::super::agent::{ACTION_HEADER, Death};
use super::super::answer::Usage;
use super::super::chart::{Screen, Style};
use super::super::recalled::Kept;
use super::super::report;
use super::*;

fn evidence() -> Evidence {
    let mut headers = HeaderMap::new();
    headers.insert(ACTION_HEADER, HeaderValue::from_static("evicted, truncated, summarized, recovered"));
    let turn = Turn { request_bytes: 1, messages: 1, headers, usage: Usage::default(), answer: Bytes::new() };
    let events = vec![
        Event::Evicted { tool: "execute".to_owned(), before: 9, after: 1 },
        Event::Truncated { calls: 1, before: 9, after: 1 },
        Event::Summarized { calls: 3 },
        Event::Recovered { refused: 9, accepted: 5 },
    ];
    Evidence {
        api: Api::Chat,
        direct: Outcome::Died(Death { turn: 9, status: 400, message: String::new() }),
        raw: vec![1; 30],
        baseline: Account { requests: 30, input: 1_000, cached: 500, written: 0, output: 10 },
        same_history: true,
        run: Run { turns: vec![turn; 30], outcome: Outcome::Finished, history: Vec::new() },
        passages: vec![Passage { sent: 1, cached: 1, events }],
        proxied: Account { requests: 31, input: 600, cached: 300, written: 0, output: 10 },
        side: Account::default(),
        refused: 1,
        violations: Vec::new(),
        without_rule: 0,
        read_back: ReadBack::Text { pointer: String::new(), same: true, bytes: 1 },
        recalled: Some(Recalled {
            call: 1,
            rounds: 2,
            id: "0".repeat(32),
            kept: Kept::Messages,
            bytes: 9,
            page: 3,
            told: true,
            unseen: true,
        }),
        shrunk: None,
        elapsed: Duration::from_secs(1),
    }
}

fn broken(evidence: &Evidence) -> usize {
    claims(evidence).iter().filter(|claim| !claim.held).count()
}

#[test]
fn all_hold_where_all_is_well() {
    assert_eq!(broken(&evidence()), 0);
}

type Spoil = fn(&mut Evidence);

#[test]
fn each_claim_falls_with_what_it_rests_on() {
    let spoilers: [(Spoil, usize); 18] = [
        (|e| e.direct = Outcome::Finished, 1),
        (|e| e.same_history = false, 1),
        (|e| e.violations.push(super::super::rules::unreadable()), 1),
        (|e| e.without_rule = 1, 1),
        (|e| e.read_back = ReadBack::NoPointer, 1),
        (|e| e.read_back = ReadBack::Failed(String::new()), 1),
        (|e| e.read_back = ReadBack::Text { pointer: String::new(), same: false, bytes: 1 }, 1),
        (|e| e.recalled = None, 1),
        (|e| e.recalled.as_mut().unwrap().rounds = 1, 1),
        (|e| e.recalled.as_mut().unwrap().told = false, 1),
        (|e| e.recalled.as_mut().unwrap().unseen = false, 1),
        (|e| e.proxied.cached = 299, 1),
        (|e| e.proxied.output = 1_000, 1),
        (|e| e.refused = 2, 1),
        (|e| e.refused = 0, 1),
        (|e| drop(e.run.turns.pop()), 1),
        (|e| e.passages.iter_mut().for_each(|passage| passage.events.clear()), 4),
        (|e| e.run.turns.iter_mut().for_each(|turn| turn.headers.clear()), 4),
    ];
    for (i, (spoil, falls)) in spoilers.into_iter().enumerate() {
        let mut evidence = evidence();
        spoil(&mut evidence);
        assert_eq!(broken(&evidence), falls, "spoiler {i}");
    }
}

#[test]
fn a_run_that_died_is_no_success() {
    let mut evidence = evidence();
    evidence.run.outcome = Outcome::Died(Death { turn: 12, status: 502, message: String::new() });
    assert_eq!(broken(&evidence), 2);
}

fn printed(evidence: &Evidence) -> String {
    let mut out = Vec::new();
    report::with(&mut out, Screen { width: 80, style: Style::Plain }, evidence).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn time_is_told_and_not_claimed() {
    let slow = Evidence { elapsed: Duration::from_secs(3_600), ..evidence() };
    assert_eq!(broken(&slow), 0);
    assert!(printed(&slow).ends_with("All this took 3600.0 s.\n"), "{}", printed(&slow));
}

#[test]
fn what_was_read_back_is_said() {
    let mut evidence = evidence();
    let told = printed(&evidence);
    assert!(
        told.contains("3 characters of text 00000000…") && told.contains("(all messages behind a summary, 9 bytes)")
    );
    assert!(told.lines().all(|line| line.chars().count() <= 80), "{told}");
    evidence.recalled.as_mut().unwrap().kept = Kept::Result;
    assert!(printed(&evidence).contains("(the evicted result, 9 bytes)"));
}
