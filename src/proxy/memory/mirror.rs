//! Copies of memory files in the workspace, for agents that share a volume with the proxy: renewed soon after a change,
//! beside what made it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::proxy::workspace;
use crate::store::{Store, Tenant};

/// Copies that are made at once; others are made when the agent's memory is worked on next (L8).
const MAX_BUSY: usize = 256;

/// Where an agent's files go.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// The tenant's folder in the workspace.
    pub folder: String,
    pub tenant: Tenant,
    pub agent: Arc<str>,
}

/// The places whose files are being written.
pub struct Mirrors {
    store: Arc<Store>,
    /// And whether something has changed since they were read.
    busy: Mutex<HashMap<Place, bool>>,
}

impl Mirrors {
    pub fn new(store: Arc<Store>) -> Self {
        Self { store, busy: Mutex::default() }
    }

    /// Writes an agent's files as they are by then, beside the caller. Of one place nothing is written twice at once, so
    /// that what is older never takes the place of what is newer.
    pub fn renew(self: &Arc<Self>, place: Place) {
        if !self.begin(&place) {
            return;
        }
        let mirrors = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                mirrors.write(&place).await;
                if mirrors.ended(&place) {
                    break;
                }
            }
        });
    }

    /// False: it is being written, and once more after that, or too many are.
    fn begin(&self, place: &Place) -> bool {
        let mut busy = self.busy();
        if let Some(changed) = busy.get_mut(place) {
            *changed = true;
            return false;
        }
        let room = busy.len() < MAX_BUSY;
        if room {
            busy.insert(place.clone(), false);
        }
        room
    }

    fn ended(&self, place: &Place) -> bool {
        let mut busy = self.busy();
        let changed = busy.get_mut(place).is_some_and(std::mem::take);
        if !changed {
            busy.remove(place);
        }
        !changed
    }

    async fn write(&self, Place { folder, tenant, agent }: &Place) {
        let Some(files) = self.store.memory_files(tenant, agent).await.ok().filter(|files| !files.is_empty()) else {
            return;
        };
        if let Err(error) = workspace::mirror(folder, agent, files).await {
            tracing::warn!(%error, folder, "memory files are not in the workspace");
        }
    }

    fn busy(&self) -> MutexGuard<'_, HashMap<Place, bool>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryPath;
    use crate::store::Limits;

    #[tokio::test]
    async fn the_last_change_is_what_stays() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("state.db").display());
        let store = Store::open(&url, Limits::default()).await.unwrap();
        let mirrors = Arc::new(Mirrors::new(Arc::clone(&store)));
        let tenant = store.tenant(&[b"a"]);
        let place = Place { folder: folder.path().join("t").display().to_string(), tenant, agent: "codex".into() };
        mirrors.renew(place.clone());
        for n in 0..20 {
            let line = format!("- {n}\n");
            store.append_memory(&tenant, "codex", MemoryPath::Curated, &line).await.unwrap();
            mirrors.renew(place.clone());
        }
        while !mirrors.busy().is_empty() {
            tokio::task::yield_now().await;
        }
        let written = std::fs::read_to_string(folder.path().join("t/agents/codex/MEMORY.md")).unwrap();
        assert_eq!(written.lines().count(), 20);
    }

    #[tokio::test]
    async fn only_so_many_are_written_at_once() {
        let store = Store::in_memory_only(Limits::default()).await.unwrap();
        let mirrors = Mirrors::new(Arc::clone(&store));
        let place = |n: usize| Place { folder: n.to_string(), tenant: store.tenant(&[b"a"]), agent: "a".into() };
        assert_eq!((0..MAX_BUSY + 9).filter(|n| mirrors.begin(&place(*n))).count(), MAX_BUSY);
        assert!(!mirrors.begin(&place(0)) && !mirrors.ended(&place(0)), "it has changed meanwhile");
        assert!(mirrors.ended(&place(0)) && mirrors.ended(&place(1)) && mirrors.begin(&place(MAX_BUSY)));
    }
}
