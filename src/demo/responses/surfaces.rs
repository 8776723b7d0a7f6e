//! The faces of "too long" in Responses: a status, or an event in a stream that began well (P4, R19).

use bytes::Bytes;
use serde_json::{Value, json};

use super::super::request::ModelRequest;
use super::super::surfaces::{Refused, requested, vllm};
use super::super::window::Misfit;
use super::answer::response;
use super::events::{numbered, opening, sse};

/// How a provider of Responses reports overflow and output budget. Without a stream all that are events
/// come as `OpenAi`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Surface {
    /// 400, `context_length_exceeded`.
    #[default]
    OpenAi,
    /// 200, `created` and `in_progress`, then an `error` event with an `error` object in it.
    ErrorEvent,
    /// As `ErrorEvent`, but with code and message as members of the event, as the specification has it.
    FlatErrorEvent,
    /// 200, `created` and `in_progress`, then `response.failed`.
    FailedEvent,
    /// As `FailedEvent`, with a line break in the text.
    FailedWrapped,
    /// 200, the `error` event is the first, without a line that names it.
    FirstEvent,
    /// 400, JSON that calls itself plain text, with a code that says nothing.
    Copilot,
    /// 400, `BadRequestError` with numbers.
    Vllm,
}

/// What OpenAI says; it names no numbers.
const TEXT: &str = "Your input exceeds the context window of this model. Please adjust your input and try again.";

impl Surface {
    pub const ALL: [Self; 8] = [
        Self::OpenAi,
        Self::ErrorEvent,
        Self::FlatErrorEvent,
        Self::FailedEvent,
        Self::FailedWrapped,
        Self::FirstEvent,
        Self::Copilot,
        Self::Vllm,
    ];

    /// The answer to a request that does not fit.
    pub fn refuse(self, misfit: Misfit, request: &ModelRequest) -> Refused {
        if let Some(events) = self.events(misfit, request).filter(|_| request.stream()) {
            let named = self != Self::FirstEvent;
            let body = events.iter().map(|event| if named { sse(event) } else { format!("data: {event}\n\n").into() });
            return Refused::stream(body.collect::<Vec<Bytes>>().concat().into());
        }
        match self {
            Self::Copilot => {
                let body = json!({"error": {"message": text(misfit), "code": "invalid_request_body"}});
                let body = format!("{body}\n").into();
                Refused { status: 400, content_type: "text/plain; charset=utf-8", gzip: false, body }
            }
            Self::Vllm => Refused::json(400, &json!({"error": vllm(misfit)})),
            _ => Refused::json(400, &json!({"error": error(misfit)})),
        }
    }

    /// The answer as frames of a socket.
    pub(in super::super) fn frames(self, misfit: Misfit, request: &ModelRequest) -> Vec<Value> {
        let wrapped = || vec![super::rejected(400, &error(misfit))];
        self.events(misfit, request).unwrap_or_else(wrapped)
    }

    /// The events with which a stream fails; none: it does not begin.
    fn events(self, misfit: Misfit, request: &ModelRequest) -> Option<Vec<Value>> {
        let last = match self {
            Self::ErrorEvent | Self::FirstEvent => json!({"type": "error", "error": error(misfit)}),
            Self::FlatErrorEvent => {
                let code = "context_length_exceeded";
                json!({"type": "error", "code": code, "message": text(misfit), "param": "input"})
            }
            Self::FailedEvent => failed(&text(misfit), request),
            Self::FailedWrapped => failed(&text(misfit).replace("try again", "try\nagain"), request),
            Self::OpenAi | Self::Copilot | Self::Vllm => return None,
        };
        let mut events = if self == Self::FirstEvent { Vec::new() } else { opening(request) };
        events.push(last);
        Some(numbered(events))
    }
}

fn text(misfit: Misfit) -> String {
    match misfit {
        Misfit::Overflow { .. } => TEXT.to_owned(),
        Misfit::Budget { .. } => requested(misfit),
    }
}

fn error(misfit: Misfit) -> Value {
    let code = "context_length_exceeded";
    json!({"type": "invalid_request_error", "code": code, "message": text(misfit), "param": "input"})
}

fn failed(text: &str, request: &ModelRequest) -> Value {
    let mut response = response(request, "failed", &[], None);
    if let Some(members) = response.as_object_mut() {
        members.insert("error".to_owned(), json!({"code": "context_length_exceeded", "message": text}));
    }
    json!({"type": "response.failed", "response": response})
}

#[cfg(test)]
#[path = "../tests/responses_surfaces.rs"]
mod tests;
