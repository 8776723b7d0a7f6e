//! The Messages API of the embedded provider: its rules, its signatures, its answers.

pub mod answer;
mod blocks;
mod events;
mod marks;
mod pairs;
pub mod rules;
mod signatures;
pub mod surfaces;
mod thinking;

pub(super) use self::events::{events, json};
pub(super) use self::rules::{check, size, unreadable};
pub use self::signatures::Signatures;

use serde_json::Value;

use self::surfaces::Surface;
use super::request::{Ids, ModelRequest};

/// What the provider's Messages API is like.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// How a request that does not fit is refused.
    pub surface: Surface,
    pub binding: Binding,
    pub prefill: Prefill,
    /// Largest body, bytes (A20).
    pub max_bytes: usize,
    pub ids: Ids,
}

/// What a thinking block's signature covers (A10, A27).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// The block, and `system`, `tools` and all messages before it.
    Conversation,
    /// The block alone, as on older models.
    Block,
}

/// Whether the last message may be the assistant's (A6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefill {
    Allowed,
    Refused,
}

impl Default for Settings {
    /// As the newest models.
    fn default() -> Self {
        Self {
            surface: Surface::default(),
            binding: Binding::Conversation,
            prefill: Prefill::Refused,
            max_bytes: 32 * 1024 * 1024,
            ids: Ids::Own,
        }
    }
}

/// Where a block stands: the message's index, and the block's in its content.
pub type Place = (usize, usize);

/// The request without the blocks at `places`.
pub(super) fn without(request: &ModelRequest, places: &[Place]) -> ModelRequest {
    let mut request = request.clone();
    for (i, k) in places.iter().rev() {
        let content = request.body.pointer_mut(&format!("/messages/{i}/content")).and_then(Value::as_array_mut);
        if let Some(blocks) = content.filter(|blocks| *k < blocks.len()) {
            blocks.remove(*k);
        }
    }
    request
}
