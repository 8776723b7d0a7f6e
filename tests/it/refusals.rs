//! What the provider has refused is not sent again, neither in the same call nor in the next ones.

use compactproxy::demo::provider::Settings;
use compactproxy::demo::script::{Behaviour, Reply, error};
use compactproxy::demo::window::Limit;
use compactproxy::store::{Limits, Store};
use serde_json::json;

use crate::support::chat::{attempts, history, next_turn, over, pair, parsed, post, too_long, with};

const COMPACTION: &str = "[compaction]\n";

fn scripted(replies: impl IntoIterator<Item = Reply>) -> Settings {
    Settings { behaviour: Behaviour::default().after(replies).with_summaries(), ..Settings::default() }
}

/// Whatever is stored already: the second body is shorter than the first, or there is none.
#[tokio::test]
async fn no_body_is_sent_twice() {
    let replies = (0..10).flat_map(|_| [too_long(400), error(503, "busy", "x", "y")]);
    let (provider, proxy) = pair(scripted(replies), COMPACTION).await;
    let mut body = history("a", 12, 1_000);
    for turn in 0..8 {
        let before = attempts(&provider).len();
        let answer = post(proxy.proxy_addr, "k", &body).await;
        let sent = &attempts(&provider)[before..];
        assert!(answer.status == 503 || sent.len() == 1, "{turn}");
        if let [first, second] = sent {
            assert!(second.body.len() < first.body.len(), "{turn}: {} {}", first.body.len(), second.body.len());
        }
        if turn % 3 == 2 {
            body = next_turn(&body, "Go on.");
        }
    }
}

/// A rung that the provider does not take is not in force at the next turn.
#[tokio::test]
async fn a_refused_rung_is_not_activated() {
    for (second, stays) in [
        (error(400, "no", "x", "second"), false),
        (error(422, "no", "x", "second"), false),
        (error(500, "Jinja Exception: conversation roles must alternate user/assistant", "x", "second"), false),
        (too_long(400), false),
        (error(500, "the server had an error", "x", "second"), true),
        (error(503, "busy", "x", "second"), true),
    ] {
        let told = format!("{second:?}");
        let (provider, proxy) = pair(scripted([too_long(400), second]), COMPACTION).await;
        let body = history("a", 12, 1_000);
        assert_ne!(post(proxy.proxy_addr, "k", &body).await.status, 200);
        assert_eq!(attempts(&provider).len(), 2, "{told}");
        let answer = post(proxy.proxy_addr, "k", &body).await;
        assert_eq!(answer.status, 200, "{told}");
        assert_eq!(answer.actions().contains(&"checkpoint"), stays, "{told}");
    }
}

/// Where no checkpoint is to blame, the session's own bodies go out from then on: one call a turn.
#[tokio::test]
async fn an_output_limit_that_was_told_needs_no_second_refusal() {
    let settings = Settings { limit: Limit::of(16_000), ..Settings::default() };
    let provider = compactproxy::demo::provider::Provider::start(settings).await.unwrap();
    let store = Store::in_memory_only(Limits::default()).await.unwrap();
    let proxy = over(parsed(&provider.base_url(), COMPACTION), store, |_| {});
    for (name, attempted) in [("a", 2), ("b", 1)] {
        let before = attempts(&provider).len();
        let body = with(&history(name, 10, 1_000), json!({"max_tokens": 8_000}));
        let answer = post(proxy.proxy_addr, "k", &body).await;
        assert_eq!((answer.status, answer.actions()), (200, vec!["output-lowered"]), "{name}: {}", answer.text());
        assert_eq!(attempts(&provider).len(), before + attempted, "{name}");
    }
}
