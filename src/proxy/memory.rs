//! Long-term memory at work: behind an agent's requests, never in their way, what waits in the store is read for
//! facts, and days' files are taken into `MEMORY.md`. Side calls are made with the credential of the request at hand;
//! it is kept no longer than that work takes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::HeaderMap;

use super::agent::agent;
use super::compaction::{Compactor, Conduct};
use super::origin::Origin;
use super::recent::Recent;
use super::sidecall::{Caller, SideCallError, ended, finish_of};
use super::tenant::Proof;
use super::workspace;
use crate::compact::summary::Rejection;
use crate::config::MemorySettings;
use crate::memory::consolidate::{self, Due, Plan};
use crate::memory::flush::{self, Notes};
use crate::memory::save::{Author, section};
use crate::memory::{Day, MemoryFile, MemoryPath, said as heard};
use crate::store::{Batch, Flush, ReadError, Rewrite, Said, Stage, Tenant, Waiting, now};
use crate::wire::Errand;
use crate::wire::side::Answer;

/// After a failure the first new try comes after so long, each further one after twice as long…
const FIRST_RETRY: Duration = Duration::from_secs(30);
/// …up to this.
const LAST_RETRY: Duration = Duration::from_secs(6 * 3_600);
/// Answers of no use after which a piece is given up: the model will not have another one.
const MAX_REJECTED: u32 = 4;
/// Agents remembered; of others the store is asked again (L8).
const MAX_AGENTS: usize = 10_000;
/// Calls that take notes into `MEMORY.md` in one go.
const MAX_MERGES: usize = 8;

type Key = (Tenant, Arc<str>);

/// The agents whose memory is, or may be, worked on.
pub struct Memories {
    agents: Mutex<Recent<Key, State>>,
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
        Self { agents: Mutex::new(Recent::new(MAX_AGENTS)), retry: FIRST_RETRY }
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

/// One agent's memory, and the request by whose leave it is worked on.
struct Keeper<'k> {
    compactor: &'k Compactor,
    origin: &'k Origin,
    agent: &'k str,
    settings: &'k MemorySettings,
}

impl Keeper<'_> {
    /// Does what is due. Gives the moment (unix seconds) to look again.
    async fn pass(&self) -> i64 {
        let began = now();
        // Notes may come by other ways as well: they are looked for once in a while.
        let later =
            began.saturating_add(seconds(self.settings.consolidate_gap).max(seconds(self.compactor.memories.retry)));
        let mut next = later;
        for due in [self.flush().await, self.archive_and_consolidate().await] {
            next = next.min(due.unwrap_or_else(|error| {
                tracing::debug!(%error, "memory waits for the store");
                later
            }));
        }
        self.mirror().await;
        next
    }

    async fn files(&self) -> Result<Vec<MemoryFile>, ReadError> {
        self.compactor.store.memory_files(&self.origin.tenant, self.agent).await
    }

    /// Reads what waits for facts. Gives when the next of it is due.
    async fn flush(&self) -> Result<i64, ReadError> {
        loop {
            match self.compactor.store.waiting_flush(&self.origin.tenant, self.agent, now()).await? {
                Waiting::Nothing => return Ok(i64::MAX),
                Waiting::Until(due) => return Ok(due),
                Waiting::Due(flush) => {
                    if let Some(due) = self.read(&flush).await? {
                        return Ok(due);
                    }
                }
            }
        }
    }

    /// Reads one piece of a conversation; gives when to try again where that did not work.
    async fn read(&self, flush: &Flush) -> Result<Option<i64>, ReadError> {
        let (owner, store) = ((&self.origin.tenant, self.agent), &self.compactor.store);
        let files = self.files().await?;
        let written = match self.facts(flush, &files).await {
            Ok(facts) => {
                let texts: Vec<&str> = files.iter().map(|file| file.content.as_str()).collect();
                let noted = flush::noted(&facts, &texts).and_then(|text| section(Author::Noted, now(), &text).ok());
                store.finish_flush(owner, flush.id, noted).await
            }
            Err(Failed::NotNow) => return Ok(Some(now() + seconds(self.compactor.memories.retry))),
            Err(Failed::Call(SideCallError::Rejected(error))) if flush.attempts + 1 >= MAX_REJECTED => {
                tracing::warn!(%error, agent = self.agent, "a piece of a conversation was not read for memory");
                store.finish_flush(owner, flush.id, None).await
            }
            Err(Failed::Call(error)) => {
                tracing::warn!(%error, agent = self.agent, "nothing noted yet");
                return Ok(Some(self.put_off(flush).await));
            }
        };
        match written {
            Ok(_) => Ok(None),
            Err(error) => {
                tracing::warn!(%error, agent = self.agent, "facts could not be written");
                Ok(Some(self.put_off(flush).await))
            }
        }
    }

    async fn put_off(&self, flush: &Flush) -> i64 {
        let wait = self.compactor.memories.retry.saturating_mul(1 << flush.attempts.min(16)).min(LAST_RETRY);
        let due = now().saturating_add(seconds(wait));
        if let Err(error) = self.compactor.store.delay_flush((&self.origin.tenant, self.agent), flush.id, due).await {
            tracing::debug!(%error, "a failed attempt was not counted");
        }
        due
    }

    async fn facts(&self, flush: &Flush, files: &[MemoryFile]) -> Result<Vec<String>, Failed> {
        let day = Day::of(now());
        let content = |path| files.iter().find(|file| file.path == path).map_or("", |file| file.content.as_str());
        let notes = Notes { curated: content(MemoryPath::Curated), today: content(MemoryPath::Day(day)), day };
        let caller = self.caller();
        let mut facts = Vec::new();
        for piece in flush::pieces(&flush.text, flush::piece_chars(caller.room)) {
            let answer = self.ask(&caller, &flush::prompt(piece, notes, caller.room)).await?;
            facts.extend(self.judged(flush::facts(&answer.text, finish_of(&answer)))?);
        }
        Ok(facts)
    }

    /// Moves old days away, and takes notes into `MEMORY.md`. Gives when more is due.
    async fn archive_and_consolidate(&self) -> Result<i64, ReadError> {
        let (tenant, store) = (&self.origin.tenant, &self.compactor.store);
        let before = Day::of(now().saturating_sub(seconds(self.settings.archive_after)));
        let mut files = self.files().await?;
        if files.iter().any(|file| matches!(file.path, MemoryPath::Day(day) if day < before)) {
            if let Err(error) = store.archive_memory(tenant, self.agent, before).await {
                tracing::debug!(%error, "old days stay where they are");
            }
            files = self.files().await?;
        }
        let (gap, retry) = (seconds(self.settings.consolidate_gap), seconds(self.compactor.memories.retry));
        let caller = self.caller();
        for _ in 0..MAX_MERGES {
            let room = usize::try_from(caller.room).unwrap_or(usize::MAX);
            let plan = match consolidate::due(&files, now(), gap, room) {
                Due::Nothing => return Ok(i64::MAX),
                Due::At(moment) => return Ok(moment),
                Due::Now(plan) => plan,
            };
            if let Err(error) = self.merge(&caller, plan).await {
                tracing::warn!(%error, agent = self.agent, "MEMORY.md stays as it is for now");
                return Ok(now().saturating_add(gap.max(retry)));
            }
            files = self.files().await?;
        }
        Ok(now().saturating_add(gap))
    }

    async fn merge(&self, caller: &Caller<'_>, plan: Plan) -> Result<(), Failed> {
        let most = self.settings.max_tokens;
        let answer = self.ask(caller, &consolidate::prompt(&plan, most, Day::of(now()))).await?;
        let tokens = self.origin.tokens;
        let judge = move || {
            let count = |text: &str| tokens.count_text(text) as usize;
            let curated = consolidate::curated(&answer.text, finish_of(&answer), &plan, (most, &count));
            (curated, plan)
        };
        let (curated, plan) = self.compactor.workers.run(judge).await.ok_or(Failed::NotNow)?;
        let rewrite = Rewrite { content: self.judged(curated)?, expected: plan.expected, merged: plan.merged };
        let (tenant, store) = (&self.origin.tenant, &self.compactor.store);
        // Who wrote in between is not overwritten: the next call takes in what they wrote.
        let written = store.replace_memory(tenant, self.agent, MemoryPath::Curated, rewrite).await;
        written.map(drop).map_err(|_| Failed::NotNow)
    }

    /// With the model and at the upstream that write summaries.
    fn caller(&self) -> Caller<'_> {
        Caller::new(self.compactor, self.origin, self.origin.strategies.compaction.as_ref())
    }

    async fn ask(&self, caller: &Caller<'_>, prompt: &str) -> Result<Answer, Failed> {
        let (tenant, upstream) = (self.origin.tenant, &self.origin.upstream);
        if !self.compactor.breaker.allows(tenant, upstream, Instant::now()) {
            return Err(Failed::NotNow);
        }
        let answer = match caller.ask(prompt).await {
            // The configured model is not to be had: the request's own instead.
            Err(SideCallError::Status(400 | 403 | 404)) if self.origin.strategies.compaction.is_some() => {
                Caller::new(self.compactor, self.origin, None).ask(prompt).await
            }
            answer => answer,
        };
        answer.map_err(|error| self.failed(error))
    }

    /// Counts whether an answer was of use.
    fn judged<T>(&self, judged: Result<T, Rejection>) -> Result<T, Failed> {
        let judged = judged.map_err(|rejection| self.failed(SideCallError::Rejected(rejection)))?;
        ended(self.compactor, self.origin, None);
        Ok(judged)
    }

    fn failed(&self, error: SideCallError) -> Failed {
        ended(self.compactor, self.origin, Some(error));
        Failed::Call(error)
    }

    /// Writes the files to the workspace, where one is configured: also what came by other ways.
    async fn mirror(&self) {
        let Some(folder) = &self.origin.workspace else { return };
        let Some(files) = self.files().await.ok().filter(|files| !files.is_empty()) else { return };
        if let Err(error) = workspace::mirror(folder, self.agent, files).await {
            tracing::warn!(%error, folder, "memory files are not in the workspace");
        }
    }
}

/// Why nothing came of it.
#[derive(Debug, Clone, Copy, thiserror::Error)]
enum Failed {
    /// No call was to be made, or its outcome came too late.
    #[error("not now")]
    NotNow,
    #[error(transparent)]
    Call(#[from] SideCallError),
}
