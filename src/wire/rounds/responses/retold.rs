//! The history of a conversation as its client knows it, whoever holds it: a client that went on by the ids of answers
//! may later send all of them, in its own spelling.

use std::collections::HashSet;

use super::super::object::Object;
use super::super::told::Said;
use super::{Conversation, is_call, texts};
use crate::wire::conversation::{Digest, Item, Role};

/// See [`Conversation::retold`].
pub(in super::super) fn retold(conversation: &Conversation<'_>, is_own: fn(&str) -> bool) -> Vec<(usize, Digest)> {
    let mut history = History { is_own, digest: Digest::default(), own: HashSet::new(), answer: None };
    let items = conversation.items.iter().enumerate();
    items.filter_map(|(at, item)| Some((at, history.take(conversation.body, item)?))).collect()
}

struct History {
    is_own: fn(&str) -> bool,
    digest: Digest,
    /// Ids of the calls that the client never saw.
    own: HashSet<String>,
    /// What the client saw of the answer that is being read: its calls, and what was said.
    answer: Option<(Vec<String>, Said)>,
}

impl History {
    /// Takes in an item; gives the digest up to it where it is the client's own.
    fn take(&mut self, body: &[u8], item: &Item) -> Option<Digest> {
        match item.facts.role {
            Role::System => None,
            Role::Assistant => {
                self.answers(&Object::read(body, item.span.start)?);
                None
            }
            Role::Tool if item.facts.results.iter().all(|id| self.own.contains(id)) => None,
            Role::User | Role::Tool | Role::Unknown => {
                let mut hasher = blake3::Hasher::new_derive_key("compactproxy history as its client knows it");
                hasher.update(&self.digest);
                if let Some((calls, said)) = self.answer.take() {
                    hasher.update(&said.digest());
                    for id in &calls {
                        hasher.update(&id.len().to_le_bytes()).update(id.as_bytes());
                    }
                }
                hasher.update(&item.facts.canonical);
                self.digest = *hasher.finalize().as_bytes();
                Some(self.digest)
            }
        }
    }

    /// Takes in a part of an answer. Reasoning is what clients leave out.
    fn answers(&mut self, item: &Object<'_>) {
        let form = item.string("type");
        if form == "reasoning" {
            return;
        }
        let id = item.string("call_id");
        if form == "function_call" && (self.is_own)(&item.string("name")) {
            self.own.insert(id.into_owned());
            return;
        }
        let (calls, said) = self.answer.get_or_insert_default();
        calls.extend((is_call(&form) && !id.is_empty()).then(|| id.into_owned()));
        texts(item).iter().for_each(|text| said.add(text));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::wire::memo::Memo;
    use crate::wire::{self, Dialect};

    fn is_own(name: &str) -> bool {
        name == "own"
    }

    fn read(items: &[Value]) -> Vec<(usize, Digest)> {
        let body = json!({"model": "m", "input": items}).to_string();
        wire::read(Dialect::Responses, body.as_bytes(), &Memo::new(0), [0; 16]).unwrap().retold(is_own)
    }

    fn user(text: &str) -> Value {
        json!({"role": "user", "content": text})
    }

    fn call(name: &str, id: &str) -> Value {
        json!({"type": "function_call", "id": format!("fc_{id}"), "status": "completed", "call_id": id, "name": name, "arguments": "{}"})
    }

    fn result(id: &str) -> Value {
        json!({"type": "function_call_output", "call_id": id, "output": "r"})
    }

    fn said(text: &str) -> Value {
        let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
        json!({"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": content})
    }

    #[test]
    fn the_client_and_its_provider_know_the_same_history() {
        let reasoning = json!({"type": "reasoning", "id": "rs_1", "summary": []});
        let developer = json!({"role": "developer", "content": "now"});
        let provider = [
            user("a"),
            reasoning,
            call("own", "o1"),
            result("o1"),
            said("Let me "),
            call("own", "o2"),
            result("o2"),
            said("see."),
            call("f", "c1"),
            call("own", "o3"),
            result("o3"),
            result("c1"),
            developer,
            user("b"),
        ];
        let mut shown = call("f", "c1");
        shown.as_object_mut().unwrap().retain(|key, _| !matches!(key.as_str(), "id" | "status"));
        let client =
            [user("a"), json!({"role": "assistant", "content": "Let me see."}), shown, result("c1"), user("b")];
        let (held, told) = (read(&provider), read(&client));
        assert_eq!(told.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 3, 4]);
        let digests = |all: &[(usize, Digest)]| all.iter().map(|(_, digest)| *digest).collect::<Vec<_>>();
        assert_eq!(digests(&held), digests(&told));
        // Whatever the client saw or said otherwise makes another history.
        for (at, other) in [
            (0, user("z")),
            (1, json!({"role": "assistant", "content": "Let me look."})),
            (2, call("f", "c2")),
            (3, json!({"type": "function_call_output", "call_id": "c1", "output": "other"})),
            (4, user("c")),
        ] {
            let mut items = client.to_vec();
            items[at] = other;
            assert_ne!(read(&items).last(), told.last(), "{at}");
        }
    }
}
