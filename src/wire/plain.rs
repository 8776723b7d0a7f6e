//! One item of a conversation as plain text: what is searched and shown of it.

use std::borrow::Cow;
use std::ops::Range;

use super::conversation::{Dialect, Facts, Role, SlotKind};
use super::scan::{Member, elements, members, string, unescaped};

/// What an item says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plain {
    pub role: Role,
    /// Its texts in order, one under another: words, reasoning, calls as `name(arguments)`, results. Empty where
    /// there are none.
    pub text: String,
    /// Where in the text what stands.
    pub parts: Vec<(Range<usize>, Source)>,
    /// Names of the tools that it calls.
    pub calls: Vec<String>,
}

/// What a part of an item's text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Said,
    /// Index into the item's calls.
    Call(usize),
    /// Index into the calls that it answers.
    Result(usize),
}

/// Reads one item by itself. What cannot be read as an item is shown as its own bytes.
pub fn plain(dialect: Dialect, raw: &[u8]) -> Plain {
    let facts = if raw.first() == Some(&b'"') { dialect.facts_of_text(raw) } else { dialect.facts(raw) };
    match facts {
        Ok(facts) => {
            let (text, parts) = text(raw, &facts);
            let calls = facts.calls.into_iter().map(|call| call.name).collect();
            Plain { role: facts.role, text, parts, calls }
        }
        Err(_) => {
            let text = String::from_utf8_lossy(raw).into_owned();
            let parts = vec![(0..text.len(), Source::Said)];
            Plain { role: Role::Unknown, text, parts, calls: Vec::new() }
        }
    }
}

fn text(raw: &[u8], facts: &Facts) -> (String, Vec<(Range<usize>, Source)>) {
    let mut lines: Vec<(Source, String)> = Vec::new();
    let mut called = vec![false; facts.calls.len()];
    for slot in &facts.slots {
        let raw = raw.get(slot.span.clone()).unwrap_or_default();
        match slot.kind {
            SlotKind::Text => lines.extend(decoded(raw).map(|text| (Source::Said, text))),
            SlotKind::Reasoning => lines.extend(reasoned(raw).map(|text| (Source::Said, text))),
            SlotKind::Result(result) => lines.extend(decoded(raw).map(|text| (Source::Result(result), text))),
            SlotKind::Arguments(call) | SlotKind::Input(call) => {
                let name = facts.calls.get(call).map_or("", |call| call.name.as_str());
                lines.extend(decoded(raw).map(|given| (Source::Call(call), format!("{name}({given})"))));
                called.get_mut(call).into_iter().for_each(|called| *called = true);
            }
            SlotKind::Given | SlotKind::Media | SlotKind::Other => {}
        }
    }
    let bare = facts.calls.iter().zip(called).enumerate().filter(|(_, (_, called))| !called);
    lines.extend(bare.map(|(at, (call, _))| (Source::Call(at), format!("{}()", call.name))));
    let (mut text, mut parts) = (String::new(), Vec::new());
    for (source, line) in lines.into_iter().filter(|(_, line)| !line.is_empty()) {
        if !text.is_empty() {
            text.push('\n');
        }
        let start = text.len();
        text.push_str(&line);
        parts.push((start..text.len(), source));
    }
    (text, parts)
}

/// What reasoning says: of a list of parts the texts in them, so that nothing is found by how it is written down.
fn reasoned(raw: &[u8]) -> Option<String> {
    let parts = elements(raw, 0).unwrap_or_default();
    let of_part = |part: &Range<usize>| {
        let members = members(raw, part.start).unwrap_or_default();
        let says = |(key, span): &Member<'_>| matches!(key.as_ref(), "text" | "summary").then(|| string(raw, span))?;
        members.iter().find_map(says).map(Cow::into_owned)
    };
    let texts: Vec<String> = parts.iter().filter_map(of_part).collect();
    if texts.is_empty() { decoded(raw) } else { Some(texts.join("\n")) }
}

/// Of a JSON string what it says (a lone surrogate makes it its own spelling), of anything else its spelling.
fn decoded(raw: &[u8]) -> Option<String> {
    let spelt = || Some(String::from_utf8_lossy(raw).into_owned());
    if raw.first() == Some(&b'"') { unescaped(raw).or_else(spelt) } else { spelt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(dialect: Dialect, raw: &str) -> Plain {
        plain(dialect, raw.as_bytes())
    }

    #[test]
    fn texts_calls_and_results_in_every_dialect() {
        let call = r#"{"role":"assistant","content":"Let me see.","tool_calls":[{"id":"a","type":"function","function":{"name":"grep","arguments":"{\"q\":\"näh\"}"}}]}"#;
        let plain = of(Dialect::Chat, call);
        assert_eq!((plain.role, plain.text.as_str()), (Role::Assistant, "Let me see.\ngrep({\"q\":\"näh\"})"));
        assert_eq!(plain.parts, [(0..11, Source::Said), (12..plain.text.len(), Source::Call(0))]);
        assert_eq!(plain.calls, ["grep"]);
        let result = of(Dialect::Chat, r#"{"role":"tool","tool_call_id":"a","content":"two\nlines"}"#);
        assert_eq!((result.role, result.text.as_str()), (Role::Tool, "two\nlines"));
        let call =
            r#"{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"Bash","input":{"command":"ls"}}]}"#;
        assert_eq!(of(Dialect::Messages, call).text, r#"Bash({"command":"ls"})"#);
        let output = r#"{"type":"function_call_output","call_id":"a","output":"done"}"#;
        assert_eq!(of(Dialect::Responses, output).text, "done");
        assert_eq!(of(Dialect::Responses, "\"just words\"").text, "just words");
    }

    #[test]
    fn reasoning_is_what_it_says_and_not_how_it_is_written_down() {
        let item = r#"{"type":"reasoning","id":"r","summary":[{"type":"summary_text","text":"I \u006cook."},{"text":"I see.","type":"summary_text"}],"content":[{"type":"reasoning_text","text":"So."}]}"#;
        let text = of(Dialect::Responses, item).text;
        assert!(text.contains("I look.\nI see.\n") && text.contains("So.\n") && !text.contains("_text"), "{text}");
        let details = r#"{"role":"assistant","content":"Yes.","reasoning_details":[{"type":"reasoning.summary","summary":"Why not."}]}"#;
        let text = of(Dialect::Chat, details).text;
        assert!(text.contains("Why not.") && !text.contains("reasoning.summary"), "{text}");
        // Of what has no text its spelling, so that nothing is lost.
        let sealed = r#"{"role":"assistant","content":"Yes.","reasoning_details":[{"data":"abc"}]}"#;
        assert!(of(Dialect::Chat, sealed).text.contains(r#"[{"data":"abc"}]"#));
    }

    #[test]
    fn what_is_no_item_is_shown_as_it_stands() {
        let plain = of(Dialect::Chat, "[1, 2]");
        assert_eq!((plain.role, plain.text.as_str()), (Role::Unknown, "[1, 2]"));
    }
}
