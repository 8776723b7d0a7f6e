//! Rounds: one answer for the client, made of several answers of its provider, between which the proxy ran
//! tools of its own that the client never sees.
//!
//! Pure. [`Offer`]s are placed in a request; an answer in which the model calls them is cut so that the client
//! sees none of it; the next round's request carries the calls and their results; and when the client sends the
//! history of it all, what it never saw is put back where it was ([`Aside`]).

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A tool that the proxy offers to the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// As the model sees it; unlike every tool of the client's.
    pub name: String,
    pub description: String,
    /// JSON Schema of the arguments: an object.
    pub parameters: serde_json::Value,
}

/// The model's call of one of the proxy's tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnCall {
    pub id: String,
    /// The name under which it was offered.
    pub name: String,
    /// JSON, as the model wrote it.
    pub arguments: String,
}

/// What one call came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnResult {
    pub text: String,
    /// The arguments made no sense, or nothing was found.
    pub failed: bool,
}

/// A round in which the model called the proxy's tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    /// The model's turn, calls included, as items of the conversation: JSON, joined by commas.
    pub turn: Bytes,
    /// Never empty; in the order of the turn.
    pub calls: Vec<OwnCall>,
}

/// How one round's answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// No tool of the proxy's was called, or the answer could not be read: what was held goes out, and that is all.
    Answered,
    /// Only tools of the proxy's were called: another round follows.
    Again(Round),
    /// Tools of the client's were called as well: its turn now. What was held goes out once the results are kept.
    Handed(Round),
}

/// What a client never saw of one answer, to be put back into the history that it sends: kept under the chain
/// digest of the last item that the answer followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aside {
    /// Ids of the calls that the client saw, in order.
    pub calls: Vec<String>,
    /// BLAKE3 of all text that it saw, joined and trimmed: another answer at this place is not this one.
    pub text: [u8; 32],
    /// In order.
    pub inserts: Vec<Insert>,
}

/// What stands at one place of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Insert {
    /// Visible parts of the answer before it: content blocks (Messages), output items (Responses), calls (Chat).
    pub parts: usize,
    /// Bytes of visible text before it, decoded (Chat, whose content is one text).
    pub text: usize,
    /// Calls that stand among the client's own: JSON, joined by commas. Empty for a whole round.
    pub calls: String,
    /// A whole round (the turn up to here with its calls, and their results), or the results of `calls`: JSON
    /// items (in Messages for `calls`: blocks), joined by commas.
    pub items: String,
}
