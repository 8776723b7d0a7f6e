//! Streams of Chat Completions whose server gives no reason for their end.

use http_body_util::BodyExt;
use serde_json::json;

use super::*;

fn chunk(delta: &Value) -> String {
    let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
    format!("data: {chunk}\n\n")
}

/// A stream of Chat whose server gives no reason for its end.
fn without_reason(deltas: &[Value], end: &str) -> Reply {
    let body = deltas.iter().map(chunk).collect::<String>() + end;
    let headers = vec![("content-type", "text/event-stream".to_owned())];
    Reply::Raw { status: 200, headers, body: body.into() }
}

fn calls(call: &ToolCall) -> Value {
    let function = json!({"name": call.name, "arguments": call.arguments});
    json!({"role": "assistant", "tool_calls": [{"index": 0, "id": call.id, "type": "function", "function": function}]})
}

const DONE: &str = "data: [DONE]\n\n";
const STREAMED: Cell = Cell { dialect: CHAT, stream: true };

#[tokio::test]
async fn calls_of_a_stream_that_gives_no_reason_are_run_where_it_says_that_it_is_over() {
    let life = "data: keep-alive\n\n: ping\n\ndata: [PING]\n\nevent: ping\n\ndata: \n\n";
    let steps = vec![
        step(|request| without_reason(&[calls(&own(request, 1))], DONE)),
        step(move |_| {
            let Reply::Raw { status, headers, body } =
                without_reason(&[json!({"role": "assistant", "content": "It is "}), json!({"content": "4711."})], DONE)
            else {
                unreachable!()
            };
            Reply::Raw { status, headers, body: [life.as_bytes(), &body].concat().into() }
        }),
    ];
    let (provider, proxy) = staged(steps, "").await;
    let answer = STREAMED.dialect.ask(proxy.proxy_addr, "k", &STREAMED.asked("reason")).await;
    assert_eq!(attempts(&provider).len(), 2);
    let text = answer.text();
    assert!(text.contains("It is ") && text.contains("4711.") && !text.contains("read_evicted"), "{text}");
    assert!(text.ends_with(DONE) && text.matches("[DONE]").count() == 1, "{text}");
    // At the limit of rounds as well the client gets a whole answer.
    let steps = vec![step(|request| without_reason(&[calls(&own(request, 1))], DONE))];
    let (provider, proxy) = staged(steps, "max_rounds = 1\n").await;
    let had = STREAMED.had(&proxy, &STREAMED.asked("limit")).await;
    assert!(had.text.starts_with("(No answer yet: ") && had.calls.is_empty(), "{had:?}");
    assert_eq!(attempts(&provider).len(), 1);
}

/// Nobody knows whether the call is whole. Where nothing was shown the answer begins anew, else it breaks off.
#[tokio::test]
async fn calls_of_a_stream_without_a_word_of_its_end_are_not_run() {
    for said in ["", "Look. "] {
        let steps = vec![
            step(move |request| {
                let text = json!({"role": "assistant", "content": said});
                without_reason(&[text, calls(&own(request, 1))], "")
            }),
            step(|_| says("Without.", vec![])),
        ];
        let (provider, proxy) = staged(steps, "").await;
        let body = STREAMED.asked("unended");
        let mut answer = STREAMED.dialect.send(proxy.proxy_addr, "k", &body).await.into_body();
        let (mut seen, mut broken) = (Vec::new(), false);
        while let Some(frame) = answer.frame().await {
            match frame {
                Ok(frame) => seen.extend(frame.into_data().unwrap_or_default()),
                Err(_) => {
                    broken = true;
                    break;
                }
            }
        }
        let seen = String::from_utf8(seen).unwrap();
        assert!(!seen.contains("read_evicted") && !seen.contains("own_1"), "{seen}");
        assert_eq!((broken, attempts(&provider).len()), if said.is_empty() { (false, 2) } else { (true, 1) }, "{seen}");
        assert_eq!((seen.contains("Without."), seen.contains("Look. ")), (said.is_empty(), !said.is_empty()));
    }
}
