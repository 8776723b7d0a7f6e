//! Amazon's event streams as Bedrock writes them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// A frame with these headers, all of them texts.
pub fn frame(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let mut named = Vec::new();
    for (name, value) in headers {
        named.push(u8::try_from(name.len()).unwrap());
        named.extend_from_slice(name.as_bytes());
        named.push(7);
        named.extend_from_slice(&u16::try_from(value.len()).unwrap().to_be_bytes());
        named.extend_from_slice(value.as_bytes());
    }
    let number = |length: usize| u32::try_from(length).unwrap().to_be_bytes();
    let mut frame = [number(12 + named.len() + payload.len() + 4), number(named.len())].concat();
    frame.extend_from_slice(&crc32fast::hash(&frame).to_be_bytes());
    frame.extend_from_slice(&named);
    frame.extend_from_slice(payload);
    frame.extend_from_slice(&crc32fast::hash(&frame).to_be_bytes());
    frame
}

/// An event of the model's own.
pub fn chunk(event: &Value) -> Vec<u8> {
    let payload = json!({ "bytes": STANDARD.encode(event.to_string()), "p": "abcdefgh" }).to_string();
    let headers = [(":event-type", "chunk"), (":content-type", "application/json"), (":message-type", "event")];
    frame(&headers, payload.as_bytes())
}

/// A failure in place of the next event.
pub fn exception(kind: &str, body: &str) -> Vec<u8> {
    let headers = [(":exception-type", kind), (":content-type", "application/json"), (":message-type", "exception")];
    frame(&headers, body.as_bytes())
}
