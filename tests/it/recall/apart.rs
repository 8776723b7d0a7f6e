//! Whose hidden calls come back, and that the tools stay where they were.

use serde_json::json;

use crate::support::chat::{attempts, post_with, send_to, whole, with};

use super::*;

#[tokio::test]
async fn two_sessions_with_the_same_history_and_the_same_answer_never_meet() {
    let chat = Cell { dialect: CHAT, stream: false };
    let steps = (1..3)
        .flat_map(|n| [step(move |request| says("Look. ", vec![own(request, n)])), step(|_| says("Found.", vec![]))]);
    let (provider, proxy) = pair(scripted(steps.collect()), &sections("")).await;
    let body = chat.asked("apart");
    let say = async |session: &str, body: &Value| {
        let headers = [("authorization", "Bearer k"), ("x-compactproxy-session", session)];
        CHAT.read(&post_with(proxy.proxy_addr, &headers, body.to_string().into()).await)
    };
    let (one, two) = (say("one", &body).await, say("two", &body).await);
    assert_eq!(one.items, two.items, "the same answer");
    let next = CHAT.went_on(&body, &one);
    // One whose name nobody has, and one without: neither sees what was hidden in a session.
    for (session, mine) in [("one", "own_1"), ("two", "own_2"), ("three", "none")] {
        say(session, &next).await;
        let sent = String::from_utf8(attempts(&provider).pop().unwrap().body.to_vec()).unwrap();
        for hidden in ["own_1", "own_2"] {
            assert_eq!(sent.contains(hidden), hidden == mine, "{session}: {sent}");
        }
    }
    chat.had(&proxy, &next).await;
    assert!(!String::from_utf8_lossy(&attempts(&provider).pop().unwrap().body).contains("own_"));
    assert_eq!(provider.violations(), []);
}

/// What a tool found may be out of an agent's memory, or out of its sessions.
#[tokio::test]
async fn what_one_agents_model_looked_up_is_put_back_for_no_other_agent() {
    for cell in cells() {
        let steps = (1..3).flat_map(|n| {
            [step(move |request| says("Look. ", vec![own(request, n)])), step(|_| says("Found.", vec![]))]
        });
        let (provider, proxy) = pair(scripted(steps.collect()), &sections("")).await;
        let body = cell.asked("agents");
        let say = async |agent: &str, body: &Value| {
            let headers = [("authorization", "Bearer k"), ("x-compactproxy-agent", agent)];
            let url = format!("http://{}{}", proxy.proxy_addr, cell.dialect.path());
            let answer = send_to(&url, &headers, cell.dialect.bytes(body)).await.unwrap();
            cell.dialect.read(&whole(answer).await)
        };
        let (one, two) = (say("one", &body).await, say("two", &body).await);
        assert_eq!(one.text, two.text, "the same answer");
        let next = cell.dialect.went_on(&body, &one);
        for (agent, mine) in [("one", "own_1"), ("two", "own_2"), ("three", "none")] {
            say(agent, &next).await;
            let sent = String::from_utf8(attempts(&provider).pop().unwrap().body.to_vec()).unwrap();
            for hidden in ["own_1", "own_2"] {
                assert_eq!(sent.contains(hidden), hidden == mine, "{cell:?} {agent}: {sent}");
            }
        }
    }
}

#[tokio::test]
async fn a_choice_that_is_made_for_one_turn_does_not_move_the_tools() {
    let chat = Cell { dialect: CHAT, stream: true };
    let steps = vec![
        step(|_| says("Fine.", vec![])),
        step(|_| says("", vec![clients(5)])),
        step(|request| says("", vec![own(request, 1)])),
        step(|_| says("", vec![clients(7)])),
    ];
    let (provider, proxy) = pair(scripted(steps), &sections("max_rounds = 2\n")).await;
    let body = chat.asked("choice");
    let had = chat.had(&proxy, &body).await;
    let next = CHAT.went_on(&body, &had);
    let named = json!({"tool_choice": {"type": "function", "function": {"name": "execute"}}});
    let had = chat.had(&proxy, &with(&next, named)).await;
    let next = CHAT.went_on(&next, &had);
    // One that demands a call gets one of the client's own.
    let had = chat.had(&proxy, &with(&next, json!({"tool_choice": "required"}))).await;
    assert_eq!((had.calls.len(), had.waits), (1, true));
    let tools: Vec<usize> =
        attempts(&provider).iter().map(|exchange| exchange.json()["tools"].as_array().unwrap().len()).collect();
    assert_eq!(tools, [2, 2, 2, 1]);
    assert_eq!(provider.violations(), []);
}
