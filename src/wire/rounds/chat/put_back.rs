//! What a client never saw of an answer, put back into its history.

use std::ops::Range;

use bytes::Bytes;

use super::super::{Aside, Conversation, Edit, Insert};
use super::chunk::Object;
use crate::wire::Role;
use crate::wire::scan::{elements, kind, string};
use crate::wire::writing::quoted;

/// The answer that follows item `tip`, if it is the one that `aside` belongs to: whole rounds go before it, calls
/// among its own, results among those that follow.
pub(in super::super) fn put_back(conversation: &Conversation<'_>, tip: usize, aside: &Aside) -> Option<Vec<Edit>> {
    let answer = conversation.items.get(tip + 1).filter(|item| item.facts.role == Role::Assistant)?;
    let calls = || answer.facts.calls.iter().map(|call| &call.id);
    if !calls().eq(aside.calls.iter()) {
        return None;
    }
    let message = Object::at(conversation.body, &answer.span)?;
    let texts = texts(&message)?;
    let said: String = texts.iter().map(|span| message.string(span)).collect();
    // Some clients keep no text beside calls.
    let known =
        blake3::hash(said.trim().as_bytes()) == aside.text || (said.trim().is_empty() && !aside.calls.is_empty());
    if !known {
        return None;
    }
    let is_round = |insert: &&Insert| insert.calls.is_empty();
    let rounds: Vec<&Insert> = aside.inserts.iter().filter(is_round).collect();
    let mut edits = vec![];
    if let Some(last) = rounds.last().filter(|last| last.text > 0 && !said.trim().is_empty()) {
        let lead = said.len() - said.trim_start().len();
        edits.push(shortened(&message, &texts, lead + last.text)?);
    }
    edits.extend(thoughts(&message, &rounds));
    edits.extend(among_calls(&message, &aside.inserts)?);
    edits.sort_by_key(|edit| edit.span.start);
    let start = answer.span.start;
    let before = rounds.iter().map(|round| Edit { span: start..start, with: format!("{},", round.items).into() });
    let behind = aside.inserts.iter().filter(|insert| !insert.calls.is_empty());
    let behind = behind.map(|insert| among_results(conversation, tip + 1, insert)).collect::<Option<Vec<_>>>()?;
    Some(before.chain(edits).chain(behind).collect())
}

/// Where the visible texts of a message stand. `None`: its content is of another form.
fn texts(message: &Object<'_>) -> Option<Vec<Range<usize>>> {
    let Some(content) = message.get("content") else { return Some(Vec::new()) };
    match kind(message.text, content) {
        b'"' => Some(vec![content.clone()]),
        b'[' => {
            let parts = elements(message.text, content.start).ok()?;
            let text = |span: &Range<usize>| {
                let part = Object::at(message.text, span)?;
                let is_text = part.get("type").is_some_and(|form| part.string(form) == "text");
                part.get("text").filter(|_| is_text).cloned()
            };
            Some(parts.iter().filter_map(text).collect())
        }
        _ => None,
    }
}

/// The text without its first `by` bytes, which belong to rounds that stand before it again.
fn shortened(message: &Object<'_>, texts: &[Range<usize>], by: usize) -> Option<Edit> {
    let [span] = texts else { return None };
    let text = message.string(span);
    let rest = text.get(by.min(text.len())..)?;
    let has_calls = message.get("tool_calls").is_some();
    let is_content = message.get("content") == Some(span);
    let with = match rest.is_empty() {
        true if has_calls && is_content => "null".to_owned(),
        true => return None,
        false => quoted(rest),
    };
    Some(Edit { span: span.clone(), with: with.into() })
}

/// Members in which models think aloud.
const THOUGHTS: [&str; 2] = ["reasoning_content", "reasoning"];

/// The reasoning without that of the rounds before, where the client sends it back.
fn thoughts(message: &Object<'_>, rounds: &[&Insert]) -> Vec<Edit> {
    let of_rounds = |key: &str| -> String {
        let turn = |round: &&Insert| {
            let items = [b"[", round.items.as_bytes(), b"]"].concat();
            let first = elements(&items, 0).ok()?.into_iter().next()?;
            let turn = Object::at(&items, &first)?;
            turn.get(key).map(|span| turn.string(span))
        };
        rounds.iter().filter_map(turn).collect()
    };
    let edit = |key: &&str| {
        let span = message.get(key).filter(|span| kind(message.text, span) == b'"')?;
        let (all, before) = (string(message.text, span)?, of_rounds(key));
        let rest = all.strip_prefix(&*before).filter(|_| !before.is_empty())?;
        Some(Edit { span: span.clone(), with: quoted(rest).into() })
    };
    THOUGHTS.iter().filter_map(edit).collect()
}

/// The edits that put calls back among the message's own.
fn among_calls(message: &Object<'_>, inserts: &[Insert]) -> Option<Vec<Edit>> {
    let inserts: Vec<&Insert> = inserts.iter().filter(|insert| !insert.calls.is_empty()).collect();
    if inserts.is_empty() {
        return Some(Vec::new());
    }
    let calls = match message.get("tool_calls") {
        Some(span) => elements(message.text, span.start).ok()?,
        None => Vec::new(),
    };
    if calls.is_empty() {
        return Some(vec![first_calls(message, &inserts)?]);
    }
    let edit = |insert: &&Insert| match calls.get(insert.parts) {
        Some(next) => Some(Edit { span: next.start..next.start, with: format!("{},", insert.calls).into() }),
        None => {
            let end = calls.last()?.end;
            Some(Edit { span: end..end, with: format!(",{}", insert.calls).into() })
        }
    };
    inserts.iter().map(edit).collect()
}

/// The edit that gives calls to a message without any.
fn first_calls(message: &Object<'_>, inserts: &[&Insert]) -> Option<Edit> {
    let calls: Vec<&str> = inserts.iter().map(|insert| insert.calls.as_str()).collect();
    let calls = format!("[{}]", calls.join(","));
    if let Some((_, span)) = message.members.iter().find(|(key, _)| key == "tool_calls") {
        return Some(Edit { span: span.clone(), with: calls.into() });
    }
    // It says something: there is a member before this one.
    let end = message.members.iter().map(|(_, span)| span.end).max()?;
    Some(Edit { span: end..end, with: format!(",\"tool_calls\":{calls}").into() })
}

/// The edit that puts results back behind as many of the client's as there were calls before theirs.
fn among_results(conversation: &Conversation<'_>, answer: usize, insert: &Insert) -> Option<Edit> {
    let following = conversation.items.iter().skip(answer + 1);
    let results = following.take_while(|item| item.facts.role == Role::Tool).take(insert.parts).count();
    let end = conversation.items.get(answer + results)?.span.end;
    Some(Edit { span: end..end, with: Bytes::from(format!(",{}", insert.items)) })
}
