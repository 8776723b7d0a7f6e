//! One agent's client: what it says and hears from turn to turn, and what it does with that.

use serde_json::Value;

use super::states::State;
use super::steps::{CallSpec, Step, Words};

/// One message as the client writes it, and what must survive of it.
#[derive(Clone, Debug)]
pub struct Message {
    pub json: String,
    pub rule: Option<String>,
    pub state: Option<State>,
}

impl Message {
    pub fn plain(json: String) -> Self {
        Self { json, rule: None, state: None }
    }
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

/// What a client does alike in all its requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// Tokens of output that are asked for.
    pub output: Option<u64>,
    pub marks: Marks,
    pub signed: Signed,
}

/// Which cache breakpoints a client of Messages sets, and for how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Marks {
    #[default]
    Short,
    Long,
    /// The long ones first (A17).
    Mixed,
}

/// What the signature of a thought covers (A10, A27).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Signed {
    #[default]
    Alone,
    /// With all that the provider received before it, as it received it.
    Bound,
}

/// One agent's client: its whole history, which it sends every time.
#[derive(Clone, Debug)]
pub struct Agent {
    pub name: usize,
    pub kind: Kind,
    pub manner: Manner,
    pub messages: Vec<Message>,
    /// The body that the next answer answers, as the provider received it.
    pub heard: Option<Vec<u8>>,
    /// Lengths of the history at which requests were sent.
    sent: Vec<usize>,
    count: usize,
}

pub const TOOLS: [&str; 6] = ["shell", "write_file", "mcp__code__grep", "read_file", "apply_patch", "search"];
pub const CUSTOM: usize = 4;

impl Agent {
    pub fn new(name: usize, kind: Kind, manner: Manner) -> Self {
        let (messages, heard, sent) = (Vec::new(), None, Vec::new());
        let mut agent = Self { name, kind, manner, messages, heard, sent, count: name * 100_000 };
        agent.say(&Words::Rule);
        agent.sent.push(1);
        agent
    }

    /// Does what a step asks of the history; the history to be sent now, if any.
    pub fn step(&mut self, step: &Step) -> Vec<Message> {
        match step {
            Step::Tools(calls) => match self.kind {
                Kind::Tools => self.tool_messages(calls),
                Kind::Text => self.observation(calls),
                Kind::Items => self.tool_items(calls),
                Kind::Blocks => self.tool_blocks(calls),
            },
            Step::Hosted(which) => {
                match self.kind {
                    Kind::Tools | Kind::Text => self.hosted_message(*which),
                    Kind::Items => self.hosted_items(*which),
                    Kind::Blocks => self.hosted_blocks(*which),
                }
                self.say(&Words::Text(40));
            }
            Step::Compacted => {
                match self.kind {
                    Kind::Tools | Kind::Text => self.answer(),
                    Kind::Items => self.compaction_item(),
                    Kind::Blocks => self.compaction_block(),
                }
                self.say(&Words::Rule);
            }
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
            Step::State(which) => self.state(*which),
            // Where thinking is bound, the old request's answer would be of another history.
            Step::Peek(at) if self.manner.signed == Signed::Alone => {
                return self.messages[..self.old(*at)].to_vec();
            }
            Step::Peek(at) | Step::Rewind(at) => {
                let at = self.old(*at);
                self.back_to(at);
                return self.messages.clone();
            }
            Step::Edit(at) => self.edit(*at),
            _ => return self.messages.clone(),
        }
        self.sent()
    }

    fn back_to(&mut self, at: usize) {
        self.messages.truncate(at);
        self.sent.retain(|sent| *sent <= at);
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
        self.messages.push(Message::plain(json));
    }

    fn say(&mut self, words: &Words) {
        let n = self.next();
        let part = if self.kind == Kind::Items { "input_text" } else { "text" };
        let rule = format!("Rule {n}: never touch \"src/file{n}.rs\" – not even once.");
        let (content, rule) = match words {
            Words::Rule => (quoted(&rule), Some(rule)),
            Words::Text(chars) => (quoted(&prose(n, *chars)), None),
            Words::Picture(chars) if self.kind == Kind::Items => (Self::picture_item(n, &prose(n, *chars)), None),
            Words::Picture(chars) if self.kind == Kind::Blocks => (Self::picture_block(n, &prose(n, *chars)), None),
            Words::Picture(chars) => (Self::picture_message(n, &prose(n, *chars)), None),
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

    pub fn observation(&mut self, specs: &[CallSpec]) {
        let n = self.next();
        let command = prose(n, specs[0].arguments.chars);
        self.push(format!(r#"{{"role":"assistant","content":{}}}"#, quoted(&format!("```bash\n{command}\n```"))));
        let output = prose(n, specs[0].result.chars);
        self.push(format!(r#"{{"role":"user","content":{}}}"#, quoted(&format!("OBSERVATION:\n{output}"))));
    }

    fn edit(&mut self, at: usize) {
        let n = self.next();
        let users: Vec<usize> = self.positions(|message| message.json.contains(r#""\u0075ser""#));
        let at = users[users.len() - 1 - at % users.len()];
        let rule = format!("Rule {n}: changed afterwards.");
        let json = format!(r#"{{"content": {}, "role":"\u0075ser","weight":1.50}}"#, quoted(&rule));
        self.messages[at] = Message { json, rule: Some(rule), state: None };
        if self.kind == Kind::Blocks && self.manner.signed == Signed::Bound {
            // What was signed behind it is void: the client goes on from there.
            self.back_to(at + 1);
            self.heard = None;
        }
    }

    pub fn positions(&self, wanted: impl Fn(&Message) -> bool) -> Vec<usize> {
        (0..self.messages.len()).filter(|i| wanted(&self.messages[*i])).collect()
    }

    /// The body of a request with these messages. The system prompt holds a clock.
    pub fn body(&self, messages: &[Message], clock: usize) -> Vec<u8> {
        match self.kind {
            Kind::Tools | Kind::Text => self.body_of_messages(messages, clock),
            Kind::Items => self.body_of_items(messages, clock, ""),
            Kind::Blocks => self.body_of_blocks(messages, clock, ""),
        }
    }
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

/// A text as JSON; some clients escape all that is not ASCII.
pub fn quoted(text: &str) -> String {
    let json = Value::from(text).to_string();
    if !text.len().is_multiple_of(5) {
        return json;
    }
    let escaped = |c: char| match c.is_ascii() {
        true => c.to_string(),
        false => c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
    };
    json.chars().map(escaped).collect()
}

/// About `chars` characters of lines that differ from text to text.
pub fn prose(seed: usize, chars: usize) -> String {
    const WORDS: &str = "let|value|= {\"a\":|größe|return|fn main()|// why|tests|\\n|日本|error:|ok|e\u{301}|🧵";
    let words: Vec<&str> = WORDS.split('|').collect();
    let mut text = format!("text {seed}:");
    let (mut state, mut written) = (seed * 2_654_435_761 + 1, text.len());
    while written < chars {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let word = words[(state >> 33) % words.len()];
        text.push(if (state >> 40).is_multiple_of(9) { '\n' } else { ' ' });
        text.push_str(word);
        written += word.len() + 1;
    }
    text
}

/// What stands for a medium: base64 that is no picture, of many or few bytes.
pub fn base64(n: usize) -> String {
    "iVBORw0K".repeat(1 + n % 5 * 1_000)
}
