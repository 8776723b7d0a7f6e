//! What is kept of a request that goes out: what went whole stays whole (L5), and what was refused is not sent again.

use std::sync::Arc;

use bytes::Bytes;

use super::budget::Permit;
use super::compaction::Compactor;
use super::journal::Ticket;
use super::origin::Incoming;
use super::overlay::Overlaid;
use super::tenant::{Identity, Proof};
use super::work::Work;
use crate::compact::{Known, evict};
use crate::store::{Lasting, Tenant};
use crate::wire::{Conversation, Digest, Errand};

impl Compactor {
    /// Remembers a conversation that passes untouched: what went whole stays whole (L5). Gives what goes out in its place
    /// where it continues an answer that the provider has elsewhere.
    pub(super) async fn pass(&self, mut incoming: Incoming<'_>) -> Option<(Bytes, Arc<Permit>)> {
        let (body, identity) = self.decode(&mut incoming).await.zip(self.identify(&incoming))?;
        let conversation = self.read(incoming.dialect, &body, identity.tenant).await?;
        if Errand::of_path(incoming.parts.uri.path()) != Errand::Count {
            let chain: Vec<Digest> = conversation.chain().copied().collect();
            self.remember(&identity, (&conversation, &chain), &Known::default());
            let _ = self.offer(&incoming, &identity);
        }
        if !self.store.may_overlay() {
            return None;
        }
        let mut overlaid = Overlaid::default();
        let continued = self.continued(&incoming, &identity, &conversation).await?;
        self.lay_continued(&incoming, continued, (&mut overlaid, Vec::new()));
        overlaid.body
    }

    /// Hands a request to the session log.
    pub(super) fn offer(&self, incoming: &Incoming<'_>, identity: &Identity) -> Option<Ticket> {
        self.journal.as_ref()?.offer(incoming, identity)
    }

    /// What went whole is remembered, but nothing is written for a mere claim. Every large result counts, not the end
    /// alone: the client may go back behind the end and on from there.
    pub(super) fn remember(
        &self,
        identity: &Identity,
        (conversation, chain): (&Conversation<'_>, &[Digest]),
        known: &Known,
    ) {
        if identity.proof == Proof::Claimed {
            return;
        }
        self.remember_whole(&identity.tenant, (conversation, chain), known);
    }

    /// The same for a tenant that is proved.
    pub(super) fn remember_whole(
        &self,
        tenant: &Tenant,
        (conversation, chain): (&Conversation<'_>, &[Digest]),
        known: &Known,
    ) {
        for upto in evict::went_whole(conversation, known).filter_map(|item| chain.get(..=item)) {
            self.store.remember_forwarded(tenant, upto, Lasting::Yes);
        }
        let lasting = conversation.items.iter().skip(known.seen).any(evict::is_evictable);
        self.store.remember_forwarded(tenant, chain, if lasting { Lasting::Yes } else { Lasting::No });
    }

    /// The checkpoint in force never applies again: the provider refused it and took the original. Evictions alone
    /// are given up for the session when that has happened twice.
    pub(super) fn quarantine(&self, work: &Work) {
        let origin = &work.origin;
        let Some(active) = work.known.active.as_deref() else {
            return self.sessions.refused(origin.tenant, origin.root);
        };
        let last = active.covers.checked_sub(1);
        let digest = origin.read().ok().and_then(|conversation| Some(conversation.items.get(last?)?.chain));
        if let Some(digest) = digest {
            self.store.quarantine(&origin.tenant, &digest);
        }
    }
}
