//! While a request of one lane waits for its summary, the other lanes go on.

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

use super::{Ends, call, joined, refuse, request, result, user};
use crate::support::chat::{parsed, words};
use crate::support::proxy::start;
use crate::support::wire::{Listener, patiently};

/// What overflows can only be summarized.
const SECTIONS: &str = "[compaction]\n[[window]]\nmodel = \"m\"\ninput = 8_000\n";

fn on(lane: &str, mut message: Value) -> Value {
    message["stream_id"] = json!(lane);
    message
}

fn cancel(lane: &str) -> Value {
    on(lane, json!({"type": "response.cancel"}))
}

/// A socket on whose lane "a" a request would overflow, and the side call that it waits for.
async fn waiting() -> (Ends, TcpStream) {
    let listener = Listener::bind().await;
    let config = parsed(&format!("{}/v1", listener.url()), SECTIONS);
    let (mut ends, listener) = joined(start(config), listener).await;
    let turns = (0..5).flat_map(|n| [call(n), result(n, &words(n as u64, 3_000))]);
    ends.ask(&on("a", request(None, [user("begin")].into_iter().chain(turns).collect()))).await;
    let side_call = patiently("the side call", listener.0.accept()).await.unwrap().0;
    (ends, side_call)
}

impl Ends {
    /// The upstream gets the request of lane "a", shortened.
    async fn asked_for_less(&mut self) {
        let asked = self.asked().await;
        let body: Value = serde_json::from_str(&asked).unwrap();
        assert!(body["stream_id"] == "a" && body["type"] == "response.create" && asked.len() < 40_000, "{asked}");
    }
}

#[tokio::test]
async fn a_lane_that_waits_for_its_summary_keeps_no_other_waiting() {
    let (mut ends, mut side_call) = waiting().await;
    // What belongs to it waits with it.
    ends.ask(&cancel("a")).await;
    for lane in ["b", "c"] {
        let other = on(lane, request(None, json!([user("hello")])));
        ends.ask(&other).await;
        assert_eq!(ends.asked().await, other.to_string());
        ends.ask(&cancel(lane)).await;
        assert_eq!(ends.asked().await, cancel(lane).to_string());
        for event in [
            on(lane, json!({"type": "response.created", "response": {"id": lane}})),
            on(lane, json!({"type": "response.completed", "response": {"id": lane, "output": []}})),
        ] {
            ends.tell(&event).await;
            assert_eq!(ends.told().await, event);
        }
    }
    refuse(&mut side_call).await;
    ends.asked_for_less().await;
    assert_eq!(ends.asked().await, cancel("a").to_string());
}

/// It may be a request of any lane.
#[tokio::test]
async fn what_cannot_be_read_keeps_its_place_behind_a_request_that_is_looked_at() {
    let (mut ends, mut side_call) = waiting().await;
    let binary = Message::binary(vec![7; 100]);
    ends.client.send(binary.clone()).await.unwrap();
    let other = on("b", request(None, json!([user("hello")])));
    ends.ask(&other).await;
    // A ping may pass it: it was seen, so all before it was.
    ends.client.send(Message::Ping(vec![1].into())).await.unwrap();
    assert!(patiently("a ping", ends.upstream.next()).await.unwrap().unwrap().is_ping());
    refuse(&mut side_call).await;
    ends.asked_for_less().await;
    assert_eq!(patiently("the message", ends.upstream.next()).await.unwrap().unwrap(), binary);
    assert_eq!(ends.asked().await, other.to_string());
}

#[tokio::test]
async fn a_client_that_leaves_waits_for_no_summary() {
    let (ends, _side_call) = waiting().await;
    let Ends { client, mut upstream, proxy: _proxy } = ends;
    drop(client);
    let next = patiently("the request", upstream.next()).await.unwrap().unwrap();
    assert!(super::text(next).len() > 60_000);
}
