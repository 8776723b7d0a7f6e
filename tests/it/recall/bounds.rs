//! How long a turn of rounds may be, and that its end is told and counted.

use std::sync::Arc;

use compactproxy::telemetry::metrics::{Metrics, TOOL_ROUNDS};

use crate::support::chat::{attempts, changed, pair, parsed};

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

/// What a client was given it may send back: a message of Chat's has a text where it has no calls.
#[tokio::test]
async fn what_ends_in_silence_can_be_sent_back() {
    for cell in cells() {
        let steps = (0..2).map(|n| step(move |request| says("", vec![own(request, n)]))).collect();
        let (provider, proxy) = staged(steps, "max_rounds = 2\n").await;
        let body = cell.asked("silence");
        let answer = cell.dialect.ask(proxy.proxy_addr, "k", &body).await;
        let mut had = cell.dialect.read(&answer);
        assert_eq!((had.text.as_str(), had.calls.len(), had.waits), ("", 0, false), "{cell:?}");
        if let Ok(whole) = serde_json::from_str::<Value>(answer.text())
            && cell.dialect.path() == CHAT.path()
        {
            had.items = vec![whole["choices"][0]["message"].clone()];
        }
        assert_eq!(cell.had(&proxy, &cell.dialect.went_on(&body, &had)).await.text, "Done.", "{cell:?}");
        let last = &cell.sent(&provider)[2];
        assert_eq!((last.matches(NEEDLE).count(), last.matches("not run").count()), (1, 1), "{cell:?}: {last}");
        assert_unhurt(&provider);
    }
}
