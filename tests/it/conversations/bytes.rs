//! Bodies as bytes: what was sent against what the client gave.

use compactproxy::demo::request::{kind, role};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::form::{Form, parsed};

/// How the proxy begins the message that stands for others.
const NOTICE: &str = "The earlier part of this conversation was compacted";

/// Items that stay before a head, whatever else it stands for.
const KEPT: [&str; 5] =
    ["additional_tools", "configuration_update", "mcp_list_tools", "tool_search_call", "tool_search_output"];

/// A body cut at the messages of its conversation; `,` between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    pub form: Form,
    pub before: String,
    pub messages: Vec<String>,
    pub after: String,
}

impl Split {
    /// Of a Chat Completions body.
    pub fn of(body: &[u8]) -> Self {
        Self::as_form(Form::Chat, body)
    }

    /// Panics where anything but single commas stands between messages.
    pub fn as_form(form: Form, body: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Body<'b> {
            #[serde(borrow, alias = "input")]
            messages: Vec<&'b RawValue>,
        }
        let text = std::str::from_utf8(body).unwrap();
        let raw = serde_json::from_str::<Body>(text).unwrap().messages;
        let messages: Vec<String> = raw.iter().map(|raw| raw.get().to_owned()).collect();
        // They are borrowed from the text: their place in it is known.
        let start = raw[0].get().as_ptr() as usize - text.as_ptr() as usize;
        let (before, rest) = text.split_at(start);
        let after = rest.strip_prefix(&messages.join(",")).unwrap_or_else(|| panic!("not spliced: {text}"));
        Self { form, before: before.to_owned(), after: after.to_owned(), messages }
    }

    /// Where the message is that stands for earlier ones.
    pub fn head(&self) -> Option<usize> {
        self.messages.iter().position(|message| message.contains(NOTICE))
    }
}

/// Why a Chat Completions body is not `raw` with nothing but whole strings and a leading run of messages replaced.
pub fn not_spliced(raw: &[u8], sent: &[u8]) -> Result<(), String> {
    not_spliced_as(Form::Chat, raw, sent)
}

/// Why `sent` is not `raw` with nothing but whole strings and a leading run of messages replaced. What sets the
/// model's tools stays where the rest goes (Responses); thinking that is not needed any more is left out (Messages).
pub fn not_spliced_as(form: Form, raw: &[u8], sent: &[u8]) -> Result<(), String> {
    if raw == sent {
        return Ok(());
    }
    let (raw, sent) = (Split::as_form(form, raw), Split::as_form(form, sent));
    let beside = [&sent.before, &sent.after].map(|text| without_offer(text));
    if [raw.before.as_str(), raw.after.as_str()] != beside.each_ref().map(String::as_str) {
        return Err("bytes outside the conversation differ".into());
    }
    let head = sent.head();
    let from = head.map_or(0, |head| head + 1);
    let kept = &sent.messages[from..];
    let Some(skipped) = raw.messages.len().checked_sub(kept.len()) else {
        return Err("there are more messages than before".into());
    };
    if let Some(head) = head
        && !stands(form, &raw.messages[..skipped], &sent.messages[..head])
    {
        return Err(format!("the head stands at {head}, behind what did not lead"));
    }
    let pairs = raw.messages[skipped..].iter().zip(kept);
    pairs.enumerate().try_for_each(|(k, (raw, sent))| {
        same_but_strings(raw, sent)
            .or_else(|error| same_but_thinking(form, raw, sent).map_err(|_| error))
            .map_err(|error| format!("message {}: {error}", skipped + k))
    })?;
    let Some(head) = head else { return Ok(()) };
    // The head is a message of its own, or stands before the text of a kept one.
    let message = &sent.messages[head];
    if is_own(form, message) { Ok(()) } else { holds(message, &raw.messages[skipped - 1]) }
}

/// The text without the tool that the proxy has added behind the client's, or in a list of its own before all else.
fn without_offer(text: &str) -> String {
    let forms = [
        r#"{"type":"function","function":{"name":"read_evicted""#,
        r#"{"type":"function","name":"read_evicted""#,
        r#"{"name":"read_evicted""#,
    ];
    let Some(start) = forms.iter().find_map(|form| text.find(form)) else { return text.to_owned() };
    let mut tool = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
    tool.next().unwrap().unwrap();
    let (before, after) = (&text[..start], &text[start + tool.byte_offset()..]);
    match (before.strip_suffix(r#""tools":["#), after.strip_prefix("],")) {
        (Some(before), Some(after)) if before.trim() == "{" => format!("{before}{after}"),
        _ => format!("{}{after}", before.strip_suffix(',').unwrap_or(before)),
    }
}

/// Whether `before` is what of `replaced` must stay before the head: what leads, and what sets the model's tools.
fn stands(form: Form, replaced: &[String], before: &[String]) -> bool {
    let lead = replaced.iter().take_while(|message| form.by_system(&parsed(message))).count();
    // What the provider has compacted is not touched again.
    let compacted = replaced.iter().rposition(|message| is_compaction(&parsed(message))).map_or(0, |last| last + 1);
    let lead = lead.max(compacted);
    let (lead, rest) = replaced.split_at(lead);
    let rest: Vec<(&String, Value)> = rest.iter().map(|message| (message, parsed(message))).collect();
    // A search goes with the reasoning that led to it (R4).
    let led = |k: usize| {
        let mut answer = rest.iter().skip(k).take_while(|(_, message)| form.by_model(message));
        kind(&rest[k].1) == "reasoning" && answer.any(|(_, message)| kind(message) == "tool_search_call")
    };
    let stays = (0..rest.len()).filter(|k| KEPT.contains(&kind(&rest[*k].1)) || led(*k));
    let due: Vec<&String> = lead.iter().chain(stays.map(|k| rest[k].0)).collect();
    due == before.iter().collect::<Vec<_>>()
}

/// Whether a message stands for all that precedes it (R10, A19).
fn is_compaction(message: &Value) -> bool {
    let blocks = message.get("content").and_then(Value::as_array);
    kind(message) == "compaction" || blocks.is_some_and(|blocks| blocks.iter().any(|block| kind(block) == "compaction"))
}

/// Whether a head is a user message of its own form.
fn is_own(form: Form, message: &str) -> bool {
    let message = parsed(message);
    let said = message.get("content").cloned().unwrap_or_default();
    // The pictures of what is asked stay with it.
    let is_text = |part: &&Value| !["image_url", "input_image"].contains(&kind(part));
    let parts = said.as_array().map_or(1, |parts| parts.iter().filter(is_text).count());
    // Blocks that change the tools go along with a head of Messages.
    let alone = said.is_string() || parts == 1 || form == Form::Messages;
    role(&message) == "user" && alone
}

/// The same message of Messages without its thinking, its strings aside.
fn same_but_thinking(form: Form, raw: &str, sent: &str) -> Result<(), String> {
    let (mut raw, sent) = (parsed(raw), parsed(sent));
    if form != Form::Messages || role(&raw) != "assistant" {
        return Err("another structure".into());
    }
    let thinks = |block: &Value| ["thinking", "redacted_thinking"].contains(&kind(block));
    if let Some(blocks) = raw.get_mut("content").and_then(Value::as_array_mut) {
        blocks.retain(|block| !thinks(block));
    }
    same_but_strings(&raw.to_string(), &sent.to_string())
}

/// Same bytes outside of string values; keys are strings in the same places, so they must not differ.
fn same_but_strings(raw: &str, sent: &str) -> Result<(), String> {
    if raw == sent {
        return Ok(());
    }
    let (raw, sent) = (segments(raw), segments(sent));
    if raw.len() != sent.len() {
        return Err("another structure".into());
    }
    for (k, (a, b)) in raw.iter().zip(&sent).enumerate() {
        let string = k % 2 == 1;
        let key = string && raw.get(k + 1).is_some_and(|next| next.trim_start().starts_with(':'));
        if a != b && (!string || key) {
            return Err(format!("{a:?} became {b:?}"));
        }
    }
    Ok(())
}

/// What stands outside strings (even) and inside (odd), in turn.
fn segments(json: &str) -> Vec<&str> {
    let (mut segments, mut start, mut inside, mut escaped) = (Vec::new(), 0, false, false);
    for (at, byte) in json.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if inside => escaped = true,
            b'"' => {
                segments.push(&json[start..at]);
                (start, inside) = (at + 1, !inside);
            }
            _ => {}
        }
    }
    segments.push(&json[start..]);
    segments
}

/// `long` is `short` with bytes put in at one place.
fn holds(long: &str, short: &str) -> Result<(), String> {
    let begins = long.bytes().zip(short.bytes()).take_while(|(a, b)| a == b).count();
    let ends = long.bytes().rev().zip(short.bytes().rev()).take_while(|(a, b)| a == b).count();
    if begins + ends >= short.len() { Ok(()) } else { Err(format!("{short:?} is not whole in {long:?}")) }
}

#[test]
fn a_splice_is_told_from_a_rewrite() {
    let raw = br#"{"a":1.0,"messages":[{"role":"user","content":"x"},{"role":"tool","content":"long"}],"b":2}"#;
    let ok = |sent: &str| not_spliced(raw, sent.as_bytes()).is_ok();
    assert!(ok(r#"{"a":1.0,"messages":[{"role":"user","content":"x"},{"role":"tool","content":"l"}],"b":2}"#));
    assert!(!ok(r#"{"a":1,"messages":[{"role":"user","content":"x"},{"role":"tool","content":"l"}],"b":2}"#));
    assert!(!ok(r#"{"a":1.0,"messages":[{"role":"user","content":"x"},{"content":"l","role":"tool"}],"b":2}"#));
    assert!(!ok(r#"{"a":1.0,"messages":[{"role":"user","content":"x"},{"role":"tool", "content":"l"}],"b":2}"#));
}
