//! A request's way through the proxy, one stage a line.

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
mod forwarded;
pub mod headers;
pub mod hold;
pub mod holding;
pub mod identity;
pub mod intake;
pub mod jobs;
pub mod journal;
pub mod laid;
pub mod learning;
pub mod limits;
pub mod local;
pub mod look;
pub mod mcp;
pub mod memory;
pub mod observe;
pub mod origin;
pub mod outcome;
pub mod overlay;
mod planning;
mod pulse;
pub mod reading;
pub mod recent;
pub mod recovery;
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

use http::header::{EXPECT, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::request::Parts;
use http::{Method, Request, Response, Uri, Version};
use http_body::Body;
use hyper::body::Incoming;
use hyper_util::client::proxy::matcher::Matcher;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::body::SendBody;
use self::budget::Budget;
use self::chains::Beginning;
use self::compaction::Compactor;
use self::dial::{Dialing, SystemRoots};
use self::headers::BodyHeaders;
use self::hold::HOLD_TIME;
use self::holding::Held;
use self::intake::{Intake, Look, Taken};
use self::look::{Looked, Seen};
use self::observe::Watch;
use self::origin::Tools;
use self::outcome::{Outcome, Record};
use self::reading::Reading;
use self::relay::Relay;
use self::reply::{Fault, ReplyBody};
use self::rounds::Rounds;
use self::route::Route;
use self::upstream::Clients;
use self::work::Work;
use crate::config::Config;
use crate::store::Store;
use crate::telemetry::Metrics;
use crate::telemetry::metrics::Stage;
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
        let budget = Budget::new(config.server.max_buffered_bytes);
        let metrics = Metrics::new(config.upstreams.iter().map(|upstream| &*upstream.name));
        let compactor = store.map(|store| Compactor::new(&config, store));
        let reading = compactor.as_ref().map(|on| Arc::new(Reading::new(Arc::clone(&on.store), Arc::clone(&budget))));
        let hold_time = HOLD_TIME;
        Ok(Arc::new(Self { config, budget, metrics, compactor, hold_time, reading, routes, dialing }))
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

/// One request and its answer at a chosen upstream.
struct Exchange<'s> {
    shard: &'s Arc<Shard>,
    index: usize,
    route: &'s Route,
    clients: &'s Clients,
    dialect: Option<Dialect>,
}

/// What is added to an answer.
#[derive(Default)]
struct Additions {
    notes: Vec<(HeaderName, HeaderValue)>,
    watch: Option<Box<Watch>>,
    /// Where the model may call the proxy's own tools.
    rounds: Option<Box<Rounds>>,
}

impl Exchange<'_> {
    /// The body passes as it comes.
    async fn stream(
        &self,
        request: Request<Incoming>,
        mut record: Record,
    ) -> Result<Response<ReplyBody>, (Fault, Record)> {
        record.asked(self.dialect, self.index);
        let models = learning::asks_for_models(request.uri().path()) && request.method() == Method::GET;
        let asked = models.then(|| (request.uri().clone(), request.headers().clone()));
        let expects = request.headers().contains_key(EXPECT);
        let request = if expects { upstream::expect_continue(request) } else { request.map(SendBody::Stream) };
        match self.attempt(request, BodyHeaders::Kept).await {
            Ok(answer) => {
                let watch = asked.and_then(|(uri, headers)| {
                    learning::of_models(self.shard, self.index, (&uri, &headers), answer.headers())
                });
                Ok(self.relay(Held::untouched(answer), Additions { watch, ..Additions::default() }, record))
            }
            Err(fault) => Err((fault, record)),
        }
    }

    /// The body is taken in and perhaps another goes out.
    async fn look(
        &self,
        request: Request<Incoming>,
        look: Look,
        mut record: Record,
    ) -> Result<Response<ReplyBody>, (Fault, Record)> {
        record.asked(self.dialect, self.index);
        match self.rewrite(request, look, &mut record).await {
            Ok((held, additions)) => self.reply(held, additions, record).await,
            Err(fault) => Err((fault, record)),
        }
    }

    /// The answer as it comes, or as it is put together from several.
    async fn reply(
        &self,
        held: Held,
        mut additions: Additions,
        record: Record,
    ) -> Result<Response<ReplyBody>, (Fault, Record)> {
        match additions.rounds.take() {
            None => Ok(self.relay(held, additions, record)),
            Some(rounds) => Box::pin(self.answer(*rounds, (held, additions), record)).await,
        }
    }

    /// Take in → compaction → send → classify → perhaps a second attempt.
    async fn rewrite(
        &self,
        request: Request<Incoming>,
        look: Look,
        record: &mut Record,
    ) -> Result<(Held, Additions), Fault> {
        let (parts, body) = request.into_parts();
        let taken = intake::take(&self.shard.proxy, body, self.route.upstream.idle_timeout).await?;
        self.taken(parts, taken, look, record).await
    }

    /// What follows once the body was taken in, or could not be.
    async fn taken(
        &self,
        parts: Parts,
        taken: Taken,
        look: Look,
        record: &mut Record,
    ) -> Result<(Held, Additions), Fault> {
        let intake = match taken {
            Taken::Whole(intake) => intake,
            Taken::Passing(body) => {
                let answer = self.attempt(Request::from_parts(parts, body), BodyHeaders::TakenIn).await?;
                return Ok((Held::untouched(answer), Additions::default()));
            }
        };
        record.stage(Stage::Intake);
        let mut work = match self.work(&parts, &intake, look).await {
            Looked::Read(work) => work,
            Looked::Unread(seen) if look == Look::Rewrite => {
                return self.unread(parts, &intake, (seen, record)).await;
            }
            Looked::Unread(_) => {
                let request = Request::from_parts(parts, intake.original());
                drop(intake);
                let answer = self.attempt(request, BodyHeaders::TakenIn).await?;
                return Ok((Held::untouched(answer), Additions::default()));
            }
        };
        record.stage(Stage::Plan);
        let held = Box::pin(self.attempts(&parts, &intake, &mut work)).await?;
        record.stage(Stage::Upstream);
        record.compacted(&work);
        let head = (held.answer.status(), held.answer.headers());
        let watch = learning::of_call(self.shard, &mut work, head);
        let rounds = self.rounds(parts, intake, &work, &held).map(Box::new);
        Ok((held, Additions { notes: work.notes(), watch, rounds }))
    }

    /// One more model call of the same answer.
    async fn work_again(&self, parts: &Parts, intake: &Intake, tools: Tools) -> Option<Box<Work>> {
        let compactor = self.shard.proxy.compactor.as_ref()?;
        match compactor.look(origin::Incoming { tools, ..self.incoming(parts, intake)? }).await {
            Looked::Read(work) => Some(work),
            Looked::Unread(_) => None,
        }
    }

    async fn work(&self, parts: &Parts, intake: &Intake, look: Look) -> Looked {
        let compactor = self.shard.proxy.compactor.as_ref();
        if let Some((compactor, incoming)) = compactor.zip(self.incoming(parts, intake)) {
            match look {
                Look::Rewrite => return compactor.look(incoming).await,
                Look::Remember => Box::pin(compactor.pass(incoming)).await,
                Look::Away => {}
            }
        }
        Looked::Unread(Seen::default())
    }

    /// A body that was taken in, as compaction takes it. `None`: it is in no dialect.
    fn incoming<'r>(&'r self, parts: &'r Parts, intake: &Intake) -> Option<origin::Incoming<'r>> {
        let (shard, index, dialect) = (self.shard, self.index, self.dialect?);
        let permit = vec![Arc::clone(&intake.permit)];
        let (chains, body) = (Beginning::New, intake.body.clone());
        let (overlaid, tools) = (false, Tools::Offered);
        Some(origin::Incoming { shard, index, parts, dialect, chains, body, permit, overlaid, tools })
    }

    /// Headers → upstream. One upstream attempt. Not `async` as a whole, whose future would carry the request.
    fn attempt(
        &self,
        mut request: Request<SendBody>,
        body: BodyHeaders,
    ) -> impl Future<Output = Result<Response<Incoming>, Fault>> {
        let headers = std::mem::take(request.headers_mut());
        *request.headers_mut() = headers::to_upstream(headers, self.route, self.dialect, body);
        announce_chunks(&mut request);
        self.clients.send(self.route, request)
    }

    fn relay(&self, held: Held, additions: Additions, mut record: Record) -> Response<ReplyBody> {
        let Held { answer, pieces, trailers, failure } = held;
        let (mut parts, body) = answer.into_parts();
        record.status = parts.status.as_u16();
        parts.version = Version::HTTP_11;
        parts.headers = headers::to_client(parts.headers);
        parts.headers.extend(additions.notes);
        let relay = Relay::new(body, self.route.upstream.idle_timeout, record);
        let relay = relay.after(pieces, trailers, failure).watched_by(additions.watch);
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
