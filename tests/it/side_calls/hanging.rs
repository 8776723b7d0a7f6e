//! What side calls that hang keep of the buffers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use compactproxy::demo::encoding::{Encoding, encode};
use compactproxy::demo::provider::Provider;
use compactproxy::demo::script::{Fault, Gate};
use compactproxy::proxy::budget::Budget;

use super::{SECTIONS, failing};
use crate::support::chat::{changed, history, parsed, post, post_with, side_call_seen};
use crate::support::proxy::Served;
use crate::support::wire::patiently;

/// A proxy that waits for no summary, and what it counts as held.
fn counted(provider: &Provider, most: usize) -> (Served, Arc<Budget>) {
    let mut config = parsed(&provider.base_url(), SECTIONS);
    config.server.max_buffered_bytes = most;
    let budget = std::sync::Mutex::new(None);
    let proxy = changed(config, |proxy| {
        proxy.compactor.as_mut().unwrap().patience = Duration::ZERO;
        *budget.lock().unwrap() = Some(Arc::clone(&proxy.budget));
    });
    (proxy, budget.into_inner().unwrap().unwrap())
}

async fn holds_at_most(budget: &Budget, bytes: usize) {
    patiently("what is not needed to be given back", async {
        while budget.used() > bytes {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn side_calls_that_hang_leave_half_of_the_buffers_to_requests() {
    let gate = Gate::new();
    let provider = Provider::start(failing(Fault::Timeout(gate.clone()))).await.unwrap();
    let length = history("a0", 12, 1_000).to_string().len();
    let (proxy, budget) = counted(&provider, length * 6);
    for n in 0..8 {
        let answer = post(proxy.proxy_addr, &format!("k{n}"), &history(&format!("a{n}"), 12, 1_000)).await;
        assert_eq!((answer.status, answer.actions()), (200, vec!["summarized"]), "{n}");
    }
    side_call_seen(&provider, 1).await;
    holds_at_most(&budget, length * 3).await;
    assert!(budget.used() > length, "more than one is being made");
    gate.open();
    holds_at_most(&budget, 0).await;
}

#[tokio::test]
async fn a_side_call_that_hangs_holds_the_body_and_not_what_that_was_made_of() {
    let gate = Gate::new();
    let provider = Provider::start(failing(Fault::Timeout(gate.clone()))).await.unwrap();
    let (proxy, budget) = counted(&provider, 4 << 20);
    let body = history("a", 12, 1_000).to_string();
    let coded = encode(Encoding::Gzip, &[body.clone().into()]).await.unwrap().concat();
    let headers = [("authorization", "Bearer k"), ("content-encoding", "gzip")];
    let answer = post_with(proxy.proxy_addr, &headers, Bytes::from(coded)).await;
    assert_eq!((answer.status, answer.actions()), (200, vec!["summarized"]));
    side_call_seen(&provider, 1).await;
    holds_at_most(&budget, body.len()).await;
    assert_eq!(budget.used(), body.len());
    gate.open();
}
