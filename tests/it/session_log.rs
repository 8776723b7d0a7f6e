//! What passes is logged, whether or not it is read on its way, and nobody reads another's.

mod chains;
mod commands;
mod exports;
mod own;

use std::sync::Arc;

use compactproxy::demo::provider::{Provider, Settings};
use compactproxy::proxy::Proxy;
use compactproxy::store::Store;
use compactproxy::store::log::{HistoryPage, Logged, Scope, Search, SessionInfo};
use serde_json::{Value, json};

use crate::support::chat::{parsed, post, with};
use crate::support::proxy::{Served, open};

const ALL_ON: &str = "[tool_result_eviction]\n[compaction]\n[sessions]\n";
pub const PAGE: HistoryPage = HistoryPage { last: 100, before: None, tip: None, agent: None };

/// The program over a store of its own.
struct Stand {
    folder: tempfile::TempDir,
    provider: Provider,
    store: Arc<Store>,
    proxy: Arc<Proxy>,
    running: Served,
}

impl Stand {
    async fn new(sections: &str) -> Self {
        Self::with(Settings::default(), sections).await
    }

    async fn with(settings: Settings, sections: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&format!("sqlite://{}", folder.path().join("state.db").display()));
        let provider = Provider::start(settings).await.unwrap();
        let proxy = Proxy::new(parsed(&provider.base_url(), sections), Some(Arc::clone(&store))).unwrap();
        let running = Served::of(Arc::clone(&proxy));
        Self { folder, provider, store, proxy, running }
    }

    async fn say(&self, key: &str, body: &Value) {
        let answer = post(self.running.proxy_addr, key, body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    async fn logged(&self) -> Vec<(SessionInfo, Vec<Logged>)> {
        logged(&self.proxy, &self.store).await
    }
}

/// All that is logged.
async fn logged(proxy: &Proxy, store: &Store) -> Vec<(SessionInfo, Vec<Logged>)> {
    if let Some(journal) = &proxy.compactor.as_ref().unwrap().journal {
        journal.flush().await;
    }
    store.flush_log().await;
    let mut all = Vec::new();
    for session in store.all_sessions().await.unwrap() {
        let messages = store.any_history(session.id, PAGE).await.unwrap().unwrap();
        all.push((session, messages));
    }
    all
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn body(messages: &[Value]) -> Value {
    json!({"model": "gpt-4o", "messages": messages})
}

#[tokio::test]
async fn what_is_said_is_logged_and_only_for_whom_it_was_said() {
    let stand = Stand::new(ALL_ON).await;
    let first = [json!({"role": "system", "content": "be brief"}), user("find getUserName")];
    stand.say("one", &body(&first)).await;
    let all = stand.logged().await;
    let [(session, messages)] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!((session.title.as_str(), messages.len()), ("find getUserName", 2), "{messages:?}");
    assert!(messages[1].answered, "the answer, before its client sends it back");
    let answer: Value = serde_json::from_str(&messages[1].json).unwrap();
    let turns = [first[0].clone(), first[1].clone(), answer, user("go on")];
    stand.say("one", &body(&turns)).await;
    stand.say("two", &body(&first)).await;
    let all = stand.logged().await;
    assert_eq!(all.len(), 2, "another tenant's is another session: {all:?}");
    let (own, messages) = all.iter().find(|(session, _)| session.messages > 2).unwrap();
    let answered: Vec<bool> = messages.iter().map(|message| message.answered).collect();
    assert_eq!(answered, [false, false, false, true], "in place of the answer stands what its client sent");
    let search = Search { query: "get_user_name".to_owned(), session: None, agent: None, max: 10 };
    let hits = stand.store.search_log(&own.tenant, &Scope::Tenant, &search).await.unwrap().best;
    assert_eq!(hits.len(), 1, "{hits:?}");
    assert_eq!(hits[0].session, own.id);
    assert_eq!(stand.store.dropped_messages(), 0);
    drop(stand.provider);
}

#[tokio::test]
async fn leading_messages_are_kept_once_and_again_where_they_changed() {
    let stand = Stand::new(ALL_ON).await;
    for text in ["be brief", "be brief", "be thorough"] {
        stand.say("k", &body(&[json!({"role": "system", "content": text}), user("hello")])).await;
    }
    let all = stand.logged().await;
    let [(session, messages)] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!((session.messages, messages.len()), (2, 2), "beside the conversation: {messages:?}");
    let (written, _) = stand.store.written(session.id, 0).await.unwrap();
    let leading: Vec<String> = written.iter().filter(|message| message.number == 0).map(Logged::text).collect();
    assert_eq!(leading, ["be brief", "be thorough"]);
}

#[tokio::test]
async fn bodies_that_are_read_are_logged_like_those_that_are_not() {
    let stand = Stand::new(ALL_ON).await;
    let long = "some words of no matter ".repeat(2_000);
    stand.say("k", &body(&[user(&long)])).await;
    let messages = &stand.logged().await[0].1;
    assert_eq!(messages[0].text(), long);
    assert!(messages[1].answered);
}

#[tokio::test]
async fn nothing_is_logged_where_that_is_off_or_nobody_is_proved() {
    let stand = Stand::new("[compaction]\n").await;
    stand.say("k", &body(&[user("hello")])).await;
    assert!(stand.logged().await.is_empty());
    let policy = "[compaction]\n[sessions]\n[[policy]]\nmatch = { model = \"secret*\" }\nsessions = false\n";
    let stand = Stand::new(policy).await;
    stand.say("k", &with(&body(&[user("hello")]), json!({"model": "secret-1"}))).await;
    assert!(stand.logged().await.is_empty());
    // A token that no upstream has answered yet.
    let token = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJpIiwic3ViIjoicyJ9.c2ln";
    stand.say(token, &body(&[user("hello")])).await;
    assert!(stand.logged().await.is_empty());
    stand.say(token, &body(&[user("hello")])).await;
    assert_eq!(stand.logged().await.len(), 1);
}
