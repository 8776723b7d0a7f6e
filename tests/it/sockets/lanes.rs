//! Several requests on one socket: those of one lane (`stream_id`) wait for each other, lanes do not.

use compactproxy::proxy::budget::Permit;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::{Ends, SECTIONS, call, ends, over, request, result, text, too_long, user};
use crate::support::chat::{changed, parsed, words};
use crate::support::wire::{Listener, patiently};

const EVICTED: &str = "/_compactproxy/evicted/";

/// What something says of its lane: its id, or nothing.
fn on(lane: Option<&str>, mut message: Value) -> Value {
    if let Some(lane) = lane {
        message["stream_id"] = json!(lane);
    }
    message
}

/// A request with a result that is evicted.
fn large(lane: Option<&str>, n: usize) -> Value {
    on(lane, request(None, json!([user("look"), call(n), result(n, &words(n as u64, 12_000))])))
}

/// A request that overflows: five results just under the limit.
fn overlong(lane: &str, n: usize) -> Value {
    let turns = (n * 10..n * 10 + 5).flat_map(|n| [call(n), result(n, &words(n as u64, 3_000))]);
    on(Some(lane), request(None, [user("begin")].into_iter().chain(turns).collect()))
}

impl Ends {
    /// Events pass as they are.
    async fn pass(&mut self, events: &[Value]) {
        for event in events {
            self.tell(event).await;
            assert_eq!(self.told().await, *event);
        }
    }

    async fn complete(&mut self, lane: Option<&str>, id: &str) {
        let completed = json!({"type": "response.completed", "response": {"id": id, "output": []}});
        let created = json!({"type": "response.created", "response": {"id": id}});
        for event in [created, completed] {
            self.tell(&on(lane, event.clone())).await;
            assert_eq!(self.told().await, on(lane, event));
        }
    }

    /// A request that is out, and one that waits for its answer.
    async fn one_waits(&mut self) -> String {
        self.ask(&large(None, 1)).await;
        assert!(self.asked().await.contains(EVICTED));
        let waits = large(None, 2);
        self.ask(&waits).await;
        self.cancel().await;
        waits.to_string()
    }

    async fn cancel(&mut self) {
        let cancel = json!({"type": "response.cancel"});
        self.ask(&cancel).await;
        assert_eq!(self.asked().await, cancel.to_string());
    }
}

#[tokio::test]
async fn the_second_request_of_a_lane_waits_for_the_first_ones_answer_and_is_compacted_too() {
    for lane in [None, Some("a")] {
        let mut ends = ends(SECTIONS).await;
        for n in 1..4 {
            ends.ask(&large(lane, n)).await;
        }
        for n in 1..4 {
            let asked = ends.asked().await;
            assert!(asked.contains(EVICTED) && asked.contains(&format!("call_{n}")), "{n}: {asked}");
            // What is no request does not wait, and comes to the upstream before the request that does.
            ends.cancel().await;
            ends.complete(lane, &format!("resp_{n}")).await;
        }
    }
}

#[tokio::test]
async fn every_end_of_an_answer_lets_the_next_request_go() {
    for end in ["completed", "incomplete", "failed", "cancelled"] {
        let mut ends = ends(SECTIONS).await;
        for n in 1..3 {
            ends.ask(&large(None, n)).await;
        }
        assert!(ends.asked().await.contains("call_1"));
        ends.pass(&[
            json!({"type": "response.created", "response": {"id": "r"}}),
            json!({"type": "response.output_text.delta", "delta": "x"}),
            json!({"type": format!("response.{end}"), "response": {"id": "r", "output": []}}),
        ])
        .await;
        assert!(ends.asked().await.contains("call_2"), "{end}");
    }
}

#[tokio::test]
async fn lanes_go_on_side_by_side_and_each_recovers_from_its_own_overflow() {
    let mut ends = ends(SECTIONS).await;
    let mut first = Vec::new();
    for (n, lane) in ["a", "b"].into_iter().enumerate() {
        ends.ask(&overlong(lane, n)).await;
        first.push(ends.asked().await.len());
    }
    let mut error = too_long();
    error["error"]["message"] =
        json!("This model's maximum context length is 8000 tokens. However, your messages resulted in 12200 tokens.");
    let created = |id: &str| json!({"type": "response.created", "response": {"id": id}});
    for event in [
        on(Some("b"), created("resp_b")),
        on(Some("a"), created("resp_a")),
        on(Some("b"), error.clone()),
        on(Some("a"), error),
    ] {
        ends.tell(&event).await;
    }
    let mut lanes = Vec::new();
    for _ in 0..2 {
        let asked = ends.asked().await;
        let again: Value = serde_json::from_str(&asked).unwrap();
        assert!(first.iter().all(|&first| asked.len() < first), "{} bytes, then {}", first[0], asked.len());
        lanes.push(again["stream_id"].as_str().unwrap().to_owned());
    }
    lanes.sort();
    assert_eq!(lanes, ["a", "b"]);
    // The client sees the second attempts only, interleaved as they come.
    let delta = |lane| on(Some(lane), json!({"type": "response.output_text.delta", "delta": lane}));
    ends.pass(&[delta("b"), delta("a"), delta("b")]).await;
    ends.complete(Some("a"), "resp_a2").await;
    ends.complete(Some("b"), "resp_b2").await;
    ends.ask(&large(Some("a"), 90)).await;
    assert!(ends.asked().await.contains(EVICTED));
}

/// A provider that knows of no lanes names none: the only one that is out is meant.
#[tokio::test]
async fn events_without_a_lane_belong_to_the_only_one_that_is_out() {
    let mut ends = ends(SECTIONS).await;
    for n in 1..3 {
        ends.ask(&large(Some("a"), n)).await;
    }
    for n in 1..3 {
        assert!(ends.asked().await.contains(EVICTED), "{n}");
        ends.complete(None, &format!("resp_{n}")).await;
    }
}

/// Whose an event is cannot be told then: the requests that wait go out as they came, rather than never.
#[tokio::test]
async fn where_an_event_could_be_anybodys_nothing_waits_for_it() {
    let mut ends = ends(SECTIONS).await;
    for (n, lane) in ["a", "b"].into_iter().enumerate() {
        ends.ask(&large(Some(lane), n)).await;
        assert!(ends.asked().await.contains(EVICTED));
    }
    let waits = large(Some("a"), 7);
    ends.ask(&waits).await;
    ends.cancel().await;
    ends.pass(&[json!({"type": "response.created", "response": {"id": "r"}})]).await;
    assert_eq!(ends.asked().await, waits.to_string());
    // The errors of none are taken for another's.
    ends.pass(&[too_long(), too_long(), too_long()]).await;
}

fn told_too_long() -> Value {
    let mut error = too_long();
    error["error"]["message"] =
        json!("This model's maximum context length is 8000 tokens. However, your messages resulted in 12200 tokens.");
    error
}

/// The default lane's events name none either: only of a provider that has named one it is known that they are meant.
#[tokio::test]
async fn events_without_a_lane_are_the_default_ones_where_the_provider_names_the_others() {
    for names in [true, false] {
        let mut ends = ends(SECTIONS).await;
        let mut own = overlong("a", 0);
        own.as_object_mut().unwrap().remove("stream_id");
        for body in [&large(Some("a"), 90), &own] {
            ends.ask(body).await;
        }
        let first = [ends.asked().await, ends.asked().await];
        let created = on(names.then_some("a"), json!({"type": "response.created", "response": {"id": "r"}}));
        ends.tell(&created).await;
        ends.tell(&told_too_long()).await;
        if names {
            let again = ends.asked().await;
            assert!(again.len() < first[0].len().max(first[1].len()) && !again.contains("stream_id"));
            continue;
        }
        assert_eq!((ends.told().await, ends.told().await), (created, told_too_long()));
        ends.cancel().await;
    }
}

/// What is out there cannot be told from the default lane's by what it is answered.
#[tokio::test]
async fn requests_with_odd_lanes_pass_as_they_are_and_their_errors_are_nobodys() {
    let odd = |id: Value| {
        let mut body = large(None, 1);
        body["stream_id"] = id;
        body
    };
    for id in [json!(7), json!(["a"]), json!("x".repeat(300))] {
        let mut ends = ends(SECTIONS).await;
        let stray = odd(id);
        ends.ask(&stray).await;
        assert_eq!(ends.asked().await, stray.to_string());
        let mut own = overlong("a", 0);
        own.as_object_mut().unwrap().remove("stream_id");
        ends.ask(&own).await;
        ends.asked().await;
        ends.pass(&[told_too_long()]).await;
        ends.cancel().await;
    }
    let mut ends = ends(SECTIONS).await;
    ends.ask(&odd(Value::Null)).await;
    assert!(ends.asked().await.contains(EVICTED), "no lane is the default one");
}

/// Of more than 64 lanes that are out no more are kept apart.
#[tokio::test]
async fn requests_on_more_lanes_than_are_kept_pass_as_they_are() {
    let mut ends = ends(SECTIONS).await;
    for n in 0..65 {
        let lane = format!("lane_{n}");
        ends.ask(&large(Some(&lane), n)).await;
        let asked = ends.asked().await;
        assert_eq!(asked.contains(EVICTED), n < 64, "{n}");
    }
    ends.complete(Some("lane_64"), "r").await;
    // One that has been answered makes room.
    ends.complete(Some("lane_3"), "r").await;
    ends.ask(&large(Some("lane_70"), 70)).await;
    assert!(ends.asked().await.contains(EVICTED));
}

#[tokio::test]
async fn an_answer_that_passes_unread_is_not_waited_for() {
    let mut ends = ends(SECTIONS).await;
    let waits = ends.one_waits().await;
    let event = Message::text(format!(r#"{{"a":"{}"}}"#, "x".repeat(17 * 1024 * 1024)));
    let Ends { client, upstream, .. } = &mut ends;
    let (sent, got) = tokio::join!(upstream.send(event.clone()), patiently("it", client.next()));
    sent.unwrap();
    assert!(got.unwrap().unwrap() == event);
    assert_eq!(ends.asked().await, waits);
}

#[tokio::test]
async fn requests_for_which_there_is_no_room_do_not_wait() {
    let listener = Listener::bind().await;
    let mut budget = None;
    let config = parsed(&format!("{}/v1", listener.url()), SECTIONS);
    let proxy = changed(config, |proxy| budget = Some(proxy.budget.clone()));
    let budget = budget.unwrap();
    let mut ends = over(proxy, listener).await;
    ends.ask(&large(None, 1)).await;
    assert!(ends.asked().await.contains(EVICTED));
    let mut all = Permit::empty(&budget);
    // Room for the message as it is put together, not for its waiting.
    let waits = large(None, 2);
    assert!(all.grow(budget.free() - waits.to_string().len() * 3 / 2));
    ends.ask(&waits).await;
    assert_eq!(ends.asked().await, waits.to_string());
}

/// A client that closes its sending side has sent all the same what waits.
#[tokio::test]
async fn a_client_that_leaves_has_its_waiting_requests_sent() {
    let mut ends = ends(SECTIONS).await;
    let waits = ends.one_waits().await;
    let Ends { client, mut upstream, proxy: _proxy } = ends;
    drop(client);
    let next = patiently("the request", upstream.next()).await.unwrap().unwrap();
    assert_eq!(text(next), waits);
}
