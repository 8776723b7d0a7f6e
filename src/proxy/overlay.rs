//! What the proxy adds to a client's history before anything else looks at it: tools that it offers in this
//! conversation, and what the client never saw of earlier answers, put back where it was.
//!
//! Both are kept under the chain digests of the client's own history, so that each later request gets the same bytes
//! again, also after a restart.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;

use super::aliases::Continued;
use super::asides::{Places, behind};
use super::budget::Permit;
use super::compaction::Compactor;
use super::identity::Names;
use super::offered::{Offered, OfferedTool};
use super::origin::{Incoming, Tools, model};
use super::rounds::enabled;
use super::tenant::{Identity, Proof};
use super::work::Work;
use crate::compact::binding::{is_signed, leaves_none};
use crate::compact::client_compaction;
use crate::compact::plan::Proposal;
use crate::config::{Inject, Strategies, Subject};
use crate::store::{Batch, FoundOverlays, Health, Overlay, OverlayKind, Tenant};
use crate::tools::definitions::Tool;
use crate::wire::rounds::NAMESPACE;
use crate::wire::splice::{Edit, splice, total_len};
use crate::wire::{Conversation, Digest, Errand, hosted};

/// A body whose history has an overlay has at least this part of the bytes that it had then: clients may write the same
/// history a little shorter.
pub(super) const SHRINKS: usize = 2;

/// What is in force of a request's conversation before it is planned.
#[derive(Debug, Default)]
pub struct Overlaid {
    /// The body with what is added; `None`: the client's own.
    pub body: Option<(Bytes, Arc<Permit>)>,
    /// What stands for the client's own body: the one that continues an answer where the provider has it.
    pub original: Option<Bytes>,
    /// Tools that are offered in it.
    pub offered: Option<Arc<Offered>>,
    /// None may be called: calls of theirs are in the history, which needs them.
    pub uncalled: bool,
    /// Calls of the proxy's tools were put back into it.
    pub puts_back: bool,
    /// Tools that are offered from the first removal on, if this request makes it.
    pub candidate: Option<Arc<Offered>>,
    /// Signed thinking of the history is bound to the tools before it: the candidate has to wait for a cut that leaves none.
    pub bound: bool,
    /// Under which digest what the client will not see of the answer is kept.
    pub tip: Digest,
    /// The response that the client continues by id.
    pub previous: Option<String>,
    /// Stands for the conversation where its provider refuses what is added.
    pub tree: Digest,
    /// The client has no tools of its own.
    pub alone: bool,
    /// Tools of the client's that are named as if they were in [`NAMESPACE`].
    pub spaced: Vec<String>,
    /// The client's own body, decoded, with its share of the buffer cap.
    pub client: Bytes,
    pub permit: Vec<Arc<Permit>>,
    pub least: usize,
    /// The store could not say all of what was added before: nothing new may begin.
    pub incomplete: bool,
}

impl Compactor {
    /// What is added to a request. `None`: nothing, and no tools may come.
    pub(super) async fn overlay(
        &self,
        incoming: &Incoming<'_>,
        identity: &Identity,
        conversation: &Conversation<'_>,
    ) -> Option<Overlaid> {
        let config = &incoming.shard.proxy.config;
        if !config.offers_tools() && !self.store.may_overlay() {
            return None;
        }
        let continued = self.continued(incoming, identity, conversation).await;
        let tree = continued.as_ref().map(|continued| continued.tree);
        let Some((strategies, tree)) = self.addable(incoming, identity, (conversation, tree)) else {
            let mut overlaid = Overlaid::default();
            self.lay_continued(incoming, continued?, (&mut overlaid, Vec::new()));
            return Some(overlaid);
        };
        let path = incoming.parts.uri.path();
        let mut places = Places::of(&self.store, Names::of_headers(&incoming.parts.headers), identity, conversation);
        let FoundOverlays { rows, incomplete } = self.added(&identity.tenant, &mut places, conversation).await;
        let (client, least) = (incoming.body.clone(), incoming.body.len() / SHRINKS);
        let (tip, permit, alone) = (places.next()?, incoming.permit.clone(), !conversation.has_tools());
        let mut overlaid = Overlaid { tip, tree, alone, client, permit, least, incomplete, ..Overlaid::default() };
        overlaid.incomplete |= continued.as_ref().is_some_and(|continued| continued.incomplete);
        let (mut edits, used) = places.put_back(conversation, &rows);
        used.into_iter().for_each(|row| self.store.used_overlay(&identity.tenant, row));
        let errand = conversation.errand(path);
        let turn = errand != Errand::Compact && incoming.tools != Tools::Without;
        // Out of such an answer nothing could be taken.
        let turn = turn && !hosted::is_framed(path) && !self.takes_no_tools(incoming, identity, conversation);
        if let Some(mut offers) = Self::offers(conversation, &strategies).filter(|_| turn) {
            offers.frozen = frozen(&rows);
            overlaid.spaced.extend(offers.declared.iter().filter(|name| name.starts_with(NAMESPACE)).cloned());
            if let Some(continued) = &continued {
                offers.behind(continued, &overlaid);
            }
            self.choose(&mut overlaid, identity.tenant, offers, (conversation, errand)).await;
        }
        // A history with calls in it needs tools (P11).
        if alone && overlaid.offered.is_none() {
            edits.clear();
        }
        overlaid.puts_back = !edits.is_empty();
        edits.extend(overlaid.offered.as_ref().and_then(|offered| offered.edit(conversation)));
        if incoming.tools == Tools::Uncalled && overlaid.offered.is_some() {
            overlaid.uncalled = true;
            edits.extend(conversation.calls_none());
        }
        match continued {
            None => overlaid.body = self.laid_over(incoming, edits),
            Some(continued) => self.lay_continued(incoming, continued, (&mut overlaid, edits)),
        }
        if overlaid.body.is_none() || overlaid.body.as_ref().map(|(body, _)| body) == overlaid.original.as_ref() {
            overlaid.offered = None;
        }
        Some(overlaid)
    }

    /// What is in force for a request to which something may be added, and what stands for its conversation (`tree`, where
    /// it continues another). `None`: nothing may.
    fn addable(
        &self,
        incoming: &Incoming<'_>,
        identity: &Identity,
        (conversation, tree): (&Conversation<'_>, Option<Digest>),
    ) -> Option<(Arc<Strategies>, Digest)> {
        if identity.proof != Proof::Known {
            return None;
        }
        let config = &incoming.shard.proxy.config;
        let upstream = config.upstreams.get(incoming.index).map_or("", |upstream| &upstream.name);
        let (path, headers) = (incoming.parts.uri.path(), &incoming.parts.headers);
        let subject = Subject { model: model(&conversation.fields, path), upstream, path, headers };
        let strategies = config.strategies(&subject);
        let tree = tree.or(conversation.items.first().map(|item| item.chain))?;
        let refused = self.refused_tools.has((identity.tenant, tree));
        (!strategies.observe && !refused && !conversation.items.is_empty()).then_some((strategies, tree))
    }

    /// How tools may come into this request. `None`: not at all.
    fn offers(conversation: &Conversation<'_>, strategies: &Strategies) -> Option<Offers> {
        let settings = strategies.tools.as_ref()?;
        let root = conversation.items.first()?.chain;
        if client_compaction::asks_for_it(conversation) {
            return None;
        }
        let enabled = enabled(strategies);
        let declared = conversation.declared();
        let offered = match settings.inject {
            Inject::Never => None,
            Inject::Auto => Offered::of(std::iter::once(Tool::ReadEvicted), &declared),
            Inject::Always => Offered::of(enabled.tools(), &declared),
        };
        let (offered, rounds) = (offered.map(Arc::new), settings.max_rounds);
        Some(Offers { inject: settings.inject, offered, frozen: None, declared, root, rounds, continues: false })
    }

    /// The tools that are offered: those that were, or from now on. A request that only counts, or fills the cache, has
    /// those that a turn would have, and begins nothing.
    async fn choose(
        &self,
        overlaid: &mut Overlaid,
        tenant: Tenant,
        offers: Offers,
        (conversation, errand): (&Conversation<'_>, Errand),
    ) {
        let own = |tool: &OfferedTool| offers.declared.contains(&tool.offer.name);
        let may = |offered: &Offered| conversation.may_offer(offered.tools.len()) && !offered.tools.iter().any(own);
        if let Some(frozen) = offers.frozen {
            // A choice that is made for one turn is no reason to break with the provider's cache.
            let stays = conversation.may_keep(frozen.tools.len()) && !frozen.tools.iter().any(own);
            let turns = conversation.demands_a_call().then_some(offers.rounds);
            overlaid.offered = Some(frozen).filter(|_| stays && turns != Some(1)).map(Arc::new);
            return;
        }
        let Some(offered) = offers.offered.filter(|offered| may(offered) && !overlaid.incomplete) else { return };
        if self.store.health() != Health::Up {
            return;
        }
        overlaid.bound = is_signed(conversation);
        if overlaid.bound || offers.inject == Inject::Auto {
            overlaid.candidate = Some(offered);
            return;
        }
        // What continues another is known by the id of its answer.
        if errand != Errand::Generate || offers.continues {
            overlaid.offered = Some(offered);
            return;
        }
        let row = row(OverlayKind::Offer, offers.root, &*offered, overlaid.least);
        let batch = Batch { root: offers.root, overlays: row.into_iter().collect(), ..Batch::default() };
        if self.store.commit(&tenant, batch).await.is_ok() {
            let stored = self.store.overlays(&tenant, &[offers.root]).await;
            overlaid.offered = frozen(&stored.rows).filter(may).map(Arc::new);
        }
    }

    /// The body with `edits`. `None`: there are none, or there is no room for another body.
    pub(super) fn laid_over(&self, incoming: &Incoming<'_>, edits: Vec<Edit>) -> Option<(Bytes, Arc<Permit>)> {
        if edits.is_empty() {
            return None;
        }
        let mut edits = edits;
        edits.sort_by_key(|edit| edit.span.start);
        let pieces = splice(&incoming.body, edits).ok()?;
        let mut permit = Permit::empty(&incoming.shard.proxy.budget);
        permit.grow(total_len(&pieces)).then(|| (pieces.concat().into(), Arc::new(permit)))
    }

    /// The row with which tools begin to be offered, where this request is the first that removes something, or breaks
    /// with the provider's cache anyway.
    pub(super) fn begin_offers(
        &self,
        work: &Work,
        proposal: &Proposal,
        conversation: &Conversation<'_>,
    ) -> Option<Overlay> {
        let overlaid = work.overlaid.as_ref()?;
        let candidate = overlaid.candidate.as_ref()?;
        let first = work.known.evictions.is_empty() && work.known.active.is_none();
        let due = match &proposal.checkpoint {
            Some((_, checkpoint)) => !overlaid.bound || leaves_none(conversation, checkpoint),
            None => first && !overlaid.bound,
        };
        if !due {
            return None;
        }
        let mut chain = conversation.chain();
        let evicted = proposal.evictions.iter().map(|(digest, _)| digest);
        let removed = evicted.chain(proposal.checkpoint.iter().map(|(digest, _)| digest));
        let removed: HashSet<&Digest> = removed.collect();
        let first = chain.find(|digest| removed.contains(digest))?;
        let place = overlaid.previous.as_ref().map_or(*first, |id| behind(id, first));
        row(OverlayKind::Offer, place, &**candidate, overlaid.least)
    }

    /// For a request that only counts: the tools that a turn would begin to offer with these first removals.
    pub(super) fn preview_offers(work: &mut Work) {
        let first = work.known.evictions.is_empty() && work.known.active.is_none();
        let candidate = work.overlaid.as_ref().and_then(|overlaid| overlaid.candidate.clone());
        work.begun = candidate.filter(|_| first);
    }

    /// Takes the tools into use whose row was written.
    pub(super) async fn begun(&self, work: &mut Work, row: &Overlay) {
        let stored = self.store.overlays(&work.origin.tenant, &[row.digest]).await;
        work.begun = frozen(&stored.rows).map(Arc::new);
    }

    /// The provider refused the body with what is added, and took it without. False: nothing was added to it.
    pub(super) fn give_up_overlay(&self, work: &Work) -> bool {
        let remembered = work.known.remembered.as_ref().is_some_and(|remembered| !remembered.text.is_empty());
        let laid = work.origin.overlaid && work.original.as_ref() != Some(&work.origin.body);
        let added = laid || work.begun.is_some() || remembered;
        // A choice that it does not take says nothing of the tools.
        if added && !work.overlaid.as_ref().is_some_and(|overlaid| overlaid.uncalled) {
            self.refuse_tools(work);
        }
        added
    }

    /// No more tools come into a request's conversation.
    pub(super) fn refuse_tools(&self, work: &Work) {
        let tree = work.overlaid.as_ref().map_or(work.origin.root, |overlaid| overlaid.tree);
        self.refused_tools.note((work.origin.tenant, tree));
    }

    /// Keeps what a client did not see of an answer, before it sees the end of it.
    pub(super) async fn keep_hidden(&self, (tenant, root): (Tenant, Digest), rows: Vec<Overlay>) {
        if rows.is_empty() {
            return;
        }
        let batch = Batch { root, overlays: rows, ..Batch::default() };
        if let Err(error) = self.store.commit(&tenant, batch.clone()).await {
            tracing::warn!(%error, "what the client did not see of an answer is written later");
            self.store.keep(&tenant, batch).await;
        }
    }
}

/// How tools may come into a request.
struct Offers {
    inject: Inject,
    /// `None`: no new ones, but those that were offered before stay (L4).
    offered: Option<Arc<Offered>>,
    /// Those that are offered in the conversation already.
    frozen: Option<Offered>,
    declared: Vec<String>,
    root: Digest,
    /// Model calls of one answer at most.
    rounds: usize,
    /// The request continues another by its id.
    continues: bool,
}

impl Offers {
    /// For a request that continues another. In a conversation whose beginning nobody has seen tools come with a removal
    /// alone: should its provider refuse them, that could not be remembered for all of it.
    ///
    /// A client without tools of its own has those that were offered where its beginning was seen: the history that its
    /// provider holds may set others (`additional_tools`).
    fn behind(&mut self, continued: &Continued, overlaid: &Overlaid) {
        self.continues = true;
        self.offered = self.offered.take().filter(|_| !overlaid.alone);
        self.frozen = continued.offered.clone().or(self.frozen.take());
        if !continued.whole {
            self.inject = Inject::Auto;
        }
    }
}

pub(super) fn row(kind: OverlayKind, digest: Digest, body: &impl Serialize, least: usize) -> Option<Overlay> {
    Some(Overlay { digest, kind, body: serde_json::to_string(body).ok()?.into(), least })
}

/// The tools that are offered in a conversation already; the earliest.
pub(super) fn frozen(rows: &[Overlay]) -> Option<Offered> {
    let row = rows.iter().find(|row| row.kind == OverlayKind::Offer)?;
    serde_json::from_str(&row.body).ok()
}
