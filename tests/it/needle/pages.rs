//! A long text, read page by page as a model or an MCP client does: by what each page says.

use serde_json::{Value, json};

/// A text in the reading.
#[derive(Debug, Clone)]
pub struct Reading {
    pub id: String,
    pub text: String,
    /// Lines of a page at most, where the reader says so.
    limit: Option<usize>,
    next: Option<Value>,
    pub is_done: bool,
}

impl Reading {
    pub fn of(id: &str) -> Self {
        Self { id: id.to_owned(), text: String::new(), limit: None, next: None, is_done: false }
    }

    /// The same in pages of so many lines.
    pub fn by_lines(id: &str, limit: usize) -> Self {
        Self { limit: Some(limit), ..Self::of(id) }
    }

    /// The arguments of the next call.
    pub fn arguments(&self) -> Value {
        let mut arguments = self.next.clone().unwrap_or_else(|| json!({"id": self.id}));
        if let Some(limit) = self.limit {
            arguments["limit"] = limit.into();
        }
        arguments
    }

    /// Takes a page. `Err`: it is none.
    pub fn take(&mut self, page: &str) -> Result<(), String> {
        let page_of = || page.strip_prefix("[whole text: ")?.split_once("]\n");
        let Some((said, text)) = page_of() else { return Err(format!("no page: {page:.200}")) };
        self.text += text;
        if said.ends_with("; this is the end") {
            self.is_done = true;
            return Ok(());
        }
        let Some((_, more)) = said.split_once("for more use ") else { return Err(format!("no way on: {said}")) };
        let mut arguments = json!({"id": self.id});
        for argument in more.split(" and ") {
            let (name, value) = argument.split_once('=').unwrap();
            arguments[name] = value.parse::<u64>().unwrap().into();
        }
        if self.next.as_ref() == Some(&arguments) {
            return Err(format!("the same page again: {said}"));
        }
        self.next = Some(arguments);
        Ok(())
    }
}

/// The ids in what a model was sent, in order, each once.
pub fn ids(body: &str) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    for (at, _) in body.match_indices("id ") {
        let id: String = body[at + 3..].chars().take_while(char::is_ascii_hexdigit).collect();
        if id.len() == 32 && !ids.contains(&id) {
            ids.push(id);
        }
    }
    ids
}
