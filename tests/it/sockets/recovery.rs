//! Overflows on a socket.

use serde_json::{Value, json};

use super::{Ends, SECTIONS, call, ends, request, result, too_long, user};
use crate::support::chat::words;

/// A chain on one socket that overflows at its fourth turn; gives the end with which it was asked last.
async fn overflowing(ends: &mut Ends) {
    let mut previous: Option<String> = None;
    for n in 0..4 {
        let input = match n {
            0 => json!([user("Rule: never touch main.rs. Begin.")]),
            n => json!([result(n - 1, &words(n as u64, 3_000))]),
        };
        let body = request(previous.as_deref(), input);
        ends.ask(&body).await;
        assert_eq!(ends.asked().await, body.to_string(), "{n}");
        if n == 3 {
            return;
        }
        let id = format!("resp_{n}");
        let response = json!({"id": id, "output": [], "usage": {"input_tokens": 10, "output_tokens": 2}});
        for event in [
            json!({"type": "response.created", "response": {"id": id}}),
            json!({"type": "response.output_item.done", "item": call(n)}),
            json!({"type": "response.completed", "response": response}),
        ] {
            ends.tell(&event).await;
            assert_eq!(ends.told().await, event);
        }
        previous = Some(id);
    }
}

#[tokio::test]
async fn an_overflow_of_a_chain_begins_a_new_one_with_the_whole_history_compacted() {
    let mut ends = ends(SECTIONS).await;
    overflowing(&mut ends).await;
    ends.tell(&json!({"type": "response.created", "response": {"id": "resp_refused"}})).await;
    ends.tell(&too_long()).await;
    let again: Value = serde_json::from_str(&ends.asked().await).unwrap();
    assert_eq!((again.get("previous_response_id"), &again["type"]), (None, &json!("response.create")));
    let text = again["input"].to_string();
    assert!(text.contains("never touch main.rs"), "{text}");
    assert!(text.len() < 40_000, "{}", text.len());
    let ids = |kind: &str| {
        let items = again["input"].as_array().unwrap().iter().filter(|item| item["type"] == kind);
        items.map(|item| item["call_id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids("function_call"), ids("function_call_output"));
    // Of the refused attempt the client sees nothing; the next turn continues the new chain.
    ends.answer("resp_3", "done").await;
    let body = request(Some("resp_3"), json!([user("and now?")]));
    ends.ask(&body).await;
    assert_eq!(ends.asked().await, body.to_string());
    ends.answer("resp_4", "nothing").await;
}

#[tokio::test]
async fn where_the_second_attempt_fails_too_the_client_sees_the_first_error() {
    let mut ends = ends(SECTIONS).await;
    overflowing(&mut ends).await;
    let created = json!({"type": "response.created", "response": {"id": "resp_refused"}});
    ends.tell(&created).await;
    ends.tell(&too_long()).await;
    ends.asked().await;
    ends.tell(&json!({"type": "response.created", "response": {"id": "resp_again"}})).await;
    let mut second = too_long();
    second["error"]["message"] = json!("Your input exceeds the context window of this model, again.");
    ends.tell(&second).await;
    assert_eq!((ends.told().await, ends.told().await), (created, too_long()));
}

/// OpenAI tells of one failure twice. The second event belongs to the answer that was given up, not to the second
/// attempt's.
#[tokio::test]
async fn what_trails_behind_an_error_is_not_taken_for_the_second_attempts() {
    let mut ends = ends(SECTIONS).await;
    overflowing(&mut ends).await;
    ends.tell(&json!({"type": "response.created", "response": {"id": "resp_refused"}})).await;
    ends.tell(&too_long()).await;
    ends.asked().await;
    let error = &too_long()["error"];
    ends.tell(&json!({"type": "response.failed", "response": {"id": "resp_refused", "error": error}})).await;
    ends.answer("resp_3", "done").await;
    // What fails now is another answer.
    let body = request(Some("resp_3"), json!([user("and now?")]));
    ends.ask(&body).await;
    assert_eq!(ends.asked().await, body.to_string());
    let events = [
        json!({"type": "response.created", "response": {"id": "resp_4"}}),
        json!({"type": "response.output_text.delta", "delta": "x"}),
        json!({"type": "error", "error": {"type": "server_error", "message": "no"}}),
    ];
    for event in events {
        ends.tell(&event).await;
        assert_eq!(ends.told().await, event);
    }
    // The client need not wait for what trails.
    let next = request(Some("resp_3"), json!([user("again?")]));
    ends.ask(&next).await;
    assert_eq!(ends.asked().await, next.to_string());
    let failed = json!({"type": "response.failed", "response": {"id": "resp_4", "error": error}});
    ends.tell(&failed).await;
    assert_eq!(ends.told().await, failed);
    ends.answer("resp_5", "done").await;
}

#[tokio::test]
async fn an_overflow_of_a_chain_that_was_not_seen_whole_passes() {
    let mut ends = ends(SECTIONS).await;
    let body = request(Some("resp_elsewhere"), json!([result(1, &words(5, 3_000))]));
    ends.ask(&body).await;
    assert_eq!(ends.asked().await, body.to_string());
    ends.tell(&too_long()).await;
    assert_eq!(ends.told().await, too_long());
}

#[tokio::test]
async fn an_upstream_that_goes_away_while_it_is_held_back_takes_nothing_with_it() {
    let mut ends = ends(SECTIONS).await;
    ends.ask(&request(None, json!([user(&words(1, 9_000))]))).await;
    ends.asked().await;
    let created = json!({"type": "response.created", "response": {"id": "r"}});
    ends.tell(&created).await;
    ends.upstream.close(None).await.unwrap();
    assert_eq!(ends.told().await, created);
}

/// The second attempt is out when the upstream goes: what it said first is what the client is to know.
#[tokio::test]
async fn an_upstream_that_goes_away_during_the_second_attempt_leaves_the_first_error() {
    let mut ends = ends(SECTIONS).await;
    overflowing(&mut ends).await;
    ends.tell(&too_long()).await;
    ends.asked().await;
    ends.tell(&json!({"type": "response.created", "response": {"id": "resp_again"}})).await;
    ends.upstream.close(None).await.unwrap();
    assert_eq!(ends.told().await, too_long());
}

#[tokio::test]
async fn an_overflow_that_no_byte_bound_foresaw_is_mended_if_it_comes_first() {
    let window = format!("{SECTIONS}[[window]]\nmodel = \"m\"\ninput = 400_000\n");
    let mut ends = ends(&window).await;
    let turns = (1..5).flat_map(|n| [call(n), result(n, &words(n as u64, 3_000))]);
    let input: Vec<Value> = [user("begin")].into_iter().chain(turns).collect();
    ends.ask(&request(None, json!(input))).await;
    let first = ends.asked().await;
    let mut error = too_long();
    error["error"]["message"] =
        json!("This model's maximum context length is 8000 tokens. However, your messages resulted in 12200 tokens.");
    ends.tell(&error).await;
    let second = ends.asked().await;
    assert!(second.len() < first.len(), "{} bytes, then {}", first.len(), second.len());
    ends.answer("resp_1", "done").await;
}

#[tokio::test]
async fn an_overflow_that_passes_on_a_socket_teaches_the_window() {
    let mut ends = ends(SECTIONS).await;
    let item = json!({"type": "message", "role": "assistant", "content": []});
    let mut error = too_long();
    error["error"]["message"] =
        json!("This model's maximum context length is 8000 tokens. However, your messages resulted in 12200 tokens.");
    ends.ask(&request(None, json!([user("begin")]))).await;
    ends.asked().await;
    for event in [json!({"type": "response.output_item.added", "item": item}), error] {
        ends.tell(&event).await;
        assert_eq!(ends.told().await, event);
    }
    // A busy disk may keep one from being planned (L5).
    let mut sizes = Vec::new();
    for again in 0..10 {
        let turns = (1..5).flat_map(|n| [call(n), result(n, &words(again * 10 + n as u64, 3_000))]);
        let body = request(None, [user("begin")].into_iter().chain(turns).collect());
        ends.ask(&body).await;
        let (asked, sent) = (ends.asked().await.len(), body.to_string().len());
        if asked < sent / 2 {
            return;
        }
        sizes.push((asked, sent));
        ends.answer(&format!("resp_{again}"), "done").await;
    }
    panic!("not compacted before it is refused: {sizes:?}");
}
