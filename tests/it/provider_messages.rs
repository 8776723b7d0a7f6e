//! The strict provider's Messages API over real sockets.

#![expect(clippy::unwrap_used, reason = "the functions that the tests share")]

use compactproxy::demo::answer::{Answer, ToolCall};
use compactproxy::demo::messages::{Binding, Settings as Messages};
use compactproxy::demo::provider::{Provider, Settings, Verdict};
use compactproxy::demo::request::ModelRequest;
use compactproxy::demo::script::{Behaviour, Reply};
use compactproxy::demo::window::Limit;
use serde_json::{Value, json};

use crate::support::json;

const CONTROLS: (&str, &str) = ("anthropic-beta", "thinking-binding-controls-2026-08-01");

/// Calls a tool with every answer.
fn behaviour() -> Behaviour {
    Behaviour::new(|request: &ModelRequest| {
        let id = format!("st{:03}c000", request.index);
        let call = ToolCall { id, name: "run".to_owned(), arguments: "{\"a\":1}".to_owned() };
        Reply::Say(Answer { calls: vec![call], ..Answer::text("I see.") })
    })
}

async fn start(messages: Messages) -> Provider {
    Provider::start(Settings { messages, behaviour: behaviour(), ..Settings::default() }).await.unwrap()
}

async fn post(provider: &Provider, headers: &[(&str, &str)], body: &Value) -> (u16, Value) {
    json::post(&format!("{}/messages", provider.base_url()), headers, body).await
}

fn opening() -> Value {
    json!({
        "model": "m", "max_tokens": 4096, "tools": [{"name": "run", "input_schema": {"type": "object"}}],
        "system": [{"type": "text", "text": "Be careful. ".repeat(600), "cache_control": {"type": "ephemeral"}}],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "messages": [{"role": "user", "content": "go"}],
    })
}

/// The next request of a loop that `body` began and `answer` continued.
fn next(body: &Value, answer: &Value) -> Value {
    let mut body = body.clone();
    let calls = answer["content"].as_array().unwrap().iter().filter(|block| block["type"] == "tool_use");
    let results: Vec<Value> = calls
        .map(|call| json!({"type": "tool_result", "tool_use_id": call["id"], "content": "ok ".repeat(40)}))
        .collect();
    let all = body["messages"].as_array_mut().unwrap();
    all.push(json!({"role": "assistant", "content": answer["content"]}));
    all.push(json!({"role": "user", "content": results}));
    body
}

/// A loop of three steps, as the next request.
async fn three_steps(provider: &Provider) -> Value {
    let mut body = opening();
    for _ in 0..3 {
        let (status, answer) = post(provider, &[], &body).await;
        assert_eq!((status, &answer["stop_reason"]), (200, &json!("tool_use")), "{answer}");
        body = next(&body, &answer);
    }
    body
}

#[tokio::test]
async fn thinking_is_bound_to_what_stood_before_it() {
    let provider = start(Messages::default()).await;
    let mut body = three_steps(&provider).await;
    assert_eq!(post(&provider, &[], &body).await.0, 200);
    body["messages"][2]["content"][0]["content"] = "evicted".into();
    let (status, error) = post(&provider, &[], &body).await;
    let text = error["error"]["message"].as_str().unwrap();
    assert!(status == 400 && text.contains("bound to a different conversation"), "{text}");
    body["thinking"]["block_binding"] = json!({"prefix_mismatch_behavior": "drop_block"});
    let (status, answer) = post(&provider, &[CONTROLS], &body).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(provider.completions().last().unwrap().dropped, 2);
    // The same blocks stay dropped, the new one is bound to what was received.
    let body = next(&body, &answer);
    assert_eq!(post(&provider, &[CONTROLS], &body).await.0, 200);
    assert_eq!(provider.completions().last().unwrap().dropped, 2);
    assert_eq!(provider.violations().len(), 1);
    let older = start(Messages { binding: Binding::Block, ..Messages::default() }).await;
    let mut body = three_steps(&older).await;
    body["messages"][2]["content"][0]["content"] = "evicted".into();
    assert_eq!(post(&older, &[], &body).await.0, 200);
}

#[tokio::test]
async fn the_cache_is_read_and_written_at_breakpoints() {
    let provider = start(Messages::default()).await;
    let body = three_steps(&provider).await;
    let usage: Vec<(u64, u64)> =
        provider.completions().iter().map(|request| (request.usage.cached, request.usage.written)).collect();
    let (_, written) = usage[0];
    assert!(written > 1_024, "{usage:?}");
    assert_eq!(usage, [(0, written), (written, 0), (written, 0)]);
    let mut marked = body.clone();
    marked["messages"].as_array_mut().unwrap().last_mut().unwrap()["content"][0]["cache_control"] =
        json!({"type": "ephemeral"});
    let (_, answer) = post(&provider, &[], &marked).await;
    let read = |answer: &Value, key: &str| answer["usage"][key].as_u64().unwrap();
    assert_eq!(read(&answer, "cache_read_input_tokens"), written);
    let more = read(&answer, "cache_creation_input_tokens");
    assert!(more > 0);
    // The mark moves on; what it marked before is found all the same.
    let mut moved = next(&body, &answer);
    moved["messages"].as_array_mut().unwrap().last_mut().unwrap()["content"][0]["cache_control"] =
        json!({"type": "ephemeral"});
    let (_, answer) = post(&provider, &[], &moved).await;
    assert_eq!(read(&answer, "cache_read_input_tokens"), written + more);
}

#[tokio::test]
async fn tokens_are_counted_and_limited() {
    let provider = start(Messages::default()).await;
    let mut body = opening();
    let count = format!("{}/messages/count_tokens", provider.base_url());
    body.as_object_mut().unwrap().remove("max_tokens");
    let (status, counted) = json::post(&count, &[], &body).await;
    assert_eq!(status, 200);
    let tokens = counted["input_tokens"].as_u64().unwrap();
    assert_eq!(provider.completions().len(), 0);
    assert_eq!(provider.requests()[0].verdict, Verdict::Counted);
    body["max_tokens"] = 2_000.into();
    // Here a limit may be reached.
    provider.set_limit(Limit::of(tokens + 2_000));
    assert_eq!(post(&provider, &[], &body).await.0, 200);
    provider.set_limit(Limit::of(tokens + 1_999));
    let (_, error) = post(&provider, &[], &body).await;
    let text = format!("input length and `max_tokens` exceed context limit: {tokens} + 2000 > {}", tokens + 1_999);
    assert!(error["error"]["message"].as_str().unwrap().starts_with(&text), "{error}");
    provider.set_limit(Limit::of(tokens - 1));
    let (status, error) = post(&provider, &[], &body).await;
    let text = format!("prompt is too long: {tokens} tokens > {} maximum", tokens - 1);
    assert_eq!((status, &error["error"]["message"]), (400, &json!(text)));
    let verdicts: Vec<Verdict> = provider.completions().iter().map(|request| request.verdict).collect();
    assert_eq!(verdicts, [Verdict::Accepted, Verdict::Budget, Verdict::Overflow]);
}

#[tokio::test]
async fn too_many_bytes_and_warm_up() {
    let provider = start(Messages { max_bytes: 10_000, ..Messages::default() }).await;
    let warm = json!({"model": "m", "max_tokens": 0, "messages": [{"role": "user", "content": "a"}]});
    let (status, answer) = post(&provider, &[], &warm).await;
    assert_eq!((status, &answer["content"]), (200, &json!([])));
    let thread = json!({"model": "m", "max_tokens": 9, "thread": {"type": "create"}, "messages": warm["messages"]});
    let (status, error) = post(&provider, &[], &thread).await;
    assert_eq!((status, &error["error"]["details"]["error_code"]), (400, &json!("thread_unsupported_request")));
    assert_eq!(provider.completions()[1].verdict, Verdict::Unsupported);
    assert_eq!(provider.violations(), [], "clients may ask");
    let large = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "a".repeat(10_000)}]});
    let (status, error) = post(&provider, &[], &large).await;
    assert_eq!((status, &error["error"]["type"]), (413, &json!("request_too_large")));
}
