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
    /// The last event of its kind was seen: the stream ended normally whatever the connection did next.
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
    /// The kind of an event, and of an answer of Anthropic's.
    #[serde(borrow, default, rename = "type")]
    kind: Option<&'a RawValue>,
    /// Where an event of Responses has all the rest.
    #[serde(borrow, default)]
    response: Option<&'a RawValue>,
    /// Of a response that was cut off.
    #[serde(default)]
    incomplete_details: Option<Incomplete>,
    /// An answer of Anthropic's that begins.
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    /// What an event of Anthropic's adds to one.
    #[serde(borrow, default)]
    delta: Option<&'a RawValue>,
    #[serde(borrow, default)]
    stop_reason: Option<&'a RawValue>,
    /// Bedrock's own counts, in the last event of a stream.
    #[serde(borrow, default, rename = "amazon-bedrock-invocationMetrics")]
    metrics: Option<&'a RawValue>,
}

/// What stands in an answer of Anthropic's, or in one that begins or ends.
#[derive(Deserialize, Default)]
struct Message<'a> {
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    model: Option<&'a RawValue>,
    #[serde(borrow, default)]
    stop_reason: Option<&'a RawValue>,
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

/// What a window shows of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    All,
    /// Its end alone: the first event is cut off.
    End,
}

/// Reads the end of an event stream; an event that is cut off is not looked at.
pub fn from_stream_tail(window: &[u8], shown: Shown) -> Observed {
    let mut reader = Reader::new();
    reader.push(whole_events(window, shown));
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
    // The event that counted the input was cut off.
    observed.usage = observed.usage.filter(|usage| usage.prompt_tokens > 0);
    if shown == Shown::End && observed.usage.is_none() {
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

/// A window without the event that is cut off at its beginning.
pub fn whole_events(window: &[u8], shown: Shown) -> &[u8] {
    match shown {
        Shown::All => window,
        Shown::End => after_blank_line(window),
    }
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
        self.add_message(answer);
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

    /// The forms of Anthropic's: a whole answer, the event that begins one, the event that ends one. The last
    /// event counts the output, and newer ones the input as well.
    fn add_message(&mut self, answer: &Answer) {
        let kind: Option<&str> = answer.kind.and_then(|part| serde_json::from_str(part.get()).ok());
        let inner = match kind {
            Some("message_stop") => {
                self.done = true;
                if let Some(counted) = answer.metrics.and_then(value) {
                    self.usage = joined(self.usage, &renamed(&counted));
                }
                return;
            }
            Some("message_start") => answer.message,
            Some("message_delta") => answer.delta,
            Some("message") => None,
            _ => return,
        };
        let inner: Message = inner.and_then(|part| serde_json::from_str(part.get()).ok()).unwrap_or_default();
        let counted = inner.usage.or(answer.usage).and_then(value);
        if let Some(counted) = counted {
            self.usage = joined(self.usage, &counted);
        }
        let text =
            |part: Option<&RawValue>| part.and_then(|part| serde_json::from_str::<Option<String>>(part.get()).ok()?);
        self.finish_reason = self.finish_reason.take().or_else(|| text(inner.stop_reason.or(answer.stop_reason)));
        self.model = self.model.take().or_else(|| text(inner.model.or(answer.model)));
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
    let (told, cached_tokens) = (count(&PROMPT)?, count(&CACHED).unwrap_or(0));
    // More than all there is: this server counts what it read from its cache by itself.
    let prompt_tokens = if cached_tokens > told { told.saturating_add(cached_tokens) } else { told };
    Some(Usage { prompt_tokens, completion_tokens: count(&COMPLETION).unwrap_or(0), cached_tokens })
}

/// Bedrock's counts under the names of Anthropic's.
fn renamed(metrics: &Value) -> Value {
    let names = [
        ("input_tokens", "inputTokenCount"),
        ("cache_read_input_tokens", "cacheReadInputTokenCount"),
        ("cache_creation_input_tokens", "cacheWriteInputTokenCount"),
        ("output_tokens", "outputTokenCount"),
    ];
    names.iter().filter_map(|(name, theirs)| Some(((*name).to_owned(), metrics.get(theirs)?.clone()))).collect()
}

/// Counts of Anthropic's, of which later events (read first) know what earlier ones do not. Input from the cache
/// is counted by itself, and some hosts say it in one event only: the larger count is the whole one.
fn joined(later: Option<Usage>, counted: &Value) -> Option<Usage> {
    let count = |key: &str| counted.get(key).and_then(Value::as_u64);
    let cached = count("cache_read_input_tokens").unwrap_or(0);
    let input = count("input_tokens").map(|n| n + cached + count("cache_creation_input_tokens").unwrap_or(0));
    let output = count("output_tokens").unwrap_or(0);
    let input = input.unwrap_or(0);
    let (prompt_tokens, cached_tokens) = match later.filter(|later| later.prompt_tokens >= input) {
        Some(later) => (later.prompt_tokens, later.cached_tokens.max(cached)),
        None => (input, cached),
    };
    let completion_tokens = later.map_or(output, |later| later.completion_tokens.max(output));
    Some(Usage { prompt_tokens, completion_tokens, cached_tokens })
}

#[cfg(test)]
#[path = "usage_tests.rs"]
mod tests;
