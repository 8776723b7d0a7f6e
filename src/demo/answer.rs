//! A model's answer as Chat Completions sends it: one JSON object, or events.

use bytes::Bytes;
use serde_json::{Value, json};

use super::request::ModelRequest;
use super::script::Gate;

/// Characters of a delta.
const CHUNK: usize = 48;
/// A fixed time stamp: the same session has the same bytes.
pub(super) const CREATED: u64 = 1_760_000_000;

/// What the model says.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    pub text: Option<String>,
    pub calls: Vec<ToolCall>,
    pub refusal: Option<String>,
    /// Goes out as `reasoning_content`.
    pub reasoning: Option<String>,
    /// Overrules the finish reason that follows from text and calls.
    pub finish: Option<&'static str>,
    /// Every event waits for one permit.
    pub pace: Option<Gate>,
}

/// One call of a function tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// JSON.
    pub arguments: String,
}

/// What an answer is billed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// All of the prompt, from the cache or not.
    pub prompt: u64,
    /// Of it, read from the cache.
    pub cached: u64,
    /// Of it, written to the cache where that is billed (Messages).
    pub written: u64,
    pub completion: u64,
}

impl Answer {
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }

    /// All that the model wrote, as one text: what is counted as output.
    pub fn written(&self) -> String {
        let calls = self.calls.iter().map(|call| format!("{}{}", call.name, call.arguments));
        let texts = [&self.reasoning, &self.text, &self.refusal].into_iter().flatten().cloned();
        texts.chain(calls).collect()
    }

    fn finish(&self) -> &'static str {
        self.finish.unwrap_or(if self.calls.is_empty() { "stop" } else { "tool_calls" })
    }

    /// The whole answer as one JSON object.
    pub fn json(&self, request: &ModelRequest, usage: Usage) -> Bytes {
        let mut message = json!({"role": "assistant", "content": self.text, "refusal": self.refusal});
        if let Some(object) = message.as_object_mut() {
            if !self.calls.is_empty() {
                let calls: Vec<Value> = self.calls.iter().map(ToolCall::json).collect();
                object.insert("tool_calls".to_owned(), calls.into());
            }
            if let Some(reasoning) = &self.reasoning {
                object.insert("reasoning_content".to_owned(), reasoning.clone().into());
            }
        }
        let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": self.finish()});
        let body = json!({
            "id": id(request),
            "object": "chat.completion",
            "created": CREATED,
            "model": request.model(),
            "choices": [choice],
            "usage": usage.json(),
        });
        body.to_string().into()
    }

    /// The answer as events: the role, deltas, the finish reason, the usage where asked for, `[DONE]`.
    pub fn events(&self, request: &ModelRequest, usage: Usage) -> Vec<Bytes> {
        let mut deltas = vec![json!({"role": "assistant", "content": "", "refusal": null})];
        let texts = [("reasoning_content", &self.reasoning), ("content", &self.text), ("refusal", &self.refusal)];
        for (key, text) in texts {
            deltas.extend(chunks(text.as_deref().unwrap_or_default()).map(|chunk| json!({ key: chunk })));
        }
        for (index, call) in self.calls.iter().enumerate() {
            let function = json!({"name": call.name, "arguments": ""});
            let opening = json!({"index": index, "id": call.id, "type": "function", "function": function});
            deltas.push(json!({"tool_calls": [opening]}));
            deltas.extend(
                chunks(&call.arguments)
                    .map(|chunk| json!({"tool_calls": [{"index": index, "function": {"arguments": chunk}}]})),
            );
        }
        let choice = |delta: Value, finish: Option<&str>| json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]);
        let mut bodies: Vec<(Value, Value)> =
            deltas.into_iter().map(|delta| (choice(delta, None), Value::Null)).collect();
        bodies.push((choice(json!({}), Some(self.finish())), Value::Null));
        if request.include_usage() {
            bodies.push((json!([]), usage.json()));
        }
        let events = bodies.into_iter().map(|(choices, usage)| event(request, &choices, &usage));
        events.chain([Bytes::from_static(b"data: [DONE]\n\n")]).collect()
    }
}

impl ToolCall {
    /// The call as it stands in a message.
    pub fn json(&self) -> Value {
        let function = json!({"name": self.name, "arguments": self.arguments});
        json!({"id": self.id, "type": "function", "function": function})
    }
}

impl Usage {
    fn json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        })
    }
}

fn id(request: &ModelRequest) -> String {
    format!("chatcmpl-demo{:06}", request.index)
}

fn event(request: &ModelRequest, choices: &Value, usage: &Value) -> Bytes {
    let mut body = json!({
        "id": id(request),
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": request.model(),
        "choices": choices,
    });
    if request.include_usage()
        && let Some(object) = body.as_object_mut()
    {
        object.insert("usage".to_owned(), usage.clone());
    }
    format!("data: {body}\n\n").into()
}

/// `text` in pieces of at most [`CHUNK`] characters.
pub(super) fn chunks(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = rest.char_indices().nth(CHUNK).map_or(rest.len(), |(at, _)| at);
        let (chunk, after) = rest.split_at_checked(end)?;
        rest = after;
        (!chunk.is_empty()).then_some(chunk)
    })
}

#[cfg(test)]
#[path = "tests/answer.rs"]
mod tests;
