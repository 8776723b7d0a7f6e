//! Where no tools may come: conversations whose provider refused a body with what the proxy added, and models that take no
//! tools at all.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use super::compaction::Compactor;
use super::origin::{Incoming, Origin, model};
use super::tenant::Identity;
use crate::store::{Tenant, ToolUse};
use crate::wire::{Conversation, Digest};

/// Most conversations that are remembered as refused with tools; beyond it all are forgotten.
const MOST_REFUSED: usize = 1_024;

/// Conversations whose provider refused a body with the proxy's tools. Lost at a restart, which costs one more refusal.
#[derive(Debug, Default)]
pub struct Refused(Mutex<HashSet<(Tenant, Digest)>>);

impl Refused {
    pub(super) fn note(&self, conversation: (Tenant, Digest)) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_REFUSED {
            known.clear();
        }
        known.insert(conversation);
    }

    pub(super) fn has(&self, conversation: (Tenant, Digest)) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&conversation)
    }
}

impl Compactor {
    /// Whether a request's model has said that it takes no tools.
    pub(super) fn takes_no_tools(
        &self,
        incoming: &Incoming<'_>,
        identity: &Identity,
        conversation: &Conversation<'_>,
    ) -> bool {
        let upstream = incoming.shard.proxy.config.upstreams.get(incoming.index).map_or("", |upstream| &upstream.name);
        let model = model(&conversation.fields, incoming.parts.uri.path());
        self.store.tool_use(&identity.tenant, upstream, model) == Some(ToolUse::Refused)
    }

    /// Whether a request's model has been seen to take tools.
    pub(super) fn has_taken_tools(&self, origin: &Origin) -> bool {
        self.store.tool_use(&origin.tenant, &origin.upstream, &origin.model) == Some(ToolUse::Taken)
    }

    /// A request's model has told whether it takes tools.
    pub(super) fn told_of_tools(&self, origin: &Origin, told: ToolUse) {
        self.store.learn_tool_use(&origin.tenant, &origin.upstream, &origin.model, told);
    }
}
