//! The three dialects as a client has them: how it writes a conversation down, and what it makes of an answer.

mod chat;
mod messages;
mod responses;

use std::net::SocketAddr;

use bytes::Bytes;
use compactproxy::demo::answer::{ToolCall, Usage};
use compactproxy::demo::script::{Reply, error};
use http::Response;
use hyper::body::Incoming;
use serde_json::{Value, json};

pub use self::chat::Chat;
pub use self::messages::Messages;
pub use self::responses::Responses;
use super::chat::{Answered, send_to, whole};

pub const ALL: [&dyn Dialect; 3] = [&Chat, &Responses, &Messages];

/// A tool's result: the id of its call, and its text in parts.
pub type Result<'r> = (&'r str, &'r [String]);

/// One dialect.
pub trait Dialect: Sync + std::fmt::Debug {
    fn path(&self) -> &'static str;

    /// The header with a credential.
    fn credential(&self, key: &str) -> (&'static str, String);

    /// The member that holds the conversation.
    fn array(&self) -> &'static str;

    /// What every request has beside the conversation; one tool is declared, `execute`.
    fn fields(&self, stream: bool) -> Value;

    /// Switches the model's thinking on.
    fn thinking(&self) -> Value {
        json!({})
    }

    fn user(&self, text: &str) -> Value;

    /// The model's text and calls.
    fn said(&self, text: &str, calls: &[ToolCall]) -> Vec<Value>;

    fn results(&self, results: &[Result<'_>]) -> Vec<Value>;

    /// Results and a question, as they follow an answer.
    fn results_and_question(&self, results: &[Result<'_>], question: &str) -> Vec<Value> {
        let mut items = self.results(results);
        items.push(self.user(question));
        items
    }

    /// The body's bytes, with the members of an item in the order in which providers give them.
    fn bytes(&self, body: &Value) -> Bytes {
        body.to_string().into()
    }

    /// What a client makes of an answer. Fails where it is not well-formed.
    fn read(&self, answer: &Answered) -> Had;

    /// What an error in a stream says.
    fn told_error(&self, answer: &Answered) -> String;

    /// The provider's refusal of a prompt that is too long.
    fn too_long(&self) -> Reply;

    /// The provider out of order.
    fn broken(&self, message: &str) -> Reply {
        error(500, message, "server_error", "x")
    }

    /// Names of the calls in the items behind the first `skip`, in order.
    fn called(&self, body: &Value, skip: usize) -> Vec<String>;

    /// How often an answer of one text has an event before its first delta.
    fn openings(&self) -> usize;
}

/// What a client has of an answer.
#[derive(Debug, Default, Clone)]
pub struct Had {
    /// As it goes back in the next request.
    pub items: Vec<Value>,
    pub text: String,
    pub thoughts: String,
    pub calls: Vec<ToolCall>,
    /// `true`: the model waits for results.
    pub waits: bool,
    pub usage: Usage,
}

impl dyn Dialect + '_ {
    pub fn request(&self, items: Vec<Value>, stream: bool) -> Value {
        let mut body = self.fields(stream);
        body[self.array()] = items.into();
        body
    }

    /// Sends a body; the answer as it begins.
    pub async fn send(&self, addr: SocketAddr, key: &str, body: &Value) -> Response<Incoming> {
        let (name, value) = self.credential(key);
        send_to(&format!("http://{addr}{}", self.path()), &[(name, &value)], self.bytes(body)).await.unwrap()
    }

    pub async fn ask(&self, addr: SocketAddr, key: &str, body: &Value) -> Answered {
        whole(self.send(addr, key, body).await).await
    }

    /// Sends a body and reads the answer.
    pub async fn had(&self, addr: SocketAddr, key: &str, body: &Value) -> Had {
        self.read(&self.ask(addr, key, body).await)
    }

    /// The history of a client that had this, with results, up to a question.
    pub fn went_on(&self, body: &Value, had: &Had) -> Value {
        let done = ["done".to_owned()];
        let results: Vec<Result<'_>> = had.calls.iter().map(|call| (call.id.as_str(), done.as_slice())).collect();
        let mut body = body.clone();
        let items = body[self.array()].as_array_mut().unwrap();
        items.extend(had.items.iter().cloned());
        items.extend(self.results_and_question(&results, "Go on."));
        body
    }

    /// The conversation that a provider got, as bytes, without the closing bracket.
    pub fn sent(&self, body: &[u8]) -> String {
        let text = String::from_utf8(body.to_vec()).unwrap();
        let start = text.find(&format!("\"{}\":[", self.array())).unwrap();
        let mut parsed =
            serde_json::Deserializer::from_str(&text[start + self.array().len() + 3..]).into_iter::<Value>();
        parsed.next().unwrap().unwrap();
        text[start..start + self.array().len() + 3 + parsed.byte_offset() - 1].to_owned()
    }
}

/// The data of a stream's events.
fn events(answer: &Answered) -> Vec<Value> {
    let data = answer.text().lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    data.map(|data| serde_json::from_str(data).unwrap_or_else(|_| panic!("no JSON: {data}"))).collect()
}

/// What an answer of any dialect must be: well, without a trace of what the proxy added.
fn checked(answer: &Answered) -> Form {
    let text = answer.text();
    assert_eq!(answer.status, 200, "{text}");
    for trace in ["read_evicted", "own_", "hunt_", "compactproxy"] {
        assert!(!text.contains(trace), "{trace} in {text}");
    }
    if answer.header("content-type").starts_with("application/json") {
        return Form::Whole(serde_json::from_str(text).unwrap());
    }
    assert!(answer.header("content-type").starts_with("text/event-stream"));
    Form::Stream(events(answer))
}

enum Form {
    Whole(Value),
    Stream(Vec<Value>),
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}
