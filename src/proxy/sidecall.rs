//! The proxy's own model calls: summaries, made ahead in the background or waited for.

mod caller;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout;

pub use self::caller::Caller;
use self::caller::{call, own_call};
use super::compaction::{Compactor, Conduct};
use super::jobs::{Made, Prepared, Ticket};
use super::origin::Origin;
use super::work::{drop_beta, drop_option};
use crate::compact::head::{self, Source};
use crate::compact::plan::Situation;
use crate::compact::render::render;
use crate::compact::summary::{Finish, Rejection, WARM_INSTRUCTION, accept, prompt, steps, transcript};
use crate::compact::{Known, estimate};
use crate::config::{CompactionSettings, SignedThinking};
use crate::store::{Batch, Stage};
use crate::wire::hosted::Asked;
use crate::wire::side::{Answer, warm_edits};
use crate::wire::splice::splice;
use crate::wire::{Digest, Errand};

/// How long a request that would overflow waits for its summary.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How long all calls for one summary may take together.
const JOB_TIME: Duration = Duration::from_secs(300);

/// Why a side call brought no summary: the metric's label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SideCallError {
    #[error("no answer in time")]
    Timeout,
    #[error("the provider is at its rate limit")]
    RateLimited,
    #[error("the provider answered with status {0}")]
    Status(u16),
    #[error("the connection failed")]
    Connection,
    #[error("the answer is not what the API describes")]
    Unreadable,
    #[error("the answer is longer than any summary")]
    TooLong,
    #[error(transparent)]
    Rejected(#[from] Rejection),
    #[error("the request could not be made")]
    NotMade,
}

impl SideCallError {
    /// The metric's label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::RateLimited => "rate_limited",
            Self::Status(_) => "error_status",
            Self::Connection => "connection",
            Self::Unreadable => "unreadable",
            Self::TooLong => "too_long",
            Self::Rejected(Rejection::Empty) => "empty",
            Self::Rejected(Rejection::Refused) => "refused",
            Self::Rejected(Rejection::CutOff) => "cut_off",
            Self::Rejected(Rejection::ToolCall) => "tool_call",
            Self::Rejected(Rejection::NotSmaller) => "not_smaller",
            Self::NotMade => "not_made",
        }
    }
}

/// What a summary is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The request goes out without it too.
    Planned,
    /// The request was refused for its length.
    Recovery,
}

/// Begins (or joins) the summary of the first `cut` items. `None`: no side call may be made now.
pub fn begin(
    compactor: &Compactor,
    origin: &Arc<Origin>,
    known: &Known,
    cut: usize,
    purpose: Purpose,
) -> Option<Ticket> {
    // What asks for something else than the next turn has another path.
    let asks = compactor.conduct == Conduct::Serving && !origin.strategies.observe;
    if !asks || Errand::of_path(origin.uri.path()) != Errand::Generate {
        return None;
    }
    let (tenant, now) = (origin.tenant, Instant::now());
    let allowed = match purpose {
        Purpose::Planned => compactor.breaker.allows(tenant, &origin.upstream, now),
        Purpose::Recovery => compactor.breaker.allows_recovery(tenant, &origin.upstream, now),
    };
    if !allowed {
        return None;
    }
    let digest = origin.read().ok()?.items.get(cut.checked_sub(1)?)?.chain;
    let (known, bytes) = (known.clone(), origin.body.len());
    compactor.jobs.join((tenant, digest), bytes, || make(Arc::new(origin.with_own_share()), known, cut))
}

/// Makes a summary and stores it as prepared.
async fn make(origin: Arc<Origin>, known: Known, cut: usize) -> Made {
    let shard = Arc::clone(&origin.shard);
    let compactor = shard.proxy.compactor.as_ref()?;
    let made = timeout(JOB_TIME, summarize(compactor, &origin, &known, cut)).await;
    let text = match made.unwrap_or(Err(SideCallError::Timeout)) {
        Ok(summary) => summary,
        Err(error) => {
            ended(compactor, &origin, Some(error));
            tracing::warn!(%error, upstream = &*origin.upstream, "no summary");
            return None;
        }
    };
    let composed = origin.think(&known, move |situation| {
        let (checkpoint, texts) = head::summary(situation, cut, Source::Model(&text))?;
        Some((situation.digest_at(checkpoint.covers)?, Arc::new(checkpoint), texts))
    });
    let composed = composed.await.flatten();
    composed.iter().for_each(|(digest, ..)| compactor.sessions.made(origin.payer(), *digest));
    ended(compactor, &origin, None);
    let (digest, checkpoint, texts): (Digest, _, _) = composed?;
    let prepared = Some((digest, Arc::clone(&checkpoint), Stage::Prepared));
    let batch = Batch { root: origin.root, texts: texts.clone(), checkpoint: prepared, ..Batch::default() };
    // What was paid for is of use to who waits for it, also where it cannot be kept.
    let texts = if compactor.commit(&origin, batch).await.is_ok() { Vec::new() } else { texts };
    Some(Prepared { checkpoint, texts: texts.into() })
}

/// Counts how a side call ended, for the breaker and the metric.
pub(super) fn ended(compactor: &Compactor, origin: &Origin, error: Option<SideCallError>) {
    let (tenant, upstream, now) = (origin.tenant, &origin.upstream, Instant::now());
    match error {
        None => compactor.breaker.succeeded(tenant, upstream),
        Some(SideCallError::RateLimited) => compactor.breaker.rate_limited(tenant, upstream, now),
        Some(_) => compactor.breaker.failed(tenant, upstream, now),
    }
    origin.shard.proxy.metrics.side_call_ended(error.map_or("ok", SideCallError::label));
}

/// The accepted summary.
async fn summarize(
    compactor: &Compactor,
    origin: &Arc<Origin>,
    known: &Known,
    cut: usize,
) -> Result<String, SideCallError> {
    let settings = origin.strategies.compaction.as_ref().ok_or(SideCallError::NotMade)?;
    let own = settings.model.is_none() && settings.upstream.is_none() && settings.summary_prompt.is_none();
    if own && compactor.sessions.get(origin.tenant, origin.root).warm {
        match warm(origin, known, cut).await {
            Ok(summary) => return Ok(summary),
            Err(error @ (SideCallError::RateLimited | SideCallError::Timeout)) => return Err(error),
            Err(error) => tracing::debug!(%error, "no summary from the cached prefix"),
        }
    }
    let caller = Caller::new(compactor, origin, Some(settings));
    match in_steps(&caller, origin, known, cut).await {
        // The configured model is not to be had: the request's own instead, once.
        Err(SideCallError::Status(400 | 403 | 404)) if settings.model.is_some() => {
            let own = CompactionSettings { model: None, upstream: None, ..settings.clone() };
            in_steps(&Caller::new(compactor, origin, Some(&own)), origin, known, cut).await
        }
        result => result,
    }
}

/// A prefix longer than the summarizer's window is folded in steps: each summary is input to the next.
async fn in_steps(
    caller: &Caller<'_>,
    origin: &Arc<Origin>,
    known: &Known,
    cut: usize,
) -> Result<String, SideCallError> {
    let room = origin.uncalibrated(caller.room);
    let planned = origin.think(known, move |situation| {
        let from = situation.summarized();
        let items = estimate::per_item(situation, situation.known.active.as_deref());
        steps(situation.conversation, from..cut, &items, room)
    });
    let planned = planned.await.ok_or(SideCallError::NotMade)?;
    let head = known.active.as_deref().and_then(|active| active.head.as_ref());
    let mut summary = head.map_or_else(String::new, |head| head.summary.clone());
    for range in planned {
        let (template, earlier) = (caller.template.clone(), summary.clone());
        let asked = origin.think(known, move |situation| {
            let count = |text: &str| situation.tokens.count_text(text) as usize;
            let said = transcript(situation.conversation, range, room as usize, &count);
            let replaced = count(&said) + count(&earlier);
            (prompt(template.as_deref(), &earlier, &said), replaced)
        });
        let (asked, replaced) = asked.await.ok_or(SideCallError::NotMade)?;
        // The client's own requests may have met a rate limit since.
        if !may_ask(origin) {
            return Err(SideCallError::RateLimited);
        }
        let answer = caller.ask(&asked).await?;
        summary = accepted(origin, &answer, replaced)?;
    }
    match summary.is_empty() {
        true => Err(SideCallError::NotMade),
        false => Ok(summary),
    }
}

fn may_ask(origin: &Origin) -> bool {
    let compactor = origin.shard.proxy.compactor.as_ref();
    compactor
        .is_some_and(|compactor| compactor.breaker.allows_recovery(origin.tenant, &origin.upstream, Instant::now()))
}

/// The client's own request up to the cut, and one instruction: the provider reads it from its cache.
async fn warm(origin: &Arc<Origin>, known: &Known, cut: usize) -> Result<String, SideCallError> {
    let body = origin.body.clone();
    let made = origin.think(known, move |situation| {
        let Situation { conversation, known, strategies, .. } = *situation;
        let own = render(conversation, known).edits;
        // The same option as the request itself has: the cache knows the prefix with it.
        let asked = strategies.signed_thinking == SignedThinking::Dropped && !own.is_empty();
        let option = asked.then(|| drop_option(conversation, known)).flatten();
        let drops = option.is_some();
        let mut edits = warm_edits(conversation, own, cut, WARM_INSTRUCTION)?;
        edits.extend(option);
        edits.sort_by_key(|edit| edit.span.start);
        let items = estimate::per_item(situation, known.active.as_deref());
        let replaced: u64 = items.iter().take(cut).map(|tokens| u64::from(*tokens)).sum();
        Some((splice(&body, edits).ok()?, replaced as usize, drops))
    });
    let (pieces, replaced, drops) = made.await.flatten().ok_or(SideCallError::NotMade)?;
    let asked = if origin.stream { Asked::AsBefore } else { Asked::Whole };
    let (uri, mut headers) = own_call(origin, asked, None);
    if drops {
        drop_beta(&mut headers);
    }
    let answer = call(origin, (origin.index, origin.dialect), (uri, headers), pieces).await?;
    accepted(origin, &answer, replaced)
}

fn accepted(origin: &Origin, answer: &Answer, replaced: usize) -> Result<String, SideCallError> {
    let count = |text: &str| origin.tokens.count_text(text) as usize;
    Ok(accept(&answer.text, finish_of(answer), replaced, &count)?)
}

/// Why an answer ended.
pub(super) fn finish_of(answer: &Answer) -> Finish {
    match (answer.called_tool, answer.refused) {
        (true, _) => Finish::ToolCall,
        (_, true) => Finish::Refused,
        _ => Finish::of(answer.finish_reason.as_deref()),
    }
}
