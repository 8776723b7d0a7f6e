//! A model's arguments: JSON to what is asked for. Whatever makes no sense gets an error that the model can act on:
//! what is wrong, what is allowed, an example.

use serde_json::{Map, Value};

use super::definitions::{Definition, Kind, Need, Parameter, Tool};
use super::page::Place;
use super::sessions::Part;
use crate::compact::TextId;
use crate::store::log::Cursor;
use crate::wire::rounds::MOST_ARGUMENTS;

/// Most bytes of a call's arguments.
pub const MAX_ARGUMENTS: usize = MOST_ARGUMENTS;
/// Messages of a page of history where nothing else is asked for, hits of the searches likewise.
const LAST: usize = 20;
const SESSION_HITS: usize = 10;
const MEMORY_HITS: usize = 30;
/// More than this is taken as this.
const MOST_ENTRIES: usize = 200;

/// What a call asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    ReadEvicted(Reading),
    SessionList {
        agent: Option<String>,
    },
    SessionHistory {
        agent: Option<String>,
        part: Part,
    },
    SessionSearch {
        query: String,
        agent: Option<String>,
        session: Option<[u8; 16]>,
        most: usize,
    },
    MemorySearch {
        query: String,
        most: usize,
    },
    /// Lines count from 1.
    MemoryGet {
        path: String,
        start: Option<usize>,
        end: Option<usize>,
    },
    MemorySave {
        content: String,
    },
}

/// Which part of a removed text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    pub id: TextId,
    pub start: Place,
    /// Most lines; with a pattern, most matching lines.
    pub limit: Option<usize>,
    pub pattern: Option<String>,
}

/// What is wrong with a call's arguments, for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ArgumentError(String);

/// Reads the arguments of a call.
///
/// # Errors
/// What is wrong, what is allowed, and an example.
pub fn read(tool: Tool, arguments: &str) -> Result<Request, ArgumentError> {
    let definition = tool.definition();
    request(tool, arguments).map_err(|wrong| {
        let allowed = definition.parameters.iter().map(said).collect::<Vec<_>>().join(", ");
        ArgumentError(format!("{wrong} Parameters: {allowed}. Example: {}", definition.example))
    })
}

fn said(parameter: &Parameter) -> String {
    let kind = match parameter.kind {
        Kind::Text => "text".to_owned(),
        Kind::Count(least) => format!("whole number from {least}"),
    };
    match parameter.need {
        Need::Required => format!("{} ({kind}, required)", parameter.name),
        Need::Optional => format!("{} ({kind})", parameter.name),
    }
}

fn request(tool: Tool, arguments: &str) -> Result<Request, String> {
    let mut values = Values::read(tool.definition(), arguments)?;
    let count = |value: Option<u64>| value.map(|count| usize::try_from(count).unwrap_or(usize::MAX));
    let entries = |value: Option<u64>, default: usize| count(value).unwrap_or(default).min(MOST_ENTRIES);
    Ok(match tool {
        Tool::ReadEvicted => Request::ReadEvicted(Reading {
            id: text_id(&values.needed("id")?)?,
            start: Place {
                line: count(values.count("offset")).unwrap_or(0),
                char: count(values.count("char_offset")).unwrap_or(0),
            },
            limit: count(values.count("limit")),
            pattern: values.text("pattern").filter(|pattern| !pattern.is_empty()),
        }),
        Tool::SessionList => Request::SessionList { agent: values.agent() },
        Tool::SessionHistory => Request::SessionHistory {
            agent: values.agent(),
            part: Part {
                session: values.word("sessionId").map(|id| session_id(&id)).transpose()?,
                last: entries(values.count("lastN"), LAST),
                before: values.count("before"),
                branch: values.word("branch").map(|branch| cursor(&branch)).transpose()?,
                char: count(values.count("char_offset")).unwrap_or(0),
            },
        },
        Tool::SessionSearch => Request::SessionSearch {
            query: values.needed("query")?,
            agent: values.agent(),
            session: values.word("sessionId").map(|id| session_id(&id)).transpose()?,
            most: entries(values.count("maxResults"), SESSION_HITS),
        },
        Tool::MemorySearch => Request::MemorySearch {
            query: values.needed("query")?,
            most: entries(values.count("maxResults"), MEMORY_HITS),
        },
        Tool::MemoryGet => {
            let (start, end) = (count(values.count("startLine")), count(values.count("endLine")));
            if start.zip(end).is_some_and(|(start, end)| start > end) {
                return Err("startLine is behind endLine.".to_owned());
            }
            Request::MemoryGet { path: values.needed("path")?, start, end }
        }
        Tool::MemorySave => Request::MemorySave { content: values.needed("content")? },
    })
}

/// A removed text's id, also in capitals or as the end of the path that a notice names.
fn text_id(given: &str) -> Result<TextId, String> {
    let last = given.trim().rsplit('/').next().unwrap_or_default();
    last.parse().map_err(|_| "id must be the 32 hexadecimal digits from a notice.".to_owned())
}

fn session_id(given: &str) -> Result<[u8; 16], String> {
    let id: Result<TextId, _> = given.parse();
    id.map(|id| id.0).map_err(|_| "sessionId must be the 32 hexadecimal digits of an id from session_list.".to_owned())
}

/// A branch as a hit shows it, also with the parameter's name before it.
fn cursor(given: &str) -> Result<Cursor, String> {
    let given = given.to_ascii_lowercase();
    let cursor = given.strip_prefix("branch=").unwrap_or(&given).parse();
    cursor.map_err(|_| "branch must be the 16 hexadecimal digits that a hit or a page shows.".to_owned())
}

/// Arguments that are known and of their kind.
struct Values {
    texts: Map<String, Value>,
    counts: Vec<(&'static str, u64)>,
}

impl Values {
    fn read(definition: &Definition, arguments: &str) -> Result<Self, String> {
        if arguments.len() > MAX_ARGUMENTS {
            return Err(format!("The arguments are longer than {MAX_ARGUMENTS} bytes."));
        }
        let mut values = Self { texts: Map::new(), counts: Vec::new() };
        for (name, value) in object(arguments)? {
            let Some(parameter) = definition.parameters.iter().find(|parameter| parameter.name == name) else {
                return Err(format!("There is no parameter {}.", quoted(&name)));
            };
            match (parameter.kind, value) {
                (_, Value::Null) => {}
                (Kind::Text, value @ Value::String(_)) => {
                    values.texts.insert(name, value);
                }
                (Kind::Text, _) => return Err(format!("{} must be a text.", parameter.name)),
                (Kind::Count(least), value) => match whole(&value).filter(|count| *count >= least) {
                    Some(count) => values.counts.push((parameter.name, count)),
                    None => return Err(format!("{} must be a whole number, at least {least}.", parameter.name)),
                },
            }
        }
        Ok(values)
    }

    fn text(&mut self, name: &str) -> Option<String> {
        match self.texts.remove(name) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// A text that says something, without what surrounds it.
    fn word(&mut self, name: &str) -> Option<String> {
        self.text(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// An agent's name, which is in small letters.
    fn agent(&mut self) -> Option<String> {
        self.word("agentId").map(|agent| agent.to_ascii_lowercase())
    }

    fn needed(&mut self, name: &str) -> Result<String, String> {
        self.text(name).filter(|text| !text.trim().is_empty()).ok_or_else(|| format!("{name} is missing or empty."))
    }

    fn count(&self, name: &str) -> Option<u64> {
        self.counts.iter().find(|(known, _)| *known == name).map(|(_, count)| *count)
    }
}

/// The arguments' object; nothing at all is an empty one, as some models write it.
fn object(arguments: &str) -> Result<Map<String, Value>, String> {
    if arguments.trim().is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_str(arguments) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(_) => Err("The arguments must be a JSON object.".to_owned()),
        Err(error) => {
            Err(format!("The arguments are no valid JSON (line {}, column {}).", error.line(), error.column()))
        }
    }
}

/// A whole number, also as a text or with a fraction of nothing.
fn whole(value: &Value) -> Option<u64> {
    /// Up to here every whole number is one of these fractions.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => number.as_u64().or_else(|| {
            let number = number.as_f64().filter(|number| number.fract() == 0.0 && (0.0..=EXACT).contains(number))?;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number within bounds")]
            Some(number as u64)
        }),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// What the model wrote, bounded: no id of a removed text fits in.
fn quoted(text: &str) -> String {
    const MOST: usize = 31;
    let short: String = text.chars().take(MOST).collect();
    format!("{short:?}")
}

#[cfg(test)]
#[path = "tests/arguments.rs"]
mod tests;
