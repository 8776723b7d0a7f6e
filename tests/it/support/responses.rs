//! A provider of Responses that a test scripts, strict about pairs and reasoning, and histories for it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// A request as it came in.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Path and query.
    pub target: String,
    pub body: Value,
    pub bytes: Bytes,
}

/// Status, and a body of JSON or events.
pub type Reply = (u16, String);

pub struct Mock {
    pub addr: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Mock {
    /// Answers each request as `answer` says.
    pub async fn start(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer) = (Arc::clone(&asked), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                let service = service_fn(move |request| reply(request, Arc::clone(&seen), Arc::clone(&answer)));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { addr, asked }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

async fn reply<A: Fn(&Asked) -> Reply>(
    request: Request<Incoming>,
    seen: Arc<Mutex<Vec<Asked>>>,
    answer: Arc<A>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let target = request.uri().path_and_query().unwrap().to_string();
    let bytes = request.into_body().collect().await.unwrap().to_bytes();
    let asked = Asked { target, body: serde_json::from_slice(&bytes).unwrap_or_default(), bytes };
    let (status, body) = match fault(&asked.body) {
        Some(fault) => (400, refusal(&fault, "invalid_request_error")),
        None => answer(&asked),
    };
    seen.lock().unwrap().push(asked);
    let kind = if body.starts_with('{') { "application/json" } else { "text/event-stream" };
    Ok(Response::builder().status(status).header("content-type", kind).body(Full::from(body)).unwrap())
}

/// The rule that an input breaks (R1, R2, R4).
fn fault(body: &Value) -> Option<String> {
    let items = body["input"].as_array()?;
    let mut open: Vec<&str> = Vec::new();
    let continues = body["previous_response_id"].is_string();
    for (at, item) in items.iter().enumerate() {
        let kind = item["type"].as_str().unwrap_or("message");
        let id = item["call_id"].as_str().unwrap_or_default();
        if kind.ends_with("_call") {
            open.push(id);
        } else if kind.ends_with("_output") {
            match open.iter().position(|open| *open == id) {
                Some(at) => drop(open.remove(at)),
                None if continues => {}
                None => return Some(format!("No tool call found for function call output with call_id {id}.")),
            }
        } else if kind == "reasoning" && items.get(at + 1).is_none_or(|next| next["role"] == "user") {
            return Some("Item 'rs' of type 'reasoning' was provided without its required following item.".into());
        }
    }
    open.first().map(|id| format!("No tool output found for function call {id}."))
}

pub fn refusal(message: &str, code: &str) -> String {
    json!({"error": {"message": message, "type": "invalid_request_error", "param": "input", "code": code}}).to_string()
}

pub const TOO_LONG: &str =
    "Your input exceeds the context window of this model. Please adjust your input and try again.";

/// An answer with these output items.
pub fn response(id: &str, output: &Value) -> Value {
    json!({"id": id, "object": "response", "status": "completed", "error": null, "incomplete_details": null,
        "model": "demo-model", "output": output,
        "usage": {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 3, "total_tokens": 103}})
}

pub fn says(text: &str) -> Value {
    json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

pub fn event(value: &Value) -> String {
    format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap())
}

/// The first events of every stream: bookkeeping.
pub fn opening(id: &str) -> String {
    let begun = json!({"id": id, "object": "response", "status": "in_progress", "error": null, "output": []});
    ["response.created", "response.in_progress"]
        .map(|kind| event(&json!({"type": kind, "sequence_number": 0, "response": begun})))
        .concat()
}

/// A whole stream with these output items.
pub fn stream(id: &str, output: &Value) -> String {
    let items = output.as_array().unwrap().iter().enumerate();
    let items: String = items
        .map(|(at, item)| {
            let added = json!({"type": "response.output_item.added", "output_index": at, "item": item});
            event(&added) + &event(&json!({"type": "response.output_item.done", "output_index": at, "item": item}))
        })
        .collect();
    opening(id) + &items + &event(&json!({"type": "response.completed", "response": response(id, output)}))
}

/// As JSON or as a stream, as the request asks.
pub fn answer(asked: &Asked, id: &str, output: &Value) -> Reply {
    let streams = asked.body["stream"] == true;
    (200, if streams { stream(id, output) } else { response(id, output).to_string() })
}

/// A conversation as Codex sends it: `turns` tool calls with results of about `tokens` tokens.
pub fn history(name: &str, turns: usize, tokens: usize) -> Value {
    let mut input = vec![
        json!({"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "You are careful."}]}),
        json!({"type": "message", "role": "user", "content": [{"type": "input_text",
            "text": format!("Work on {name}. Rule 1: never touch the folder vendor.")}]}),
    ];
    for turn in 0..turns {
        input.extend(step(turn, &super::chat::words(turn as u64 + 7, tokens)));
    }
    json!({"model": "demo-model", "input": input, "store": false})
}

/// Reasoning, what was said, a call and its result.
pub fn step(turn: usize, text: &str) -> [Value; 4] {
    let call = format!("call_{turn}");
    [
        json!({"type": "reasoning", "id": format!("rs_{turn}"), "summary": [], "encrypted_content": "gAAAAABf"}),
        json!({"type": "message", "id": format!("msg_{turn}"), "role": "assistant", "phase": "commentary",
            "content": [{"type": "output_text", "text": format!("Step {turn}.")}]}),
        json!({"type": "function_call", "call_id": call, "name": "execute", "arguments": format!("{{\"command\":\"run {turn}\"}}")}),
        json!({"type": "function_call_output", "call_id": call, "output": text}),
    ]
}

/// Sends a body to a path of the proxy's.
pub async fn ask(addr: SocketAddr, path: &str, body: &Value) -> super::chat::Answered {
    let key = [("authorization", "Bearer k")];
    let sent = super::chat::send_to(&format!("http://{addr}{path}"), &key, body.to_string().into()).await;
    super::chat::whole(sent.unwrap()).await
}
