//! Events that pass unread: they are too long, or there is no room for them.

use compactproxy::proxy::budget::Permit;
use futures_util::{SinkExt, StreamExt};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;

use super::{Ends, SECTIONS, call, ends, over, request, result, text, user};
use crate::support::chat::{changed, parsed, words};
use crate::support::wire::{Listener, patiently};

/// Of an event that is too long, its beginning tells whether it is the last one; if not there, the next end does.
#[tokio::test]
async fn an_event_that_is_too_long_to_be_read_ends_compaction_for_no_longer_than_its_answer() {
    let long = "x".repeat(17 * 1024 * 1024);
    let first = format!(r#"{{"type":"response.completed","response":{{"id":"r","output":"{long}"}}}}"#);
    let hidden = format!(r#"{{"response":{{"id":"r","output":"{long}"}},"type":"response.completed"}}"#);
    for (completed, missed) in [(first, 0), (hidden, 1)] {
        let mut ends = ends(SECTIONS).await;
        let body = request(None, json!([user("look"), call(1), result(1, &words(3, 12_000))]));
        ends.ask(&request(None, json!([user("begin")]))).await;
        ends.asked().await;
        let opening = json!({"type": "response.output_text.delta", "delta": "x"});
        ends.tell(&opening).await;
        assert_eq!(ends.told().await, opening);
        let Ends { client, upstream, .. } = &mut ends;
        let (sent, got) = tokio::join!(upstream.send(Message::text(completed.clone())), patiently("it", client.next()));
        sent.unwrap();
        assert!(text(got.unwrap().unwrap()) == completed);
        for n in 0..=missed {
            ends.ask(&body).await;
            assert_eq!(ends.asked().await.contains("/_compactproxy/evicted/"), n == missed, "{n} of {missed}");
            ends.answer(&format!("resp_{n}"), "done").await;
        }
    }
}

/// The end of an answer comes in two reads while there is no room for its first half: whatever that shows of it, the next
/// request is compacted again.
#[tokio::test]
async fn the_end_of_an_answer_for_which_there_is_no_room_ends_it() {
    let filler = "x".repeat(3_000);
    let completed = format!(r#"{{"type":"response.completed","response":{{"id":"r","output":["{filler}"]}}}}"#);
    let length = u16::try_from(completed.len()).unwrap().to_be_bytes();
    let event = [&[0x81, 126], &length[..], completed.as_bytes()].concat();
    // The frame's header, a part of the type, the type.
    for cut in [4, 20, 200] {
        let listener = Listener::bind().await;
        let mut budget = None;
        let config = parsed(&format!("{}/v1", listener.url()), SECTIONS);
        let proxy = changed(config, |proxy| budget = Some(proxy.budget.clone()));
        let budget = budget.unwrap();
        let mut ends = over(proxy, listener).await;
        ends.ask(&request(None, json!([user("begin")]))).await;
        ends.asked().await;
        let opening = json!({"type": "response.output_text.delta", "delta": "x"});
        ends.tell(&opening).await;
        assert_eq!(ends.told().await, opening);
        let mut all = Permit::empty(&budget);
        assert!(all.grow(budget.free()));
        for part in [&event[..cut], &event[cut..]] {
            ends.upstream.get_mut().write_all(part).await.unwrap();
            let mut passed = vec![0; part.len()];
            patiently("the part", ends.client.get_mut().read_exact(&mut passed)).await.unwrap();
            assert_eq!(passed, part);
        }
        drop(all);
        ends.ask(&request(None, json!([user("look"), call(1), result(1, &words(3, 12_000))]))).await;
        assert!(ends.asked().await.contains("/_compactproxy/evicted/"), "{cut}");
        ends.answer("resp_1", "done").await;
    }
}
