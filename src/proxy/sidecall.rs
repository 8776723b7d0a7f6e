//! The proxy's own model calls: summaries, made ahead in the background or waited for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};

use super::Shard;
use super::body::{Framing, Pieces, SendBody};
use super::compaction::Compactor;
use super::encoding::{Encoding, decode};
use super::headers::{self, BodyHeaders};
use super::jobs::{Made, Prepared, Ticket};
use super::origin::Origin;
use crate::compact::budget::{Learned, Window};
use crate::compact::head::{self, Source};
use crate::compact::plan::Situation;
use crate::compact::render::render;
use crate::compact::summary::{Finish, Rejection, WARM_INSTRUCTION, accept, prompt, steps, transcript};
use crate::compact::{Known, estimate};
use crate::config::CompactionSettings;
use crate::store::{Batch, LearnedWindow, Stage, WindowKey};
use crate::wire::chat_side::{Answer, read_answer, transcript_body, warm_edits};
use crate::wire::splice::{splice, total_len};
use crate::wire::{Dialect, Digest};

/// How long a request that would overflow waits for its summary.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How long one side call may take.
const CALL_TIME: Duration = Duration::from_secs(120);
/// Most bytes of a side call's answer.
const MAX_ANSWER: usize = 1024 * 1024;
/// Input tokens of one step where the summarizer's window is not known.
const UNKNOWN_WINDOW_STEP: u64 = 24_000;
/// Headers of the client's that belong to its own request alone.
const NOT_REPEATED: [&str; 3] = ["idempotency-key", "x-client-request-id", "x-request-id"];

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
            Self::Rejected(Rejection::Empty) => "empty",
            Self::Rejected(Rejection::Refused) => "refused",
            Self::Rejected(Rejection::CutOff) => "cut_off",
            Self::Rejected(Rejection::ToolCall) => "tool_call",
            Self::Rejected(Rejection::NotSmaller) => "not_smaller",
            Self::NotMade => "not_made",
        }
    }
}

/// Begins (or joins) the summary of the first `cut` items. `None`: no side call may be made now.
pub fn begin(compactor: &Compactor, origin: &Arc<Origin>, known: &Known, cut: usize) -> Option<Ticket> {
    if !compactor.breaker.allows(origin.tenant, &origin.upstream, Instant::now()) {
        return None;
    }
    let digest = origin.read().ok()?.items.get(cut.checked_sub(1)?)?.chain;
    let (origin, known) = (Arc::clone(origin), known.clone());
    compactor.jobs.join((origin.tenant, digest), move || make(origin, known, cut))
}

/// Makes a summary and stores it as prepared.
async fn make(origin: Arc<Origin>, known: Known, cut: usize) -> Made {
    let shard = Arc::clone(&origin.shard);
    let compactor = shard.proxy.compactor.as_ref()?;
    let (text, tokens) = match summarize(compactor, &origin, &known, cut).await {
        Ok(summary) => summary,
        Err(error) => {
            let now = Instant::now();
            match error {
                SideCallError::RateLimited => compactor.breaker.rate_limited(origin.tenant, &origin.upstream, now),
                _ => compactor.breaker.failed(origin.tenant, &origin.upstream, now),
            }
            shard.proxy.metrics.side_call_ended(error.label());
            tracing::warn!(%error, upstream = &*origin.upstream, "no summary");
            return None;
        }
    };
    compactor.breaker.succeeded(origin.tenant, &origin.upstream, tokens, Instant::now());
    shard.proxy.metrics.side_call_ended("ok");
    let composed = origin.think(&known, move |situation| {
        let (checkpoint, texts) = head::summary(situation, cut, Source::Model(&text))?;
        Some((situation.digest_at(checkpoint.covers)?, Arc::new(checkpoint), texts))
    });
    let (digest, checkpoint, texts): (Digest, _, _) = composed.await??;
    let prepared = Some((digest, Arc::clone(&checkpoint), Stage::Prepared));
    let batch = Batch { root: origin.root, texts: texts.clone(), evictions: Vec::new(), checkpoint: prepared };
    // What was paid for is of use to who waits for it, also where it cannot be kept.
    let texts = if compactor.commit(&origin, batch).await.is_ok() { Vec::new() } else { texts };
    Some(Prepared { checkpoint, texts: texts.into() })
}

/// The accepted summary and the tokens that its side calls cost.
async fn summarize(
    compactor: &Compactor,
    origin: &Arc<Origin>,
    known: &Known,
    cut: usize,
) -> Result<(String, u64), SideCallError> {
    let settings = origin.strategies.compaction.as_ref().ok_or(SideCallError::NotMade)?;
    let own = settings.model.is_none() && settings.upstream.is_none() && settings.summary_prompt.is_none();
    if own && compactor.sessions.get(origin.tenant, origin.root).warm {
        match warm(origin, known, cut).await {
            Ok(summary) => return Ok(summary),
            Err(error @ (SideCallError::RateLimited | SideCallError::Timeout | SideCallError::Connection)) => {
                return Err(error);
            }
            Err(error) => tracing::debug!(%error, "no summary from the cached prefix"),
        }
    }
    let caller = Caller::new(compactor, origin, settings);
    match in_steps(&caller, origin, known, cut).await {
        // The configured model is not to be had: the request's own instead, once.
        Err(SideCallError::Status(400 | 403 | 404)) if settings.model.is_some() => {
            let own = CompactionSettings { model: None, upstream: None, ..settings.clone() };
            in_steps(&Caller::new(compactor, origin, &own), origin, known, cut).await
        }
        result => result,
    }
}

/// Where transcripts go.
struct Caller<'o> {
    origin: &'o Origin,
    /// Index of the upstream.
    index: usize,
    model: String,
    /// Input tokens of one step.
    room: u64,
    template: Option<Arc<str>>,
}

impl<'o> Caller<'o> {
    fn new(compactor: &Compactor, origin: &'o Origin, settings: &CompactionSettings) -> Self {
        let config = &origin.shard.proxy.config;
        let named = settings.upstream.as_ref();
        let index = named.and_then(|name| config.upstreams.iter().position(|upstream| upstream.name == *name));
        let index = index.unwrap_or(origin.index);
        let model = settings.model.clone().unwrap_or_else(|| origin.model.to_string());
        let upstream = config.upstreams.get(index).map_or("", |upstream| &upstream.name);
        let key = WindowKey { upstream, model: &model, ..origin.window_key() };
        let learned = compactor.store.window(&key);
        let learned = learned.map(|LearnedWindow { input, total }| Learned { input, total });
        let window = Window::resolve(config.window(&model, upstream), &model, learned);
        // A third is left for the frame, the earlier summary, the answer, and the estimate's error.
        let room = window.map_or(UNKNOWN_WINDOW_STEP, |window| window.input / 3 * 2);
        Self { origin, index, model, room, template: settings.summary_prompt.clone() }
    }

    /// One call with `prompt` as its only message.
    async fn ask(&self, prompt: &str) -> Result<Answer, SideCallError> {
        let body = Bytes::from(transcript_body(&self.model, prompt, self.origin.store));
        let (uri, headers) = match self.index == self.origin.index {
            true => (self.origin.uri.clone(), self.origin.headers.clone()),
            false => (self.other_uri()?, HeaderMap::from_iter([(CONTENT_TYPE, JSON)])),
        };
        call(&self.origin.shard, self.index, (uri, headers), vec![body]).await
    }

    fn other_uri(&self) -> Result<Uri, SideCallError> {
        let (route, _) = self.origin.shard.upstream(self.index).ok_or(SideCallError::NotMade)?;
        let rooted = route.upstream.base_url.path().trim_end_matches('/').is_empty();
        let path = if rooted { "/v1/chat/completions" } else { "/chat/completions" };
        route.target(&Uri::from_static(path)).ok_or(SideCallError::NotMade)
    }
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A prefix longer than the summarizer's window is folded in steps: each summary is input to the next.
async fn in_steps(
    caller: &Caller<'_>,
    origin: &Arc<Origin>,
    known: &Known,
    cut: usize,
) -> Result<(String, u64), SideCallError> {
    let room = origin.uncalibrated(caller.room);
    let planned = origin.think(known, move |situation| {
        let from = situation.summarized();
        let items = estimate::per_item(situation, situation.known.active.as_deref());
        steps(situation.conversation, from..cut, &items, room)
    });
    let planned = planned.await.ok_or(SideCallError::NotMade)?;
    let head = known.active.as_deref().and_then(|active| active.head.as_ref());
    let (mut summary, mut cost) = (head.map_or_else(String::new, |head| head.summary.clone()), 0);
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
        cost += answer.tokens;
        summary = accepted(origin, &answer, replaced)?;
    }
    match summary.is_empty() {
        true => Err(SideCallError::NotMade),
        false => Ok((summary, cost)),
    }
}

fn may_ask(origin: &Origin) -> bool {
    let compactor = origin.shard.proxy.compactor.as_ref();
    compactor.is_some_and(|compactor| compactor.breaker.allows(origin.tenant, &origin.upstream, Instant::now()))
}

/// The client's own request up to the cut, and one instruction: the provider reads it from its cache.
async fn warm(origin: &Arc<Origin>, known: &Known, cut: usize) -> Result<(String, u64), SideCallError> {
    let body = origin.body.clone();
    let made = origin.think(known, move |situation| {
        let Situation { conversation, known, .. } = *situation;
        let edits = warm_edits(conversation, render(conversation, known).edits, cut, WARM_INSTRUCTION)?;
        let items = estimate::per_item(situation, known.active.as_deref());
        let replaced: u64 = items.iter().take(cut).map(|tokens| u64::from(*tokens)).sum();
        Some((splice(&body, edits).ok()?, replaced as usize))
    });
    let (pieces, replaced) = made.await.flatten().ok_or(SideCallError::NotMade)?;
    let answer = call(&origin.shard, origin.index, (origin.uri.clone(), origin.headers.clone()), pieces).await?;
    Ok((accepted(origin, &answer, replaced)?, answer.tokens))
}

fn accepted(origin: &Origin, answer: &Answer, replaced: usize) -> Result<String, SideCallError> {
    let finish = match (answer.called_tool, answer.refused) {
        (true, _) => Finish::ToolCall,
        (_, true) => Finish::Refused,
        _ => Finish::of(answer.finish_reason.as_deref()),
    };
    let count = |text: &str| origin.tokens.count_text(text) as usize;
    Ok(accept(&answer.text, finish, replaced, &count)?)
}

/// One side call at the upstream `index`.
async fn call(
    shard: &Arc<Shard>,
    index: usize,
    (uri, mut headers): (Uri, HeaderMap),
    pieces: Vec<Bytes>,
) -> Result<Answer, SideCallError> {
    let (route, clients) = shard.upstream(index).ok_or(SideCallError::NotMade)?;
    headers.remove(ACCEPT_ENCODING);
    for name in NOT_REPEATED {
        headers.remove(HeaderName::from_static(name));
    }
    let body = BodyHeaders::Rewritten(total_len(&pieces) as u64);
    let mut request = Request::new(SendBody::Pieces(Pieces::new(pieces, Framing::Length, None)));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers::to_upstream(headers, route, Some(Dialect::Chat), body);
    let answered = tokio::time::timeout(CALL_TIME, async {
        let response = clients.send(route, request).await.map_err(|_| SideCallError::Connection)?;
        match response.status() {
            StatusCode::TOO_MANY_REQUESTS => return Err(SideCallError::RateLimited),
            status if !status.is_success() => return Err(SideCallError::Status(status.as_u16())),
            _ => {}
        }
        let encoding = Encoding::of(response.headers()).ok_or(SideCallError::Unreadable)?;
        let read = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        let read = read.map_err(|_| SideCallError::Connection)?.to_bytes();
        let decoded = decode(encoding, &read, MAX_ANSWER).map_err(|_| SideCallError::Unreadable)?;
        read_answer(&decoded).ok_or(SideCallError::Unreadable)
    });
    answered.await.unwrap_or(Err(SideCallError::Timeout))
}
