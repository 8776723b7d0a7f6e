//! The model reads removed texts back in the same turn of a Messages conversation, and what was hidden is there again.

use compactproxy::demo::provider::Provider;
use compactproxy::demo::request::ModelRequest;
use serde_json::{Value, json};

use crate::support::chat::{Answered, attempts, pair, send_to, whole};
use crate::support::proxy::Served;
use crate::support::recall::{NEEDLE, Step, clients, long, own, says, scripted, sections, step};

/// A conversation in which a long result with the needle in its middle has just come.
fn asked(name: &str, stream: bool) -> Value {
    json!({"model": "claude-x", "max_tokens": 4096, "stream": stream,
    "tools": [{"name": "execute", "input_schema": {"type": "object"}}],
    "messages": [
        {"role": "user", "content": format!("Work on {name}.")},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "call_0", "name": "execute", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_0", "content": long()}]},
    ]})
}

/// Sends a body as clients write it: the role comes first.
async fn ask(proxy: &Served, body: &Value) -> Answered {
    ask_at(proxy, "messages", body).await
}

async fn ask_at(proxy: &Served, path: &str, body: &Value) -> Answered {
    let mut fields = body.clone();
    let messages = fields["messages"].take();
    fields.as_object_mut().unwrap().remove("messages");
    let messages = messages.as_array().unwrap().iter();
    let messages: Vec<String> =
        messages.map(|said| format!(r#"{{"role":{},"content":{}}}"#, said["role"], said["content"])).collect();
    let body = format!(r#"{{"messages":[{}],{}"#, messages.join(","), &fields.to_string()[1..]);
    let url = format!("http://{}/v1/{path}", proxy.proxy_addr);
    whole(send_to(&url, &[("x-api-key", "k")], body.into()).await.unwrap()).await
}

/// The content that a client made of an answer, and why it stopped.
fn read(answer: &Answered) -> (Vec<Value>, String) {
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(!answer.text().contains("read_evicted"), "{}", answer.text());
    if answer.header("content-type").starts_with("application/json") {
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        return (body["content"].as_array().unwrap().clone(), body["stop_reason"].as_str().unwrap().to_owned());
    }
    let (mut content, mut inputs, mut reason): (Vec<Value>, Vec<String>, _) = (vec![], vec![], String::new());
    let events = answer.text().lines().filter_map(|line| line.strip_prefix("data: "));
    for event in events.map(|event| serde_json::from_str::<Value>(event).unwrap()) {
        let at = event["index"].as_u64().unwrap_or_default() as usize;
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                assert_eq!(at, content.len(), "{}", answer.text());
                content.push(event["content_block"].clone());
                inputs.push(String::new());
            }
            "content_block_delta" => {
                inputs[at] += event["delta"]["partial_json"].as_str().unwrap_or_default();
                for key in ["text", "thinking", "signature"] {
                    if let Some(more) = event["delta"][key].as_str() {
                        content[at][key] = format!("{}{more}", content[at][key].as_str().unwrap()).into();
                    }
                }
            }
            "content_block_stop" if content[at]["type"] == "tool_use" => {
                content[at]["input"] = serde_json::from_str(&inputs[at]).unwrap();
            }
            "message_delta" => event["delta"]["stop_reason"].as_str().unwrap().clone_into(&mut reason),
            _ => {}
        }
    }
    assert!(answer.text().matches("event: message_stop").count() == 1, "{}", answer.text());
    (content, reason)
}

/// The history of a client that had this, with results, up to a question.
fn went_on(body: &Value, content: &[Value]) -> Value {
    let calls = content.iter().filter(|block| block["type"] == "tool_use");
    let mut said: Vec<Value> =
        calls.map(|call| json!({"type": "tool_result", "tool_use_id": call["id"], "content": "done"})).collect();
    said.push(json!({"type": "text", "text": "Go on."}));
    let mut body = body.clone();
    let messages = body["messages"].as_array_mut().unwrap();
    messages.extend([json!({"role": "assistant", "content": content}), json!({"role": "user", "content": said})]);
    body
}

/// The messages that a provider got, as bytes, without the closing bracket.
fn sent(body: &[u8]) -> String {
    let text = String::from_utf8(body.to_vec()).unwrap();
    let (start, end) = (text.find("\"messages\":[").unwrap(), text.find("],\"max_tokens\"").unwrap());
    text[start..end].to_owned()
}

fn told(request: &ModelRequest) -> bool {
    request.messages().last().unwrap().to_string().contains(NEEDLE)
}

fn unhurt(provider: &Provider) {
    assert_eq!(provider.violations(), []);
    assert!(attempts(provider).iter().all(|exchange| exchange.headers["accept-encoding"] == "identity"));
}

/// The proxy's tool alone after this text, then the client's next request.
async fn alone(text: &'static str, fields: Value, stream: bool) {
    let steps: Vec<Step> = vec![
        step(move |request| says(text, vec![own(request, 1)])),
        step(|request| says(if told(request) { "It is 4711." } else { "?" }, vec![])),
    ];
    let (provider, proxy) = pair(scripted(steps), &sections("")).await;
    let mut body = asked("own", stream);
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let (content, reason) = read(&ask(&proxy, &body).await);
    assert_eq!(reason, "end_turn");
    let said: String = content.iter().filter_map(|block| block["text"].as_str()).collect();
    assert_eq!(said, format!("{text}It is 4711."));
    read(&ask(&proxy, &went_on(&body, &content)).await);
    unhurt(&provider);
    let seen: Vec<String> = attempts(&provider).iter().map(|exchange| sent(&exchange.body)).collect();
    assert_eq!(seen.len(), 3);
    for pair in seen.windows(2) {
        assert!(pair[1].starts_with(&pair[0]), "{}\n{}", pair[0], pair[1]);
    }
    assert!(seen[2].contains("own_1") && seen[2].contains(NEEDLE));
    // A count has what was put back, and the tools.
    ask_at(&proxy, "messages/count_tokens", &went_on(&body, &content)).await;
    let counted = provider.requests().pop().unwrap();
    assert!(counted.target.ends_with("count_tokens"));
    assert_eq!(counted.body, attempts(&provider).pop().unwrap().body);
}

#[tokio::test]
async fn a_tool_of_the_proxys_alone_is_run_in_the_same_turn() {
    for stream in [true, false] {
        alone("", json!({}), stream).await;
    }
}

#[tokio::test]
async fn a_tool_of_the_proxys_after_text_is_put_back() {
    for stream in [true, false] {
        alone("Let me look. ", json!({}), stream).await;
    }
}

#[tokio::test]
async fn a_tool_of_the_proxys_after_thinking_is_put_back() {
    for stream in [true, false] {
        alone("", json!({"thinking": {"type": "adaptive"}}), stream).await;
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
        let (content, reason) = read(&ask(&proxy, &body).await);
        assert_eq!((content.len(), reason.as_str()), (2, "tool_use"));
        assert_eq!((&content[1]["id"], &content[1]["input"]), (&json!("call_7"), &json!({"command": "ls"})));
        read(&ask(&proxy, &went_on(&body, &content)).await);
        unhurt(&provider);
        let seen = attempts(&provider);
        assert!(sent(&seen[1].body).starts_with(&sent(&seen[0].body)));
        let calls = seen[1].json()["messages"][3]["content"].clone();
        let names: Vec<&str> =
            calls.as_array().unwrap()[1..].iter().map(|call| call["name"].as_str().unwrap()).collect();
        assert_eq!(names, if first { ["read_evicted", "execute"] } else { ["execute", "read_evicted"] });
        assert!(sent(&seen[1].body).contains(NEEDLE));
    }
}
