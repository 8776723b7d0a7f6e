//! Conversations of each API, and what of them a body holds.

use compactproxy::demo::request::Api;
use serde_json::{Value, json};

pub fn path(api: Api) -> &'static str {
    match api {
        Api::Chat => "chat/completions",
        Api::Responses => "responses",
        Api::Messages => "messages",
    }
}

pub fn array(api: Api) -> &'static str {
    if api == Api::Responses { "input" } else { "messages" }
}

/// A conversation that begins with these words.
pub fn begun(api: Api, words: &str) -> Value {
    let said = json!({"role": "user", "content": words});
    match api {
        Api::Chat => {
            json!({"model": "demo-model", "messages": [{"role": "system", "content": "Be careful."}, said]})
        }
        Api::Responses => json!({"model": "demo-model", "instructions": "Be careful.", "input": [said]}),
        Api::Messages => json!({"model": "demo-model", "max_tokens": 500, "system": "Be careful.", "messages": [said],
            "tools": [{"name": "execute", "input_schema": {"type": "object"}}]}),
    }
}

/// After an answer, and what the user says then.
pub fn on(api: Api, body: &Value, words: &str) -> Value {
    extended(
        api,
        body,
        vec![json!({"role": "assistant", "content": "Done."}), json!({"role": "user", "content": words})],
    )
}

/// After a tool's call and its result.
pub fn worked(api: Api, body: &Value, (n, result): (usize, &str)) -> Value {
    let id = format!("call_{n}");
    let input = json!({"command": "ls"});
    let function = json!({"name": "execute", "arguments": input.to_string()});
    let items = match api {
        Api::Chat => vec![
            json!({"role": "assistant", "content": null, "tool_calls": [{"id": id, "type": "function", "function": function}]}),
            json!({"role": "tool", "tool_call_id": id, "content": result}),
        ],
        Api::Responses => vec![
            json!({"type": "function_call", "call_id": id, "name": "execute", "arguments": input.to_string()}),
            json!({"type": "function_call_output", "call_id": id, "output": result}),
        ],
        Api::Messages => vec![
            json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "execute", "input": input}]}),
            json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": result}]}),
        ],
    };
    extended(api, body, items)
}

pub fn extended(api: Api, body: &Value, items: Vec<Value>) -> Value {
    let mut body = body.clone();
    body[array(api)].as_array_mut().unwrap().extend(items);
    body
}

/// The conversation in a body, without the bracket that closes it.
pub fn items(api: Api, body: &str) -> &str {
    let start = body.find(&format!("\"{}\":[", array(api))).unwrap();
    let end = ["],\"model\"", "],\"instructions\""].iter().find_map(|behind| body.rfind(behind));
    &body[start..end.unwrap()]
}

/// Whether the body begins with what memory says, once, in front of what the user said.
pub fn says(body: &str, fact: &str, words: &str) -> bool {
    let notices = body.matches("It shows what was noted in earlier conversations").count();
    let (fact, words) = (body.find(fact), body.find(words));
    assert!(notices <= 1, "{body}");
    notices == 1 && fact.is_some() && fact < words
}
