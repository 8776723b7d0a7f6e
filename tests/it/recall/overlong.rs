//! Calls of the proxy's that are too long, or come in answers that are: their names do not get through, and no turn ends
//! for them.

use crate::support::chat::attempts;

use super::*;

/// The proxy's tool with arguments of so many bytes.
fn wordy(request: &ModelRequest, bytes: usize) -> ToolCall {
    let call = own(request, 1);
    let mut arguments: Value = serde_json::from_str(&call.arguments).unwrap();
    arguments["pattern"] = "y".repeat(bytes).into();
    ToolCall { arguments: arguments.to_string(), ..call }
}

#[tokio::test]
async fn a_call_with_too_many_arguments_fails_and_the_turn_goes_on() {
    for cell in cells() {
        let steps = vec![
            step(move |request| says("", vec![wordy(request, 300_000)])),
            step(|request| {
                let said = request.messages().last().unwrap().to_string();
                assert!(said.contains("longer than"), "{said:.500}");
                assert!(!request.body.to_string().contains("yyyy"));
                says("Shorter.", vec![])
            }),
        ];
        let (provider, proxy) = staged(steps, "").await;
        let body = cell.asked("wordy");
        let had = cell.had(&proxy, &body).await;
        assert_eq!((had.text.as_str(), had.waits, attempts(&provider).len()), ("Shorter.", false, 2), "{cell:?}");
        goes_on(cell, &proxy, &provider, (&body, &had)).await;
    }
}

/// Nothing of it was shown: the client's own request takes its place.
#[tokio::test]
async fn an_answer_too_long_to_be_read_is_asked_for_again_without_tools() {
    for dialect in ALL {
        let cell = Cell { dialect, stream: false };
        let endless = |_: &ModelRequest| Reply::Raw {
            status: 200,
            headers: vec![("content-type", "application/json".to_owned())],
            body: format!("{{\"arguments\":\"{}\",\"name\":\"{OWN}\"}}", "y".repeat(17_000_000)).into(),
        };
        let (provider, proxy) = staged(vec![step(endless), step(|_| says("Without.", vec![]))], "").await;
        let body = cell.asked("endless");
        let had = cell.had(&proxy, &body).await;
        assert_eq!((had.text.as_str(), had.waits, attempts(&provider).len()), ("Without.", false, 2), "{cell:?}");
        assert_eq!(attempts(&provider)[1].json()["tools"].as_array().unwrap().len(), 1, "no tools of the proxy's");
        cell.had(&proxy, &cell.dialect.went_on(&body, &had)).await;
        assert_unhurt(&provider);
    }
}

/// A stream of Chat in which the whole of a call is one event, as some servers write it; its name stands behind its
/// arguments.
fn at_once(said: &str, call: &ToolCall) -> Reply {
    let function = serde_json::json!({"arguments": call.arguments, "name": call.name});
    let call = serde_json::json!({"index": 0, "id": call.id, "type": "function", "function": function});
    let chunk = |delta: Value| {
        let choice = serde_json::json!({"index": 0, "delta": delta});
        format!("data: {}\n\n", serde_json::json!({"id": "c", "choices": [choice]}))
    };
    let said = chunk(serde_json::json!({"role": "assistant", "content": said}));
    let body = said + &chunk(serde_json::json!({"tool_calls": [call]})) + "data: [DONE]\n\n";
    let headers = vec![("content-type", "text/event-stream".to_owned())];
    Reply::Raw { status: 200, headers, body: body.into() }
}

#[tokio::test]
async fn an_event_too_long_to_be_read_is_not_shown() {
    let cell = Cell { dialect: CHAT, stream: true };
    for (said, shown) in [("", "Without."), ("Look. ", "Look. ")] {
        let events = move |request: &ModelRequest| at_once(said, &wordy(request, 17_000_000));
        let (provider, proxy) = staged(vec![step(events), step(|_| says("Without.", vec![]))], "").await;
        let answer = CHAT.ask(proxy.proxy_addr, "k", &cell.asked("event")).await;
        assert!(answer.text().contains(shown) && !answer.text().contains(OWN), "{:.500}", answer.text());
        let calls = attempts(&provider).len();
        match said {
            "" => assert_eq!((CHAT.read(&answer).text.as_str(), calls), ("Without.", 2)),
            _ => assert!(calls == 1 && CHAT.told_error(&answer).contains("too long"), "{:.500}", answer.text()),
        }
    }
}

/// The second answer comes of a request without the proxy's tools: it is the client's whatever is in it.
#[tokio::test]
async fn asked_for_again_without_tools_an_answer_of_any_length_passes() {
    let cell = Cell { dialect: CHAT, stream: true };
    let clients = |_: &ModelRequest| {
        let arguments = format!("{{\"path\":\"{}\"}}", "z".repeat(17_000_000));
        at_once("", &ToolCall { id: "c1".to_owned(), name: "write_file".to_owned(), arguments })
    };
    let steps = vec![step(|request| at_once("", &wordy(request, 17_000_000))), step(clients)];
    let (provider, proxy) = staged(steps, "").await;
    let answer = CHAT.ask(proxy.proxy_addr, "k", &cell.asked("event")).await;
    let text = answer.text();
    assert_eq!(attempts(&provider).len(), 2);
    assert!(text.contains("zzzz") && text.contains("write_file") && text.ends_with("data: [DONE]\n\n"), "{text:.500}");
    assert!(!text.contains(OWN), "{text:.500}");
}

const OWN: &str = "read_evicted";
