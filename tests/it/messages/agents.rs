//! Claude Code's agents under one session id.

use serde_json::{Value, json};

use super::{SYSTEM, answered, ask, body, done, loop_of, served};

/// One turn of Claude Code's: a billing block that is new each time, and breakpoints that move, on the last message and on
/// one that any compaction replaces.
fn turn_of(agent: &str, calls: usize, clock: usize) -> Value {
    let mut messages = loop_of(calls, 150);
    messages[0]["content"] = json!([{ "type": "text", "text": format!("Task of {agent}.") }]);
    for message in &mut messages {
        if message["role"] == "assistant" {
            message["content"].as_array_mut().unwrap().remove(0);
        } else if message["content"][0]["type"] == "tool_result" {
            let said = format!("{agent} found {}", message["content"][0]["content"].as_str().unwrap());
            message["content"][0]["content"] = said.into();
        }
    }
    for marked in [messages.len() / 2, messages.len() - 1] {
        messages[marked]["content"][0]["cache_control"] = json!({ "type": "ephemeral" });
    }
    let billing = format!("x-anthropic-billing-header: cc_version=2.1; cch={clock:05x};");
    let mut turn = body(&messages);
    turn["system"] = json!([{ "type": "text", "text": billing }, { "type": "text", "text": SYSTEM }]);
    turn["metadata"] = json!({ "user_id": "user_1_account__session_one" });
    turn
}

/// The messages of a body, without the breakpoint that moves.
fn messages_of(body: &Value) -> Vec<String> {
    let unmarked = |message: &Value| message.to_string().replace(r#""cache_control":{"type":"ephemeral"},"#, "");
    body["messages"].as_array().unwrap().iter().map(unmarked).collect()
}

/// A session id says nothing: agents that take turns under one are compacted each by its own history (L4, L7).
#[tokio::test]
async fn subagents_that_interleave_under_one_session_id_stay_apart() {
    let (listener, proxy) = served("[compaction]\ntrigger_messages = 14\nkeep_messages = 4\n").await;
    let agents = ["main", "reader", "writer"];
    let (mut before, mut rewritten) = ([const { Vec::new() }; 3], [0; 3]);
    for round in 1..16 {
        for (at, agent) in agents.iter().enumerate() {
            // The first one begins earlier than the others it starts.
            let Some(calls) = (round + 2usize).checked_sub(at * 2).filter(|calls| *calls > 0) else { continue };
            let turn = turn_of(agent, calls, round * 3 + at);
            let asked = ask(proxy.proxy_addr, "/v1/messages", turn.to_string());
            let (_, sent) = answered(&listener, &done()).await;
            let answer = asked.await.unwrap();
            let mut body: Value = serde_json::from_str(&sent).unwrap();
            assert_eq!((&body["system"], &body["metadata"]), (&turn["system"], &turn["metadata"]));
            body["system"] = Value::Null;
            for other in agents.iter().filter(|other| other != &agent) {
                assert!(!body.to_string().contains(&format!("{other} found")), "{other} in {agent}");
            }
            assert!(body.to_string().contains(&format!("Task of {agent}.")), "{agent}");
            let now = messages_of(&body);
            if answer.contains("checkpoint") {
                assert_eq!(now[..before[at].len()], before[at], "{agent} was not frozen");
                rewritten[at] += 1;
            }
            before[at] = now;
        }
    }
    assert!(rewritten.iter().all(|times| *times > 3), "{rewritten:?}");
}
