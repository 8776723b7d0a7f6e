//! A request's way through the proxy, one stage a line.

mod admitted;
pub mod agent;
mod aliases;
mod asides;
mod askers;
mod attempts;
mod bindings;
pub mod body;
pub mod breaker;
pub mod budget;
pub mod chains;
pub mod compaction;
pub mod dial;
pub mod encoding;
mod exchange;
mod foresight;
mod forwarded;
pub mod headers;
pub mod hold;
pub mod holding;
pub mod identity;
pub mod intake;
pub mod jobs;
pub mod journal;
pub mod laid;
mod last;
pub mod learning;
pub mod legible;
pub mod limits;
pub mod local;
pub mod look;
pub mod mcp;
pub mod memory;
pub mod observe;
mod offered;
pub mod origin;
pub mod outcome;
pub mod overlay;
mod planning;
mod pulse;
mod readers;
pub mod reading;
pub mod recent;
pub mod recovery;
mod refused_tools;
pub mod rehearsal;
pub mod relay;
mod remembered;
pub mod reply;
mod rounds;
pub mod route;
pub mod second;
pub mod sessions;
mod shaped;
pub mod sidecall;
mod socket;
mod spliced;
pub mod tenant;
pub mod unread;
pub mod upgrade;
pub mod upstream;
pub mod work;
pub mod workers;
pub mod workspace;

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{Method, Request, Response, Uri, Version};
use hyper::body::Incoming;
use hyper_util::client::proxy::matcher::Matcher;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::budget::Budget;
use self::compaction::{Compactor, Conduct};
use self::dial::{Dialing, SystemRoots};
use self::exchange::{Additions, Exchange};
use self::hold::HOLD_TIME;
use self::intake::Look;
use self::outcome::{Outcome, Record};
use self::reading::Reading;
use self::reply::{Fault, ReplyBody};
use self::route::Route;
use self::upstream::Clients;
use crate::config::Config;
use crate::store::Store;
use crate::telemetry::Metrics;
use crate::wire::Dialect;

/// What all shards share.
pub struct Proxy {
    pub config: Config,
    pub budget: Arc<Budget>,
    pub metrics: Arc<Metrics>,
    /// `None`: no strategy is on, every request streams through.
    pub compactor: Option<Compactor>,
    /// How long the beginning of an answer is held back at most.
    pub hold_time: Duration,
    /// `None` where there is no store.
    pub reading: Option<Arc<Reading>>,
    routes: Vec<Route>,
    dialing: Vec<Dialing>,
}

/// What one core uses: the proxy and its own connections to the upstreams.
pub struct Shard {
    pub proxy: Arc<Proxy>,
    clients: Vec<Clients>,
    /// Everything that a graceful end waits for.
    pub tasks: TaskTracker,
    /// Cancelled when the end begins: what has no end of its own looks for one.
    pub ending: CancellationToken,
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
    /// `HTTPS_PROXY` and `NO_PROXY` as the environment has them now. Without a store nothing is rewritten.
    pub fn new(config: Config, store: Option<Arc<Store>>) -> Result<Arc<Self>, SetupError> {
        Self::with_proxies(config, store, &dial::proxies())
    }

    /// `matcher` says which upstreams are reached through an HTTP proxy.
    pub fn with_proxies(config: Config, store: Option<Arc<Store>>, matcher: &Matcher) -> Result<Arc<Self>, SetupError> {
        let routes = config.upstreams.iter().map(|upstream| Route::new(Arc::clone(upstream)));
        let routes = routes.collect::<Result<Vec<_>, _>>()?;
        let mut roots = SystemRoots::default();
        let dialing = routes.iter().map(|route| Dialing::new(route, matcher, &mut roots));
        let dialing = dialing.collect::<Result<_, _>>()?;
        let compactor = store.map(|store| Compactor::new(&config, store, Conduct::Serving));
        Ok(Self::of(config, compactor, (routes, dialing)))
    }

    /// Goes the way of a request as far as its body to send.
    fn rehearsing(config: Config, store: Arc<Store>) -> Result<Arc<Self>, SetupError> {
        let routes = config.upstreams.iter().map(|upstream| Route::new(Arc::clone(upstream)));
        let routes = routes.collect::<Result<Vec<_>, _>>()?;
        let compactor = Compactor::new(&config, store, Conduct::Rehearsing);
        Ok(Self::of(config, Some(compactor), (routes, Vec::new())))
    }

    fn of(config: Config, compactor: Option<Compactor>, (routes, dialing): (Vec<Route>, Vec<Dialing>)) -> Arc<Self> {
        let budget = Budget::new(config.server.max_buffered_bytes);
        let metrics = Metrics::new(config.upstreams.iter().map(|upstream| &*upstream.name));
        let reading = compactor.as_ref().map(|on| Arc::new(Reading::new(Arc::clone(&on.store), Arc::clone(&budget))));
        let hold_time = HOLD_TIME;
        Arc::new(Self { config, budget, metrics, compactor, hold_time, reading, routes, dialing })
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
        Arc::new(Self { proxy, clients, tasks: TaskTracker::new(), ending: CancellationToken::new() })
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
        return Box::pin(local::serve(&shard.proxy, request)).await;
    }
    let target = match shard.proxy.target(request.method(), request.uri(), request.headers()) {
        Ok(target) => target,
        Err(fault) => {
            record.close(fault.outcome);
            return reply::error(route::error_dialect(request.uri().path()), &fault);
        }
    };
    let dialect = target.dialect;
    match forward(shard, target, request, record).await {
        Ok(response) => response,
        Err((fault, mut record)) => {
            record.close(fault.outcome);
            reply::error(dialect, &fault)
        }
    }
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
    let exchange = Exchange { shard: &shard, index: target.index, route, clients, dialect: target.dialect };
    let call = route::model_call(route.upstream.api, request.method(), target.uri.path());
    let look = match (call, &shard.proxy.compactor) {
        (Some(_), Some(_)) => {
            intake::permits(request.headers(), request.uri().query(), shard.proxy.config.server.max_body_bytes)
        }
        _ => Look::Away,
    };
    let spoken = exchange.spoken(&request, target.uri.path());
    let request = retarget(request, target.uri);
    match look {
        Look::Away if !spoken.is_empty() => Box::pin(exchange.shaped(request, spoken, record)).await,
        Look::Away => Box::pin(exchange.stream(request, record)).await,
        look => Box::pin(exchange.look(request, look, record)).await,
    }
}

/// The request with its target at the upstream, in HTTP/1.1 whatever the client spoke.
fn retarget(request: Request<Incoming>, uri: Uri) -> Request<Incoming> {
    let (mut parts, body): (Parts, Incoming) = request.into_parts();
    if parts.version == Version::HTTP_2 {
        headers::join_cookies(&mut parts.headers);
    }
    parts.uri = uri;
    parts.version = Version::HTTP_11;
    Request::from_parts(parts, body)
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
