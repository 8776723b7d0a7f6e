//! Where side calls go, and how their answers are read.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use tokio::time::timeout_at;

use super::super::body::{Framing, Pieces, SendBody};
use super::super::compaction::Compactor;
use super::super::encoding::{DecodeError, Encoding, decode};
use super::super::headers::{self, BodyHeaders};
use super::super::origin::Origin;
use super::SideCallError;
use crate::compact::budget::{Learned, Window};
use crate::config::{Api, CompactionSettings};
use crate::store::{LearnedWindow, WindowKey};
use crate::wire::Dialect;
use crate::wire::hosted::{self, Asked};
use crate::wire::side::{Answer, Envelope};
use crate::wire::splice::total_len;

/// How long one side call may take.
const CALL_TIME: Duration = Duration::from_secs(120);
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

/// Where transcripts go.
pub struct Caller<'o> {
    origin: &'o Origin,
    /// Index of the upstream.
    index: usize,
    /// What is spoken there.
    dialect: Dialect,
    /// The model, where it is another than the request's own.
    model: Option<String>,
    envelope: Envelope,
    /// Input tokens of one step.
    pub room: u64,
    pub template: Option<Arc<str>>,
}

impl<'o> Caller<'o> {
    /// `settings`: the model and the upstream that are asked; the request's own where there are none.
    pub fn new(compactor: &Compactor, origin: &'o Origin, settings: Option<&CompactionSettings>) -> Self {
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
        let other = settings.is_some_and(|settings| settings.model.is_some()) || index != origin.index;
        let other = other.then_some(model);
        // Where the path names the model, the body does so only if the client's does.
        let in_path = index == origin.index && hosted::model_of_path(origin.uri.path()).is_some();
        if other.is_some() && (!in_path || envelope.model.is_some()) {
            envelope.model.clone_from(&other);
        }
        // Elsewhere a header says it.
        if index != origin.index {
            envelope.version = None;
        }
        let template = settings.and_then(|settings| settings.summary_prompt.clone());
        Self { origin, index, dialect, model: other, envelope, room, template }
    }

    /// One call with `prompt` as its only message.
    pub async fn ask(&self, prompt: &str) -> Result<Answer, SideCallError> {
        let body = Bytes::from(self.dialect.transcript_body(&self.envelope, prompt));
        let (uri, headers) = match self.index == self.origin.index {
            true => own_call(self.origin, Asked::Whole, self.model.as_deref()),
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

/// Where a call of the client's own form goes, and its headers. A body that asks for no stream goes to where none is
/// answered: some hosts have a path for each.
pub fn own_call(origin: &Origin, asked: Asked, model: Option<&str>) -> (Uri, HeaderMap) {
    let (uri, mut headers) = (origin.uri.clone(), origin.headers.clone());
    let target = uri.path_and_query().map_or("", PathAndQuery::as_str);
    let other = hosted::other_call(target, asked, model).and_then(|target| {
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = Some(target.parse().ok()?);
        Uri::from_parts(parts).ok()
    });
    let Some(other) = other else { return (uri, headers) };
    // It may name the stream's form alone.
    headers.remove(ACCEPT);
    headers.remove(BEDROCK_ACCEPT);
    (other, headers)
}

/// Where Bedrock looks first for the answer's form.
const BEDROCK_ACCEPT: HeaderName = HeaderName::from_static("x-amzn-bedrock-accept");

/// One side call at the upstream `index`. What its answer costs is charged whatever it is good for.
pub async fn call(
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
