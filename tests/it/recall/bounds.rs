//! How long a turn of rounds may be, and that its end is told and counted.

use std::sync::Arc;

use compactproxy::telemetry::metrics::{Metrics, TOOL_ROUNDS};

use serde_json::json;

use crate::support::chat::{attempts, changed, pair, parsed};
use crate::support::dialects::Messages;
use crate::support::recall::EVICTION;

use super::*;

/// A provider whose model does nothing but call the proxy's tool, so often; the proxy, and its numbers.
async fn insatiable(calls: usize, tools: &str) -> (Provider, Served, Arc<Metrics>) {
    let steps = (0..calls).map(|n| step(move |request| says(&format!("{n} "), vec![own(request, n)]))).collect();
    let provider = Provider::start(scripted(steps)).await.unwrap();
    let mut metrics = None;
    let config = parsed(&provider.base_url(), &sections(tools));
    let proxy = changed(config, |proxy| metrics = Some(Arc::clone(&proxy.metrics)));
    (provider, proxy, metrics.unwrap())
}

fn counted(metrics: &Metrics, result: &str) -> usize {
    let rendered = metrics.render();
    let line = rendered.lines().find(|line| line.starts_with(TOOL_ROUNDS) && line.contains(&format!("\"{result}\"")));
    line.map_or(0, |line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
}

#[tokio::test]
async fn a_turn_has_as_many_model_calls_as_rounds_are_allowed_and_each_is_counted() {
    for cell in cells() {
        for (tools, most) in [("max_rounds = 1\n", 1), ("max_rounds = 4\n", 4), ("", 5)] {
            let (provider, proxy, metrics) = insatiable(9, tools).await;
            let body = cell.asked("insatiable");
            let had = cell.had(&proxy, &body).await;
            assert_eq!((had.calls.len(), had.waits), (0, false), "{cell:?} {most}");
            assert_eq!(attempts(&provider).len(), most, "{cell:?}");
            assert_eq!((counted(&metrics, "again"), counted(&metrics, "limit")), (most - 1, 1), "{cell:?} {most}");
            assert_usage(&had, &attempts(&provider));
            // The model learns that its last call was not run, and nothing of the earlier ones is lost.
            let next = cell.dialect.went_on(&body, &had);
            cell.dialect.ask(proxy.proxy_addr, "k", &next).await;
            let sent = cell.sent(&provider);
            assert_one_grows_from_the_other(&sent);
            assert_eq!(sent[most].matches("not run").count(), 1, "{cell:?} {most}: {}", sent[most]);
            assert_eq!(sent[most].matches(NEEDLE).count(), most - 1, "{cell:?} {most}");
            assert_eq!(provider.violations(), []);
        }
    }
}

/// A model that says something at first and then only calls: what it read is in the history all the same.
#[tokio::test]
async fn what_was_read_before_the_last_round_is_kept_where_nothing_is_said_behind_it() {
    for cell in cells() {
        let steps =
            (0..9).map(|n| step(move |request| says(if n == 0 { "Look. " } else { "" }, vec![own(request, n)])));
        let (provider, proxy) = pair(scripted(steps.collect()), &sections("max_rounds = 3\n")).await;
        let body = cell.asked("silent");
        let had = cell.had(&proxy, &body).await;
        assert_eq!((had.text.as_str(), had.calls.len(), had.waits), ("Look. ", 0, false), "{cell:?}");
        let next = cell.dialect.went_on(&body, &had);
        cell.dialect.ask(proxy.proxy_addr, "k", &next).await;
        let last = &cell.sent(&provider)[3];
        assert_eq!((last.matches(NEEDLE).count(), last.matches("not run").count()), (2, 1), "{cell:?}: {last}");
        assert_eq!(last.matches("Look. ").count(), 1, "{cell:?}: {last}");
        assert_eq!(provider.violations(), []);
    }
}

/// How the tools come into each request: the proxy's, the client's, and the choice.
fn offered(cell: Cell, provider: &Provider) -> Vec<(bool, bool, Value)> {
    let asked = attempts(provider).into_iter().map(|exchange| {
        let body = exchange.json();
        let has = |name: &str| body["tools"].to_string().contains(&format!("\"{name}\""));
        (has("read_evicted"), has("execute"), body["tool_choice"].clone())
    });
    asked
        .map(|(own, clients, choice)| (own, clients, if cell.is_none(&choice) { "none".into() } else { choice }))
        .collect()
}

impl Cell {
    fn is_none(self, choice: &Value) -> bool {
        *choice == if self.dialect.path() == Messages.path() { json!({"type": "none"}) } else { json!("none") }
    }
}

/// A model that looks things up as long as it can.
fn curious(n: usize) -> Step {
    step(move |request| {
        let choice = request.body["tool_choice"].to_string();
        let may = request.tools().iter().any(|tool| tool.to_string().contains("read_evicted"));
        if may && !choice.contains("none") { says("", vec![own(request, n)]) } else { says("So far.", vec![]) }
    })
}

/// It has to say something then. A client's own tools stay; where there are no others the history needs the proxy's.
#[tokio::test]
async fn in_the_last_model_call_of_a_turn_none_of_the_proxys_tools_can_be_called() {
    for (cell, alone) in cells().flat_map(|cell| [(cell, false), (cell, true)]) {
        let (provider, proxy) =
            pair(scripted((0..9).map(curious).collect()), &sections("inject = \"always\"\nmax_rounds = 3\n")).await;
        let mut body = cell.dialect.request(vec![cell.dialect.user("Look it up.")], cell.stream);
        if alone {
            body.as_object_mut().unwrap().remove("tools");
        }
        let had = cell.had(&proxy, &body).await;
        assert_eq!((had.text.as_str(), had.calls.len(), had.waits), ("So far.", 0, false), "{cell:?} {alone}");
        let (free, last) = match alone {
            true => ((true, false, Value::Null), (true, false, json!("none"))),
            false => ((true, true, Value::Null), (false, true, Value::Null)),
        };
        assert_eq!(offered(cell, &provider), [free.clone(), free.clone(), last], "{cell:?}");
        // In the next turn all is as before.
        let next = cell.dialect.went_on(&body, &had);
        cell.had(&proxy, &next).await;
        assert_eq!(offered(cell, &provider)[3], free);
        assert_one_grows_from_the_other(&cell.sent(&provider));
        assert_eq!(provider.violations(), []);
    }
}

/// What a client was given it may send back, whatever becomes of the proxy's state: no message is empty.
#[tokio::test]
async fn a_turn_in_which_nothing_was_said_says_so_and_can_be_sent_back() {
    for (cell, most) in cells().flat_map(|cell| [(cell, 1), (cell, 2)]) {
        let steps = || (0..most).map(|n| step(move |request| says("", vec![own(request, n)]))).collect();
        let (provider, proxy) = staged(steps(), &format!("max_rounds = {most}\n")).await;
        let body = cell.asked("silence");
        let answer = cell.dialect.ask(proxy.proxy_addr, "k", &body).await;
        let mut had = cell.dialect.read(&answer);
        assert_eq!((had.calls.len(), had.waits), (0, false), "{cell:?}");
        assert!(had.text.starts_with("(No answer yet: "), "{cell:?} {}", answer.text());
        if let Ok(whole) = serde_json::from_str::<Value>(answer.text())
            && cell.dialect.path() == CHAT.path()
        {
            had.items = vec![whole["choices"][0]["message"].clone()];
        }
        let next = cell.dialect.went_on(&body, &had);
        assert_eq!(cell.had(&proxy, &next).await.text, "Done.", "{cell:?}");
        let last = &cell.sent(&provider)[most];
        let seen = (last.matches(NEEDLE).count(), last.matches("not run").count(), last.matches("(No answer").count());
        assert_eq!(seen, (most - 1, 1, 1), "{cell:?}: {last}");
        assert_eq!(provider.violations(), []);
        let (bare, plain) = pair(scripted(Vec::new()), EVICTION).await;
        assert_eq!(cell.had(&plain, &next).await.text, "Done.", "{cell:?}");
        assert_eq!(bare.violations(), []);
    }
}
