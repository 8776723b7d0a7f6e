//! Anthropic Messages: what is read of a request beside its messages, and what is written into one.

use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;

use super::anthropic_item::is_change;
use super::conversation::{Conversation, Fields, Role};
use super::scan::{Member, elements, kind, members, string};
use super::splice::Edit;
use super::writing::{inner, quoted};

/// Members that are read, so that a body in which one stands twice is unreadable.
pub(super) const READ: &[&str] = &[
    "system",
    "tools",
    "max_tokens",
    "thinking",
    "thread",
    "tool_choice",
    "stop_sequences",
    "output_config",
    "output_format",
    "mcp_servers",
    "context_management",
    "anthropic_beta",
];

/// Takes note of a top-level member.
pub(super) fn member(fields: &mut Fields, body: &[u8], key: &str, span: &Range<usize>) {
    match key {
        "max_tokens" => fields.limit_output(body, span),
        "system" | "tools" | "mcp_servers" | "output_config" | "output_format" => fields.overhead.push(span.clone()),
        "thinking" => {
            let budget = value_of(body, span, "budget_tokens");
            let budget = budget.and_then(|span| serde_json::from_slice::<u64>(body.get(span)?).ok());
            // `max_tokens` must be above the budget (A14).
            fields.least_output = budget.map_or(0, |budget| budget.saturating_add(1));
        }
        "context_management" => {
            fields.managed = edits(body, span).is_some_and(|edits| {
                edits.iter().any(|edit| {
                    // Of all that the provider does to a history by itself, this alone leaves the texts.
                    value_of(body, edit, "type")
                        .and_then(|form| string(body, &form))
                        .is_none_or(|form| !form.starts_with("clear_thinking_"))
                })
            })
        }
        "anthropic_beta" => {
            let each =
                elements(body, span.start).ok().filter(|_| kind(body, span) == b'[').unwrap_or(vec![span.clone()]);
            fields.betas.extend(each.iter().filter_map(|beta| string(body, beta)).map(|beta| Arc::from(&*beta)));
        }
        "thread" => {
            // What is created here is shown whole; all else continues what the provider holds.
            let form = value_of(body, span, "type");
            let form = form.and_then(|span| string(body, &span).map(std::borrow::Cow::into_owned));
            fields.continues |= form.as_deref() != Some("create");
        }
        _ => {}
    }
}

/// The edits that the provider is asked to make to the history.
fn edits(body: &[u8], span: &Range<usize>) -> Option<Vec<Range<usize>>> {
    elements(body, value_of(body, span, "edits")?.start).ok()
}

/// The value of member `key` of the object at `span`.
fn value_of(body: &[u8], span: &Range<usize>, key: &str) -> Option<Range<usize>> {
    let members = members(body, span.start).ok()?;
    members.into_iter().find(|(name, _)| name == key).map(|(_, span)| span)
}

/// A user message with `text` to stand for the first `upto` items. What in those changed tools or instructions
/// goes along (A21), and so does the last of their cache breakpoints (A15–A17): all from the incoming bytes.
pub(super) fn head_message(conversation: &Conversation<'_>, upto: usize, (text, parts): (&str, &[String])) -> String {
    let kept = Kept::of_first(conversation, upto);
    let parts: String = parts.iter().flat_map(|part| [",", part]).collect();
    format!(r#"{{"role":"user","content":[{}{parts}{}]}}"#, kept.block(text), kept.behind())
}

/// A text block with the raw value of a cache breakpoint, if one is given.
fn text_block(text: &str, breakpoint: Option<&str>) -> String {
    let breakpoint = breakpoint.map_or_else(String::new, |raw| format!(r#","cache_control":{raw}"#));
    format!(r#"{{"type":"text","text":{}{breakpoint}}}"#, quoted(text))
}

/// Whether a message may hold what outlives its replacement.
pub(super) fn may_outlast(raw: &[u8]) -> bool {
    let words = ["cache_control", "mid_conv_system", "tool_addition", "tool_removal"];
    words.iter().any(|word| memchr::memmem::find(raw, word.as_bytes()).is_some())
}

/// What of a message outlives its replacement, as raw JSON.
#[derive(Default)]
struct Kept {
    /// Blocks that change tools or instructions, in order.
    changes: Vec<String>,
    /// The last `cache_control`.
    breakpoint: Option<String>,
}

impl Kept {
    /// Of the first `upto` messages together.
    fn of_first(conversation: &Conversation<'_>, upto: usize) -> Self {
        let first = conversation.items.iter().take(upto).enumerate();
        first.filter(|(_, item)| item.facts.lasting).fold(Self::default(), |mut all, (item, _)| {
            if let Some(kept) = Self::of(conversation.raw(item)) {
                all.changes.extend(kept.changes);
                all.breakpoint = kept.breakpoint.or(all.breakpoint);
            }
            all
        })
    }

    /// A block with `text`.
    fn block(&self, text: &str) -> String {
        text_block(text, self.breakpoint.as_deref())
    }

    /// The changes as they stand behind another block: the provider takes them at the end of a message only.
    fn behind(&self) -> String {
        self.changes.iter().flat_map(|change| [",", change]).collect()
    }

    /// Of one message. `None`: it has no blocks.
    fn of(raw: &[u8]) -> Option<Self> {
        let mut kept = Self::default();
        let content = value_of(raw, &(0..raw.len()), "content").filter(|span| kind(raw, span) == b'[')?;
        for block in elements(raw, content.start).ok()?.into_iter().filter(|block| kind(raw, block) == b'{') {
            let members = members(raw, block.start).ok()?;
            if is_change(&form(raw, &members)) {
                // What comes to stand before it may have a shorter one: long ones come first (A17).
                kept.changes.push(unmarked(raw, &block)?);
            }
            let inside = member_of(&members, "content").filter(|span| kind(raw, span) == b'[');
            for part in inside.and_then(|span| elements(raw, span.start).ok()).unwrap_or_default() {
                let breakpoint = value_of(raw, &part, "cache_control").filter(|span| kind(raw, span) == b'{');
                kept.breakpoint = breakpoint.and_then(|span| owned(raw, &span)).or(kept.breakpoint);
            }
            let breakpoint = member_of(&members, "cache_control").filter(|span| kind(raw, span) == b'{');
            kept.breakpoint = breakpoint.and_then(|span| owned(raw, &span)).or(kept.breakpoint);
        }
        Some(kept)
    }
}

/// The block at `block`, and what it holds, without cache breakpoints.
pub(super) fn unmarked(raw: &[u8], block: &Range<usize>) -> Option<String> {
    if kind(raw, block) != b'{' {
        return owned(raw, block);
    }
    let mut parts = Vec::new();
    for (key, span) in members(raw, block.start).ok()? {
        let value = match (key.as_ref(), kind(raw, &span)) {
            ("cache_control", _) => continue,
            ("content", b'[') => {
                let inside = elements(raw, span.start).ok()?;
                let inside: Option<Vec<_>> = inside.iter().map(|part| unmarked(raw, part)).collect();
                format!("[{}]", inside?.join(","))
            }
            _ => owned(raw, &span)?,
        };
        parts.push(format!("{}:{value}", quoted(&key)));
    }
    Some(format!("{{{}}}", parts.join(",")))
}

/// The block `text` with the cache breakpoint of the block `raw`, if that has one (A16).
pub(super) fn marked_as(raw: &[u8], text: &str) -> Option<String> {
    let breakpoint = value_of(raw, &(0..raw.len()), "cache_control").filter(|span| kind(raw, span) == b'{')?;
    let open = text.strip_suffix('}')?;
    Some(format!(r#"{open},"cache_control":{}}}"#, owned(raw, &breakpoint)?))
}

fn member_of(members: &[Member<'_>], key: &str) -> Option<Range<usize>> {
    members.iter().find(|(name, _)| name == key).map(|(_, span)| span.clone())
}

fn form(raw: &[u8], members: &[Member<'_>]) -> String {
    member_of(members, "type").and_then(|span| Some(string(raw, &span)?.into_owned())).unwrap_or_default()
}

fn owned(raw: &[u8], span: &Range<usize>) -> Option<String> {
    std::str::from_utf8(raw.get(span.clone())?).ok().map(str::to_owned)
}

/// The edits that put `text` in front of the text of the user message `item`, for all items before it: into its
/// string, or as a block of its own; behind that message stands what in those changed tools or instructions. `None`
/// for other roles and shapes, and where results come first (A3).
pub(super) fn fold_into(conversation: &Conversation<'_>, item: usize, text: &str) -> Option<Vec<Edit>> {
    let found = conversation.items.get(item).filter(|item| item.facts.role == Role::User)?;
    if !found.facts.results.is_empty() {
        return None;
    }
    let at = found.span.start;
    let raw = conversation.raw(item);
    let content = value_of(raw, &(0..raw.len()), "content")?;
    let kept = Kept::of_first(conversation, item);
    let insertion = |place: usize, with: String| Edit { span: at + place..at + place, with: with.into() };
    let block = kept.block(text.trim_end());
    Some(match kind(raw, &content) {
        // Whether there is a breakpoint changes from turn to turn, so it does not decide.
        b'"' if kept.changes.is_empty() => vec![insertion(content.start + 1, inner(text))],
        b'"' => vec![
            insertion(content.start, format!(r#"[{block},{{"type":"text","text":"#)),
            insertion(content.end, format!("}}{}]", kept.behind())),
        ],
        b'[' if elements(raw, content.start).ok()?.is_empty() => {
            vec![insertion(content.start + 1, block + &kept.behind())]
        }
        b'[' => {
            let mut edits = vec![insertion(content.start + 1, format!("{block},"))];
            if !kept.changes.is_empty() {
                edits.push(insertion(content.end.checked_sub(1)?, kept.behind()));
            }
            edits
        }
        _ => return None,
    })
}

/// The edits that put a block with `text` before all that message `item` says. A string becomes a block, so that the
/// provider reads the same whether the client writes a string or blocks.
pub(super) fn before(conversation: &Conversation<'_>, item: usize, text: &str) -> Option<Vec<Edit>> {
    let at = conversation.items.get(item)?.span.start;
    let raw = conversation.raw(item);
    let content = value_of(raw, &(0..raw.len()), "content")?;
    let (start, end) = (at + content.start, at + content.end);
    let block = text_block(text, None);
    let insertion = |place: usize, with: String| Edit { span: place..place, with: with.into() };
    match kind(raw, &content) {
        b'"' => {
            let before = format!(r#"[{block},{{"type":"text","text":"#);
            Some(vec![insertion(start, before), insertion(end, "}]".to_owned())])
        }
        b'[' if !elements(raw, content.start).ok()?.is_empty() => Some(vec![insertion(start + 1, block + ",")]),
        _ => None,
    }
}

/// The edits that leave out the signed thinking of item `item` (A13). A message of nothing else keeps a mark,
/// since none may be empty (A8).
pub(super) fn without_signed(conversation: &Conversation<'_>, item: usize) -> Vec<Edit> {
    let Some(found) = conversation.items.get(item).filter(|item| !item.facts.signed.is_empty()) else {
        return Vec::new();
    };
    let raw = conversation.raw(item);
    let at = found.span.start;
    let blocks = value_of(raw, &(0..raw.len()), "content").and_then(|span| elements(raw, span.start).ok());
    let blocks = blocks.unwrap_or_default();
    let goes = |block: &Range<usize>| found.facts.signed.contains(block);
    let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else { return Vec::new() };
    let Some(kept) = blocks.iter().rposition(|block| !goes(block)) else {
        let with = text_block(MARK, None).into();
        return vec![Edit { span: at + first.start..at + last.end, with }];
    };
    let mut edits = Vec::new();
    let pairs = blocks.iter().zip(blocks.iter().skip(1)).take(kept);
    for (block, next) in pairs.filter(|(block, _)| goes(block)) {
        edits.push(Edit { span: at + block.start..at + next.start, with: bytes::Bytes::new() });
    }
    if let Some(end) = blocks.get(kept).map(|block| block.end).filter(|end| *end < last.end) {
        edits.push(Edit { span: at + end..at + last.end, with: bytes::Bytes::new() });
    }
    edits
}

/// The edit that sets the provider's own option for thinking that is bound to something else (A27).
pub(super) fn drop_blocks(conversation: &Conversation<'_>) -> Option<Edit> {
    let (_, span) = conversation.fields.members.iter().find(|(key, _)| key.as_ref() == "thinking")?;
    if kind(conversation.body, span) != b'{' || value_of(conversation.body, span, "block_binding").is_some() {
        return None;
    }
    let form = value_of(conversation.body, span, "type").and_then(|form| string(conversation.body, &form));
    if form.is_some_and(|form| form == "disabled") {
        return None;
    }
    let comma = if members(conversation.body, span.start).ok()?.is_empty() { "" } else { "," };
    let with = format!(r#"{comma}"block_binding":{{"prefix_mismatch_behavior":"drop_block"}}"#);
    let place = span.end.checked_sub(1)?;
    Some(Edit { span: place..place, with: with.into() })
}

/// Names of the tools to which results in a message refer: those of the provider's own search, and of a client's.
pub(super) fn referenced_tools(raw: &[u8]) -> Vec<String> {
    // Nearly no message has any.
    if memchr::memmem::find(raw, b"\"tool_reference\"").is_none() {
        return Vec::new();
    }
    let message: Value = serde_json::from_slice(raw).unwrap_or_default();
    let blocks = message.get("content").and_then(Value::as_array);
    let results = blocks.into_iter().flatten().filter_map(|block| block.get("content"));
    let parts = results.filter_map(|content| content.get("tool_references").unwrap_or(content).as_array()).flatten();
    let references = parts.filter(|part| part.get("type").is_some_and(|form| form == "tool_reference"));
    references.filter_map(|part| Some(part.get("tool_name")?.as_str()?.to_owned())).collect()
}

/// Stands for the content of a message that had nothing but thinking.
const MARK: &str = "…";

#[cfg(test)]
#[path = "tests/anthropic_memo.rs"]
mod memo_tests;
#[cfg(test)]
#[path = "tests/anthropic_shapes.rs"]
mod shape_tests;
#[cfg(test)]
#[path = "tests/anthropic_write.rs"]
mod write_tests;
