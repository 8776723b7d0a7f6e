//! Small bodies pass without being read, unless something of them was replaced before or their answer is an error.

use std::sync::Arc;

use compactproxy::demo::provider::Settings;
use compactproxy::proxy::Proxy;
use compactproxy::store::Store;
use serde_json::{Value, json};

use crate::recovery::scripted;
use crate::support::chat::{attempts, call, history, next_turn, pair, parsed, post, result, too_long, with, words};
use crate::support::proxy::{Served, open};
use crate::support::wire::patiently;

const ALL: &str = "[tool_result_eviction]\n[truncate_args]\n[prune]\n[compaction]\n[overflow_recovery]\n";
/// Under so low a limit even a small result is evicted.
const LOW_LIMIT: &str = "[tool_result_eviction]\nmax_result_chars = 1000\npreview_chars = 100\n";

/// How many bodies were looked at: the stage of planning is timed for no others.
fn looked_at(proxy: &Proxy) -> u64 {
    let line = "compactproxy_stage_duration_seconds_count{stage=\"plan\"}";
    let all = proxy.metrics.render();
    let found = all.lines().find_map(|text| text.strip_prefix(line));
    found.map_or(0, |count| count.trim().parse().unwrap())
}

/// Until the store has read what it holds, any body could be covered.
async fn settled(store: &Store) {
    patiently("the store's marks", async {
        while store.may_cover(0) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// The program over a store, and what can be asked of both.
async fn served(base_url: &str, sections: &str, store: &Arc<Store>) -> (Served, Arc<Proxy>) {
    let proxy = Proxy::new(parsed(base_url, sections), Some(Arc::clone(store))).unwrap();
    settled(store).await;
    (Served::of(Arc::clone(&proxy)), proxy)
}

fn model(body: &Value, model: &str) -> Value {
    with(body, json!({"model": model}))
}

#[tokio::test]
async fn a_small_body_is_not_read_and_what_could_matter_is() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&format!("sqlite://{}", folder.path().join("state.db").display()));
    let provider = compactproxy::demo::provider::Provider::start(Settings::default()).await.unwrap();
    let (running, proxy) = served(&provider.base_url(), ALL, &store).await;
    let small = model(&history("a", 2, 200), "gpt-4o");
    assert!((2_000..4_000).contains(&small.to_string().len()), "{}", small.to_string().len());
    for turn in 0..3 {
        post(running.proxy_addr, "k", &next_turn(&small, &turn.to_string())).await;
    }
    assert_eq!(looked_at(&proxy), 0);
    // The same bytes in a small window, with a picture, with more output than there is room for, and more bytes.
    let picture = json!([{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]);
    let mut seen = small.clone();
    seen["messages"].as_array_mut().unwrap().push(json!({"role": "user", "content": picture}));
    let greedy = with(&small, json!({"max_tokens": 127_000}));
    for (at, body) in [model(&small, "gpt-3.5-turbo-instruct"), seen, greedy, history("b", 6, 600)].iter().enumerate() {
        post(running.proxy_addr, "k", body).await;
        assert_eq!(looked_at(&proxy), at as u64 + 1, "{at}");
    }
}

/// L4: what was replaced stays replaced, also in a body that is too small for anything to be due in it, under
/// other settings and after a restart.
#[tokio::test]
async fn a_small_body_with_a_stored_row_is_still_rewritten_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("state.db").display());
    let (provider, _) = pair(Settings::default(), ALL).await;
    let body = model(&history("a", 1, 400), "gpt-4o");
    assert!(body.to_string().len() < 4_000, "{}", body.to_string().len());

    let store = open(&url);
    let (running, _) = served(&provider.base_url(), LOW_LIMIT, &store).await;
    assert_eq!(post(running.proxy_addr, "k", &body).await.actions(), ["evicted"]);
    let sent = attempts(&provider).pop().unwrap().body;
    drop(running);
    store.close().await;

    let store = open(&url);
    let (running, proxy) = served(&provider.base_url(), ALL, &store).await;
    let again = post(running.proxy_addr, "k", &body).await;
    assert_eq!(again.actions(), ["evicted"]);
    assert_eq!(attempts(&provider).pop().unwrap().body, sent);
    assert_eq!(looked_at(&proxy), 1);
    post(running.proxy_addr, "k", &model(&history("b", 0, 0), "gpt-4o")).await;
    assert_eq!(looked_at(&proxy), 1, "smaller than what any row stands for");
}

/// L6: the body is still here when the error comes.
#[tokio::test]
async fn an_error_makes_a_small_body_worth_a_look() {
    let (provider, running) = pair(scripted([too_long(400)]), ALL).await;
    let body = history("a", 6, 200);
    assert!(body.to_string().len() < 16 * 1024);
    let answer = post(running.proxy_addr, "k", &body).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.actions(), ["folded", "recovered"]);
    assert_eq!(attempts(&provider).len(), 2);
}

/// L5: what an upstream accepts makes its token known, also where nothing else is of interest, so that the first large
/// result is evicted when it is first seen.
#[tokio::test]
async fn a_token_is_proved_by_small_requests_too() {
    let provider = compactproxy::demo::provider::Provider::start(Settings::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let store = open(&format!("sqlite://{}", folder.path().join("state.db").display()));
    let sections = "[tool_result_eviction]\nmax_result_chars = 20_000\n";
    let (running, proxy) = served(&provider.base_url(), sections, &store).await;
    let token = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJpIiwic3ViIjoicyJ9.x";
    let mut body = model(&history("a", 1, 100), "gpt-4o");
    for turn in 0..2 {
        assert!(post(running.proxy_addr, token, &body).await.actions().is_empty());
        body = next_turn(&body, &turn.to_string());
    }
    assert_eq!(looked_at(&proxy), 1, "a token that is known is as good as any key");
    let seen = [call(9), result(9, &words(9, 8_000))];
    body["messages"].as_array_mut().unwrap().extend(seen);
    assert_eq!(post(running.proxy_addr, token, &body).await.actions(), ["evicted"]);
}
