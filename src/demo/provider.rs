//! A strict provider on loopback: every request is checked, counted, answered and recorded.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use http_body_util::BodyExt;
use http_body_util::combinators::BoxBody;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use super::answer::{Answer, Usage};
use super::cache::PromptCache;
use super::encoding::{self, Encoding};
use super::reply;
use super::request::ChatRequest;
use super::rules::{self, Rules, Violation};
use super::script::{Behaviour, Reply, asks_for_summary};
use super::surfaces::{Refused, Surface};
use super::window::{Counter, Limit, Misfit, Prompt, count, fits};

/// What a provider is like.
#[derive(Debug, Clone)]
pub struct Settings {
    pub limit: Limit,
    /// How a request that does not fit is refused.
    pub surface: Surface,
    pub rules: Rules,
    pub behaviour: Behaviour,
    /// The encoding of answers, where the client accepts it.
    pub encoding: Encoding,
    /// The models that `GET …/models` lists, with the window it announces (`context_length`).
    pub models: Vec<(String, Option<u64>)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limit: Limit::default(),
            surface: Surface::OpenAi,
            rules: Rules::default(),
            behaviour: Behaviour::default(),
            encoding: Encoding::Identity,
            models: vec![(super::MODEL.to_owned(), None)],
        }
    }
}

/// How a request fared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Well-formed and within the limits: the behaviour decided what came back.
    Accepted,
    /// A structural rule was broken; its id.
    Violated(&'static str),
    /// The prompt reaches the limit.
    Overflow,
    /// Prompt and requested output together reach the limit.
    Budget,
    /// Not a completion: models, unknown paths.
    Other,
}

/// Whose idea a request was, by what it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Origin {
    #[default]
    Agent,
    /// A proxy's: its last user message asks for a summary.
    SideCall,
}

/// One request and how it fared.
#[derive(Debug, Clone)]
pub struct Exchange {
    pub method: Method,
    /// Path and query.
    pub target: String,
    pub headers: HeaderMap,
    /// The body as received, before any decoding.
    pub body: Bytes,
    pub verdict: Verdict,
    pub origin: Origin,
    /// Tokens; zero for what was not counted or not accepted, except `prompt`, which is there for all
    /// that was counted.
    pub usage: Usage,
}

/// A running provider; it stops when this is dropped.
#[derive(Debug)]
pub struct Provider {
    addr: SocketAddr,
    shared: Arc<Shared>,
    accept: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    settings: Settings,
    limit: Mutex<Limit>,
    counter: Counter,
    cache: Mutex<PromptCache>,
    exchanges: Mutex<Vec<Exchange>>,
    violations: Mutex<Vec<Violation>>,
}

type Body = BoxBody<Bytes, io::Error>;

impl Provider {
    /// Starts on a free port of the loopback interface, in the current runtime.
    pub async fn start(settings: Settings) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared {
            limit: Mutex::new(settings.limit),
            settings,
            counter: Counter::default(),
            cache: Mutex::default(),
            exchanges: Mutex::default(),
            violations: Mutex::default(),
        });
        let accept = tokio::spawn(accept(listener, shared.clone())).abort_handle();
        Ok(Self { addr, shared, accept })
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What an agent would have as its base URL.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.addr)
    }

    /// All requests so far, in the order in which they were judged.
    pub fn requests(&self) -> Vec<Exchange> {
        lock(&self.shared.exchanges).clone()
    }

    /// The requests that asked for completions, in order.
    pub fn completions(&self) -> Vec<Exchange> {
        self.requests().into_iter().filter(|exchange| exchange.verdict != Verdict::Other).collect()
    }

    /// All broken structural rules so far, in order.
    pub fn violations(&self) -> Vec<Violation> {
        lock(&self.shared.violations).clone()
    }

    /// Changes the limit from the next request on, without telling anybody.
    pub fn set_limit(&self, limit: Limit) {
        *lock(&self.shared.limit) = limit;
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Dropped with the task: then all connections end.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(connection(stream, shared.clone()));
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    // Best effort: without it an event may wait for the next one.
    stream.set_nodelay(true).ok();
    let service = service_fn(move |request| {
        let shared = shared.clone();
        async move { shared.serve(request).await }
    });
    let served = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    if let Err(error) = served.await {
        tracing::debug!(%error, "provider connection ended");
    }
}

/// What there is of a request before it is judged.
struct Received {
    method: Method,
    target: String,
    headers: HeaderMap,
    body: Bytes,
    origin: Origin,
}

/// Why a completion is not answered by the behaviour.
enum Denied {
    Violation(Violation),
    Misfit(Misfit),
}

impl Shared {
    /// An error closes the connection before a head was sent.
    async fn serve(self: Arc<Self>, request: http::Request<Incoming>) -> io::Result<Response<Body>> {
        let (head, body) = request.into_parts();
        let target = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
        let received = body.collect().await;
        let cut = received.is_err();
        let body = received.map(|body| body.to_bytes()).unwrap_or_default();
        let received = Received { method: head.method, target, headers: head.headers, body, origin: Origin::Agent };
        if cut {
            let violation = rules::invalid("P1", "The body ended before its length.", None, None);
            lock(&self.violations).push(violation);
            self.record(received, Verdict::Violated("P1"), Usage::default());
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let path = head.uri.path().trim_end_matches('/');
        if received.method == Method::GET && path.ends_with("/models") {
            let listed = self.models();
            self.record(received, Verdict::Other, Usage::default());
            return json_response(200, &listed);
        }
        if received.method != Method::POST || !path.ends_with("/chat/completions") {
            let text = format!("Invalid URL ({} {path})", received.method);
            self.record(received, Verdict::Other, Usage::default());
            return json_response(404, &rules::invalid("", &text, None, None).body);
        }
        self.complete(received).await
    }

    fn models(&self) -> Value {
        let models = self.settings.models.iter().map(|(id, window)| {
            let mut model = json!({"id": id, "object": "model", "created": 0, "owned_by": "demo"});
            if let (Some(window), Some(model)) = (window, model.as_object_mut()) {
                model.insert("context_length".to_owned(), (*window).into());
            }
            model
        });
        json!({"object": "list", "data": models.collect::<Vec<_>>()})
    }

    async fn complete(&self, mut received: Received) -> io::Result<Response<Body>> {
        let accepted = encoding::accepted(&received.headers, self.settings.encoding);
        let parsed = self.parse(&received).await;
        if parsed.as_ref().is_ok_and(asks_for_summary) {
            received.origin = Origin::SideCall;
        }
        let judged = parsed.and_then(|request| self.judge(request));
        let (request, prompt) = match judged {
            Ok(judged) => judged,
            Err((Denied::Violation(violation), _)) => {
                self.record(received, Verdict::Violated(violation.rule), Usage::default());
                lock(&self.violations).push(violation.clone());
                return json_response(violation.status, &violation.body);
            }
            Err((Denied::Misfit(misfit), stream)) => {
                let (verdict, input) = match misfit {
                    Misfit::Overflow { input, .. } => (Verdict::Overflow, input),
                    Misfit::Budget { input, .. } => (Verdict::Budget, input),
                };
                self.record(received, verdict, Usage { prompt: input, ..Usage::default() });
                return refused(self.settings.surface.refuse(misfit, stream)).await;
            }
        };
        let cached = lock(&self.cache).read(request.model(), &prompt);
        let mut usage = Usage { prompt: prompt.total(), cached, completion: 0 };
        let reply = self.settings.behaviour.reply(&request);
        if let Reply::Say(answer) | Reply::Late(_, answer) | Reply::CutOff { answer, .. } = &reply {
            usage.completion = count(&answer.written());
        }
        self.record(received, Verdict::Accepted, usage);
        reply::send(reply, &request, usage, accepted).await
    }

    /// The request behind the bytes, if they are what the head says.
    async fn parse(&self, received: &Received) -> Result<ChatRequest, (Denied, bool)> {
        let unreadable = || (Denied::Violation(rules::unreadable()), false);
        let decoded = encoding::decode(&received.headers, &received.body).await.map_err(|_| unreadable())?;
        let body = serde_json::from_slice(&decoded).map_err(|_| unreadable())?;
        let index = lock(&self.exchanges).iter().filter(|earlier| earlier.verdict != Verdict::Other).count();
        Ok(ChatRequest { headers: received.headers.clone(), body, body_len: decoded.len(), index })
    }

    fn judge(&self, request: ChatRequest) -> Result<(ChatRequest, Prompt), (Denied, bool)> {
        let stream = request.stream();
        self.settings.rules.check(&request.body).map_err(|violation| (Denied::Violation(violation), stream))?;
        let prompt = self.counter.prompt(&request);
        let limit = *lock(&self.limit);
        fits(limit, &prompt, request.max_output().unwrap_or_default())
            .map_err(|misfit| (Denied::Misfit(misfit), stream))?;
        Ok((request, prompt))
    }

    fn record(&self, received: Received, verdict: Verdict, usage: Usage) {
        let Received { method, target, headers, body, origin } = received;
        lock(&self.exchanges).push(Exchange { method, target, headers, body, verdict, origin, usage });
    }
}

async fn refused(refused: Refused) -> io::Result<Response<Body>> {
    let mut body = refused.body;
    let mut response = Response::builder().status(refused.status).header(header::CONTENT_TYPE, refused.content_type);
    if refused.gzip {
        body = encoding::encode(Encoding::Gzip, &[body]).await?.concat().into();
        response = response.header(header::CONTENT_ENCODING, "gzip");
    }
    response.body(whole(body)).map_err(io::Error::other)
}

fn json_response(status: u16, body: &Value) -> io::Result<Response<Body>> {
    let mut response = Response::new(whole(body.to_string().into()));
    *response.status_mut() = StatusCode::from_u16(status).map_err(io::Error::other)?;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// A body in one piece.
pub(super) fn whole(body: Bytes) -> Body {
    http_body_util::Full::new(body).map_err(|never: Infallible| match never {}).boxed()
}

impl Exchange {
    /// The body as JSON; `Null` when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The answer's tokens that were billed in full: neither cached nor written.
    pub fn uncached(&self) -> u64 {
        self.usage.prompt.saturating_sub(self.usage.cached)
    }
}

impl Answer {
    /// A reply that says it.
    pub fn reply(self) -> Reply {
        Reply::Say(self)
    }
}
