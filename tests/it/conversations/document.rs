//! Conversations, recorded and self-written, and the requests that an agent would have sent in them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use compactproxy::demo::content::{matches, source, test_log};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::form::{self, Form, parsed};
use super::written;

/// A whole conversation. Messages keep the bytes they have in the file.
#[derive(Debug, Clone, Default)]
pub struct Document {
    pub name: String,
    pub form: Form,
    /// Tools and whatever else stands beside the conversation: JSON members, each with a comma behind it.
    pub members: String,
    /// Messages, or items.
    pub messages: Vec<String>,
    /// What the user typed and expects to hold: it stands in every request after it.
    pub rules: Vec<String>,
}

/// A message of a fixture, or several that occur again and again.
#[derive(Deserialize)]
struct Repeated {
    times: usize,
    messages: Vec<Value>,
}

impl Document {
    /// The recorded conversations of a form, where they are.
    pub fn recorded(form: Form) -> Option<Vec<Self>> {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/corpus")).join(form.folder());
        folder.is_dir().then(|| files(&folder).iter().map(|file| Self::read(form, file)).collect())
    }

    /// The self-written ones of a form.
    pub fn fixtures(form: Form) -> Vec<Self> {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/conversations"));
        let mut documents: Vec<Self> =
            files(&folder.join(form.folder())).iter().map(|file| Self::read(form, file).expanded()).collect();
        documents.extend(written::of(form));
        documents
    }

    /// The self-written one of that name in Chat Completions.
    pub fn fixture(name: &str) -> Self {
        Self::fixtures(Form::Chat).into_iter().find(|document| document.name == name).unwrap()
    }

    fn read(form: Form, file: &Path) -> Self {
        let text = fs::read_to_string(file).unwrap();
        let members: HashMap<String, Box<RawValue>> = serde_json::from_str(&text).unwrap();
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let has = |key: &&&str| members.get(**key).is_some_and(|value| !["null", "[]"].contains(&value.get()));
        let beside = form.members().iter().filter(has).map(|key| format!("\"{key}\":{},", members[*key].get()));
        let messages: Vec<Box<RawValue>> = serde_json::from_str(members[form.array()].get()).unwrap();
        Self {
            name,
            form,
            members: beside.collect(),
            messages: messages.iter().map(|message| message.get().to_owned()).collect(),
            rules: members.get("rules").map(|rules| serde_json::from_str(rules.get()).unwrap()).unwrap_or_default(),
        }
    }

    /// A fixture with its large texts and its repetitions written out.
    fn expanded(mut self) -> Self {
        let mut messages = Vec::new();
        for message in &self.messages {
            match serde_json::from_str::<Repeated>(message) {
                Ok(repeated) => {
                    for n in 0..repeated.times {
                        messages.extend(repeated.messages.iter().map(|message| expand(message.clone(), n).to_string()));
                    }
                }
                Err(_) => messages.push(expand(serde_json::from_str(message).unwrap(), 0).to_string()),
            }
        }
        self.messages = messages;
        self
    }

    /// How many messages each request has: one wherever the model answered next, and one at the end if it
    /// has still to answer.
    pub fn turns(&self) -> Vec<usize> {
        let by_model: Vec<bool> = self.messages.iter().map(|item| self.form.by_model(&parsed(item))).collect();
        let begins = |k: &usize| by_model.get(*k).is_none_or(|by_model| *by_model) && !by_model[*k - 1];
        (1..=self.messages.len()).filter(begins).collect()
    }

    /// The request with the first `count` messages.
    pub fn body(&self, count: usize) -> Bytes {
        self.body_of(&self.messages[..count])
    }

    /// The request with the first `count` messages and another member before them.
    pub fn body_with(&self, member: &str, count: usize) -> Bytes {
        let body = self.body(count);
        [b"{", member.as_bytes(), b",", &body[1..]].concat().into()
    }

    /// The request with other messages.
    pub fn body_of(&self, messages: &[String]) -> Bytes {
        let (members, settings, array) = (&self.members, self.form.settings(), self.form.array());
        let messages = messages.join(",");
        format!(r#"{{"model":"recorded",{members}{settings},"{array}":[{messages}]}}"#).into()
    }

    /// System messages at the beginning.
    pub fn leading(&self) -> usize {
        self.messages.iter().take_while(|message| self.form.by_system(&parsed(message))).count()
    }

    /// Tokens of the request with the first `count` messages, as the provider counts them.
    pub fn tokens(&self, count: usize) -> u64 {
        form::tokens(self.form, &self.body(count))
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    files
}

/// Replaces `{{n}}` by the number of the repetition, `{{log SIZE NAME}}`, `{{source COUNT NAME}}`,
/// `{{hits COUNT NAME}}` and `{{han COUNT NAME}}` by large texts.
fn expand(value: Value, n: usize) -> Value {
    match value {
        // Arguments are JSON within a string.
        Value::String(text) => match serde_json::from_str(&text) {
            Ok(Value::Object(members)) => Value::String(expand(Value::Object(members), n).to_string()),
            _ => Value::String(written_out(&text, n)),
        },
        Value::Array(list) => list.into_iter().map(|value| expand(value, n)).collect(),
        Value::Object(members) => members.into_iter().map(|(key, value)| (key, expand(value, n))).collect(),
        other => other,
    }
}

fn written_out(text: &str, n: usize) -> String {
    let text = text.replace("{{n}}", &n.to_string());
    let mut written = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("{{") {
        let (order, after) = after.split_once("}}").unwrap();
        let mut words = order.split(' ');
        let (kind, count, name) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        let count = count.parse().unwrap();
        written += before;
        written += &match kind {
            "log" => test_log(name, count, "nothing of note"),
            "source" => source(name, count),
            "hits" => matches(name, count),
            "han" => (0..count).map(|k| format!("第{k}行：{name}的记录，金额{}元。\n", k * 37 % 911)).collect(),
            other => panic!("no such text: {other}"),
        };
        rest = after;
    }
    written + rest
}
