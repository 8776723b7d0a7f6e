//! Long-term memory at work: behind an agent's requests, never in their way, what waits in the store is read for
//! facts, and days' files are taken into `MEMORY.md`. Side calls are made with the credential of the request at hand;
//! it is kept no longer than that work takes.

mod keeper;
pub mod mirror;
mod refusals;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderMap;

use self::keeper::Keeper;
use self::refusals::Refusals;
use super::agent::agent;
use super::compaction::{Compactor, Conduct};
use super::origin::Origin;
use super::recent::Recent;
use super::tenant::Proof;
use crate::config::MemorySettings;
use crate::memory::said as heard;
use crate::store::{Batch, Said, Stage, Tenant, now};
use crate::wire::Errand;

/// After a failure the first new try comes after so long, each further one after twice as long.
const FIRST_RETRY: Duration = Duration::from_secs(30);
/// Agents remembered; of others the store is asked again (L8).
const MAX_AGENTS: usize = 10_000;

type Key = (Tenant, Arc<str>);

/// The agents whose memory is, or may be, worked on.
pub struct Memories {
    agents: Mutex<Recent<Key, State>>,
    refusals: Refusals,
    /// The first wait after a failure.
    pub retry: Duration,
}

#[derive(Default)]
struct State {
    running: bool,
    /// Something new waits since the work looked.
    woken: bool,
    /// When to look for work again; unix seconds. 0: nobody has looked yet.
    next: i64,
}

impl Default for Memories {
    fn default() -> Self {
        Self { agents: Mutex::new(Recent::new(MAX_AGENTS)), refusals: Refusals::default(), retry: FIRST_RETRY }
    }
}

impl Memories {
    /// Whether a request with these headers should be looked at for the sake of its agent's memory.
    pub(super) fn want(&self, tenant: Tenant, headers: &HeaderMap) -> bool {
        let mut agents = self.agents();
        let state = agents.entry((tenant, agent(headers)));
        !state.running && now() >= state.next
    }

    /// Takes the work, if there may be some and nobody has it.
    fn claim(&self, key: &Key) -> bool {
        let mut agents = self.agents();
        let state = agents.entry(key.clone());
        let free = !state.running && now() >= state.next;
        if free {
            *state = State { running: true, woken: false, next: 0 };
        }
        free
    }

    fn wake(&self, key: Key) {
        let mut agents = self.agents();
        let state = agents.entry(key);
        (state.woken, state.next) = (state.running, 0);
    }

    /// Gives the work back until `next`; false: something new waits, and it goes on.
    fn release(&self, key: &Key, next: i64) -> bool {
        let mut agents = self.agents();
        let state = agents.entry(key.clone());
        if std::mem::take(&mut state.woken) {
            return false;
        }
        (state.running, state.next) = (false, next);
        true
    }

    fn agents(&self) -> MutexGuard<'_, Recent<Key, State>> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The settings, where the request may have a memory at all.
fn settings(origin: &Origin) -> Option<&MemorySettings> {
    let turn = origin.errand == Errand::Generate && Errand::of_path(origin.uri.path()) == Errand::Generate;
    let may = turn && origin.proof == Proof::Known && !origin.strategies.observe;
    origin.strategies.memory.as_ref().filter(|_| may)
}

/// What a batch's summary takes the place of, to be read for facts.
pub(super) async fn said(origin: &Arc<Origin>, batch: &Batch) -> Option<Arc<Said>> {
    let asked = origin.strategies.compaction.as_ref().is_some_and(|compaction| compaction.flush_before_compact);
    settings(origin).filter(|_| asked)?;
    let (_, checkpoint, Stage::Activated) = batch.checkpoint.as_ref()? else { return None };
    let upto = checkpoint.head.as_ref()?.upto;
    let messages =
        origin.think(&Default::default(), move |situation| heard::said(situation.conversation, upto)).await?;
    Some(Arc::new(Said { agent: agent(&origin.headers), messages })).filter(|said| !said.messages.is_empty())
}

/// Something new waits for this request's agent.
pub(super) fn wake(compactor: &Compactor, origin: &Origin) {
    compactor.memories.wake((origin.tenant, agent(&origin.headers)));
    begin(compactor, origin);
}

/// Begins what there is to do for the agent of a request, beside it.
pub(super) fn begin(compactor: &Compactor, origin: &Origin) {
    let serving = compactor.conduct == Conduct::Serving;
    let Some(settings) = settings(origin).filter(|_| serving) else { return };
    let key = (origin.tenant, agent(&origin.headers));
    if compactor.memories.claim(&key) {
        let (settings, origin) = (settings.clone(), origin.without_body());
        tokio::spawn(work(origin, key, settings));
    }
}

/// Works until nothing is due.
async fn work(origin: Origin, key: Key, settings: MemorySettings) {
    let shard = Arc::clone(&origin.shard);
    let Some(compactor) = shard.proxy.compactor.as_ref() else { return };
    let mut held = Held { memories: &compactor.memories, key: &key, next: now() + seconds(FIRST_RETRY) };
    let keeper = Keeper { compactor, origin: &origin, agent: &key.1, settings: &settings };
    loop {
        held.next = keeper.pass().await;
        if compactor.memories.release(&key, held.next) {
            break;
        }
    }
}

/// Gives the work back also where its task is dropped.
struct Held<'m> {
    memories: &'m Memories,
    key: &'m Key,
    next: i64,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        while !self.memories.release(self.key, self.next) {}
    }
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}
