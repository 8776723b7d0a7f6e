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
    /// The key under which the provider caches: a part of the session's id, but no name.
    cache_key: Option<Box<str>>,
    pub agent: Arc<str>,
}

/// A session as a request names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub id: SessionId,
    pub agent: Arc<str>,
    /// Whether the client names it, so that all of it is its own.
    pub named: bool,
}

impl Names {
    /// What the headers say. Costs a few look-ups.
    pub fn of_headers(headers: &HeaderMap) -> Self {
        let client = SESSION_HEADERS.iter().find_map(|name| value(headers, name));
        Self { own: value(headers, OWN_SESSION), client, cache_key: None, agent: agent(headers) }
    }

    /// Adds what the body says, where the headers said nothing.
    pub fn with_body(mut self, conversation: &Conversation<'_>) -> Self {
        if self.own.is_none() && self.client.is_none() {
            self.client = claude(conversation);
            self.cache_key = cache_key(conversation);
        }
        self
    }

    /// The session, for a conversation whose first message has the digest `root`.
    pub fn session(&self, store: &Store, tenant: &Tenant, root: &Digest) -> Session {
        let (name, root) = match (&self.own, &self.client, &self.cache_key) {
            (Some(own), ..) => (Some([b"own:", own.as_bytes()].concat()), None),
            (None, Some(client), _) => (Some([b"client:", client.as_bytes()].concat()), Some(root)),
            (None, None, Some(key)) => (Some([b"key:", key.as_bytes()].concat()), Some(root)),
            (None, None, None) => (None, Some(root)),
        };
        let id = store.session_id(tenant, name.as_deref(), root);
        // An application may use one cache key for all of its users.
        let named = self.own.is_some() || self.client.is_some();
        Session { id, agent: Arc::clone(&self.agent), named }
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

/// Claude Code's session id: in `metadata.user_id`, which is JSON. A plain `user_id` names a user, not a session.
fn claude(conversation: &Conversation<'_>) -> Option<Box<str>> {
    let metadata = member(conversation, "metadata")?;
    let user = metadata.get("user_id")?.as_str().filter(|user| user.trim_start().starts_with('{'))?;
    let user: Value = serde_json::from_str(user).ok()?;
    name_of(user.get("session_id")?.as_str()?)
}

/// `prompt_cache_key` of Responses: tells sessions apart, but names none.
fn cache_key(conversation: &Conversation<'_>) -> Option<Box<str>> {
    name_of(member(conversation, "prompt_cache_key")?.as_str()?)
}

fn member(conversation: &Conversation<'_>, key: &str) -> Option<Value> {
    let (_, span) = conversation.fields.members.iter().find(|(name, _)| name.as_ref() == key)?;
    serde_json::from_slice(conversation.body.get(span.clone())?).ok()
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
