//! Later rounds that do not go well, and clients that do not wait for them.

use std::sync::Arc;

use compactproxy::demo::script::{Gate, error};
use http_body_util::BodyExt;
use serde_json::json;

use crate::support::chat::{attempts, changed, parsed, words};
use crate::support::tap::Tap;
use crate::support::wire::patiently;

use super::*;

const RECOVERY: &str = "[compaction]\nkeep_tokens = 2000\n";

impl Cell {
    /// A request that can be shortened.
    pub(super) fn overlong(self) -> Value {
        let mut body = self.asked("overflow");
        let items = body[self.dialect.array()].as_array_mut().unwrap();
        for turn in 1..12_usize {
            let said = self.dialect.said(&format!("Step {turn}."), &[]);
            let asked = self.dialect.user(&words(turn as u64, 750));
            items.splice(1..1, said.into_iter().chain([asked]));
        }
        body
    }
}

fn failing(cell: Cell, said: &'static str) -> Vec<Step> {
    vec![
        step(move |request| says(said, vec![own(request, 1)])),
        step(move |_| cell.dialect.broken("out of order")),
        step(|_| says("Without.", vec![])),
    ]
}

#[tokio::test]
async fn the_clients_own_request_takes_the_place_of_a_round_that_fails() {
    for cell in cells() {
        let (provider, proxy) = staged(failing(cell, ""), "").await;
        let body = cell.asked("error");
        let had = cell.had(&proxy, &body).await;
        assert_eq!((had.text.as_str(), had.waits, attempts(&provider).len()), ("Without.", false, 3), "{cell:?}");
        let last = attempts(&provider).pop().unwrap();
        assert_eq!(last.json()["tools"].as_array().unwrap().len(), 1, "no tools of the proxy's");
        assert!(!String::from_utf8_lossy(&last.body).contains("own_1"));
        // What came to nothing is not put back.
        cell.had(&proxy, &cell.dialect.went_on(&body, &had)).await;
        let next = attempts(&provider).pop().unwrap();
        assert!(!String::from_utf8_lossy(&next.body).contains("own_1"));
        assert_unhurt(&provider);
    }
}

fn unreadable(cell: Cell) -> Reply {
    Reply::Raw {
        status: 200,
        headers: vec![
            ("content-type", if cell.stream { "text/event-stream" } else { "application/json" }.to_owned()),
            ("content-encoding", "x-unheard-of".to_owned()),
        ],
        body: "read_evicted in a coding of its own".into(),
    }
}

/// In a coding that cannot be read nothing can be hidden.
#[tokio::test]
async fn an_answer_in_an_unknown_coding_is_asked_for_again_without_tools() {
    for cell in cells() {
        let (provider, proxy) =
            staged(vec![step(move |_| unreadable(cell)), step(|_| says("Without.", vec![]))], "").await;
        let body = cell.asked("coding");
        let had = cell.had(&proxy, &body).await;
        assert_eq!((had.text.as_str(), had.waits, attempts(&provider).len()), ("Without.", false, 2), "{cell:?}");
        assert_eq!(attempts(&provider)[1].json()["tools"].as_array().unwrap().len(), 1, "no tools of the proxy's");
        assert_unhurt(&provider);
    }
}

/// What was said cannot be taken back: the turn ends as at the limit of rounds, and goes on with what was found.
#[tokio::test]
async fn a_later_round_that_fails_behind_what_was_shown_ends_the_turn() {
    for limited in [false, true] {
        for cell in cells().filter(|cell| cell.stream) {
            let mut steps = failing(cell, "Look. ");
            if limited {
                steps[1] = step(|_| rate_limited());
            }
            let (provider, proxy) = staged(steps, "").await;
            let body = cell.asked("error");
            let had = cell.had(&proxy, &body).await;
            assert_eq!((had.text.as_str(), had.waits, had.calls.len()), ("Look. ", false, 0), "{cell:?}");
            assert_eq!(attempts(&provider).len(), 2);
            let next = cell.had(&proxy, &cell.dialect.went_on(&body, &had)).await;
            assert_eq!(next.text, "Without.");
            let sent = attempts(&provider).pop().unwrap();
            // In Chat the client's message, which has no calls, is the one that they stand in.
            let text = String::from_utf8_lossy(&sent.body).into_owned();
            assert_eq!((text.matches(NEEDLE).count(), text.matches("Look. ").count()), (1, 1), "{cell:?}: {text}");
            assert_unhurt(&provider);
        }
    }
}

/// Thoughts alone are no answer: an agent would take them for an empty one, and not try again.
#[tokio::test]
async fn a_later_round_that_fails_behind_nothing_but_thoughts_ends_in_its_error() {
    for (cell, status) in cells().flat_map(|cell| [429, 500, 503].map(|status| (cell, status))) {
        let steps = vec![
            step(|request| thinks("Let me look.", "", vec![own(request, 1)])),
            step(move |_| error(status, "slow down", "x", "x")),
            step(|_| says("Without.", vec![])),
        ];
        let (provider, proxy) = staged(steps, "").await;
        let answer = cell.dialect.ask(proxy.proxy_addr, "k", &cell.thinking("thoughts")).await;
        match (cell.stream, status) {
            (true, _) => {
                assert!(cell.dialect.told_error(&answer).contains("slow down"), "{cell:?} {status} {}", answer.text());
                assert_eq!(attempts(&provider).len(), 2, "{cell:?} {status}");
            }
            // Of JSON nothing is shown before its end.
            (false, 429) => assert_eq!(answer.status, 429, "{cell:?}"),
            (false, _) => assert_eq!(cell.dialect.read(&answer).text, "Without.", "{cell:?} {status}"),
        }
        assert!(!answer.text().contains("read_evicted"), "{cell:?} {status}");
        assert_eq!(provider.violations(), []);
    }
}

/// Successes that are no answers.
fn others(cell: Cell) -> Vec<(&'static str, Reply)> {
    let raw = |kind: &str, body: String| Reply::Raw {
        status: 200,
        headers: vec![("content-type", kind.to_owned())],
        body: body.into(),
    };
    let (stream, json) = ("text/event-stream", "application/json");
    let asked = if cell.stream { stream } else { json };
    let error = r#"{"type":"error","error":{"type":"server_error","message":"boom","code":null}}"#;
    let event = format!("event: error\ndata: {error}\n\n");
    let page = "<html>\n\n<h1>502</h1>\n\n</html>";
    vec![
        ("a page", raw("text/html", page.to_owned())),
        ("a page that is said to be an answer", raw(asked, page.to_owned())),
        ("a long page", raw(asked, page.replace("502", &"no answer ".repeat(20_000)))),
        ("a page of many lines", raw(asked, page.repeat(5_000))),
        ("nothing", raw(asked, String::new())),
        ("an error", raw(asked, if cell.stream { event.clone() } else { error.to_owned() })),
        (
            "the other form",
            raw(if cell.stream { json } else { stream }, if cell.stream { error.to_owned() } else { event }),
        ),
        ("half of an object", raw(asked, if cell.stream { "data: {\"a\":[1,2\n\n" } else { "{\"a\":[1,2" }.to_owned())),
        (
            "an object of another kind",
            raw(asked, if cell.stream { "data: {\"a\":1}\n\n" } else { "{\"a\":1}" }.to_owned()),
        ),
    ]
}

/// No second document stands behind the first: what was shown ends as one answer, and what was not gives way.
#[tokio::test]
async fn a_success_that_is_no_answer_is_a_round_that_fails() {
    for cell in cells() {
        for (what, other) in others(cell) {
            for said in ["", "Look. "] {
                let other = other.clone();
                let steps = vec![
                    step(move |request| says(said, vec![own(request, 1)])),
                    step(move |_| other.clone()),
                    step(|_| says("Without.", vec![])),
                ];
                let (provider, proxy) = staged(steps, "").await;
                let body = cell.asked("other");
                let had = cell.had(&proxy, &body).await;
                // Of JSON nothing is shown before its end.
                let (text, calls) = if cell.stream && !said.is_empty() { (said, 2) } else { ("Without.", 3) };
                let seen = (had.text.as_str(), had.waits, attempts(&provider).len());
                assert_eq!(seen, (text, false, calls), "{cell:?} {what}");
                cell.had(&proxy, &cell.dialect.went_on(&body, &had)).await;
                assert_unhurt(&provider);
            }
        }
    }
}

/// Where the client's own request gets no answer either, its client gets an error in the form that it reads.
#[tokio::test]
async fn where_nothing_but_other_things_come_the_client_is_told_so() {
    for cell in cells() {
        for (what, other) in others(cell) {
            let (once, again) = (other.clone(), other.clone());
            let steps = vec![
                step(|request| says("", vec![own(request, 1)])),
                step(move |_| once.clone()),
                step(move |_| again.clone()),
            ];
            let (provider, proxy) = staged(steps, "").await;
            let answer = cell.dialect.ask(proxy.proxy_addr, "k", &cell.asked("other")).await;
            match cell.stream {
                true => assert!(!cell.dialect.told_error(&answer).is_empty(), "{cell:?} {what} {}", answer.text()),
                false => assert!(
                    serde_json::from_str::<Value>(answer.text()).is_ok_and(|told| told.is_object()),
                    "{cell:?} {what} {}",
                    answer.text()
                ),
            }
            assert_eq!(attempts(&provider).len(), 3, "{cell:?} {what}");
            assert!(!answer.text().contains("read_evicted"), "{cell:?} {what} {}", answer.text());
        }
    }
}

fn rate_limited() -> Reply {
    error(429, "slow down", "requests", "rate_limit_exceeded")
}

/// Nobody is asked again at once who wants fewer requests: a client that has nothing yet gets that answer.
#[tokio::test]
async fn a_rate_limit_of_a_later_round_is_relayed() {
    for cell in cells() {
        let steps = vec![step(|request| says("", vec![own(request, 1)])), step(|_| rate_limited())];
        let (provider, proxy) = staged(steps, "").await;
        let answer = cell.dialect.ask(proxy.proxy_addr, "k", &cell.asked("limited")).await;
        match cell.stream {
            // Its head has gone out.
            true => assert!(cell.dialect.told_error(&answer).contains("slow down"), "{cell:?}"),
            false => assert!(answer.status == 429 && answer.text().contains("slow down"), "{answer:?}"),
        }
        assert!(!answer.text().contains("read_evicted"));
        assert_eq!(attempts(&provider).len(), 2, "{cell:?}");
        assert_unhurt(&provider);
    }
}

/// The same inside a success, however it says so.
#[tokio::test]
async fn a_rate_limit_inside_a_success_of_a_later_round_is_relayed() {
    for cell in cells() {
        for told in [
            json!({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}),
            json!({"error": {"message": "slow down", "code": 429}}),
            json!({"error": {"message": "slow down", "type": null, "code": "529"}}),
            json!({"type": "error", "error": {"message": "slow down", "type": "overloaded_error"}}),
            json!({"error": {"message": "slow down", "code": 502, "metadata": {"raw": "{\"error\":{\"code\":429}}"}}}),
            json!({"choices": [{"index": 0, "error": {"message": "slow down", "code": 429}}]}),
            json!({"status": 429, "message": "slow down"}),
        ] {
            let (kind, body) = match cell.stream {
                true => ("text/event-stream", format!("data: {told}\n\n")),
                false => ("application/json", told.to_string()),
            };
            let limited =
                Reply::Raw { status: 200, headers: vec![("content-type", kind.to_owned())], body: body.into() };
            let steps = vec![step(|request| says("", vec![own(request, 1)])), step(move |_| limited.clone())];
            let (provider, proxy) = staged(steps, "").await;
            let answer = cell.dialect.ask(proxy.proxy_addr, "k", &cell.asked("limited")).await;
            assert!(answer.text().contains("slow down"), "{cell:?} {told}: {}", answer.text());
            assert!(!answer.text().contains("read_evicted"), "{cell:?} {told}");
            assert_eq!(attempts(&provider).len(), 2, "{cell:?} {told}");
        }
    }
}

#[tokio::test]
async fn an_overflow_in_a_later_round_is_recovered_like_any_other() {
    for cell in cells() {
        let dialect = cell.dialect;
        let steps = vec![
            step(|request| says("Look. ", vec![own(request, 1)])),
            step(move |_| dialect.too_long()),
            step(|_| says("Recovered.", vec![])),
        ];
        let (provider, proxy) = staged(steps, RECOVERY).await;
        let had = cell.had(&proxy, &cell.overlong()).await;
        assert_eq!((had.text.as_str(), had.waits), ("Look. Recovered.", false), "{cell:?}");
        let rounds = attempts(&provider);
        assert_eq!(rounds.len(), 3);
        assert!(rounds[2].body.len() < rounds[1].body.len());
        assert_unhurt(&provider);
    }
}

#[tokio::test]
async fn a_client_that_goes_in_between_takes_the_upstream_call_with_it() {
    for cell in cells() {
        let gate = Gate::new();
        let late = gate.clone();
        let steps = vec![
            step(|request| says("Look. ", vec![own(request, 1)])),
            step(move |_| Reply::Late(late.clone(), Answer::text("Too late."))),
        ];
        let provider = Provider::start(scripted(steps)).await.unwrap();
        let tap = Tap::start(provider.addr()).await;
        let mut metrics = None;
        let config = parsed(&format!("http://{}/v1", tap.addr()), &sections(""));
        let proxy = changed(config, |proxy| metrics = Some(Arc::clone(&proxy.metrics)));
        let metrics = metrics.unwrap();
        let body = cell.asked("gone");
        let (dialect, addr, sent) = (cell.dialect, proxy.proxy_addr, body.clone());
        let mut client = tokio::spawn(async move {
            let mut answer = dialect.send(addr, "k", &sent).await;
            while let Some(frame) = answer.body_mut().frame().await {
                frame.unwrap();
            }
        });
        patiently("the second round", async {
            while attempts(&provider).len() < 2 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert!(tap.open() > 0);
        client.abort();
        assert!((&mut client).await.unwrap_err().is_cancelled());
        patiently("the end of the upstream call", tap.all_closed()).await;
        patiently("the account", async {
            while !metrics.render().lines().any(|line| line.contains("\"client_gone\"") && !line.ends_with(" 0")) {
                tokio::task::yield_now().await;
            }
        })
        .await;
        gate.open();
        // Nothing of it is left: the same request again is answered as if it were the first.
        let had = cell.had(&proxy, &body).await;
        assert_eq!((had.text.as_str(), attempts(&provider).len()), ("Done.", 3), "{cell:?}");
        let again = attempts(&provider);
        assert_eq!(again[2].body, again[0].body);
        assert_unhurt(&provider);
    }
}
