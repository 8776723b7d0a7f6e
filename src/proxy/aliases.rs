//! Answers that their clients continue by id (Responses): a client knows an answer of several rounds by an id under which
//! its provider has another, or has calls of the proxy's that still wait for their results. Where to continue it is kept
//! under a digest of the client's id, for as long as what else is kept of the conversation.
//!
//! Such an id is followed whatever else may be done with a request: where strategies only observe, where its client
//! bypasses them, and for a token that no answer has proved yet. The client's own words would be refused there for a call
//! that it never saw. Where its body is to be taken for the client's own, that is the one that continues the answer.

use super::compaction::Compactor;
use super::origin::Incoming;
use super::overlay::{Overlaid, row};
use super::tenant::{Identity, Proof};
use crate::store::{FoundOverlays, Overlay, OverlayKind};
use crate::wire::rounds::Alias;
use crate::wire::{Conversation, Digest, chain};

/// Such a row says nothing of the size of bodies: a request that continues another is read whatever its size.
const ANY_SIZE: usize = usize::MAX;

impl Compactor {
    /// A request that continues another: there where the provider has the answer. `None`: it continues none.
    ///
    /// A token's claim is enough: what is read goes to the upstream alone, which looks into the token first, and only for
    /// who knows the answer's id.
    pub(super) async fn continued(
        &self,
        incoming: &Incoming<'_>,
        identity: &Identity,
        conversation: &Conversation<'_>,
    ) -> Option<Overlaid> {
        let id = chain::previous(conversation)?;
        let asker = match identity.proof {
            Proof::Known => *identity,
            Proof::Claimed => self.admitted(incoming)?,
        };
        let FoundOverlays { rows, incomplete } = self.store.overlays(&asker.tenant, &[digest(&id)]).await;
        let alias = rows.iter().find(|row| row.kind == OverlayKind::Alias);
        let alias = alias.and_then(|row| serde_json::from_str::<Alias>(&row.body).ok());
        let edits = alias.and_then(|alias| conversation.continued(&alias)).unwrap_or_default();
        let body = self.laid_over(incoming, edits);
        let original = body.as_ref().map(|(body, _)| body.clone());
        Some(Overlaid { body, original, incomplete, ..Overlaid::default() })
    }
}

/// The row that says where the provider has the answer which its client knows as `shown`.
pub(super) fn alias_row((shown, alias): &(String, Alias)) -> Option<Overlay> {
    row(OverlayKind::Alias, digest(shown), alias, ANY_SIZE)
}

fn digest(id: &str) -> Digest {
    blake3::derive_key("compactproxy alias of a response", id.as_bytes())
}
