//! What errors teach of windows: those that are mended, and those that are seen in an answer that passes.

use std::sync::Arc;

use super::compaction::Compactor;
use super::origin::Origin;
use super::tenant::Proof;
use crate::compact::budget::Window;
use crate::store::{LearnedWindow, Tenant, WindowKey};
use crate::wire::Digest;
use crate::wire::overflow::{Verdict, learned};

/// Whose window an answer speaks of. It outlives the request's body.
pub struct Place {
    pub tenant: Tenant,
    pub upstream: Arc<str>,
    pub path: String,
    pub model: Arc<str>,
    pub betas: String,
    proof: Proof,
    /// What was known of it when the request went out.
    known: Option<Window>,
}

impl Place {
    pub fn of(origin: &Origin) -> Self {
        Self {
            tenant: origin.tenant,
            upstream: Arc::clone(&origin.upstream),
            path: origin.uri.path().to_owned(),
            model: Arc::clone(&origin.model),
            betas: origin.betas().to_owned(),
            proof: origin.proof,
            known: origin.budget.window,
        }
    }

    pub fn key(&self) -> WindowKey<'_> {
        let Self { tenant, upstream, path, model, betas, .. } = self;
        WindowKey { tenant, upstream, path, model, betas }
    }

    /// Stands for the window among the sessions: it is told to one conversation and then to another.
    fn digest(&self) -> Digest {
        let mut hasher = blake3::Hasher::new_derive_key("compactproxy 2025 doubted window");
        for part in [&*self.upstream, &*self.path, &*self.model] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        *hasher.finalize().as_bytes()
    }
}

impl Compactor {
    /// Keeps the limit that an error tells. For a token that is only claimed nothing is learned.
    pub(super) fn learn_limit(&self, place: &Place, verdict: &Verdict) {
        let Some(hint) = learned(verdict).filter(|_| place.proof == Proof::Known) else { return };
        let told = hint.input.or(hint.total);
        let halves = told.zip(place.known).is_some_and(|(told, known)| told < known.input / 2);
        // One sample never halves what is known: some providers print nonsense.
        if halves && !self.sessions.doubted(place.tenant, place.digest(), told) {
            return;
        }
        let LearnedWindow { input, total } = self.store.window(&place.key()).unwrap_or_default();
        // A smaller limit of one kind makes a larger one of the other kind void.
        let keep = |old: Option<u64>| old.filter(|old| told.is_none_or(|told| told >= *old));
        let window = LearnedWindow { input: hint.input.or(keep(input)), total: hint.total.or(keep(total)) };
        self.store.replace_window(&place.key(), window);
    }
}
