//! A15–A17: how many cache breakpoints there are, where, and in which order.

use serde_json::Value;

use super::super::request::{kind, list, messages, text};
use super::super::rules::Violation;
use super::rules::invalid;

/// Most breakpoints of a request (A15).
const MOST: usize = 4;

/// The first rule about breakpoints that `body` breaks.
pub(super) fn check(body: &Value) -> Result<(), Violation> {
    let mut marks: Vec<(String, &Value)> = Vec::new();
    for (i, tool) in list(body, "tools").iter().enumerate() {
        collect(&format!("tools.{i}"), tool, &mut marks)?;
    }
    for (i, part) in list(body, "system").iter().enumerate() {
        collect(&format!("system.{i}"), part, &mut marks)?;
    }
    for (i, message) in messages(body).iter().enumerate() {
        for (k, block) in list(message, "content").iter().enumerate() {
            collect(&format!("messages.{i}.content.{k}"), block, &mut marks)?;
        }
    }
    marks.extend(body.get("cache_control").filter(|mark| mark.is_object()).map(|mark| (String::new(), mark)));
    if marks.len() > MOST {
        let text = format!("A maximum of {MOST} blocks with cache_control may be provided. Found {}.", marks.len());
        return Err(invalid("A15", text));
    }
    lifetimes(&marks)
}

fn collect<'v>(at: &str, block: &'v Value, marks: &mut Vec<(String, &'v Value)>) -> Result<(), Violation> {
    if let Some(mark) = block.get("cache_control").filter(|mark| !mark.is_null()) {
        if matches!(kind(block), "thinking" | "redacted_thinking") {
            let text = format!("{at}.{}.cache_control: Extra inputs are not permitted", kind(block));
            return Err(invalid("A16", text));
        }
        if kind(block) == "text" && text(block, "text").is_empty() {
            let text = format!("{at}.text: cache_control cannot be set for empty text blocks");
            return Err(invalid("A16", text));
        }
        marks.push((at.to_owned(), mark));
    }
    if kind(block) == "tool_result" {
        for (n, part) in list(block, "content").iter().enumerate() {
            collect(&format!("{at}.tool_result.content.{n}"), part, marks)?;
        }
    }
    Ok(())
}

/// A17. Five minutes is what a breakpoint has that says nothing.
fn lifetimes(marks: &[(String, &Value)]) -> Result<(), Violation> {
    let mut short = false;
    for (at, mark) in marks {
        match mark.get("ttl").and_then(Value::as_str) {
            None | Some("5m") => short = true,
            Some("1h") if short => {
                return Err(invalid(
                    "A17",
                    format!(
                        "{at}.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note that blocks are processed in the following order: `tools`, `system`, `messages`."
                    ),
                ));
            }
            Some("1h") => {}
            Some(_) => return Err(invalid("A17", format!("{at}.cache_control.ttl: Input should be '5m' or '1h'"))),
        }
    }
    Ok(())
}
