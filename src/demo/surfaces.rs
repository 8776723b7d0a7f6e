//! The many faces of "too long": how different servers say that a request does not fit.

use bytes::Bytes;
use serde_json::{Value, json};

use super::window::Misfit;

/// Size of the echo that [`Surface::Echo`] puts into its error, bytes.
const ECHO: usize = 4 * 1024 * 1024;

/// How a provider reports overflow and output budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Surface {
    /// 400, `context_length_exceeded`.
    OpenAi,
    /// As `OpenAi`, with the functions' share in the text.
    OpenAiFunctions,
    /// 400, `BadRequestError` without an `error` object.
    Vllm,
    /// 400, `exceed_context_size_error` with numbers as members.
    LlamaCpp,
    /// 400, Anthropic's error inside a gateway's text.
    AnthropicProxied,
    /// An error object in a 200.
    OpenRouter,
    /// 200, the error is the first event (400 when not streamed).
    SglangFirstEvent,
    /// 200, one bookkeeping chunk, then the error (400 when not streamed).
    AfterBookkeeping,
    /// 413, plain text without numbers.
    TooLarge,
    /// 422, text generation inference.
    Tgi,
    /// 500, raised by the server's own length check.
    Server500,
    /// 404, a local server's.
    NotFound404,
    /// 503, a gateway's word for its server's error.
    Unavailable503,
    /// 400, body compressed with gzip.
    Gzip,
    /// 400, the text is followed by megabytes of echoed request.
    Echo,
}

/// How an error goes out.
#[derive(Debug, Clone, PartialEq)]
pub struct Refused {
    pub status: u16,
    pub content_type: &'static str,
    pub gzip: bool,
    pub body: Bytes,
}

impl Refused {
    /// An error in JSON.
    pub(super) fn json(status: u16, body: &Value) -> Self {
        Self { status, content_type: "application/json", gzip: false, body: body.to_string().into() }
    }

    /// A stream that holds `body`.
    pub(super) fn stream(body: Bytes) -> Self {
        Self { status: 200, content_type: "text/event-stream", gzip: false, body }
    }
}

impl Surface {
    pub const ALL: [Self; 15] = [
        Self::OpenAi,
        Self::OpenAiFunctions,
        Self::Vllm,
        Self::LlamaCpp,
        Self::AnthropicProxied,
        Self::OpenRouter,
        Self::SglangFirstEvent,
        Self::AfterBookkeeping,
        Self::TooLarge,
        Self::Tgi,
        Self::Server500,
        Self::NotFound404,
        Self::Unavailable503,
        Self::Gzip,
        Self::Echo,
    ];

    /// The answer to a request that does not fit; `stream`: the request asked for a stream.
    pub fn refuse(self, misfit: Misfit, stream: bool) -> Refused {
        let plain = Refused::json;
        match self {
            Self::OpenAi | Self::OpenAiFunctions => plain(400, &openai(self, misfit)),
            Self::Vllm => plain(400, &vllm(misfit)),
            Self::LlamaCpp => plain(400, &llama_cpp(misfit)),
            Self::AnthropicProxied => plain(400, &anthropic_proxied(misfit)),
            Self::OpenRouter => plain(200, &openrouter(misfit)),
            Self::SglangFirstEvent if stream => events(&[sglang(misfit)]),
            Self::SglangFirstEvent => plain(400, &sglang(misfit)),
            Self::AfterBookkeeping if stream => events(&[bookkeeping(), openai(Self::OpenAi, misfit)]),
            Self::AfterBookkeeping => plain(400, &openai(Self::OpenAi, misfit)),
            Self::TooLarge => Refused {
                status: 413,
                content_type: "text/plain",
                gzip: false,
                body: Bytes::from_static(b"Request Entity Too Large"),
            },
            Self::Tgi => plain(422, &tgi(misfit)),
            Self::Server500 => plain(500, &server_500(misfit)),
            Self::NotFound404 => plain(404, &not_found(misfit)),
            Self::Unavailable503 => plain(503, &unavailable(misfit)),
            Self::Gzip => Refused { gzip: true, ..plain(400, &openai(Self::OpenAi, misfit)) },
            Self::Echo => plain(400, &echo(misfit)),
        }
    }
}

fn openai(surface: Surface, misfit: Misfit) -> Value {
    let text = match misfit {
        Misfit::Overflow { input, tools, limit, .. } if surface == Surface::OpenAiFunctions => format!(
            "This model's maximum context length is {limit} tokens. However, your messages resulted in {input} tokens ({} in the messages, {tools} in the functions). Please reduce the length of the messages or functions.",
            input - tools
        ),
        Misfit::Overflow { input, limit, .. } => format!(
            "This model's maximum context length is {limit} tokens. However, your messages resulted in {input} tokens. Please reduce the length of the messages."
        ),
        Misfit::Budget { .. } => requested(misfit),
    };
    json!({"error": {"message": text, "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}})
}

/// The old wording that names all parts.
pub(super) fn requested(misfit: Misfit) -> String {
    let (Misfit::Overflow { input, output, limit, .. } | Misfit::Budget { input, output, limit, .. }) = misfit;
    format!(
        "This model's maximum context length is {limit} tokens. However, you requested {} tokens ({input} in the messages, {output} in the completion). Please reduce the length of the messages or completion.",
        input.saturating_add(output)
    )
}

pub(super) fn vllm(misfit: Misfit) -> Value {
    let text = match misfit {
        Misfit::Overflow { input, limit, .. } => format!(
            "This model's maximum context length is {limit} tokens. However, your request has {input} input tokens. Please reduce the length of the input messages. None"
        ),
        Misfit::Budget { input, output, limit, .. } => format!(
            "'max_tokens' or 'max_completion_tokens' is too large: {output}. This model's maximum context length is {limit} tokens and your request has {input} input tokens ({output} > {limit} - {input})."
        ),
    };
    json!({"object": "error", "message": text, "type": "BadRequestError", "param": null, "code": 400})
}

fn llama_cpp(misfit: Misfit) -> Value {
    let (Misfit::Overflow { input, output, limit, .. } | Misfit::Budget { input, output, limit, .. }) = misfit;
    if matches!(misfit, Misfit::Budget { .. }) {
        return json!({"error": {"code": 400, "message": requested(misfit), "type": "invalid_request_error", "n_predict": output}});
    }
    let text =
        format!("request ({input} tokens) exceeds the available context size ({limit} tokens), try increasing it");
    json!({"error": {"code": 400, "message": text, "type": "exceed_context_size_error", "n_prompt_tokens": input, "n_ctx": limit}})
}

fn anthropic_proxied(misfit: Misfit) -> Value {
    let inner = json!({"type": "error", "error": {"type": "invalid_request_error", "message": anthropic(misfit)}});
    let text = format!("litellm.BadRequestError: AnthropicException - {inner}");
    json!({"error": {"message": text, "type": null, "param": null, "code": "400"}})
}

/// Anthropic's own words.
pub(super) fn anthropic(misfit: Misfit) -> String {
    match misfit {
        Misfit::Overflow { input, limit, .. } => format!("prompt is too long: {input} tokens > {limit} maximum"),
        Misfit::Budget { input, output, limit, .. } => format!(
            "input length and `max_tokens` exceed context limit: {input} + {output} > {limit}, decrease input length or `max_tokens` and try again"
        ),
    }
}

fn openrouter(misfit: Misfit) -> Value {
    let (Misfit::Overflow { input, output, limit, .. } | Misfit::Budget { input, output, limit, .. }) = misfit;
    let text = format!(
        "This endpoint's maximum context length is {limit} tokens. However, you requested about {} tokens ({input} of text input, {output} in the output). Please reduce the length of either one, or use the \"middle-out\" transform to compress your prompt automatically.",
        input.saturating_add(output)
    );
    json!({"error": {"message": text, "code": 400, "metadata": {"provider_name": null}}})
}

fn sglang(misfit: Misfit) -> Value {
    let text = match misfit {
        Misfit::Overflow { input, limit, .. } => {
            format!("The input ({input} tokens) is longer than the model's context length ({limit} tokens).")
        }
        Misfit::Budget { input, output, limit, .. } => format!(
            "Requested token count exceeds the model's maximum context length of {limit} tokens. You requested a total of {} tokens: {input} tokens from the input messages and {output} tokens for the completion.",
            input.saturating_add(output)
        ),
    };
    json!({"error": {"object": "error", "message": text, "type": "BadRequestError", "param": null, "code": 400}})
}

fn tgi(misfit: Misfit) -> Value {
    let (Misfit::Overflow { input, output, limit, .. } | Misfit::Budget { input, output, limit, .. }) = misfit;
    let text = format!(
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= {limit}. Given: {input} `inputs` tokens and {output} `max_new_tokens`"
    );
    json!({"error": text, "error_type": "validation"})
}

fn server_500(misfit: Misfit) -> Value {
    let text = match misfit {
        Misfit::Overflow { input, limit, .. } => format!(
            "[address=0.0.0.0:43769, pid=1065] The decoder prompt (length {input}) is longer than the maximum model length of {limit}. Make sure that `max_model_len` is no smaller than the number of text tokens."
        ),
        Misfit::Budget { .. } => requested(misfit),
    };
    json!({ "detail": text })
}

fn not_found(misfit: Misfit) -> Value {
    let text = match misfit {
        Misfit::Overflow { input, limit, .. } => {
            format!("Context limit is {limit} tokens; prompt={input} leaves 0 output tokens, below the minimum 16")
        }
        Misfit::Budget { .. } => requested(misfit),
    };
    json!({ "error": text })
}

fn unavailable(misfit: Misfit) -> Value {
    let text = match misfit {
        Misfit::Overflow { input, limit, .. } => format!("prompt tokens {input} exceeds max_model_len {limit}"),
        Misfit::Budget { .. } => requested(misfit),
    };
    json!({"error": {"code": "InternalError", "message": text}})
}

fn echo(misfit: Misfit) -> Value {
    let mut body = openai(Surface::OpenAi, misfit);
    if let Some(object) = body.as_object_mut() {
        let line = "{'type': 'missing', 'loc': ('body', 'messages'), 'input': 'all that was sent'}, ";
        object.insert("input".to_owned(), line.repeat(ECHO / line.len()).into());
    }
    body
}

fn bookkeeping() -> Value {
    let delta = json!({"role": "assistant", "content": ""});
    json!({"id": "chatcmpl-0", "object": "chat.completion.chunk", "created": 0, "model": "", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn events(events: &[Value]) -> Refused {
    let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    Refused::stream(body.into())
}

#[cfg(test)]
#[path = "tests/surfaces.rs"]
mod tests;
