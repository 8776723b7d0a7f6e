//! The structural rules of Chat Completions (C1–C13), with the errors OpenAI answers them by.

use serde_json::{Value, json};

use super::profiles::{self, Profile};
use super::request::{role, tool_calls};

/// Longest `tool_calls[].id`, Unicode characters (C8).
const MAX_ID_CHARS: usize = 40;
/// Most tools of a request and most calls of a message (C8).
const MAX_ARRAY: usize = 128;
/// Longest single string, Unicode characters (C8).
const MAX_STRING_CHARS: usize = 1_048_576;

/// How strict a provider is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    pub profile: Profile,
    pub arguments: Arguments,
    pub empty: Empty,
}

/// What becomes of `arguments` that hold no JSON (C6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arguments {
    /// As OpenAI: a string is a string.
    Opaque,
    /// As servers that render them through a template: an error 500.
    Parsed,
}

/// Which messages without content are taken (C3, C4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Empty {
    /// Also `null` and `[]`, as lenient servers do; for recorded conversations that hold them.
    Anything,
    /// `""`, as OpenAI: tools do print nothing.
    Text,
    /// As the strictest servers; for tests whose own input has no empty message.
    Nothing,
}

/// A broken rule and the answer it gets.
#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    /// The rule's id in the list of invariants: `C1`, `D3`, …; empty: the request is refused, but breaks none.
    pub rule: &'static str,
    pub status: u16,
    pub body: Value,
}

impl Default for Rules {
    fn default() -> Self {
        Self { profile: Profile::OpenAi, arguments: Arguments::Opaque, empty: Empty::Text }
    }
}

impl Rules {
    /// The rules of OpenAI and of `profile` on top.
    pub fn of(profile: Profile) -> Self {
        Self { profile, ..Self::default() }
    }

    /// The first rule that `body` breaks.
    pub fn check(&self, body: &Value) -> Result<(), Violation> {
        parameters(body)?;
        let list = match body.get("messages") {
            None | Some(Value::Null) => return Err(missing("C10", "messages")),
            Some(Value::Array(list)) if list.is_empty() => return Err(empty_array("C10", "messages")),
            Some(Value::Array(list)) => list,
            Some(other) => return Err(wrong_type("C10", "messages", "an array of objects", other)),
        };
        list.iter().enumerate().try_for_each(|(i, message)| self.message(i, message))?;
        pairing(list)?;
        profiles::check(self.profile, body)
    }

    fn message(&self, i: usize, message: &Value) -> Result<(), Violation> {
        let at = format!("messages[{i}]");
        if !message.is_object() {
            return Err(wrong_type("C9", &at, "an object", message));
        }
        let void = match message.get("content") {
            None | Some(Value::Null) => role(message) == "assistant" && tool_calls(message).is_empty(),
            Some(content) => content.as_array().is_some_and(Vec::is_empty),
        };
        if void && self.empty == Empty::Anything {
            return Ok(());
        }
        match role(message) {
            "system" | "developer" => content(&at, message, &["text"], "C5"),
            "user" => {
                content(&at, message, &["text", "image_url", "input_audio", "file"], "C5")?;
                self.not_empty(i, message)
            }
            "assistant" => self.assistant(&at, message),
            "tool" => {
                let id = string(&at, message, "tool_call_id", "C3")?;
                bounded("C8", &format!("{at}.tool_call_id"), id, MAX_ID_CHARS)?;
                content(&at, message, &["text"], "C3")?;
                self.not_empty(i, message)
            }
            "function" => string(&at, message, "name", "C12").and_then(|_| content(&at, message, &["text"], "C12")),
            "" => Err(missing("C9", &format!("{at}.role"))),
            other => Err(unknown_value(
                "C9",
                &format!("{at}.role"),
                other,
                "'system', 'assistant', 'user', 'function', 'tool', and 'developer'",
            )),
        }
    }

    fn not_empty(&self, i: usize, message: &Value) -> Result<(), Violation> {
        match (self.empty, message.get("content").and_then(Value::as_str)) {
            (Empty::Nothing, Some("")) => Err(invalid(
                "C3",
                "Invalid parameter: message content must not be empty.",
                Some(&format!("messages.[{i}].content")),
                None,
            )),
            _ => Ok(()),
        }
    }

    fn assistant(&self, at: &str, message: &Value) -> Result<(), Violation> {
        let present = |key: &str| message.get(key).is_some_and(|value| !value.is_null());
        if present("content") {
            assistant_content(at, message)?;
        } else if !["tool_calls", "function_call", "audio", "refusal"].iter().any(|key| present(key)) {
            return Err(null_content("C4", at));
        }
        match message.get("tool_calls") {
            None | Some(Value::Null) => Ok(()),
            Some(Value::Array(calls)) => {
                let at = format!("{at}.tool_calls");
                array_length("C8", &at, calls.len())?;
                calls.iter().enumerate().try_for_each(|(k, call)| self.call(&format!("{at}[{k}]"), call))
            }
            Some(other) => Err(wrong_type("C4", &format!("{at}.tool_calls"), "an array of objects", other)),
        }
    }

    fn call(&self, at: &str, call: &Value) -> Result<(), Violation> {
        let id = string(at, call, "id", "C2")?;
        bounded("C8", &format!("{at}.id"), id, MAX_ID_CHARS)?;
        let (member, text, rule) = match call.get("type").and_then(Value::as_str) {
            Some("function") => ("function", "arguments", "C6"),
            Some("custom") => ("custom", "input", "C7"),
            Some(other) => return Err(unknown_value("C7", &format!("{at}.type"), other, "'function' and 'custom'")),
            None => return Err(missing("C7", &format!("{at}.type"))),
        };
        let at = format!("{at}.{member}");
        let inner = call.get(member).ok_or_else(|| missing(rule, &at))?;
        string(&at, inner, "name", rule)?;
        let text_at = format!("{at}.{text}");
        let text = string(&at, inner, text, rule)?;
        bounded("C8", &text_at, text, MAX_STRING_CHARS)?;
        let unreadable = member == "function" && serde_json::from_str::<serde::de::IgnoredAny>(text).is_err();
        if unreadable && self.arguments == Arguments::Parsed {
            let message = "Failed to parse tool call arguments as JSON: [json.exception.parse_error.101]";
            let body = json!({"error": {"code": 500, "message": message, "type": "server_error"}});
            return Err(Violation { rule: "C6", status: 500, body });
        }
        Ok(())
    }
}

/// The parameters that a carelessly built side call gets wrong.
fn parameters(body: &Value) -> Result<(), Violation> {
    let Some(object) = body.as_object() else { return Err(unreadable()) };
    let set = |key: &str| object.get(key).is_some_and(|value| !value.is_null());
    if !object.get("model").is_some_and(Value::is_string) {
        return Err(invalid("P8", "you must provide a model parameter", None, None));
    }
    if let Some(Value::Array(tools)) = object.get("tools") {
        array_length("C8", "tools", tools.len())?;
    }
    if let Some(key) = ["tool_choice", "parallel_tool_calls"].into_iter().find(|key| set(key) && !set("tools")) {
        let message = format!("Invalid value for '{key}': '{key}' is only allowed when 'tools' are specified.");
        return Err(invalid("P11", &message, Some(key), None));
    }
    if set("stream_options") && object.get("stream") != Some(&Value::Bool(true)) {
        let message = "The 'stream_options' parameter is only allowed when 'stream' is enabled.";
        return Err(invalid("P2", message, Some("stream_options"), None));
    }
    for key in ["max_tokens", "max_completion_tokens"] {
        if object.get(key).and_then(Value::as_i64).is_some_and(|limit| limit < 1) {
            let message = format!("Invalid '{key}': integer below minimum value. Expected a value >= 1.");
            return Err(invalid("P8", &message, Some(key), Some("integer_below_min_value")));
        }
    }
    Ok(())
}

/// C1, C2 and C12: results stand right behind the message whose calls they answer.
fn pairing(list: &[Value]) -> Result<(), Violation> {
    let mut calls: Vec<&str> = Vec::new();
    let mut open: Vec<&str> = Vec::new();
    let mut function: Option<&str> = None;
    for (i, message) in list.iter().enumerate() {
        let role = role(message);
        if role == "tool" {
            let id = message.get("tool_call_id").and_then(Value::as_str).unwrap_or_default();
            answered(i, id, &calls)?;
            // One result closes one call: ids may be used again within a turn.
            match open.iter().position(|waiting| *waiting == id) {
                Some(at) => drop(open.remove(at)),
                None => return Err(unknown_id(i, id)),
            }
            continue;
        }
        all_answered(i, &open)?;
        let waiting = function.take();
        if role == "function" {
            let name = message.get("name").and_then(Value::as_str);
            if name != waiting {
                let text = "Invalid parameter: messages with role 'function' must be a response to a preceeding message with 'function_call'.";
                return Err(invalid("C12", text, Some(&format!("messages.[{i}].role")), None));
            }
        } else if waiting.is_some() {
            let text =
                "An assistant message with 'function_call' must be followed by a function message responding to it.";
            return Err(invalid("C12", text, Some(&format!("messages.[{i}].role")), None));
        }
        calls = ids(message);
        open.clone_from(&calls);
        function = message.pointer("/function_call/name").and_then(Value::as_str);
    }
    all_answered(list.len().saturating_sub(1), &open)
}

fn ids(message: &Value) -> Vec<&str> {
    tool_calls(message).iter().filter_map(|call| call.get("id").and_then(Value::as_str)).collect()
}

fn answered(i: usize, id: &str, calls: &[&str]) -> Result<(), Violation> {
    if calls.is_empty() {
        let text = "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.";
        return Err(invalid("C1", text, Some(&format!("messages.[{i}].role")), None));
    }
    if !calls.contains(&id) {
        return Err(unknown_id(i, id));
    }
    Ok(())
}

fn unknown_id(i: usize, id: &str) -> Violation {
    let text = format!("Invalid parameter: 'tool_call_id' of '{id}' not found in 'tool_calls' of previous message.");
    invalid("C1", &text, Some(&format!("messages.[{i}].tool_call_id")), None)
}

fn all_answered(i: usize, open: &[&str]) -> Result<(), Violation> {
    if open.is_empty() {
        return Ok(());
    }
    let text = format!(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: {}",
        open.join(", ")
    );
    Err(invalid("C2", &text, Some(&format!("messages.[{i}].role")), None))
}

/// Content that must be there: a string, or an array of parts of the given types.
fn content(at: &str, message: &Value, types: &[&str], rule: &'static str) -> Result<(), Violation> {
    match message.get("content") {
        None | Some(Value::Null) => Err(null_content(rule, at)),
        Some(Value::String(text)) => bounded("C8", &format!("{at}.content"), text, MAX_STRING_CHARS),
        Some(Value::Array(list)) => parts(at, list, types, rule),
        Some(other) => Err(wrong_type(rule, &format!("{at}.content"), "one of a string or array of objects", other)),
    }
}

fn parts(at: &str, list: &[Value], types: &[&str], rule: &'static str) -> Result<(), Violation> {
    let at = format!("{at}.content");
    if list.is_empty() {
        return Err(empty_array(rule, &at));
    }
    for (k, part) in list.iter().enumerate() {
        let at = format!("{at}[{k}]");
        let kind = string(&at, part, "type", rule)?;
        if !types.contains(&kind) {
            let known = types.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
            return Err(unknown_value(rule, &format!("{at}.type"), kind, &known));
        }
        let value = part.get(kind).ok_or_else(|| missing(rule, &format!("{at}.{kind}")))?;
        if let Value::String(text) = value {
            bounded("C8", &format!("{at}.{kind}"), text, MAX_STRING_CHARS)?;
        }
    }
    Ok(())
}

/// C4: text parts, or exactly one refusal.
fn assistant_content(at: &str, message: &Value) -> Result<(), Violation> {
    content(at, message, &["text", "refusal"], "C4")?;
    let Some(list) = message.get("content").and_then(Value::as_array) else { return Ok(()) };
    let refused = list.iter().any(|part| part.get("type").and_then(Value::as_str) == Some("refusal"));
    if refused && list.len() != 1 {
        let text = format!("Invalid '{at}.content': a refusal must be the only part of a message.");
        return Err(invalid("C4", &text, Some(&format!("{at}.content")), Some("invalid_value")));
    }
    Ok(())
}

pub(super) fn string<'v>(at: &str, value: &'v Value, key: &str, rule: &'static str) -> Result<&'v str, Violation> {
    let at = format!("{at}.{key}");
    match value.get(key) {
        Some(Value::String(text)) => Ok(text),
        None | Some(Value::Null) => Err(missing(rule, &at)),
        Some(other) => Err(wrong_type(rule, &at, "a string", other)),
    }
}

pub(super) fn bounded(rule: &'static str, at: &str, text: &str, most: usize) -> Result<(), Violation> {
    // Bytes bound characters: most strings need no count.
    if text.len() <= most {
        return Ok(());
    }
    let length = text.chars().count();
    if length <= most {
        return Ok(());
    }
    let text = format!(
        "Invalid '{at}': string too long. Expected a string with maximum length {most}, but got a string with length {length} instead."
    );
    Err(invalid(rule, &text, Some(at), Some("string_above_max_length")))
}

pub(super) fn array_length(rule: &'static str, at: &str, length: usize) -> Result<(), Violation> {
    match length {
        0 => Err(empty_array(rule, at)),
        1..=MAX_ARRAY => Ok(()),
        _ => {
            let text = format!(
                "Invalid '{at}': array too long. Expected an array with maximum length {MAX_ARRAY}, but got an array with length {length} instead."
            );
            Err(invalid(rule, &text, Some(at), Some("array_above_max_length")))
        }
    }
}

/// An error 400 in OpenAI's shape.
pub fn invalid(rule: &'static str, message: &str, param: Option<&str>, code: Option<&str>) -> Violation {
    let error = json!({"message": message, "type": "invalid_request_error", "param": param, "code": code});
    Violation { rule, status: 400, body: json!({ "error": error }) }
}

/// The body is not JSON, or not what its `content-encoding` says.
pub fn unreadable() -> Violation {
    let text = "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP library correctly. The OpenAI API expects a JSON payload, but what was sent was not valid JSON.)";
    invalid("P1", text, None, None)
}

pub(super) fn missing(rule: &'static str, at: &str) -> Violation {
    let text = format!("Missing required parameter: '{at}'.");
    invalid(rule, &text, Some(at), Some("missing_required_parameter"))
}

pub(super) fn empty_array(rule: &'static str, at: &str) -> Violation {
    let text = format!(
        "Invalid '{at}': empty array. Expected an array with minimum length 1, but got an empty array instead."
    );
    invalid(rule, &text, Some(at), Some("empty_array"))
}

fn null_content(rule: &'static str, at: &str) -> Violation {
    let at = at.replace('[', ".[");
    invalid(rule, "Invalid value for 'content': expected a string, got null.", Some(&format!("{at}.content")), None)
}

pub(super) fn wrong_type(rule: &'static str, at: &str, wanted: &str, got: &Value) -> Violation {
    let got = match got {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    let text = format!("Invalid type for '{at}': expected {wanted}, but got {got} instead.");
    invalid(rule, &text, Some(at), Some("invalid_type"))
}

pub(super) fn unknown_value(rule: &'static str, at: &str, value: &str, known: &str) -> Violation {
    let text = format!("Invalid value: '{value}'. Supported values are: {known}.");
    invalid(rule, &text, Some(at), Some("invalid_value"))
}

#[cfg(test)]
#[path = "tests/rules.rs"]
mod tests;
