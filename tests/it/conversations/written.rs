//! Self-written conversations that are shorter to generate than to write down: one for each family of items and blocks
//! that no file has.

mod messages;
mod responses;

use compactproxy::demo::answer::ToolCall;
use serde_json::{Value, json};

use super::document::Document;
use super::form::Form;
use crate::support::chat::words;
use crate::support::dialects::{self, Dialect};

/// The generated conversations of a form.
pub fn of(form: Form) -> Vec<Document> {
    match form {
        Form::Chat => Vec::new(),
        Form::Responses => responses::all(),
        Form::Messages => messages::all(),
    }
}

/// The rule that stands in what the user typed first.
pub const RULE: &str = "Never touch the lock file.";

/// Small talk, then files that are written and commands that show much, with long answers between them: all strategies
/// find something to do, and none of them enough.
pub fn plain(form: Form) -> Document {
    let dialect: &dyn Dialect = match form {
        Form::Chat => &dialects::Chat,
        Form::Responses => &dialects::Responses,
        Form::Messages => &dialects::Messages,
    };
    let mut draft = Draft::new(form, "plain", &[("tools", dialect.fields(false)["tools"].take())]);
    for n in 0..3 {
        draft.all(dialect.said(&format!("Answer {n}."), &[]));
        draft.user(&format!("Question {n}?"));
    }
    let turn = |draft: &mut Draft, n: usize| {
        let seed = n as u64;
        let called = |id: &str, name: &str, arguments: Value| ToolCall {
            id: format!("call_{id}{n}"),
            name: name.to_owned(),
            arguments: arguments.to_string(),
        };
        let file = json!({"path": format!("src/{n}.rs"), "content": words(seed, 900)});
        let calls = [called("w", "write_file", file), called("e", "execute", json!({"command": format!("run {n}")}))];
        draft.all(dialect.said(&words(seed + 1_000, 400), &calls));
        let (written, shown) = (["written".to_owned()], [words(seed + 2_000, 1_100)]);
        draft.all(
            dialect.results(&[(calls[0].id.as_str(), written.as_slice()), (calls[1].id.as_str(), shown.as_slice())]),
        );
    };
    draft.repeat(16, turn).done()
}

/// A conversation that begins with what the user asks for and a rule.
struct Draft {
    document: Document,
}

impl Draft {
    /// `members`: what stands beside the conversation.
    fn new(form: Form, name: &str, members: &[(&str, Value)]) -> Self {
        let members = members.iter().map(|(key, value)| format!("\"{key}\":{value},")).collect();
        let document = Document { name: name.into(), form, members, messages: Vec::new(), rules: vec![RULE.into()] };
        let mut draft = Self { document };
        draft.user(&format!("Work on {name}. {RULE}"));
        draft
    }

    fn user(&mut self, text: &str) {
        self.push(serde_json::json!({"role": "user", "content": text}));
    }

    fn push(&mut self, item: Value) {
        self.document.messages.push(item.to_string());
    }

    fn all(&mut self, items: impl IntoIterator<Item = Value>) {
        items.into_iter().for_each(|item| self.push(item));
    }

    /// The same `times` over, each time with its number.
    fn repeat(mut self, times: usize, mut turn: impl FnMut(&mut Self, usize)) -> Self {
        (0..times).for_each(|n| turn(&mut self, n));
        self
    }

    fn done(self) -> Document {
        self.document
    }
}
