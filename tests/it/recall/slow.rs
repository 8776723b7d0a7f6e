//! A store that is too slow to say what was added to a conversation.

use std::time::Duration;

use compactproxy::memory::MemoryPath;
use compactproxy::store::{Limits, Rewrite, Store};
use serde_json::json;

use crate::support::chat::{attempts, over, parsed, words};
use crate::support::proxy::open_with;
use crate::support::recall::EVICTION;
use crate::support::wire::patiently;

use super::*;

/// Two conversations' tools and hidden calls, and not those of a third.
const FEW_OVERLAYS: usize = 9_000;

/// What is not in memory is never there in time.
fn forgetful(url: &str) -> std::sync::Arc<Store> {
    let limits = Limits { overlay_cache_bytes: FEW_OVERLAYS, lookup_bound: Duration::ZERO, ..Limits::default() };
    open_with(url, limits)
}

async fn all_is_known(store: &Store) {
    patiently("all that the store holds is known", async {
        while store.may_cover(0) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// What was removed before still is. Nothing new is: that would contradict what could not be read.
#[tokio::test]
async fn nothing_new_is_planned_where_it_is_not_known_what_was_added_before() {
    let cell = Cell { dialect: CHAT, stream: false };
    let steps = (0..4)
        .flat_map(|n| [step(move |request| says("Look. ", vec![own(request, n)])), step(|_| says("Found.", vec![]))]);
    let provider = Provider::start(scripted(steps.collect())).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("state.db").display());
    let store = forgetful(&url);
    all_is_known(&store).await;
    let proxy = over(parsed(&provider.base_url(), &sections("")), store, |_| {});
    let body = cell.asked("slow");
    let had = cell.had(&proxy, &body).await;
    for other in ["second", "third", "fourth"] {
        cell.had(&proxy, &cell.asked(other)).await;
    }
    let calls = attempts(&provider).len();
    assert_eq!(calls, 8, "each had the tool");
    let mut next = cell.dialect.went_on(&body, &had);
    let call = ToolCall { id: "call_9".to_owned(), name: "execute".to_owned(), arguments: "{}".to_owned() };
    let items = next["messages"].as_array_mut().unwrap();
    items.extend(CHAT.said("", &[call]));
    items.extend(CHAT.results(&[("call_9", &[format!("{} and more", long())])]));
    let answer = CHAT.ask(proxy.proxy_addr, "k", &next).await;
    assert_eq!(answer.actions(), ["evicted"], "what was removed before");
    let sent = attempts(&provider)[calls].json();
    let results: Vec<&Value> =
        sent["messages"].as_array().unwrap().iter().filter(|item| item["role"] == "tool").collect();
    assert_eq!(results.len(), 2);
    assert!(!results[0].to_string().contains(NEEDLE), "{}", results[0]);
    assert_eq!(results[1]["content"], json!(format!("{} and more", long())), "it goes whole");
    assert_eq!(provider.violations(), []);
}

/// The same where it is what memory said when the session began.
#[tokio::test]
async fn nothing_new_is_planned_where_it_is_not_known_what_memory_said() {
    let cell = Cell { dialect: CHAT, stream: false };
    let provider = Provider::start(scripted(Vec::new())).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let store = forgetful(&format!("sqlite://{}", folder.path().join("state.db").display()));
    all_is_known(&store).await;
    let tenant = store.tenant(&[b"credential", b"up", b"", b"authorization", b"Bearer k"]);
    let content = format!("- Ana uses tabs.\n- {}", words(1, 500).replace('\n', " "));
    let rewrite = Rewrite { content, expected: 0, merged: Vec::new() };
    store.replace_memory(&tenant, "unknown", MemoryPath::Curated, rewrite).await.unwrap();
    let sections = format!("{EVICTION}[memory]\ninject = true\n");
    let proxy = over(parsed(&provider.base_url(), &sections), store, |_| {});
    let begun = |name: &str| CHAT.request(vec![CHAT.user(&format!("Work on {name}."))], false);
    let had = cell.had(&proxy, &begun("first")).await;
    assert!(String::from_utf8_lossy(&attempts(&provider)[0].body).contains("Ana uses tabs"));
    for other in ["second", "third", "fourth", "fifth", "sixth"] {
        cell.had(&proxy, &begun(other)).await;
    }
    let mut next = CHAT.went_on(&begun("first"), &had);
    let call = ToolCall { id: "call_9".to_owned(), name: "execute".to_owned(), arguments: "{}".to_owned() };
    let items = next["messages"].as_array_mut().unwrap();
    items.extend(CHAT.said("", &[call]));
    items.extend(CHAT.results(&[("call_9", &[long()])]));
    let answer = CHAT.ask(proxy.proxy_addr, "k", &next).await;
    assert_eq!(answer.actions(), Vec::<&str>::new());
    let sent = String::from_utf8_lossy(&attempts(&provider)[6].body).into_owned();
    assert!(sent.contains(NEEDLE) && !sent.contains("Ana uses tabs"), "it could not be read: {sent:.300}");
}
