//! Messages.

use bytes::Bytes;
use compactproxy::demo::answer::{ToolCall, Usage};
use compactproxy::demo::script::Reply;
use serde_json::{Value, json};

use super::{Dialect, Form, Had, Result, checked, events, number};
use crate::support::chat::Answered;

#[derive(Debug)]
pub struct Messages;

impl Dialect for Messages {
    fn path(&self) -> &'static str {
        "/v1/messages"
    }

    fn credential(&self, key: &str) -> (&'static str, String) {
        ("x-api-key", key.to_owned())
    }

    fn array(&self) -> &'static str {
        "messages"
    }

    fn fields(&self, stream: bool) -> Value {
        json!({"model": "claude-x", "max_tokens": 4096, "stream": stream,
            "tools": [{"name": "execute", "input_schema": {"type": "object"}}]})
    }

    fn thinking(&self) -> Value {
        json!({"thinking": {"type": "adaptive"}})
    }

    fn user(&self, text: &str) -> Value {
        json!({"role": "user", "content": text})
    }

    fn said(&self, text: &str, calls: &[ToolCall]) -> Vec<Value> {
        let mut content = Vec::new();
        if !text.is_empty() {
            content.push(json!({"type": "text", "text": text}));
        }
        content.extend(calls.iter().map(|call| {
            let input: Value = serde_json::from_str(&call.arguments).unwrap();
            json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input})
        }));
        vec![json!({"role": "assistant", "content": content})]
    }

    fn results(&self, results: &[Result<'_>]) -> Vec<Value> {
        vec![json!({"role": "user", "content": blocks(results)})]
    }

    fn results_and_question(&self, results: &[Result<'_>], question: &str) -> Vec<Value> {
        let mut content = blocks(results);
        content.push(json!({"type": "text", "text": question}));
        vec![json!({"role": "user", "content": content})]
    }

    /// The role comes first.
    fn bytes(&self, body: &Value) -> Bytes {
        let mut fields = body.clone();
        let messages = fields["messages"].take();
        fields.as_object_mut().unwrap().remove("messages");
        let messages = messages.as_array().unwrap().iter();
        let messages: Vec<String> =
            messages.map(|said| format!(r#"{{"role":{},"content":{}}}"#, said["role"], said["content"])).collect();
        format!(r#"{{"messages":[{}],{}"#, messages.join(","), &fields.to_string()[1..]).into()
    }

    fn read(&self, answer: &Answered) -> Had {
        let (content, reason, usage) = match checked(answer) {
            Form::Whole(body) => {
                let reason = body["stop_reason"].as_str().unwrap().to_owned();
                (body["content"].as_array().unwrap().clone(), reason, body["usage"].clone())
            }
            Form::Stream(events) => streamed(&events),
        };
        assert!(["end_turn", "tool_use"].contains(&reason.as_str()), "{reason}");
        let mut had = Had { waits: reason == "tool_use", ..Had::default() };
        for block in &content {
            had.text.push_str(block["text"].as_str().unwrap_or_default());
            had.thoughts.push_str(block["thinking"].as_str().unwrap_or_default());
            if block["type"] == "tool_use" {
                let text = |key: &str| block[key].as_str().unwrap().to_owned();
                had.calls.push(ToolCall { id: text("id"), name: text("name"), arguments: block["input"].to_string() });
            }
        }
        let (cached, written) =
            (number(&usage["cache_read_input_tokens"]), number(&usage["cache_creation_input_tokens"]));
        let prompt = number(&usage["input_tokens"]) + cached + written;
        had.usage = Usage { prompt, cached, written, completion: number(&usage["output_tokens"]) };
        had.items = vec![json!({"role": "assistant", "content": content})];
        had
    }

    fn told_error(&self, answer: &Answered) -> String {
        let last = events(answer).pop().unwrap();
        assert_eq!(last["type"], "error");
        last["error"]["message"].as_str().unwrap_or_default().to_owned()
    }

    fn too_long(&self) -> Reply {
        refusal(400, "invalid_request_error", "prompt is too long: 12000 tokens > 6000 maximum")
    }

    fn broken(&self, message: &str) -> Reply {
        refusal(500, "api_error", message)
    }

    fn called(&self, body: &Value, skip: usize) -> Vec<String> {
        let messages = body["messages"].as_array().unwrap().iter().skip(skip);
        let blocks = messages.filter_map(|message| message["content"].as_array()).flatten();
        let calls = blocks.filter(|block| block["type"] == "tool_use");
        calls.map(|call| call["name"].as_str().unwrap().to_owned()).collect()
    }

    fn openings(&self) -> usize {
        3
    }
}

fn refusal(status: u16, kind: &str, message: &str) -> Reply {
    let body = json!({"type": "error", "error": {"type": kind, "message": message}}).to_string().into();
    Reply::Raw { status, headers: vec![("content-type", "application/json".to_owned())], body }
}

fn blocks(results: &[Result<'_>]) -> Vec<Value> {
    let content = |parts: &[String]| match parts {
        [text] => json!(text),
        parts => parts.iter().map(|text| json!({"type": "text", "text": text})).collect(),
    };
    let block = |(id, parts): &Result<'_>| json!({"type": "tool_result", "tool_use_id": id, "content": content(parts)});
    results.iter().map(block).collect()
}

/// Content, reason and usage of a stream.
fn streamed(events: &[Value]) -> (Vec<Value>, String, Value) {
    let (mut content, mut inputs, mut reason): (Vec<Value>, Vec<String>, _) = (vec![], vec![], String::new());
    let (mut open, mut usage) = (None, Value::Null);
    for (number, event) in events.iter().enumerate() {
        let at = event["index"].as_u64().unwrap_or_default() as usize;
        let kind = event["type"].as_str().unwrap();
        assert_eq!(kind == "message_start", number == 0, "{events:?}");
        assert_eq!(kind == "message_stop", number + 1 == events.len(), "{events:?}");
        match kind {
            "message_start" => usage = event["message"]["usage"].clone(),
            "content_block_start" => {
                assert_eq!((at, open), (content.len(), None), "{events:?}");
                open = Some(at);
                content.push(event["content_block"].clone());
                inputs.push(String::new());
            }
            "content_block_delta" => {
                assert_eq!(open, Some(at), "{events:?}");
                inputs[at] += event["delta"]["partial_json"].as_str().unwrap_or_default();
                for key in ["text", "thinking", "signature"] {
                    if let Some(more) = event["delta"][key].as_str() {
                        content[at][key] = format!("{}{more}", content[at][key].as_str().unwrap()).into();
                    }
                }
            }
            "content_block_stop" => {
                assert_eq!(open.take(), Some(at), "{events:?}");
                if content[at]["type"] == "tool_use" {
                    content[at]["input"] = serde_json::from_str(&inputs[at]).unwrap();
                }
            }
            "message_delta" => {
                assert_eq!(reason, "", "one reason");
                event["delta"]["stop_reason"].as_str().unwrap().clone_into(&mut reason);
                usage.as_object_mut().unwrap().extend(event["usage"].as_object().unwrap().clone());
            }
            _ => {}
        }
    }
    assert_eq!(open, None, "{events:?}");
    (content, reason, usage)
}
