//! How an agent speaks: one conversation for all APIs, and for each API one file that writes its requests and
//! reads its answers. A history is the JSON texts of messages, or of input items, as they are sent.

mod chat;
mod messages;
mod responses;

use http::{HeaderName, header};
use serde_json::Value;

use super::answer::{ToolCall, Usage};
use super::request::{Api, kind};
use super::session::Session;

/// A request to be written.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    pub model: &'a str,
    pub session: &'a Session,
    pub history: &'a [String],
    pub mode: Mode,
    /// Most tokens of the answer.
    pub max_output: Option<u64>,
}

/// How the agent wants its answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Stream,
    Whole,
}

/// An answer that was read to its end.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Heard {
    /// What the history takes of it, unchanged.
    pub items: Vec<Value>,
    pub calls: Vec<ToolCall>,
    pub usage: Usage,
}

/// What tools have to do with a message or item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    Call { id: String, tool: String, arguments: String },
    Result { id: String, text: String },
}

/// The agent's side of an API.
pub trait Client: Sync {
    /// Where requests go, below the base URL.
    fn path(&self) -> &'static str;

    /// The body's member that holds the conversation.
    fn list(&self) -> &'static str;

    /// The headers that say who asks.
    fn credential(&self, key: &str) -> Vec<(HeaderName, String)> {
        vec![(header::AUTHORIZATION, format!("Bearer {key}"))]
    }

    /// The history before the model's first answer.
    fn opening(&self, session: &Session) -> Vec<Value> {
        vec![self.user(&session.opening)]
    }

    /// What the user types.
    fn user(&self, text: &str) -> Value;

    /// What the tools return, in the order of the calls.
    fn results(&self, results: &[(&ToolCall, String)]) -> Vec<Value>;

    /// The request's body. The history stands last and keeps its bytes from call to call.
    fn body(&self, ask: &Ask) -> String;

    /// Reads an answer in one piece.
    fn read_whole(&self, body: &[u8]) -> Result<Heard, String>;

    /// Reads a whole event stream; an error where it is not well-formed, holds an error, or lacks its end.
    fn read_stream(&self, body: &[u8]) -> Result<Heard, String>;

    /// The calls and results of a message or item.
    fn parts(&self, item: &Value) -> Vec<Part>;

    /// Members that a provider makes anew for every answer, whatever it says.
    fn stamps(&self) -> &'static [&'static str] {
        &[]
    }

    /// The type of items or blocks that hold what the model thought.
    fn thought(&self) -> Option<&'static str> {
        None
    }
}

/// The client for an API.
pub fn of(api: Api) -> &'static dyn Client {
    match api {
        Api::Chat => &chat::Chat,
        Api::Responses => &responses::Responses,
        Api::Messages => &messages::Messages,
    }
}

/// What was said, called and returned in a history: without what a provider makes anew for every answer, and without
/// what the model thought.
pub fn said(client: &dyn Client, history: &[String]) -> Vec<Value> {
    let items = history.iter().filter_map(|item| serde_json::from_str(item).ok());
    let items = items.filter(|item| !is_thought(client, item));
    items.map(|item| without(item, client)).collect()
}

fn is_thought(client: &dyn Client, value: &Value) -> bool {
    client.thought().is_some_and(|thought| kind(value) == thought)
}

fn without(mut value: Value, client: &dyn Client) -> Value {
    match &mut value {
        Value::Object(members) => {
            members.retain(|key, _| !client.stamps().contains(&key.as_str()));
            members.values_mut().for_each(|value| *value = without(value.take(), client));
        }
        Value::Array(values) => {
            values.retain(|value| !is_thought(client, value));
            values.iter_mut().for_each(|value| *value = without(value.take(), client));
        }
        _ => {}
    }
    value
}

/// `head` with the conversation behind it.
fn behind(head: &Value, list: &str, history: &[String]) -> String {
    let head = head.to_string();
    let head = head.strip_suffix('}').unwrap_or(&head);
    format!("{head},\"{list}\":[{}]}}", history.join(","))
}

/// The elements of an array.
fn elements(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The data of each event of a stream, as JSON.
fn events(body: &[u8]) -> Result<Vec<Value>, String> {
    let body = std::str::from_utf8(body).map_err(|error| error.to_string())?;
    let data = body.lines().filter_map(|line| line.strip_prefix("data:"));
    data.map(|data| serde_json::from_str(data).map_err(|error| error.to_string())).collect()
}

#[cfg(test)]
#[path = "../tests/client.rs"]
mod tests;
