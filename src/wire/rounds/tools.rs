//! The list of tools of a request, which is the member `tools` in every dialect.

use std::ops::Range;

use super::{Conversation, Edit};
use crate::wire::scan::{elements, kind};

/// Most tools of one request (C8).
pub(super) const MOST_TOOLS: usize = 128;

/// Where the client's tools stand; none where it sends no list of them. `None`: something else stands there.
pub(super) fn tools(conversation: &Conversation<'_>) -> Option<Vec<Range<usize>>> {
    let Some(span) = member(conversation) else { return Some(Vec::new()) };
    match kind(conversation.body, span) {
        b'n' => Some(Vec::new()),
        b'[' => elements(conversation.body, span.start).ok(),
        _ => None,
    }
}

/// The edit that adds `defined` (JSON, joined by commas) behind the client's own tools. Where it has no list of them, one
/// comes before all other members: its place does not change as the conversation grows.
pub(super) fn added(conversation: &Conversation<'_>, defined: &str) -> Option<Edit> {
    let Some(span) = member(conversation) else {
        let begin = conversation.body.iter().position(|byte| *byte == b'{')? + 1;
        return Some(Edit { span: begin..begin, with: format!(r#""tools":[{defined}],"#).into() });
    };
    if kind(conversation.body, span) == b'n' {
        return Some(Edit { span: span.clone(), with: format!("[{defined}]").into() });
    }
    let tools = tools(conversation)?;
    let end = tools.last().map_or(span.start + 1, |last| last.end);
    let comma = if tools.is_empty() || defined.is_empty() { "" } else { "," };
    Some(Edit { span: end..end, with: format!("{comma}{defined}").into() })
}

/// The edit that makes the choice of a tool.
pub(super) fn chosen(conversation: &Conversation<'_>, choice: &str) -> Option<Edit> {
    // Of a member that is there twice, the last one counts.
    let made = conversation.fields.members.iter().rfind(|(key, _)| key.as_ref() == "tool_choice");
    if let Some((_, span)) = made {
        return Some(Edit { span: span.clone(), with: choice.to_owned().into() });
    }
    let begin = conversation.body.iter().position(|byte| *byte == b'{')? + 1;
    Some(Edit { span: begin..begin, with: format!(r#""tool_choice":{choice},"#).into() })
}

fn member<'c>(conversation: &'c Conversation<'_>) -> Option<&'c Range<usize>> {
    conversation.fields.members.iter().find(|(key, _)| key.as_ref() == "tools").map(|(_, span)| span)
}

#[cfg(test)]
#[path = "../tests/rounds_tools.rs"]
mod tests;
