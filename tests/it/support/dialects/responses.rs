//! Responses.

use compactproxy::demo::answer::{ToolCall, Usage};
use compactproxy::demo::script::{Reply, error};
use serde_json::{Value, json};

use super::{Dialect, Form, Had, Result, checked, events, number};
use crate::support::chat::Answered;
use crate::support::responses::TOO_LONG;

#[derive(Debug)]
pub struct Responses;

impl Dialect for Responses {
    fn path(&self) -> &'static str {
        "/v1/responses"
    }

    fn credential(&self, key: &str) -> (&'static str, String) {
        ("authorization", format!("Bearer {key}"))
    }

    fn array(&self) -> &'static str {
        "input"
    }

    fn fields(&self, stream: bool) -> Value {
        json!({"model": "demo-model", "store": false, "stream": stream, "include": ["reasoning.encrypted_content"],
            "tools": [{"type": "function", "name": "execute", "parameters": {"type": "object"}}]})
    }

    fn user(&self, text: &str) -> Value {
        json!({"type": "message", "role": "user", "content": text})
    }

    fn said(&self, text: &str, calls: &[ToolCall]) -> Vec<Value> {
        let mut items = Vec::new();
        if !text.is_empty() {
            let content = json!([{"type": "output_text", "text": text}]);
            items.push(json!({"type": "message", "role": "assistant", "content": content}));
        }
        items.extend(calls.iter().map(
            |call| json!({"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}),
        ));
        items
    }

    fn results(&self, results: &[Result<'_>]) -> Vec<Value> {
        let output = |parts: &[String]| match parts {
            [text] => json!(text),
            parts => parts.iter().map(|text| json!({"type": "input_text", "text": text})).collect(),
        };
        let item =
            |(id, parts): &Result<'_>| json!({"type": "function_call_output", "call_id": id, "output": output(parts)});
        results.iter().map(item).collect()
    }

    fn read(&self, answer: &Answered) -> Had {
        let response = match checked(answer) {
            Form::Whole(body) => body,
            Form::Stream(events) => streamed(&events),
        };
        assert_eq!(response["status"], "completed");
        let tools = &response["tools"];
        assert!(*tools == json!([]) || *tools == self.fields(false)["tools"], "the client's own alone: {tools}");
        let mut had = Had { items: response["output"].as_array().unwrap().clone(), ..Had::default() };
        for (at, item) in had.items.iter().enumerate() {
            assert!(had.items[..at].iter().all(|other| other["id"] != item["id"]), "{item}");
            had.text.push_str(item["content"][0]["text"].as_str().unwrap_or_default());
            had.thoughts.push_str(item["summary"][0]["text"].as_str().unwrap_or_default());
            if item["type"] == "function_call" {
                let text = |key: &str| item[key].as_str().unwrap().to_owned();
                had.calls.push(ToolCall { id: text("call_id"), name: text("name"), arguments: text("arguments") });
            }
        }
        had.waits = !had.calls.is_empty();
        let usage = &response["usage"];
        had.usage = Usage {
            prompt: number(&usage["input_tokens"]),
            cached: number(&usage["input_tokens_details"]["cached_tokens"]),
            written: 0,
            completion: number(&usage["output_tokens"]),
        };
        assert_eq!(number(&usage["total_tokens"]), had.usage.prompt + had.usage.completion);
        had
    }

    fn told_error(&self, answer: &Answered) -> String {
        let last = events(answer).pop().unwrap();
        assert_eq!(last["type"], "response.failed");
        last["response"]["error"]["message"].as_str().unwrap_or_default().to_owned()
    }

    fn too_long(&self) -> Reply {
        error(400, TOO_LONG, "invalid_request_error", "context_length_exceeded")
    }

    fn called(&self, body: &Value, skip: usize) -> Vec<String> {
        let calls = body["input"].as_array().unwrap().iter().skip(skip).filter_map(|item| item["name"].as_str());
        calls.map(str::to_owned).collect()
    }

    fn openings(&self) -> usize {
        4
    }
}

/// The response that a stream ends as: what its items ended as, numbered without a gap.
fn streamed(events: &[Value]) -> Value {
    let (mut output, mut open) = (Vec::new(), None);
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number, "{events:?}");
        let at = event["output_index"].as_u64();
        match event["type"].as_str().unwrap() {
            "response.created" => assert_eq!(number, 0),
            "response.output_item.added" => {
                assert_eq!((at, open), (Some(output.len() as u64), None), "{events:?}");
                open = at;
            }
            "response.output_item.done" => {
                assert_eq!((at, open.take()), (Some(output.len() as u64), at), "{events:?}");
                output.push(event["item"].clone());
            }
            _ => assert!(at.is_none() || at == open, "{event}"),
        }
    }
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["response"]["output"]), (&json!("response.completed"), &json!(output)));
    assert_eq!(last["response"]["id"], events[0]["response"]["id"]);
    last["response"].clone()
}
