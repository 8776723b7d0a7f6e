//! A request's way through the proxy, one stage a line.

pub mod body;
pub mod breaker;
pub mod budget;
pub mod compaction;
pub mod dial;
pub mod encoding;
pub mod headers;
pub mod hold;
pub mod intake;
pub mod jobs;
pub mod local;
pub mod observe;
pub mod outcome;
pub mod relay;
pub mod reply;
pub mod route;
pub mod sessions;
pub mod upgrade;
pub mod upstream;

use std::sync::Arc;

use http::header::{EXPECT, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::request::Parts;
use http::{Method, Request, Response, Uri, Version};
use http_body::Body;
use hyper::body::Incoming;
use hyper_util::client::proxy::matcher::Matcher;
use tokio_util::task::TaskTracker;

use self::body::SendBody;
use self::budget::Budget;
use self::compaction::Prepared;
use self::dial::{Dialing, SystemRoots};
use self::headers::BodyHeaders;
use self::intake::Taken;
use self::observe::Watch;
use self::outcome::{Counters, Outcome, Record};
use self::relay::Relay;
use self::reply::{Fault, ReplyBody};
use self::route::Route;
use self::upstream::Clients;
use crate::config::Config;
use crate::wire::Dialect;

/// What all shards share.
pub struct Proxy {
    pub config: Config,
    pub budget: Arc<Budget>,
    pub counters: Counters,
    routes: Vec<Route>,
    dialing: Vec<Dialing>,
}

/// What one core uses: the proxy and its own connections to the upstreams.
pub struct Shard {
    pub proxy: Arc<Proxy>,
    clients: Vec<Clients>,
    /// Everything that a graceful end waits for.
    pub tasks: TaskTracker,
}

/// Where a request goes.
pub struct Target {
    /// Index of the upstream.
    pub index: usize,
    pub uri: Uri,
    /// The dialect of the path at the upstream, for keys and errors.
    pub dialect: Option<Dialect>,
}

/// A configuration that cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error(transparent)]
    Route(#[from] route::RouteError),
    #[error(transparent)]
    Dial(#[from] dial::DialError),
}

impl Proxy {
    /// `HTTPS_PROXY` and `NO_PROXY` as the environment has them now.
    pub fn new(config: Config) -> Result<Arc<Self>, SetupError> {
        Self::with_proxies(config, &Matcher::from_env())
    }

    /// `matcher` says which upstreams are reached through an HTTP proxy.
    pub fn with_proxies(config: Config, matcher: &Matcher) -> Result<Arc<Self>, SetupError> {
        let routes = config.upstreams.iter().map(|upstream| Route::new(Arc::clone(upstream)));
        let routes = routes.collect::<Result<Vec<_>, _>>()?;
        let mut roots = SystemRoots::default();
        let dialing = routes.iter().map(|route| Dialing::new(route, matcher, &mut roots));
        let dialing = dialing.collect::<Result<_, _>>()?;
        let budget = Budget::new(config.server.max_buffered_bytes);
        Ok(Arc::new(Self { config, budget, counters: Counters::register(), routes, dialing }))
    }

    /// Whether any strategy may have a say in requests of this dialect.
    fn looks_at(&self, dialect: Dialect) -> bool {
        let strategies = &self.config.strategies;
        let any = strategies.eviction.is_some()
            || strategies.truncate.is_some()
            || strategies.prune.is_some()
            || strategies.compaction.is_some()
            || strategies.recovery
            || !self.config.policies.is_empty();
        any && dialect == Dialect::Chat
    }

    fn target(&self, method: &Method, uri: &Uri, headers: &http::HeaderMap) -> Result<Target, Fault> {
        let not_a_path = || Fault::new(Outcome::BadTarget, "the request's target is no path of the upstream's");
        if method == Method::CONNECT {
            return Err(not_a_path());
        }
        let index = route::choose(&self.routes, uri.path(), headers);
        let uri = self.routes.get(index).and_then(|route| route.target(uri)).ok_or_else(not_a_path)?;
        let dialect = route::error_dialect(uri.path());
        Ok(Target { index, uri, dialect })
    }
}

impl Shard {
    /// To be made on the runtime that will use it.
    pub fn new(proxy: Arc<Proxy>) -> Arc<Self> {
        let clients = proxy.dialing.iter().map(Clients::new).collect();
        Arc::new(Self { proxy, clients, tasks: TaskTracker::new() })
    }

    fn upstream(&self, index: usize) -> Option<(&Route, &Clients)> {
        self.proxy.routes.get(index).zip(self.clients.get(index))
    }
}

/// Answers one request.
pub async fn serve(shard: Arc<Shard>, request: Request<Incoming>) -> Response<ReplyBody> {
    let mut record = Record::open(Arc::clone(&shard));
    if local::is_own(request.uri().path()) {
        record.close(Outcome::Local);
        return local::serve(&shard.proxy, request.method(), request.uri());
    }
    let asked = route::error_dialect(request.uri().path());
    let (fault, mut record) = match shard.proxy.target(request.method(), request.uri(), request.headers()) {
        Err(fault) => (fault, record),
        Ok(target) => match forward(shard, target, request, record).await {
            Ok(response) => return response,
            Err(failed) => failed,
        },
    };
    record.close(fault.outcome);
    reply::error(asked, &fault)
}

/// A request of one kind or another on its way: a tunnel, a body that is looked at, or one that streams.
async fn forward(
    shard: Arc<Shard>,
    target: Target,
    request: Request<Incoming>,
    record: Record,
) -> Result<Response<ReplyBody>, (Fault, Record)> {
    if upgrade::is_wanted(request.version(), request.headers()) {
        return Box::pin(upgrade::open(shard, target, request, record)).await;
    }
    let Some((route, clients)) = shard.upstream(target.index) else { return Err((no_route(), record)) };
    let exchange = Exchange { proxy: &shard.proxy, route, clients, dialect: target.dialect };
    let call = route::model_call(route.upstream.api, request.method(), target.uri.path());
    let max_body_bytes = shard.proxy.config.server.max_body_bytes;
    let looked_at = call.is_some_and(|dialect| shard.proxy.looks_at(dialect))
        && intake::permits(request.headers(), request.uri().query(), max_body_bytes);
    let request = retarget(request, target.uri);
    if looked_at { Box::pin(exchange.look(request, record)).await } else { exchange.stream(request, record).await }
}

/// One request and its answer at a chosen upstream.
struct Exchange<'s> {
    proxy: &'s Proxy,
    route: &'s Route,
    clients: &'s Clients,
    dialect: Option<Dialect>,
}

/// What is added to an answer.
#[derive(Default)]
struct Additions {
    notes: Vec<(HeaderName, HeaderValue)>,
    watch: Option<Box<Watch>>,
}

impl Exchange<'_> {
    /// The body passes as it comes.
    async fn stream(&self, request: Request<Incoming>, record: Record) -> Result<Response<ReplyBody>, (Fault, Record)> {
        let expects = request.headers().contains_key(EXPECT);
        let request = if expects { upstream::expect_continue(request) } else { request.map(SendBody::Stream) };
        match self.attempt(request, BodyHeaders::Kept).await {
            Ok(answer) => Ok(self.relay(answer, Additions::default(), record)),
            Err(fault) => Err((fault, record)),
        }
    }

    /// The body is taken in and perhaps another goes out.
    async fn look(&self, request: Request<Incoming>, record: Record) -> Result<Response<ReplyBody>, (Fault, Record)> {
        match self.rewrite(request).await {
            Ok((answer, additions)) => Ok(self.relay(answer, additions, record)),
            Err(fault) => Err((fault, record)),
        }
    }

    /// Take in → prepare → send. A second attempt needs only `parts` again and another body.
    async fn rewrite(&self, request: Request<Incoming>) -> Result<(Response<Incoming>, Additions), Fault> {
        let (parts, body) = request.into_parts();
        let intake = match intake::take(self.proxy, body, self.route.upstream.idle_timeout).await? {
            Taken::Whole(intake) => intake,
            Taken::TooLarge(body) => {
                let answer = self.attempt(Request::from_parts(parts, body), BodyHeaders::TakenIn).await?;
                return Ok((answer, Additions::default()));
            }
        };
        let prepared = compaction::prepare(self.proxy, &parts, &intake).await;
        let (body, headers) = (prepared.body(&intake), prepared.headers());
        drop(intake);
        let answer = self.attempt(Request::from_parts(parts, body), headers).await?;
        let Prepared { notes, watch, pieces: _ } = prepared;
        Ok((answer, Additions { notes, watch }))
    }

    /// Headers → upstream. One upstream attempt.
    async fn attempt(&self, mut request: Request<SendBody>, body: BodyHeaders) -> Result<Response<Incoming>, Fault> {
        let headers = std::mem::take(request.headers_mut());
        *request.headers_mut() = headers::to_upstream(headers, self.route, self.dialect, body);
        announce_chunks(&mut request);
        self.clients.send(self.route, request).await
    }

    fn relay(&self, answer: Response<Incoming>, additions: Additions, mut record: Record) -> Response<ReplyBody> {
        let (mut parts, body) = answer.into_parts();
        record.status = parts.status.as_u16();
        parts.version = Version::HTTP_11;
        parts.headers = headers::to_client(parts.headers);
        parts.headers.extend(additions.notes);
        let relay = Relay::new(body, self.route.upstream.idle_timeout, record).watched_by(additions.watch);
        Response::from_parts(parts, ReplyBody::Relay(relay))
    }
}

/// The request with its target at the upstream, in HTTP/1.1 whatever the client spoke.
fn retarget(request: Request<Incoming>, uri: Uri) -> Request<Incoming> {
    let (mut parts, body): (Parts, Incoming) = request.into_parts();
    parts.uri = uri;
    parts.version = Version::HTTP_11;
    Request::from_parts(parts, body)
}

/// Says that a body of unknown length follows where the client library would take its absence for granted.
fn announce_chunks(request: &mut Request<SendBody>) {
    let bodiless = matches!(*request.method(), Method::GET | Method::HEAD);
    if bodiless && !request.body().is_end_stream() && request.body().size_hint().exact().is_none() {
        request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}

/// Cannot happen while routes and clients are made from the same list; answered rather than trusted.
fn no_route() -> Fault {
    Fault::new(Outcome::ConnectFailed, "there is no upstream for this request")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_future<F, A, B>(_: impl FnOnce(A, B) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_connections_fixed_cost_stays_small() {
        // Every connection keeps room for its request's future and its response's body.
        let (future, body) = (size_of_future(serve), size_of::<ReplyBody>());
        assert!(future <= 4 * 1024, "{future} bytes");
        assert!(body <= 512, "{body} bytes");
    }
}
