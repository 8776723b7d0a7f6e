//! Whose hidden calls come back, and that the tools stay where they were.

use serde_json::{Value, json};

use crate::recall::{asked, read, went_on};
use crate::support::chat::{attempts, pair, post, post_with, with};
use crate::support::recall::{clients, own, says, scripted, sections, step};

#[tokio::test]
async fn two_sessions_with_the_same_history_and_the_same_answer_never_meet() {
    let steps = (1..3)
        .flat_map(|n| [step(move |request| says("Look. ", vec![own(request, n)])), step(|_| says("Found.", vec![]))]);
    let (provider, proxy) = pair(scripted(steps.collect()), &sections("")).await;
    let body = asked("apart", false);
    let say = async |session: &str, body: &Value| {
        let headers = [("authorization", "Bearer k"), ("x-compactproxy-session", session)];
        read(&post_with(proxy.proxy_addr, &headers, body.to_string().into()).await)
    };
    let (one, two) = (say("one", &body).await, say("two", &body).await);
    assert_eq!(one, two, "the same answer");
    let next = went_on(&body, &one);
    // One whose name nobody has, and one without: neither sees what was hidden in a session.
    for (session, mine) in [("one", "own_1"), ("two", "own_2"), ("three", "none")] {
        say(session, &next).await;
        let sent = String::from_utf8(attempts(&provider).pop().unwrap().body.to_vec()).unwrap();
        for hidden in ["own_1", "own_2"] {
            assert_eq!(sent.contains(hidden), hidden == mine, "{session}: {sent}");
        }
    }
    read(&post(proxy.proxy_addr, "k", &next).await);
    assert!(!String::from_utf8_lossy(&attempts(&provider).pop().unwrap().body).contains("own_"));
    assert_eq!(provider.violations(), []);
}

#[tokio::test]
async fn a_choice_that_is_made_for_one_turn_does_not_move_the_tools() {
    let steps = vec![
        step(|_| says("Fine.", vec![])),
        step(|_| says("", vec![clients(5)])),
        step(|request| says("", vec![own(request, 1)])),
        step(|_| says("", vec![clients(7)])),
    ];
    let (provider, proxy) = pair(scripted(steps), &sections("max_rounds = 2\n")).await;
    let body = asked("choice", true);
    let had = read(&post(proxy.proxy_addr, "k", &body).await);
    let next = went_on(&body, &had);
    let named = json!({"tool_choice": {"type": "function", "function": {"name": "execute"}}});
    let had = read(&post(proxy.proxy_addr, "k", &with(&next, named)).await);
    let next = went_on(&next, &had);
    // One that demands a call gets one of the client's own.
    let had = read(&post(proxy.proxy_addr, "k", &with(&next, json!({"tool_choice": "required"}))).await);
    assert_eq!((had.calls.len(), had.reason.as_str()), (1, "tool_calls"));
    let tools: Vec<usize> =
        attempts(&provider).iter().map(|exchange| exchange.json()["tools"].as_array().unwrap().len()).collect();
    assert_eq!(tools, [2, 2, 2, 1]);
    assert_eq!(provider.violations(), []);
}
