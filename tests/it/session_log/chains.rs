//! Conversations that the provider holds: one session in the log all the same.

use futures_util::{SinkExt, StreamExt};
use tokio_tungstenite::tungstenite::Message;

use super::*;
use crate::support::responses::{Mock, answer, ask, says};
use crate::support::wire::{Listener, patiently};

/// The only session: numbers and texts of its branch.
async fn only(proxy: &Proxy, store: &Store) -> Vec<(u32, String)> {
    let all = logged(proxy, store).await;
    let [(_, messages)] = all.as_slice() else { panic!("{} sessions: {all:?}", all.len()) };
    messages.iter().map(|message| (message.number, message.text())).collect()
}

fn whole(turns: usize) -> Vec<(u32, String)> {
    let turns = (0..turns).flat_map(|turn| [format!("question {turn}"), format!("answer {turn}")]);
    (1..).zip(turns).collect()
}

#[tokio::test]
async fn a_chain_of_responses_is_one_session() {
    let provider = Mock::start(|asked| {
        let turn = asked.body["input"][0]["content"].as_str().unwrap().replace("question", "answer");
        let id = format!("resp_{}", turn.split(' ').next_back().unwrap());
        answer(asked, &id, &json!([says(&turn)]))
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let store = open(&format!("sqlite://{}", folder.path().join("state.db").display()));
    let proxy = Proxy::new(parsed(&format!("{}/v1", provider.url()), ALL_ON), Some(Arc::clone(&store))).unwrap();
    let running = Served::of(Arc::clone(&proxy));
    for turn in 0..4 {
        let mut body = json!({"model": "m", "input": [{"role": "user", "content": format!("question {turn}")}], "stream": turn % 2 == 1});
        if turn > 0 {
            body["previous_response_id"] = format!("resp_{}", turn - 1).into();
        }
        assert_eq!(ask(running.proxy_addr, "/v1/responses", &body).await.status, 200);
        assert_eq!(only(&proxy, &store).await, whole(turn + 1));
    }
    // A fork of it is a branch of the same session.
    let body =
        json!({"model": "m", "input": [{"role": "user", "content": "question 1b"}], "previous_response_id": "resp_0"});
    ask(running.proxy_addr, "/v1/responses", &body).await;
    let forked = only(&proxy, &store).await;
    assert_eq!((&forked[..2], forked[2].0, forked[2].1.as_str()), (&whole(1)[..], 3, "question 1b"));
}

#[tokio::test]
async fn increments_on_a_socket_are_one_session() {
    let listener = Listener::bind().await;
    let folder = tempfile::tempdir().unwrap();
    let store = open(&format!("sqlite://{}", folder.path().join("state.db").display()));
    let proxy = Proxy::new(parsed(&format!("{}/v1", listener.url()), ALL_ON), Some(Arc::clone(&store))).unwrap();
    let running = Served::of(Arc::clone(&proxy));
    let client = tokio_tungstenite::connect_async(format!("ws://{}/v1/responses", running.proxy_addr));
    let upstream = async { tokio_tungstenite::accept_async(listener.accept().await.stream).await };
    let (client, upstream) = patiently("the handshakes", async { tokio::join!(client, upstream) }).await;
    let (mut client, mut upstream) = (client.unwrap().0, upstream.unwrap());
    for turn in 0..3 {
        let input = json!([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": format!("question {turn}")}]}]);
        let mut body = json!({"type": "response.create", "model": "m", "store": false, "input": input});
        if turn > 0 {
            body["previous_response_id"] = format!("resp_{}", turn - 1).into();
        }
        client.send(Message::text(body.to_string())).await.unwrap();
        patiently("the request", upstream.next()).await.unwrap().unwrap();
        let (id, item) = (format!("resp_{turn}"), says(&format!("answer {turn}")));
        let response = json!({"id": id, "output": [item], "usage": {"input_tokens": 10, "output_tokens": 2}});
        for event in [
            json!({"type": "response.created", "response": {"id": id}}),
            json!({"type": "response.output_item.done", "item": item}),
            json!({"type": "response.completed", "response": response}),
        ] {
            upstream.send(Message::text(event.to_string())).await.unwrap();
            patiently("the event", client.next()).await.unwrap().unwrap();
        }
    }
    let said = only(&proxy, &store).await;
    assert_eq!(&said[..5], &whole(3)[..5]);
}
