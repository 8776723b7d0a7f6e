//! The tools: names, what a model is told of them, and their parameters. One table for the schemas that models and
//! MCP clients get, for reading arguments, and for the documentation.

use serde_json::{Map, Value, json};

use crate::compact::exclusions::{READ_EVICTED, bare_names};
use crate::wire::rounds::Offer;

/// One of the proxy's tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tool {
    ReadEvicted,
    SessionList,
    SessionHistory,
    SessionSearch,
    MemorySearch,
    MemoryGet,
    MemorySave,
}

/// What is said of a tool.
#[derive(Debug)]
pub struct Definition {
    pub name: &'static str,
    /// What it does and when to use it, for a model.
    pub description: &'static str,
    pub parameters: &'static [Parameter],
    /// Arguments that make sense.
    pub example: &'static str,
}

/// One argument of a tool.
#[derive(Debug)]
pub struct Parameter {
    pub name: &'static str,
    pub kind: Kind,
    pub need: Need,
    pub description: &'static str,
}

/// What an argument is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    /// A whole number, at least this.
    Count(u64),
}

/// Whether an argument has to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    Required,
    Optional,
}

/// Which tools there are for a caller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Enabled {
    pub sessions: bool,
    pub memory: bool,
}

const fn required(name: &'static str, kind: Kind, description: &'static str) -> Parameter {
    Parameter { name, kind, need: Need::Required, description }
}

const fn optional(name: &'static str, kind: Kind, description: &'static str) -> Parameter {
    Parameter { name, kind, need: Need::Optional, description }
}

const AGENT: Parameter = optional(
    "agentId",
    Kind::Text,
    "Only what this agent wrote in, as session_list names it. Default: all that may be read.",
);
const SESSION: Parameter = optional("sessionId", Kind::Text, "Only this session: an id from session_list.");

const READ: Definition = Definition {
    name: READ_EVICTED,
    description: "Reads back text that was removed from this conversation to save room. Wherever a notice says that text \
                  was left out and kept under an id, that text is still there, complete and exact: pass the id. Use \
                  `pattern` to find something in a long text; without it you get pages, and each page says how long \
                  the text is and which arguments give the next one.",
    parameters: &[
        required("id", Kind::Text, "The id from the notice: 32 hexadecimal digits."),
        optional("offset", Kind::Count(0), "Lines to skip. Default 0."),
        optional(
            "char_offset",
            Kind::Count(0),
            "Characters to skip in the line at `offset`. Only to go on inside a very long line. Default 0.",
        ),
        optional(
            "limit",
            Kind::Count(1),
            "Most lines to return; with `pattern`, most matching lines. Default: as many as fit on a page.",
        ),
        optional(
            "pattern",
            Kind::Text,
            "Regular expression. Returns the matching lines from `offset` on, with line numbers and the lines around them.",
        ),
    ],
    example: r#"{"id": "0123456789abcdef0123456789abcdef", "offset": 200}"#,
};

const LIST: Definition = Definition {
    name: "session_list",
    description: "Lists earlier conversations that you may read: id, agent, first line of the user, times, number of \
                  messages and tokens. Use it to find the session that session_history or session_search should read.",
    parameters: &[AGENT],
    example: "{}",
};

const HISTORY: Definition = Definition {
    name: "session_history",
    description: "Reads messages of a conversation as they were before anything was removed or summarized, with tool calls \
                  and results. Default: the latest messages of this conversation.",
    parameters: &[
        AGENT,
        optional("sessionId", Kind::Text, "Which session: an id from session_list. Default: this conversation."),
        optional("lastN", Kind::Count(1), "How many messages. Default 20."),
        optional(
            "before",
            Kind::Count(1),
            "Only messages with smaller numbers, as an earlier page or a hit gave them.",
        ),
        optional(
            "branch",
            Kind::Text,
            "Which branch, as a hit or an earlier page gave it: conversations fork. Default: this conversation's own, of \
             another session the latest.",
        ),
        optional(
            "char_offset",
            Kind::Count(0),
            "Characters to skip in the latest of these messages. Only to go on inside a very long one. Default 0.",
        ),
    ],
    example: r#"{"lastN": 10}"#,
};

const SEARCH: Definition = Definition {
    name: "session_search",
    description: "Searches the words of all messages, tool calls and results, also of those that were removed or \
                  summarized. Returns the best hits, each with the text around it. Use it when something was said or \
                  seen earlier and you do not know where.",
    parameters: &[
        required("query", Kind::Text, "Words or identifiers to look for."),
        AGENT,
        SESSION,
        optional("maxResults", Kind::Count(1), "Most hits. Default 10."),
    ],
    example: r#"{"query": "parse_config error"}"#,
};

const REMEMBER: Definition = Definition {
    name: "memory_search",
    description: "Searches the long-term memory (MEMORY.md and memory/*.md) for what was learned in earlier conversations: \
                  preferences, decisions and their reasons, commitments, facts of the environment. Returns the best \
                  hits with file and line.",
    parameters: &[
        required("query", Kind::Text, "Words to look for."),
        optional("maxResults", Kind::Count(1), "Most hits. Default 30."),
    ],
    example: r#"{"query": "deployment decision"}"#,
};

const GET: Definition = Definition {
    name: "memory_get",
    description: "Reads lines of a file of the long-term memory, such as MEMORY.md or memory/2026-01-31.md.",
    parameters: &[
        required("path", Kind::Text, "The file, as memory_search names it."),
        optional("startLine", Kind::Count(1), "First line; lines count from 1. Default 1."),
        optional("endLine", Kind::Count(1), "Last line. Default: as far as fits on a page."),
    ],
    example: r#"{"path": "MEMORY.md", "startLine": 1, "endLine": 50}"#,
};

const SAVE: Definition = Definition {
    name: "memory_save",
    description: "Appends to today's file of the long-term memory. Save only what later conversations need: preferences, \
                  decisions with their reasons, commitments, facts of the environment; one fact a line.",
    parameters: &[required("content", Kind::Text, "What to remember, as Markdown.")],
    example: r#"{"content": "- The user wants tests in pytest style."}"#,
};

impl Tool {
    pub const ALL: [Self; 7] = [
        Self::ReadEvicted,
        Self::SessionList,
        Self::SessionHistory,
        Self::SessionSearch,
        Self::MemorySearch,
        Self::MemoryGet,
        Self::MemorySave,
    ];

    /// Whether a call by this name is one of a tool like the proxy's: by its own name, also behind that of a namespace or
    /// server (`mcp__recall__session_search`), or behind any prefix that names the proxy.
    pub fn is_called(name: &str) -> bool {
        let prefixed =
            |tool: Self| name.strip_suffix(tool.name()).is_some_and(|before| before.contains("compactproxy"));
        bare_names(name).into_iter().any(|name| Self::named(name).is_some()) || Self::ALL.into_iter().any(prefixed)
    }

    /// The tool with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    pub fn definition(self) -> &'static Definition {
        match self {
            Self::ReadEvicted => &READ,
            Self::SessionList => &LIST,
            Self::SessionHistory => &HISTORY,
            Self::SessionSearch => &SEARCH,
            Self::MemorySearch => &REMEMBER,
            Self::MemoryGet => &GET,
            Self::MemorySave => &SAVE,
        }
    }

    pub fn name(self) -> &'static str {
        self.definition().name
    }

    /// The tool as a model gets it, under another name where the client has one of its own.
    pub fn offer(self, name: impl Into<String>) -> Offer {
        let definition = self.definition();
        Offer {
            name: name.into(),
            description: definition.description.to_owned(),
            parameters: definition.schema().into(),
        }
    }
}

impl Enabled {
    pub fn has(self, tool: Tool) -> bool {
        match tool {
            Tool::ReadEvicted => true,
            Tool::SessionList | Tool::SessionHistory | Tool::SessionSearch => self.sessions,
            Tool::MemorySearch | Tool::MemoryGet | Tool::MemorySave => self.memory,
        }
    }

    /// In the order of [`Tool::ALL`].
    pub fn tools(self) -> impl Iterator<Item = Tool> {
        Tool::ALL.into_iter().filter(move |tool| self.has(*tool))
    }
}

impl Definition {
    /// JSON Schema of the arguments.
    pub fn schema(&self) -> Map<String, Value> {
        let properties: Map<String, Value> = self.parameters.iter().map(|p| (p.name.to_owned(), p.schema())).collect();
        let required: Vec<&str> =
            self.parameters.iter().filter(|p| p.need == Need::Required).map(|parameter| parameter.name).collect();
        let mut schema = Map::new();
        schema.insert("type".to_owned(), json!("object"));
        schema.insert("properties".to_owned(), Value::Object(properties));
        if !required.is_empty() {
            schema.insert("required".to_owned(), json!(required));
        }
        schema.insert("additionalProperties".to_owned(), json!(false));
        schema
    }
}

impl Parameter {
    fn schema(&self) -> Value {
        match self.kind {
            Kind::Text => json!({"type": "string", "description": self.description}),
            Kind::Count(least) => json!({"type": "integer", "minimum": least, "description": self.description}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_is_found_by_its_name_and_no_other() {
        for tool in Tool::ALL {
            assert_eq!(Tool::named(tool.name()), Some(tool));
            assert!(tool.name().bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "what every provider allows");
        }
        for name in ["", "read", "READ_EVICTED", "read_evicted ", "session_*"] {
            assert_eq!(Tool::named(name), None, "{name:?}");
        }
    }

    #[test]
    fn a_call_is_known_by_whatever_name_the_tool_has() {
        for name in [
            "session_search",
            "compactproxy_session_search",
            "mcp__compactproxy__session_search",
            "mcp__my__server__read_evicted",
            "mcp_compactproxy_memory_get",
            "functions.session_history",
        ] {
            assert!(Tool::is_called(name), "{name}");
        }
        for name in ["", "grep", "my_session_search", "session_search_all", "compactproxy_", "mcp__session__read"] {
            assert!(!Tool::is_called(name), "{name}");
        }
    }

    #[test]
    fn schemas_are_objects_that_require_what_must_be_there() {
        for tool in Tool::ALL {
            let offer = tool.offer("x");
            assert_eq!(offer.name, "x");
            assert_eq!(offer.parameters["type"], "object");
            assert_eq!(offer.parameters["additionalProperties"], false);
            for parameter in tool.definition().parameters {
                assert!(offer.parameters["properties"][parameter.name]["description"].is_string());
            }
            let example: Map<String, Value> = serde_json::from_str(tool.definition().example).unwrap();
            for required in offer.parameters["required"].as_array().into_iter().flatten() {
                assert!(example.contains_key(required.as_str().unwrap()), "{tool:?}");
            }
        }
        assert_eq!(Tool::ReadEvicted.offer("x").parameters["required"], json!(["id"]));
    }

    #[test]
    fn what_is_not_enabled_is_not_listed() {
        let names = |enabled: Enabled| enabled.tools().map(Tool::name).collect::<Vec<_>>();
        assert_eq!(names(Enabled::default()), ["read_evicted"]);
        assert_eq!(names(Enabled { memory: true, sessions: false }).len(), 4);
        assert_eq!(names(Enabled { memory: true, sessions: true }).len(), Tool::ALL.len());
    }

    #[test]
    fn the_document_names_every_tool_with_its_parameters() {
        let document = include_str!("../../docs/recall.md");
        for tool in Tool::ALL {
            let names: Vec<String> = tool.definition().parameters.iter().map(|p| format!("`{}`", p.name)).collect();
            let row = format!("| `{}` | {} | ", tool.name(), names.join(", "));
            assert!(document.contains(&row), "{row}");
        }
    }
}
