//! R1, R2, R10, R11: every call has its output, every output its call.

use serde_json::Value;

use super::super::request::{kind, list, text};
use super::super::rules::{Violation, invalid};

/// A call that waits for its output.
struct Open<'v> {
    family: &'v str,
    id: &'v str,
    call: &'v Value,
}

/// The first call without output, or output without call.
pub(super) fn check(items: &[Value]) -> Result<(), Violation> {
    let mut open: Vec<Open> = Vec::new();
    for item in items {
        if kind(item) == "compaction" {
            // What stands before it is out of the model's sight.
            answered(&open)?;
        } else if let Some((family, id)) = call(item) {
            open.push(Open { family, id, call: item });
        } else if let Some((family, id)) = output(item) {
            let fits = |waiting: &Open| waiting.id == id && (waiting.family == family || shell(waiting.family, family));
            let Some(at) = open.iter().position(fits) else { return Err(unknown(item, id)) };
            acknowledged(open.remove(at).call, item)?;
        }
    }
    answered(&open)
}

/// What a call's output must name: the family of both, and the id. Calls that the provider runs itself
/// have no `call_id` (R3).
fn call(item: &Value) -> Option<(&str, &str)> {
    match kind(item) {
        "mcp_approval_request" => Some(("mcp_approval", text(item, "id"))),
        "program" => Some(("program", item.get("call_id")?.as_str()?)),
        other => Some((other.strip_suffix("_call")?, item.get("call_id")?.as_str()?)),
    }
}

fn output(item: &Value) -> Option<(&str, &str)> {
    if kind(item) == "mcp_approval_response" {
        return Some(("mcp_approval", text(item, "approval_request_id")));
    }
    let family = kind(item).strip_suffix("_output")?;
    Some((family.strip_suffix("_call").unwrap_or(family), item.get("call_id")?.as_str()?))
}

/// Clients answer a local shell's call as if it were a function's.
fn shell(call: &str, output: &str) -> bool {
    call == "local_shell" && output == "function"
}

/// Safety checks that a computer call raised are acknowledged by its output (R2).
fn acknowledged(call: &Value, output: &Value) -> Result<(), Violation> {
    let ids = |value, key| list(value, key).iter().map(|check| text(check, "id")).collect::<Vec<_>>();
    let done = ids(output, "acknowledged_safety_checks");
    match ids(call, "pending_safety_checks").into_iter().find(|id| !done.contains(id)) {
        None => Ok(()),
        Some(id) => {
            let text = format!("Computer call has pending safety checks that were not acknowledged: {id}.");
            Err(invalid("R2", &text, Some("input"), None))
        }
    }
}

fn rule(kind: &str) -> &'static str {
    if matches!(kind, "function_call" | "function_call_output") { "R1" } else { "R2" }
}

fn answered(open: &[Open]) -> Result<(), Violation> {
    let Some(Open { family, id, call }) = open.first() else { return Ok(()) };
    let text = match *family {
        "mcp_approval" => format!("No approval response found for approval request {id}."),
        "program" => format!("No tool output found for program {id}."),
        family => format!("No tool output found for {} call {id}.", family.replace('_', " ")),
    };
    Err(invalid(rule(kind(call)), &text, Some("input"), None))
}

fn unknown(item: &Value, id: &str) -> Violation {
    let text = match kind(item) {
        "mcp_approval_response" => format!("No approval request found for approval response with id {id}."),
        other => format!("No tool call found for {} with call_id {id}.", other.replace('_', " ")),
    };
    invalid(rule(kind(item)), &text, Some("input"), None)
}
