//! What a client has of an answer that may have gone wrong, read as strictly as can be.

use http::{HeaderMap, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;

use super::super::Cell;
use crate::support::chat::Answered;
use crate::support::dialects::Had;
use crate::support::wire::patiently;

/// What came, up to its end or to where the connection broke.
pub struct Seen {
    status: u16,
    headers: HeaderMap,
    pub text: String,
    broken: bool,
}

pub enum Outcome {
    Answer(Had),
    Error,
    /// An end, and then an error.
    Both,
    /// Neither.
    Endless,
}

impl Seen {
    pub async fn of(answer: Response<Incoming>) -> Self {
        let (head, mut body) = answer.into_parts();
        let (mut bytes, mut broken) = (Vec::new(), false);
        while let Some(frame) = patiently("a piece", body.frame()).await {
            match frame {
                Ok(frame) => bytes.extend(frame.into_data().unwrap_or_default()),
                Err(_) => broken = true,
            }
        }
        let text = String::from_utf8(bytes).unwrap();
        Self { status: head.status.as_u16(), headers: head.headers, text, broken }
    }

    /// What it is. Fails where it is more than one thing, names what the client does not know, or has a gap.
    pub fn outcome(&self, cell: Cell, what: &str) -> Outcome {
        for trace in ["read_evicted", "own_", "(No answer yet"] {
            assert!(!self.text.contains(trace), "{what}: {trace} in {}", self.text);
        }
        if self.status != 200 {
            assert!(!self.broken && self.text.matches("boom").count() <= 1, "{what}: {}", self.text);
            return Outcome::Error;
        }
        if !cell.stream {
            let told: Value = serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("{what}: {}", self.text));
            return if told.get("error").is_some_and(|error| !error.is_null()) {
                Outcome::Error
            } else {
                self.read(cell)
            };
        }
        let events = self.events(what);
        let count = |is: fn(&Value) -> bool| events.iter().filter(|event| is(event)).count();
        let (ends, errors) = (count(is_end), count(is_error));
        without_a_gap(&events, what);
        match (ends, errors + usize::from(self.broken)) {
            (1, 0) => self.read(cell),
            (0, 1) => {
                assert!(self.broken || events.last().is_some_and(is_error), "{what}: {}", self.text);
                Outcome::Error
            }
            (0, 0) => Outcome::Endless,
            (1, 1) => {
                assert!(self.broken || events.last().is_some_and(is_error), "{what}: {}", self.text);
                Outcome::Both
            }
            both => panic!("{what}: ends and errors {both:?}: {}", self.text),
        }
    }

    /// An answer that has come whole. What nobody knows, and half of an event, is the client's to pass over.
    fn read(&self, cell: Cell) -> Outcome {
        let is_known = |event: &&str| !event.contains("\"tomorrow\"") && (event.ends_with("\n\n") || !cell.stream);
        let mut text: String = self.text.split_inclusive("\n\n").filter(is_known).collect();
        // Where the provider has left the very last words out.
        if cell.dialect.path().ends_with("completions") && cell.stream && !text.ends_with("data: [DONE]\n\n") {
            text += "data: [DONE]\n\n";
        }
        let answer = Answered { status: self.status, headers: self.headers.clone(), body: text.into() };
        Outcome::Answer(cell.dialect.read(&answer))
    }

    fn events(&self, what: &str) -> Vec<Value> {
        let mut events: Vec<&str> = self.text.split("\n\n").collect();
        // Half of an event is what may stand behind the last.
        events.pop();
        let data = events.into_iter().filter_map(|event| event.lines().find_map(|line| line.strip_prefix("data: ")));
        let data: Vec<&str> = data.filter(|data| *data != "[DONE]").collect();
        data.into_iter().map(|data| serde_json::from_str(data).unwrap_or_else(|_| panic!("{what}: {data}"))).collect()
    }
}

fn is_end(event: &Value) -> bool {
    let kind = event["type"].as_str().unwrap_or_default();
    event["choices"][0]["finish_reason"].is_string() || matches!(kind, "message_stop" | "response.completed")
}

fn is_error(event: &Value) -> bool {
    let kind = event["type"].as_str().unwrap_or_default();
    matches!(kind, "error" | "response.failed") || event["error"].is_object()
}

/// Calls, blocks, items and events are numbered without a gap.
fn without_a_gap(events: &[Value], what: &str) {
    let (mut parts, mut numbers) = (0, 0);
    for event in events {
        let begins = matches!(event["type"].as_str(), Some("content_block_start" | "response.output_item.added"));
        if begins {
            let at = event["index"].as_u64().or(event["output_index"].as_u64());
            assert_eq!(at, Some(parts), "{what}: {event}");
            parts += 1;
        }
        for at in event["choices"][0]["delta"]["tool_calls"].as_array().into_iter().flatten() {
            let at = at["index"].as_u64().unwrap();
            assert!(at <= parts, "{what}: {event}");
            parts = parts.max(at + 1);
        }
        if let Some(number) = event["sequence_number"].as_u64() {
            assert_eq!(number, numbers, "{what}: {event}");
            numbers += 1;
        }
    }
}
