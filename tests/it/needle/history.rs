//! Generated conversations of an agent, with needles in its texts.

use compactproxy::demo::answer::ToolCall;
use serde_json::{Value, json};

use crate::support::dialects::Dialect;

/// A seeded generator: the same seed, the same conversation.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number from `least` to `most`.
    pub fn from(&mut self, least: usize, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        least + (self.0 >> 33) as usize % (most - least + 1)
    }

    pub fn pick<'t, T>(&mut self, of: &'t [T]) -> &'t T {
        &of[self.from(0, of.len() - 1)]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Result,
    Parts,
    Argument,
    User,
    Said,
}

/// A mark in a text.
#[derive(Debug, Clone)]
pub struct Needle {
    pub mark: String,
    pub place: Place,
    /// The texts around it, exactly: one, or the parts of a result.
    pub texts: Vec<String>,
    /// The item that it stands in.
    pub item: usize,
}

/// How much is in a conversation.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub steps: usize,
    /// Characters of what is long.
    pub long: (usize, usize),
    /// Whether messages are long as well.
    pub messages: bool,
}

/// A conversation, and after how many items its client asks.
pub struct History {
    pub items: Vec<Value>,
    pub asked: Vec<usize>,
    pub needles: Vec<Needle>,
}

struct Writer<'d> {
    dialect: &'d dyn Dialect,
    dice: Dice,
    seed: u64,
    sizes: Sizes,
    history: History,
}

impl History {
    /// What an agent and its user came to say to each other.
    pub fn generated(dialect: &dyn Dialect, seed: u64, sizes: Sizes) -> Self {
        let history = Self { items: Vec::new(), asked: Vec::new(), needles: Vec::new() };
        let mut writer = Writer { dialect, dice: Dice::new(seed), seed, sizes, history };
        writer.user(&format!("Work on case {seed}."));
        for step in 0..sizes.steps {
            if sizes.messages && step % 3 == 2 {
                writer.talk(step);
            }
            writer.step(step);
        }
        writer.history
    }

    /// The client's request after so many items.
    pub fn body(&self, dialect: &dyn Dialect, count: usize, stream: bool) -> Value {
        dialect.request(self.items[..count].to_vec(), stream)
    }
}

impl Writer<'_> {
    fn user(&mut self, text: &str) {
        self.history.items.push(self.dialect.user(text));
        self.history.asked.push(self.history.items.len());
    }

    /// Answer and question, each with a needle.
    fn talk(&mut self, step: usize) {
        let (said, asked) = (self.long_text(&format!("said{step}")), self.long_text(&format!("user{step}")));
        self.mark(&said, Place::Said);
        self.history.items.extend(self.dialect.said(&said.1, &[]));
        self.mark(&asked, Place::User);
        self.user(&asked.1);
    }

    /// One or two calls and their results; a needle in one of the arguments, and one in each result.
    fn step(&mut self, step: usize) {
        let written = self.long_text(&format!("argument{step}"));
        let arguments = |content: &str| json!({"command": format!("run {step}"), "content": content}).to_string();
        let ids: Vec<String> = (0..self.dice.from(1, 2)).map(|n| format!("call_{step}_{n}")).collect();
        let calls: Vec<ToolCall> = ids
            .iter()
            .enumerate()
            .map(|(n, id)| {
                let arguments = arguments(if n == 0 { &written.1 } else { "short" });
                ToolCall { id: id.clone(), name: "execute".to_owned(), arguments }
            })
            .collect();
        let text = *self.dice.pick(&["", "Let me see. "]);
        let said = self.dialect.said(text, &calls);
        // Calls are in the message, or items of their own behind it.
        let first = self.history.items.len() + said.len().saturating_sub(ids.len());
        self.mark_in(&written, Place::Argument, first);
        self.history.items.extend(said);
        let results: Vec<Vec<String>> = (0..ids.len()).map(|n| self.result(step, n)).collect();
        let results: Vec<(&str, &[String])> =
            ids.iter().zip(&results).map(|(id, parts)| (id.as_str(), parts.as_slice())).collect();
        let items = self.dialect.results(&results);
        let first = self.history.items.len();
        for (n, (_, parts)) in results.iter().enumerate() {
            let place = if parts.len() > 1 { Place::Parts } else { Place::Result };
            let mark = format!("NEEDLE_{}_result{step}n{n}x", self.seed);
            let item = first + n.min(items.len() - 1);
            self.history.needles.push(Needle { mark, place, texts: parts.to_vec(), item });
        }
        self.history.items.extend(items);
        self.history.asked.push(self.history.items.len());
    }

    /// A result in one part, in a few long ones, or in many short ones.
    fn result(&mut self, step: usize, n: usize) -> Vec<String> {
        let (mark, text) = self.long_text(&format!("result{step}n{n}"));
        let pieces = *self.dice.pick(&[1, 1, 3, 12]);
        if pieces == 1 {
            return vec![text];
        }
        let chars: Vec<char> = text.replace(&mark, "").chars().collect();
        let mut parts: Vec<String> = chars.chunks(chars.len() / pieces + 1).map(|part| part.iter().collect()).collect();
        let at = self.dice.from(0, parts.len() - 1);
        let middle = parts[at].char_indices().nth(parts[at].chars().count() / 2).unwrap().0;
        parts[at].insert_str(middle, &mark);
        parts
    }

    fn mark(&mut self, text: &(String, String), place: Place) {
        self.mark_in(text, place, self.history.items.len());
    }

    fn mark_in(&mut self, (mark, text): &(String, String), place: Place, item: usize) {
        self.history.needles.push(Needle { mark: mark.clone(), place, texts: vec![text.clone()], item });
    }

    /// A needle and a long text that has it at any place.
    fn long_text(&mut self, name: &str) -> (String, String) {
        let mark = format!("NEEDLE_{}_{name}x", self.seed);
        let length = self.dice.from(self.sizes.long.0, self.sizes.long.1);
        let kind = *self.dice.pick(&[Kind::Lines, Kind::Giant, Kind::Json, Kind::Foreign, Kind::Crlf]);
        let at = self.dice.from(0, length);
        let text = format!("{} {mark} {}", self.filler(kind, at), self.filler(kind, length - at));
        match kind {
            Kind::Json => {
                (mark, json!({"ok": true, "rows": [text, null, 1.50], "more": {"text": "é\u{301}"}}).to_string())
            }
            _ => (mark, text),
        }
    }

    fn filler(&mut self, kind: Kind, chars: usize) -> String {
        const WORDS: [&str; 12] = [
            "river",
            "stone",
            "\"quoted\"",
            "path\\to",
            "light",
            "{brace}",
            "tab\tbed",
            "<tag>",
            "north",
            "seven",
            "a",
            "glass.rs:17",
        ];
        const FOREIGN: [&str; 10] = [
            "川の流れ",
            "数据库",
            "👩\u{200d}👩\u{200d}👧",
            "e\u{301}te\u{301}",
            "مرحبا",
            "Straße",
            "👍🏽",
            "\u{feff}",
            "ไทย",
            "한국어",
        ];
        let mut text = String::new();
        let mut left = chars;
        while left > 0 {
            let word = *self.dice.pick(if kind == Kind::Foreign { &FOREIGN[..] } else { &WORDS[..] });
            let end = match (kind, self.dice.from(0, 9)) {
                (Kind::Lines | Kind::Foreign, 0) => "\n",
                (Kind::Lines, 1) => "\n\n",
                (Kind::Crlf, 0 | 1) => "\r\n",
                (Kind::Foreign, _) => "",
                _ => " ",
            };
            text += word;
            text += end;
            left = left.saturating_sub(word.chars().count() + end.len());
        }
        text
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Lines,
    /// One line.
    Giant,
    Json,
    /// Scripts without spaces, joined characters, marks.
    Foreign,
    Crlf,
}
