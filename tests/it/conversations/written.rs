//! Self-written conversations that are shorter to generate than to write down: one for each family of items and blocks
//! that no file has.

mod messages;
mod responses;

use serde_json::Value;

use super::document::Document;
use super::form::Form;

/// The generated conversations of a form.
pub fn of(form: Form) -> Vec<Document> {
    match form {
        Form::Chat => Vec::new(),
        Form::Responses => responses::all(),
        Form::Messages => messages::all(),
    }
}

/// A conversation that begins with what the user asks for and a rule.
struct Draft {
    document: Document,
}

impl Draft {
    /// `members`: what stands beside the conversation.
    fn new(form: Form, name: &str, members: &[(&str, Value)]) -> Self {
        let rule = "Never touch the lock file.";
        let members = members.iter().map(|(key, value)| format!("\"{key}\":{value},")).collect();
        let document = Document { name: name.into(), form, members, messages: Vec::new(), rules: vec![rule.into()] };
        let mut draft = Self { document };
        draft.user(&format!("Work on {name}. {rule}"));
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
