//! How a socket ends that the proxy itself closes.

use std::time::{Duration, Instant};

use compactproxy::config::Config;
use futures_util::{SinkExt, StreamExt};
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::{SECTIONS, ends_with, request, user};
use crate::support::wire::patiently;

fn going_away(message: Message) -> bool {
    matches!(message, Message::Close(Some(frame)) if frame.code == CloseCode::Away)
}

/// A drain waits for the response that is being given, and for no other.
#[tokio::test]
async fn a_drain_closes_a_socket_behind_the_response_that_is_on_its_way() {
    let patient = |config: &mut Config| config.server.drain_timeout = Duration::from_secs(20);
    let mut ends = ends_with(SECTIONS, patient).await;
    ends.ask(&request(None, json!([user("Hello.")]))).await;
    ends.asked().await;
    let opening = json!({"type": "response.created", "response": {"id": "r1"}});
    let said = json!({"type": "response.output_text.delta", "delta": "Hi"});
    for event in [&opening, &said] {
        ends.tell(event).await;
        assert_eq!(&ends.told().await, event);
    }
    ends.proxy.stop();
    ends.tell(&said).await;
    assert_eq!(ends.told().await, said, "the response goes on");
    let last = json!({"type": "response.completed", "response": {"id": "r1", "output": []}});
    ends.tell(&last).await;
    assert_eq!(ends.told().await, last);
    assert!(going_away(patiently("the close", ends.client.next()).await.unwrap().unwrap()));
    assert!(going_away(patiently("the close", ends.upstream.next()).await.unwrap().unwrap()));
    assert!(patiently("the end", ends.client.next()).await.is_none());
    assert!(patiently("the end", ends.upstream.next()).await.is_none());
    let proxy = ends.proxy;
    patiently("the drain", tokio::task::spawn_blocking(move || proxy.join())).await.unwrap();
}

/// The upstream's idle timeout is that of its sockets; a ping is a sign of life.
#[tokio::test]
async fn a_silent_socket_is_closed_and_a_ping_is_no_silence() {
    let idle = Duration::from_secs(2);
    let short = |config: &mut Config| {
        let upstream = std::sync::Arc::make_mut(&mut config.upstreams[0]);
        upstream.idle_timeout = idle;
    };
    let mut ends = ends_with(SECTIONS, short).await;
    let (began, mut last) = (Instant::now(), Instant::now());
    while began.elapsed() < idle / 2 {
        last = Instant::now();
        ends.client.send(Message::Ping(vec![1].into())).await.unwrap();
        assert!(patiently("a ping", ends.upstream.next()).await.unwrap().unwrap().is_ping());
        ends.upstream.flush().await.unwrap();
        assert!(patiently("a pong", ends.client.next()).await.unwrap().unwrap().is_pong());
    }
    assert!(going_away(patiently("the close", ends.client.next()).await.unwrap().unwrap()));
    assert!(going_away(patiently("the close", ends.upstream.next()).await.unwrap().unwrap()));
    assert!(last.elapsed() >= idle, "the pings count");
}
