use serde_json::{Value, json};

use super::super::rules::Rules;
use super::*;

fn checked(profile: Profile, messages: Value) -> Result<(), Violation> {
    let tool = json!({"type": "function", "function": {"name": "ls"}});
    Rules::of(profile).check(&json!({"model": "m", "tools": [tool], "messages": messages}))
}

#[track_caller]
fn accepts(profile: Profile, messages: Value) {
    assert_eq!(checked(profile, messages), Ok(()));
}

#[track_caller]
fn rejects(profile: Profile, rule: &str, messages: Value) -> Violation {
    assert_eq!(checked(Profile::OpenAi, messages.clone()), Ok(()), "only the profile's rule is to be broken");
    let violation = checked(profile, messages).unwrap_err();
    assert_eq!(violation.rule, rule);
    violation
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

fn call(id: &str) -> Value {
    let function = json!({"name": "ls", "arguments": "{}"});
    json!({"role": "assistant", "content": null, "tool_calls": [{"id": id, "type": "function", "function": function}]})
}

fn result(id: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": "ok"})
}

fn loop_of_nine() -> Value {
    json!([{"role": "system", "content": "s"}, user("a"), call("abcDEF123"), result("abcDEF123"), assistant("b"), user("c")])
}

#[test]
fn d1_mistral_checks_the_order() {
    accepts(Profile::Mistral, loop_of_nine());
    let after_tool = json!([user("a"), call("abcDEF123"), result("abcDEF123"), user("b")]);
    let violation = rejects(Profile::Mistral, "D1", after_tool);
    let body = json!({"object": "error", "message": "Unexpected role 'user' after role 'tool'", "type": "invalid_request_message_order", "param": null, "code": "3230"});
    assert_eq!((violation.status, violation.body), (400, body));
    rejects(Profile::Mistral, "D1", json!([user("a"), assistant("b")]));
    accepts(Profile::Mistral, json!([user("a"), {"role": "assistant", "content": "b", "prefix": true}]));
}

#[test]
fn d2_mistral_ids_have_nine_letters_or_digits() {
    let violation = rejects(Profile::Mistral, "D2", json!([user("a"), call("turn1_0"), result("turn1_0")]));
    let text = "Tool call id was turn1_0 but must be a-z, A-Z, 0-9, with a length of 9.";
    assert_eq!(violation.body["message"], text);
    assert_eq!(violation.body["code"], "3280");
}

#[test]
fn d3_templates_alternate() {
    accepts(Profile::Template, loop_of_nine());
    for messages in [json!([user("a"), user("b")]), json!([assistant("a"), user("b")])] {
        let violation = rejects(Profile::Template, "D3", messages);
        assert_eq!(violation.status, 500);
        assert!(violation.body["error"]["message"].as_str().unwrap().contains("conversation roles must alternate"));
    }
}

#[test]
fn d4_templates_want_no_two_assistants_at_the_end() {
    let violation = rejects(Profile::Template, "D4", json!([user("a"), assistant("b"), assistant("c")]));
    assert_eq!(violation.status, 400);
}

#[test]
fn d5_templates_want_one_system_message_and_first() {
    rejects(Profile::Template, "D5", json!([user("a"), {"role": "system", "content": "s"}, assistant("b"), user("c")]));
}

#[test]
fn d6_deepseek_wants_all_reasoning_back() {
    let thinking = |text: &str| json!({"role": "assistant", "content": text, "reasoning_content": ""});
    accepts(Profile::DeepSeek, json!([user("a"), thinking("b"), user("c"), thinking("d"), user("e")]));
    accepts(Profile::DeepSeek, json!([user("a"), assistant("b"), user("c")]));
    let violation = rejects(Profile::DeepSeek, "D6", json!([user("a"), thinking("b"), assistant("c"), user("d")]));
    let text = "Missing reasoning_content field in the assistant message at message index 2";
    assert_eq!(violation.body["error"]["message"], text);
}

#[test]
fn d8_moonshot_wants_reasoning_with_calls() {
    let mut thinking = call("abcDEF123");
    thinking["reasoning_content"] = "hm".into();
    accepts(Profile::Moonshot, json!([user("a"), thinking, result("abcDEF123"), assistant("b"), user("c")]));
    let bare = json!([user("a"), thinking, result("abcDEF123"), call("abcDEF124"), result("abcDEF124")]);
    rejects(Profile::Moonshot, "D8", bare);
}

#[test]
fn d9_gemini_wants_calls_after_user_or_result() {
    accepts(Profile::Gemini, loop_of_nine());
    rejects(Profile::Gemini, "D9", json!([call("abcDEF123"), result("abcDEF123")]));
    rejects(Profile::Gemini, "D9", json!([user("a"), assistant("b"), call("abcDEF123"), result("abcDEF123")]));
    let twice = json!([user("a"), call("abcDEF123"), result("abcDEF123"), result("abcDEF123")]);
    let violation = check(Profile::Gemini, &json!({"messages": twice})).unwrap_err();
    assert_eq!(violation.rule, "D9");
    assert!(violation.body[0]["error"]["message"].as_str().unwrap().contains("number of function response parts"));
}

#[test]
fn d10_gemini_3_wants_signatures_in_the_current_turn() {
    let mut signed = call("abcDEF123");
    signed["tool_calls"][0]["extra_content"] = json!({"google": {"thought_signature": "x"}});
    accepts(Profile::Gemini3, json!([user("a"), signed, result("abcDEF123")]));
    accepts(Profile::Gemini3, json!([user("a"), call("abcDEF123"), result("abcDEF123"), assistant("b"), user("c")]));
    rejects(Profile::Gemini3, "D10", json!([user("a"), call("abcDEF123"), result("abcDEF123")]));
}

#[test]
fn d11_xai_wants_one_text_a_message() {
    let parts = |n: usize| json!([{"role": "user", "content": vec![json!({"type": "text", "text": "a"}); n]}]);
    accepts(Profile::Xai, parts(1));
    rejects(Profile::Xai, "D11", parts(2));
}

#[test]
fn d12_bedrock_wants_tools_and_results_alone() {
    accepts(Profile::Bedrock, loop_of_nine());
    rejects(Profile::Bedrock, "D12", json!([user("a"), call("abcDEF123"), result("abcDEF123"), user("b")]));
    let body = json!({"model": "m", "messages": [user("a"), call("abcDEF123"), result("abcDEF123")]});
    let violation = Rules::of(Profile::Bedrock).check(&body).unwrap_err();
    assert!(violation.body["message"].as_str().unwrap().starts_with("The toolConfig field must be defined"));
}

#[test]
fn d1_mistral_counts_calls_and_results() {
    for messages in [
        json!([user("a"), call("abcDEF123"), result("abcDEF123"), result("abcDEF123")]),
        json!([user("a"), call("abcDEF123"), user("b")]),
    ] {
        let violation = check(Profile::Mistral, &json!({"messages": messages})).unwrap_err();
        assert_eq!((violation.rule, &violation.body["code"]), ("D1", &json!("3230")));
    }
}
