//! A10, A27: thinking blocks are signed, and come back as they went out.

use std::collections::{HashMap, HashSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::super::render;
use super::super::request::{ModelRequest, kind, list, messages, role, text};
use super::super::rules::Violation;
use super::rules::{Turn, beta, invalid, thinks};
use super::thinking::{in_loop, is_thinking};
use super::{Binding, Place};

/// How a signature of the provider's own begins, decoded.
const MARK: &[u8] = b"demo-signature:";
/// Any key does: nothing here is a secret.
const KEY: [u8; 32] = *b"compactproxy's embedded provider";
/// Length of a hash, bytes.
const HASH: usize = 32;
/// The beta that lets the client choose what becomes of blocks whose conversation changed.
const CONTROLS: &str = "thinking-binding-controls-2026-08-01";
/// How a client's accounting begins that changes with every request.
const BILLING: &str = "x-anthropic-billing-header";

/// What the provider remembers of thinking blocks, its own and others'.
#[derive(Debug, Default)]
pub struct Signatures {
    /// What it thought itself.
    own: HashSet<blake3::Hash>,
    /// By the id of a call: the signatures it was made with, nothing where it was made without.
    calls: HashMap<String, HashSet<Option<String>>>,
    /// Others' signatures are opaque: each belongs to one text.
    foreign: HashMap<String, blake3::Hash>,
}

/// The signature of a block that answers `request`.
pub(super) fn sign(request: &ModelRequest, thought: &str) -> String {
    let prefix = *prefixes(&request.body).last().unwrap_or(&blake3::hash(b"")).as_bytes();
    STANDARD.encode([MARK, &prefix, mac(&prefix, thought).as_bytes()].concat())
}

fn mac(prefix: &[u8; HASH], thought: &str) -> blake3::Hash {
    blake3::keyed_hash(&KEY, &[prefix.as_slice(), thought.as_bytes()].concat())
}

/// Of the provider's own signature the hash of the conversation before it, and the block's code.
fn read(signature: &str) -> Option<([u8; HASH], [u8; HASH])> {
    let decoded = STANDARD.decode(signature).ok()?;
    let (prefix, mac) = decoded.strip_prefix(MARK)?.split_at_checked(HASH)?;
    Some((prefix.try_into().ok()?, mac.try_into().ok()?))
}

impl Signatures {
    /// Takes note of an answer.
    pub fn issued(&mut self, content: &[Value]) {
        let signed = content.iter().find(|block| kind(block) == "thinking");
        self.own.extend(signed.map(|block| blake3::hash(text(block, "thinking").as_bytes())));
        let signature = signed.map(|block| text(block, "signature").to_owned());
        for call in content.iter().filter(|block| kind(block) == "tool_use") {
            self.calls.entry(text(call, "id").to_owned()).or_default().insert(signature.clone());
        }
    }

    /// The first block that was changed or lost, or whose conversation was; else those that the client wants
    /// dropped for that reason, ascending.
    pub(super) fn check(
        &mut self,
        request: &ModelRequest,
        turns: &[Turn],
        binding: Binding,
    ) -> Result<Vec<Place>, Violation> {
        let body = &request.body;
        let control = body.pointer("/thinking/block_binding");
        if control.is_some() && !beta(&request.headers, CONTROLS) {
            let kind = body.pointer("/thinking/type").and_then(Value::as_str).unwrap_or_default();
            return Err(invalid("A27", format!("thinking.{kind}.block_binding: Extra inputs are not permitted")));
        }
        let drops = control.is_some_and(|control| text(control, "prefix_mismatch_behavior") == "drop_block");
        let prefixes = prefixes(body);
        let mut stale = Vec::new();
        for turn in turns.iter().filter(|turn| turn.role == "assistant") {
            let mut dropping = false;
            for ((i, k), block) in turn.blocks.iter().filter(|(_, block)| is_thinking(block)) {
                let prefix = self.verify((*i, *k), block)?;
                let fresh = prefix.is_none_or(|prefix| prefixes.get(*i).is_some_and(|now| *now == prefix));
                dropping |= binding == Binding::Conversation && !fresh;
                match (dropping, drops) {
                    (false, _) => {}
                    (true, true) => stale.push((*i, *k)),
                    (true, false) => return Err(moved((*i, *k))),
                }
            }
        }
        if thinks(body) && in_loop(turns) {
            self.kept(turns)?;
        }
        Ok(stale)
    }

    /// The hash of the conversation that a block is bound to, if the provider signed it.
    fn verify(&mut self, (i, k): Place, block: &Value) -> Result<Option<blake3::Hash>, Violation> {
        if kind(block) != "thinking" {
            return Ok(None);
        }
        let (thought, signature) = (text(block, "thinking"), text(block, "signature"));
        let hash = blake3::hash(thought.as_bytes());
        let genuine = match read(signature) {
            Some((prefix, code)) if mac(&prefix, thought) == code => return Ok(Some(prefix.into())),
            Some(_) => false,
            None if signature.is_empty() || !thought.is_empty() && self.own.contains(&hash) => false,
            None => *self.foreign.entry(signature.to_owned()).or_insert(hash) == hash,
        };
        if genuine {
            Ok(None)
        } else {
            Err(invalid("A10", format!("messages.{i}.content.{k}: Invalid `signature` in `thinking` block")))
        }
    }

    /// In the loop that goes on every call still has the thinking that it was made with.
    fn kept(&self, turns: &[Turn]) -> Result<(), Violation> {
        let asked =
            |turn: &Turn| turn.role == "user" && turn.blocks.iter().all(|(_, block)| kind(block) != "tool_result");
        let start = turns.iter().rposition(asked).unwrap_or_default();
        for turn in turns.iter().skip(start).filter(|turn| turn.role == "assistant") {
            let signatures: Vec<&str> = turn.blocks.iter().map(|(_, block)| text(block, "signature")).collect();
            let changed = turn.blocks.iter().find(|(_, block)| {
                let known = self.calls.get(text(block, "id")).filter(|_| kind(block) == "tool_use");
                known.is_some_and(|known| {
                    let here =
                        |known: &Option<String>| known.as_deref().is_none_or(|known| signatures.contains(&known));
                    !known.iter().any(here)
                })
            });
            if let Some(((i, k), _)) = changed {
                return Err(invalid(
                    "A10",
                    format!(
                        "messages.{i}.content.{k}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must remain as they were in the original response."
                    ),
                ));
            }
        }
        Ok(())
    }
}

/// A27.
fn moved((i, k): Place) -> Violation {
    invalid(
        "A27",
        format!(
            "messages.{i}.content.{k}: Invalid `signature` in `thinking` block: the block is bound to a different conversation. `system`, `tools` and all messages before it must be as they were when it was created."
        ),
    )
}

/// The hash of system prompt, tools and so many messages, for each number of messages.
fn prefixes(body: &Value) -> Vec<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    let system = body.get("system").map(render::blocks).unwrap_or_default();
    for part in system.iter().filter(|part| !text(part, "text").starts_with(BILLING)) {
        feed(&mut hasher, part);
    }
    hasher.update(b"tools");
    list(body, "tools").iter().for_each(|tool| feed(&mut hasher, tool));
    let mut prefixes = vec![hasher.finalize()];
    for message in messages(body) {
        hasher.update(role(message).as_bytes());
        let blocks = message.get("content").map(render::blocks).unwrap_or_default();
        blocks.iter().for_each(|block| feed(&mut hasher, block));
        prefixes.push(hasher.finalize());
    }
    prefixes
}

/// What a block says, whatever the order of its members. Breakpoints move from turn to turn, and clients add
/// and drop what only repeats a default: neither counts.
fn feed(hasher: &mut blake3::Hasher, value: &Value) {
    match value {
        Value::Array(values) => {
            hasher.update(b"[");
            values.iter().for_each(|value| feed(hasher, value));
            hasher.update(b"]");
        }
        Value::Object(members) => {
            let counts = |key: &str, value: &Value| key != "cache_control" && !(key == "is_error" && value == false);
            let mut members: Vec<_> = members.iter().filter(|(key, value)| counts(key, value)).collect();
            members.sort_by_key(|(key, _)| *key);
            hasher.update(b"{");
            for (key, value) in members {
                feed(hasher, &Value::String(key.clone()));
                feed(hasher, value);
            }
            hasher.update(b"}");
        }
        scalar => {
            hasher.update(scalar.to_string().as_bytes()).update(b",");
        }
    }
}

#[cfg(test)]
#[path = "../tests/messages_signatures.rs"]
mod tests;
