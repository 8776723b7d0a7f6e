//! A second look at a request that went out without its rows: an hour-old token was replaced by one that no answer has
//! proved yet, or the store did not answer in time. Where signed thinking is bound to what was replaced, the client's own
//! body is then refused (A27), and no answer would ever prove the token.

use super::compaction::Compactor;
use super::origin::Incoming;
use super::overlay::Overlaid;
use super::tenant::{self, Asker, Identity, Verified};
use super::work::Work;
use crate::compact::Evictions;
use crate::store::Until;
use crate::wire::{Conversation, Digest};

impl Compactor {
    /// The request with the rows that there are of it, and nothing planned. What an upstream has looked into it has also
    /// admitted, so a token's claim is enough to read what was replaced; only a success makes it more than a claim.
    /// `None`: nothing is to be replaced.
    pub(super) async fn with_rows(&self, mut incoming: Incoming<'_>) -> Option<Work> {
        let body = self.decode(&mut incoming).await?;
        let identity = self.admitted(&incoming)?;
        let conversation = self.read(incoming.dialect, &body, identity.tenant).await?;
        // Who was late before may be again, and then the client would see a refusal of what it did not write.
        let chain: Vec<Digest> = conversation.chain().copied().collect();
        let until = self.store.patience();
        if self.store.overlays_patiently(until, &identity.tenant, &chain).await.incomplete {
            return None;
        }
        let mut overlaid = self.overlay(&incoming, &identity, &conversation).await;
        let Some((body, permit)) = overlaid.as_mut().and_then(|overlaid| overlaid.body.take()) else {
            return self.replaced(&incoming, (identity, until), overlaid, &conversation).await;
        };
        incoming.permit.push(permit);
        (incoming.body, incoming.overlaid) = (body.clone(), true);
        let conversation = self.read(incoming.dialect, &body, identity.tenant).await?;
        self.replaced(&incoming, (identity, until), overlaid, &conversation).await
    }

    /// Who sent a request, if its token is what it claims to be.
    pub(super) fn admitted(&self, incoming: &Incoming<'_>) -> Option<Identity> {
        let upstream = incoming.shard.proxy.config.upstreams.get(incoming.index)?;
        let asker = Asker { upstream: &upstream.name, headers: &incoming.parts.headers, uri: &incoming.parts.uri };
        let admitted = Verified::default();
        if let Some(mark) = self.identify(incoming)?.mark {
            admitted.accept(mark);
        }
        Some(tenant::identify(&self.store, &self.tenant_rule, &admitted, &asker))
    }

    /// Places the rows that are known, or will be soon.
    async fn replaced(
        &self,
        incoming: &Incoming<'_>,
        (identity, until): (Identity, Until),
        overlaid: Option<Overlaid>,
        conversation: &Conversation<'_>,
    ) -> Option<Work> {
        let chain: Vec<Digest> = conversation.chain().copied().collect();
        if self.store.known_patiently(until, &identity.tenant, &chain).await.incomplete {
            return None;
        }
        let (mut work, _) = self.begin(incoming, identity, conversation).await?;
        if work.origin.strategies.observe {
            return None;
        }
        work.lay(overlaid);
        work.remember(self.remembered_before(&work.origin, conversation).await);
        // What is there of the rows may not be what the model saw.
        if work.known.incomplete {
            return None;
        }
        work.read_by(conversation);
        if !self.sessions.get(work.origin.tenant, work.origin.root).is_rewritten() {
            work.known.evictions = Evictions::default();
        }
        self.place(&mut work, conversation);
        work.bound();
        work.pieces.is_some().then_some(work)
    }
}
