//! The Responses API of the embedded provider: its rules, its store, its answers.

pub mod answer;
mod events;
mod pairs;
mod reasoning;
pub mod rules;
pub mod store;
pub mod surfaces;

pub(super) use self::events::{events, frames, json};

use serde_json::{Value, json};

use self::surfaces::Surface;
use super::answer::{Answer, CREATED, Usage};
use super::request::{Ids, ModelRequest, role};

/// What the provider's Responses API is like.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// How a request that does not fit is refused.
    pub surface: Surface,
    pub socket: Socket,
    pub ids: Ids,
}

impl Default for Settings {
    fn default() -> Self {
        Self { surface: Surface::default(), socket: Socket::default(), ids: Ids::Own }
    }
}

/// What becomes of `GET …/responses` with an upgrade to WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Socket {
    #[default]
    Open,
    /// This status in place of 101.
    Refused(u16),
}

/// The answer to `…/responses/compact`: what users said, then one item for all else.
pub(super) fn compacted(answer: &Answer, request: &ModelRequest, usage: Usage) -> Value {
    let said = request.messages().iter().filter(|item| role(item) == "user").cloned();
    let output: Vec<Value> = said.chain([self::answer::compaction(answer, request)]).collect();
    let id = self::answer::response_id(request);
    json!({"id": id, "object": "response.compaction", "created_at": CREATED, "output": output, "usage": self::answer::usage(usage)})
}

/// An error as a socket has it: what would have been a response of its own.
pub(super) fn rejected(status: u16, error: &Value) -> Value {
    json!({"type": "error", "status": status, "error": error})
}
