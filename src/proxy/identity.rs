//! Which session a request belongs to, and which agent sends it.
//!
//! Ids from clients are names within a tenant, never keys: what comes of them is a keyed hash of the tenant, the name
//! and, unless the name is meant for this proxy, the conversation's first message. Nobody reaches another's session
//! by writing its id.

use std::sync::Arc;

use http::HeaderMap;
use serde_json::Value;

use super::agent::agent;
use crate::store::log::{Scope, SessionId};
use crate::store::{Store, Tenant};
use crate::wire::{Conversation, Digest};

/// Set by clients that name their sessions to this proxy.
const OWN_SESSION: &str = "x-compactproxy-session";
/// Headers in which agents send a session id of their own, the most telling first.
const SESSION_HEADERS: [&str; 4] = ["x-claude-code-session-id", "session-id", "session_id", "x-session-id"];
/// Bytes of a name; what is longer counts as none.
const MAX_NAME: usize = 256;

/// What a request says of the session that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// Given for this proxy: it alone names the session.
    own: Option<Box<str>>,
    /// The client's own id: together with the first message it names the session.
    client: Option<Box<str>>,
    pub agent: Arc<str>,
}

/// A session as a request names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub id: SessionId,
    pub agent: Arc<str>,
    /// Whether anything but the conversation's content names it.
    pub named: bool,
}

impl Names {
    /// What the headers say. Costs a few look-ups.
    pub fn of_headers(headers: &HeaderMap) -> Self {
        let client = SESSION_HEADERS.iter().find_map(|name| value(headers, name));
        Self { own: value(headers, OWN_SESSION), client, agent: agent(headers) }
    }

    /// Adds what the body says, where the headers said nothing.
    pub fn with_body(mut self, conversation: &Conversation<'_>) -> Self {
        if self.own.is_none() && self.client.is_none() {
            self.client = in_body(conversation);
        }
        self
    }

    /// The session, for a conversation whose first message has the digest `root`.
    pub fn session(&self, store: &Store, tenant: &Tenant, root: &Digest) -> Session {
        let (name, root) = match (&self.own, &self.client) {
            (Some(own), _) => (Some([b"own:", own.as_bytes()].concat()), None),
            (None, Some(client)) => (Some([b"client:", client.as_bytes()].concat()), Some(root)),
            (None, None) => (None, Some(root)),
        };
        let id = store.session_id(tenant, name.as_deref(), root);
        Session { id, agent: Arc::clone(&self.agent), named: name.is_some() }
    }

    /// The session that is named for this proxy, whatever the conversation: all that a connection without one has.
    pub fn own_session(&self, store: &Store, tenant: &Tenant) -> Option<Session> {
        self.own.is_some().then(|| self.session(store, tenant, &Digest::default()))
    }
}

impl Session {
    /// The session alone. `chain`: digests of the request's own conversation, beyond which nothing of an unnamed session
    /// is shown: two users of one credential may have begun with the same words.
    pub fn scope(&self, chain: &[Digest]) -> Scope {
        Scope::Conversation { session: self.id, chain: (!self.named).then(|| chain.into()) }
    }
}

/// A header's first value, if it can be a name.
fn value(headers: &HeaderMap, name: &str) -> Option<Box<str>> {
    let value = headers.get(name)?.to_str().ok()?;
    name_of(value)
}

fn name_of(value: &str) -> Option<Box<str>> {
    let name = value.trim();
    (!name.is_empty() && name.len() <= MAX_NAME).then(|| name.into())
}

/// A session id inside a body: Claude Code's in `metadata.user_id`, which is JSON; `prompt_cache_key` of Responses.
/// A plain `user_id` names a user, not a session.
fn in_body(conversation: &Conversation<'_>) -> Option<Box<str>> {
    let member = |key: &str| {
        let (_, span) = conversation.fields.members.iter().find(|(name, _)| name.as_ref() == key)?;
        serde_json::from_slice::<Value>(conversation.body.get(span.clone())?).ok()
    };
    let user = member("metadata").and_then(|metadata| metadata.get("user_id")?.as_str().map(str::to_owned));
    let claude = user.filter(|user| user.trim_start().starts_with('{')).and_then(|user| {
        let user: Value = serde_json::from_str(&user).ok()?;
        name_of(user.get("session_id")?.as_str()?)
    });
    claude.or_else(|| name_of(member("prompt_cache_key")?.as_str()?))
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
