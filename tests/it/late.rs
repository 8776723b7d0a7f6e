//! A recovery does not wait for the store; what it removed is kept all the same.

use compactproxy::demo::provider::{Provider, Settings};
use compactproxy::demo::window::Limit;
use sqlx::{ConnectOptions, Executor, SqliteConnection};

use crate::recovery::COMPACTION;
use crate::support::chat::{attempts, get, history, ids, next_turn, over, parsed, post};
use crate::support::proxy::open_impatient;

/// Another process that holds the file.
async fn holder(url: &str) -> SqliteConnection {
    let options: sqlx::sqlite::SqliteConnectOptions = url.parse().unwrap();
    let mut holder = options.connect().await.unwrap();
    holder.execute("BEGIN IMMEDIATE").await.unwrap();
    holder
}

#[tokio::test]
async fn what_a_recovery_removed_while_the_store_was_held_up_outlives_an_orderly_end() {
    let settings = Settings { limit: Limit::of(6_000), ..Settings::default() };
    let provider = Provider::start(settings).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("state.db").display());
    let serve = || {
        let store = open_impatient(&url);
        (over(parsed(&provider.base_url(), COMPACTION), store.clone(), |_| {}), store)
    };
    let texts = async |addr, found: &[String]| {
        let mut texts = Vec::new();
        for id in found {
            let read = get(addr, &format!("/_compactproxy/evicted/{id}")).await;
            assert_eq!(read.status, 200, "{id}");
            texts.push(read.body);
        }
        texts
    };
    let (proxy, store) = serve();
    let mut held = holder(&url).await;
    let body = history("a", 12, 1_000);
    let answer = post(proxy.proxy_addr, "k", &body).await;
    assert!(answer.actions().contains(&"recovered"), "{:?}", answer.actions());
    let found = ids(&attempts(&provider).pop().unwrap().body);
    assert!(!found.is_empty());
    let removed = texts(proxy.proxy_addr, &found).await;
    held.execute("ROLLBACK").await.unwrap();

    let next = next_turn(&body, "Go on.");
    assert_eq!(post(proxy.proxy_addr, "k", &next).await.actions(), ["checkpoint"]);
    store.close().await;
    drop(proxy);
    let (proxy, _store) = serve();
    assert_eq!(post(proxy.proxy_addr, "k", &next).await.actions(), ["checkpoint"]);
    let sent = attempts(&provider);
    assert_eq!(sent[sent.len() - 1].body, sent[sent.len() - 2].body);
    assert_eq!(texts(proxy.proxy_addr, &found).await, removed);
}
