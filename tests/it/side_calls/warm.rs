//! A summary that is asked of the cached prefix.

use compactproxy::demo::answer::Answer;
use compactproxy::demo::encoding::Encoding;
use compactproxy::demo::provider::Settings;
use compactproxy::demo::request::ModelRequest;
use compactproxy::demo::script::{Behaviour, Fault, Reply, asks_for_summary, summary};
use compactproxy::demo::window::Limit;
use serde_json::json;

use super::HEADING;
use crate::support::chat::{
    attempts, call, history, next_turn, pair, post, post_with, result, side_call_seen, side_calls, with, words,
};
use crate::support::wire::patiently;

type Warm = Box<dyn Fn(&ModelRequest) -> Reply + Send + Sync>;

/// A session whose answers report cached tokens, up to the trigger: the summary is asked of the cached prefix.
#[tokio::test]
async fn a_warm_cache_is_used() {
    let tool = json!({"type": "function", "function": {"name": "execute", "parameters": {"type": "object"}}});
    let too_long = || Reply::Raw { status: 200, headers: vec![], body: vec![b' '; 9 << 20].into() };
    let tool_call = Fault::ToolCall;
    let cases: [(Option<Warm>, Encoding); 5] = [
        (None, Encoding::Identity),
        (None, Encoding::Gzip),
        // However it fails, a transcript is asked of instead.
        (Some(Box::new(move |request| tool_call.reply(request))), Encoding::Identity),
        (Some(Box::new(|_| Reply::HangUp)), Encoding::Identity),
        (Some(Box::new(move |_| too_long())), Encoding::Identity),
    ];
    for (warm, encoding) in cases {
        let behaviour = Behaviour::new(move |request| match (asks_for_summary(request), &warm) {
            (true, Some(fails)) if request.messages().len() > 1 => fails(request),
            (true, _) => Reply::Say(Answer::text(summary(request))),
            _ => Reply::Say(Answer::text("Done.")),
        });
        let settings = Settings { limit: Limit::of(20_000), behaviour, encoding, ..Settings::default() };
        let sections = "[compaction]\n[[window]]\nmodel = \"*\"\ninput = 20000\n";
        let (provider, proxy) = pair(settings, sections).await;
        let mut body = with(&history("a", 4, 1_500), json!({"tools": [tool], "tool_choice": "auto", "temperature": 0}));
        let mut turn = 4;
        while side_calls(&provider).is_empty() {
            assert!(turn < 30, "the trigger is never reached");
            let headers = [("authorization", "Bearer k"), ("accept-encoding", "gzip")];
            let answer = post_with(proxy.proxy_addr, &headers, body.to_string().into()).await;
            assert_eq!((answer.status, answer.header("content-encoding") == "gzip"), (200, encoding == Encoding::Gzip));
            let messages = body["messages"].as_array_mut().unwrap();
            messages.extend([call(turn), result(turn, &words(turn as u64 + 90, 500))]);
            turn += 1;
            // The summary was begun, short of the trigger (13,333): nothing else is sent before it is asked for.
            if attempts(&provider).pop().unwrap().usage.prompt > 12_000 {
                side_call_seen(&provider, 1).await;
            }
        }
        let asked = side_calls(&provider).remove(0).json();
        assert_eq!((&asked["tools"], &asked["tool_choice"]), (&json!([tool]), &json!("auto")));
        let messages = asked["messages"].as_array().unwrap();
        assert!(messages.len() > 2);
        assert_eq!(messages[..messages.len() - 1], body["messages"].as_array().unwrap()[..messages.len() - 1]);
        // The turn at the trigger, asked again until its summary is there.
        let last = next_turn(&body, &format!("On. {}", words(3, 2_500)));
        patiently("the summary", async {
            while !post(proxy.proxy_addr, "k", &last).await.actions().contains(&"summarized") {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let sent = attempts(&provider).pop().unwrap();
        assert!(String::from_utf8_lossy(&sent.body).contains(HEADING));
        assert_eq!(provider.violations(), []);
    }
}
