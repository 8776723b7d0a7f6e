//! Answers that their clients continue by id (Responses): a client knows an answer of several rounds by an id under which
//! its provider has another, or has calls of the proxy's that still wait for their results. Where to continue it is kept
//! under a digest of the client's id, for as long as what else is kept of the conversation.
//!
//! Such an id is followed whatever else may be done with a request: where strategies only observe, where its client
//! bypasses them, and for a token that no answer has proved yet. The client's own words would be refused there for a call
//! that it never saw. Where its body is to be taken for the client's own, that is the one that continues the answer.
//!
//! The tools that were offered when an answer was made are kept under the provider's id of it: who continues it has them
//! again, as if the history stood in its request. A turn in between without them is passed over, as far as the chain of
//! ids is remembered.

use std::sync::Arc;

use super::compaction::Compactor;
use super::offered::Offered;
use super::origin::Incoming;
use super::overlay::{Overlaid, frozen, row};
use super::tenant::{Identity, Proof};
use crate::store::{FoundOverlays, Overlay, OverlayKind};
use crate::wire::rounds::Alias;
use crate::wire::splice::Edit;
use crate::wire::{Conversation, Digest, chain};

/// Such a row says nothing of the size of bodies: a request that continues another is read whatever its size.
const ANY_SIZE: usize = usize::MAX;
/// Answers in a row under whose ids tools are looked for.
const NEAR: usize = 64;

/// What is known of an answer on the connection that it came on: not all that can be continued there is kept elsewhere.
#[derive(Debug, Clone)]
pub struct Reached {
    pub alias: Option<Alias>,
    pub offered: Arc<Offered>,
}

/// Where a request that continues another by its id goes on.
pub(super) struct Continued {
    /// The id, as the client knows it.
    pub(super) previous: String,
    /// What makes the request continue the answer where the provider has it.
    edits: Vec<Edit>,
    /// Tools that were offered in this conversation.
    pub(super) offered: Option<Offered>,
    /// All of the chain was seen.
    pub(super) whole: bool,
    /// Stands for the conversation: the first response of it that was seen.
    pub(super) tree: Digest,
    pub(super) incomplete: bool,
}

impl Compactor {
    /// A request that continues another: where the provider has the answer. `None`: it continues none.
    ///
    /// A token's claim is enough: what is read goes to the upstream alone, which looks into the token first, and only for
    /// who knows the answer's id.
    pub(super) async fn continued(
        &self,
        incoming: &Incoming<'_>,
        identity: &Identity,
        conversation: &Conversation<'_>,
    ) -> Option<Continued> {
        let previous = chain::previous(conversation)?;
        let asker = match identity.proof {
            Proof::Known => *identity,
            Proof::Claimed => self.admitted(incoming)?,
        };
        let (ids, whole) = self.chains.ids(asker.tenant, &previous);
        let digests: Vec<Digest> = ids.iter().take(NEAR).map(|id| digest(id)).collect();
        let FoundOverlays { rows, incomplete } = self.store.overlays(&asker.tenant, &digests).await;
        let alias = rows.iter().find(|row| row.kind == OverlayKind::Alias && row.digest == digest(&previous));
        let alias = alias.and_then(|row| serde_json::from_str::<Alias>(&row.body).ok());
        let here = incoming.reached.filter(|_| identity.proof == Proof::Known);
        let alias = incoming.reached.and_then(|reached| reached.alias.clone()).or(alias);
        let edits = alias.and_then(|alias| conversation.continued(&alias)).unwrap_or_default();
        let offered = here.map(|reached| Offered::clone(&reached.offered)).or_else(|| frozen(&rows));
        let tree = ids.last().map(|id| digest(id)).unwrap_or_default();
        Some(Continued { previous, edits, offered, whole, tree, incomplete })
    }

    /// Lays over a request what makes it continue an answer, and `more`. Where there is no room for that, the former
    /// alone.
    pub(super) fn lay_continued(
        &self,
        incoming: &Incoming<'_>,
        continued: Continued,
        (overlaid, more): (&mut Overlaid, Vec<Edit>),
    ) {
        let Continued { previous, edits, tree, incomplete, .. } = continued;
        (overlaid.previous, overlaid.tree) = (Some(previous), tree);
        overlaid.incomplete |= incomplete;
        let all = if more.is_empty() { Vec::new() } else { [&*edits, &*more].concat() };
        let own = self.laid_over(incoming, edits);
        overlaid.original = own.as_ref().map(|(body, _)| body.clone());
        overlaid.body = match self.laid_over(incoming, all) {
            Some(laid) => {
                overlaid.permit.extend(own.map(|(_, permit)| permit));
                Some(laid)
            }
            None => own,
        };
    }
}

/// The row that says where the provider has the answer which its client knows as `shown`.
pub(super) fn alias_row((shown, alias): &(String, Alias)) -> Option<Overlay> {
    row(OverlayKind::Alias, digest(shown), alias, ANY_SIZE)
}

/// The row that says which tools were offered when the response `id` was made.
pub(super) fn offer_row(id: &str, offered: &Offered) -> Option<Overlay> {
    row(OverlayKind::Offer, digest(id), offered, ANY_SIZE)
}

fn digest(id: &str) -> Digest {
    blake3::derive_key("compactproxy alias of a response", id.as_bytes())
}
