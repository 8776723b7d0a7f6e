//! Random conversations, and the ways in which clients change them from request to request.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::wire::Dialect;
use crate::wire::openai_responses::bodies::item;

/// A request as a client holds it.
#[derive(Debug, Clone)]
pub struct Client {
    pub dialect: Dialect,
    pub system: Vec<Value>,
    pub messages: Vec<Value>,
    pub clock: u32,
    pub tools: Value,
    /// Rotates the top-level members.
    pub turn: usize,
    pub style: Style,
}

/// How JSON is spelt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Compact,
    Spaced,
    /// Members in reverse order.
    Reversed,
}

/// What a client does between two requests.
#[derive(Debug, Clone)]
pub enum Step {
    Append(Vec<Value>),
    Edit(usize, Value),
    Rewind(usize),
    Tick,
    AddSystem,
    DropSystem,
    Turn(usize),
    Spell(Style),
}

/// A client of any dialect, and what it does then.
pub fn session() -> impl Strategy<Value = (Client, Vec<Step>)> {
    let session = |dialect, message: BoxedStrategy<Value>| (client_of(dialect, message.clone()), steps(message));
    prop_oneof![session(Dialect::Chat, message().boxed()), session(Dialect::Responses, item().boxed())]
}

pub fn client() -> impl Strategy<Value = Client> {
    session().prop_map(|(client, _)| client)
}

fn client_of(dialect: Dialect, message: BoxedStrategy<Value>) -> impl Strategy<Value = Client> {
    let messages = prop::collection::vec(message, 0..8);
    let parts = (messages, style(), 0_usize..4, 0_usize..4_000, 0_usize..3);
    parts.prop_map(move |(messages, style, turn, tools, systems)| {
        let tools = json!([{"type": "function", "function": {"name": "f", "description": "d".repeat(tools)}}]);
        Client { dialect, system: vec![system(); systems], messages, clock: 0, tools, turn, style }
    })
}

fn steps(message: BoxedStrategy<Value>) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => prop::collection::vec(message.clone(), 1..4).prop_map(Step::Append),
        1 => (any::<prop::sample::Index>(), message).prop_map(|(at, message)| Step::Edit(at.index(64), message)),
        1 => (0_usize..6).prop_map(Step::Rewind),
        1 => Just(Step::Tick),
        1 => Just(Step::AddSystem),
        1 => Just(Step::DropSystem),
        1 => (0_usize..4).prop_map(Step::Turn),
        1 => style().prop_map(Step::Spell),
    ];
    prop::collection::vec(step, 0..8)
}

fn style() -> impl Strategy<Value = Style> {
    prop_oneof![3 => Just(Style::Compact), 1 => Just(Style::Spaced), 1 => Just(Style::Reversed)]
}

fn system() -> Value {
    json!({"role": "system", "content": "You help. ".repeat(80)})
}

pub fn message() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        3 => "\\PC{0,12}",
        2 => (0_usize..3_000).prop_map(|n| "lorem ipsum \"é\"\n".repeat(n / 16)),
    ];
    let id = "[a-c]";
    prop_oneof![
        text.clone().prop_map(|text| json!({"role": "user", "content": text})),
        text.clone().prop_map(|text| json!({"role": "user", "content": [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": "data:,"}}]})),
        (text.clone(), id, text.clone()).prop_map(|(say, id, args)| json!({"role": "assistant", "content": say, "reasoning_content": "r",
            "tool_calls": [{"id": id, "type": "function", "function": {"name": "f", "arguments": args}}, {"id": "d", "type": "custom", "custom": {"name": "g", "input": "i"}}]})),
        text.clone().prop_map(|text| json!({"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": text}})),
        (id, text.clone()).prop_map(|(id, text)| json!({"role": "tool", "tool_call_id": id, "content": text})),
        (id, text.clone()).prop_map(|(id, text)| json!({"role": "tool", "tool_call_id": id, "content": [{"type": "text", "text": text}], "cache_control": {"type": "ephemeral"}})),
        text.clone().prop_map(|text| json!({"role": "function", "name": "f", "content": text})),
        text.clone().prop_map(|text| json!({"role": "system", "content": text})),
        text.prop_map(|text| json!({"role": "other", "z": [text, 1.5, true, null, {"y": {}}]})),
    ]
}

impl Client {
    pub fn take(&mut self, step: Step) {
        match step {
            Step::Append(messages) => self.messages.extend(messages),
            Step::Edit(at, message) => {
                let len = self.messages.len().max(1);
                if let Some(place) = self.messages.get_mut(at % len) {
                    *place = message;
                }
            }
            Step::Rewind(n) => self.messages.truncate(self.messages.len().saturating_sub(n)),
            Step::Tick => self.clock += 1,
            Step::AddSystem => self.system.push(system()),
            Step::DropSystem => drop(self.system.pop()),
            Step::Turn(turn) => self.turn = turn,
            Step::Spell(style) => self.style = style,
        }
    }

    /// The request's body.
    pub fn body(&self) -> String {
        let clock = (self.clock > 0).then(|| json!({"role": "developer", "content": format!("It is {}.", self.clock)}));
        let messages: Vec<Value> =
            self.system.iter().cloned().chain(clock).chain(self.messages.iter().cloned()).collect();
        let mut members = [
            (self.dialect.array(), Value::from(messages)),
            ("model", json!("m")),
            ("max_tokens", json!(4_096)),
            ("tools", self.tools.clone()),
        ];
        members.rotate_left(self.turn);
        object(members.iter().map(|(key, value)| (*key, value)), self.style)
    }
}

fn object<'v>(members: impl DoubleEndedIterator<Item = (&'v str, &'v Value)>, style: Style) -> String {
    let mut members: Vec<_> = members.map(|(key, value)| (Value::from(key).to_string(), spell(value, style))).collect();
    if style == Style::Reversed && !members.iter().any(|(key, _)| key == "\"max_tokens\"") {
        members.reverse();
    }
    let (colon, comma) = marks(style);
    let members: Vec<_> = members.into_iter().map(|(key, value)| key + colon + &value).collect();
    format!("{{{}}}", members.join(comma))
}

fn marks(style: Style) -> (&'static str, &'static str) {
    if style == Style::Spaced { ("\t: ", " ,\r\n ") } else { (":", ",") }
}

fn spell(value: &Value, style: Style) -> String {
    match value {
        Value::Object(members) => object(members.iter().map(|(key, value)| (key.as_str(), value)), style),
        Value::Array(elements) => {
            let elements: Vec<_> = elements.iter().map(|value| spell(value, style)).collect();
            format!("[{}]", elements.join(marks(style).1))
        }
        other => other.to_string(),
    }
}
