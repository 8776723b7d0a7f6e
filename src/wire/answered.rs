//! The model's answer as the items that its client will send back: gathered from what passes, in any dialect.
//! What it cannot read, or what is too long, it gives up.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, json};

use super::chain::Collector;
use super::conversation::Dialect;
use super::sse::Reader;

/// Bytes of one answer that are kept; of a longer one nothing is.
const MAX_BYTES: usize = 1 << 20;

/// An answer in the making.
#[derive(Debug)]
pub struct Answered {
    dialect: Dialect,
    form: Form,
    /// Bytes kept.
    held: usize,
}

#[derive(Debug)]
enum Form {
    Unread,
    Json(Vec<u8>),
    Stream(Box<Reader>, Parts),
    GivenUp,
}

/// What events have brought.
#[derive(Debug, Default)]
struct Parts {
    /// Chat: the text, then the calls by their index. Messages: the blocks by theirs.
    text: String,
    blocks: BTreeMap<u64, Block>,
    /// Responses.
    output: Collector,
}

#[derive(Debug, Default)]
struct Block {
    id: String,
    name: String,
    /// A text, or arguments.
    text: String,
}

impl Answered {
    pub fn new(dialect: Dialect) -> Self {
        Self { dialect, form: Form::Unread, held: 0 }
    }

    /// A piece of the answer, decoded.
    pub fn see(&mut self, data: &[u8]) {
        if matches!(self.form, Form::Unread) {
            self.form = match data.trim_ascii_start().first() {
                None => return,
                Some(b'{') => Form::Json(Vec::new()),
                Some(_) => Form::Stream(Box::new(Reader::with_limit(MAX_BYTES)), Parts::default()),
            };
        }
        match &mut self.form {
            Form::Json(text) => {
                text.extend_from_slice(data);
                self.held = text.len();
            }
            Form::Stream(reader, parts) => {
                reader.push(data);
                while let Some(event) = reader.next_event() {
                    self.held += parts.event(self.dialect, &event.data);
                }
                if reader.has_given_up() || parts.output.bytes() > MAX_BYTES {
                    self.held = usize::MAX;
                }
            }
            Form::Unread | Form::GivenUp => {}
        }
        if self.held > MAX_BYTES {
            self.form = Form::GivenUp;
        }
    }

    /// Lets go of all that was gathered, for good.
    pub fn give_up(&mut self) {
        self.form = Form::GivenUp;
    }

    /// Bytes that are held.
    pub fn held(&self) -> usize {
        match &self.form {
            Form::Stream(_, parts) => self.held + parts.output.bytes(),
            Form::Json(_) => self.held,
            Form::Unread | Form::GivenUp => 0,
        }
    }

    /// The answer's items as JSON, in order; none where it was no answer.
    pub fn finish(self) -> Vec<Bytes> {
        let items = match (self.dialect, self.form) {
            (_, Form::Unread | Form::GivenUp) => Vec::new(),
            (dialect, Form::Json(text)) => {
                serde_json::from_slice(&text).map(|whole| of_json(dialect, &whole)).unwrap_or_default()
            }
            (dialect, Form::Stream(_, parts)) => parts.items(dialect),
        };
        items.into_iter().map(|item| item.to_string().into()).collect()
    }
}

fn of_json(dialect: Dialect, whole: &Value) -> Vec<Value> {
    let some = |value: Option<&Value>| value.cloned().into_iter().collect();
    match dialect {
        Dialect::Chat => some(whole.pointer("/choices/0/message").filter(|message| message.is_object())),
        Dialect::Responses => whole.get("output").and_then(Value::as_array).cloned().unwrap_or_default(),
        Dialect::Messages => {
            let content =
                whole.get("content").filter(|content| content.as_array().is_some_and(|blocks| !blocks.is_empty()));
            content.map(|content| json!({"role": "assistant", "content": content})).into_iter().collect()
        }
    }
}

impl Parts {
    /// Takes an event in; says how many bytes it brought.
    fn event(&mut self, dialect: Dialect, data: &str) -> usize {
        if dialect == Dialect::Responses {
            self.output.event(data);
            return 0;
        }
        let Ok(event) = serde_json::from_str::<Value>(data) else { return 0 };
        match dialect {
            Dialect::Chat => self.chunk(&event),
            Dialect::Messages => self.block(&event),
            Dialect::Responses => 0,
        }
    }

    fn chunk(&mut self, event: &Value) -> usize {
        let Some(choice) = event.pointer("/choices/0") else { return 0 };
        if choice.get("index").and_then(Value::as_u64).unwrap_or(0) != 0 {
            return 0;
        }
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let content = text(choice.pointer("/delta/content"));
        let mut bytes = content.len();
        self.text.push_str(&content);
        for call in choice.pointer("/delta/tool_calls").and_then(Value::as_array).into_iter().flatten() {
            let block = self.blocks.entry(call.get("index").and_then(Value::as_u64).unwrap_or(0)).or_default();
            let (id, name) = (text(call.get("id")), text(call.pointer("/function/name")));
            let arguments = text(call.pointer("/function/arguments"));
            bytes += id.len() + name.len() + arguments.len() + size_of::<Block>();
            block.id.push_str(&id);
            block.name.push_str(&name);
            block.text.push_str(&arguments);
        }
        bytes
    }

    fn block(&mut self, event: &Value) -> usize {
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let index = event.get("index").and_then(Value::as_u64).unwrap_or(0);
        let block = match (text("/type").as_str(), text("/content_block/type").as_str()) {
            ("content_block_start", "tool_use" | "text") => Block {
                id: text("/content_block/id"),
                name: text("/content_block/name"),
                text: text("/content_block/text"),
            },
            ("content_block_delta", _) => {
                Block { text: text("/delta/text") + &text("/delta/partial_json"), ..Block::default() }
            }
            _ => return 0,
        };
        let bytes = block.id.len() + block.name.len() + block.text.len() + size_of::<Block>();
        let held = self.blocks.entry(index).or_default();
        held.id.push_str(&block.id);
        held.name.push_str(&block.name);
        held.text.push_str(&block.text);
        bytes
    }

    fn items(self, dialect: Dialect) -> Vec<Value> {
        let Self { text, blocks, output } = self;
        match dialect {
            Dialect::Chat => {
                let calls: Vec<Value> = blocks.into_values().map(|block| json!({"id": block.id, "type": "function", "function": {"name": block.name, "arguments": block.text}})).collect();
                let content = if text.is_empty() { Value::Null } else { text.into() };
                match (content, calls) {
                    (Value::Null, calls) if calls.is_empty() => Vec::new(),
                    (content, calls) if calls.is_empty() => vec![json!({"role": "assistant", "content": content})],
                    (content, calls) => vec![json!({"role": "assistant", "content": content, "tool_calls": calls})],
                }
            }
            Dialect::Messages => {
                let blocks: Vec<Value> = blocks.into_values().filter_map(Block::content).collect();
                let item = (!blocks.is_empty()).then(|| json!({"role": "assistant", "content": blocks}));
                item.into_iter().collect()
            }
            Dialect::Responses => {
                let items = output.finish().map(|output| [b"[", &*output.items, b"]"].concat()).unwrap_or_default();
                serde_json::from_slice(&items).unwrap_or_default()
            }
        }
    }
}

impl Block {
    /// A content block of Messages. Thinking leaves none: it came in deltas that are not kept.
    fn content(self) -> Option<Value> {
        if self.name.is_empty() {
            return (!self.text.is_empty()).then(|| json!({"type": "text", "text": self.text}));
        }
        let input: Value = serde_json::from_str(&self.text).unwrap_or_else(|_| json!({}));
        Some(json!({"type": "tool_use", "id": self.id, "name": self.name, "input": input}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::plain::plain;

    /// What is gathered of an answer that comes in pieces of `size` bytes, as text.
    fn gathered(dialect: Dialect, answer: &str, size: usize) -> Vec<String> {
        let mut answered = Answered::new(dialect);
        answer.as_bytes().chunks(size).for_each(|piece| answered.see(piece));
        answered.finish().iter().map(|item| plain(dialect, item).text).collect()
    }

    #[test]
    fn answers_of_every_dialect_whole_and_as_streams() {
        let chat_json = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"Hi 天","tool_calls":[{"id":"a","type":"function","function":{"name":"ls","arguments":"{}"}}]}}]}"#;
        let chat = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi \"}}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"天\"}}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"ls\",\"arguments\":\"{\"}}]}}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"}\"}}]}}]}\n\ndata: [DONE]\n\n";
        let messages_json =
            r#"{"content":[{"type":"text","text":"Hi 天"},{"type":"tool_use","id":"a","name":"ls","input":{}}]}"#;
        let messages = "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi 天\"}}\n\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"ls\",\"input\":{}}}\n\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{}\"}}\n\n";
        for (dialect, answer) in [
            (Dialect::Chat, chat_json),
            (Dialect::Chat, chat),
            (Dialect::Messages, messages_json),
            (Dialect::Messages, messages),
        ] {
            for size in [1, 7, 10_000] {
                assert_eq!(gathered(dialect, answer, size), ["Hi 天\nls({})"], "{answer}");
            }
        }
        let item = r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Hi"}]}"#;
        let json = format!(r#"{{"id":"r","status":"completed","output":[{item}]}}"#);
        let stream = format!(
            "data: {{\"type\":\"response.output_item.done\",\"item\":{item}}}\n\ndata: {{\"type\":\"response.completed\",\"response\":{json}}}\n\n"
        );
        assert_eq!(gathered(Dialect::Responses, &json, 9), ["Hi"]);
        assert_eq!(gathered(Dialect::Responses, &stream, 9), ["Hi"]);
    }

    #[test]
    fn what_is_no_answer_or_too_long_leaves_nothing() {
        for answer in ["", "nonsense", r#"{"error":{"message":"no"}}"#, "data: {\"choices\":[]}\n\n"] {
            assert!(gathered(Dialect::Chat, answer, 5).is_empty(), "{answer}");
        }
        let fitting = |len: usize| {
            format!(r#"{{"choices":[{{"message":{{"role":"assistant","content":"{}"}}}}]}}"#, "x".repeat(len))
        };
        let frame = fitting(0).len();
        assert_eq!(gathered(Dialect::Chat, &fitting(MAX_BYTES - frame), 65_536).len(), 1);
        assert!(gathered(Dialect::Chat, &fitting(MAX_BYTES - frame + 1), 65_536).is_empty());
    }
}
