//! A strict provider on loopback: every request is checked, counted, answered and recorded. It speaks Chat
//! Completions, Responses and Messages, each at its own path.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use super::answer::{Answer, Usage};
use super::encoding::{Encodes, Encoding};
use super::names::Names;
use super::request::{Api, ModelRequest, STEP_HEADER};
use super::rules::{Rules, Violation};
use super::script::{Behaviour, Reply};
use super::serve::{Shared, accept, lock};
use super::surfaces::Surface;
use super::window::Limit;
use super::{messages, responses};

/// What a provider is like.
#[derive(Debug, Clone)]
pub struct Settings {
    pub limit: Limit,
    /// How a Chat Completions request that does not fit is refused.
    pub surface: Surface,
    /// Of Chat Completions.
    pub rules: Rules,
    pub responses: responses::Settings,
    pub messages: messages::Settings,
    /// Of tools, in all three.
    pub names: Names,
    pub behaviour: Behaviour,
    /// The encoding of answers, and of which.
    pub encoding: Encoding,
    pub encodes: Encodes,
    /// The models that `GET …/models` lists, with the window it announces (`context_length`).
    pub models: Vec<(String, Option<u64>)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limit: Limit::default(),
            surface: Surface::OpenAi,
            rules: Rules::default(),
            responses: responses::Settings::default(),
            messages: messages::Settings::default(),
            names: Names::default(),
            behaviour: Behaviour::default(),
            encoding: Encoding::Identity,
            encodes: Encodes::default(),
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
    /// Asks for what the provider does not do (`thread`): no rule is broken.
    Unsupported,
    /// Well-formed, and only its tokens were asked for.
    Counted,
    /// Asks nothing of the model: models, unknown paths, the opening of a socket.
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
    /// Nothing: not one of the three.
    pub api: Option<Api>,
    /// `GET` for what came over a socket.
    pub method: Method,
    /// Path and query.
    pub target: String,
    pub headers: HeaderMap,
    /// The body as received, before any decoding; of a socket one message.
    pub body: Bytes,
    pub verdict: Verdict,
    pub origin: Origin,
    /// Tokens; zero for what was not counted or not accepted, except `prompt`, which is there for all
    /// that was counted.
    pub usage: Usage,
    /// Thinking blocks that were dropped because what they are bound to had changed.
    pub dropped: usize,
    pub told: Told,
}

/// The bytes with which a request is answered over HTTP, as far as they have been handed on.
#[derive(Debug, Clone, Default)]
pub struct Told(Arc<Mutex<Vec<u8>>>);

impl Told {
    pub fn bytes(&self) -> Bytes {
        lock(&self.0).clone().into()
    }

    pub(super) fn add(&self, data: &[u8]) {
        lock(&self.0).extend_from_slice(data);
    }
}

/// A running provider; it stops when this is dropped.
#[derive(Debug)]
pub struct Provider {
    addr: SocketAddr,
    shared: Arc<Shared>,
    accept: AbortHandle,
}

impl Provider {
    /// Starts on a free port of the loopback interface, in the current runtime.
    pub async fn start(settings: Settings) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared::new(settings));
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

    /// The requests that asked for the model's answer, in order.
    pub fn completions(&self) -> Vec<Exchange> {
        let asked = |exchange: &Exchange| !matches!(exchange.verdict, Verdict::Other | Verdict::Counted);
        self.requests().into_iter().filter(asked).collect()
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
        self.shared.close_sockets();
    }
}

impl Exchange {
    /// The body as JSON; `Null` when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The request behind the body, under an empty head; `None`: it is none of the three APIs'.
    pub fn request(&self) -> Option<ModelRequest> {
        Some(ModelRequest::new(self.api?, self.json()))
    }

    /// How many answers the scripted agent had, by its own account.
    pub fn step(&self) -> Option<usize> {
        self.headers.get(STEP_HEADER)?.to_str().ok()?.parse().ok()
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
