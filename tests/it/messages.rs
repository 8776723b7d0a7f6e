//! Anthropic Messages through the proxy, against an upstream that is played by hand.

use std::net::SocketAddr;
use std::sync::Arc;

use compactproxy::config::TenantRule;
use compactproxy::proxy::tenant::{Asker, Verified, identify};
use compactproxy::store::WindowKey;
use http::{HeaderMap, Uri};
use serde_json::{Value, json};

use crate::support::chat::{over, parsed, words};
use crate::support::proxy::{Served, open, start};
use crate::support::wire::{Listener, connect};

const EVICTION: &str = "[tool_result_eviction]\nmax_result_chars = 2000\npreview_chars = 100\n";
const SYSTEM: &str = "You are the agent.";

async fn served(sections: &str) -> (Listener, Served) {
    let listener = Listener::bind().await;
    let proxy = start(parsed(&listener.url(), sections));
    (listener, proxy)
}

/// Sends a request in the background; the answer is the whole response as text.
fn ask(addr: SocketAddr, path: &str, body: String) -> tokio::task::JoinHandle<String> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: h\r\nx-api-key: k\r\nanthropic-version: 2023-06-01\r\n\
         anthropic-beta: some-beta\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    tokio::spawn(async move {
        let mut client = connect(addr).await;
        client.send(head + &body).await;
        String::from_utf8(client.rest().await).unwrap()
    })
}

/// What the upstream receives of the agent's next attempt, answered with `answer`. Side calls fail.
async fn answered(listener: &Listener, answer: &str) -> (String, String) {
    loop {
        let mut server = listener.accept().await;
        let head = server.head().await.to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let body = String::from_utf8(server.exactly(length.trim().parse().unwrap()).await).unwrap();
        let agent =
            body.contains(SYSTEM) && !body.contains("CONTEXT CHECKPOINT") && !body.contains("conversation-summary");
        let answer = if agent { answer } else { "HTTP/1.1 500 No\r\nconnection: close\r\ncontent-length: 0\r\n\r\n" };
        server.send(answer).await;
        if agent {
            return (head, body);
        }
    }
}

fn reply(status: &str, kind: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn done() -> String {
    let body = r#"{"type":"message","role":"assistant","model":"claude-x","content":[{"type":"text","text":"Done."}],"stop_reason":"end_turn","usage":{"input_tokens":5,"output_tokens":2}}"#;
    reply("200 OK", "application/json", body)
}

fn body(messages: &[Value]) -> Value {
    json!({ "model": "claude-x", "max_tokens": 500, "system": SYSTEM, "thinking": { "type": "adaptive" }, "messages": messages })
}

/// A user's message, and some calls with results; each thought is signed.
fn loop_of(calls: usize, tokens: usize) -> Vec<Value> {
    let mut messages = vec![json!({ "role": "user", "content": "Look around." })];
    for n in 0..calls {
        let thought = json!({ "type": "thinking", "thinking": "hm", "signature": format!("s{n}") });
        let call = json!({ "type": "tool_use", "id": format!("t{n}"), "name": "shell", "input": { "command": "ls" } });
        messages.push(json!({ "role": "assistant", "content": [thought, call] }));
        let result =
            json!({ "type": "tool_result", "tool_use_id": format!("t{n}"), "content": words(n as u64, tokens) });
        messages.push(json!({ "role": "user", "content": [result] }));
    }
    messages
}

#[tokio::test]
async fn a_count_is_of_what_would_be_sent_and_leaves_no_trace() {
    let (listener, proxy) = served(EVICTION).await;
    let large = body(&loop_of(1, 3_000)).to_string();
    let counted = ask(proxy.proxy_addr, "/v1/messages/count_tokens", large.clone());
    let (_, sent) = answered(&listener, &reply("200 OK", "application/json", r#"{"input_tokens":9}"#)).await;
    assert!(sent.len() < large.len() / 2 && sent.contains("/_compactproxy/evicted/"));
    assert!(counted.await.unwrap().ends_with(r#"{"input_tokens":9}"#));
    // The result was not forwarded yet: its first sight is now, and looks the same.
    let asked = ask(proxy.proxy_addr, "/v1/messages", large);
    let (_, again) = answered(&listener, &done()).await;
    assert_eq!(again, sent);
    assert!(asked.await.unwrap().contains("x-compactproxy-action: evicted"));
}

/// The tools that are offered are counted: those that the first removal brings, and those that are there for good.
#[tokio::test]
async fn a_count_has_the_tools_that_are_offered() {
    for inject in ["auto", "always"] {
        let (listener, proxy) =
            served(&format!("{EVICTION}[tools]\ninject = \"{inject}\"\npage_chars = 1_900\n")).await;
        let mut asked = body(&loop_of(1, 3_000));
        asked["messages"][1]["content"].as_array_mut().unwrap().remove(0);
        asked["tools"] = json!([{"name": "shell", "input_schema": {"type": "object"}}]);
        let first = asked.to_string();
        asked["messages"]
            .as_array_mut()
            .unwrap()
            .extend([json!({"role": "assistant", "content": "Done."}), json!({"role": "user", "content": "Go on."})]);
        for body in [first, asked.to_string()] {
            let counted = ask(proxy.proxy_addr, "/v1/messages/count_tokens", body.clone());
            let (_, count) = answered(&listener, &reply("200 OK", "application/json", r#"{"input_tokens":9}"#)).await;
            assert!(counted.await.unwrap().ends_with(r#"{"input_tokens":9}"#));
            assert!(count.contains(r#""name":"read_evicted""#) && count.contains("/_compactproxy/evicted/"), "{count}");
            let turn = ask(proxy.proxy_addr, "/v1/messages", body);
            let (_, sent) = answered(&listener, &done()).await;
            turn.await.unwrap();
            assert_eq!(count, sent, "{inject}");
        }
    }
}

/// What is too long to be counted shortened is too long as the client wrote it.
#[tokio::test]
async fn a_count_of_what_is_too_long_is_answered_at_once() {
    let (listener, proxy) = served(EVICTION).await;
    let large = body(&loop_of(1, 3_000)).to_string();
    let refusal = r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 250000 tokens > 200000 maximum"}}"#;
    let counted = ask(proxy.proxy_addr, "/v1/messages/count_tokens", large.clone());
    let (_, sent) = answered(&listener, &reply("400 Bad Request", "application/json", refusal)).await;
    assert!(sent.len() < large.len() / 2);
    assert!(counted.await.unwrap().ends_with(refusal), "no second attempt is waited for");
}

/// What is refused of a count says nothing of the session's turns.
#[tokio::test]
async fn a_refused_count_teaches_nothing() {
    let (listener, proxy) = served(EVICTION).await;
    let large = body(&loop_of(1, 3_000)).to_string();
    let refusal = r#"{"type":"error","error":{"type":"invalid_request_error","message":"no thinking here"}}"#;
    for _ in 0..3 {
        let counted = ask(proxy.proxy_addr, "/v1/messages/count_tokens", large.clone());
        answered(&listener, &reply("400 Bad", "application/json", refusal)).await;
        let (_, sent) = answered(&listener, &reply("200 OK", "application/json", r#"{"input_tokens":9}"#)).await;
        assert_eq!(sent, large);
        counted.await.unwrap();
    }
    let asked = ask(proxy.proxy_addr, "/v1/messages", large);
    answered(&listener, &done()).await;
    assert!(asked.await.unwrap().contains("x-compactproxy-action: evicted"));
}

#[tokio::test]
async fn a_request_that_warms_the_cache_passes() {
    let (listener, proxy) = served(EVICTION).await;
    let mut warming = body(&loop_of(1, 3_000));
    warming["max_tokens"] = json!(0);
    let asked = ask(proxy.proxy_addr, "/v1/messages", warming.to_string());
    let (_, sent) = answered(&listener, &done()).await;
    assert_eq!(sent, warming.to_string());
    // What is in the cache stays as it is.
    warming["max_tokens"] = json!(100);
    asked.await.unwrap();
    let asked = ask(proxy.proxy_addr, "/v1/messages", warming.to_string());
    assert_eq!(answered(&listener, &done()).await.1, warming.to_string());
    asked.await.unwrap();
}

#[tokio::test]
async fn of_too_many_bytes_the_oldest_pictures_go() {
    let (listener, proxy) = served("[compaction]\n").await;
    let picture = |n: usize| {
        let data = format!("{n}{}", "A".repeat(60_000));
        json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": data } })
    };
    let shown = |n: usize| json!({ "role": "user", "content": [picture(n), { "type": "text", "text": "Look." }] });
    let seen = || json!({ "role": "assistant", "content": "Seen." });
    let messages = [shown(0), seen(), shown(1), seen(), shown(2)];
    let asked = ask(proxy.proxy_addr, "/v1/messages", body(&messages).to_string());
    let refusal = r#"{"error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#;
    answered(&listener, &reply("413 Too Large", "application/json", refusal)).await;
    let (_, sent) = answered(&listener, &done()).await;
    let sent: Value = serde_json::from_str(&sent).unwrap();
    let kinds: Vec<_> =
        [0, 2, 4].iter().map(|at| sent["messages"][*at]["content"][0]["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["text", "text", "image"]);
    let answer = asked.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("recovered"), "{answer}");
}

#[tokio::test]
async fn an_overflow_behind_the_first_events_is_mended_by_a_full_fold() {
    let sections = "[compaction]\n[[window]]\nmodel = \"claude*\"\ninput = 30000\n";
    let (listener, proxy) = served(sections).await;
    let asked = ask(proxy.proxy_addr, "/v1/messages", body(&loop_of(6, 1_500)).to_string());
    let events = concat!(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"type\":\"message\",\"content\":[]}}\n\n",
        "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"prompt is too long: 9000 tokens > 5000 maximum\"}}\n\n",
    );
    answered(&listener, &reply("200 OK", "text/event-stream", events)).await;
    let (_, sent) = answered(&listener, &done()).await;
    let sent: Value = serde_json::from_str(&sent).unwrap();
    let roles: Vec<_> = sent["messages"].as_array().unwrap().iter().map(|message| message["role"].clone()).collect();
    assert_eq!(roles, ["user"], "signed thinking of the turn in progress leaves nothing else");
    let answer = asked.await.unwrap();
    assert!(answer.contains("x-compactproxy-action: folded, recovered") && !answer.contains("too long"), "{answer}");
}

#[tokio::test]
async fn where_the_providers_option_is_refused_only_the_full_fold_is_left() {
    let sections = "[compaction]\n[anthropic]\nprefix_mismatch = \"drop_block\"\n\
                    [[window]]\nmodel = \"claude*\"\ninput = 8000\n";
    let (listener, proxy) = served(sections).await;
    let mut messages = loop_of(8, 1_200);
    let own = body(&messages).to_string();
    let asked = ask(proxy.proxy_addr, "/v1/messages", own.clone());
    let refusal = r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.1.content.0: Invalid `signature` in `thinking` block: bound to a different conversation"}}"#;
    let (head, sent) = answered(&listener, &reply("400 Bad", "application/json", refusal)).await;
    let thinking = serde_json::from_str::<Value>(&sent).unwrap()["thinking"].take();
    assert_eq!(thinking["block_binding"]["prefix_mismatch_behavior"], "drop_block");
    assert!(head.contains("anthropic-beta: some-beta,thinking-binding-controls-2026-08-01"), "{head}");
    assert!(sent.contains("\"signature\""));
    let (head, sent) = answered(&listener, &done()).await;
    assert!(sent == own && head.contains("anthropic-beta: some-beta\r"), "the client's own goes out");
    asked.await.unwrap();

    messages.extend(loop_of(9, 1_200).drain(17..));
    let asked = ask(proxy.proxy_addr, "/v1/messages", body(&messages).to_string());
    let (head, sent) = answered(&listener, &done()).await;
    assert!(!sent.contains("\"signature\"") && !sent.contains("block_binding") && !head.contains("binding-controls"));
    assert!(asked.await.unwrap().contains("x-compactproxy-action: folded"));
}

/// The client's own body may be too long by itself: what was refused is not in the full fold's way at the next turn.
#[tokio::test]
async fn a_refused_option_gives_way_to_the_full_fold_though_the_original_is_too_long() {
    let sections = "[compaction]\n[anthropic]\nprefix_mismatch = \"drop_block\"\n\
                    [[window]]\nmodel = \"claude*\"\ninput = 8000\n";
    let (listener, proxy) = served(sections).await;
    let error = |message: &str| {
        let error = json!({ "type": "error", "error": { "type": "invalid_request_error", "message": message } });
        reply("400 Bad", "application/json", &error.to_string())
    };
    let refusal = error("thinking.adaptive.block_binding: Extra inputs are not permitted");
    let mut messages = loop_of(8, 1_200);
    let asked = ask(proxy.proxy_addr, "/v1/messages", body(&messages).to_string());
    assert!(answered(&listener, &refusal).await.1.contains("block_binding"));
    let long = error("prompt is too long: 12000 tokens > 8000 maximum");
    assert_eq!(answered(&listener, &long).await.1, body(&messages).to_string());
    assert!(asked.await.unwrap().contains("prompt is too long"));

    messages.extend(loop_of(9, 1_200).drain(17..));
    let asked = ask(proxy.proxy_addr, "/v1/messages", body(&messages).to_string());
    let (_, sent) = answered(&listener, &done()).await;
    assert!(!sent.contains("\"signature\"") && !sent.contains("block_binding"), "{sent}");
    assert!(asked.await.unwrap().contains("x-compactproxy-action: folded"));
}

/// A second attempt may be what shows it: the next ones do not carry the option again.
#[tokio::test]
async fn an_option_that_is_refused_of_a_second_attempt_is_not_sent_again() {
    let sections = "[compaction]\n[anthropic]\nprefix_mismatch = \"drop_block\"\n\
                    [[window]]\nmodel = \"claude*\"\ninput = 30000\n";
    let (listener, proxy) = served(sections).await;
    let error = |message: &str| {
        let error = json!({ "type": "error", "error": { "type": "invalid_request_error", "message": message } });
        reply("400 Bad", "application/json", &error.to_string())
    };
    let long = error("prompt is too long: 12000 tokens > 8000 maximum");
    let refusal = error("thinking.adaptive.block_binding: Extra inputs are not permitted");
    let asked = ask(proxy.proxy_addr, "/v1/messages", body(&loop_of(8, 1_200)).to_string());
    assert!(!answered(&listener, &long).await.1.contains("block_binding"));
    assert!(answered(&listener, &refusal).await.1.contains("block_binding"));
    assert!(asked.await.unwrap().contains("prompt is too long"));
    let asked = ask(proxy.proxy_addr, "/v1/messages", body(&loop_of(9, 1_200)).to_string());
    assert!(!answered(&listener, &long).await.1.contains("block_binding"));
    let (_, sent) = answered(&listener, &done()).await;
    assert!(!sent.contains("block_binding") && !sent.contains("\"signature\""), "{sent}");
    assert!(asked.await.unwrap().contains("recovered"));
}

/// The error of a rewritten body may come in a stream that began well.
#[tokio::test]
async fn a_rewrite_that_is_refused_inside_a_success_is_followed_by_the_original() {
    let (listener, proxy) = served(EVICTION).await;
    let large = body(&loop_of(1, 3_000)).to_string();
    let asked = ask(proxy.proxy_addr, "/v1/messages", large.clone());
    let events = concat!(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"type\":\"message\",\"content\":[]}}\n\n",
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"no\"}}\n\n",
    );
    assert!(answered(&listener, &reply("200 OK", "text/event-stream", events)).await.1.len() < large.len());
    assert_eq!(answered(&listener, &done()).await.1, large);
    let answer = asked.await.unwrap();
    assert!(answer.contains("Done.") && !answer.contains("invalid_request_error"), "{answer}");
}

/// A limit for the output that is not above the thinking's budget is refused (A14).
#[tokio::test]
async fn an_output_is_not_lowered_to_the_budget_of_the_thinking() {
    let sections = "[compaction]\n[[window]]\nmodel = \"claude*\"\ninput = 30000\n";
    let refusal = r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 9000 + 8000 > 16000, decrease input length or `max_tokens` and try again"}}"#;
    for (budget, lowered) in [(5_000, true), (7_500, false)] {
        let (listener, proxy) = served(sections).await;
        let mut own = body(&loop_of(6, 1_400));
        own["max_tokens"] = json!(8_000);
        own["thinking"] = json!({ "type": "enabled", "budget_tokens": budget });
        let asked = ask(proxy.proxy_addr, "/v1/messages", own.to_string());
        answered(&listener, &reply("400 Bad", "application/json", refusal)).await;
        let sent: Value = serde_json::from_str(&answered(&listener, &done()).await.1).unwrap();
        assert!(sent["max_tokens"].as_u64().unwrap() > budget, "{}", sent["max_tokens"]);
        assert_eq!(sent["messages"] == own["messages"], lowered, "{budget}: else the history is shortened");
        assert!(asked.await.unwrap().starts_with("HTTP/1.1 200"));
    }
}

/// Where the model stopped because its window was full, that is its window: but one sample never halves what is known.
#[tokio::test]
async fn a_window_that_was_filled_is_learned_with_care() {
    for (input, learned) in [(1_500, None), (5_500, Some(6_000))] {
        let listener = Listener::bind().await;
        let config = parsed(&listener.url(), "[compaction]\n");
        let store = open(&config.state.url);
        let proxy = over(config, Arc::clone(&store), |_| {});
        let mut own = body(&loop_of(3, 1_200));
        own["model"] = json!("gpt-4");
        let asked = ask(proxy.proxy_addr, "/v1/messages", own.to_string());
        let answer = json!({ "type": "message", "role": "assistant", "model": "gpt-4", "content": [{ "type": "text", "text": "…" }],
            "stop_reason": "model_context_window_exceeded", "usage": { "input_tokens": input, "output_tokens": 500 } });
        let (_, sent) = answered(&listener, &reply("200 OK", "application/json", &answer.to_string())).await;
        assert_eq!(sent, own.to_string());
        asked.await.unwrap();
        let headers = HeaderMap::from_iter([("x-api-key".parse().unwrap(), "k".parse().unwrap())]);
        let asker = Asker { upstream: "up", headers: &headers, uri: &Uri::default() };
        let tenant = identify(&store, &TenantRule::Credential, &Verified::default(), &asker).tenant;
        let key =
            WindowKey { tenant: &tenant, upstream: "up", path: "/v1/messages", model: "gpt-4", betas: "some-beta" };
        assert_eq!(store.window(&key).and_then(|window| window.total), learned);
    }
}

/// The upstream of a client that takes its turns in order: what it was sent, head and body. It has all of a prompt in its
/// cache, and it writes summaries.
async fn turns(calls: impl IntoIterator<Item = usize>, sections: &str) -> Vec<(String, String)> {
    let (listener, proxy) = served(sections).await;
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let upstream = tokio::spawn(async move {
        loop {
            let mut server = listener.accept().await;
            let head = server.head().await.to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            let body = String::from_utf8(server.exactly(length.trim().parse().unwrap()).await).unwrap();
            let side = body.contains(WARM) || !body.contains(SYSTEM);
            let said =
                if side { "## SESSION INTENT\nLook around in the folders and tell what is there." } else { "Done." };
            let answer = json!({ "type": "message", "role": "assistant", "model": "claude-x", "stop_reason": "end_turn",
                "content": [{ "type": "text", "text": said }],
                "usage": { "input_tokens": 5, "cache_read_input_tokens": body.len() / 4, "output_tokens": 2 } });
            server.send(reply("200 OK", "application/json", &answer.to_string())).await;
            tell.send((head, body)).unwrap();
        }
    });
    for calls in calls {
        let mut turn = body(&loop_of(calls, 1_200));
        turn["max_tokens"] = json!(2_000);
        let answer = ask(proxy.proxy_addr, "/v1/messages", turn.to_string()).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    upstream.abort();
    let mut all = Vec::new();
    while let Some(call) = told.recv().await {
        all.push(call);
    }
    all
}

const WARM: &str = "Stop working on the task for this one answer";

/// A side call from the cached prefix shows the provider the same changes before signed thinking as the turn itself.
#[tokio::test]
async fn a_warm_side_call_has_the_providers_option_too() {
    let sections = "[compaction]\n[anthropic]\nprefix_mismatch = \"drop_block\"\n\
                    [[window]]\nmodel = \"claude*\"\ninput = 12000\n";
    let all = turns((4..60).step_by(2), sections).await;
    let dropping = |(head, body): &&(String, String)| {
        let option = body.contains(r#""block_binding":{"prefix_mismatch_behavior":"drop_block"}"#);
        assert_eq!(option, head.contains("thinking-binding-controls-2026-08-01"), "{head}");
        option
    };
    let warm = |(_, body): &&(String, String)| body.contains(WARM);
    assert!(all.iter().filter(|call| !warm(call)).any(|call| dropping(&call)), "turns");
    assert!(all.iter().filter(warm).any(|call| dropping(&call)), "{} side calls", all.iter().filter(warm).count());
}

/// One turn of Claude Code's: a billing block that is new each time, and a breakpoint on the last message alone.
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
    messages.last_mut().unwrap()["content"][0]["cache_control"] = json!({ "type": "ephemeral" });
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
