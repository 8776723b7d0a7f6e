//! An agent as most are: it keeps its whole history, sends it with every call, runs the tools that
//! the model asks for, and gives up at the first error.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use super::answer::Usage;
use super::client::{self, Ask, Heard};
use super::completion::error_message;
use super::request::{Api, STEP_HEADER};
use super::session::Session;

pub use super::client::Mode;

/// Header with what a proxy did to the request, comma-separated.
pub const ACTION_HEADER: &str = "x-compactproxy-action";

/// An agent with its settings.
#[derive(Debug, Clone)]
pub struct Agent {
    /// As `OPENAI_BASE_URL`: without a slash at the end.
    pub base_url: String,
    pub api: Api,
    pub model: String,
    /// Sent as a bearer token, or as the API has it.
    pub key: String,
    pub mode: Mode,
    /// Most tokens of an answer.
    pub max_output: Option<u64>,
    pub session: Arc<Session>,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// One model call.
#[derive(Debug, Clone)]
pub struct Turn {
    /// Length of the request's body.
    pub request_bytes: usize,
    /// How many messages (or items) of the history it carried.
    pub messages: usize,
    pub headers: HeaderMap,
    pub usage: Usage,
    /// The answer's body, as it came.
    pub answer: Bytes,
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Finished,
    /// The call after the last entry of `turns` failed.
    Died(Death),
}

/// What an agent that gives up has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Death {
    /// Counted from one.
    pub turn: usize,
    /// Zero: there was no response.
    pub status: u16,
    pub message: String,
}

/// A session that was run.
#[derive(Debug, Clone)]
pub struct Run {
    pub turns: Vec<Turn>,
    pub outcome: Outcome,
    /// All messages (or items), as JSON, in order.
    pub history: Vec<String>,
}

impl Agent {
    pub fn new(base_url: String, session: Arc<Session>) -> Self {
        Self {
            base_url,
            api: Api::Chat,
            model: super::MODEL.to_owned(),
            key: "demo-key".to_owned(),
            mode: Mode::Stream,
            max_output: None,
            session,
            client: Client::builder(TokioExecutor::new()).build_http(),
        }
    }

    /// Runs the session to its end or to the first error. `before` is told the number of each model
    /// call, counted from one, before it is made.
    pub async fn run(&self, mut before: impl FnMut(usize)) -> Run {
        let opening = client::of(self.api).opening(&self.session);
        let mut run = Run {
            turns: Vec::new(),
            outcome: Outcome::Finished,
            history: opening.iter().map(Value::to_string).collect(),
        };
        // As many agents do at their start; what comes back is of no importance to this one.
        self.send(Method::GET, "models", 0, Bytes::new()).await.ok();
        loop {
            let step = run.turns.len();
            before(step + 1);
            let body = self.body(&run.history);
            let (request_bytes, messages) = (body.len(), run.history.len());
            match self.call(step, body).await {
                Ok((headers, answer, heard)) => {
                    run.turns.push(Turn { request_bytes, messages, headers, usage: heard.usage, answer });
                    if !self.digest(step, &heard, &mut run.history) {
                        return run;
                    }
                }
                Err((status, message)) => {
                    run.outcome = Outcome::Died(Death { turn: step + 1, status, message });
                    return run;
                }
            }
        }
    }

    fn body(&self, history: &[String]) -> Bytes {
        let Self { model, session, mode, max_output, .. } = self;
        let ask = Ask { model, session, history, mode: *mode, max_output: *max_output };
        client::of(self.api).body(&ask).into()
    }

    async fn call(&self, step: usize, body: Bytes) -> Result<(HeaderMap, Bytes, Heard), (u16, String)> {
        let client = client::of(self.api);
        let sent = self.send(Method::POST, client.path(), step, body).await;
        let (status, headers, body) = sent.map_err(|message| (0, message))?;
        if status != StatusCode::OK {
            return Err((status.as_u16(), error_message(&body)));
        }
        let read = match self.mode {
            Mode::Stream => client.read_stream(&body),
            Mode::Whole => client.read_whole(&body),
        };
        read.map(|heard| (headers, body.clone(), heard)).map_err(|message| (status.as_u16(), message))
    }

    /// Gets a URL with the agent's own credential.
    pub async fn fetch(&self, url: &str) -> Result<(StatusCode, Bytes), String> {
        let request = self.request(Method::GET, url, Bytes::new())?;
        let response = self.client.request(request).await.map_err(|error| error.to_string())?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| error.to_string())?;
        Ok((head.status, body.to_bytes()))
    }

    fn request(&self, method: Method, url: &str, body: Bytes) -> Result<Request<Full<Bytes>>, String> {
        let request = Request::builder().method(method).uri(url).header(header::CONTENT_TYPE, "application/json");
        let credential = client::of(self.api).credential(&self.key).into_iter();
        let request = credential.fold(request, |request, (name, value)| request.header(name, value));
        request.body(Full::new(body)).map_err(|error| error.to_string())
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        step: usize,
        body: Bytes,
    ) -> Result<(StatusCode, HeaderMap, Bytes), String> {
        let mut request = self.request(method, &format!("{}/{path}", self.base_url), body)?;
        request.headers_mut().insert(STEP_HEADER, step.into());
        let response = self.client.request(request).await.map_err(|error| error.to_string())?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
        Ok((head.status, head.headers, body))
    }

    /// Takes an answer into the history and does what it asks for; false: the session is over.
    fn digest(&self, step: usize, heard: &Heard, history: &mut Vec<String>) -> bool {
        let client = client::of(self.api);
        history.extend(heard.items.iter().map(Value::to_string));
        if !heard.calls.is_empty() {
            let results = heard.calls.iter().map(|call| (call, self.session.execute(step, call)));
            history.extend(client.results(&results.collect::<Vec<_>>()).iter().map(Value::to_string));
            return true;
        }
        let typed = self.session.steps.get(step).and_then(|step| step.then.as_ref());
        history.extend(typed.map(|text| client.user(text).to_string()));
        typed.is_some()
    }
}

impl Turn {
    /// What a proxy says it did to the request.
    pub fn actions(&self) -> impl Iterator<Item = &str> {
        let values = self.headers.get_all(ACTION_HEADER).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).map(str::trim)
    }
}
