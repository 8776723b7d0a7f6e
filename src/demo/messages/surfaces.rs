//! The faces of "too long" in Messages.

use serde_json::{Value, json};

use super::super::answer::Usage;
use super::super::request::ModelRequest;
use super::super::script::Reply;
use super::super::surfaces::{Refused, anthropic};
use super::super::window::Misfit;
use super::events::{opening, sse};

/// How a provider of Messages reports overflow and output budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Surface {
    /// 400, `prompt is too long: N tokens > M maximum`.
    #[default]
    Anthropic,
    /// 500, the error's text as a JSON string: a gateway between.
    Proxied,
    /// 400, with a code and its members in another order.
    Copilot,
    /// 413 from the model's host, without numbers.
    Vertex,
    /// 413 from the edge, `request_too_large`.
    TooLarge,
    /// 400, without numbers.
    Numberless,
    /// 200, `message_start`, then an `error` event (`Anthropic` where nothing is streamed).
    ErrorEvent,
}

impl Surface {
    pub const ALL: [Self; 7] = [
        Self::Anthropic,
        Self::Proxied,
        Self::Copilot,
        Self::Vertex,
        Self::TooLarge,
        Self::Numberless,
        Self::ErrorEvent,
    ];

    /// The answer to a request that does not fit.
    pub fn refuse(self, misfit: Misfit, request: &ModelRequest) -> Refused {
        let said = wrapped("invalid_request_error", &anthropic(misfit), Some(request));
        match self {
            Self::ErrorEvent if request.stream() => {
                let events = [opening(request, Usage::default()), said];
                Refused::stream(events.iter().map(sse).collect::<Vec<_>>().concat().into())
            }
            Self::Anthropic | Self::ErrorEvent => Refused::json(400, &said),
            Self::Proxied => Refused::json(500, &said.to_string().into()),
            Self::Copilot => {
                let code = "model_max_prompt_tokens_exceeded";
                let error = json!({"code": code, "message": anthropic(misfit), "type": "invalid_request_error"});
                Refused::json(400, &json!({"error": error, "request_id": "req_demo", "type": "error"}))
            }
            Self::Vertex => Refused::json(413, &wrapped("invalid_request_error", "Prompt is too long", None)),
            Self::TooLarge => {
                let error = json!({"type": "request_too_large", "message": "Request exceeds the maximum size"});
                Refused::json(413, &json!({ "error": error }))
            }
            Self::Numberless => {
                let text = "Prompt exceeds maximum context length";
                Refused::json(400, &wrapped("invalid_request_error", text, None))
            }
        }
    }
}

fn wrapped(kind: &str, text: &str, request: Option<&ModelRequest>) -> Value {
    let mut body = json!({"type": "error", "error": {"type": kind, "message": text}});
    if let (Some(request), Some(members)) = (request, body.as_object_mut()) {
        members.insert("request_id".to_owned(), format!("req_demo{:06}", request.index).into());
    }
    body
}

/// An error in Anthropic's shape, as a script's reply: 529 `overloaded_error`, 429 `rate_limit_error`, …
pub fn error(status: u16, kind: &str, text: &str) -> Reply {
    let headers = vec![("content-type", "application/json".to_owned())];
    Reply::Raw { status, headers, body: wrapped(kind, text, None).to_string().into() }
}

/// A stream that begins well and ends in an `error` event.
pub fn broken_stream(request: &ModelRequest, kind: &str, text: &str) -> Reply {
    let events = [opening(request, Usage::default()), wrapped(kind, text, None)];
    let headers = vec![("content-type", "text/event-stream; charset=utf-8".to_owned())];
    Reply::Raw { status: 200, headers, body: events.iter().map(sse).collect::<Vec<_>>().concat().into() }
}

#[cfg(test)]
#[path = "../tests/messages_surfaces.rs"]
mod tests;
