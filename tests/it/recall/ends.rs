//! Answers of several rounds that end early: their client closes, their upstream breaks off.

use std::sync::{Arc, Mutex};

use compactproxy::proxy::Proxy;
use compactproxy::proxy::budget::{Budget, Permit};
use http_body_util::BodyExt;

use crate::session_log::PAGE;
use crate::support::chat::{attempts, changed, parsed, send};
use crate::support::proxy::open;
use crate::support::wire::{Listener, patiently};

use super::*;

/// What came of a streamed answer, and whether it came to a clean end.
async fn came(proxy: &Served, body: &Value) -> (String, bool) {
    let answer = send(proxy.proxy_addr, &[("authorization", "Bearer k")], body.to_string().into()).await.unwrap();
    let mut body = answer.into_body();
    let mut seen = Vec::new();
    let clean = loop {
        match patiently("a piece", body.frame()).await {
            None => break true,
            Some(Err(_)) => break false,
            Some(Ok(frame)) => seen.extend(frame.into_data().unwrap()),
        }
    };
    (String::from_utf8(seen).unwrap(), clean)
}

fn text(stream: &str) -> String {
    let events = stream.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    events.filter_map(|event| event["choices"][0]["delta"]["content"].as_str().map(str::to_owned)).collect()
}

/// Events of a short answer: its opening, its text, why it ended, its usage and `[DONE]`.
const ALL: usize = usize::MAX;

/// A whole answer of which the body does not end, as events.
const SAID: &str = "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Nothing to look up.\"},\"finish_reason\":\"stop\"}]}\n\n\
data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":900,\"completion_tokens\":5,\"prompt_tokens_details\":{\"cached_tokens\":77}}}\n\n\
data: [DONE]\n\n";

#[tokio::test]
async fn what_a_client_closes_on_after_its_last_event_was_seen_whole() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&format!("sqlite://{}", folder.path().join("state.db").display()));
    let listener = Listener::bind().await;
    let config = parsed(&listener.url(), &format!("{}[sessions]\n", sections("")));
    let proxy = Proxy::new(config, Some(Arc::clone(&store))).unwrap();
    let running = Served::of(Arc::clone(&proxy));
    let provider = async {
        let mut server = listener.accept().await;
        server.head().await;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        server.send(format!("{head}{:x}\r\n{SAID}\r\n", SAID.len())).await;
        server
    };
    let body = Cell { dialect: CHAT, stream: true }.asked("closes").to_string();
    let client = send(running.proxy_addr, &[("authorization", "Bearer k")], body.into());
    let (_server, answer) = tokio::join!(provider, client);
    let mut answer = answer.unwrap();
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("[DONE]") {
        seen.extend(patiently("a piece", answer.body_mut().frame()).await.unwrap().unwrap().into_data().unwrap());
    }
    drop(answer);
    let counted = |name: &str, end: &str| {
        let rendered = proxy.metrics.render();
        rendered.lines().any(|line| line.contains(name) && line.ends_with(end))
    };
    patiently("the account", async {
        while !counted("outcome=\"relayed\"", " 1") || !counted("compactproxy_input_tokens_cached_total", " 77") {
            tokio::task::yield_now().await;
        }
    })
    .await;
    proxy.compactor.as_ref().unwrap().journal.as_ref().unwrap().flush().await;
    store.flush_log().await;
    let sessions = store.all_sessions().await.unwrap();
    let logged = store.any_history(sessions[0].id, PAGE).await.unwrap().unwrap();
    assert!(logged.last().unwrap().json.contains("Nothing to look up."), "{logged:?}");
}

#[tokio::test]
async fn what_an_upstream_said_before_it_broke_off_is_shown_and_is_no_clean_end() {
    // In a later round, with its end still to come: what was hidden before is put back into what the client has.
    for (after, reason) in [(2, false), (4, true)] {
        let steps = vec![
            step(|request| says("Look. ", vec![own(request, 1)])),
            step(move |_| Reply::CutOff { answer: Answer::text("Found."), after }),
        ];
        let (provider, proxy) = pair(scripted(steps), &sections("")).await;
        let body = Cell { dialect: CHAT, stream: true }.asked("broken");
        let (stream, clean) = came(&proxy, &body).await;
        assert!(!clean && !stream.contains("[DONE]"), "{stream}");
        assert_eq!(stream.contains("\"finish_reason\":\"stop\""), reason, "{stream}");
        let had = Had { items: CHAT.said(&text(&stream), &[]), text: text(&stream), ..Had::default() };
        assert!(had.text.starts_with("Look. F"), "{stream}");
        CHAT.had(proxy.proxy_addr, "k", &CHAT.went_on(&body, &had)).await;
        let last = attempts(&provider).pop().unwrap();
        assert!(String::from_utf8_lossy(&last.body).contains(NEEDLE), "{last:?}");
        assert_eq!(provider.violations(), []);
    }
    // In the first, after a call of the proxy's.
    let steps = vec![step(|request| {
        let answer = Answer { calls: vec![own(request, 1)], ..Answer::text("Look. ") };
        Reply::CutOff { answer, after: 5 }
    })];
    let (_provider, proxy) = pair(scripted(steps), &sections("")).await;
    let (stream, clean) = came(&proxy, &Cell { dialect: CHAT, stream: true }.asked("broken")).await;
    assert!(!clean && !stream.contains("read_evicted") && !stream.contains("tool_calls"), "{stream}");
    assert!(text(&stream).starts_with("Look."), "{stream}");
}

#[tokio::test]
async fn a_connection_that_breaks_behind_the_last_event_is_no_matter() {
    let steps = vec![
        step(|request| {
            let answer = Answer { calls: vec![own(request, 1)], ..Answer::text("Look. ") };
            Reply::CutOff { answer, after: ALL }
        }),
        step(|_| says("Found.", vec![])),
    ];
    let (_provider, proxy) = pair(scripted(steps), &sections("")).await;
    let (stream, clean) = came(&proxy, &Cell { dialect: CHAT, stream: true }.asked("behind")).await;
    assert!(clean && text(&stream) == "Look. Found.", "{stream}");
}

/// A round's answer that calls the proxy's tool.
const CALLED: &str = "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"tool_calls\":[{\"index\":0,\"id\":\"own_1\",\"type\":\"function\",\"function\":{\"name\":\"read_evicted\",\"arguments\":\"{}\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\n\
data: [DONE]\n\n";

#[tokio::test]
async fn a_round_is_over_with_its_last_event_whatever_becomes_of_its_body() {
    let listener = Listener::bind().await;
    let config = parsed(&listener.url(), &sections("inject = \"always\"\n"));
    let running = changed(config, |_| {});
    let provider = async {
        let mut open = Vec::new();
        // Neither body ends.
        for said in [CALLED, SAID] {
            let mut server = listener.accept().await;
            server.head().await;
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
            server.send(format!("{head}{:x}\r\n{said}\r\n", said.len())).await;
            open.push(server);
        }
        open
    };
    let body = Cell { dialect: CHAT, stream: true }.asked("lingers");
    let (_open, (stream, clean)) = tokio::join!(provider, came(&running, &body));
    assert!(clean && stream.ends_with("data: [DONE]\n\n"), "{stream}");
    assert_eq!(text(&stream), "Nothing to look up.");
}

#[tokio::test]
async fn a_later_round_that_breaks_off_before_anything_was_shown_gives_way_to_the_clients_own_request() {
    for stream in [true, false] {
        let steps = vec![
            step(|request| says("", vec![own(request, 1)])),
            step(|_| Reply::CutOff { answer: Answer::text("Found."), after: 1 }),
            step(|_| says("Without.", vec![])),
        ];
        let (provider, proxy) = pair(scripted(steps), &sections("")).await;
        let had = CHAT.had(proxy.proxy_addr, "k", &Cell { dialect: CHAT, stream }.asked("way")).await;
        assert_eq!((had.text.as_str(), attempts(&provider).len()), ("Without.", 3));
        assert_eq!(provider.violations(), []);
    }
}

#[tokio::test]
async fn where_the_buffers_are_full_a_turn_ends_as_at_the_limit_of_rounds() {
    // No room at all, or none for another round.
    for left in [0, 10_000] {
        let budget = Arc::new(Mutex::new(None::<Arc<Budget>>));
        let taken = Arc::new(Mutex::new(None));
        let (all, take) = (Arc::clone(&budget), Arc::clone(&taken));
        let steps = vec![step(move |request| {
            let budget = all.lock().unwrap().clone().unwrap();
            let mut permit = Permit::empty(&budget);
            assert!(permit.grow(budget.free() - left));
            *take.lock().unwrap() = Some(permit);
            says("Look. ", vec![own(request, 1)])
        })];
        let provider = Provider::start(scripted(steps)).await.unwrap();
        let proxy = changed(parsed(&provider.base_url(), &sections("")), |proxy| {
            *budget.lock().unwrap() = Some(Arc::clone(&proxy.budget));
        });
        let body = Cell { dialect: CHAT, stream: true }.asked("full");
        let had = CHAT.had(proxy.proxy_addr, "k", &body).await;
        assert_eq!((had.text.as_str(), had.waits, had.calls.len()), ("Look. ", false, 0));
        assert_eq!(attempts(&provider).len(), 1);
        *taken.lock().unwrap() = None;
        let budget = budget.lock().unwrap().clone().unwrap();
        patiently("all is given back", async {
            while budget.used() > 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        CHAT.had(proxy.proxy_addr, "k", &CHAT.went_on(&body, &had)).await;
        assert_eq!(provider.violations(), []);
    }
}
