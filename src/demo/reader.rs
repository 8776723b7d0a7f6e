//! The scripted model reads back what is not in sight any more: with a tool that it finds offered beside the agent's,
//! by an id that it finds in the request. It knows how the line began that it wants, and nothing else.

use serde_json::{Value, json};

use super::answer::ToolCall;
use super::client::{self, Part};
use super::request::ModelRequest;
use super::script::NOTICE;

/// The tool's name, or the end of it where the agent has a tool of that name.
pub(super) const READER: &str = "read_evicted";
/// How the ids of its calls begin.
const CALLS: &str = "rd";
/// What stands before an id, and how many hexadecimal digits that has.
const BEFORE_ID: &str = "id ";
const ID_DIGITS: usize = 32;

/// A line that a tool printed once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory<'m> {
    /// How it began, as far as the model remembers it.
    pub begins: &'m str,
    /// What stood further up in the same result.
    pub below: &'m str,
}

/// Where such a line is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sight {
    /// In a result that the request holds: the line, from the known beginning on.
    Seen(String),
    /// Out of sight; the call that looks for it.
    Away(ToolCall),
    /// Out of reach.
    Gone,
}

impl Memory<'_> {
    /// Looks at all results of the request. Where the line is in none, the likeliest id is next that was not tried yet,
    /// the latest of several.
    pub fn look(&self, request: &ModelRequest) -> Sight {
        let parts = parts(request);
        let seen = parts.iter().rev().find_map(|part| match part {
            Part::Result { text, .. } => self.line(text),
            Part::Call { .. } => None,
        });
        if let Some(line) = seen {
            return Sight::Seen(line);
        }
        let Some(name) = request.tool_names().into_iter().find(|name| name.ends_with(READER)) else {
            return Sight::Gone;
        };
        let texts = request.messages().iter().rev().flat_map(strings);
        let ranked = texts.flat_map(|text| ids(text).into_iter().rev().map(|id| (self.rank(text), id)));
        let tried = |id: &str| parts.iter().any(|part| asked(part).is_some_and(|arguments| arguments.contains(id)));
        // The first of the least.
        let Some((_, id)) = ranked.filter(|(_, id)| !tried(id)).min_by_key(|(rank, _)| *rank) else {
            return Sight::Gone;
        };
        let arguments = json!({"id": id, "pattern": regex::escape(self.begins)}).to_string();
        // Nine letters and digits, as the strictest servers demand.
        Sight::Away(ToolCall { id: format!("{CALLS}{:07}", request.index), name: name.to_owned(), arguments })
    }

    /// How likely it is that an id in a text leads to the line: what it stood in, what stands for many messages, others.
    fn rank(&self, text: &str) -> usize {
        let likely = [self.below, NOTICE];
        likely.iter().position(|mark| text.contains(mark)).unwrap_or(likely.len())
    }

    /// The line in a text, up to its end or to what would end it in JSON. A text that only repeats what was asked for has
    /// no more than its beginning.
    fn line(&self, text: &str) -> Option<String> {
        let mut behind = text.match_indices(self.begins).filter_map(|(at, _)| text.get(at + self.begins.len()..));
        let rest = behind.find(|rest| rest.starts_with(|first: char| first.is_ascii_alphanumeric()))?;
        let rest = rest.split(['\n', '\r', '\\', '"']).next().unwrap_or_default();
        Some(format!("{}{rest}", self.begins))
    }
}

/// Of a request that goes on with a turn in which the model did nothing but read back: the arguments of its last call,
/// and what came of it.
pub fn goes_on(request: &ModelRequest) -> Option<(String, String)> {
    let client = client::of(request.api);
    let items = request.messages().iter().rev().map(|item| client.parts(item));
    let latest = items.take_while(|parts| matches!(parts.as_slice(), [Part::Result { .. }, ..])).flatten();
    let parts = parts(request);
    let read = |result: Part| {
        let Part::Result { id: of, text } = result else { return None };
        let call = parts.iter().find(|part| matches!(part, Part::Call { id, .. } if *id == of))?;
        asked(call).map(|arguments| (arguments.to_owned(), text))
    };
    latest.map(read).collect::<Option<Vec<_>>>()?.into_iter().next()
}

/// Whether a request whose history is at its provider brings nothing but what was read back.
pub fn brings_what_was_read(request: &ModelRequest) -> bool {
    let parts = parts(request);
    let read = |part: &Part| matches!(part, Part::Result { id, .. } if id.starts_with(CALLS));
    let continues = request.body.get("previous_response_id").is_some_and(Value::is_string);
    continues && !parts.is_empty() && parts.iter().all(read)
}

fn parts(request: &ModelRequest) -> Vec<Part> {
    let client = client::of(request.api);
    request.messages().iter().flat_map(|item| client.parts(item)).collect()
}

/// What the reader was asked for.
fn asked(part: &Part) -> Option<&str> {
    match part {
        Part::Call { tool, arguments, .. } if tool.ends_with(READER) => Some(arguments),
        _ => None,
    }
}

/// All strings of a value, in order.
fn strings(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(values) => values.iter().flat_map(strings).collect(),
        Value::Object(members) => members.values().flat_map(strings).collect(),
        _ => Vec::new(),
    }
}

/// The ids in a text.
fn ids(text: &str) -> Vec<&str> {
    let digits = |rest: &str| rest.bytes().take_while(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')).count();
    let behind = text.match_indices(BEFORE_ID).filter_map(|(at, mark)| text.get(at + mark.len()..));
    behind.filter(|rest| digits(rest) == ID_DIGITS).filter_map(|rest| rest.get(..ID_DIGITS)).collect()
}

#[cfg(test)]
#[path = "tests/reader.rs"]
mod tests;
