//! What an answer reports of itself: tokens, finish reason, model, end.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::sse::Reader;

/// Token counts as the provider reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Input tokens, cached ones included.
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    /// Input tokens read from the provider's prompt cache; 0 where it does not say.
    pub cached_tokens: u64,
}

/// What was seen of an answer. Unknown shapes leave everything empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    pub usage: Option<Usage>,
    pub finish_reason: Option<String>,
    pub model: Option<String>,
    /// `[DONE]` or a last event of Responses was seen: the stream ended normally whatever the connection did next.
    pub done: bool,
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    /// Groq's place for the usage of a stream.
    #[serde(borrow, default)]
    x_groq: Option<&'a RawValue>,
    #[serde(borrow, default)]
    model: Option<&'a RawValue>,
    #[serde(borrow, default)]
    choices: Option<&'a RawValue>,
    /// Where an event of Responses has all the rest.
    #[serde(borrow, default)]
    response: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "type")]
    kind: Option<&'a RawValue>,
    /// Of a response that was cut off.
    #[serde(default)]
    incomplete_details: Option<Incomplete>,
}

#[derive(Deserialize)]
struct Incomplete {
    #[serde(default)]
    reason: Option<String>,
}

/// Types of the events with which a stream of Responses ends.
const LAST_EVENTS: [&str; 3] = ["\"response.completed\"", "\"response.incomplete\"", "\"response.failed\""];

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    finish_reason: Option<String>,
}

/// Reads a whole JSON answer.
pub fn from_body(body: &[u8]) -> Observed {
    let mut observed = Observed::default();
    if let Ok(answer) = serde_json::from_slice::<Answer>(body) {
        observed.add(&answer);
    }
    observed
}

/// Reads the end of an event stream; the first event of a `cut` window is not looked at.
pub fn from_stream_tail(window: &[u8], cut: bool) -> Observed {
    let whole = match cut {
        true => after_blank_line(window),
        false => window,
    };
    let mut reader = Reader::new();
    reader.push(whole);
    reader.finish();
    let events: Vec<_> = std::iter::from_fn(|| reader.next_event()).collect();
    let mut observed = Observed::default();
    for event in events.iter().rev() {
        if event.data.trim() == "[DONE]" {
            observed.done = true;
        } else if let Ok(answer) = serde_json::from_str::<Answer>(&event.data) {
            observed.add(&answer);
        }
        if observed.is_complete() {
            break;
        }
    }
    if cut && observed.usage.is_none() {
        observed.usage = usage_in(window);
    }
    observed
}

/// The usage in a window that begins in the midst of JSON: an answer of Responses repeats instructions and
/// tools before it. The key cannot stand in a text, where its quotes would be escaped.
fn usage_in(window: &[u8]) -> Option<Usage> {
    let key = b"\"usage\":";
    let at = memchr::memmem::rfind(window, key)? + key.len();
    let mut values = serde_json::Deserializer::from_slice(window.get(at..)?).into_iter::<Value>();
    usage(&values.next()?.ok()?)
}

fn after_blank_line(window: &[u8]) -> &[u8] {
    let ends = [&b"\n\n"[..], b"\r\n\r\n", b"\r\r"];
    let end = |mark: &&[u8]| memchr::memmem::find(window, mark).map(|at| at + mark.len());
    ends.iter().filter_map(end).min().and_then(|at| window.get(at..)).unwrap_or_default()
}

impl Observed {
    /// Fills in what is still unknown.
    fn add(&mut self, answer: &Answer) {
        self.done |= answer.kind.is_some_and(|kind| LAST_EVENTS.contains(&kind.get()));
        if let Some(Ok(response)) = answer.response.map(|part| serde_json::from_str::<Answer>(part.get())) {
            self.add(&response);
        }
        if self.finish_reason.is_none() {
            self.finish_reason = answer.incomplete_details.as_ref().and_then(|details| details.reason.clone());
        }
        let groq = || answer.x_groq.and_then(|part| value(part)?.get("usage").and_then(usage));
        self.usage = self.usage.or_else(|| answer.usage.and_then(|part| usage(&value(part)?))).or_else(groq);
        if self.finish_reason.is_none() {
            let choices: Option<Vec<Choice>> = answer.choices.and_then(|part| serde_json::from_str(part.get()).ok());
            self.finish_reason =
                choices.and_then(|choices| choices.into_iter().find_map(|choice| choice.finish_reason));
        }
        if self.model.is_none() {
            self.model = answer.model.and_then(|part| serde_json::from_str(part.get()).ok());
        }
    }

    fn is_complete(&self) -> bool {
        self.usage.is_some() && self.finish_reason.is_some() && self.model.is_some()
    }
}

fn value(part: &RawValue) -> Option<Value> {
    serde_json::from_str(part.get()).ok()
}

/// Names of the counts: those of Chat Completions with the variants of other servers, then those of Responses.
const PROMPT: [&str; 2] = ["/prompt_tokens", "/input_tokens"];
const COMPLETION: [&str; 2] = ["/completion_tokens", "/output_tokens"];
const CACHED: [&str; 4] = [
    "/prompt_tokens_details/cached_tokens",
    "/prompt_cache_hit_tokens",
    "/cached_tokens",
    "/input_tokens_details/cached_tokens",
];

fn usage(usage: &Value) -> Option<Usage> {
    let count = |paths: &[&str]| paths.iter().find_map(|path| usage.pointer(path).and_then(Value::as_u64));
    Some(Usage {
        prompt_tokens: count(&PROMPT)?,
        completion_tokens: count(&COMPLETION).unwrap_or(0),
        cached_tokens: count(&CACHED).unwrap_or(0),
    })
}

#[cfg(test)]
#[path = "usage_tests.rs"]
mod tests;
