//! The model reads removed texts back in the same turn of a Responses conversation, and what was hidden is there again.

use compactproxy::demo::answer::Answer;
use compactproxy::demo::provider::Provider;
use compactproxy::demo::request::ModelRequest;
use compactproxy::demo::script::Reply;
use serde_json::{Value, json};

use crate::support::chat::{Answered, attempts, pair};
use crate::support::recall::{NEEDLE, Step, clients, long, own, says, scripted, sections, step};
use crate::support::responses::ask;

const PATH: &str = "/v1/responses";

/// A conversation in which a long result with the needle in its middle has just come.
fn asked(name: &str, stream: bool) -> Value {
    json!({"model": "demo-model", "store": false, "stream": stream, "include": ["reasoning.encrypted_content"],
    "tools": [{"type": "function", "name": "execute", "parameters": {"type": "object"}}],
    "input": [
        {"type": "message", "role": "user", "content": format!("Work on {name}.")},
        {"type": "function_call", "call_id": "call_0", "name": "execute", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_0", "output": long()},
    ]})
}

/// The output that a client made of an answer: of a stream, what its items ended as.
fn read(answer: &Answered) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(!answer.text().contains("read_evicted"), "{}", answer.text());
    if answer.header("content-type").starts_with("application/json") {
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(body["status"], "completed");
        return body["output"].as_array().unwrap().clone();
    }
    let events = answer.text().lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = events.map(|event| serde_json::from_str(event).unwrap()).collect();
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number, "{}", answer.text());
    }
    let done = events.iter().filter(|event| event["type"] == "response.output_item.done");
    let output: Vec<Value> = done
        .enumerate()
        .map(|(at, event)| {
            assert_eq!(event["output_index"], at, "{}", answer.text());
            event["item"].clone()
        })
        .collect();
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["response"]["output"]), (&json!("response.completed"), &json!(output)));
    output
}

/// The history of a client that had this, with results, up to a question.
fn went_on(body: &Value, output: &[Value]) -> Value {
    let calls = output.iter().filter(|item| item["type"] == "function_call");
    let results =
        calls.map(|call| json!({"type": "function_call_output", "call_id": call["call_id"], "output": "done"}));
    let mut body = body.clone();
    let input = body["input"].as_array_mut().unwrap();
    input.extend(output.iter().cloned().chain(results));
    input.push(json!({"type": "message", "role": "user", "content": "Go on."}));
    body
}

/// The items that a provider got, as bytes, without the closing bracket.
fn sent(body: &[u8]) -> String {
    let text = String::from_utf8(body.to_vec()).unwrap();
    let (start, end) = (text.find("\"input\":[").unwrap(), text.find("],\"model\"").unwrap());
    text[start..end].to_owned()
}

fn told(request: &ModelRequest) -> bool {
    request.messages().last().unwrap()["output"].as_str().unwrap_or_default().contains(NEEDLE)
}

fn unhurt(provider: &Provider) {
    assert_eq!(provider.violations(), []);
    assert!(attempts(provider).iter().all(|exchange| exchange.headers["accept-encoding"] == "identity"));
}

/// The proxy's tool alone after this text and these thoughts, then the client's next request.
async fn alone(text: &'static str, thought: Option<&'static str>, stream: bool) {
    let reasoning = thought.map(str::to_owned);
    let said = Some(text.to_owned()).filter(|text| !text.is_empty());
    let steps: Vec<Step> = vec![
        step(move |request| {
            let (text, reasoning) = (said.clone(), reasoning.clone());
            Reply::Say(Answer { text, reasoning, calls: vec![own(request, 1)], ..Answer::default() })
        }),
        step(|request| says(if told(request) { "It is 4711." } else { "?" }, vec![])),
    ];
    let (provider, proxy) = pair(scripted(steps), &sections("")).await;
    let body = asked("own", stream);
    let output = read(&ask(proxy.proxy_addr, PATH, &body).await);
    let said: String = output.iter().filter_map(|item| item["content"][0]["text"].as_str()).collect();
    assert_eq!(said, format!("{text}It is 4711."));
    assert!(output.iter().all(|item| item["type"] != "function_call"), "{output:?}");
    read(&ask(proxy.proxy_addr, PATH, &went_on(&body, &output)).await);
    unhurt(&provider);
    let seen: Vec<String> = attempts(&provider).iter().map(|exchange| sent(&exchange.body)).collect();
    assert_eq!(seen.len(), 3);
    for pair in seen.windows(2) {
        assert!(pair[1].starts_with(&pair[0]), "{}\n{}", pair[0], pair[1]);
    }
    assert!(seen[2].contains("own_1") && seen[2].contains(NEEDLE));
}

#[tokio::test]
async fn a_tool_of_the_proxys_alone_is_run_in_the_same_turn() {
    for stream in [true, false] {
        alone("", None, stream).await;
    }
}

#[tokio::test]
async fn a_tool_of_the_proxys_after_text_is_put_back() {
    for stream in [true, false] {
        alone("Let me look. ", None, stream).await;
    }
}

#[tokio::test]
async fn a_tool_of_the_proxys_after_reasoning_is_put_back() {
    for stream in [true, false] {
        alone("", Some("Think."), stream).await;
    }
}

#[tokio::test]
async fn calls_of_both_in_one_turn_are_parted_and_put_back() {
    for (stream, first) in [(true, true), (true, false), (false, true), (false, false)] {
        let steps = vec![step(move |request| {
            let (mine, yours) = (own(request, 1), clients(7));
            says("Both.", if first { vec![mine, yours] } else { vec![yours, mine] })
        })];
        let (provider, proxy) = pair(scripted(steps), &sections("")).await;
        let body = asked("both", stream);
        let output = read(&ask(proxy.proxy_addr, PATH, &body).await);
        assert_eq!((output.len(), &output[1]["call_id"]), (2, &json!("call_7")));
        assert_eq!(output[1]["arguments"], r#"{"command":"ls"}"#);
        read(&ask(proxy.proxy_addr, PATH, &went_on(&body, &output)).await);
        unhurt(&provider);
        let seen = attempts(&provider);
        assert!(sent(&seen[1].body).starts_with(&sent(&seen[0].body)));
        let input = seen[1].json()["input"].clone();
        let names: Vec<&str> = input.as_array().unwrap()[3..].iter().filter_map(|item| item["name"].as_str()).collect();
        assert_eq!(names, if first { ["read_evicted", "execute"] } else { ["execute", "read_evicted"] });
        assert!(sent(&seen[1].body).contains(NEEDLE));
    }
}
