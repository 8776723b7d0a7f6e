//! What clients never saw of answers: under which digests it is kept, and which of it belongs to the answers that a
//! client sends back.
//!
//! Two rules part those who share a tenant (L7). What was hidden in a session that its client names (it may hold texts
//! of other conversations of that session) is kept under a digest of its own session, so that no other finds it.
//! Elsewhere the tools read no further than the request's own history: there the same history has the same secrets, and
//! the answer itself, its calls and its text, says which of several applies. Where a request continues another by its id
//! the history is only the same behind the same id.

use std::collections::HashSet;

use super::identity::Names;
use super::tenant::Identity;
use crate::store::log::SessionId;
use crate::store::{Overlay, OverlayKind, Store};
use crate::wire::rounds::Aside;
use crate::wire::splice::Edit;
use crate::wire::{Conversation, Digest, chain};

/// Where the asides of a request's history are kept.
pub struct Places {
    chain: Vec<Digest>,
    /// The same for its session alone; empty where the client names none.
    own: Vec<Digest>,
}

impl Places {
    pub fn of(store: &Store, names: Names, identity: &Identity, conversation: &Conversation<'_>) -> Self {
        let chain: Vec<Digest> = conversation.chain().copied().collect();
        let root = chain.first().copied().unwrap_or_default();
        let session = names.with_body(conversation).session(store, &identity.tenant, &root);
        let chain: Vec<Digest> = match chain::previous(conversation) {
            Some(id) => chain.iter().map(|digest| behind(&id, digest)).collect(),
            None => chain,
        };
        let own = match session.named {
            true => chain.iter().map(|digest| of_session(&session.id, digest)).collect(),
            false => Vec::new(),
        };
        Self { chain, own }
    }

    /// All digests under which there may be something of this history.
    pub fn all(&self) -> Vec<Digest> {
        [&*self.own, &*self.chain].concat()
    }

    /// Where what is hidden of the answer to this request will be kept.
    pub fn next(&self) -> Option<Digest> {
        self.own.last().or(self.chain.last()).copied()
    }

    /// The item behind which the answer stood.
    fn tip(&self, row: &Overlay) -> Option<usize> {
        let at = |digests: &[Digest]| digests.iter().position(|digest| *digest == row.digest);
        at(&self.own).or_else(|| at(&self.chain))
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

fn of_session(session: &SessionId, digest: &Digest) -> Digest {
    let mut hasher = blake3::Hasher::new_derive_key("compactproxy aside of a session");
    hasher.update(&session.0).update(digest);
    *hasher.finalize().as_bytes()
}
