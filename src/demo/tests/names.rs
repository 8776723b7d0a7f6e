use serde_json::json;

use super::*;

fn refusal(api: Api, body: Value) -> Option<(&'static str, String)> {
    let violation = check(&ModelRequest::new(api, body)).err()?;
    let message = violation.body.pointer("/error/message").and_then(Value::as_str).unwrap().to_owned();
    assert_eq!(violation.status, 400);
    Some((violation.rule, message))
}

/// Every place where a name may stand: a body with this name there, and what the place is called.
fn places(name: &str) -> Vec<(Api, Value, &'static str)> {
    let function = json!({"type": "function", "function": {"name": name, "arguments": "{}"}});
    let custom = json!({"type": "custom", "custom": {"name": name, "input": ""}});
    let said = |call: &Value| json!({"role": "assistant", "tool_calls": [call]});
    let flat = |kind: &str| json!({"type": kind, "name": name});
    let space =
        json!({"type": "namespace", "name": "of.any", "tools": [{"type": "function", "name": "a"}, flat("function")]});
    let used = json!({"type": "tool_use", "id": "t", "name": name, "input": {}});
    vec![
        (Api::Chat, json!({"tools": [function]}), "tools[0].function"),
        (Api::Chat, json!({"tools": [custom]}), "tools[0].custom"),
        (Api::Chat, json!({"messages": [{"role": "user"}, said(&function)]}), "messages[1].tool_calls[0].function"),
        (Api::Chat, json!({"messages": [said(&custom)]}), "messages[0].tool_calls[0].custom"),
        (Api::Responses, json!({"tools": [{"type": "web_search"}, flat("function")]}), "tools[1]"),
        (Api::Responses, json!({"tools": [flat("custom")]}), "tools[0]"),
        (Api::Responses, json!({"tools": [space]}), "tools[0].tools[1]"),
        (Api::Responses, json!({"input": [flat("function_call")]}), "input[0]"),
        (Api::Responses, json!({"input": [flat("custom_tool_call")]}), "input[0]"),
        (
            Api::Responses,
            json!({"input": [{"type": "additional_tools", "tools": [flat("function")]}]}),
            "input[0].tools[0]",
        ),
        (
            Api::Messages,
            json!({"tools": [{"type": "bash_20250124", "name": "bash"}, {"name": name}]}),
            "tools.1.custom",
        ),
        (Api::Messages, json!({"tools": [flat("custom")]}), "tools.0.custom"),
        (
            Api::Messages,
            json!({"messages": [{"role": "assistant", "content": [{"type": "text", "text": "a"}, used]}]}),
            "messages.0.content.1.tool_use",
        ),
    ]
}

#[test]
fn names_are_plain_wherever_they_stand() {
    for (api, body, _) in ["a", "read_evicted", "mcp__files__read-file", &"x".repeat(64)].into_iter().flat_map(places) {
        assert_eq!(refusal(api, body.clone()), None, "{body}");
    }
    for name in ["functions.read_evicted", "查询", "a b", "a/b"] {
        for (api, body, at) in places(name) {
            let due = match api {
                Api::Messages => ("A22", format!("{at}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")),
                Api::Chat | Api::Responses => (
                    if api == Api::Chat { "C8" } else { "R7" },
                    format!(
                        "Invalid '{at}.name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
                    ),
                ),
            };
            assert_eq!(refusal(api, body.clone()), Some(due), "{body}");
        }
    }
}

#[test]
fn names_have_a_length() {
    for (api, body, at) in places("").into_iter().chain(places(&"x".repeat(129))) {
        let (_, message) = refusal(api, body.clone()).unwrap();
        assert!(message.contains(&format!("{at}.name")), "{body} {message}");
    }
    for (api, body, at) in places(&"x".repeat(65)) {
        let due = format!(
            "Invalid '{at}.name': string too long. Expected a string with maximum length 64, but got a string with length 65 instead."
        );
        let due = Some(due).filter(|_| api != Api::Messages);
        assert_eq!(refusal(api, body).map(|(_, message)| message), due);
    }
}

/// What the provider holds itself it has taken before.
#[test]
fn only_what_a_request_brings_is_looked_at() {
    let mut request = ModelRequest::new(Api::Responses, json!({"input": "go on"}));
    request.input.insert(0, json!({"type": "function_call", "name": "functions.read_evicted"}));
    assert!(check(&request).is_err());
    request.held = 1;
    assert_eq!(check(&request), Ok(()));
}
