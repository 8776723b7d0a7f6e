//! What was hidden is put back as long as the client's history is the one it was hidden from.

use compactproxy::demo::provider::Provider;
use http_body_util::BodyExt;

use crate::support::chat::{attempts, parsed, send_to};
use crate::support::dialects::Messages;
use crate::support::proxy::{open, serve};

use super::*;

#[tokio::test]
async fn what_was_hidden_is_put_back_after_a_restart() {
    for cell in cells() {
        let steps = vec![
            step(|request| says("Look. ", vec![own(request, 1)])),
            step(|request| says("Both. ", vec![clients(7), own(request, 2)])),
        ];
        let provider = Provider::start(scripted(steps)).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("state.db").display());
        let start = || serve(parsed(&provider.base_url(), &sections("")), Some(open(&url)), None);
        let body = cell.asked("restart");
        let proxy = start();
        let had = cell.had(&proxy, &body).await;
        let next = cell.dialect.went_on(&body, &had);
        cell.had(&proxy, &next).await;
        proxy.stop();
        tokio::task::spawn_blocking(move || proxy.join()).await.unwrap();
        let proxy = start();
        cell.had(&proxy, &next).await;
        let seen = attempts(&provider);
        assert_eq!(seen.len(), 4);
        assert_eq!(seen[3].body, seen[2].body, "the same bytes");
        assert_one_grows_from_the_other(&cell.sent(&provider));
        assert!(cell.sent(&provider)[3].contains("own_2"));
        // Another tenant with the same history has nothing of it.
        cell.dialect.had(proxy.proxy_addr, "other", &next).await;
        let other = attempts(&provider).pop().unwrap();
        assert!(!String::from_utf8_lossy(&other.body).contains("own_"));
        assert_unhurt(&provider);
    }
}

#[tokio::test]
async fn an_edited_answer_stays_as_the_client_has_it() {
    for cell in cells() {
        let steps = vec![step(|request| says("Look. ", vec![own(request, 1)])), step(|_| says("Found.", vec![]))];
        let (provider, proxy) = staged(steps, "").await;
        let body = cell.asked("edited");
        let mut had = cell.had(&proxy, &body).await;
        had.items = cell.dialect.said(&format!("{} (edited)", had.text), &[]);
        cell.had(&proxy, &cell.dialect.went_on(&body, &had)).await;
        let last = attempts(&provider).pop().unwrap();
        assert!(!String::from_utf8_lossy(&last.body).contains("own_1"));
        assert!(String::from_utf8_lossy(&last.body).contains("Look. Found. (edited)"));
        assert_unhurt(&provider);
    }
}

/// A fork has what was hidden before it, and not what was hidden in the other branch.
#[tokio::test]
async fn a_fork_has_what_was_hidden_before_it_alone() {
    for cell in cells() {
        let steps = vec![
            step(|request| says("Look. ", vec![own(request, 1)])),
            step(|_| says("Found.", vec![])),
            step(|request| says("", vec![own(request, 2)])),
            step(|_| says("Again.", vec![])),
        ];
        let (provider, proxy) = staged(steps, "").await;
        let body = cell.asked("fork");
        let had = cell.had(&proxy, &body).await;
        let next = cell.dialect.went_on(&body, &had);
        let more = cell.had(&proxy, &next).await;
        let mut other = next.clone();
        let items = other[cell.dialect.array()].as_array_mut().unwrap();
        items.pop();
        items.push(cell.dialect.user("Another way."));
        cell.had(&proxy, &other).await;
        let fork = attempts(&provider).pop().unwrap();
        let fork = String::from_utf8_lossy(&fork.body).into_owned();
        assert!(fork.contains("own_1") && !fork.contains("own_2"), "{cell:?}");
        cell.had(&proxy, &cell.dialect.went_on(&next, &more)).await;
        let back = attempts(&provider).pop().unwrap();
        assert!(String::from_utf8_lossy(&back.body).contains("own_2"), "{cell:?}");
        assert_unhurt(&provider);
    }
}

/// A count has what was put back, and the tools.
#[tokio::test]
async fn a_count_has_what_was_hidden() {
    let cell = Cell { dialect: &Messages, stream: false };
    let (provider, proxy) = staged(vec![step(|request| says("", vec![own(request, 1)])), found()], "").await;
    let body = cell.asked("count");
    let had = cell.had(&proxy, &body).await;
    let next = cell.dialect.went_on(&body, &had);
    cell.had(&proxy, &next).await;
    let url = format!("http://{}/v1/messages/count_tokens", proxy.proxy_addr);
    let counted = send_to(&url, &[("x-api-key", "k")], cell.dialect.bytes(&next)).await.unwrap();
    counted.into_body().collect().await.unwrap();
    let counted = provider.requests().pop().unwrap();
    assert!(counted.target.ends_with("count_tokens"));
    let last = attempts(&provider).pop().unwrap();
    assert_eq!(counted.body, last.body);
}
