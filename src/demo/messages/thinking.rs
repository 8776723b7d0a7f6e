//! A11, A12: where thinking blocks stand.

use serde_json::Value;

use super::super::request::kind;
use super::super::rules::Violation;
use super::rules::{Turn, invalid, thinks};

/// The first rule about the place of thinking blocks that is broken.
pub(super) fn check(turns: &[Turn], body: &Value) -> Result<(), Violation> {
    for turn in turns.iter().filter(|turn| turn.role == "assistant") {
        ends(turn)?;
        begins(turn)?;
    }
    let Some(last) = turns.iter().rfind(|turn| turn.role == "assistant") else { return Ok(()) };
    let thought = last.blocks.iter().find(|(_, block)| is_thinking(block));
    let first = last.blocks.first();
    match (body.pointer("/thinking/type").and_then(Value::as_str), thought, first) {
        // The loop goes on: what the model thought when it called is needed.
        (Some("enabled"), _, Some(((i, k), block))) if in_loop(turns) && !is_thinking(block) => Err(invalid(
            "A11",
            format!(
                "messages.{i}.content.{k}.type: Expected `thinking` or `redacted_thinking`, but found `{}`. When `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks). We recommend you include thinking blocks from previous turns. To avoid this requirement, disable `thinking`. Please consult our documentation at https://docs.claude.com/en/docs/build-with-claude/extended-thinking",
                kind(block)
            ),
        )),
        (_, Some(((i, k), _)), _) if !thinks(body) && turns.last().is_some_and(|turn| turn.role == "assistant") => {
            Err(invalid(
                "A12",
                format!(
                    "messages.{i}.content.{k}: When thinking is disabled, an `assistant` message in the final position cannot contain `thinking`. To use thinking blocks, enable `thinking` in your request."
                ),
            ))
        }
        _ => Ok(()),
    }
}

/// Whether the last turn holds results for the assistant's calls.
pub(super) fn in_loop(turns: &[Turn]) -> bool {
    turns.last().is_some_and(|turn| turn.blocks.iter().any(|(_, block)| kind(block) == "tool_result"))
}

pub(super) fn is_thinking(block: &Value) -> bool {
    matches!(kind(block), "thinking" | "redacted_thinking")
}

/// A12: a message with thinking begins with it.
fn begins(turn: &Turn) -> Result<(), Violation> {
    let late = turn.blocks.iter().find(|((_, k), block)| *k > 0 && is_thinking(block));
    let Some(((i, _), _)) = late else { return Ok(()) };
    let first = turn.blocks.iter().find(|(place, _)| *place == (*i, 0)).map(|(_, block)| block);
    match first {
        Some(block) if !is_thinking(block) => Err(invalid(
            "A12",
            format!(
                "messages.{i}.content.0.type: If an assistant message contains any thinking blocks, the first block must be `thinking` or `redacted_thinking`. Found `{}`.",
                kind(block)
            ),
        )),
        _ => Ok(()),
    }
}

/// A12: behind thinking stands something.
fn ends(turn: &Turn) -> Result<(), Violation> {
    match turn.blocks.last() {
        Some(((i, _), block)) if is_thinking(block) => Err(invalid(
            "A12",
            format!("messages.{i}: The final block in an assistant message cannot be `{}`.", kind(block)),
        )),
        _ => Ok(()),
    }
}
