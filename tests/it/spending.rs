//! What side calls may cost, and who never causes one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use compactproxy::demo::provider::Settings;
use compactproxy::demo::script::{Behaviour, Reply, asks_for_summary, error, summary};
use compactproxy::demo::window::Limit;
use serde_json::json;

use crate::support::chat::{get, history, ids, pair, post, side_calls, summaries_ended, with};

const SECTIONS: &str = "[compaction]\n[[window]]\nmodel = \"*\"\ninput = 6000\n";

/// The provider says in the answer to a side call how little is left: that is left to the client.
#[tokio::test]
async fn a_side_calls_own_answer_tells_the_rate_limit() {
    for (left, followed) in [("900", true), ("10", false)] {
        let behaviour = Behaviour::default().with_summaries();
        let behaviour = Behaviour::new(move |request| match asks_for_summary(request) {
            true => {
                let message = json!({"role": "assistant", "content": summary(request)});
                let answer = json!({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]});
                let headers = vec![
                    ("content-type", "application/json".to_owned()),
                    ("x-ratelimit-limit-tokens", "1000".to_owned()),
                    ("x-ratelimit-remaining-tokens", left.to_owned()),
                ];
                Reply::Raw { status: 200, headers, body: answer.to_string().into() }
            }
            false => behaviour.reply(request),
        });
        let settings = Settings { limit: Limit::of(6_000), behaviour, ..Settings::default() };
        let (provider, proxy) = pair(settings, SECTIONS).await;
        assert_eq!(post(proxy.proxy_addr, "k", &history("a", 5, 1_000)).await.status, 200);
        summaries_ended(&proxy, 1).await;
        let made = side_calls(&provider).len();
        assert!(made > 0);
        assert_eq!(post(proxy.proxy_addr, "k", &history("b", 5, 1_000)).await.status, 200);
        if followed {
            summaries_ended(&proxy, 2).await;
        }
        assert_eq!(side_calls(&provider).len() > made, followed, "{left}");
    }
}

/// A client whose first message changes with every turn never comes back to what was summarized.
#[tokio::test]
async fn summaries_for_histories_that_never_come_back_are_given_up() {
    let behaviour = Behaviour::default().with_summaries();
    let settings = Settings { limit: Limit::of(6_000), behaviour, ..Settings::default() };
    let (provider, proxy) = pair(settings, SECTIONS).await;
    let turn = async |n: usize| {
        assert_eq!(post(proxy.proxy_addr, "k", &history(&format!("at {n}"), 5, 1_000)).await.status, 200);
    };
    for n in 0..8 {
        turn(n).await;
        summaries_ended(&proxy, n + 1).await;
    }
    let made = side_calls(&provider).len();
    // Eight that came to something; of the next ten the last is tried.
    for n in 8..18 {
        turn(n).await;
    }
    summaries_ended(&proxy, 9).await;
    assert_eq!(side_calls(&provider).len(), made / 8 * 9);
}

/// Three summaries that failed pause those that are made ahead of time. What has overflowed cannot wait for them; its
/// summary is made as it is configured.
#[tokio::test]
async fn a_recovery_asks_for_its_summary_though_others_are_paused_and_as_it_is_configured() {
    let folder = tempfile::tempdir().unwrap();
    let prompt = folder.path().join("prompt.txt");
    let text = "For the night shift.\n{messages}\nSESSION INTENT, SUMMARY, ARTIFACTS, NEXT STEPS";
    std::fs::write(&prompt, text).unwrap();
    let works = Arc::new(AtomicBool::new(false));
    let (told, summaries) = (Arc::clone(&works), Behaviour::default().with_summaries());
    let behaviour = Behaviour::new(move |request| match asks_for_summary(request) && !told.load(Ordering::SeqCst) {
        true => error(500, "no", "server_error", "x"),
        false => summaries.reply(request),
    });
    let settings = Settings { limit: Limit::of(6_000), behaviour, ..Settings::default() };
    let sections = format!(
        "[compaction]\nmodel = \"small\"\nsummary_prompt_file = \"{}\"\n[[window]]\nmodel = \"known\"\ninput = 6000\n[[window]]\nmodel = \"small\"\ninput = 6000\n",
        prompt.display()
    );
    let (provider, proxy) = pair(settings, &sections).await;
    let foreseen = |name: &str| with(&history(name, 12, 1_000), json!({"model": "known"}));
    for name in ["a", "b", "c", "d"] {
        assert_eq!(post(proxy.proxy_addr, "k", &foreseen(name)).await.status, 200);
    }
    works.store(true, Ordering::SeqCst);
    let paused = side_calls(&provider).len();
    assert_eq!(post(proxy.proxy_addr, "k", &foreseen("e")).await.status, 200);
    assert_eq!(side_calls(&provider).len(), paused, "no more are made ahead of time");

    let body = history("f", 12, 1_000);
    let answer = post(proxy.proxy_addr, "k", &body).await;
    assert!(answer.actions().contains(&"recovered") && answer.actions().contains(&"summarized"), "{answer:?}");
    let calls = provider.completions();
    let night: Vec<_> =
        calls.iter().filter(|call| String::from_utf8_lossy(&call.body).contains("For the night shift.")).collect();
    let models: Vec<_> = night.iter().map(|call| call.json()["model"].clone()).collect();
    assert!(models.len() > paused && models[paused..].iter().all(|model| model == "small"), "{models:?}");
    let sent = calls.last().unwrap();
    let text = String::from_utf8_lossy(&sent.body);
    assert!(text.contains("The user wants the requested changes made in the service"), "{text}");
    // All that it stands for was kept.
    let mut kept = String::new();
    for id in ids(&sent.body) {
        kept += get(proxy.proxy_addr, &format!("/_compactproxy/evicted/{id}")).await.text();
    }
    let first = body["messages"][3]["content"].to_string();
    assert!(kept.contains(first.trim_matches('"')), "{} bytes", kept.len());
}
