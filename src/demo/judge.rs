//! Judging a request: is it well-formed, does it fit, what does the model answer.

use std::sync::PoisonError;

use serde_json::Value;

use super::answer::{Answer, Usage};
use super::encoding;
use super::names::{self, Names};
use super::provider::{Origin, Verdict};
use super::request::{Api, ModelRequest, Purpose};
use super::responses::store::Chains;
use super::rules::{self, Violation};
use super::script::{Reply, asks_for_memory, asks_for_summary};
use super::serve::{Received, Shared, lock};
use super::window::{Limit, Misfit, Prompt, count, fits};
use super::{messages, responses};

/// A request that the model answers.
pub(super) struct Turn {
    pub request: ModelRequest,
    pub reply: Reply,
    pub usage: Usage,
}

/// Why the model does not answer.
pub(super) enum Denied {
    Violation(Violation),
    Misfit(Misfit, Box<ModelRequest>),
}

/// A request that keeps the rules.
struct Judged {
    request: ModelRequest,
    prompt: Prompt,
    /// Thinking blocks that were dropped.
    dropped: usize,
}

impl From<Violation> for Denied {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl Shared {
    /// The model's turn. `local`: what the connection remembers beside the store, where it is a socket.
    pub(super) async fn turn(&self, mut received: Received, local: Option<&mut Chains>) -> Result<Turn, Denied> {
        let index = self.next_index();
        let known = local.as_deref().cloned().unwrap_or_default();
        let judged = match self.request(&received, index, &known).await {
            Ok(request) => {
                received.origin = if asks_for_summary(&request) || asks_for_memory(&request) {
                    Origin::SideCall
                } else {
                    Origin::Agent
                };
                self.judge(request, Purpose::Answer)
            }
            Err(violation) => Err(violation.into()),
        };
        let Judged { request, prompt, dropped } = match judged {
            Ok(judged) => judged,
            Err(denied) => {
                self.record_denied(received, &denied);
                return Err(denied);
            }
        };
        let (cached, written) = match request.api {
            Api::Messages => lock(&self.cache).read_marked(request.model(), &prompt),
            Api::Chat | Api::Responses => (lock(&self.cache).read(request.model(), &prompt), 0),
        };
        let mut usage = Usage { prompt: prompt.total(), cached, written, completion: 0 };
        let reply =
            if warms_up(&request) { Reply::Say(Answer::default()) } else { self.settings.behaviour.reply(&request) };
        if let Reply::Say(answer) | Reply::Late(_, answer) | Reply::CutOff { answer, .. } = &reply {
            usage.completion = count(&answer.written());
            self.remember(&request, answer, local);
        }
        self.record_dropped(received, Verdict::Accepted, usage, dropped);
        Ok(Turn { request, reply, usage })
    }

    /// Tokens of a request that only wants them counted.
    pub(super) async fn counted(&self, received: &Received) -> Result<u64, Denied> {
        let request = self.request(received, 0, &Chains::new()).await?;
        let judged = self.judge(request, Purpose::Count)?;
        Ok(judged.prompt.total())
    }

    /// The request behind the bytes, if they are what the head says.
    async fn request(&self, received: &Received, index: usize, local: &Chains) -> Result<ModelRequest, Violation> {
        let api = received.api.unwrap_or(Api::Chat);
        let unreadable = || match api {
            Api::Messages => messages::unreadable(),
            Api::Chat | Api::Responses => rules::unreadable(),
        };
        if api == Api::Messages {
            messages::size(received.body.len(), &self.settings.messages)?;
        }
        let decoded = encoding::decode(&received.headers, &received.body).await.map_err(|_| unreadable())?;
        let body: Value = serde_json::from_slice(&decoded).map_err(|_| unreadable())?;
        let (input, held) = if api == Api::Responses {
            responses::rules::parameters(&body)?;
            lock(&self.store).resolve(&body, local)?
        } else {
            (Vec::new(), 0)
        };
        let headers = received.headers.clone();
        Ok(ModelRequest { api, headers, body, body_len: decoded.len(), index, input, held })
    }

    fn judge(&self, request: ModelRequest, purpose: Purpose) -> Result<Judged, Denied> {
        let mut limit = *self.limit.lock().unwrap_or_else(PoisonError::into_inner);
        let mut dropped = 0;
        let prompt = match request.api {
            Api::Chat => {
                self.settings.rules.check(&request.body)?;
                self.counter.prompt(&request)
            }
            Api::Responses => {
                responses::rules::check(&request, self.settings.responses.ids, &lock(&self.store))?;
                self.counter.prompt(&request)
            }
            Api::Messages => {
                let stale = messages::check(&request, purpose, &self.settings.messages, &mut lock(&self.signatures))?;
                dropped = stale.len();
                self.counter.prompt(&messages::without(&request, &stale))
            }
        };
        if self.settings.names == Names::Plain {
            names::check(&request)?;
        }
        if truncates(&request) {
            limit = Limit::default();
        }
        let output = request.max_output().unwrap_or_default();
        let fit = match request.api {
            // Here a limit may be reached.
            Api::Messages => fits(limit.and_one(), &prompt, output).map_err(Misfit::less_one),
            Api::Chat | Api::Responses => fits(limit, &prompt, output),
        };
        match fit {
            Ok(()) => Ok(Judged { request, prompt, dropped }),
            Err(misfit) => Err(Denied::Misfit(misfit, Box::new(request))),
        }
    }

    fn remember(&self, request: &ModelRequest, answer: &Answer, local: Option<&mut Chains>) {
        match request.api {
            Api::Chat => {}
            Api::Responses => {
                let items = responses::answer::items(answer, request);
                lock(&self.store).keep(request, &items, local);
            }
            Api::Messages => {
                let message = messages::answer::content(answer, request);
                lock(&self.signatures).issued(&message);
            }
        }
    }

    pub(super) fn record_denied(&self, received: Received, denied: &Denied) {
        let (verdict, prompt) = match denied {
            Denied::Violation(violation) if violation.rule.is_empty() => (Verdict::Unsupported, 0),
            Denied::Violation(violation) => {
                lock(&self.violations).push(violation.clone());
                (Verdict::Violated(violation.rule), 0)
            }
            Denied::Misfit(Misfit::Overflow { input, .. }, _) => (Verdict::Overflow, *input),
            Denied::Misfit(Misfit::Budget { input, .. }, _) => (Verdict::Budget, *input),
        };
        self.record(received, verdict, Usage { prompt, ..Usage::default() });
    }
}

/// A request that fills the cache and wants no answer.
fn warms_up(request: &ModelRequest) -> bool {
    match request.api {
        Api::Chat => false,
        Api::Responses => request.body.get("generate") == Some(&Value::Bool(false)),
        Api::Messages => request.max_output() == Some(0),
    }
}

/// The server itself shortens what does not fit (R13).
fn truncates(request: &ModelRequest) -> bool {
    request.api == Api::Responses && request.body.get("truncation").is_some_and(|value| value == "auto")
}
