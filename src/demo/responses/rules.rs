//! The structural rules of Responses (R1–R20), with the errors OpenAI answers them by.

use serde_json::Value;

use super::super::request::{self, Ids, ModelRequest, kind, role};
use super::super::rules::{
    Violation, array_length, bounded, empty_array, invalid, missing, string, unknown_value, wrong_type,
};
use super::store::Store;
use super::{pairs, reasoning};

/// Longest `id` and `call_id`, Unicode characters (R7).
const MAX_ID_CHARS: usize = 64;
/// Longest single string, Unicode characters (R17).
const MAX_STRING_CHARS: usize = 10_485_760;
/// Longest `encrypted_content` of a compaction, bytes (R10).
const MAX_COMPACTION: usize = 20 * 1024 * 1024;
/// Least `max_output_tokens` (R14).
const LEAST_OUTPUT: i64 = 16;
/// Least `compact_threshold` (R12).
const LEAST_THRESHOLD: i64 = 1_000;
/// How ids begin, by the item's type (R7).
const PREFIXES: [(&str, &str); 5] = [
    ("reasoning", "rs"),
    ("message", "msg"),
    ("function_call", "fc"),
    ("custom_tool_call", "ctc"),
    ("compaction", "cmp"),
];

/// The first rule that the request breaks.
pub fn check(request: &ModelRequest, allowed: Ids, store: &Store) -> Result<(), Violation> {
    let own = request.input.get(request.held..).unwrap_or_default();
    for (i, item) in own.iter().enumerate() {
        if allowed == Ids::Own {
            ids(&format!("input[{i}]"), item)?;
        }
        checked(&format!("input[{i}]"), item, i + 1 == own.len())?;
    }
    pairs::check(&request.input)?;
    reasoning::check(&request.input, &request.body, store)
}

/// What can be said of the body before its history is looked up.
pub fn parameters(body: &Value) -> Result<(), Violation> {
    let Some(object) = body.as_object() else { return Err(super::super::rules::unreadable()) };
    let set = |key: &str| object.get(key).is_some_and(|value| !value.is_null());
    if !object.get("model").is_some_and(Value::is_string) {
        return Err(missing("P8", "model"));
    }
    input(body, set("previous_response_id") || set("conversation") || set("prompt"))?;
    if set("previous_response_id") && set("conversation") {
        let text = "Mutually exclusive parameters: 'previous_response_id, conversation'. Ensure you are only providing one of: 'previous_response_id' or 'conversation'.";
        return Err(invalid("R8", text, None, Some("mutually_exclusive_parameters")));
    }
    if let Some(limit) = object.get("max_output_tokens").and_then(Value::as_i64).filter(|limit| *limit < LEAST_OUTPUT) {
        let text = format!(
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= {LEAST_OUTPUT}, but got {limit} instead."
        );
        return Err(invalid("R14", &text, Some("max_output_tokens"), Some("integer_below_min_value")));
    }
    let tools = request::list(body, "tools").len();
    if tools > 0 {
        array_length("R15", "tools", tools)?;
    }
    if let Some(other) = object.get("instructions").filter(|value| !value.is_null() && !value.is_string()) {
        return Err(wrong_type("R15", "instructions", "a string", other));
    }
    if set("stream_options") && object.get("stream") != Some(&Value::Bool(true)) {
        let text = "The 'stream_options' parameter is only allowed when 'stream' is enabled.";
        return Err(invalid("P2", text, Some("stream_options"), None));
    }
    management(body)
}

fn input(body: &Value, elsewhere: bool) -> Result<(), Violation> {
    match body.get("input") {
        Some(Value::String(text)) => bounded("R17", "input", text, MAX_STRING_CHARS),
        Some(Value::Array(items)) if !items.is_empty() => Ok(()),
        None | Some(Value::Null | Value::Array(_)) if elsewhere => Ok(()),
        None | Some(Value::Null | Value::Array(_)) => {
            let text = "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation' must be provided.";
            Err(invalid("P7", text, Some("input"), Some("missing_required_parameter")))
        }
        Some(other) => Err(wrong_type("R17", "input", "one of a string or array of items", other)),
    }
}

/// R12, R13.
fn management(body: &Value) -> Result<(), Violation> {
    for (i, edit) in request::list(body, "context_management").iter().enumerate() {
        let at = format!("context_management[{i}].compact_threshold");
        if edit.get("compact_threshold").and_then(Value::as_i64).is_some_and(|least| least < LEAST_THRESHOLD) {
            let text = format!("Invalid '{at}': integer below minimum value. Expected a value >= {LEAST_THRESHOLD}.");
            return Err(invalid("R12", &text, Some(&at), Some("integer_below_min_value")));
        }
    }
    match body.get("truncation").and_then(Value::as_str) {
        None | Some("auto" | "disabled") => Ok(()),
        Some(other) => Err(unknown_value("R13", "truncation", other, "'auto' and 'disabled'")),
    }
}

fn checked(at: &str, item: &Value, last: bool) -> Result<(), Violation> {
    if !item.is_object() {
        return Err(wrong_type("R17", at, "an object", item));
    }
    match kind(item) {
        "" | "message" => message(at, item),
        "function_call" => {
            string(at, item, "call_id", "R1")?;
            string(at, item, "name", "R1")?;
            string(at, item, "arguments", "R1").and_then(|text| long(&format!("{at}.arguments"), text))
        }
        "custom_tool_call" => {
            string(at, item, "call_id", "R2")?;
            string(at, item, "name", "R2")?;
            string(at, item, "input", "R2").and_then(|text| long(&format!("{at}.input"), text))
        }
        "function_call_output" | "custom_tool_call_output" => {
            string(at, item, "call_id", "R1")?;
            output(at, item)
        }
        "computer_call_output" => screenshot(at, item),
        "apply_patch_call_output" => string(at, item, "status", "R2").map(drop),
        "mcp_approval_response" => string(at, item, "approval_request_id", "R2").map(drop),
        "additional_tools" => match item.get("tools") {
            Some(Value::Array(_)) => Ok(()),
            _ => Err(missing("R15", &format!("{at}.tools"))),
        },
        "compaction" => {
            let secret = string(at, item, "encrypted_content", "R10")?;
            bounded("R10", &format!("{at}.encrypted_content"), secret, MAX_COMPACTION)
        }
        "compaction_trigger" if !last => {
            Err(invalid("R11", "'compaction_trigger' must be the last input item.", Some(at), Some("invalid_value")))
        }
        "reasoning" => match item.get("summary") {
            Some(Value::Array(_)) => Ok(()),
            _ => Err(missing("R4", &format!("{at}.summary"))),
        },
        _ => Ok(()),
    }
}

fn ids(at: &str, item: &Value) -> Result<(), Violation> {
    for key in ["id", "call_id"] {
        if let Some(Value::String(id)) = item.get(key) {
            bounded("R7", &format!("{at}.{key}"), id, MAX_ID_CHARS)?;
        }
    }
    let Some(Value::String(id)) = item.get("id") else { return Ok(()) };
    match PREFIXES.iter().find(|(kind, _)| *kind == self::kind(item)) {
        Some((_, prefix)) if !id.starts_with(prefix) => {
            let at = format!("{at}.id");
            let text = format!("Invalid '{at}': '{id}'. Expected an ID that begins with '{prefix}'.");
            Err(invalid("R7", &text, Some(&at), Some("invalid_value")))
        }
        _ => Ok(()),
    }
}

fn message(at: &str, item: &Value) -> Result<(), Violation> {
    let types: &[&str] = match role(item) {
        "user" | "system" | "developer" => &["input_text", "input_image", "input_file", "input_audio"],
        "assistant" => &["output_text", "refusal"],
        "" => return Err(missing("R17", &format!("{at}.role"))),
        other => {
            let known = "'assistant', 'system', 'developer', and 'user'";
            return Err(unknown_value("R17", &format!("{at}.role"), other, known));
        }
    };
    if let Some(phase) = item.get("phase").and_then(Value::as_str)
        && !["commentary", "final_answer"].contains(&phase)
    {
        return Err(unknown_value("R16", &format!("{at}.phase"), phase, "'commentary' and 'final_answer'"));
    }
    content(&format!("{at}.content"), item.get("content"), types, "R17")
}

fn output(at: &str, item: &Value) -> Result<(), Violation> {
    let types = ["input_text", "input_image", "input_file"];
    content(&format!("{at}.output"), item.get("output"), &types, "R1")
}

fn content(at: &str, content: Option<&Value>, types: &[&str], rule: &'static str) -> Result<(), Violation> {
    match content {
        None | Some(Value::Null) => Err(missing(rule, at)),
        Some(Value::String(text)) => long(at, text),
        Some(Value::Array(parts)) if parts.is_empty() => Err(empty_array(rule, at)),
        Some(Value::Array(parts)) => {
            parts.iter().enumerate().try_for_each(|(k, part)| self::part(&format!("{at}[{k}]"), part, types, rule))
        }
        Some(other) => Err(wrong_type(rule, at, "one of a string or array of objects", other)),
    }
}

fn part(at: &str, part: &Value, types: &[&str], rule: &'static str) -> Result<(), Violation> {
    let kind = string(at, part, "type", rule)?;
    if !types.contains(&kind) {
        let known = types.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
        return Err(unknown_value(rule, &format!("{at}.type"), kind, &known));
    }
    let set = |key: &str| part.get(key).is_some_and(|value| !value.is_null());
    match kind {
        "input_text" | "output_text" => {
            string(at, part, "text", rule).and_then(|text| long(&format!("{at}.text"), text))
        }
        "refusal" => string(at, part, "refusal", rule).map(drop),
        "input_image" if !set("image_url") && !set("file_id") => {
            let text = format!("Invalid '{at}': one of 'image_url' or 'file_id' must be provided.");
            Err(invalid("R20", &text, Some(at), Some("missing_required_parameter")))
        }
        _ => Ok(()),
    }
}

/// R20.
fn screenshot(at: &str, item: &Value) -> Result<(), Violation> {
    string(at, item, "call_id", "R2")?;
    let at = format!("{at}.output");
    let Some(output) = item.get("output") else { return Err(missing("R20", &at)) };
    if kind(output) != "computer_screenshot" {
        return Err(unknown_value("R20", &format!("{at}.type"), kind(output), "'computer_screenshot'"));
    }
    let set = |key: &str| output.get(key).is_some_and(|value| !value.is_null());
    if set("image_url") || set("file_id") { Ok(()) } else { Err(missing("R20", &format!("{at}.image_url"))) }
}

fn long(at: &str, text: &str) -> Result<(), Violation> {
    bounded("R17", at, text, MAX_STRING_CHARS)
}

#[cfg(test)]
#[path = "../tests/responses_rules.rs"]
mod tests;
