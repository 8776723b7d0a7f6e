//! What clients never saw of answers: under which digests it is kept, and which of it belongs to the answers that a
//! client sends back.
//!
//! Three rules part those who share a tenant (L7). What was hidden is kept under a digest of its agent, whose memory and
//! sessions it may hold, and in a session that its client names of that session, whose other conversations it may hold.
//! Beyond that the tools read no further than the request's own history: there the same history has the same secrets, and
//! the answer itself, its calls and its text, says which of several applies. Where a request continues another by its id
//! the history is only the same behind the same id.
//!
//! Who goes on by ids may later send the whole history (after a reconnect), in which no id says where an answer stood.
//! What was hidden is therefore kept under a digest of [the history as its client knows it](Conversation::retold) as
//! well, where the proxy has seen all of it. That takes a reading, so a mark under the first message says where it is
//! worth one.

use std::collections::HashSet;

use super::compaction::Compactor;
use super::identity::{Names, Session};
use super::offered::Offered;
use super::overlay::{SHRINKS, row};
use super::tenant::Identity;
use crate::store::{FoundOverlays, Overlay, OverlayKind, Store, Tenant};
use crate::tools::definitions::Tool;
use crate::wire::conversation::Role;
use crate::wire::rounds::Aside;
use crate::wire::splice::Edit;
use crate::wire::{Conversation, Digest, chain};

/// Where the asides of a request's history are kept.
pub struct Places {
    chain: Vec<Digest>,
    /// The same for its agent and named session alone.
    own: Vec<Digest>,
    session: Session,
    /// Under what it is marked that some of this history went by ids; `None`: it does so still.
    mark: Option<Digest>,
    /// The history as its client knows it, once read: items, and up to which digest.
    retold: Vec<(usize, Digest)>,
}

/// Where what was hidden is to be found again once all of the history is sent.
#[derive(Debug, Clone, Copy)]
pub struct Retold {
    mark: Digest,
    place: Digest,
    least: usize,
}

impl Retold {
    /// In a history that goes on by ids, which reads as `whole`: behind its last item.
    pub fn of(session: &Session, whole: &Conversation<'_>) -> Option<Self> {
        let root = whole.items.first()?.chain;
        let (_, last) = *whole.retold(Tool::is_called).last()?;
        // What the client says itself it sends again as it was.
        let own = whole.items.iter().filter(|item| item.facts.role == Role::User);
        let least = own.map(|item| item.span.len()).sum::<usize>() / SHRINKS;
        Some(Self { mark: mark(&root), place: of_retold(session, &last), least })
    }

    /// The rows of an answer there.
    pub fn rows(self, aside: &Aside, offered: &Offered) -> impl Iterator<Item = Overlay> {
        let Self { mark, place, least } = self;
        let offer = |digest: Digest| row(OverlayKind::Offer, digest, offered, least);
        [row(OverlayKind::Aside, place, aside, least), offer(place), offer(mark)].into_iter().flatten()
    }
}

impl Compactor {
    /// What was added to a request's history before, as far as the store can say it.
    pub(super) async fn added(
        &self,
        tenant: &Tenant,
        places: &mut Places,
        conversation: &Conversation<'_>,
    ) -> FoundOverlays {
        let mut found = self.store.overlays(tenant, &places.all()).await;
        let is_mark = |row: &Overlay| Some(row.digest) == places.mark;
        if found.rows.iter().any(is_mark) {
            found.rows.retain(|row| !is_mark(row));
            places.retell(conversation);
            let digests: Vec<Digest> = places.retold.iter().map(|(_, digest)| *digest).collect();
            let more = self.store.overlays(tenant, &digests).await;
            found.rows.extend(more.rows);
            found.incomplete |= more.incomplete;
        }
        found
    }
}

impl Places {
    pub fn of(store: &Store, names: Names, identity: &Identity, conversation: &Conversation<'_>) -> Self {
        let chain: Vec<Digest> = conversation.chain().copied().collect();
        let root = chain.first().copied().unwrap_or_default();
        let session = names.with_body(conversation).session(store, &identity.tenant, &root);
        let previous = chain::previous(conversation);
        let mark = previous.is_none().then(|| mark(&root));
        let chain: Vec<Digest> = match previous {
            Some(id) => chain.iter().map(|digest| behind(&id, digest)).collect(),
            None => chain,
        };
        let own = chain.iter().map(|digest| of_owner(&session, digest)).collect();
        Self { chain, own, session, mark, retold: Vec::new() }
    }

    /// All digests under which there may be something of this history, without those of one that was retold.
    fn all(&self) -> Vec<Digest> {
        [&*self.own, &*self.chain, self.mark.as_slice()].concat()
    }

    fn retell(&mut self, conversation: &Conversation<'_>) {
        let retold = conversation.retold(Tool::is_called).into_iter();
        self.retold = retold.map(|(at, digest)| (at, of_retold(&self.session, &digest))).collect();
    }

    /// Where what is hidden of the answer to this request will be kept.
    pub fn next(&self) -> Option<Digest> {
        self.own.last().copied()
    }

    /// The item behind which the answer stood.
    fn tip(&self, row: &Overlay) -> Option<usize> {
        let at = |digests: &[Digest]| digests.iter().position(|digest| *digest == row.digest);
        let retold = || self.retold.iter().find(|(_, digest)| *digest == row.digest).map(|(at, _)| *at);
        at(&self.own).or_else(retold)
    }

    /// The edits that put back what the client never saw of the answers in this history, and the rows that they are of.
    pub fn put_back<'r>(&self, conversation: &Conversation<'_>, rows: &'r [Overlay]) -> (Vec<Edit>, Vec<&'r Overlay>) {
        let (mut edits, mut used, mut done) = (Vec::new(), Vec::new(), HashSet::new());
        for row in rows.iter().filter(|row| row.kind == OverlayKind::Aside) {
            let Some(tip) = self.tip(row).filter(|tip| !done.contains(tip)) else { continue };
            let Ok(aside) = serde_json::from_str::<Aside>(&row.body) else { continue };
            if let Some(more) = conversation.put_back(tip, &aside) {
                edits.extend(more);
                used.push(row);
                done.insert(tip);
            }
        }
        (edits, used)
    }
}

/// The digest of what is said behind the response `previous`.
pub(super) fn behind(previous: &str, digest: &Digest) -> Digest {
    let mut hasher = blake3::Hasher::new_derive_key("compactproxy history behind a response");
    hasher.update(digest).update(previous.as_bytes());
    *hasher.finalize().as_bytes()
}

fn of_owner(session: &Session, digest: &Digest) -> Digest {
    let mut hasher = blake3::Hasher::new_derive_key("compactproxy aside of an agent");
    let named = session.named.then_some(session.id.0);
    hasher.update(digest).update(&[u8::from(session.named)]).update(named.as_ref().map_or(&[], |id| id));
    *hasher.update(session.agent.as_bytes()).finalize().as_bytes()
}

fn of_retold(session: &Session, digest: &Digest) -> Digest {
    let digest = blake3::derive_key("compactproxy aside of a history that is retold", digest);
    of_owner(session, &digest)
}

fn mark(root: &Digest) -> Digest {
    blake3::derive_key("compactproxy history some of which went by ids", root)
}
