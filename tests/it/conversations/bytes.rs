//! Bodies as bytes: what was sent against what the client gave.

use serde::Deserialize;
use serde_json::value::RawValue;

/// How the proxy begins the message that stands for others.
const NOTICE: &str = "The earlier part of this conversation was compacted";

/// A body cut at the messages of its conversation; `,` between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    pub before: String,
    pub messages: Vec<String>,
    pub after: String,
}

impl Split {
    /// Panics where anything but single commas stands between messages.
    pub fn of(body: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Body<'b> {
            #[serde(borrow)]
            messages: Vec<&'b RawValue>,
        }
        let text = std::str::from_utf8(body).unwrap();
        let messages: Vec<String> =
            serde_json::from_str::<Body>(text).unwrap().messages.iter().map(|raw| raw.get().to_owned()).collect();
        let joined = messages.join(",");
        let (before, after) = text.split_once(&joined).unwrap_or_else(|| panic!("not spliced: {text}"));
        Self { before: before.to_owned(), after: after.to_owned(), messages }
    }

    /// Where the message is that stands for earlier ones.
    pub fn head(&self) -> Option<usize> {
        self.messages.iter().position(|message| message.contains(NOTICE))
    }
}

/// Why `sent` is not `raw` with nothing but whole strings and a leading run of messages replaced.
pub fn not_spliced(raw: &[u8], sent: &[u8]) -> Result<(), String> {
    if raw == sent {
        return Ok(());
    }
    let (raw, sent) = (Split::of(raw), Split::of(sent));
    if (&raw.before, &raw.after) != (&sent.before, &sent.after) {
        return Err("bytes outside the conversation differ".into());
    }
    let head = sent.head();
    let lead = raw.messages.iter().take_while(|message| is_system(message)).count();
    let from = head.map_or(0, |head| head + 1);
    if let Some(head) = head
        && (head != lead || sent.messages[..head] != raw.messages[..head])
    {
        return Err(format!("the head stands at {head}, {lead} system messages lead"));
    }
    let kept = &sent.messages[from..];
    let Some(skipped) = raw.messages.len().checked_sub(kept.len()) else {
        return Err("there are more messages than before".into());
    };
    let pairs = raw.messages[skipped..].iter().zip(kept);
    pairs.enumerate().try_for_each(|(k, (raw, sent))| {
        same_but_strings(raw, sent).map_err(|error| format!("message {}: {error}", skipped + k))
    })?;
    let Some(head) = head else { return Ok(()) };
    // The head is a message of its own, or stands before the text of a kept one.
    let own = r#"{"role":"user","content":""#;
    if sent.messages[head].starts_with(own) { Ok(()) } else { holds(&sent.messages[head], &raw.messages[skipped - 1]) }
}

fn is_system(message: &str) -> bool {
    ["system", "developer"].contains(&super::document::role(message).as_str())
}

/// Same bytes outside of string values; keys are strings in the same places, so they must not differ.
fn same_but_strings(raw: &str, sent: &str) -> Result<(), String> {
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
