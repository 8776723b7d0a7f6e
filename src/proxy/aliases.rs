//! Answers that their clients continue by id (Responses): a client knows an answer of several rounds by an id under which
//! its provider has another, or has calls of the proxy's that still wait for their results. Where to continue it is kept
//! under a digest of the client's id, for as long as what else is kept of the conversation.

use super::compaction::Compactor;
use super::origin::Incoming;
use super::overlay::{Overlaid, row};
use crate::store::{FoundOverlays, Overlay, OverlayKind, Tenant};
use crate::wire::rounds::Alias;
use crate::wire::{Conversation, Digest};

/// Such a row says nothing of the size of bodies: a request that continues another is read whatever its size.
const ANY_SIZE: usize = usize::MAX;

impl Compactor {
    /// A request that continues the answer `id`: there where the provider has it.
    pub(super) async fn continued(
        &self,
        incoming: &Incoming<'_>,
        tenant: &Tenant,
        (conversation, id): (&Conversation<'_>, &str),
    ) -> Overlaid {
        let FoundOverlays { rows, incomplete } = self.store.overlays(tenant, &[digest(id)]).await;
        let alias = rows.iter().find(|row| row.kind == OverlayKind::Alias);
        let alias = alias.and_then(|row| serde_json::from_str::<Alias>(&row.body).ok());
        let edits = alias.and_then(|alias| conversation.continued(&alias)).unwrap_or_default();
        Overlaid { body: self.laid_over(incoming, edits), incomplete, ..Overlaid::default() }
    }
}

/// The row that says where the provider has the answer which its client knows as `shown`.
pub(super) fn alias_row((shown, alias): &(String, Alias)) -> Option<Overlay> {
    row(OverlayKind::Alias, digest(shown), alias, ANY_SIZE)
}

fn digest(id: &str) -> Digest {
    blake3::derive_key("compactproxy alias of a response", id.as_bytes())
}
