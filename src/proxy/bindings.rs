//! Where a provider has refused a rewritten body for its signed thinking: nothing changes there any more but
//! by a full fold. Lost at a restart, which costs one more refusal.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use super::origin::Origin;

/// Most combinations that are remembered; beyond it all are forgotten.
pub const MOST: usize = 1_024;

/// Combinations of tenant, upstream, model and beta features.
#[derive(Debug, Default)]
pub struct Bindings(Mutex<HashSet<[u8; 32]>>);

impl Bindings {
    /// The provider has refused a rewritten body of this request's kind.
    pub fn refused(&self, origin: &Origin) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(key(origin));
    }

    pub fn has_refused(&self, origin: &Origin) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&key(origin))
    }
}

fn key(origin: &Origin) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("compactproxy 2026 refused binding");
    hasher.update(&origin.tenant.0);
    for part in [&*origin.upstream, &*origin.model, origin.betas()] {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    *hasher.finalize().as_bytes()
}
