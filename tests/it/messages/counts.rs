//! `…/messages/count_tokens`: what would be sent is counted, and nothing comes of it.

use serde_json::json;

use super::{EVICTION, answered, ask, body, done, loop_of, received, reply, served};

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

/// What is due is counted as it stands: nothing is summarized for a count. What a turn has made is counted.
#[tokio::test]
async fn a_count_begins_no_checkpoint_and_has_the_one_that_a_turn_began() {
    let (listener, proxy) = served("[compaction]\n[[window]]\nmodel = \"*\"\ninput = 6000\n").await;
    let long = body(&loop_of(12, 1_000)).to_string();
    let counted = reply("200 OK", "application/json", r#"{"input_tokens":9}"#);
    let count = || ask(proxy.proxy_addr, "/v1/messages/count_tokens", long.clone());
    let asked = count();
    let (_, sent, mut server) = received(&listener).await;
    assert_eq!(sent, long, "neither a side call nor a rewritten body");
    server.send(&counted).await;
    asked.await.unwrap();

    let turn = ask(proxy.proxy_addr, "/v1/messages", long.clone());
    let sent = loop {
        let (_, sent, mut server) = received(&listener).await;
        // Of the agent's requests.
        if sent.contains(r#""max_tokens":500"#) {
            server.send(done()).await;
            break sent;
        }
        server.send("HTTP/1.1 500 No\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await;
    };
    turn.await.unwrap();
    assert!(sent.len() < long.len() / 2, "{} bytes of {}", sent.len(), long.len());

    let asked = count();
    let (_, again, mut server) = received(&listener).await;
    assert_eq!(again, sent);
    server.send(&counted).await;
    asked.await.unwrap();
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
