//! The model calls the proxy's tool on a socket: what goes on beside it, and what ends it.

mod beside;
mod refused;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::{Ends, SECTIONS, call, ends, request, result, user};
use crate::support::chat::{ids, words};
use crate::support::wire::patiently;

const OWN: &str = "read_evicted";

fn sections() -> String {
    format!("{SECTIONS}[tools]\n")
}

/// A request with a result that is evicted, so that the tool comes with it.
fn asking(lane: Option<&str>) -> Value {
    let mut body = request(None, json!([user("look"), call(1), result(1, &words(3, 12_000))]));
    body["tools"] = json!([{"type": "function", "name": "exec_command", "parameters": {"type": "object"}}]);
    on(lane, body)
}

fn on(lane: Option<&str>, mut message: Value) -> Value {
    if let Some(lane) = lane {
        message["stream_id"] = json!(lane);
    }
    message
}

fn created(id: &str) -> Value {
    json!({"type": "response.created", "sequence_number": 0, "response": {"id": id, "status": "in_progress", "store": false,
        "tools": [{"type": "function", "name": "exec_command"}]}})
}

fn delta(text: &str) -> Value {
    json!({"type": "response.output_text.delta", "sequence_number": 1, "output_index": 0, "delta": text})
}

fn ended(how: &str, id: &str, output: &Value) -> Value {
    let usage = json!({"input_tokens": 10, "output_tokens": 2, "total_tokens": 12});
    let response = json!({"id": id, "status": how, "store": false, "output": output, "usage": usage});
    json!({"type": format!("response.{how}"), "sequence_number": 9, "response": response})
}

/// A call of the proxy's tool.
fn own(n: &str, arguments: &Value) -> Value {
    let arguments = arguments.to_string();
    json!({"type": "function_call", "id": format!("fc_{n}"), "call_id": format!("own_{n}"), "name": OWN, "arguments": arguments})
}

fn item(item: &Value, kind: &str) -> Value {
    json!({"type": format!("response.output_item.{kind}"), "sequence_number": 1, "output_index": 0, "item": item})
}

impl Ends {
    /// The client asks, and the model calls the proxy's tool in `resp_0`; what it is asked then.
    async fn called(&mut self, lane: Option<&str>) -> Value {
        self.ask(&asking(lane)).await;
        let asked: Value = serde_json::from_str(&self.asked().await).unwrap();
        assert_eq!(asked["tools"][1]["name"], OWN);
        self.calls(&asked, lane).await;
        serde_json::from_str(&self.asked().await).unwrap()
    }

    async fn calls(&mut self, asked: &Value, lane: Option<&str>) {
        let evicted = ids(asked.to_string().as_bytes()).remove(0);
        let call = own("1", &json!({"id": evicted, "limit": 3}));
        self.tell(&on(lane, created("resp_0"))).await;
        assert_eq!(self.told().await, on(lane, created("resp_0")));
        for event in [item(&call, "added"), item(&call, "done"), ended("completed", "resp_0", &json!([call]))] {
            self.tell(&on(lane, event)).await;
        }
    }

    /// What the client gets of the last event.
    async fn ends_with(&mut self, lane: Option<&str>, how: &str, id: &str) -> Value {
        self.tell(&on(lane, ended(how, id, &json!([])))).await;
        let last = self.told().await;
        assert_eq!(last["type"], format!("response.{how}"), "{last}");
        assert_eq!(last["stream_id"], lane.map_or(Value::Null, Value::from));
        last
    }
}

#[tokio::test]
async fn a_round_goes_on_behind_the_one_before_and_the_client_behind_the_last() {
    for lane in [None, Some("a")] {
        let mut ends = ends(&sections()).await;
        let round = ends.called(lane).await;
        assert_eq!((&round["previous_response_id"], &round["type"]), (&json!("resp_0"), &json!("response.create")));
        assert_eq!(round["stream_id"], lane.map_or(Value::Null, Value::from));
        let items = round["input"].as_array().unwrap();
        assert_eq!((items.len(), &items[0]["call_id"]), (1, &json!("own_1")));
        assert!(items[0]["output"].as_str().unwrap().contains(words(3, 12_000).lines().next().unwrap()));
        ends.tell(&on(lane, created("resp_1"))).await;
        ends.tell(&on(lane, delta("It says so."))).await;
        let shown = ends.told().await;
        assert_eq!((&shown["delta"], &shown["sequence_number"]), (&json!("It says so."), &json!(1)));
        let last = ends.ends_with(lane, "completed", "resp_1").await;
        assert_eq!((&last["response"]["id"], &last["sequence_number"]), (&json!("resp_0"), &json!(2)));
        assert_eq!(last["response"]["usage"]["output_tokens"], 4);
        // Its client knows it by the first id. The connection alone has the last one.
        for (shown, at) in [("resp_0", "resp_1"), ("resp_2", "resp_2")] {
            let mut next = on(lane, request(Some(shown), json!([user("and now?")])));
            next["tools"] = asking(None)["tools"].clone();
            ends.ask(&next).await;
            let asked: Value = serde_json::from_str(&ends.asked().await).unwrap();
            assert_eq!((&asked["previous_response_id"], &asked["input"]), (&json!(at), &next["input"]));
            assert_eq!(asked["tools"][1]["name"], OWN, "frozen");
            ends.tell(&on(lane, created("resp_2"))).await;
            assert_eq!(ends.told().await["type"], "response.created");
            ends.ends_with(lane, "completed", "resp_2").await;
        }
    }
}

#[tokio::test]
async fn other_lanes_go_on_while_one_has_its_round_and_its_own_next_request_waits() {
    let mut ends = ends(&sections()).await;
    ends.called(Some("a")).await;
    let waits = on(Some("a"), request(None, json!([user("next")])));
    ends.ask(&waits).await;
    let other = on(Some("b"), request(None, json!([user("other")])));
    ends.ask(&other).await;
    assert_eq!(ends.asked().await, other.to_string());
    for event in [created("resp_b"), delta("b"), ended("completed", "resp_b", &json!([]))] {
        let event = on(Some("b"), event);
        ends.tell(&event).await;
        assert_eq!(ends.told().await, event);
    }
    ends.tell(&on(Some("a"), created("resp_1"))).await;
    ends.ends_with(Some("a"), "completed", "resp_1").await;
    assert_eq!(ends.asked().await, waits.to_string());
}

#[tokio::test]
async fn a_cancel_reaches_the_round_that_is_out() {
    for named in [true, false] {
        let mut ends = ends(&sections()).await;
        ends.called(None).await;
        ends.tell(&created("resp_1")).await;
        ends.tell(&delta("It")).await;
        assert_eq!(ends.told().await["delta"], "It");
        let cancel = |id: &str| match named {
            true => json!({"type": "response.cancel", "response_id": id}),
            false => json!({"type": "response.cancel"}),
        };
        ends.ask(&cancel("resp_0")).await;
        assert_eq!(ends.asked().await, cancel("resp_1").to_string());
        let last = ends.ends_with(None, "cancelled", "resp_1").await;
        assert_eq!(last["response"]["id"], "resp_0");
        // The lane is free.
        let next = request(None, json!([user("next")]));
        ends.ask(&next).await;
        assert_eq!(ends.asked().await, next.to_string());
    }
}

/// One that comes before the provider has said what the round is called goes out as soon as it has.
#[tokio::test]
async fn a_cancel_waits_for_the_rounds_name_and_no_round_follows_it() {
    let mut ends = ends(&sections()).await;
    let asked = ends.called(None).await;
    ends.ask(&json!({"type": "response.cancel", "response_id": "resp_0"})).await;
    ends.ask(&json!({"type": "session.note"})).await;
    assert!(ends.asked().await.contains("session.note"));
    ends.tell(&created("resp_1")).await;
    assert_eq!(ends.asked().await, json!({"type": "response.cancel", "response_id": "resp_1"}).to_string());
    // It came too late, and the model calls once more.
    let call = json!({"type": "function_call", "id": "fc_2", "call_id": "own_2", "name": OWN, "arguments": "{}"});
    let done = json!({"type": "response.output_item.done", "sequence_number": 1, "output_index": 0, "item": call});
    ends.tell(&done).await;
    ends.tell(&ended("completed", "resp_1", &json!([call]))).await;
    let last = ends.told().await;
    assert_eq!((&last["type"], &last["response"]["output"]), (&json!("response.completed"), &json!([])));
    let mut next = request(Some("resp_0"), json!([user("next")]));
    next["tools"] = asked["tools"].clone();
    next["tools"].as_array_mut().unwrap().pop();
    ends.ask(&next).await;
    let asked: Value = serde_json::from_str(&ends.asked().await).unwrap();
    assert_eq!((&asked["previous_response_id"], &asked["input"][0]["call_id"]), (&json!("resp_1"), &json!("own_2")));
}

#[tokio::test]
async fn an_upstream_that_closes_in_a_round_ends_the_turn_as_it_would_without() {
    for begun in [false, true] {
        let mut ends = ends(&sections()).await;
        ends.called(None).await;
        if begun {
            ends.tell(&created("resp_1")).await;
            ends.tell(&delta("It")).await;
            assert_eq!(ends.told().await["delta"], "It");
        }
        ends.upstream.close(None).await.unwrap();
        assert!(patiently("the close", ends.client.next()).await.unwrap().unwrap().is_close());
    }
}

#[tokio::test]
async fn a_client_that_goes_in_a_round_takes_the_upstream_with_it() {
    let mut ends = ends(&sections()).await;
    ends.called(None).await;
    let Ends { client, mut upstream, proxy: _proxy } = ends;
    drop(client);
    while let Some(Ok(message)) = patiently("the end", upstream.next()).await {
        assert!(message.is_close(), "{message}");
    }
}

/// Asks, and sends more requests behind that than wait on a lane: what the upstream was asked first.
async fn overrun(ends: &mut Ends) -> Value {
    ends.ask(&asking(None)).await;
    let asked: Value = serde_json::from_str(&ends.asked().await).unwrap();
    let waiting: Vec<Value> = (0..17).map(|n| request(None, json!([user(&format!("next {n}"))]))).collect();
    for next in &waiting {
        ends.ask(next).await;
    }
    for next in &waiting {
        assert_eq!(ends.asked().await, next.to_string());
    }
    asked
}

/// Which answer comes next nobody could tell then: this one ends with what was said, and the others pass.
#[tokio::test]
async fn no_round_follows_where_requests_were_sent_behind_the_answer() {
    let mut ends = ends(&sections()).await;
    let asked = overrun(&mut ends).await;
    ends.calls(&asked, None).await;
    let last = ends.told().await;
    assert_eq!((&last["type"], &last["response"]["output"]), (&json!("response.completed"), &json!([])));
    for n in 0..17 {
        let event = ended("completed", &format!("resp_{n}"), &json!([]));
        ends.tell(&event).await;
        assert_eq!(ends.told().await, event);
    }
    ends.ask(&asking(None)).await;
    assert!(ends.asked().await.contains(OWN), "looked at again");
}

/// What cannot be held cannot be taken anything out of.
#[tokio::test]
async fn an_event_too_long_to_be_read_ends_a_socket_with_tools() {
    let mut ends = ends(&sections()).await;
    ends.called(None).await;
    ends.tell(&created("resp_1")).await;
    let event = Message::text(format!(r#"{{"a":"{}"}}"#, "x".repeat(17 * 1024 * 1024)));
    let Ends { client, upstream, proxy: _proxy } = &mut ends;
    let (sent, got) = tokio::join!(upstream.send(event), patiently("the close", client.next()));
    drop(sent);
    let Message::Close(Some(why)) = got.unwrap().unwrap() else { panic!("no close") };
    assert_eq!(why.code, CloseCode::Size);
}

/// Where nothing is removed there are no tools, and every frame passes as it came.
#[tokio::test]
async fn a_socket_without_removals_has_no_tools() {
    let mut ends = ends(&sections()).await;
    let mut small = request(None, json!([user("look")]));
    small["tools"] = asking(None)["tools"].clone();
    ends.ask(&small).await;
    assert_eq!(ends.asked().await, small.to_string());
    ends.answer("resp_0", "fine").await;
}
