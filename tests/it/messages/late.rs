//! Signed thinking, and a store that says too late what was removed before it (A27, L8).

use std::sync::Arc;
use std::time::Duration;

use compactproxy::demo::answer::{Answer, ToolCall};
use compactproxy::demo::provider::{Exchange, Provider, Settings, Verdict};
use compactproxy::demo::script::{Behaviour, Reply};
use compactproxy::store::{Limits, Store};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::EVICTION;
use crate::support::chat::{attempts, over, parsed, words};
use crate::support::json;
use crate::support::proxy::{Served, open, open_with};

/// A client in one endless loop, and the provider that verifies what its thinking is bound to.
struct Stage {
    provider: Provider,
    folder: TempDir,
    body: Value,
}

impl Stage {
    async fn new() -> Self {
        let behaviour = Behaviour::new(|request| {
            let id = format!("toolu_{}", request.messages().len());
            let call = ToolCall { id, name: "run".to_owned(), arguments: "{}".to_owned() };
            Reply::Say(Answer { calls: vec![call], ..Answer::text("I go on.") })
        });
        let provider = Provider::start(Settings { behaviour, ..Settings::default() }).await.unwrap();
        let body = json!({ "model": "claude-x", "max_tokens": 500, "system": "You are the agent.",
            "thinking": { "type": "adaptive" }, "tools": [{ "name": "run", "input_schema": { "type": "object" } }],
            "messages": [{ "role": "user", "content": "Look around." }] });
        Self { provider, folder: tempfile::tempdir().unwrap(), body }
    }

    fn serve(&self, open: impl FnOnce(&str) -> Arc<Store>) -> (Served, Arc<Store>) {
        let url = format!("sqlite://{}", self.folder.path().join("state.db").display());
        let store = open(&url);
        (over(parsed(&self.provider.base_url(), EVICTION), Arc::clone(&store), |_| {}), store)
    }

    /// Sends the history and goes on from the answer, with a result of so many tokens: what reached the provider.
    async fn turn(&mut self, (proxy, _): &(Served, Arc<Store>), tokens: usize) -> Vec<Exchange> {
        let before = attempts(&self.provider).len();
        let url = format!("http://{}/v1/messages", proxy.proxy_addr);
        let headers = [("x-api-key", "k"), ("anthropic-version", "2023-06-01")];
        let (status, answer) = json::post(&url, &headers, &self.body).await;
        assert_eq!(status, 200, "{answer}");
        let messages = self.body["messages"].as_array_mut().unwrap();
        let call = answer["content"].as_array().unwrap().last().unwrap()["id"].clone();
        let seed = messages.len() as u64;
        messages.push(json!({ "role": "assistant", "content": answer["content"] }));
        let result = json!({ "type": "tool_result", "tool_use_id": call, "content": words(seed, tokens) });
        messages.push(json!({ "role": "user", "content": [result] }));
        attempts(&self.provider).split_off(before)
    }
}

/// Ends a proxy when all that it noted is written.
async fn end((proxy, store): (Served, Arc<Store>)) {
    tokio::task::spawn_blocking(move || {
        proxy.stop();
        proxy.join();
    })
    .await
    .unwrap();
    store.close().await;
}

/// Rows that are not in memory are never there in time.
fn late(url: &str) -> Arc<Store> {
    open_with(url, Limits { lookup_bound: Duration::ZERO, ..Limits::default() })
}

fn verdicts(sent: &[Exchange]) -> Vec<bool> {
    sent.iter().map(|attempt| attempt.verdict == Verdict::Accepted).collect()
}

/// The messages of what was accepted, and whether something in them was evicted.
fn accepted(sent: &[Exchange]) -> (Value, bool) {
    let messages = sent.last().unwrap().json()["messages"].take();
    let evicted = messages.to_string().contains("/_compactproxy/evicted/");
    (messages, evicted)
}

fn begins_with(longer: &Value, shorter: &Value) -> bool {
    longer.as_array().unwrap().starts_with(shorter.as_array().unwrap())
}

/// What was evicted is bound: the client's own body is refused, and then the rows are waited for, however late they
/// were. The next turn goes on from that, with another store as well.
#[tokio::test]
async fn thinking_that_is_bound_to_what_was_evicted_survives_a_store_that_is_late() {
    let mut stage = Stage::new().await;
    let proxy = stage.serve(open);
    stage.turn(&proxy, 3_000).await;
    let (mut before, evicted) = accepted(&stage.turn(&proxy, 20).await);
    assert!(evicted);
    end(proxy).await;
    let proxy = stage.serve(late);
    for tokens in [3_000, 20, 20, 20, 20] {
        let sent = stage.turn(&proxy, tokens).await;
        let (messages, evicted) = accepted(&sent);
        assert!(evicted && *verdicts(&sent).last().unwrap(), "{:?}", verdicts(&sent));
        assert!(begins_with(&messages, &before), "what the thinking is bound to is as it was");
        before = messages;
    }
    end(proxy).await;
    let proxy = stage.serve(open);
    for _ in 0..3 {
        let sent = stage.turn(&proxy, 20).await;
        let (messages, _) = accepted(&sent);
        assert_eq!(verdicts(&sent), [true], "one attempt");
        assert!(begins_with(&messages, &before));
        before = messages;
    }
}
