//! Chat Completions.

use compactproxy::demo::answer::{ToolCall, Usage};
use compactproxy::demo::script::Reply;
use serde_json::{Value, json};

use super::{Dialect, Form, Had, Result, checked, events, number};
use crate::support::chat::{Answered, too_long};

#[derive(Debug)]
pub struct Chat;

impl Dialect for Chat {
    fn path(&self) -> &'static str {
        "/v1/chat/completions"
    }

    fn credential(&self, key: &str) -> (&'static str, String) {
        ("authorization", format!("Bearer {key}"))
    }

    fn array(&self) -> &'static str {
        "messages"
    }

    fn fields(&self, stream: bool) -> Value {
        let tool = json!({"type": "function", "function": {"name": "execute", "parameters": {"type": "object"}}});
        let mut fields = json!({"model": "demo-model", "tools": [tool], "stream": stream});
        if stream {
            fields["stream_options"] = json!({"include_usage": true});
        }
        fields
    }

    fn user(&self, text: &str) -> Value {
        json!({"role": "user", "content": text})
    }

    fn said(&self, text: &str, calls: &[ToolCall]) -> Vec<Value> {
        let mut message = json!({"role": "assistant", "content": text});
        if !calls.is_empty() {
            message["tool_calls"] = calls.iter().map(ToolCall::json).collect();
        }
        vec![message]
    }

    fn results(&self, results: &[Result<'_>]) -> Vec<Value> {
        let content = |parts: &[String]| match parts {
            [text] => json!(text),
            parts => parts.iter().map(|text| json!({"type": "text", "text": text})).collect(),
        };
        let message = |(id, parts): &Result<'_>| json!({"role": "tool", "tool_call_id": id, "content": content(parts)});
        results.iter().map(message).collect()
    }

    fn read(&self, answer: &Answered) -> Had {
        let (mut had, mut reasons) = (Had::default(), Vec::new());
        let usage = match checked(answer) {
            Form::Whole(body) => {
                assert_eq!(body["choices"].as_array().unwrap().len(), 1);
                add(&mut had, &mut reasons, &body["choices"][0], &body["choices"][0]["message"]);
                body["usage"].clone()
            }
            Form::Stream(events) => {
                assert!(answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
                assert!(events.iter().all(|event| event["id"] == events[0]["id"]));
                let choices = events.iter().filter_map(|event| event["choices"].get(0));
                choices.for_each(|choice| add(&mut had, &mut reasons, choice, &choice["delta"]));
                events.last().unwrap()["usage"].clone()
            }
        };
        let [reason] = reasons.as_slice() else { panic!("one reason: {reasons:?}") };
        had.waits = reason == "tool_calls";
        assert!(had.waits || reason == "stop", "{reason}");
        had.usage = Usage {
            prompt: number(&usage["prompt_tokens"]),
            cached: number(&usage["prompt_tokens_details"]["cached_tokens"]),
            written: 0,
            completion: number(&usage["completion_tokens"]),
        };
        assert_eq!(number(&usage["total_tokens"]), had.usage.prompt + had.usage.completion);
        had.items = self.said(&had.text, &had.calls);
        had
    }

    fn told_error(&self, answer: &Answered) -> String {
        let last = events(answer).pop().unwrap();
        last["error"]["message"].as_str().unwrap_or_default().to_owned()
    }

    fn too_long(&self) -> Reply {
        too_long(400)
    }

    fn called(&self, body: &Value, skip: usize) -> Vec<String> {
        let messages = body["messages"].as_array().unwrap().iter().skip(skip);
        let calls = messages.filter_map(|message| message["tool_calls"].as_array()).flatten();
        calls.map(|call| call["function"]["name"].as_str().unwrap().to_owned()).collect()
    }

    fn openings(&self) -> usize {
        1
    }
}

fn add(had: &mut Had, reasons: &mut Vec<String>, choice: &Value, said: &Value) {
    had.text.push_str(said["content"].as_str().unwrap_or_default());
    had.thoughts.push_str(said["reasoning_content"].as_str().unwrap_or_default());
    for (at, call) in said["tool_calls"].as_array().into_iter().flatten().enumerate() {
        let at = call["index"].as_u64().map_or(at, |at| at as usize);
        assert!(at <= had.calls.len(), "indices without a gap");
        if at == had.calls.len() {
            had.calls.push(ToolCall { id: String::new(), name: String::new(), arguments: String::new() });
        }
        let ToolCall { id, name, arguments } = &mut had.calls[at];
        id.push_str(call["id"].as_str().unwrap_or_default());
        name.push_str(call["function"]["name"].as_str().unwrap_or_default());
        arguments.push_str(call["function"]["arguments"].as_str().unwrap_or_default());
    }
    reasons.extend(choice["finish_reason"].as_str().map(str::to_owned));
}
