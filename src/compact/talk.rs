//! Conversations for tests, written as a list of messages: Chat bodies and what a reader would say of them.

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::wire::conversation::Fields;
use crate::wire::{Call, Conversation, Dialect, Facts, Item, Media, Role, Slot, SlotKind, Standing};

/// A list of messages in the making.
#[derive(Clone, Debug, Default)]
pub struct Talk {
    messages: Vec<Message>,
}

#[derive(Clone, Debug)]
struct Message {
    json: String,
    role: Role,
    slots: Vec<Slot>,
    calls: Vec<Call>,
    results: Vec<String>,
    media: Vec<Media>,
}

impl Talk {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn system(self, text: &str) -> Self {
        self.plain("system", Role::System, text)
    }

    pub fn user(self, text: &str) -> Self {
        self.plain("user", Role::User, text)
    }

    pub fn assistant(self, text: &str) -> Self {
        self.plain("assistant", Role::Assistant, text)
    }

    /// A message of a role that nobody knows.
    pub fn unknown(self, text: &str) -> Self {
        self.plain("oracle", Role::Unknown, text)
    }

    /// A user message of several text parts.
    pub fn parts(self, texts: &[&str]) -> Self {
        let mut message = Message::new("user", Role::User);
        message.json.push_str(",\"content\":[");
        for (i, text) in texts.iter().enumerate() {
            message.json.push_str(if i == 0 {
                "{\"type\":\"text\",\"text\":"
            } else {
                ",{\"type\":\"text\",\"text\":"
            });
            message.value(text, SlotKind::Text);
            message.json.push('}');
        }
        message.json.push(']');
        self.with(message)
    }

    /// A user message that is a picture and nothing else.
    pub fn image(self) -> Self {
        let mut message = Message::new("user", Role::User);
        message.json.push_str(",\"content\":[");
        let start = message.json.len();
        message.json.push_str("{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,AAAA\"}}");
        message.media.push(Media { span: start..message.json.len(), tokens: 1000 });
        message.json.push(']');
        self.with(message)
    }

    /// An item that holds reasoning alone.
    pub fn reasoning(self, text: &str) -> Self {
        let mut message = Message::new("assistant", Role::Assistant);
        message.json.push_str(",\"reasoning_content\":");
        message.value(text, SlotKind::Reasoning);
        self.with(message)
    }

    /// The messages of a recorded Chat conversation, as far as the builder knows their shapes.
    pub fn recorded(messages: &[Value]) -> Self {
        messages.iter().fold(Self::new(), |talk, message| {
            let content = match message.get("content") {
                Some(Value::Array(parts)) => {
                    parts.iter().filter_map(|part| part.get("text")?.as_str()).collect::<Vec<_>>().join("\n")
                }
                content => content.and_then(Value::as_str).unwrap_or_default().to_owned(),
            };
            let calls: Vec<(&str, &str, &str)> = message
                .get("tool_calls")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(|call| {
                    let function = call.get("function")?;
                    Some((
                        call.get("id")?.as_str()?,
                        function.get("name")?.as_str()?,
                        function.get("arguments")?.as_str()?,
                    ))
                })
                .collect();
            match message.get("role").and_then(Value::as_str).unwrap_or_default() {
                "system" | "developer" => talk.system(&content),
                "user" => talk.user(&content),
                "assistant" if calls.is_empty() => talk.assistant(&content),
                "assistant" => talk.calls(&content, &calls),
                "tool" => {
                    talk.result(message.get("tool_call_id").and_then(Value::as_str).unwrap_or_default(), &content)
                }
                _ => talk.unknown(&content),
            }
        })
    }

    pub fn call(self, id: &str, name: &str, arguments: &str) -> Self {
        self.calls("", &[(id, name, arguments)])
    }

    /// An assistant message with parallel calls: id, name, arguments.
    pub fn calls(self, text: &str, calls: &[(&str, &str, &str)]) -> Self {
        let mut message = Message::new("assistant", Role::Assistant);
        if text.is_empty() {
            message.json.push_str(",\"content\":null");
        } else {
            message.json.push_str(",\"content\":");
            message.value(text, SlotKind::Text);
        }
        message.json.push_str(",\"tool_calls\":[");
        for (i, (id, name, arguments)) in calls.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            let (id_json, name_json) = (Value::from(*id), Value::from(*name));
            message.json.push_str(&format!(
                "{comma}{{\"id\":{id_json},\"type\":\"function\",\"function\":{{\"name\":{name_json},\"arguments\":"
            ));
            message.value(arguments, SlotKind::Arguments(i));
            message.json.push_str("}}");
            message.calls.push(Call { id: (*id).to_owned(), name: (*name).to_owned() });
        }
        message.json.push(']');
        self.with(message)
    }

    pub fn result(self, id: &str, text: &str) -> Self {
        let mut message = Message::new("tool", Role::Tool);
        message.json.push_str(&format!(",\"tool_call_id\":{},\"content\":", Value::from(id)));
        message.value(text, SlotKind::Result(0));
        message.results.push(id.to_owned());
        self.with(message)
    }

    /// A call and its result.
    pub fn tool(self, id: &str, name: &str, arguments: &str, result: &str) -> Self {
        self.call(id, name, arguments).result(id, result)
    }

    pub fn legacy(self, name: &str, arguments: &str, result: &str) -> Self {
        let mut call = Message::new("assistant", Role::Assistant);
        call.json.push_str(&format!(",\"function_call\":{{\"name\":{},\"arguments\":", Value::from(name)));
        call.value(arguments, SlotKind::Arguments(0));
        call.json.push('}');
        call.calls.push(Call { id: String::new(), name: name.to_owned() });
        let mut answer = Message::new("function", Role::Tool);
        answer.json.push_str(&format!(",\"name\":{},\"content\":", Value::from(name)));
        answer.value(result, SlotKind::Result(0));
        answer.results.push(name.to_owned());
        self.with(call).with(answer)
    }

    /// The conversation, as the reader of the wire would give it. The body is leaked: tests are short-lived.
    pub fn conversation(&self) -> Conversation<'static> {
        let mut body = String::from("{\"model\":\"m\",\"messages\":[");
        let (mut lead, mut items, mut chain) = (Vec::new(), Vec::new(), [0; 32]);
        for (i, message) in self.messages.iter().enumerate() {
            if i > 0 {
                body.push(',');
            }
            let span = body.len()..body.len() + message.json.len() + 1;
            body.push_str(&message.json);
            body.push('}');
            if items.is_empty() && message.role == Role::System {
                lead.push(span);
                continue;
            }
            let facts = message.facts();
            chain = *blake3::Hasher::new().update(&chain).update(&facts.canonical).finalize().as_bytes();
            items.push(Item { span, facts: Arc::new(facts), chain });
        }
        body.push_str("]}");
        assert!(serde_json::from_str::<Value>(&body).is_ok(), "the builder made no JSON: {body}");
        let fields = Fields { model: Some("m".into()), ..Fields::default() };
        Conversation {
            dialect: Dialect::Chat,
            body: Box::leak(body.into_bytes().into_boxed_slice()),
            fields,
            lead,
            settled: Vec::new(),
            superseded: Vec::new(),
            items,
        }
    }

    fn plain(self, name: &str, role: Role, text: &str) -> Self {
        let mut message = Message::new(name, role);
        message.json.push_str(",\"content\":");
        message.value(text, SlotKind::Text);
        self.with(message)
    }

    fn with(mut self, message: Message) -> Self {
        self.messages.push(message);
        self
    }
}

impl Message {
    fn new(name: &str, role: Role) -> Self {
        let json = format!("{{\"role\":\"{name}\"");
        Self { json, role, slots: Vec::new(), calls: Vec::new(), results: Vec::new(), media: Vec::new() }
    }

    fn value(&mut self, text: &str, kind: SlotKind) {
        let start = self.json.len();
        self.json.push_str(&Value::from(text).to_string());
        self.slots.push(Slot { span: start..self.json.len(), kind });
    }

    fn facts(&self) -> Facts {
        let media: usize = self.media.iter().map(|part| part.span.len()).sum();
        Facts {
            role: self.role,
            slots: self.slots.clone(),
            calls: self.calls.clone(),
            results: self.results.clone(),
            media: self.media.clone(),
            standing: Standing::Plain,
            signed: Vec::new(),
            lasting: false,
            text_bytes: self.json.len() + 1 - media,
            canonical: *blake3::hash(self.json.as_bytes()).as_bytes(),
            tokens: OnceLock::new(),
        }
    }
}

/// A stand-in for the tokenizer: four bytes a token.
pub fn count(text: &str) -> usize {
    text.len().div_ceil(4)
}
