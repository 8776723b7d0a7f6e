//! Chat bodies and their conversations from a list of messages, for the tests of the strategies.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::wire::conversation::Fields;
use crate::wire::{Call, Conversation, Dialect, Digest, Facts, Item, Media, Role, Slot, SlotKind, Standing};

use super::Cut;

/// One message of a body under construction.
#[derive(Clone, Debug)]
pub enum Message {
    System(String),
    User(String),
    /// A text part and a picture of this many estimated tokens.
    Picture(String, u32),
    Assistant(String, Vec<CallOf>),
    /// Call id and text parts; one part is written as a plain string.
    Result(String, Vec<String>),
}

/// A call to be written: id, tool, and the decoded arguments or custom input.
#[derive(Clone, Debug)]
pub struct CallOf {
    pub id: String,
    pub name: String,
    pub text: String,
    pub kind: CallKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    Function,
    Custom,
}

pub fn user(text: &str) -> Message {
    Message::User(text.to_owned())
}

pub fn says(text: &str) -> Message {
    Message::Assistant(text.to_owned(), Vec::new())
}

/// An assistant message that makes one function call.
pub fn call(id: &str, name: &str, arguments: &str) -> Message {
    Message::Assistant(String::new(), vec![call_of(id, name, arguments, CallKind::Function)])
}

/// An assistant message that makes one custom-tool call.
pub fn custom(id: &str, name: &str, input: &str) -> Message {
    Message::Assistant(String::new(), vec![call_of(id, name, input, CallKind::Custom)])
}

pub fn call_of(id: &str, name: &str, text: &str, kind: CallKind) -> CallOf {
    CallOf { id: id.to_owned(), name: name.to_owned(), text: text.to_owned(), kind }
}

pub fn result(id: &str, text: &str) -> Message {
    Message::Result(id.to_owned(), vec![text.to_owned()])
}

/// A call and its result.
pub fn exchange(id: &str, name: &str, text: &str) -> [Message; 2] {
    [call(id, name, "{}"), result(id, text)]
}

/// A written body and what a reader would find in it.
pub struct Chat {
    pub body: Vec<u8>,
    tools: Range<usize>,
    lead: Vec<Range<usize>>,
    items: Vec<Item>,
}

impl Chat {
    pub fn new(messages: &[Message]) -> Self {
        let mut body = br#"{"model":"gpt-4o","tools":"#.to_vec();
        let tools_start = body.len();
        body.extend_from_slice(br#"[{"type":"function","function":{"name":"shell"}}]"#);
        let tools = tools_start..body.len();
        body.extend_from_slice(br#","messages":["#);
        let (mut lead, mut items, mut chain) = (Vec::new(), Vec::new(), [0; 32]);
        for (i, message) in messages.iter().enumerate() {
            if i > 0 {
                body.push(b',');
            }
            let start = body.len();
            let written = Writer::message(message);
            body.extend_from_slice(&written.bytes);
            let span = start..body.len();
            match message {
                Message::System(_) if items.is_empty() => lead.push(span),
                _ => {
                    let item = written.item(message, span, chain);
                    chain = item.chain;
                    items.push(item);
                }
            }
        }
        body.extend_from_slice(b"]}");
        Self { body, tools, lead, items }
    }

    pub fn conversation(&self) -> Conversation<'_> {
        let fields =
            Fields { model: Some(Arc::from("gpt-4o")), overhead: vec![self.tools.clone()], ..Fields::default() };
        Conversation {
            dialect: Dialect::Chat,
            body: &self.body,
            fields,
            lead: self.lead.clone(),
            settled: Vec::new(),
            superseded: Vec::new(),
            items: self.items.clone(),
        }
    }

    /// The body with the replacements of some cuts in place.
    pub fn rewritten(&self, cuts: &[Cut]) -> Vec<u8> {
        let mut edits: Vec<(Range<usize>, String)> = cuts
            .iter()
            .map(|cut| {
                let item = &self.items[cut.item];
                let slot = &item.facts.slots[cut.replacement.slot].span;
                (item.span.start + slot.start..item.span.start + slot.end, quoted(&cut.replacement.text))
            })
            .collect();
        edits.sort_by_key(|(span, _)| std::cmp::Reverse(span.start));
        let mut body = self.body.clone();
        for (span, with) in edits {
            body.splice(span, with.into_bytes());
        }
        body
    }
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

/// Writes one message and notes where its texts are.
#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
    media: Vec<Media>,
}

impl Writer {
    fn message(message: &Message) -> Self {
        let mut writer = Self::default();
        match message {
            Message::System(text) => writer.plain("system", text),
            Message::User(text) => writer.plain("user", text),
            Message::Picture(text, tokens) => writer.picture(text, *tokens),
            Message::Assistant(text, calls) => writer.assistant(text, calls),
            Message::Result(id, parts) => writer.result(id, parts),
        }
        writer
    }

    fn raw(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn slot(&mut self, text: &str, kind: SlotKind) {
        let start = self.bytes.len();
        self.raw(&quoted(text));
        self.slots.push(Slot { span: start..self.bytes.len(), kind });
    }

    fn plain(&mut self, role: &str, text: &str) {
        self.raw(&format!(r#"{{"role":"{role}","content":"#));
        self.slot(text, SlotKind::Text);
        self.raw("}");
    }

    fn picture(&mut self, text: &str, tokens: u32) {
        self.raw(r#"{"role":"user","content":[{"type":"text","text":"#);
        self.slot(text, SlotKind::Text);
        self.raw("},");
        let start = self.bytes.len();
        self.raw(r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgoAAAANSUhEUg"}}"#);
        self.media.push(Media { span: start..self.bytes.len(), tokens });
        self.raw("]}");
    }

    fn assistant(&mut self, text: &str, calls: &[CallOf]) {
        self.raw(r#"{"role":"assistant","content":"#);
        self.slot(text, SlotKind::Text);
        for (i, call) in calls.iter().enumerate() {
            self.raw(if i == 0 { r#","tool_calls":["# } else { "," });
            let (kind, member, slot) = match call.kind {
                CallKind::Function => ("function", "arguments", SlotKind::Arguments(i)),
                CallKind::Custom => ("custom", "input", SlotKind::Input(i)),
            };
            let (id, name) = (quoted(&call.id), quoted(&call.name));
            self.raw(&format!(r#"{{"id":{id},"type":"{kind}","{kind}":{{"name":{name},"{member}":"#));
            self.slot(&call.text, slot);
            self.raw("}}");
        }
        self.raw(if calls.is_empty() { "}" } else { "]}" });
    }

    fn result(&mut self, id: &str, parts: &[String]) {
        self.raw(&format!(r#"{{"role":"tool","tool_call_id":{},"content":"#, quoted(id)));
        match parts {
            [text] => self.slot(text, SlotKind::Result(0)),
            _ => {
                for (i, text) in parts.iter().enumerate() {
                    self.raw(if i == 0 { r#"[{"type":"text","text":"# } else { r#",{"type":"text","text":"# });
                    self.slot(text, SlotKind::Result(0));
                    self.raw("}");
                }
                self.raw("]");
            }
        }
        self.raw("}");
    }

    fn item(self, message: &Message, span: Range<usize>, before: Digest) -> Item {
        let (role, calls, results) = match message {
            Message::System(_) => (Role::System, Vec::new(), Vec::new()),
            Message::User(_) | Message::Picture(..) => (Role::User, Vec::new(), Vec::new()),
            Message::Assistant(_, calls) => {
                let made = calls.iter().map(|call| Call { id: call.id.clone(), name: call.name.clone() });
                (Role::Assistant, made.collect(), Vec::new())
            }
            Message::Result(id, _) => (Role::Tool, Vec::new(), vec![id.clone()]),
        };
        let media_bytes: usize = self.media.iter().map(|media| media.span.len()).sum();
        let canonical = *blake3::hash(&self.bytes).as_bytes();
        let chain = *blake3::Hasher::new().update(&before).update(&canonical).finalize().as_bytes();
        let facts = Facts {
            role,
            standing: Standing::Plain,
            signed: Vec::new(),
            lasting: false,
            text_bytes: self.bytes.len() - media_bytes,
            slots: self.slots,
            calls,
            results,
            media: self.media,
            canonical,
            tokens: OnceLock::new(),
        };
        Item { span, facts: Arc::new(facts), chain }
    }
}
