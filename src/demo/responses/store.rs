//! What the provider keeps of earlier responses: R5, R8, R9.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::super::request::{ModelRequest, input_items, kind, text};
use super::super::rules::{Violation, invalid};
use super::{answer, reasoning};

/// The whole conversation behind each response id.
pub type Chains = HashMap<String, Vec<Value>>;

/// Stored responses, conversations and items.
#[derive(Debug, Default)]
pub struct Store {
    responses: Chains,
    conversations: Chains,
    items: HashMap<String, Value>,
    /// Of each item that came with reasoning the reasoning's id, stored or not.
    reasons: HashMap<String, String>,
}

impl Store {
    /// All input of `body`, with that which it refers to, and how many items of it the provider holds.
    /// `local`: what the connection remembers beside the store.
    pub fn resolve(&self, body: &Value, local: &Chains) -> Result<(Vec<Value>, usize), Violation> {
        let mut items = self.history(body, local)?;
        let held = items.len();
        for item in input_items(body) {
            let refers = kind(&item) == "item_reference" || kind(&item).is_empty() && item.get("role").is_none();
            match text(&item, "id") {
                id if refers && !id.is_empty() => {
                    let known = self.items.get(id).ok_or_else(|| reasoning::not_found(id, body))?;
                    items.push(known.clone());
                }
                _ => items.push(item),
            }
        }
        Ok((items, held))
    }

    fn history(&self, body: &Value, local: &Chains) -> Result<Vec<Value>, Violation> {
        if let Some(id) = body.get("previous_response_id").and_then(Value::as_str) {
            return local.get(id).or_else(|| self.responses.get(id)).cloned().ok_or_else(|| {
                let text = format!("Previous response with id '{id}' not found.");
                invalid("R8", &text, Some("previous_response_id"), Some("previous_response_not_found"))
            });
        }
        let Some(id) = conversation(body) else { return Ok(Vec::new()) };
        self.conversations.get(id).cloned().ok_or_else(|| {
            let error = invalid("R9", &format!("Conversation with id '{id}' not found."), Some("conversation"), None);
            Violation { status: 404, ..error }
        })
    }

    /// Takes note of a response: for every later request where it is stored, else for `local` alone, as the last one that
    /// is known there.
    pub fn keep(&mut self, request: &ModelRequest, output: &[Value], local: Option<&mut Chains>) {
        let reason = output.iter().find(|item| kind(item) == "reasoning").map(|item| text(item, "id").to_owned());
        if let Some(reason) = reason {
            let others = output.iter().map(|item| text(item, "id")).filter(|id| *id != reason);
            self.reasons.extend(others.map(|id| (id.to_owned(), reason.clone())));
        }
        let chain = [&request.input, output].concat();
        let id = answer::response_id(request);
        if request.body.get("store") != Some(&Value::Bool(false)) {
            let known = chain.iter().filter(|item| !text(item, "id").is_empty());
            self.items.extend(known.map(|item| (text(item, "id").to_owned(), item.clone())));
            self.responses.insert(id.clone(), chain.clone());
        }
        if let Some(name) = conversation(&request.body) {
            self.conversations.insert(name.to_owned(), chain.clone());
        }
        if let Some(local) = local {
            local.clear();
            local.insert(id, chain);
        }
    }

    /// Opens a conversation; its answer.
    pub fn open(&mut self) -> Value {
        let id = answer::id("conv", self.conversations.len(), 0);
        self.conversations.insert(id.clone(), Vec::new());
        json!({"id": id, "object": "conversation", "created_at": super::super::answer::CREATED, "metadata": {}})
    }

    /// The id of the reasoning that item `id` came with.
    pub(super) fn reasoning_of(&self, id: &str) -> Option<&str> {
        self.reasons.get(id).map(String::as_str)
    }

    pub(super) fn holds(&self, id: &str) -> bool {
        self.items.contains_key(id)
    }
}

/// The conversation's id, given as a string or as an object.
fn conversation(body: &Value) -> Option<&str> {
    let conversation = body.get("conversation")?;
    conversation.as_str().or_else(|| conversation.get("id")?.as_str())
}
