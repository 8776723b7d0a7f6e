//! Signed thinking that is bound to what precedes it, and the provider's own option for it.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::{EVICTION, SYSTEM, answered, ask, ask_as, body, done, loop_of, reply, served};

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

/// A token that speaks for the same agent each hour.
fn token(hour: u32) -> String {
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let claims = format!(r#"{{"iss":"https://issuer","sub":"agent","exp":{hour}}}"#);
    format!("authorization: Bearer {}.{}.c2ln", part(r#"{"alg":"RS256"}"#), part(&claims))
}

/// A new token is believed once an answer has proved it. The client's own body would never be answered where thinking is
/// bound to what was evicted: what the upstream refused for that, it has admitted.
#[tokio::test]
async fn a_new_token_does_not_end_a_session_whose_thinking_is_bound() {
    let (listener, proxy) = served(EVICTION).await;
    let send = |hour: u32, messages: &[Value]| {
        ask_as(proxy.proxy_addr, &token(hour), "/v1/messages", body(messages).to_string())
    };
    let begun = loop_of(1, 3_000);
    let asked = send(1, &begun[..1]);
    answered(&listener, &done()).await;
    asked.await.unwrap();
    let asked = send(1, &begun);
    let (_, evicted) = answered(&listener, &done()).await;
    assert!(asked.await.unwrap().contains("x-compactproxy-action: evicted"));
    let stub = serde_json::from_str::<Value>(&evicted).unwrap()["messages"][2].take();

    // Its new result is long as well: the answer's thinking is bound to it as it goes out.
    let later = loop_of(2, 3_000);
    let refusal = r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.3.content.0: Invalid `signature` in `thinking` block: bound to a different conversation"}}"#;
    let refusal = reply("400 Bad", "application/json", refusal);
    let asked = send(2, &later);
    assert_eq!(answered(&listener, &refusal).await.1, body(&later).to_string(), "no more than a claim yet");
    let (_, again) = answered(&listener, &done()).await;
    assert_eq!(serde_json::from_str::<Value>(&again).unwrap()["messages"][2], stub);
    let answer = asked.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("x-compactproxy-action: evicted"), "{answer}");
    // Now it is proved.
    let asked = send(2, &later);
    assert_eq!(answered(&listener, &done()).await.1, again);
    asked.await.unwrap();

    // What nobody admitted reads nothing, and what helps nothing is the first refusal.
    let denied = reply("401 No", "application/json", r#"{"error":{"message":"thinking about it: no"}}"#);
    let asked = send(3, &later);
    answered(&listener, &denied).await;
    assert!(asked.await.unwrap().starts_with("HTTP/1.1 401"));
    let asked = send(3, &later);
    answered(&listener, &refusal).await;
    answered(&listener, &reply("400 Bad", "application/json", r#"{"error":{"message":"still no"}}"#)).await;
    let answer = asked.await.unwrap();
    assert!(answer.contains("bound to a different") && !answer.contains("x-compactproxy"), "{answer}");
}

/// What is too long is made shorter, whatever else the refusal speaks of.
#[tokio::test]
async fn an_overflow_under_a_new_token_is_recovered_though_it_speaks_of_thinking() {
    let (listener, proxy) = served(&format!("{EVICTION}[compaction]\n")).await;
    let send = |hour: u32, messages: &[Value]| {
        ask_as(proxy.proxy_addr, &token(hour), "/v1/messages", body(messages).to_string())
    };
    let begun = loop_of(1, 3_000);
    for messages in [&begun[..1], &begun[..]] {
        let asked = send(1, messages);
        answered(&listener, &done()).await;
        asked.await.unwrap();
    }
    let asked = send(2, &loop_of(2, 3_000));
    let error = json!({"type": "invalid_request_error", "message": "prompt is too long: 12000 tokens > 8000 maximum",
        "hint": "thinking counts"});
    let long = json!({"type": "error", "error": error}).to_string();
    answered(&listener, &reply("400 Bad", "application/json", &long)).await;
    answered(&listener, &done()).await;
    let answer = asked.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("recovered"), "{answer}");
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
