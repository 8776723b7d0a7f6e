//! A model's answer as the items that Responses gives out.

use serde_json::{Value, json};

use super::super::answer::{Answer, CREATED, ToolCall, Usage};
use super::super::request::{ModelRequest, kind, list, text};
use super::reasoning::encrypted;

/// Hexadecimal digits of an id.
const ID: usize = 48;

/// An id as OpenAI makes them: the same for the same request.
pub fn id(prefix: &str, index: usize, nth: usize) -> String {
    let hash = blake3::hash(format!("{prefix} {index} {nth}").as_bytes()).to_hex();
    format!("{prefix}_{}", hash.get(..ID).unwrap_or_default())
}

/// The id of the response to `request`.
pub fn response_id(request: &ModelRequest) -> String {
    id("resp", request.index, 0)
}

/// The output items of an answer, in order: reasoning where it is asked for, the text, the calls. Asked to
/// compact, the model answers with one `compaction` item.
pub fn items(answer: &Answer, request: &ModelRequest) -> Vec<Value> {
    let id = |prefix: &str, nth| id(prefix, request.index, nth);
    if request.messages().last().is_some_and(|item| kind(item) == "compaction_trigger") {
        return vec![compaction(answer, request)];
    }
    let mut items = Vec::new();
    if let Some(thought) = thought(answer, request) {
        let mut item =
            json!({"id": id("rs", 0), "type": "reasoning", "summary": [{"type": "summary_text", "text": thought}]});
        let include = list(&request.body, "include").iter().any(|name| name == "reasoning.encrypted_content");
        if let (true, Some(members)) = (include, item.as_object_mut()) {
            members.insert("encrypted_content".to_owned(), encrypted(&id("rs", 0), "").into());
        }
        items.push(item);
    }
    let parts = [
        answer.text.as_ref().filter(|text| !text.is_empty()).map(output_text),
        answer.refusal.as_ref().map(|refusal| json!({"type": "refusal", "refusal": refusal})),
    ];
    let parts: Vec<Value> = parts.into_iter().flatten().collect();
    if !parts.is_empty() {
        let phase = if answer.calls.is_empty() { "final_answer" } else { "commentary" };
        items.push(json!({
            "id": id("msg", 0), "type": "message", "status": "completed", "role": "assistant",
            "phase": phase, "content": parts,
        }));
    }
    items.extend(answer.calls.iter().enumerate().map(|(nth, call)| self::call(call, request, nth)));
    items
}

/// The item that stands for all that was said; the answer's text is readable in it.
pub fn compaction(answer: &Answer, request: &ModelRequest) -> Value {
    let id = id("cmp", request.index, 0);
    let secret = encrypted(&id, answer.text.as_deref().unwrap_or_default());
    json!({"id": id, "type": "compaction", "encrypted_content": secret})
}

/// What the model thought: as the script says, or something, where reasoning was configured.
fn thought(answer: &Answer, request: &ModelRequest) -> Option<String> {
    let wanted = request.body.get("reasoning").is_some_and(Value::is_object);
    answer.reasoning.clone().or_else(|| wanted.then(|| "**Planning**\n\nI look at what is next.".to_owned()))
}

fn output_text(text: &String) -> Value {
    json!({"type": "output_text", "annotations": [], "logprobs": [], "text": text})
}

fn call(call: &ToolCall, request: &ModelRequest, nth: usize) -> Value {
    let additional = request.messages().iter().filter(|item| kind(item) == "additional_tools");
    let tools = request.tools().iter().chain(additional.flat_map(|item| list(item, "tools")));
    let mut tools =
        tools.flat_map(|tool| list(tool, "tools").iter().map(move |inner| (Some(tool), inner)).chain([(None, tool)]));
    let found = tools.find(|(_, tool)| text(tool, "name") == call.name);
    let custom = found.is_some_and(|(_, tool)| kind(tool) == "custom");
    let mut item = if custom {
        json!({"id": id("ctc", request.index, nth), "type": "custom_tool_call", "status": "completed", "call_id": call.id, "name": call.name, "input": call.arguments})
    } else {
        json!({"id": id("fc", request.index, nth), "type": "function_call", "status": "completed", "call_id": call.id, "name": call.name, "arguments": call.arguments})
    };
    if let (Some((Some(space), _)), Some(members)) = (found, item.as_object_mut()) {
        members.insert("namespace".to_owned(), text(space, "name").into());
    }
    item
}

/// The response object around `output`; `status` is `in_progress`, `completed`, `incomplete` or `failed`.
pub(super) fn response(request: &ModelRequest, status: &str, output: &[Value], usage: Option<Usage>) -> Value {
    let echo = |key: &str, default: Value| request.body.get(key).cloned().unwrap_or(default);
    let incomplete = if status == "incomplete" { json!({"reason": "max_output_tokens"}) } else { Value::Null };
    json!({
        "id": response_id(request),
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "background": false,
        "error": null,
        "incomplete_details": incomplete,
        "instructions": echo("instructions", Value::Null),
        "max_output_tokens": echo("max_output_tokens", Value::Null),
        "model": request.model(),
        "output": output,
        "parallel_tool_calls": echo("parallel_tool_calls", true.into()),
        "previous_response_id": echo("previous_response_id", Value::Null),
        "prompt_cache_key": echo("prompt_cache_key", Value::Null),
        "reasoning": echo("reasoning", json!({"effort": null, "summary": null})),
        "store": echo("store", true.into()),
        "temperature": 1.0,
        "text": echo("text", json!({"format": {"type": "text"}})),
        "tool_choice": echo("tool_choice", "auto".into()),
        "tools": echo("tools", json!([])),
        "top_p": 1.0,
        "truncation": echo("truncation", "disabled".into()),
        "usage": usage.map_or(Value::Null, self::usage),
        "user": null,
        "metadata": {},
    })
}

pub(super) fn usage(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt + usage.completion,
    })
}
