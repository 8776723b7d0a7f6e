//! A1–A4, A21: calls and results stand where they must.

use std::collections::HashSet;

use serde_json::Value;

use super::super::request::{kind, list, text};
use super::super::rules::Violation;
use super::rules::{Turn, invalid};

/// The first call without its result, or result without its call.
pub(super) fn check(turns: &[Turn]) -> Result<(), Violation> {
    let mut waiting: Vec<&str> = Vec::new();
    let mut asker = 0;
    for (n, turn) in turns.iter().enumerate() {
        match turn.role {
            "assistant" => {
                server_tools(turn, n + 1 == turns.len())?;
                waiting = calls(turn)?;
                asker = turn.blocks.last().map_or(0, |((i, _), _)| *i);
                if n + 1 == turns.len() {
                    answered(asker, &waiting, &[])?;
                }
            }
            _ => {
                results(turn, &waiting, asker)?;
                waiting.clear();
            }
        }
    }
    Ok(())
}

fn calls<'t>(turn: &'t Turn) -> Result<Vec<&'t str>, Violation> {
    let mut ids: Vec<&str> = Vec::new();
    for ((i, k), block) in turn.blocks.iter().filter(|(_, block)| kind(block) == "tool_use") {
        let id = text(block, "id");
        if ids.contains(&id) {
            return Err(invalid("A1", format!("messages.{i}.content.{k}: `tool_use` ids must be unique")));
        }
        ids.push(id);
    }
    Ok(ids)
}

/// A1–A3: the results come first, one for each call.
fn results(turn: &Turn, waiting: &[&str], asker: usize) -> Result<(), Violation> {
    let mut seen: Vec<&str> = Vec::new();
    let mut leading: Vec<&str> = Vec::new();
    let mut still_first = true;
    for ((i, k), block) in &turn.blocks {
        if kind(block) != "tool_result" {
            still_first = false;
            continue;
        }
        let id = text(block, "tool_use_id");
        if !waiting.contains(&id) {
            return Err(invalid(
                "A2",
                format!(
                    "messages.{i}.content.{k}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
                ),
            ));
        }
        if seen.contains(&id) {
            return Err(invalid(
                "A1",
                format!(
                    "messages.{i}.content.{k}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {id}"
                ),
            ));
        }
        seen.push(id);
        if still_first {
            leading.push(id);
        }
    }
    // A result behind a text is as good as none.
    let rule = if seen.len() == leading.len() { "A1" } else { "A3" };
    answered(asker, waiting, &leading).map_err(|error| Violation { rule, ..error })
}

fn answered(i: usize, waiting: &[&str], results: &[&str]) -> Result<(), Violation> {
    let missing: Vec<&str> = waiting.iter().filter(|id| !results.contains(id)).copied().collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(invalid(
        "A1",
        format!(
            "messages.{i}: `tool_use` ids were found without `tool_result` blocks immediately after: {}. Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
            missing.join(", ")
        ),
    ))
}

/// A4: a tool of the server has its result behind it in the same turn; `last`: the turn may have been paused.
fn server_tools(turn: &Turn, last: bool) -> Result<(), Violation> {
    let mut open: Vec<(&str, &Value)> = Vec::new();
    for ((i, k), block) in &turn.blocks {
        let id = text(block, "tool_use_id");
        match kind(block) {
            "server_tool_use" | "mcp_tool_use" => open.push((text(block, "id"), block)),
            "tool_result" => {}
            name if name.ends_with("_tool_result") => {
                let caller = if name == "mcp_tool_result" { "mcp_tool_use" } else { "server_tool_use" };
                let call = open.iter().position(|(open, call)| *open == id && kind(call) == caller);
                let Some(call) = call else {
                    return Err(invalid(
                        "A4",
                        format!(
                            "messages.{i}.content.{k}: unexpected `tool_use_id` found in `{name}` blocks: {id}. Each `{name}` block must have a corresponding `{caller}` block before it."
                        ),
                    ));
                };
                open.remove(call);
            }
            _ => {}
        }
    }
    match open.first() {
        Some((id, call)) if !last => {
            let name = text(call, "name");
            let i = turn.blocks.first().map_or(0, |((i, _), _)| *i);
            Err(invalid(
                "A4",
                format!(
                    "messages.{i}: `{name}` tool use with id `{id}` was found without a corresponding `{name}_tool_result` block"
                ),
            ))
        }
        _ => Ok(()),
    }
}

/// A21: what is referred to, or withdrawn, was offered before. `tools`: names that the request defines.
pub(super) fn offered(turns: &[Turn], tools: &[Value]) -> Result<(), Violation> {
    let mut names: HashSet<&str> = tools.iter().map(|tool| text(tool, "name")).collect();
    for ((i, k), block) in turns.iter().flat_map(|turn| &turn.blocks) {
        let unknown = |name: &str| {
            Err(invalid(
                "A21",
                format!("messages.{i}.content.{k}: Tool reference '{name}' not found in available tools"),
            ))
        };
        match kind(block) {
            "tool_addition" | "tool_removal" => {
                let tool = block.get("tool").unwrap_or(&Value::Null);
                let defined = tool.get("definition").map(|definition| text(definition, "name"));
                let name = defined.unwrap_or_else(|| text(tool, "name"));
                if defined.is_some() {
                    names.insert(name);
                } else if kind(tool) == "tool_reference" && !names.contains(name) {
                    return unknown(name);
                }
            }
            "tool_result" => {
                let references = list(block, "content").iter().filter(|part| kind(part) == "tool_reference");
                if let Some(name) = references.map(|part| text(part, "tool_name")).find(|name| !names.contains(name)) {
                    return unknown(name);
                }
            }
            _ => {}
        }
    }
    Ok(())
}
