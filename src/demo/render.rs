//! Rendering a conversation into tokens, one message, item or block after the other.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::request::{kind, list, role, text, tool_calls};

/// Tokens that frame a message (OpenAI's published count).
pub(super) const FRAME: u32 = 3;
/// Fixed price of a picture, a sound or a file, whatever its bytes.
pub(super) const MEDIA: usize = 765;
/// Bytes of an encrypted text that make a token.
const OPAQUE: usize = 8;
/// Longest run of one character class that is encoded at once, bytes: the tokenizer's time grows
/// with the square of it.
const RUN: usize = 1_024;
/// Ids beyond the vocabulary: framing and media.
const START: u32 = 1 << 30;
const SEPARATOR: u32 = START + 1;
const MEDIA_ID: u32 = START + 2;
/// Members that the model does not see.
const UNSEEN: [&str; 8] =
    ["type", "id", "status", "cache_control", "signature", "phase", "annotations", "internal_chat_message_metadata"];
/// Types of parts and blocks that are no text.
const MEDIA_TYPES: [&str; 6] =
    ["image", "input_image", "input_file", "input_audio", "computer_screenshot", "container_upload"];

/// Appends the tokens of `text`.
pub(super) fn encode(text: &str, tokens: &mut Vec<u32>) {
    let tokenizer = tiktoken_rs::o200k_base_singleton();
    let mut rest = text;
    while let Some((piece, after)) = rest.split_at_checked(long_run(rest)) {
        if piece.is_empty() {
            break;
        }
        tokens.extend(tokenizer.encode_ordinary(piece));
        rest = after;
    }
}

/// Where to stop encoding: at the end of the text, or inside the first run that is too long.
fn long_run(text: &str) -> usize {
    let (mut start, mut class) = (0, None);
    for (at, letter) in text.char_indices() {
        let now = Some(letter.is_whitespace());
        if now != class {
            (start, class) = (at, now);
        } else if at - start >= RUN {
            return at;
        }
    }
    text.len()
}

/// A Chat Completions message.
pub(super) fn chat(message: &Value, tokens: &mut Vec<u32>) {
    tokens.extend([START, SEPARATOR, SEPARATOR]);
    encode(role(message), tokens);
    match message.get("content") {
        Some(Value::String(text)) => encode(text, tokens),
        Some(Value::Array(parts)) => parts.iter().for_each(|part| chat_part(part, tokens)),
        _ => {}
    }
    for key in ["name", "reasoning_content", "refusal", "tool_call_id"] {
        if let Some(text) = message.get(key).and_then(Value::as_str) {
            encode(text, tokens);
        }
    }
    let legacy = message.get("function_call").into_iter();
    let calls = tool_calls(message).iter().filter_map(|call| call.get("function").or_else(|| call.get("custom")));
    for call in calls.chain(legacy) {
        for key in ["name", "arguments", "input"] {
            if let Some(text) = call.get(key).and_then(Value::as_str) {
                encode(text, tokens);
            }
        }
        tokens.push(SEPARATOR);
    }
}

fn chat_part(part: &Value, tokens: &mut Vec<u32>) {
    match part.get("text").or_else(|| part.get("refusal")).and_then(Value::as_str) {
        Some(text) => encode(text, tokens),
        None => media(part, tokens),
    }
}

/// Its identity counts for the cache, its bytes do not count as text.
fn media(part: &Value, tokens: &mut Vec<u32>) {
    let before = tokens.len();
    identity(&part.to_string(), tokens);
    tokens.resize(before + MEDIA, MEDIA_ID);
}

fn identity(bytes: &str, tokens: &mut Vec<u32>) {
    let identity = blake3::hash(bytes.as_bytes());
    tokens.push(MEDIA_ID);
    tokens.extend(identity.as_bytes().iter().map(|byte| START | u32::from(*byte) << 8));
}

/// An item, or the first block of a message, with the frame before it.
pub(super) fn framed(value: &Value, tokens: &mut Vec<u32>) {
    tokens.extend([START, SEPARATOR, SEPARATOR]);
    item(value, tokens);
}

/// Whatever an item or block says to the model.
pub(super) fn item(value: &Value, tokens: &mut Vec<u32>) {
    match value {
        Value::String(text) => encode(text, tokens),
        Value::Array(values) => values.iter().for_each(|value| item(value, tokens)),
        Value::Object(_) if is_media(value) => media(value, tokens),
        Value::Object(members) => {
            for (key, value) in members.iter().filter(|(key, _)| !UNSEEN.contains(&key.as_str())) {
                match (key.as_str(), value) {
                    ("encrypted_content" | "data", Value::String(text)) => opaque(text, tokens),
                    ("input" | "parameters" | "input_schema", Value::Object(_)) => encode(&value.to_string(), tokens),
                    _ => item(value, tokens),
                }
            }
            tokens.push(SEPARATOR);
        }
        Value::Number(number) => encode(&number.to_string(), tokens),
        Value::Null | Value::Bool(_) => {}
    }
}

fn is_media(value: &Value) -> bool {
    MEDIA_TYPES.contains(&kind(value))
        || kind(value) == "document" && value.pointer("/source/type").and_then(Value::as_str) != Some("text")
}

fn opaque(secret: &str, tokens: &mut Vec<u32>) {
    let before = tokens.len();
    identity(secret, tokens);
    tokens.resize(before + secret.len() / OPAQUE + 1, MEDIA_ID);
}

/// Of a Messages body the system prompt and each message: role and content. What stands before the newest
/// compaction is not among them (A19).
pub(super) fn contents(body: &Value) -> Vec<(&str, &Value)> {
    let messages = list(body, "messages");
    let compacted = messages.iter().rposition(|message| {
        list(message, "content").iter().any(|block| kind(block) == "compaction" && !text(block, "content").is_empty())
    });
    let system = body.get("system").into_iter().map(|system| ("system", system));
    let messages = messages.iter().skip(compacted.unwrap_or_default());
    system.chain(messages.filter_map(|message| Some((role(message), message.get("content")?)))).collect()
}

/// The blocks of a content; a string is one block of text.
pub(super) fn blocks(content: &Value) -> Vec<Cow<'_, Value>> {
    match content {
        Value::String(text) => vec![Cow::Owned(json!({"type": "text", "text": text}))],
        Value::Array(blocks) => blocks.iter().map(Cow::Borrowed).collect(),
        _ => Vec::new(),
    }
}

/// Whether a breakpoint stands behind the block, or behind one in it.
pub(super) fn marked(block: &Value) -> bool {
    block.get("cache_control").is_some_and(Value::is_object) || list(block, "content").iter().any(marked)
}

/// The block without its breakpoints: they move from turn to turn, what the model sees does not.
pub(super) fn unmarked(block: &Value) -> Cow<'_, Value> {
    if !marked(block) {
        return Cow::Borrowed(block);
    }
    let mut plain = block.clone();
    unmark(&mut plain);
    Cow::Owned(plain)
}

fn unmark(block: &mut Value) {
    if let Some(members) = block.as_object_mut() {
        members.remove("cache_control");
        if let Some(Value::Array(blocks)) = members.get_mut("content") {
            blocks.iter_mut().for_each(unmark);
        }
    }
}
