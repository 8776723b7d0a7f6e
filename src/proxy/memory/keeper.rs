//! Working on one agent's memory: reading what waits for facts, and taking days' files into `MEMORY.md`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::mirror::Place;
use super::seconds;
use crate::compact::summary::Rejection;
use crate::config::MemorySettings;
use crate::memory::consolidate::{self, Due, Plan};
use crate::memory::flush::{self, Notes};
use crate::memory::save::{Author, section};
use crate::memory::{Day, MemoryFile, MemoryPath};
use crate::proxy::compaction::Compactor;
use crate::proxy::origin::Origin;
use crate::proxy::sidecall::{Caller, SideCallError, ended, finish_of};
use crate::store::{Flush, Health, MemoryError, ReadError, Rewrite, Tenant, Waiting, now};
use crate::wire::side::Answer;

/// The longest wait after a failure.
const LAST_RETRY: Duration = Duration::from_secs(6 * 3_600);
/// Answers of no use after which a piece is given up: the model will not have another one.
const MAX_REJECTED: u32 = 4;
/// Calls that take notes into `MEMORY.md` in one go.
const MAX_MERGES: usize = 8;
/// Bytes that have to be free in the day's file before a piece is read: what has no room is not asked for.
const FACTS_ROOM: usize = 32 << 10;
/// How many times the first wait after a failure a full memory waits.
const FULL_RETRIES: u32 = 10;
/// Bytes of the heading above facts.
const HEADING_ROOM: usize = 64;

/// One agent's memory, and the request by whose leave it is worked on.
pub(super) struct Keeper<'k> {
    pub(super) compactor: &'k Compactor,
    pub(super) origin: &'k Origin,
    pub(super) agent: &'k Arc<str>,
    pub(super) settings: &'k MemorySettings,
}

impl Keeper<'_> {
    /// Does what is due. Gives the moment (unix seconds) to look again.
    pub(super) async fn pass(&self) -> i64 {
        let began = now();
        // Notes may come by other ways as well: they are looked for once in a while.
        let later =
            began.saturating_add(seconds(self.settings.consolidate_gap).max(seconds(self.compactor.memories.retry)));
        // What could not be written would be asked for again and again.
        if self.compactor.store.health() != Health::Up {
            return self.when_full().min(later);
        }
        let mut next = later;
        for due in [self.flush().await, self.archive_and_consolidate().await] {
            next = next.min(due.unwrap_or_else(|error| {
                tracing::debug!(%error, "memory waits for the store");
                later
            }));
        }
        // Also what came by other ways.
        self.mirror();
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

    /// Reads the next piece of a conversation; gives when to go on where that did not work.
    async fn read(&self, flush: &Flush) -> Result<Option<i64>, ReadError> {
        if !self.has_room(flush).await? {
            tracing::warn!(agent = &**self.agent, "the memory is full: what was said waits to be read");
            return Ok(Some(self.when_full()));
        }
        let (facts, read) = match &flush.facts {
            Some(facts) => (Some(facts.clone()), 0),
            None => {
                let caller = self.caller();
                let piece = flush::piece(&flush.text, caller.room);
                match self.facts(&caller, piece).await? {
                    Ok(facts) => (facts, piece.len()),
                    Err(Failed::NotNow) => return Ok(Some(now() + seconds(self.compactor.memories.retry))),
                    Err(Failed::Call(SideCallError::Rejected(error))) if flush.attempts + 1 >= MAX_REJECTED => {
                        tracing::warn!(%error, agent = &**self.agent, "a piece of a conversation was not read for memory");
                        (None, piece.len())
                    }
                    Err(Failed::Call(error)) => {
                        tracing::warn!(%error, agent = &**self.agent, "nothing noted yet");
                        return Ok(Some(self.put_off(flush).await));
                    }
                }
            }
        };
        self.write(flush, read, facts).await
    }

    /// When to look for room again (unix seconds); until there is some, that is all that is done.
    fn when_full(&self) -> i64 {
        now().saturating_add(seconds(self.compactor.memories.retry.saturating_mul(FULL_RETRIES)))
    }

    /// Whether what is found next could be written.
    async fn has_room(&self, flush: &Flush) -> Result<bool, ReadError> {
        let today = MemoryPath::Day(Day::of(now()));
        let room = self.compactor.store.memory_room(&self.origin.tenant, self.agent, today).await?;
        Ok(room >= flush.facts.as_ref().map_or(FACTS_ROOM, |facts| facts.len() + HEADING_ROOM))
    }

    /// Writes what was found in the first `read` bytes, and goes on behind them.
    async fn write(&self, flush: &Flush, read: usize, facts: Option<String>) -> Result<Option<i64>, ReadError> {
        let (owner, store) = (self.owner(), &self.compactor.store);
        let noted = facts.as_deref().and_then(|facts| section(Author::Noted, now(), facts).ok());
        let kept = match (store.advance_flush(owner, (flush, read), noted).await, facts) {
            (Ok(_), None) => return Ok(None),
            (Ok(_), Some(_)) => {
                self.mirror();
                return Ok(None);
            }
            // Somebody else has taken the room: what was paid for is kept until there is some.
            (Err(MemoryError::FileFull | MemoryError::TenantFull), Some(facts)) => {
                store.keep_facts(owner, (flush, read), facts).await
            }
            (Err(error), _) => Err(error),
        };
        match kept {
            Ok(_) => Ok(Some(self.when_full())),
            Err(error) => {
                tracing::warn!(%error, agent = &**self.agent, "facts could not be written");
                Ok(Some(self.put_off(flush).await))
            }
        }
    }

    fn owner(&self) -> (&Tenant, &str) {
        (&self.origin.tenant, self.agent)
    }

    async fn put_off(&self, flush: &Flush) -> i64 {
        let wait = self.compactor.memories.retry.saturating_mul(1 << flush.attempts.min(16)).min(LAST_RETRY);
        let due = now().saturating_add(seconds(wait));
        if let Err(error) = self.compactor.store.delay_flush(self.owner(), flush.id, due).await {
            tracing::debug!(%error, "a failed attempt was not counted");
        }
        due
    }

    /// What is new in a piece, as it is noted; it is asked for beside the files as they are by now.
    async fn facts(&self, caller: &Caller<'_>, piece: &str) -> Result<Result<Option<String>, Failed>, ReadError> {
        let (day, files) = (Day::of(now()), self.files().await?);
        let content = |path| files.iter().find(|file| file.path == path).map_or("", |file| file.content.as_str());
        let notes = Notes { curated: content(MemoryPath::Curated), today: content(MemoryPath::Day(day)), day };
        let answer = match self.ask(caller, &flush::prompt(piece.trim(), notes, caller.room)).await {
            Ok(answer) => answer,
            Err(failed) => return Ok(Err(failed)),
        };
        let texts: Vec<&str> = files.iter().map(|file| file.content.as_str()).collect();
        let facts = self.judged(flush::facts(&answer.text, finish_of(&answer)));
        Ok(facts.map(|facts| flush::noted(&facts, &texts)))
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
            if store.memory_room(tenant, self.agent, MemoryPath::Curated).await? < self.room_for(&plan) {
                tracing::warn!(agent = &**self.agent, "the memory is full: MEMORY.md stays as it is");
                return Ok(self.when_full());
            }
            let (refusals, key) = (&self.compactor.memories.refusals, (*tenant, Arc::clone(self.agent)));
            if let Some(until) = refusals.until(&key, &plan, now()) {
                return Ok(until);
            }
            if let Err(error) = self.merge(&caller, plan.clone()).await {
                tracing::warn!(%error, agent = &**self.agent, "MEMORY.md stays as it is for now");
                let wait = gap.max(retry);
                return Ok(match error.is_refusal() {
                    true => refusals.refused(&key, &plan, (now(), wait)),
                    false => now().saturating_add(wait),
                });
            }
            files = self.files().await?;
        }
        Ok(now().saturating_add(gap))
    }

    fn room_for(&self, plan: &Plan) -> usize {
        consolidate::room(&plan.curated, self.settings.max_tokens)
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

    /// Has the files written to the workspace, where one is configured.
    fn mirror(&self) {
        let reading = self.origin.shard.proxy.reading.as_ref();
        let Some((folder, reading)) = self.origin.workspace.clone().zip(reading) else { return };
        reading.mirrors.renew(Place { folder, tenant: self.origin.tenant, agent: Arc::clone(self.agent) });
    }
}

impl Failed {
    /// Whether a model was asked, and would be asked the same again.
    fn is_refusal(self) -> bool {
        use SideCallError::{Connection, NotMade, RateLimited};
        matches!(self, Self::Call(error) if !matches!(error, Connection | NotMade | RateLimited))
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
