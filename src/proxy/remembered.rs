//! What long-term memory says at the beginning of a session: `MEMORY.md` as it was then, before the first that the
//! user says (`[memory] inject`).
//!
//! It is frozen with the first request, under the digest of the client's own opening and the agent's name: each later
//! request of that history has the same bytes, also after a restart, after the file has changed, or with `inject` off
//! again. It is no item of the conversation: it is placed with the rows in force, whatever stands for the first items by
//! then, so that no strategy can swallow it and nothing of it is taken for the user's own words, logged, or noted again.

use std::sync::Arc;

use super::agent::agent;
use super::chains::Beginning;
use super::compaction::Compactor;
use super::origin::{Incoming, Origin};
use super::overlay::{SHRINKS, row};
use super::tenant::Proof;
use crate::compact::{Remembered, client_compaction};
use crate::config::MemorySettings;
use crate::memory::MemoryPath;
use crate::memory::recollection::recollection;
use crate::store::{Batch, FoundOverlays, Health, Overlay, OverlayKind};
use crate::wire::{Conversation, Digest, Errand};

/// Most messages of an opening that are looked at, the last ones: users who write so many before the first answer are
/// none.
const MOST_OPENING: usize = 64;

/// What the store could say of it.
#[derive(Debug, Default)]
pub(super) struct Recalled {
    pub(super) remembered: Option<Arc<Remembered>>,
    /// There may be other than this, which could not be read in time.
    pub(super) incomplete: bool,
}

impl Recalled {
    fn of(remembered: Option<Arc<Remembered>>) -> Self {
        Self { remembered, incomplete: false }
    }

    fn frozen(found: &FoundOverlays, keys: &[Digest]) -> Self {
        Self { remembered: frozen_memory(&found.rows, keys), incomplete: found.incomplete }
    }
}

impl Compactor {
    /// What memory said when this conversation began, or says now that it begins.
    pub(super) async fn remembered(
        &self,
        incoming: &Incoming<'_>,
        origin: &Origin,
        conversation: &Conversation<'_>,
    ) -> Recalled {
        let settings = origin.strategies.memory.as_ref().filter(|memory| memory.inject);
        let Some(keys) = self.keys(origin, conversation) else { return Recalled::default() };
        let frozen = Recalled::frozen(&self.store.overlays(&origin.tenant, &keys).await, &keys);
        let settings = settings.filter(|_| conversation.begins() && incoming.chains == Beginning::New);
        match settings.filter(|_| frozen.remembered.is_none() && !frozen.incomplete) {
            Some(settings) => Recalled::of(self.begun_with(origin, conversation, (settings, keys)).await),
            None => frozen,
        }
    }

    /// What memory says now that a conversation begins.
    async fn begun_with(
        &self,
        origin: &Origin,
        conversation: &Conversation<'_>,
        (settings, keys): (&MemorySettings, Vec<Digest>),
    ) -> Option<Arc<Remembered>> {
        match origin.errand {
            Errand::Generate if client_compaction::asks_for_it(conversation) => None,
            Errand::Generate => {
                let remembered = self.now_remembered(origin, settings).await?;
                self.freeze(origin, keys, &remembered).await
            }
            // What the first request will have, if nobody writes to the file until then.
            Errand::Count | Errand::Warm => self.now_remembered(origin, settings).await.map(Arc::new),
            Errand::Compact => None,
        }
    }

    /// What memory said when this conversation began.
    pub(super) async fn remembered_before(&self, origin: &Origin, whole: &Conversation<'_>) -> Recalled {
        let Some(keys) = self.keys(origin, whole) else { return Recalled::default() };
        Recalled::frozen(&self.store.overlays(&origin.tenant, &keys).await, &keys)
    }

    /// Under which memory may be kept for this opening: the digest of each of its messages, from the first on. `None`:
    /// it has none, or never gets any.
    fn keys(&self, origin: &Origin, conversation: &Conversation<'_>) -> Option<Vec<Digest>> {
        let injects = origin.strategies.memory.as_ref().is_some_and(|memory| memory.inject);
        let may = injects || self.store.may_overlay();
        let proved = origin.proof == Proof::Known && !origin.strategies.observe;
        if !may || !proved || self.refused_tools.has((origin.tenant, origin.root)) {
            return None;
        }
        let agent = agent(&origin.headers);
        let opening = conversation.opening();
        let last = opening.get(opening.len().saturating_sub(MOST_OPENING)..).unwrap_or_default();
        let keys: Vec<Digest> = last.iter().map(|item| key(&agent, &item.chain)).collect();
        (!keys.is_empty()).then_some(keys)
    }

    /// `MEMORY.md` as it is. `None`: it cannot be read now.
    async fn now_remembered(&self, origin: &Origin, settings: &MemorySettings) -> Option<Remembered> {
        let (agent, most, tokens) = (agent(&origin.headers), settings.max_tokens, origin.tokens);
        let file = self.store.memory_file(&origin.tenant, &agent, MemoryPath::Curated).await;
        let Some(file) = file.inspect_err(|error| tracing::debug!(%error, "a session begins without memory")).ok()?
        else {
            return Some(Remembered { text: String::new(), tokens: 0 });
        };
        // The vocabulary may have to be loaded.
        let say = move || {
            let text = recollection(&file.content, most, &|text| tokens.count_text(text) as usize);
            let tokens = if text.is_empty() { 0 } else { tokens.count_text(&text) };
            Remembered { text, tokens }
        };
        self.workers.run(say).await
    }

    /// Keeps it for good; also that there was nothing. What was kept first stays.
    async fn freeze(&self, origin: &Origin, keys: Vec<Digest>, remembered: &Remembered) -> Option<Arc<Remembered>> {
        if self.store.health() != Health::Up {
            return None;
        }
        let row = row(OverlayKind::Memory, *keys.last()?, remembered, origin.body.len() / SHRINKS)?;
        let batch = Batch { root: origin.root, overlays: vec![row], ..Batch::default() };
        if let Err(error) = self.store.commit(&origin.tenant, batch).await {
            tracing::warn!(%error, "a session begins without memory");
            return None;
        }
        frozen_memory(&self.store.overlays(&origin.tenant, &keys).await.rows, &keys)
    }
}

/// What is kept under the last of some keys. A longer opening than the one that was kept has the same; two that
/// begin alike (as those of a client that begins all sessions with the same words about its environment) do not.
fn frozen_memory(rows: &[Overlay], keys: &[Digest]) -> Option<Arc<Remembered>> {
    let of_key = |key: &Digest| rows.iter().find(|row| row.kind == OverlayKind::Memory && row.digest == *key);
    let row: &Overlay = keys.iter().rev().find_map(of_key)?;
    serde_json::from_str(&row.body).ok().map(Arc::new)
}

/// Agents that begin with the same words have each their own.
fn key(agent: &str, digest: &Digest) -> Digest {
    let mut hash = blake3::Hasher::new();
    hash.update(b"memory").update(digest).update(agent.as_bytes());
    *hash.finalize().as_bytes()
}
