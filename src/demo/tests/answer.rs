use serde_json::json;

use super::super::completion::{Completion, from_json, from_stream};
use super::*;

fn request(usage: bool) -> ModelRequest {
    let mut body = json!({"model": "m", "stream": true, "messages": []});
    if usage {
        body["stream_options"] = json!({"include_usage": true});
    }
    ModelRequest { index: 3, ..ModelRequest::chat(body) }
}

fn answer() -> Answer {
    let call = |id: &str| ToolCall {
        id: id.to_owned(),
        name: "write_file".to_owned(),
        arguments: json!({"path": "é".repeat(200)}).to_string(),
    };
    Answer { text: Some("Zeile für Zeile. ".repeat(20)), calls: vec![call("c1"), call("c2")], ..Answer::default() }
}

const USAGE: Usage = Usage { prompt: 2_000, cached: 1_024, written: 0, completion: 7 };

#[test]
fn a_stream_says_what_the_object_says() {
    let whole = from_json(&answer().json(&request(true), USAGE)).unwrap();
    let events = answer().events(&request(true), USAGE);
    assert_eq!(from_stream(&events.concat()), Ok(whole.clone()));
    let Answer { text, calls, .. } = answer();
    assert_eq!(whole, Completion { text, calls, finish: "tool_calls".to_owned(), usage: USAGE });
    assert!(events.len() > 20, "in several pieces");
}

#[test]
fn a_stream_is_well_formed() {
    let events = answer().events(&request(true), USAGE);
    let texts: Vec<&str> = events.iter().map(|event| std::str::from_utf8(event).unwrap()).collect();
    assert!(texts.iter().all(|text| text.starts_with("data: ") && text.ends_with("\n\n")));
    assert_eq!(*texts.last().unwrap(), "data: [DONE]\n\n");
    let parse = |text: &str| serde_json::from_str::<Value>(text.trim_start_matches("data: ")).unwrap();
    let bodies: Vec<Value> = texts[..texts.len() - 1].iter().map(|text| parse(text)).collect();
    assert_eq!(bodies[0]["choices"][0]["delta"]["role"], "assistant");
    let usage = bodies.last().unwrap();
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["prompt_tokens_details"]["cached_tokens"], 1_024);
    let finishes: Vec<&Value> = bodies.iter().map(|body| &body["choices"][0]["finish_reason"]).collect();
    assert_eq!(finishes.iter().filter(|finish| finish.is_string()).count(), 1);
    assert!(bodies.iter().all(|body| body["object"] == "chat.completion.chunk" && body["id"] == bodies[0]["id"]));
}

#[test]
fn usage_comes_only_where_asked_for() {
    let events = answer().events(&request(false), USAGE).concat();
    assert!(!String::from_utf8(events.clone()).unwrap().contains("usage"));
    assert_eq!(from_stream(&events).unwrap().usage, Usage::default());
}
