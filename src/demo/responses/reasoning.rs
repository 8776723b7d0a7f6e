//! R4, R5, R6: reasoning stands with what it led to, and is either held by the provider or sent whole.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::super::request::{kind, role, text};
use super::super::rules::{Violation, invalid};
use super::store::Store;

/// How the provider's own encrypted texts begin.
const MARK: &str = "gAAAAABdemo";
/// Any key does: nothing here is a secret.
const KEY: [u8; 32] = *b"compactproxy's embedded provider";
/// Bytes that identify an encrypted text.
const NONCE: usize = 32;
/// Bytes that make it as long as real ones are.
const FILLING: usize = 120;

/// An encrypted text that [`genuine`] knows again. `note` stands in it as it is, for the scripted model to
/// find.
pub(super) fn encrypted(of: &str, note: &str) -> String {
    let nonce = *blake3::hash(of.as_bytes()).as_bytes();
    format!("{MARK}{}.{note}", STANDARD.encode(sealed(&nonce, note)))
}

fn sealed(nonce: &[u8; NONCE], note: &str) -> Vec<u8> {
    let mac = blake3::keyed_hash(&KEY, &[nonce.as_slice(), note.as_bytes()].concat());
    let mut filling = [0; FILLING];
    blake3::Hasher::new().update(nonce).finalize_xof().fill(&mut filling);
    [nonce.as_slice(), mac.as_bytes(), &filling].concat()
}

/// Whether an encrypted text is the provider's own and unchanged; other providers' are opaque.
fn genuine(secret: &str) -> bool {
    let Some(own) = secret.strip_prefix(MARK) else { return true };
    let Some((seal, note)) = own.split_once('.') else { return false };
    let decoded = STANDARD.decode(seal).unwrap_or_default();
    let nonce = decoded.split_at_checked(NONCE).and_then(|(nonce, _)| <[u8; NONCE]>::try_from(nonce).ok());
    nonce.is_some_and(|nonce| decoded == sealed(&nonce, note))
}

/// The first item that lacks its reasoning, or reasoning that lacks its item.
pub(super) fn check(items: &[Value], body: &Value, store: &Store) -> Result<(), Violation> {
    let mut before: Vec<&str> = Vec::new();
    for (i, item) in items.iter().enumerate() {
        verified(item)?;
        let id = text(item, "id");
        if kind(item) == "reasoning" {
            held(item, body, store)?;
            followed(items, i)?;
            before.push(id);
            continue;
        }
        match store.reasoning_of(id) {
            Some(reasoning) if !before.contains(&reasoning) => {
                let text = format!(
                    "Item '{id}' of type '{}' was provided without its required 'reasoning' item: '{reasoning}'.",
                    kind(item)
                );
                return Err(invalid("R4", &text, Some("input"), None));
            }
            _ => {}
        }
    }
    Ok(())
}

/// R6.
fn verified(item: &Value) -> Result<(), Violation> {
    let secret = text(item, "encrypted_content");
    if genuine(secret) {
        return Ok(());
    }
    let start: String = secret.chars().take(4).collect();
    let end: String = secret.chars().skip(secret.chars().count().saturating_sub(4)).collect();
    let text = format!(
        "The encrypted content {start}...{end} could not be verified. Reason: Encrypted content could not be decrypted or parsed."
    );
    Err(invalid("R6", &text, None, Some("invalid_encrypted_content")))
}

/// R5: an id alone refers to what the provider keeps.
fn held(item: &Value, body: &Value, store: &Store) -> Result<(), Violation> {
    let set = |key: &str| item.get(key).is_some_and(|value| !value.is_null());
    let id = text(item, "id");
    if id.is_empty() || set("encrypted_content") || set("content") || store.holds(id) {
        return Ok(());
    }
    if body.get("store") == Some(&Value::Bool(false)) { Err(not_found(id, body)) } else { Ok(()) }
}

/// The error for an id behind which there is nothing.
pub(super) fn not_found(id: &str, body: &Value) -> Violation {
    let why = if body.get("store") == Some(&Value::Bool(false)) {
        " Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item from your input."
    } else {
        ""
    };
    let error = invalid("R5", &format!("Item with id '{id}' not found.{why}"), Some("input"), None);
    Violation { status: 404, ..error }
}

/// R4: behind reasoning, and more of it, stands what the model made next.
fn followed(items: &[Value], i: usize) -> Result<(), Violation> {
    let next = items.iter().skip(i + 1).find(|item| kind(item) != "reasoning");
    let made = next.is_some_and(|item| match kind(item) {
        "" | "message" => role(item) == "assistant",
        "compaction_trigger" | "item_reference" | "additional_tools" | "mcp_approval_response" => false,
        other => !other.ends_with("_output") || other == "tool_search_output",
    });
    if made {
        return Ok(());
    }
    let id = items.get(i).map(|item| text(item, "id")).unwrap_or_default();
    let text = format!("Item '{id}' of type 'reasoning' was provided without its required following item.");
    Err(invalid("R4", &text, Some("input"), None))
}
