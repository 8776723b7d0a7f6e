use proptest::prelude::*;
use serde_json::json;

use super::*;

fn request(body: Value) -> ModelRequest {
    ModelRequest::chat(body)
}

fn tokens(body: Value) -> u64 {
    Counter::default().prompt(&request(body)).total()
}

fn prompt(messages: u64, tools: u64) -> Prompt {
    Prompt { tools, messages, ..Prompt::default() }
}

#[test]
fn a_message_costs_its_text_its_role_and_a_frame() {
    let one = tokens(json!({"messages": [{"role": "user", "content": "hello world"}]}));
    // "hello", " world", the role, the frame, the opening of the answer.
    assert_eq!(one, 2 + 1 + 3 + 3);
}

#[test]
fn tools_calls_and_reasoning_cost() {
    let bare = tokens(json!({"messages": [{"role": "assistant", "content": "x"}]}));
    let with = |more: Value| {
        let mut message = json!({"role": "assistant", "content": "x"});
        message.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        tokens(json!({ "messages": [message] }))
    };
    assert!(with(json!({"reasoning_content": "because of this"})) > bare);
    assert!(with(json!({"tool_calls": [{"function": {"name": "f", "arguments": "{\"a\":1}"}}]})) > bare);
    assert!(with(json!({"tool_calls": [{"custom": {"name": "f", "input": "a b c"}}]})) > bare);
    assert!(with(json!({"function_call": {"name": "f", "arguments": "{}"}})) > bare);
    let tools = Counter::default().prompt(&request(json!({"tools": [{"a": "b"}], "messages": []})));
    assert_eq!(tools.tools, count(r#"[{"a":"b"}]"#));
}

#[test]
fn a_picture_has_a_fixed_price() {
    let price = |url: String| {
        let part = json!({"type": "image_url", "image_url": {"url": url}});
        tokens(json!({"messages": [{"role": "user", "content": [part]}]}))
    };
    assert_eq!(price("data:,x".to_owned()), price("data:,".to_owned() + &"A".repeat(100_000)));
    assert_eq!(price("data:,x".to_owned()), render::MEDIA as u64 + 1 + 3 + 3);
}

#[test]
fn long_runs_are_counted_in_reasonable_time() {
    assert!(count(&"a".repeat(200_000)) > 10_000);
    assert!(count(&" ".repeat(200_000)) > 100);
    assert_eq!(count(""), 0);
}

proptest! {
    #[test]
    fn ordinary_text_is_counted_as_the_tokenizer_does(text in "\\PC{0,200}") {
        prop_assert_eq!(count(&text), tiktoken_rs::o200k_base_singleton().encode_ordinary(&text).len() as u64);
    }
}

#[test]
fn reaching_a_limit_is_too_much() {
    let both = Limit { input: Some(100), total: Some(150) };
    assert_eq!(fits(both, &prompt(90, 9), 50), Ok(()));
    let overflow = Misfit::Overflow { input: 100, tools: 10, output: 0, limit: 100 };
    assert_eq!(fits(both, &prompt(90, 10), 0), Err(overflow));
    let budget = Misfit::Budget { input: 99, tools: 0, output: 51, limit: 150 };
    assert_eq!(fits(both, &prompt(99, 0), 51), Err(budget));
    assert!(matches!(fits(Limit::of(99), &prompt(99, 0), 5), Err(Misfit::Overflow { limit: 99, .. })));
    assert_eq!(fits(Limit::of(99), &prompt(98, 0), 0), Ok(()));
    assert_eq!(fits(Limit::default(), &prompt(1 << 40, 0), 1 << 40), Ok(()));
}
