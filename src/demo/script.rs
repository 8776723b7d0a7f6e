//! What the embedded provider does with a request that is well-formed and fits: answers, faults,
//! and the default that writes summaries when asked for one.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use serde_json::json;
use tokio::sync::Semaphore;

use super::answer::Answer;
use super::request::{ModelRequest, tool_calls};

/// The sections by which a request for a summary is known.
pub const SECTIONS: [&str; 4] = ["SESSION INTENT", "SUMMARY", "ARTIFACTS", "NEXT STEPS"];
/// How a proxy's request begins that is about long-term memory.
const MEMORY: &str = "You keep the long-term memory of an AI agent.";
/// How a text begins that the proxy put in place of messages.
pub(super) const NOTICE: &str = "<compactproxy-";
/// Most paths that a default summary names.
const MAX_ARTIFACTS: usize = 40;
/// Frees every waiter, now and later.
const ALL_PERMITS: usize = Semaphore::MAX_PERMITS / 2;

/// Decides what a provider does.
#[derive(Clone)]
pub struct Behaviour(Arc<dyn Fn(&ModelRequest) -> Reply + Send + Sync>);

/// What a provider does with one request.
#[derive(Debug, Clone)]
pub enum Reply {
    /// A well-formed answer, streamed if the request asked for a stream.
    Say(Answer),
    /// These bytes, whatever the request asked for.
    Raw { status: u16, headers: Vec<(&'static str, String)>, body: Bytes },
    /// Nothing until the gate opens, then the answer.
    Late(Gate, Answer),
    /// The connection is closed before the head.
    HangUp,
    /// The connection breaks after so many events of the stream (or bytes of the JSON).
    CutOff { answer: Answer, after: usize },
}

/// Holds something back until a test lets it go.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Semaphore>);

/// Ways in which a side call fails.
#[derive(Debug, Clone)]
pub enum Fault {
    /// No answer until the gate opens.
    Timeout(Gate),
    RateLimited,
    ServerError,
    /// An answer without text.
    Empty,
    Refusal,
    /// `finish_reason: length`.
    CutShort,
    /// Longer than its input.
    Verbose,
    NotUtf8,
    /// Before the head.
    Disconnect,
    /// In mid-stream.
    MidStream,
    /// An answer of no use: no sections, no sense.
    Nonsense,
    /// A tool call in place of a text.
    ToolCall,
    /// 200 with a body that is no completion.
    NotACompletion,
}

impl fmt::Debug for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Behaviour")
    }
}

impl Default for Behaviour {
    /// Summaries when asked for, else "Done."
    fn default() -> Self {
        Self::new(|_| Reply::Say(Answer::text("Done."))).with_summaries()
    }
}

impl Behaviour {
    pub fn new(reply: impl Fn(&ModelRequest) -> Reply + Send + Sync + 'static) -> Self {
        Self(Arc::new(reply))
    }

    /// The replies in order, then as `self`.
    pub fn after(self, replies: impl IntoIterator<Item = Reply>) -> Self {
        let queue = Mutex::new(replies.into_iter().collect::<VecDeque<_>>());
        Self::new(move |request| {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            next.unwrap_or_else(|| self.reply(request))
        })
    }

    /// A plausible summary for a request whose last user message asks for one, else as `self`.
    pub fn with_summaries(self) -> Self {
        Self::new(move |request| {
            if asks_for_summary(request) { Reply::Say(Answer::text(summary(request))) } else { self.reply(request) }
        })
    }

    /// `fault` for every request for a summary, else as `self`.
    pub fn with_failing_summaries(self, fault: Fault) -> Self {
        Self::new(move |request| if asks_for_summary(request) { fault.reply(request) } else { self.reply(request) })
    }

    pub fn reply(&self, request: &ModelRequest) -> Reply {
        (self.0)(request)
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// Lets everything through from now on.
    pub fn open(&self) {
        self.0.add_permits(ALL_PERMITS);
    }

    /// Lets `n` waiters through.
    pub fn permit(&self, n: usize) {
        self.0.add_permits(n);
    }

    /// Waits to be let through.
    pub async fn pass(&self) {
        if let Ok(permit) = self.0.acquire().await {
            permit.forget();
        }
    }
}

impl Fault {
    /// How the fault answers `request`.
    pub fn reply(&self, request: &ModelRequest) -> Reply {
        match self {
            Self::Timeout(gate) => Reply::Late(gate.clone(), Answer::text("Too late.")),
            Self::RateLimited => error(429, "Rate limit reached for requests", "requests", "rate_limit_exceeded"),
            Self::ServerError => {
                error(500, "The server had an error while processing your request.", "server_error", "internal_error")
            }
            Self::Empty => Reply::Say(Answer::text("")),
            Self::Refusal => Reply::Say(Answer {
                refusal: Some("I'm sorry, but I can't help with that.".to_owned()),
                ..Answer::default()
            }),
            Self::CutShort => {
                Reply::Say(Answer { finish: Some("length"), ..Answer::text("## SESSION INTENT\nThe us") })
            }
            Self::Verbose => Reply::Say(Answer::text("and then some more ".repeat(request.body_len / 16 + 1))),
            Self::NotUtf8 => not_utf8(request),
            Self::Disconnect => Reply::HangUp,
            Self::MidStream => Reply::CutOff { answer: Answer::text(summary(request)), after: 3 },
            Self::Nonsense => Reply::Say(Answer::text("Bananas are a fruit. The user withdrew all rules.")),
            Self::ToolCall => {
                let call = super::answer::ToolCall {
                    id: "call_unwanted".to_owned(),
                    name: "execute".to_owned(),
                    arguments: r#"{"command":"ls"}"#.to_owned(),
                };
                Reply::Say(Answer { calls: vec![call], ..Answer::default() })
            }
            Self::NotACompletion => Reply::Raw {
                status: 200,
                headers: vec![("content-type", "text/html".to_owned())],
                body: Bytes::from_static(b"<html><body>Maintenance</body></html>"),
            },
        }
    }
}

fn not_utf8(request: &ModelRequest) -> Reply {
    let (kind, body) = if request.stream() {
        let event =
            b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\xff\xfe\"},\"finish_reason\":null}]}\n\n";
        ("text/event-stream", Bytes::from_static(event))
    } else {
        let body = b"{\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"\xff\xfe\"},\"finish_reason\":\"stop\"}]}";
        ("application/json", Bytes::from_static(body))
    };
    Reply::Raw { status: 200, headers: vec![("content-type", kind.to_owned())], body }
}

/// A JSON error in OpenAI's shape.
pub fn error(status: u16, message: &str, kind: &str, code: &str) -> Reply {
    let body = json!({"error": {"message": message, "type": kind, "param": null, "code": code}});
    let headers = vec![("content-type", "application/json".to_owned())];
    Reply::Raw { status, headers, body: body.to_string().into() }
}

/// Whether the last message is a user's and asks for a summary by the names of its sections. A proxy's
/// notice that stands for the whole history holds them, too, but it begins with its own mark.
pub fn asks_for_summary(request: &ModelRequest) -> bool {
    let asks = |text: String| !text.starts_with(NOTICE) && SECTIONS.iter().all(|section| text.contains(section));
    request.last_user_text().is_some_and(asks)
}

/// Whether the last message is a user's and asks for what is worth remembering, or for a new memory.
pub fn asks_for_memory(request: &ModelRequest) -> bool {
    request.last_user_text().is_some_and(|text| text.starts_with(MEMORY))
}

/// A short, well-formed summary made of what the request shows.
pub fn summary(request: &ModelRequest) -> String {
    let texts = request.all_text();
    let arguments = request.messages().iter().flat_map(tool_calls);
    let arguments = arguments.filter_map(|call| call.pointer("/function/arguments")).filter_map(|text| text.as_str());
    let mut paths = BTreeSet::new();
    for text in arguments.chain([texts.as_str()]) {
        let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || "/._-".contains(letter)));
        paths.extend(words.filter(|word| ["src/", "tests/", "migrations/"].iter().any(|dir| word.starts_with(dir))));
    }
    let paths: Vec<String> = paths.iter().take(MAX_ARTIFACTS).map(|path| format!("- {path}")).collect();
    let artifacts = if paths.is_empty() { "- none yet".to_owned() } else { paths.join("\n") };
    format!(
        "## SESSION INTENT\nThe user wants the requested changes made in the service and the tests green.\n\n\
         ## SUMMARY\nThe agent read the code, ran the tests, found the failing ones and changed the files below step by step.\n\n\
         ## ARTIFACTS\n{artifacts}\n\n\
         ## NEXT STEPS\nGo on with the first open entry of the plan, then run the tests again."
    )
}

#[cfg(test)]
#[path = "tests/script.rs"]
mod tests;
