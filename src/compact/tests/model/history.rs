//! Random histories: what an agent says and hears from turn to turn, and what its client does with it.

use std::fmt::Write;

use proptest::prelude::*;
use serde_json::Value;

/// What happens next: to the history of the agent that is at work, or to the world around it.
#[derive(Clone, Debug)]
pub enum Step {
    /// Calls made in parallel, and their results.
    Tools(Vec<CallSpec>),
    /// The assistant ends its turn and the user says something.
    Say(Words),
    /// A system message in mid-conversation, then the user's words.
    Reminder(Words),
    /// The latest list of what is to be done.
    Todo,
    /// The same request once more.
    Retry,
    /// An old request once more; the history stays.
    Peek(usize),
    /// Back to an old request; the history goes on from there.
    Rewind(usize),
    /// A user message is changed in place.
    Edit(usize),
    /// The other agent is at work from here on.
    Switch,
    Configure(usize),
    /// The process ends and comes back.
    Restart,
    /// The memory of what went whole is lost.
    Forget,
    /// The store's file is deleted.
    DeleteStore,
    /// The next commits fail.
    LoseWrites(usize),
}

#[derive(Clone, Debug)]
pub struct CallSpec {
    pub tool: usize,
    pub arguments: Shape,
    pub result: Shape,
    /// The id was used for another call before.
    pub reused: bool,
}

/// A text's form and its length in characters.
#[derive(Clone, Debug)]
pub struct Shape {
    pub form: usize,
    pub chars: usize,
}

#[derive(Clone, Debug)]
pub enum Words {
    Rule,
    Text(usize),
    Picture(usize),
    Parts(usize),
}

/// One message as the client writes it, and what must survive of it.
#[derive(Clone, Debug)]
pub struct Message {
    pub json: String,
    pub rule: Option<String>,
    pub todo: Option<String>,
}

/// How an agent acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Tools,
    /// Tool output comes as user messages.
    Text,
    /// At OpenAI Responses.
    Items,
    /// At Anthropic Messages.
    Blocks,
}

/// One agent's client: its whole history, which it sends every time.
#[derive(Clone, Debug)]
pub struct Agent {
    name: usize,
    pub kind: Kind,
    pub messages: Vec<Message>,
    /// Lengths of the history at which requests were sent.
    sent: Vec<usize>,
    count: usize,
}

pub const TOOLS: [&str; 6] = ["shell", "write_file", "mcp__code__grep", "read_file", "apply_patch", "search"];
pub const CUSTOM: usize = 4;

impl Step {
    /// Whether a request is sent.
    pub fn sends(&self) -> bool {
        use Step::{Configure, DeleteStore, Forget, LoseWrites, Restart, Switch};
        !matches!(self, Switch | Configure(_) | Restart | Forget | DeleteStore | LoseWrites(_))
    }
}

impl Agent {
    pub fn new(name: usize, kind: Kind) -> Self {
        let mut agent = Self { name, kind, messages: Vec::new(), sent: Vec::new(), count: name * 100_000 };
        agent.say(&Words::Rule);
        agent.sent.push(1);
        agent
    }

    /// Does what a step asks of the history; the history to be sent now, if any.
    pub fn step(&mut self, step: &Step) -> Vec<Message> {
        match step {
            Step::Tools(calls) => match self.kind {
                Kind::Tools => self.tools(calls),
                Kind::Text => self.observation(calls),
                Kind::Items => self.tool_items(calls),
                Kind::Blocks => self.tool_blocks(calls),
            },
            Step::Say(words) => {
                self.answer();
                self.say(words);
            }
            Step::Reminder(words) => {
                self.answer();
                let note = prose(self.next(), 60);
                if self.kind == Kind::Blocks {
                    // Messages has no such role (A5).
                    self.say(words);
                    return self.sent();
                }
                self.push(format!(r#"{{"role":"system","content":{}}}"#, quoted(&note)));
                self.say(words);
            }
            Step::Todo => self.todo(),
            Step::Peek(at) => return self.messages[..self.old(*at)].to_vec(),
            Step::Rewind(at) => {
                let at = self.old(*at);
                self.messages.truncate(at);
                self.sent.retain(|sent| *sent <= at);
                return self.messages.clone();
            }
            Step::Edit(at) => self.edit(*at),
            _ => return self.messages.clone(),
        }
        self.sent()
    }

    fn sent(&mut self) -> Vec<Message> {
        self.sent.push(self.messages.len());
        self.messages.clone()
    }

    fn old(&self, at: usize) -> usize {
        self.sent[self.sent.len() - 1 - at % self.sent.len()]
    }

    pub fn next(&mut self) -> usize {
        self.count += 1;
        self.count
    }

    pub fn push(&mut self, json: String) {
        self.messages.push(Message { json, rule: None, todo: None });
    }

    fn say(&mut self, words: &Words) {
        let n = self.next();
        let part = if self.kind == Kind::Items { "input_text" } else { "text" };
        let rule = format!("Rule {n}: never touch \"src/file{n}.rs\" – not even once.");
        let (content, rule) = match words {
            Words::Rule => (quoted(&rule), Some(rule)),
            Words::Text(chars) => (quoted(&prose(n, *chars)), None),
            Words::Picture(chars) if self.kind == Kind::Items => (Self::picture_item(&prose(n, *chars)), None),
            Words::Picture(chars) if self.kind == Kind::Blocks => (Self::picture_block(&prose(n, *chars)), None),
            Words::Picture(chars) => {
                let picture = r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}"#;
                (format!(r#"[{picture},{{"type":"text","text":{}}}]"#, quoted(&prose(n, *chars))), None)
            }
            Words::Parts(chars) => {
                let text = quoted(&prose(n, *chars));
                let rule = quoted(&rule);
                (format!(r#"[{{"type":"{part}","text":{rule}}}, {{"text":{text},"type":"{part}"}}]"#), None)
            }
        };
        // Unknown members, odd spelling: none of it may change.
        self.push(format!(r#"{{"content": {content}, "role":"\u0075ser","weight":1.50}}"#));
        if let Some(last) = self.messages.last_mut() {
            last.rule = rule;
        }
    }

    fn answer(&mut self) {
        let text = prose(self.next(), 80);
        if self.kind == Kind::Items {
            self.reasoning_item();
            return self.answer_item(&text);
        }
        if self.kind == Kind::Blocks {
            return self.answer_block(&text);
        }
        self.push(format!(r#"{{"role":"assistant","content":{},"refusal":null}}"#, quoted(&text)));
    }

    fn tools(&mut self, specs: &[CallSpec]) {
        let (mut calls, mut results) = (Vec::new(), Vec::new());
        for (k, spec) in specs.iter().enumerate() {
            let n = self.next();
            let id = if spec.reused { format!("c0000000{k}") } else { format!("c{n:08}") };
            calls.push(written_call(&id, n, spec));
            let content = match spec.result.form % 4 {
                0 => {
                    let half = spec.result.chars / 2;
                    let parts = [prose(n, half), prose(n + 7, half)].map(|text| quoted(&text));
                    format!(r#"[{{"type":"text","text":{}}},{{"type":"text","text":{}}}]"#, parts[0], parts[1])
                }
                _ => quoted(&prose(n + 3, spec.result.chars)),
            };
            results.push(format!(r#"{{"role":"tool","tool_call_id":"{id}","content":{content}}}"#));
        }
        self.push(format!(r#"{{"role":"assistant","content":null,"tool_calls":[{}]}}"#, calls.join(", ")));
        results.into_iter().for_each(|result| self.push(result));
    }

    fn observation(&mut self, specs: &[CallSpec]) {
        let n = self.next();
        let command = prose(n, specs[0].arguments.chars);
        self.push(format!(r#"{{"role":"assistant","content":{}}}"#, quoted(&format!("```bash\n{command}\n```"))));
        let output = prose(n, specs[0].result.chars);
        self.push(format!(r#"{{"role":"user","content":{}}}"#, quoted(&format!("OBSERVATION:\n{output}"))));
    }

    fn todo(&mut self) {
        if self.kind == Kind::Text {
            return self.observation(&[CallSpec::small()]);
        }
        let n = self.next();
        let entry = format!("todo number {n}");
        if self.kind == Kind::Blocks {
            return self.todo_block(n, &entry);
        }
        let arguments = format!(r#"{{"todos":[{{"content":"{entry}","status":"in_progress","id":"1"}}]}}"#);
        if self.kind == Kind::Items {
            let arguments = quoted(&arguments);
            self.push(format!(
                r#"{{"type":"function_call","call_id":"c{n:08}","name":"todo_write","arguments":{arguments}}}"#
            ));
            self.messages.last_mut().unwrap().todo = Some(entry);
            return self.push(format!(r#"{{"type":"function_call_output","call_id":"c{n:08}","output":"ok"}}"#));
        }
        let call = format!(
            r#"{{"id":"c{n:08}","type":"function","function":{{"name":"todo_write","arguments":{}}}}}"#,
            quoted(&arguments)
        );
        self.push(format!(r#"{{"role":"assistant","content":null,"tool_calls":[{call}]}}"#));
        self.messages.last_mut().unwrap().todo = Some(entry);
        self.push(format!(r#"{{"role":"tool","tool_call_id":"c{n:08}","content":"ok"}}"#));
    }

    fn edit(&mut self, at: usize) {
        let n = self.next();
        let users: Vec<usize> = self.positions(|message| message.json.contains(r#""\u0075ser""#));
        let at = users[users.len() - 1 - at % users.len()];
        let rule = format!("Rule {n}: changed afterwards.");
        let json = format!(r#"{{"content": {}, "role":"\u0075ser","weight":1.50}}"#, quoted(&rule));
        self.messages[at] = Message { json, rule: Some(rule), todo: None };
    }

    fn positions(&self, wanted: impl Fn(&Message) -> bool) -> Vec<usize> {
        (0..self.messages.len()).filter(|i| wanted(&self.messages[*i])).collect()
    }

    /// The body of a request with these messages. The system prompt holds a clock.
    pub fn body(&self, messages: &[Message], clock: usize) -> Vec<u8> {
        let (model, array) = match self.kind {
            Kind::Items => (super::items::MODEL, "input"),
            Kind::Tools | Kind::Text => ("demo-coder", "messages"),
            Kind::Blocks => return self.body_of_blocks(messages, clock),
        };
        let mut body = format!(
            r#"{{"model":"{model}", "temperature":0.10,"{array}":[ {{"role":"system","content":"You are agent {}. It is {clock} o'clock."}}"#,
            self.name
        );
        messages.iter().for_each(|message| write!(body, ",\n{}", message.json).unwrap());
        body.push_str(r#"],"tools":[{"type":"function","function":{"name":"shell"}}],"b":{"z":1e3,"a":[ ]}}"#);
        body.into_bytes()
    }
}

impl CallSpec {
    fn small() -> Self {
        let shape = Shape { form: 1, chars: 40 };
        Self { tool: 0, arguments: shape.clone(), result: shape, reused: false }
    }
}

fn written_call(id: &str, n: usize, spec: &CallSpec) -> String {
    let tool = TOOLS[spec.tool % TOOLS.len()];
    let text = prose(n + 1, spec.arguments.chars);
    if spec.tool % TOOLS.len() == CUSTOM {
        return format!(r#"{{"id":"{id}","type":"custom","custom":{{"name":"{tool}","input":{}}}}}"#, quoted(&text));
    }
    let arguments = quoted(&arguments(n, spec, &text));
    format!(r#"{{"id":"{id}","type":"function","function":{{"arguments":{arguments},"name":"{tool}"}}}}"#)
}

/// What a function is given: JSON in several forms, no JSON, nothing.
pub fn arguments(n: usize, spec: &CallSpec, text: &str) -> String {
    match spec.arguments.form % 6 {
        0 => format!(r#"{{"path": "f{n}.rs", "nested":{{"list":[1.0,{}]}}, "n":2e1}}"#, quoted(text)),
        1 => format!("{{not json: {text}"),
        2 => String::new(),
        _ => format!(r#"{{"command":{},"path":"f{n}.rs"}}"#, quoted(text)),
    }
}

pub fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// About `chars` characters of lines that differ from text to text.
pub fn prose(seed: usize, chars: usize) -> String {
    const WORDS: [&str; 12] =
        ["let", "value", "= {\"a\":", "größe", "return", "fn main()", "// why", "tests", "\\n", "日本", "error:", "ok"];
    let mut text = format!("text {seed}:");
    let (mut state, mut written) = (seed * 2_654_435_761 + 1, text.len());
    while written < chars {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let word = WORDS[(state >> 33) % WORDS.len()];
        text.push(if (state >> 40).is_multiple_of(9) { '\n' } else { ' ' });
        text.push_str(word);
        written += word.len() + 1;
    }
    text
}

fn chars() -> impl Strategy<Value = usize> {
    prop_oneof![6 => 0_usize..200, 4 => 200_usize..2_500, 2 => 2_500_usize..7_000, 1 => 7_000_usize..25_000]
}

fn shape() -> impl Strategy<Value = Shape> {
    (0_usize..12, chars()).prop_map(|(form, chars)| Shape { form, chars })
}

fn call() -> impl Strategy<Value = CallSpec> {
    (0_usize..6, shape(), shape(), prop::bool::weighted(0.2)).prop_map(|(tool, arguments, result, reused)| CallSpec {
        tool,
        arguments,
        result,
        reused,
    })
}

fn words() -> impl Strategy<Value = Words> {
    prop_oneof![
        4 => Just(Words::Rule),
        2 => (0_usize..1_500).prop_map(Words::Text),
        1 => (0_usize..300).prop_map(Words::Picture),
        1 => (0_usize..300).prop_map(Words::Parts),
        1 => (3_000_usize..12_000).prop_map(Words::Text),
    ]
}

/// Steps that only make a history longer.
pub fn growth() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => prop::collection::vec(call(), 1..4).prop_map(Step::Tools),
        3 => words().prop_map(Step::Say),
        1 => Just(Step::Todo),
    ]
}

/// Everything that may happen.
pub fn anything() -> impl Strategy<Value = Step> {
    prop_oneof![
        24 => growth(),
        1 => words().prop_map(Step::Reminder),
        2 => Just(Step::Retry),
        1 => (0_usize..8).prop_map(Step::Peek),
        1 => (0_usize..8).prop_map(Step::Rewind),
        1 => (0_usize..4).prop_map(Step::Edit),
        1 => Just(Step::Switch),
        1 => (0_usize..64).prop_map(Step::Configure),
        1 => Just(Step::Restart),
        1 => Just(Step::Forget),
        1 => Just(Step::DeleteStore),
        1 => (1_usize..4).prop_map(Step::LoseWrites),
    ]
}
