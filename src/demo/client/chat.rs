//! An agent on Chat Completions.

use serde_json::{Value, json};

use super::super::answer::ToolCall;
use super::super::completion::{self, Completion};
use super::super::request::{text, text_of, tool_calls};
use super::super::session::Session;
use super::{Ask, Client, Heard, Mode, Part, behind};

pub(super) struct Chat;

impl Client for Chat {
    fn path(&self) -> &'static str {
        "chat/completions"
    }

    fn list(&self) -> &'static str {
        "messages"
    }

    fn opening(&self, session: &Session) -> Vec<Value> {
        vec![json!({"role": "system", "content": session.system}), self.user(&session.opening)]
    }

    fn user(&self, text: &str) -> Value {
        json!({"role": "user", "content": text})
    }

    fn results(&self, results: &[(&ToolCall, String)]) -> Vec<Value> {
        let result =
            |(call, text): &(&ToolCall, String)| json!({"role": "tool", "tool_call_id": call.id, "content": text});
        results.iter().map(result).collect()
    }

    fn body(&self, ask: &Ask) -> String {
        let mut head = json!({"model": ask.model, "tools": ask.session.tools});
        if let Some(members) = head.as_object_mut() {
            if ask.mode == Mode::Stream {
                members.insert("stream".to_owned(), true.into());
                members.insert("stream_options".to_owned(), json!({"include_usage": true}));
            }
            members.extend(ask.max_output.map(|most| ("max_completion_tokens".to_owned(), most.into())));
        }
        behind(&head, self.list(), ask.history)
    }

    fn read_whole(&self, body: &[u8]) -> Result<Heard, String> {
        completion::from_json(body).map(heard)
    }

    fn read_stream(&self, body: &[u8]) -> Result<Heard, String> {
        completion::from_stream(body).map(heard)
    }

    fn parts(&self, item: &Value) -> Vec<Part> {
        let calls = tool_calls(item).iter().map(|call| {
            let function = call.get("function").unwrap_or(&Value::Null);
            Part::Call {
                id: text(call, "id").to_owned(),
                tool: text(function, "name").to_owned(),
                arguments: text(function, "arguments").to_owned(),
            }
        });
        let id = item.get("tool_call_id").and_then(Value::as_str);
        calls.chain(id.map(|id| Part::Result { id: id.to_owned(), text: text_of(item) })).collect()
    }
}

fn heard(completion: Completion) -> Heard {
    let mut message = json!({"role": "assistant", "content": completion.text});
    if let (false, Some(members)) = (completion.calls.is_empty(), message.as_object_mut()) {
        members.insert("tool_calls".to_owned(), completion.calls.iter().map(ToolCall::json).collect());
    }
    Heard { items: vec![message], calls: completion.calls, usage: completion.usage }
}
