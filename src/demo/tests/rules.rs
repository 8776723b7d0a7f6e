use serde_json::{Value, json};

use super::*;

fn chat(messages: Value) -> Value {
    json!({"model": "m", "messages": messages})
}

fn call(id: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": "ls", "arguments": "{}"}})
}

fn user(content: Value) -> Value {
    json!({"role": "user", "content": content})
}

fn result(id: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": "ok"})
}

fn calls(ids: &[&str]) -> Value {
    json!({"role": "assistant", "content": null, "tool_calls": ids.iter().map(|id| call(id)).collect::<Vec<_>>()})
}

#[track_caller]
fn broken(body: &Value) -> Violation {
    Rules::default().check(body).unwrap_err()
}

#[track_caller]
fn rejects(rule: &str, messages: Value) -> Violation {
    let violation = broken(&chat(messages));
    assert_eq!((violation.rule, violation.status), (rule, 400), "{}", violation.body);
    violation
}

#[track_caller]
fn accepts(messages: Value) {
    assert_eq!(Rules::default().check(&chat(messages)), Ok(()));
}

#[track_caller]
fn says(violation: &Violation, message: &str, param: Value, code: Value) {
    let error = json!({"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}});
    assert_eq!(violation.body, error);
}

#[test]
fn c1_a_result_needs_its_call() {
    accepts(json!([user(json!("a")), calls(&["c1"]), result("c1")]));
    let orphan =
        rejects("C1", json!([user(json!("a")), {"role": "assistant", "content": "b"}, user(json!("c")), result("c1")]));
    let text =
        "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.";
    says(&orphan, text, json!("messages.[3].role"), Value::Null);
    rejects("C1", json!([result("c1")]));
    let stranger = rejects("C1", json!([user(json!("a")), calls(&["c1"]), result("c2")]));
    let text = "Invalid parameter: 'tool_call_id' of 'c2' not found in 'tool_calls' of previous message.";
    says(&stranger, text, json!("messages.[2].tool_call_id"), Value::Null);
    rejects("C1", json!([user(json!("a")), calls(&["c1"]), result("c1"), user(json!("b")), result("c1")]));
}

#[test]
fn c2_every_call_is_answered_before_any_other_role() {
    accepts(json!([user(json!("a")), calls(&["c1", "c2"]), result("c2"), result("c1"), user(json!("b"))]));
    let open = rejects("C2", json!([user(json!("a")), calls(&["c1", "c2"]), result("c1"), user(json!("b"))]));
    let text = "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: c2";
    says(&open, text, json!("messages.[3].role"), Value::Null);
    rejects("C2", json!([user(json!("a")), calls(&["c1"])]));
    rejects("C2", json!([calls(&["c1"]), calls(&["c1"]), result("c1")]));
}

#[test]
fn one_result_closes_one_call() {
    rejects("C1", json!([calls(&["c1"]), result("c1"), result("c1")]));
    rejects("C1", json!([calls(&["c1", "c2"]), result("c1"), result("c1"), result("c2")]));
    rejects("C2", json!([calls(&["c1", "c1"]), result("c1"), user(json!("b"))]));
    accepts(json!([calls(&["c1", "c1"]), result("c1"), result("c1")]));
}

#[test]
fn reused_ids_are_matched_with_the_call_before_them() {
    accepts(json!([calls(&["c1"]), result("c1"), calls(&["c1"]), result("c1")]));
}

#[test]
fn c3_results_have_an_id_and_content_of_text() {
    accepts(json!([calls(&["c"]), {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "x"}]}]));
    accepts(json!([calls(&["c"]), {"role": "tool", "tool_call_id": "c", "content": ""}]));
    let empty = rejects("C3", json!([calls(&["c"]), {"role": "tool", "tool_call_id": "c", "content": []}]));
    let text = "Invalid 'messages[1].content': empty array. Expected an array with minimum length 1, but got an empty array instead.";
    says(&empty, text, json!("messages[1].content"), json!("empty_array"));
    let null = rejects("C3", json!([calls(&["c"]), {"role": "tool", "tool_call_id": "c", "content": null}]));
    says(
        &null,
        "Invalid value for 'content': expected a string, got null.",
        json!("messages.[1].content"),
        Value::Null,
    );
    rejects("C3", json!([calls(&["c"]), {"role": "tool", "content": "x"}]));
    let image = json!([{"type": "image_url", "image_url": {"url": "data:,"}}]);
    rejects("C3", json!([calls(&["c"]), {"role": "tool", "tool_call_id": "c", "content": image}]));
}

#[test]
fn empty_texts_are_rejected_where_configured() {
    let rules = Rules { empty: Empty::Nothing, ..Rules::default() };
    let empty = chat(json!([calls(&["c"]), {"role": "tool", "tool_call_id": "c", "content": ""}]));
    assert_eq!(rules.check(&empty).unwrap_err().rule, "C3");
    assert_eq!(rules.check(&chat(json!([user(json!(""))]))).unwrap_err().rule, "C3");
    assert_eq!(rules.check(&chat(json!([user(json!("a")), calls(&["c"]), result("c")]))), Ok(()));
}

#[test]
fn c4_assistants_say_or_call_something() {
    accepts(json!([user(json!("a")), {"role": "assistant", "content": [{"type": "text", "text": "b"}]}]));
    accepts(json!([user(json!("a")), {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}]));
    accepts(json!([user(json!("a")), {"role": "assistant", "content": ""}]));
    accepts(json!([user(json!("a")), {"role": "assistant", "audio": {"id": "audio_1"}}]));
    rejects("C4", json!([user(json!("a")), {"role": "assistant", "content": null}]));
    rejects("C4", json!([user(json!("a")), {"role": "assistant"}]));
    rejects("C4", json!([user(json!("a")), {"role": "assistant", "content": []}]));
    let two = json!([{"type": "refusal", "refusal": "no"}, {"type": "text", "text": "b"}]);
    rejects("C4", json!([user(json!("a")), {"role": "assistant", "content": two}]));
}

#[test]
fn c5_parts_fit_their_role() {
    let image = json!([{"type": "image_url", "image_url": {"url": "data:,"}}]);
    accepts(json!([{"role": "developer", "content": "x"}, user(image.clone())]));
    let system = rejects("C5", json!([{"role": "system", "content": image}, user(json!("a"))]));
    let text = "Invalid value: 'image_url'. Supported values are: 'text'.";
    says(&system, text, json!("messages[0].content[0].type"), json!("invalid_value"));
    rejects("C5", json!([user(json!([]))]));
    rejects("C5", json!([user(Value::Null)]));
    rejects("C5", json!([user(json!(7))]));
    rejects("C5", json!([user(json!([{"type": "text"}]))]));
}

#[test]
fn c6_arguments_are_a_string() {
    let with = |arguments: Value| {
        let function = json!({"name": "f", "arguments": arguments});
        let call = json!({"id": "c", "type": "function", "function": function});
        json!([{"role": "assistant", "tool_calls": [call]}, result("c")])
    };
    accepts(with(json!("{\"a\":1}")));
    accepts(with(json!("{\"a\":")));
    rejects("C6", with(json!({"a": 1})));
    let parsing = Rules { arguments: Arguments::Parsed, ..Rules::default() };
    assert_eq!(parsing.check(&chat(with(json!("{\"a\":1}")))), Ok(()));
    let violation = parsing.check(&chat(with(json!("{\"a\":")))).unwrap_err();
    assert_eq!((violation.rule, violation.status), ("C6", 500));
}

#[test]
fn c7_custom_calls_pair_like_others() {
    let custom = json!({"id": "c", "type": "custom", "custom": {"name": "patch", "input": "free text"}});
    accepts(json!([{"role": "assistant", "tool_calls": [custom]}, result("c")]));
    rejects("C2", json!([{"role": "assistant", "tool_calls": [custom]}, user(json!("a"))]));
    let without = json!({"id": "c", "type": "custom", "custom": {"name": "patch"}});
    rejects("C7", json!([{"role": "assistant", "tool_calls": [without]}, result("c")]));
    let unknown = json!({"id": "c", "type": "magic", "magic": {}});
    rejects("C7", json!([{"role": "assistant", "tool_calls": [unknown]}, result("c")]));
}

#[test]
fn c8_lengths_are_bounded() {
    let (longest, longer) = ("x".repeat(MAX_ID_CHARS), "x".repeat(MAX_ID_CHARS + 1));
    accepts(json!([calls(&[&longest]), result(&longest)]));
    rejects("C8", json!([calls(&[&longer]), result(&longer)]));
    accepts(json!([user(json!("é".repeat(MAX_STRING_CHARS)))]));
    let violation = rejects("C8", json!([user(json!("é".repeat(MAX_STRING_CHARS + 1)))]));
    let text = "Invalid 'messages[0].content': string too long. Expected a string with maximum length 1048576, but got a string with length 1048577 instead.";
    says(&violation, text, json!("messages[0].content"), json!("string_above_max_length"));
    let many = |n: usize| {
        let ids: Vec<String> = (0..n).map(|i| format!("c{i}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let mut list = vec![calls(&ids)];
        list.extend(ids.iter().map(|id| result(id)));
        Value::from(list)
    };
    accepts(many(MAX_ARRAY));
    let violation = rejects("C8", many(MAX_ARRAY + 1));
    let text = "Invalid 'messages[0].tool_calls': array too long. Expected an array with maximum length 128, but got an array with length 129 instead.";
    says(&violation, text, json!("messages[0].tool_calls"), json!("array_above_max_length"));
    rejects("C8", many(0));
}

#[test]
fn c9_order_is_free_but_roles_are_known() {
    accepts(json!([user(json!("a")), user(json!("b")), {"role": "system", "content": "s"}, user(json!("c"))]));
    let violation = rejects("C9", json!([{"role": "narrator", "content": "x"}]));
    let text = "Invalid value: 'narrator'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'.";
    says(&violation, text, json!("messages[0].role"), json!("invalid_value"));
    rejects("C9", json!([{"content": "x"}]));
    rejects("C9", json!(["x"]));
}

#[test]
fn c10_there_is_a_message() {
    let violation = rejects("C10", json!([]));
    let text =
        "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.";
    says(&violation, text, json!("messages"), json!("empty_array"));
    assert_eq!(broken(&json!({"model": "m"})).rule, "C10");
    assert_eq!(broken(&json!({"model": "m", "messages": "hi"})).rule, "C10");
}

#[test]
fn c12_legacy_functions_pair_by_name_and_adjacency() {
    let call = json!({"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}});
    let answer = json!({"role": "function", "name": "f", "content": "1"});
    accepts(json!([user(json!("a")), call, answer, user(json!("b"))]));
    accepts(json!([user(json!("a")), call]));
    rejects("C12", json!([user(json!("a")), answer]));
    rejects("C12", json!([call, user(json!("b")), answer]));
    rejects("C12", json!([call, {"role": "function", "name": "g", "content": "1"}]));
}

#[test]
fn parameters_fit_together() {
    let with = |more: Value| {
        let mut body = chat(json!([user(json!("a"))]));
        body.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        Rules::default().check(&body).map_err(|violation| violation.rule)
    };
    let tool = json!({"type": "function", "function": {"name": "f"}});
    assert_eq!(with(json!({"tools": [tool], "tool_choice": "auto", "unknown_field": 1})), Ok(()));
    assert_eq!(with(json!({"tool_choice": "auto"})), Err("P11"));
    assert_eq!(with(json!({"tools": []})), Err("C8"));
    assert_eq!(with(json!({"tools": vec![tool.clone(); MAX_ARRAY]})), Ok(()));
    assert_eq!(with(json!({"tools": vec![tool; MAX_ARRAY + 1]})), Err("C8"));
    assert_eq!(with(json!({"stream": true, "stream_options": {"include_usage": true}})), Ok(()));
    assert_eq!(with(json!({"stream_options": {"include_usage": true}})), Err("P2"));
    assert_eq!(with(json!({"max_tokens": 1})), Ok(()));
    assert_eq!(with(json!({"max_tokens": 0})), Err("P8"));
    assert_eq!(with(json!({"model": null})), Err("P8"));
    assert_eq!(broken(&json!([1])).rule, "P1");
}

#[test]
fn lenient_servers_take_messages_without_content() {
    let lenient = Rules { empty: Empty::Anything, ..Rules::default() };
    for message in [json!({"role": "assistant", "content": null}), user(json!([])), json!({"role": "assistant"})] {
        assert_eq!(lenient.check(&chat(json!([user(json!("a")), message]))), Ok(()));
        assert!(Rules::default().check(&chat(json!([user(json!("a")), message]))).is_err());
    }
    assert_eq!(lenient.check(&chat(json!([result("c")]))).unwrap_err().rule, "C1");
}
