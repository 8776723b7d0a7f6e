//! What a provider does with a request, from the connection to the answer.

use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use http_body_util::BodyExt;
use http_body_util::combinators::BoxBody;
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use super::answer::Usage;
use super::cache::PromptCache;
use super::encoding::{self, Encodes, Encoding};
use super::judge::{Denied, Turn};
use super::provider::{Exchange, Origin, Settings, Told, Verdict};
use super::request::Api;
use super::responses::store::Store;
use super::rules::{self, Violation};
use super::script::Reply;
use super::surfaces::Refused;
use super::window::{Counter, Limit};
use super::{messages, reply, responses, socket};

/// A running provider's settings, memory and record.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) limit: Mutex<Limit>,
    pub(super) counter: Counter,
    pub(super) cache: Mutex<PromptCache>,
    pub(super) store: Mutex<Store>,
    pub(super) signatures: Mutex<messages::Signatures>,
    pub(super) exchanges: Mutex<Vec<Exchange>>,
    pub(super) violations: Mutex<Vec<Violation>>,
    pub(super) asked: AtomicUsize,
    sockets: Mutex<Vec<AbortHandle>>,
}

pub(super) type Body = BoxBody<Bytes, io::Error>;

/// What there is of a request before it is judged.
#[derive(Debug, Clone)]
pub(super) struct Received {
    pub api: Option<Api>,
    pub method: Method,
    /// Path and query.
    pub target: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub origin: Origin,
    pub told: Told,
}

/// What a request asks for, by its method and path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Models,
    Answer(Api),
    /// Messages: the tokens alone.
    Count,
    /// Responses: one item for the whole input.
    Compact,
    Conversation,
    Socket,
    Nothing,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>) {
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
    if let Err(error) = served.with_upgrades().await {
        tracing::debug!(%error, "provider connection ended");
    }
}

fn asked(method: &Method, path: &str, headers: &HeaderMap) -> Asked {
    let path = path.trim_end_matches('/');
    let upgrade = headers.get(header::UPGRADE).and_then(|value| value.to_str().ok());
    let endings = [
        ("/chat/completions", Asked::Answer(Api::Chat)),
        ("/responses", Asked::Answer(Api::Responses)),
        ("/responses/compact", Asked::Compact),
        ("/conversations", Asked::Conversation),
        ("/messages", Asked::Answer(Api::Messages)),
        ("/messages/count_tokens", Asked::Count),
    ];
    match *method {
        Method::GET if path.ends_with("/models") => Asked::Models,
        Method::GET
            if path.ends_with("/responses") && upgrade.is_some_and(|name| name.eq_ignore_ascii_case("websocket")) =>
        {
            Asked::Socket
        }
        Method::POST => {
            endings.iter().find(|(ending, _)| path.ends_with(ending)).map_or(Asked::Nothing, |(_, asked)| *asked)
        }
        _ => Asked::Nothing,
    }
}

impl Asked {
    fn api(self) -> Option<Api> {
        match self {
            Self::Answer(api) => Some(api),
            Self::Compact | Self::Socket | Self::Conversation => Some(Api::Responses),
            Self::Count => Some(Api::Messages),
            Self::Models | Self::Nothing => None,
        }
    }
}

impl Shared {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            limit: Mutex::new(settings.limit),
            settings,
            counter: Counter::default(),
            cache: Mutex::default(),
            store: Mutex::default(),
            signatures: Mutex::default(),
            exchanges: Mutex::default(),
            violations: Mutex::default(),
            asked: AtomicUsize::new(0),
            sockets: Mutex::default(),
        }
    }

    /// An error closes the connection before a head was sent.
    async fn serve(self: Arc<Self>, mut request: http::Request<Incoming>) -> io::Result<Response<Body>> {
        let asked = asked(request.method(), request.uri().path(), request.headers());
        let upgrade = (asked == Asked::Socket).then(|| hyper::upgrade::on(&mut request));
        let (head, body) = request.into_parts();
        let target = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
        let body = body.collect().await;
        let cut = body.is_err();
        let received = Received {
            api: asked.api(),
            method: head.method,
            target,
            headers: head.headers,
            body: body.map(|body| body.to_bytes()).unwrap_or_default(),
            origin: Origin::Agent,
            told: Told::default(),
        };
        let told = received.told.clone();
        if cut {
            let violation = rules::invalid("P1", "The body ended before its length.", None, None);
            lock(&self.violations).push(violation);
            self.record(received, Verdict::Violated("P1"), Usage::default());
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let response = match (asked, upgrade) {
            (Asked::Answer(_), _) => self.answer(received).await,
            (Asked::Count, _) => self.count(received).await,
            (Asked::Compact, _) => self.compact(received).await,
            (Asked::Socket, Some(upgrade)) => self.socket(received, upgrade),
            _ => self.other(asked, received),
        };
        Ok(response?.map(|body| heard(body, told)))
    }

    /// What asks nothing of the model.
    fn other(&self, asked: Asked, received: Received) -> io::Result<Response<Body>> {
        let (status, body) = match asked {
            Asked::Models => (200, self.models()),
            Asked::Conversation => (200, lock(&self.store).open()),
            _ => {
                let path = received.target.split('?').next().unwrap_or_default().trim_end_matches('/');
                let text = format!("Invalid URL ({} {path})", received.method);
                (404, rules::invalid("", &text, None, None).body)
            }
        };
        self.record(received, Verdict::Other, Usage::default());
        json_response(status, &body)
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

    async fn answer(&self, received: Received) -> io::Result<Response<Body>> {
        let encoding = match self.settings.encodes {
            Encodes::Accepted => encoding::accepted(&received.headers, self.settings.encoding),
            Encodes::All => self.settings.encoding,
        };
        match self.turn(received, None).await {
            Ok(turn) => reply::send(turn.reply, &turn.request, turn.usage, encoding).await,
            Err(denied) => self.deny(&denied).await,
        }
    }

    /// `…/messages/count_tokens` (A23).
    async fn count(&self, received: Received) -> io::Result<Response<Body>> {
        match self.counted(&received).await {
            Ok(tokens) => {
                self.record(received, Verdict::Counted, Usage { prompt: tokens, ..Usage::default() });
                json_response(200, &json!({"input_tokens": tokens}))
            }
            Err(denied) => {
                self.record_denied(received, &denied);
                self.deny(&denied).await
            }
        }
    }

    /// `…/responses/compact`: the input's messages of users, and one item for all else.
    async fn compact(&self, received: Received) -> io::Result<Response<Body>> {
        match self.turn(received, None).await {
            Ok(Turn { reply: Reply::Say(answer), request, usage }) => {
                json_response(200, &responses::compacted(&answer, &request, usage))
            }
            Ok(turn) => reply::send(turn.reply, &turn.request, turn.usage, Encoding::Identity).await,
            Err(denied) => self.deny(&denied).await,
        }
    }

    fn socket(self: Arc<Self>, received: Received, upgrade: hyper::upgrade::OnUpgrade) -> io::Result<Response<Body>> {
        self.record(received.clone(), Verdict::Other, Usage::default());
        if let responses::Socket::Refused(status) = self.settings.responses.socket {
            return json_response(status, &rules::invalid("", "WebSocket is not supported here.", None, None).body);
        }
        let response = socket::handshake(&received.headers)?;
        let task = tokio::spawn(socket::serve(self.clone(), received, upgrade)).abort_handle();
        lock(&self.sockets).push(task);
        Ok(response)
    }

    /// The refusal as a response of its own.
    async fn deny(&self, denied: &Denied) -> io::Result<Response<Body>> {
        match denied {
            Denied::Violation(violation) => json_response(violation.status, &violation.body),
            Denied::Misfit(misfit, request) => {
                let settings = &self.settings;
                refused(match request.api {
                    Api::Chat => settings.surface.refuse(*misfit, request.stream()),
                    Api::Responses => settings.responses.surface.refuse(*misfit, request),
                    Api::Messages => settings.messages.surface.refuse(*misfit, request),
                })
                .await
            }
        }
    }

    pub(super) fn record(&self, received: Received, verdict: Verdict, usage: Usage) {
        self.record_dropped(received, verdict, usage, 0);
    }

    pub(super) fn record_dropped(&self, received: Received, verdict: Verdict, usage: Usage, dropped: usize) {
        let Received { api, method, target, headers, body, origin, told } = received;
        let exchange = Exchange { api, method, target, headers, body, verdict, origin, usage, dropped, told };
        lock(&self.exchanges).push(exchange);
    }

    /// A number for every request that asks for an answer.
    pub(super) fn next_index(&self) -> usize {
        self.asked.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn close_sockets(&self) {
        lock(&self.sockets).drain(..).for_each(|task| task.abort());
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

/// The same body; what is handed on of it is kept.
fn heard(body: Body, told: Told) -> Body {
    let hear = move |frame: Frame<Bytes>| {
        if let Some(data) = frame.data_ref() {
            told.add(data);
        }
        frame
    };
    body.map_frame(hear).boxed()
}

/// A body in one piece.
pub(super) fn whole(body: Bytes) -> Body {
    http_body_util::Full::new(body).map_err(|never: Infallible| match never {}).boxed()
}
