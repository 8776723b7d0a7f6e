//! From when on the model is offered the tool that reads removed texts.

use compactproxy::demo::answer::Answer;
use compactproxy::demo::provider::Exchange;
use compactproxy::demo::script::Reply;
use serde_json::json;

use crate::support::chat::{attempts, history, next_turn, pair, post, too_long, with};
use crate::support::recall::{own, says, scripted, step};

fn is_offered(exchange: &Exchange) -> bool {
    exchange.request().unwrap().tool_names().contains(&"read_evicted")
}

#[tokio::test]
async fn what_recovery_removes_is_in_reach_from_the_next_request_on() {
    let steps = vec![
        step(|_| too_long(400)),
        step(|_| Reply::Say(Answer::text("Recovered."))),
        step(|request| says("", vec![own(request, 1)])),
        step(|_| says("Read.", vec![])),
    ];
    let (provider, proxy) = pair(scripted(steps), "[compaction]\n[tools]\n").await;
    let tool = json!({"type": "function", "function": {"name": "execute", "parameters": {"type": "object"}}});
    let body = with(&history("later", 12, 1_000), json!({"tools": [tool]}));
    let answer = post(proxy.proxy_addr, "k", &body).await;
    assert!(answer.actions().contains(&"recovered"), "{:?}", answer.actions());
    let answer = post(proxy.proxy_addr, "k", &next_turn(&body, "And now?")).await;
    assert!(answer.text().contains("Read."), "{}", answer.text());
    let offered: Vec<bool> = attempts(&provider).iter().map(is_offered).collect();
    // Not in the second attempt: nothing could be tried after that.
    assert_eq!(offered, [false, false, true, true]);
    assert_eq!(provider.violations(), []);
}
