//! What a block may be, by itself and by the role of its message: A4, A8, A9, A19–A22.

use serde_json::Value;

use super::super::render;
use super::super::request::{kind, list, role, text};
use super::super::rules::Violation;
use super::rules::invalid;

/// Largest picture, bytes of its base64 text decoded (A20).
const MAX_IMAGE: usize = 5 * 1024 * 1024;
/// Longest name of a tool (A22).
const MAX_NAME: usize = 128;
/// Blocks that only a model makes.
const OF_ASSISTANT: [&str; 6] =
    ["thinking", "redacted_thinking", "tool_use", "server_tool_use", "mcp_tool_use", "mcp_tool_result"];
/// Blocks that only a client makes.
const OF_USER: [&str; 3] = ["tool_result", "document", "search_result"];

/// The first broken rule in message `i`; `tools`: the request defines some.
pub(super) fn check(i: usize, message: &Value, tools: bool) -> Result<(), Violation> {
    let Some(content) = message.get("content") else { return Ok(()) };
    let blocks = render::blocks(content);
    for (k, block) in blocks.iter().enumerate() {
        let at = format!("messages.{i}.content.{k}");
        if !block.is_object() {
            return Err(invalid("A8", format!("{at}: Input should be an object")));
        }
        fits_role(&at, kind(block), role(message))?;
        if !tools && matches!(kind(block), "tool_use" | "tool_result") {
            let text = "Requests which include `tool_use` or `tool_result` blocks must define tools.";
            return Err(invalid("P11", text));
        }
        self::block(&at, block)?;
    }
    Ok(())
}

fn fits_role(at: &str, kind: &str, role: &str) -> Result<(), Violation> {
    let (wrong, right) = match role {
        "user" => (OF_ASSISTANT.contains(&kind), "assistant"),
        _ => (OF_USER.contains(&kind), "user"),
    };
    match kind {
        "" => Err(invalid("A8", format!("{at}.type: Field required"))),
        _ if wrong => Err(invalid("A2", format!("{at}: `{kind}` blocks can only be in `{right}` messages"))),
        _ => Ok(()),
    }
}

fn block(at: &str, block: &Value) -> Result<(), Violation> {
    match kind(block) {
        "text" => words(block),
        "image" => image(at, block),
        "thinking" => ["thinking", "signature"].iter().try_for_each(|key| {
            if block.get(*key).is_some_and(Value::is_string) {
                Ok(())
            } else {
                Err(required("A10", at, "thinking", key))
            }
        }),
        "redacted_thinking" if text(block, "data").is_empty() => Err(required("A10", at, "redacted_thinking", "data")),
        "tool_use" | "server_tool_use" | "mcp_tool_use" => call(at, block),
        "tool_result" => result(at, block),
        "compaction" if block.get("content").is_some_and(|content| content == "") => {
            Err(invalid("A19", format!("{at}.compaction.content: String should have at least 1 character")))
        }
        _ => Ok(()),
    }
}

/// A8.
fn words(block: &Value) -> Result<(), Violation> {
    let words = text(block, "text");
    if words.is_empty() {
        return Err(invalid("A8", "messages: text content blocks must be non-empty"));
    }
    if words.trim().is_empty() {
        return Err(invalid("A8", "messages: text content blocks must contain non-whitespace text"));
    }
    Ok(())
}

/// A20.
fn image(at: &str, block: &Value) -> Result<(), Violation> {
    let Some(source) = block.get("source").filter(|source| source.is_object()) else {
        return Err(required("A20", at, "image", "source"));
    };
    let bytes = text(source, "data").len() / 4 * 3;
    if bytes > MAX_IMAGE {
        let text = format!("{at}.image.source.base64: image exceeds 5 MB maximum: {bytes} bytes > {MAX_IMAGE} bytes");
        return Err(invalid("A20", text));
    }
    Ok(())
}

/// A22: the ids of calls.
pub(super) fn ids(i: usize, message: &Value) -> Result<(), Violation> {
    let plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    let calls = list(message, "content").iter().enumerate().filter(|(_, block)| kind(block).ends_with("tool_use"));
    for (k, block) in calls {
        if !plain(text(block, "id")) {
            let at = format!("messages.{i}.content.{k}.{}.id", kind(block));
            return Err(invalid("A22", format!("{at}: String should match pattern '^[a-zA-Z0-9_-]+$'")));
        }
    }
    Ok(())
}

/// A22.
fn call(at: &str, block: &Value) -> Result<(), Violation> {
    let kind = kind(block);
    let name = text(block, "name");
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(invalid("A22", format!("{at}.{kind}.name: String should have 1 to {MAX_NAME} characters")));
    }
    if !block.get("input").is_some_and(Value::is_object) {
        return Err(invalid("A22", format!("{at}.{kind}.input: Input should be a valid dictionary")));
    }
    Ok(())
}

/// A9: content may be missing or empty.
fn result(at: &str, block: &Value) -> Result<(), Violation> {
    if text(block, "tool_use_id").is_empty() {
        return Err(required("A2", at, "tool_result", "tool_use_id"));
    }
    match block.get("content") {
        None | Some(Value::Null | Value::String(_)) => Ok(()),
        Some(Value::Array(_)) => list(block, "content").iter().enumerate().try_for_each(|(n, part)| {
            let at = format!("{at}.tool_result.content.{n}");
            match kind(part) {
                "image" => image(&at, part),
                "text" if part.get("text").is_some_and(Value::is_string) => Ok(()),
                "text" => Err(required("A9", &at, "text", "text")),
                "tool_use" | "tool_result" | "thinking" | "redacted_thinking" | "" => {
                    let known = "'text', 'image', 'document', 'search_result', 'tool_reference'";
                    Err(invalid("A9", format!("{at}.type: Input should be {known}")))
                }
                _ => Ok(()),
            }
        }),
        Some(_) => Err(invalid("A9", format!("{at}.tool_result.content: Input should be a valid string or list"))),
    }
}

fn required(rule: &'static str, at: &str, kind: &str, key: &str) -> Violation {
    invalid(rule, format!("{at}.{kind}.{key}: Field required"))
}
