//! The strict provider's Responses API over real sockets, HTTP and WebSocket.

#![expect(clippy::unwrap_used, reason = "the functions that the tests share")]

use compactproxy::demo::answer::{Answer, ToolCall};
use compactproxy::demo::provider::{Provider, Settings, Verdict};
use compactproxy::demo::request::ModelRequest;
use compactproxy::demo::responses::{self, Socket};
use compactproxy::demo::script::{Behaviour, Reply};
use compactproxy::demo::window::Limit;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::support::json;

type Client = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Calls once, then has done.
fn behaviour() -> Behaviour {
    Behaviour::new(|request: &ModelRequest| {
        let answered = request.messages().iter().any(|item| item["type"] == "function_call_output");
        let call = ToolCall { id: "st000c000".to_owned(), name: "run".to_owned(), arguments: "{}".to_owned() };
        let calls = if answered { Vec::new() } else { vec![call] };
        Reply::Say(Answer { calls, ..Answer::text("I see.") })
    })
}

async fn start(responses: responses::Settings) -> Provider {
    Provider::start(Settings { responses, behaviour: behaviour(), ..Settings::default() }).await.unwrap()
}

async fn post(provider: &Provider, body: &Value) -> (u16, Value) {
    json::post(&format!("{}/responses", provider.base_url()), &[], body).await
}

fn output() -> Value {
    json!([{"type": "function_call_output", "call_id": "st000c000", "output": "ok"}])
}

#[tokio::test]
async fn a_loop_goes_on_from_the_response_before() {
    let provider = start(responses::Settings::default()).await;
    let (status, first) = post(&provider, &json!({"model": "m", "input": "go"})).await;
    assert_eq!((status, &first["output"][1]["type"]), (200, &json!("function_call")));
    let next = json!({"model": "m", "previous_response_id": first["id"], "input": output()});
    let (status, second) = post(&provider, &next).await;
    assert_eq!((status, &second["output"][0]["phase"]), (200, &json!("final_answer")));
    let (status, error) = post(&provider, &json!({"model": "m", "input": output()})).await;
    assert_eq!(status, 400);
    assert!(error["error"]["message"].as_str().unwrap().starts_with("No tool call found"));
    let verdicts: Vec<Verdict> = provider.completions().iter().map(|request| request.verdict).collect();
    assert_eq!(verdicts, [Verdict::Accepted, Verdict::Accepted, Verdict::Violated("R1")]);
    let usage: Vec<u64> = provider.completions().iter().map(|request| request.usage.prompt).collect();
    assert!(usage[1] > usage[0] + 10, "what the provider holds is counted: {usage:?}");
    let compact = format!("{}/responses/compact", provider.base_url());
    let (status, compacted) = json::post(&compact, &[], &json!({"model": "m", "input": "go"})).await;
    assert_eq!((status, &compacted["output"][1]["type"]), (200, &json!("compaction")));
    let (_, conversation) = json::post(&format!("{}/conversations", provider.base_url()), &[], &json!({})).await;
    let in_it = |input: Value| json!({"model": "m", "conversation": conversation["id"], "input": input});
    assert_eq!(post(&provider, &in_it(json!("go"))).await.0, 200);
    assert_eq!(post(&provider, &in_it(output())).await.0, 200);
}

#[tokio::test]
async fn overflow_in_a_stream_is_a_misfit_all_the_same() {
    let surface = responses::surfaces::Surface::FailedEvent;
    let provider = start(responses::Settings { surface, ..Default::default() }).await;
    provider.set_limit(Limit::of(5));
    let (status, _) = post(&provider, &json!({"model": "m", "input": "one two three four five six"})).await;
    assert_eq!(status, 400);
    let auto = json!({"model": "m", "input": "one two three four five six", "truncation": "auto"});
    assert_eq!(post(&provider, &auto).await.0, 200);
    let verdicts: Vec<Verdict> = provider.completions().iter().map(|request| request.verdict).collect();
    assert_eq!(verdicts, [Verdict::Overflow, Verdict::Accepted]);
}

async fn connect(provider: &Provider) -> Client {
    connect_async(format!("ws://{}/v1/responses", provider.addr())).await.unwrap().0
}

/// Sends one request and reads its events.
async fn create(client: &mut Client, mut body: Value) -> Vec<Value> {
    body["type"] = "response.create".into();
    body["model"] = "m".into();
    body["store"] = false.into();
    client.send(Message::text(body.to_string())).await.unwrap();
    let mut events = Vec::new();
    while let Some(Ok(Message::Text(text))) = client.next().await {
        let event: Value = serde_json::from_str(&text).unwrap();
        let last = ["response.completed", "response.failed", "error"].contains(&event["type"].as_str().unwrap());
        events.push(event);
        if last {
            break;
        }
    }
    events
}

#[tokio::test]
async fn a_socket_remembers_what_is_not_stored() {
    let provider = start(responses::Settings::default()).await;
    let mut client = connect(&provider).await;
    let warm =
        create(&mut client, json!({"input": [{"role": "developer", "content": "be good"}], "generate": false})).await;
    let id = warm.last().unwrap()["response"]["id"].clone();
    assert_eq!(warm.last().unwrap()["response"]["output"], json!([]));
    let called = create(&mut client, json!({"previous_response_id": id, "input": "go"})).await;
    let response = &called.last().unwrap()["response"];
    assert_eq!(response["output"][1]["type"], "function_call");
    let done = create(&mut client, json!({"previous_response_id": response["id"], "input": output()})).await;
    assert_eq!(done.last().unwrap()["type"], "response.completed");
    let mut other = connect(&provider).await;
    let lost = create(&mut other, json!({"previous_response_id": response["id"], "input": output()})).await;
    assert_eq!((&lost[0]["type"], &lost[0]["status"]), (&json!("error"), &json!(400)));
    assert_eq!(lost[0]["error"]["code"], "previous_response_not_found");
    provider.set_limit(Limit::of(10));
    let refused = create(&mut client, json!({"input": "one two three four five six seven"})).await;
    assert_eq!(refused[0]["error"]["code"], "context_length_exceeded");
    let verdicts: Vec<Verdict> = provider.completions().iter().map(|request| request.verdict).collect();
    let accepted = Verdict::Accepted;
    assert_eq!(verdicts, [accepted, accepted, accepted, Verdict::Violated("R8"), Verdict::Overflow]);
}

#[tokio::test]
async fn a_socket_may_be_refused() {
    let provider = start(responses::Settings { socket: Socket::Refused(426), ..Default::default() }).await;
    let error = connect_async(format!("ws://{}/v1/responses", provider.addr())).await.unwrap_err();
    let Error::Http(response) = error else { panic!("{error}") };
    assert_eq!(response.status(), 426);
}
