//! What side calls may cost, and who never causes one.

use compactproxy::demo::provider::Settings;
use compactproxy::demo::script::{Behaviour, Reply, asks_for_summary, summary};
use compactproxy::demo::window::Limit;
use serde_json::json;

use crate::support::chat::{history, pair, post, side_calls};

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
        let made = side_calls(&provider).len();
        assert!(made > 0);
        assert_eq!(post(proxy.proxy_addr, "k", &history("b", 5, 1_000)).await.status, 200);
        assert_eq!(side_calls(&provider).len() > made, followed, "{left}");
    }
}

/// A client whose first message changes with every turn never comes back to what was summarized.
#[tokio::test]
async fn summaries_for_histories_that_never_come_back_are_given_up() {
    let behaviour = Behaviour::default().with_summaries();
    let settings = Settings { limit: Limit::of(6_000), behaviour, ..Settings::default() };
    let (provider, proxy) = pair(settings, SECTIONS).await;
    let mut made = Vec::new();
    for turn in 0..16 {
        assert_eq!(post(proxy.proxy_addr, "k", &history(&format!("at {turn}"), 5, 1_000)).await.status, 200);
        made.push(side_calls(&provider).len());
    }
    assert!(made.windows(2).take(7).all(|two| two[0] < two[1]), "{made:?}");
    // Eight that came to something; of the next ten the last is tried.
    assert_eq!(made[11], made[15], "{made:?}");
}
