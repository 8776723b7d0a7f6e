//! The structural rules of Messages (A1–A27), with the errors Anthropic answers them by.

use std::borrow::Cow;

use http::HeaderMap;
use serde_json::{Value, json};

use super::super::render;
use super::super::request::{Ids, ModelRequest, Purpose, kind, list, messages, role, text};
use super::super::rules::Violation;
use super::signatures::Signatures;
use super::{Binding, Place, Prefill, Settings, blocks, marks, pairs, thinking};

/// Least `thinking.budget_tokens` (A14).
const LEAST_BUDGET: u64 = 1_024;
/// Most messages (A5).
const MAX_MESSAGES: usize = 100_000;
/// The beta under which thinking between tools is not bounded by `max_tokens`.
const INTERLEAVED: &str = "interleaved-thinking-2025-05-14";
/// The beta that `context_management` needs.
const MANAGEMENT: &str = "context-management-2025-06-27";

/// Messages of one role in a row: the API takes them as one (A5).
pub(super) struct Turn<'v> {
    pub role: &'v str,
    pub blocks: Vec<(Place, Cow<'v, Value>)>,
}

/// The first rule that the request breaks; else the thinking blocks that the model will not see, ascending.
pub fn check(
    request: &ModelRequest,
    purpose: Purpose,
    settings: &Settings,
    signatures: &mut Signatures,
) -> Result<Vec<Place>, Violation> {
    let body = &request.body;
    parameters(request, purpose)?;
    marks::check(body)?;
    let tools = !request.tools().is_empty();
    for (i, message) in messages(body).iter().enumerate() {
        self::message(i, message)?;
        blocks::check(i, message, tools)?;
        if settings.ids == Ids::Own {
            blocks::ids(i, message)?;
        }
    }
    instructions(messages(body))?;
    let turns = turns(body);
    order(&turns, settings.prefill)?;
    pairs::check(&turns)?;
    pairs::offered(&turns, request.tools())?;
    thinking::check(&turns, body)?;
    // Clients count parts of a conversation, too: no block is used there, so none is out of place.
    let binding = if purpose == Purpose::Count { Binding::Block } else { settings.binding };
    signatures.check(request, &turns, binding)
}

/// An error 400 in Anthropic's shape.
pub(in super::super) fn invalid(rule: &'static str, message: impl Into<String>) -> Violation {
    let error = json!({"type": "invalid_request_error", "message": message.into()});
    Violation { rule, status: 400, body: json!({"type": "error", "error": error, "request_id": "req_demo"}) }
}

/// The body is not JSON, or not what its `content-encoding` says.
pub fn unreadable() -> Violation {
    invalid("P1", "The request body is not valid JSON.")
}

/// A20: the edge refuses what is too large, in its own form.
pub fn size(bytes: usize, settings: &Settings) -> Result<(), Violation> {
    if bytes <= settings.max_bytes {
        return Ok(());
    }
    let error = json!({"type": "request_too_large", "message": "Request exceeds the maximum size"});
    Err(Violation { rule: "A20", status: 413, body: json!({ "error": error }) })
}

/// Whether a beta was asked for.
pub(super) fn beta(headers: &HeaderMap, name: &str) -> bool {
    let values = headers.get_all("anthropic-beta").iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|value| value.trim() == name)
}

/// Whether the model thinks in this request.
pub(super) fn thinks(body: &Value) -> bool {
    matches!(body.pointer("/thinking/type").and_then(Value::as_str), Some("enabled" | "adaptive"))
}

/// `body` as turns, strings as blocks.
fn turns(body: &Value) -> Vec<Turn<'_>> {
    let mut turns: Vec<Turn> = Vec::new();
    for (i, message) in messages(body).iter().enumerate() {
        let Some(content) = message.get("content") else { continue };
        let blocks = render::blocks(content).into_iter().enumerate().map(|(k, block)| ((i, k), block));
        match turns.last_mut() {
            Some(turn) if turn.role == role(message) => turn.blocks.extend(blocks),
            _ => turns.push(Turn { role: role(message), blocks: blocks.collect() }),
        }
    }
    turns
}

fn parameters(request: &ModelRequest, purpose: Purpose) -> Result<(), Violation> {
    let body = &request.body;
    if !body.is_object() {
        return Err(unreadable());
    }
    if body.get("thread").is_some_and(|thread| !thread.is_null()) {
        let mut error = invalid("", "This request cannot be served with `thread`. Send the full conversation instead.");
        if let Some(members) = error.body.get_mut("error").and_then(Value::as_object_mut) {
            let details = json!({"error_code": "thread_unsupported_request", "unsupported": ["thread"]});
            members.insert("details".to_owned(), details);
        }
        return Err(error);
    }
    if text(body, "model").is_empty() {
        return Err(invalid("P8", "model: Field required"));
    }
    match body.get("messages") {
        None | Some(Value::Null) => return Err(invalid("A5", "messages: Field required")),
        Some(Value::Array(list)) if list.is_empty() => {
            return Err(invalid("P7", "messages: at least one message is required"));
        }
        Some(Value::Array(list)) if list.len() > MAX_MESSAGES => {
            let text = format!("messages: List should have at most {MAX_MESSAGES} items");
            return Err(invalid("A5", text));
        }
        Some(Value::Array(_)) => {}
        Some(_) => return Err(invalid("A5", "messages: Input should be a valid list")),
    }
    if purpose == Purpose::Answer {
        output(request)?;
    }
    if body.get("tool_choice").is_some_and(Value::is_object) && request.tools().is_empty() {
        return Err(invalid("P11", "tool_choice may only be specified while providing tools"));
    }
    system(body)?;
    management(request)
}

/// A14.
fn output(request: &ModelRequest) -> Result<(), Violation> {
    let Some(most) = request.max_output() else {
        return Err(invalid("A14", "max_tokens: Field required"));
    };
    let Some(budget) = request.body.pointer("/thinking/budget_tokens").and_then(Value::as_u64) else { return Ok(()) };
    if budget < LEAST_BUDGET {
        let text = format!("thinking.enabled.budget_tokens: Input should be greater than or equal to {LEAST_BUDGET}");
        return Err(invalid("A14", text));
    }
    if most <= budget && !beta(&request.headers, INTERLEAVED) {
        let text = "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our documentation at https://docs.claude.com/en/docs/build-with-claude/extended-thinking#max-tokens-and-context-window-size";
        return Err(invalid("A14", text));
    }
    Ok(())
}

fn system(body: &Value) -> Result<(), Violation> {
    match body.get("system") {
        None | Some(Value::Null | Value::String(_)) => Ok(()),
        Some(Value::Array(parts)) => parts.iter().enumerate().try_for_each(|(k, part)| match kind(part) {
            "text" if text(part, "text").is_empty() => {
                Err(invalid("A8", "system: text content blocks must be non-empty"))
            }
            "text" => Ok(()),
            other => Err(invalid("A5", format!("system.{k}.type: Input should be 'text', but was '{other}'"))),
        }),
        Some(_) => Err(invalid("A5", "system: Input should be a valid string or list")),
    }
}

/// A18.
fn management(request: &ModelRequest) -> Result<(), Violation> {
    let Some(management) = request.body.get("context_management").filter(|value| !value.is_null()) else {
        return Ok(());
    };
    if !beta(&request.headers, MANAGEMENT) && !beta(&request.headers, "compact-2026-01-12") {
        return Err(invalid("A18", "context_management: Extra inputs are not permitted"));
    }
    let late = list(management, "edits").iter().skip(1).any(|edit| kind(edit).starts_with("clear_thinking"));
    if late {
        let text = "context_management.edits: `clear_thinking_20251015` must be the first edit";
        return Err(invalid("A18", text));
    }
    Ok(())
}

fn message(i: usize, message: &Value) -> Result<(), Violation> {
    match role(message) {
        "user" | "assistant" => {}
        "system" if sets_anew(message) => {}
        "system" => {
            let text = "messages: Unexpected role \"system\". The Messages API accepts a top-level `system` parameter, not \"system\" as an input message role.";
            return Err(invalid("A5", text));
        }
        "" => return Err(invalid("A5", format!("messages.{i}.role: Field required"))),
        _ => return Err(invalid("A5", format!("messages.{i}.role: Input should be 'user' or 'assistant'"))),
    }
    let void = match message.get("content") {
        None | Some(Value::Null) => return Err(invalid("A8", format!("messages.{i}.content: Field required"))),
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(blocks)) => blocks.is_empty(),
        Some(_) => {
            return Err(invalid("A8", format!("messages.{i}.content: Input should be a valid string or list")));
        }
    };
    if void {
        let text = format!(
            "messages.{i}: all messages must have non-empty content except for the optional final assistant message"
        );
        return Err(invalid("A8", text));
    }
    Ok(())
}

/// Whether a message changes tools or instructions and says nothing else (A21).
fn sets_anew(message: &Value) -> bool {
    let blocks = list(message, "content");
    !blocks.is_empty() && blocks.iter().all(is_change)
}

fn is_change(block: &Value) -> bool {
    matches!(kind(block), "mid_conv_system" | "tool_addition" | "tool_removal")
}

/// A21: where instructions may change: at the end of what the user says.
fn instructions(messages: &[Value]) -> Result<(), Violation> {
    let role_at = |i: Option<usize>| i.and_then(|i| messages.get(i)).map(role);
    for (i, message) in messages.iter().enumerate() {
        let (before, behind) = (role_at(i.checked_sub(1)), role_at(Some(i + 1)));
        let blocks = list(message, "content");
        let interior = blocks.iter().zip(blocks.iter().skip(1));
        if interior.into_iter().any(|(block, next)| is_change(block) && !is_change(next))
            || role(message) == "user" && behind == Some("user") && blocks.last().is_some_and(is_change)
        {
            return Err(invalid("A21", format!("messages.{i}.content: `mid_conv_system` blocks must end a turn")));
        }
        if role(message) == "system" && before != Some("user") {
            return Err(invalid("A21", format!("messages.{i}: role 'system' must follow a 'user' message")));
        }
        if role(message) == "system" && behind.is_some_and(|role| role != "assistant") {
            let text = format!("messages.{i}: role 'system' must precede an 'assistant' message or end the array");
            return Err(invalid("A21", text));
        }
    }
    Ok(())
}

/// A5, A6, A7.
fn order(turns: &[Turn], prefill: Prefill) -> Result<(), Violation> {
    if turns.first().is_some_and(|turn| turn.role != "user") {
        return Err(invalid("A5", "messages: first message must use the \"user\" role"));
    }
    let Some(last) = turns.last().filter(|turn| turn.role == "assistant") else { return Ok(()) };
    if prefill == Prefill::Refused {
        let text =
            "This model does not support assistant message prefill. The conversation must end with a user message.";
        return Err(invalid("A6", text));
    }
    match last.blocks.last() {
        Some((_, block)) if text(block, "text").ends_with(char::is_whitespace) => {
            Err(invalid("A7", "messages: final assistant content cannot end with trailing whitespace"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "../tests/messages_rules.rs"]
mod tests;
