//! What began in a conversation goes on in it, whatever the configuration says later; where it is only observed nothing
//! is changed at all.

use std::sync::Arc;

use compactproxy::store::Store;

use crate::support::chat::{attempts, parsed};
use crate::support::proxy::{open, serve};

use super::*;

const OBSERVE: &str = "[[policy]]\nmode = \"observe\"\n";

/// A proxy with these tools over a store that others had before it.
async fn next(running: Served, provider: &Provider, store: &Arc<Store>, tools: &str) -> Served {
    running.stop();
    tokio::task::spawn_blocking(move || running.join()).await.unwrap();
    begun(provider, store, tools)
}

fn begun(provider: &Provider, store: &Arc<Store>, tools: &str) -> Served {
    serve(parsed(&provider.base_url(), &sections(tools)), Some(Arc::clone(store)), None)
}

/// Clients with tools of their own and without.
fn all() -> impl Iterator<Item = (Cell, bool)> {
    cells().flat_map(|cell| [(cell, false), (cell, true)])
}

/// A conversation in which something is removed; without tools of the client's, if it is to be `alone`.
fn asked((cell, alone): (Cell, bool), name: &str) -> Value {
    let mut body = cell.asked(name);
    if alone {
        body.as_object_mut().unwrap().remove("tools");
    }
    body
}

#[tokio::test]
async fn never_begins_nothing_and_takes_nothing_out_of_running_conversations() {
    for (cell, alone) in all() {
        let steps = vec![
            step(|request| says("Look. ", vec![own(request, 1)])),
            found(),
            step(|request| says("Again. ", vec![own(request, 2)])),
            found(),
        ];
        let provider = Provider::start(scripted(steps)).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let store = open(&format!("sqlite://{}", folder.path().join("state.db").display()));
        let proxy = begun(&provider, &store, "");
        let body = asked((cell, alone), "never");
        let had = cell.had(&proxy, &body).await;
        assert_eq!(had.text, "Look. It is 4711.", "{cell:?}");
        let proxy = next(proxy, &provider, &store, "inject = \"never\"\n").await;
        let body = cell.dialect.went_on(&body, &had);
        let had = cell.had(&proxy, &body).await;
        assert_eq!(
            (had.text.as_str(), had.waits),
            ("Again. It is 4711.", false),
            "{cell:?} {alone}: the tool works on"
        );
        cell.had(&proxy, &cell.dialect.went_on(&body, &had)).await;
        assert_one_grows_from_the_other(&cell.sent(&provider));
        let sent = attempts(&provider);
        assert_eq!(sent.len(), 5);
        assert!(sent.iter().all(|exchange| exchange.json()["tools"] == sent[0].json()["tools"]), "frozen");
        assert!(String::from_utf8_lossy(&sent[4].body).contains("own_2"), "put back");
        // Another conversation gets none.
        cell.dialect.ask(proxy.proxy_addr, "k", &asked((cell, alone), "another")).await;
        let last = attempts(&provider).pop().unwrap();
        assert!(!String::from_utf8_lossy(&last.body).contains("read_evicted"), "{cell:?} {alone}");
    }
}

#[tokio::test]
async fn what_is_only_observed_is_the_clients_own_body_and_goes_on_as_before_when_it_is_observed_no_more() {
    for (cell, alone) in all() {
        let steps = vec![step(|request| says("Look. ", vec![own(request, 1)])), found()];
        let provider = Provider::start(scripted(steps)).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let store = open(&format!("sqlite://{}", folder.path().join("state.db").display()));
        let proxy = begun(&provider, &store, "");
        let body = asked((cell, alone), "observed");
        let had = cell.had(&proxy, &body).await;
        let body = cell.dialect.went_on(&body, &had);
        cell.had(&proxy, &body).await;
        let proxy = next(proxy, &provider, &store, OBSERVE).await;
        cell.dialect.ask(proxy.proxy_addr, "k", &body).await;
        let proxy = next(proxy, &provider, &store, "").await;
        cell.had(&proxy, &body).await;
        let sent = attempts(&provider);
        assert_eq!(sent.len(), 5, "{cell:?} {alone}");
        assert_eq!(sent[3].body, cell.dialect.bytes(&body), "{cell:?} {alone}: no byte is changed");
        assert_eq!(sent[4].body, sent[2].body, "{cell:?} {alone}: nothing was forgotten");
    }
}
