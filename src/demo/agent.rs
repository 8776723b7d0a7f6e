//! An agent as most are: it keeps its whole history, sends it with every call, runs the tools that
//! the model asks for, and gives up at the first error.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use super::answer::{ToolCall, Usage};
use super::completion::{self, Completion};
use super::request::STEP_HEADER;
use super::session::Session;

/// Header with what a proxy did to the request, comma-separated.
pub const ACTION_HEADER: &str = "x-compactproxy-action";

/// How the agent wants its answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Stream,
    Whole,
}

/// An agent with its settings.
#[derive(Debug, Clone)]
pub struct Agent {
    /// As `OPENAI_BASE_URL`: without a slash at the end.
    pub base_url: String,
    pub model: String,
    /// Sent as a bearer token.
    pub key: String,
    pub mode: Mode,
    /// Sent as `max_completion_tokens`.
    pub max_output: Option<u64>,
    pub session: Arc<Session>,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// One model call.
#[derive(Debug, Clone)]
pub struct Turn {
    /// Length of the request's body.
    pub request_bytes: usize,
    /// How many messages of the history it carried.
    pub messages: usize,
    pub headers: HeaderMap,
    pub usage: Usage,
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
    /// All messages, as JSON, in order.
    pub history: Vec<String>,
}

impl Agent {
    pub fn new(base_url: String, session: Arc<Session>) -> Self {
        Self {
            base_url,
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
        let opening = [
            json!({"role": "system", "content": self.session.system}),
            json!({"role": "user", "content": self.session.opening}),
        ];
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
                Ok((headers, completion)) => {
                    run.turns.push(Turn { request_bytes, messages, headers, usage: completion.usage });
                    if !self.digest(step, completion, &mut run.history) {
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

    /// The request; the messages stand last and keep their bytes from call to call.
    fn body(&self, history: &[String]) -> Bytes {
        let mut head = json!({"model": self.model, "tools": self.session.tools});
        if let Some(object) = head.as_object_mut() {
            if self.mode == Mode::Stream {
                object.insert("stream".to_owned(), true.into());
                object.insert("stream_options".to_owned(), json!({"include_usage": true}));
            }
            if let Some(limit) = self.max_output {
                object.insert("max_completion_tokens".to_owned(), limit.into());
            }
        }
        let head = head.to_string();
        let head = head.strip_suffix('}').unwrap_or(&head);
        format!("{head},\"messages\":[{}]}}", history.join(",")).into()
    }

    async fn call(&self, step: usize, body: Bytes) -> Result<(HeaderMap, Completion), (u16, String)> {
        let sent = self.send(Method::POST, "chat/completions", step, body).await;
        let (status, headers, body) = sent.map_err(|message| (0, message))?;
        if status != StatusCode::OK {
            return Err((status.as_u16(), completion::error_message(&body)));
        }
        let read = match self.mode {
            Mode::Stream => completion::from_stream(&body),
            Mode::Whole => completion::from_json(&body),
        };
        read.map(|completion| (headers, completion)).map_err(|message| (status.as_u16(), message))
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
        Request::builder()
            .method(method)
            .uri(url)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.key))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|error| error.to_string())
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
    fn digest(&self, step: usize, completion: Completion, history: &mut Vec<String>) -> bool {
        history.push(completion.message().to_string());
        for call in &completion.calls {
            let content = self.session.execute(step, call);
            history.push(json!({"role": "tool", "tool_call_id": call.id, "content": content}).to_string());
        }
        let user = self.session.steps.get(step).and_then(|step| step.then.as_ref());
        match user {
            _ if !completion.calls.is_empty() => true,
            Some(text) => {
                history.push(json!({"role": "user", "content": text}).to_string());
                true
            }
            None => false,
        }
    }
}

impl Turn {
    /// What a proxy says it did to the request.
    pub fn actions(&self) -> impl Iterator<Item = &str> {
        let values = self.headers.get_all(ACTION_HEADER).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).map(str::trim)
    }
}

impl Completion {
    fn message(&self) -> Value {
        let mut message = json!({"role": "assistant", "content": self.text});
        if let (false, Some(object)) = (self.calls.is_empty(), message.as_object_mut()) {
            object.insert("tool_calls".to_owned(), self.calls.iter().map(ToolCall::json).collect());
        }
        message
    }
}
