//! The proxy's own model calls: summaries, made ahead in the background or waited for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use tokio::time::{timeout, timeout_at};

use super::body::{Framing, Pieces, SendBody};
use super::compaction::{Compactor, Conduct};
use super::encoding::{DecodeError, Encoding, decode};
use super::headers::{self, BodyHeaders};
use super::jobs::{Made, Prepared, Ticket};
use super::origin::Origin;
use super::work::{drop_beta, drop_option};
use crate::compact::budget::{Learned, Window};
use crate::compact::head::{self, Source};
use crate::compact::plan::Situation;
use crate::compact::render::render;
use crate::compact::summary::{Finish, Rejection, WARM_INSTRUCTION, accept, prompt, steps, transcript};
use crate::compact::{Known, estimate};
use crate::config::{Api, CompactionSettings, SignedThinking};
use crate::store::{Batch, LearnedWindow, Stage, WindowKey};
use crate::wire::side::{Answer, Envelope, warm_edits};
use crate::wire::splice::{splice, total_len};
use crate::wire::{Dialect, Digest, Errand};

/// How long a request that would overflow waits for its summary.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How long one side call may take.
const CALL_TIME: Duration = Duration::from_secs(120);
/// How long all calls for one summary may take together.
const JOB_TIME: Duration = Duration::from_secs(300);
/// Most bytes of a side call's answer as it is on the wire: a stream spends a hundred on every token.
const MAX_RAW_ANSWER: usize = 8 * 1024 * 1024;
/// Most bytes of an answer's text.
const MAX_ANSWER: usize = 1024 * 1024;
/// Bytes that count as one token where an answer does not say what it cost.
const BYTES_PER_TOKEN: u64 = 4;
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
    if compactor.conduct == Conduct::Rehearsing || Errand::of_path(origin.uri.path()) != Errand::Generate {
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
    let (origin, known) = (Arc::clone(origin), known.clone());
    compactor.jobs.join((origin.tenant, digest), move || make(origin, known, cut))
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
    ended(compactor, &origin, None);
    let composed = origin.think(&known, move |situation| {
        let (checkpoint, texts) = head::summary(situation, cut, Source::Model(&text))?;
        Some((situation.digest_at(checkpoint.covers)?, Arc::new(checkpoint), texts))
    });
    let (digest, checkpoint, texts): (Digest, _, _) = composed.await??;
    compactor.sessions.made(origin.payer(), digest);
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

/// Where transcripts go.
pub(super) struct Caller<'o> {
    origin: &'o Origin,
    /// Index of the upstream.
    index: usize,
    /// What is spoken there.
    dialect: Dialect,
    envelope: Envelope,
    /// Input tokens of one step.
    pub(super) room: u64,
    template: Option<Arc<str>>,
}

impl<'o> Caller<'o> {
    /// `settings`: the model and the upstream that are asked; the request's own where there are none.
    pub(super) fn new(compactor: &Compactor, origin: &'o Origin, settings: Option<&CompactionSettings>) -> Self {
        let config = &origin.shard.proxy.config;
        let named = settings.and_then(|settings| settings.upstream.as_ref());
        let index = named.and_then(|name| config.upstreams.iter().position(|upstream| upstream.name == *name));
        let index = index.unwrap_or(origin.index);
        let model = settings.and_then(|settings| settings.model.clone()).unwrap_or_else(|| origin.model.to_string());
        let upstream = config.upstreams.get(index).map_or("", |upstream| &upstream.name);
        let key = WindowKey { upstream, model: &model, ..origin.window_key() };
        let learned = compactor.store.window(&key);
        let learned = learned.map(|LearnedWindow { input, total }| Learned { input, total });
        let window = Window::resolve(config.window(&model, upstream), (&model, origin.betas()), learned);
        // A third is left for the frame, the earlier summary, the answer (half of it), and the estimate's error.
        let room = window.map_or(UNKNOWN_WINDOW_STEP, |window| window.input / 3 * 2);
        let api = config.upstreams.get(index).filter(|_| index != origin.index).map(|upstream| upstream.api);
        let dialect = api.and_then(Api::dialect).unwrap_or(origin.dialect);
        let mut envelope = Envelope { room: room / 4, ..origin.envelope.clone() };
        // What the path names is named once.
        if settings.is_some_and(|settings| settings.model.is_some()) || index != origin.index {
            envelope.model = Some(model);
        }
        // Elsewhere a header says it.
        if index != origin.index {
            envelope.version = None;
        }
        let template = settings.and_then(|settings| settings.summary_prompt.clone());
        Self { origin, index, dialect, envelope, room, template }
    }

    /// One call with `prompt` as its only message.
    pub(super) async fn ask(&self, prompt: &str) -> Result<Answer, SideCallError> {
        let body = Bytes::from(self.dialect.transcript_body(&self.envelope, prompt));
        let (uri, headers) = match self.index == self.origin.index {
            true => (self.origin.uri.clone(), self.origin.headers.clone()),
            false => (self.other_uri()?, self.other_headers()),
        };
        call(self.origin, (self.index, self.dialect), (uri, headers), vec![body]).await
    }

    /// Anthropic wants its version named.
    fn other_headers(&self) -> HeaderMap {
        let version = (HeaderName::from_static("anthropic-version"), HeaderValue::from_static("2023-06-01"));
        let version = Some(version).filter(|_| self.dialect == Dialect::Messages);
        [(CONTENT_TYPE, JSON)].into_iter().chain(version).collect()
    }

    fn other_uri(&self) -> Result<Uri, SideCallError> {
        let (route, _) = self.origin.shard.upstream(self.index).ok_or(SideCallError::NotMade)?;
        let rooted = route.upstream.base_url.path().trim_end_matches('/').is_empty();
        let path = self.dialect.path();
        let path = if rooted { format!("/v1{path}") } else { path.to_owned() };
        path.parse().ok().and_then(|path| route.target(&path)).ok_or(SideCallError::NotMade)
    }
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");

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
    let mut headers = origin.headers.clone();
    if drops {
        drop_beta(&mut headers);
    }
    let answer = call(origin, (origin.index, origin.dialect), (origin.uri.clone(), headers), pieces).await?;
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

/// One side call at the upstream `index`. What its answer costs is charged whatever it is good for.
async fn call(
    origin: &Origin,
    (index, dialect): (usize, Dialect),
    (uri, mut headers): (Uri, HeaderMap),
    pieces: Vec<Bytes>,
) -> Result<Answer, SideCallError> {
    let (route, clients) = origin.shard.upstream(index).ok_or(SideCallError::NotMade)?;
    headers.remove(ACCEPT_ENCODING);
    for name in NOT_REPEATED {
        headers.remove(HeaderName::from_static(name));
    }
    let sent = total_len(&pieces) as u64;
    let body = BodyHeaders::Rewritten(sent);
    let mut request = Request::new(SendBody::Pieces(Pieces::new(pieces, Framing::Length, None)));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers::to_upstream(headers, route, Some(dialect), body);
    let deadline = tokio::time::Instant::now() + CALL_TIME;
    let response = timeout_at(deadline, clients.send(route, request)).await.map_err(|_| SideCallError::Timeout)?;
    let response = response.map_err(|_| SideCallError::Connection)?;
    let compactor = origin.shard.proxy.compactor.as_ref().ok_or(SideCallError::NotMade)?;
    let (tenant, upstream, now) = (origin.tenant, &origin.upstream, Instant::now());
    compactor.breaker.observe(tenant, upstream, (response.status().as_u16(), response.headers()), now);
    match response.status() {
        StatusCode::TOO_MANY_REQUESTS => return Err(SideCallError::RateLimited),
        status if !status.is_success() => return Err(SideCallError::Status(status.as_u16())),
        _ => {}
    }
    let answer = timeout_at(deadline, read(dialect, response)).await.unwrap_or(Err(SideCallError::Timeout));
    compactor.breaker.spent(tenant, upstream, cost(sent, &answer), now);
    answer
}

/// The whole answer.
async fn read(dialect: Dialect, response: Response<Incoming>) -> Result<Answer, SideCallError> {
    let encoding = Encoding::of(response.headers()).ok_or(SideCallError::Unreadable)?;
    let read = Limited::new(response.into_body(), MAX_RAW_ANSWER).collect().await;
    let read = read.map_err(|error| match error.is::<LengthLimitError>() {
        true => SideCallError::TooLong,
        false => SideCallError::Connection,
    });
    let decoded = decode(encoding, &read?.to_bytes(), MAX_RAW_ANSWER).map_err(|error| match error {
        DecodeError::TooLarge => SideCallError::TooLong,
        DecodeError::Broken => SideCallError::Unreadable,
    })?;
    let answer = dialect.read_answer(&decoded).ok_or(SideCallError::Unreadable)?;
    if answer.text.len() > MAX_ANSWER { Err(SideCallError::TooLong) } else { Ok(answer) }
}

/// Tokens that an answer has cost; by the bytes where it does not say.
fn cost(sent: u64, answer: &Result<Answer, SideCallError>) -> u64 {
    let told = answer.as_ref().map_or(0, |answer| answer.tokens);
    let said = answer.as_ref().map_or(0, |answer| answer.text.len() as u64);
    if told > 0 { told } else { (sent + said) / BYTES_PER_TOKEN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_costs_what_it_says_or_what_its_bytes_say() {
        let answer = |tokens| Ok(Answer { tokens, text: "four".into(), ..Answer::default() });
        assert_eq!(cost(4_000, &answer(70)), 70);
        assert_eq!(cost(4_000, &answer(0)), 1_001);
        assert_eq!(cost(4_000, &Err(SideCallError::Unreadable)), 1_000);
    }
}
