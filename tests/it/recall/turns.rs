//! Turns that go well: whose tools are called, how often, and after what.

use crate::support::chat::{attempts, pair};
use crate::support::dialects::Chat;
use crate::support::recall::EVICTION;

use super::*;

/// A turn, and what its client has of it.
struct Turn {
    name: &'static str,
    steps: fn() -> Vec<Step>,
    text: &'static str,
    thoughts: &'static str,
    /// Ids of the calls that the client has.
    calls: &'static [&'static str],
    /// Names of the calls that the provider finds in the history later on.
    history: &'static [&'static str],
}

const OWN: &str = "read_evicted";

const TURNS: [Turn; 9] = [
    Turn {
        name: "own alone",
        steps: || vec![step(|request| says("", vec![own(request, 1)])), found()],
        text: "It is 4711.",
        thoughts: "",
        calls: &[],
        history: &[OWN],
    },
    Turn {
        name: "client's alone",
        steps: || vec![step(|_| says("Run it.", vec![clients(7), clients(8)]))],
        text: "Run it.",
        thoughts: "",
        calls: &["call_7", "call_8"],
        history: &["execute", "execute"],
    },
    Turn {
        name: "own first",
        steps: || vec![step(|request| says("Both.", vec![own(request, 1), clients(7)]))],
        text: "Both.",
        thoughts: "",
        calls: &["call_7"],
        history: &[OWN, "execute"],
    },
    Turn {
        name: "client's first",
        steps: || vec![step(|request| says("Both.", vec![clients(7), own(request, 1)]))],
        text: "Both.",
        thoughts: "",
        calls: &["call_7"],
        history: &["execute", OWN],
    },
    Turn {
        name: "between two of the client's",
        steps: || vec![step(|request| says("", vec![clients(7), own(request, 1), clients(8)]))],
        text: "",
        thoughts: "",
        calls: &["call_7", "call_8"],
        history: &["execute", OWN, "execute"],
    },
    Turn {
        name: "two own at once",
        steps: || vec![step(|request| says("", vec![own(request, 1), own(request, 2)])), found()],
        text: "It is 4711.",
        thoughts: "",
        calls: &[],
        history: &[OWN, OWN],
    },
    Turn {
        name: "own after text",
        steps: || vec![step(|request| says("Let me look. ", vec![own(request, 1)])), found()],
        text: "Let me look. It is 4711.",
        thoughts: "",
        calls: &[],
        history: &[OWN],
    },
    Turn {
        name: "own after thinking",
        steps: || vec![step(|request| thinks("Think. ", "", vec![own(request, 1)])), found()],
        text: "It is 4711.",
        thoughts: "Think. ",
        calls: &[],
        history: &[OWN],
    },
    Turn {
        name: "several rounds",
        steps: || {
            vec![
                step(|request| thinks("Think. ", "", vec![own(request, 1), own(request, 2)])),
                step(|request| {
                    assert!(told(request));
                    thinks("Again. ", "Once more.", vec![own(request, 3)])
                }),
                step(|_| says(" Found.", vec![clients(9)])),
            ]
        },
        text: "Once more. Found.",
        thoughts: "Think. Again. ",
        calls: &["call_9"],
        history: &[OWN, OWN, OWN, "execute"],
    },
];

async fn played(cell: Cell, turn: &Turn) {
    let (provider, proxy) = staged((turn.steps)(), "").await;
    let body = if turn.thoughts.is_empty() { cell.asked(turn.name) } else { cell.thinking(turn.name) };
    let answer = cell.dialect.ask(proxy.proxy_addr, "k", &body).await;
    assert_eq!(answer.actions(), ["evicted"]);
    let had = cell.dialect.read(&answer);
    assert_eq!(had.text, turn.text);
    // Where thinking is on, a model thinks before each of its answers.
    assert!(had.thoughts.starts_with(turn.thoughts), "{}", had.thoughts);
    let calls: Vec<&str> = had.calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!((calls.as_slice(), had.waits), (turn.calls, !turn.calls.is_empty()));
    assert!(had.calls.iter().all(|call| call.name == "execute" && call.arguments == r#"{"command":"ls"}"#));
    let rounds = attempts(&provider);
    assert_eq!(rounds.len(), (turn.steps)().len());
    assert_usage(&had, &rounds);

    let before = body[cell.dialect.array()].as_array().unwrap().len();
    goes_on(cell, &proxy, &provider, (&body, &had)).await;
    let last = attempts(&provider).pop().unwrap();
    assert_eq!(cell.dialect.called(&last.json(), before), turn.history);
    let text = String::from_utf8_lossy(&last.body).into_owned();
    let hidden = turn.history.iter().filter(|name| **name == OWN).count();
    assert_eq!((text.contains(NEEDLE), text.contains("own_1")), (hidden > 0, hidden > 0));
    for thought in turn.thoughts.split_inclusive(". ") {
        assert!(text.contains(thought), "thoughts stay with their turn (D8): {thought}");
    }
}

#[tokio::test]
async fn every_turn_is_one_answer_and_is_put_back() {
    for cell in cells() {
        for turn in &TURNS {
            println!("{cell:?} {}", turn.name);
            played(cell, turn).await;
        }
    }
}

#[tokio::test]
async fn rounds_end() {
    for cell in cells() {
        let steps = (0..9).map(|n| step(move |request| says(&format!("{n} "), vec![own(request, n)]))).collect();
        let (provider, proxy) = staged(steps, "max_rounds = 3\n").await;
        let had = cell.had(&proxy, &cell.asked("rounds end")).await;
        assert_eq!((had.text.as_str(), had.waits, had.calls.len()), ("0 1 2 ", false, 0), "{cell:?}");
        assert_eq!(attempts(&provider).len(), 3);
        assert_usage(&had, &attempts(&provider));
        assert_unhurt(&provider);
    }
}

/// The same bytes as without tools, but for the counts of tokens.
#[tokio::test]
async fn what_the_client_calls_alone_passes_byte_for_byte() {
    let steps = || vec![step(|_| says("Run it.", vec![clients(7), clients(8)]))];
    for cell in cells() {
        let (provider, proxy) = staged(steps(), "").await;
        let answer = cell.dialect.ask(proxy.proxy_addr, "k", &cell.asked("client")).await;
        assert_eq!(cell.dialect.read(&answer).calls.len(), 2);
        let (bare, plain) = pair(scripted(steps()), EVICTION).await;
        let other = cell.dialect.ask(plain.proxy_addr, "k", &cell.asked("client")).await;
        let uncounted = |text: &str| text.chars().filter(|letter| !letter.is_ascii_digit()).collect::<String>();
        assert_eq!(uncounted(answer.text()), uncounted(other.text()), "{cell:?}");
        assert_eq!((attempts(&provider).len(), attempts(&bare).len()), (1, 1));
    }
}

/// Clients that ask for no usage get none.
#[tokio::test]
async fn no_usage_is_told_where_none_was_asked_for() {
    let cell = Cell { dialect: &Chat, stream: true };
    let (provider, proxy) = staged(vec![step(|request| says("", vec![own(request, 1)])), found()], "").await;
    let mut body = cell.asked("silent");
    body.as_object_mut().unwrap().remove("stream_options");
    let answer = cell.dialect.ask(proxy.proxy_addr, "k", &body).await;
    assert!(answer.text().contains("It is 4711.") && !answer.text().contains("\"usage\""), "{}", answer.text());
    assert_unhurt(&provider);
}
