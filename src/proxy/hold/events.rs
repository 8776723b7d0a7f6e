//! What the first bytes and events of a success tell: bookkeeping, output or an error.

use serde_json::{Map, Value};

use crate::wire::overflow::{self, Sizes, Verdict};
use crate::wire::sse::{Event, Reader};
use crate::wire::usage::{Shown, whole_events};

/// What an event says.
#[derive(Debug, PartialEq, Eq)]
pub enum Told {
    /// Nothing of the model's yet: an error may still follow.
    Bookkeeping,
    /// Model output, the end, or something unknown.
    Output,
    Error(Verdict),
}

/// What a success is by its first bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    /// White space, or a key cut in two.
    Unclear,
    Stream,
    /// JSON whose first member that says something is one that errors have.
    Error,
    Answer,
}

/// Event types without model output; those of OpenAI Responses and its ChatGPT backend, then those of Anthropic.
/// An item that begins (`response.output_item.added`) is output: the prompt has been read by then.
const BOOKKEEPING: &[&str] = &[
    "response.created",
    "response.in_progress",
    "response.queued",
    "keepalive",
    "codex.rate_limits",
    "message_start",
    "ping",
];
/// First keys of error objects that say enough by themselves.
const ERROR_KEYS: &[&str] = &[
    "error",
    "errors",
    "detail",
    "message",
    "msg",
    "code",
    "status",
    "statusCode",
    "err",
    "error_code",
    "error_msg",
    "base_resp",
];
/// First keys whose value decides: `error` or the name of an answer.
const KIND_KEYS: &[&str] = &["object", "type"];
/// First keys that errors and answers share: the next one decides.
const NEUTRAL_KEYS: &[&str] = &["id", "request_id", "requestId", "user_id", "created", "timestamp", "model"];
/// Fields that event streams begin with.
const STREAM_STARTS: &[&[u8]] = &[b"data", b"event", b"error", b"id", b"retry", b":"];
/// More white space and key than this is no error of any provider.
const BEGINNING_BYTES: usize = 4 * 1024;

/// Reads one event.
pub(super) fn told(event: &Event) -> Told {
    let named = event.name.as_deref();
    if named == Some("error") {
        return Told::Error(overflow::classify_event(event.data.as_bytes()));
    }
    let Ok(Value::Object(data)) = serde_json::from_str::<Value>(&event.data) else {
        return if event.data.trim().is_empty() { Told::Bookkeeping } else { Told::Output };
    };
    if overflow::is_error(&data) {
        return Told::Error(overflow::classify(200, event.data.as_bytes()));
    }
    match data.get("type").and_then(Value::as_str).or(named) {
        Some(kind) if BOOKKEEPING.contains(&kind) => Told::Bookkeeping,
        Some("content_block_start") => content_block_start(&data),
        Some("message_delta") => message_delta(&data),
        _ => chunk(&data),
    }
}

/// A content block of Anthropic's that begins without content.
fn content_block_start(data: &Map<String, Value>) -> Told {
    let block = data.get("content_block").and_then(Value::as_object);
    let empty = block.is_some_and(|block| block.iter().all(|(key, value)| key == "type" || is_empty(value)));
    let text =
        block.and_then(|block| block.get("type")?.as_str()).is_some_and(|kind| matches!(kind, "text" | "thinking"));
    if empty && text { Told::Bookkeeping } else { Told::Output }
}

/// The end of a message of Anthropic's, of which nothing was seen: an overflow where the window was full.
fn message_delta(data: &Map<String, Value>) -> Told {
    let reason = data.get("delta").and_then(|delta| delta.get("stop_reason")?.as_str());
    if reason == Some(WINDOW_FULL) { Told::Error(SILENT) } else { Told::Output }
}

/// How an answer ends where the window was full before the model was done.
const WINDOW_FULL: &str = "model_context_window_exceeded";
/// An overflow that says nothing of its size.
const SILENT: Verdict = Verdict::Overflow(Sizes {
    input: None,
    output: None,
    requested: None,
    limit: None,
    scope: overflow::Scope::Input,
    unit: overflow::Unit::Tokens,
    ambiguous: true,
    silent: true,
});

/// A chunk of Chat Completions.
fn chunk(data: &Map<String, Value>) -> Told {
    let Some(choices) = data.get("choices").and_then(Value::as_array) else { return Told::Output };
    for choice in choices {
        let delta = choice.get("delta").and_then(Value::as_object);
        let silent = delta.is_none_or(|delta| delta.iter().all(|(key, value)| key == "role" || is_empty(value)));
        match choice.get("finish_reason").and_then(Value::as_str) {
            _ if !silent => return Told::Output,
            None if choice.get("text").is_none_or(is_empty) && choice.get("message").is_none() => {}
            Some(WINDOW_FULL) => return Told::Error(SILENT),
            _ => return Told::Output,
        }
    }
    Told::Bookkeeping
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        _ => false,
    }
}

/// What a body is that begins with `text`. Content types are not asked: servers disagree on them.
pub(super) fn beginning(text: &[u8]) -> Beginning {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text).trim_ascii_start();
    let unclear = if text.len() < BEGINNING_BYTES { Beginning::Unclear } else { Beginning::Answer };
    match text.first() {
        None => unclear,
        Some(b'{') => first_member(text.get(1..).unwrap_or_default()).unwrap_or(unclear),
        Some(b'[') => match text.get(1..).unwrap_or_default().trim_ascii_start() {
            [] => unclear,
            [b'{', rest @ ..] => first_member(rest).unwrap_or(unclear),
            _ => Beginning::Answer,
        },
        Some(_) => {
            let starts = |start: &&&[u8]| text.starts_with(start);
            let may_start = |start: &&&[u8]| start.starts_with(text);
            match STREAM_STARTS.iter().find(starts) {
                Some(_) => Beginning::Stream,
                None if STREAM_STARTS.iter().any(|start| may_start(&start)) => unclear,
                None => Beginning::Answer,
            }
        }
    }
}

/// What an object is by its first telling member; `None` while that is cut.
fn first_member(mut text: &[u8]) -> Option<Beginning> {
    loop {
        text = text.trim_ascii_start();
        let Some(rest) = text.strip_prefix(b"\"") else {
            return (!text.is_empty()).then_some(Beginning::Answer);
        };
        let (key, rest) = string(rest)?;
        let value = rest.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
        let names = |keys: &[&str]| keys.iter().any(|name| name.as_bytes() == key);
        let after = after_empty(value)?;
        // An answer without a choice is none: what it is, is said further on.
        if key == b"choices" && after.is_some() {
            return Some(Beginning::Error);
        }
        text = match after {
            Some(after) => after,
            None if names(KIND_KEYS) && is_kind(value, b"error")? => return Some(Beginning::Error),
            None if names(KIND_KEYS) && is_kind(value, b"chat.completion")? => after_scalar(value)?,
            None if names(NEUTRAL_KEYS) => after_scalar(value)?,
            None if names(ERROR_KEYS) => return Some(Beginning::Error),
            None => return Some(Beginning::Answer),
        };
    }
}

/// Whether a kind's value is this one.
fn is_kind(value: &[u8], kind: &[u8]) -> Option<bool> {
    match value.strip_prefix(b"\"") {
        Some(text) => Some(string(text)?.0 == kind),
        None => Some(false),
    }
}

/// What follows a value that says nothing (`null`, `false`, an empty text, list or object) and its comma;
/// `Some(None)`: the value says something.
fn after_empty(value: &[u8]) -> Option<Option<&[u8]>> {
    let first = *value.first()?;
    let rest = match first {
        b'n' | b'f' => Some(value),
        b'"' => value.get(1..)?.strip_prefix(b"\""),
        b'[' | b'{' => value.get(1..)?.trim_ascii_start().strip_prefix(if first == b'[' { b"]" } else { b"}" }),
        _ => None,
    };
    // Only what may still turn out to be empty waits for its next byte.
    if rest.is_none() && matches!(first, b'"' | b'[' | b'{') && value.get(1..)?.trim_ascii_start().is_empty() {
        return None;
    }
    let Some(rest) = rest else { return Some(None) };
    let end = memchr::memchr2(b',', b'}', rest)?;
    Some(Some(rest.get(end + 1..)?))
}

/// What follows a string or number and its comma.
fn after_scalar(value: &[u8]) -> Option<&[u8]> {
    let rest = value.strip_prefix(b"\"").map_or(Some(value), |text| string(text).map(|(_, rest)| rest))?;
    let comma = memchr::memchr2(b',', b'}', rest)?;
    rest.get(comma + 1..)
}

/// A JSON string without its opening quote, and what follows it.
fn string(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr(b'"', text)?;
    Some((text.get(..end)?, text.get(end + 1..)?))
}

/// Events at a stream's end among which its error is: some servers send `[DONE]` behind it.
const LAST_EVENTS: usize = 3;

/// The error in which an answer ended that was not held back, by what a window shows of its end. Only what is called
/// an error counts: a success that looks like an overflow is none for sure.
pub fn ended_in(window: &[u8], shown: Shown) -> Verdict {
    let verdict = match beginning(window) {
        Beginning::Error if shown == Shown::All => overflow::classify(200, window),
        Beginning::Answer if shown == Shown::All => Verdict::Other,
        _ => last_events(window, shown),
    };
    let silent = matches!(verdict, Verdict::Overflow(Sizes { silent: true, .. }));
    if silent { Verdict::Other } else { verdict }
}

fn last_events(window: &[u8], shown: Shown) -> Verdict {
    let mut reader = Reader::with_limit(window.len());
    reader.push(whole_events(window, shown));
    reader.finish();
    let events: Vec<Event> = std::iter::from_fn(|| reader.next_event()).collect();
    let told = events.iter().rev().take(LAST_EVENTS).map(told).find_map(|told| match told {
        Told::Error(verdict) => Some(verdict),
        Told::Bookkeeping | Told::Output => None,
    });
    told.unwrap_or(Verdict::Other)
}

/// Whether an answer that is there in one piece is an overflow in disguise. Looked into only where
/// its tell-tale words are, so that other answers cost one search.
pub(super) fn silent_overflow(text: &[u8]) -> Verdict {
    let has = |words: &str| memchr::memmem::find(text, words.as_bytes()).is_some();
    let full = has(WINDOW_FULL) || (has("\"length\"") && has("completion_tokens\":"));
    // Inside a text the quotes would be escaped.
    let told = full || has("\"error\":{") || has("\"error\": {");
    if told && text.len() <= overflow::EXAMINED_BYTES { overflow::classify(200, text) } else { Verdict::Other }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OVERFLOW: &str = r#"{"error":{"message":"prompt is too long: 5000 tokens > 4096 maximum"}}"#;

    #[test]
    fn an_error_at_the_end_of_what_passed_is_seen() {
        let text =
            "data: {\"choices\":[{\"delta\":{\"content\":\"prompt is too long: 5000 tokens > 4096 maximum\"}}]}\n\n";
        let other = r#"{"error":{"message":"You exceeded your current quota"}}"#;
        let error = format!("data: {OVERFLOW}\n\n");
        let told = |window: &str, shown| ended_in(window.as_bytes(), shown) != Verdict::Other;
        assert!(told(OVERFLOW, Shown::All));
        for end in ["", "data: [DONE]\n\n"] {
            assert!(told(&format!("{text}{error}{end}"), Shown::All));
            assert!(told(&format!("cut\"}}\n\n{text}{error}{end}"), Shown::End));
        }
        assert!(!told(text, Shown::All) && !told(&format!("{text}data: {other}\n\n"), Shown::All));
        assert!(!told(&format!("{error}{}", text.repeat(3)), Shown::All), "it went on");
        let silent = r#"{"choices":[{"message":{"content":""},"finish_reason":"length"}],"usage":{"prompt_tokens":4096,"completion_tokens":0}}"#;
        assert!(!told(silent, Shown::All));
    }
}
