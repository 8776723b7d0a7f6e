//! Arguments that mean harm, or make no sense.

use serde_json::{Value, json};

/// What a call has to meet with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meets {
    /// An error that says what is wrong.
    Error,
    /// An error, or an answer with nothing of anybody else's.
    Anything,
}

/// One call.
#[derive(Debug, Clone)]
pub struct Row {
    pub tool: &'static str,
    /// As the model writes them.
    pub arguments: String,
    pub meets: Meets,
}

/// What an attacker may know, and what it may have guessed.
#[derive(Debug, Clone)]
pub struct Ids {
    /// A removed text of its own.
    pub own: String,
    /// A removed text and a session of another's.
    pub foreign: String,
    pub session: String,
}

impl Row {
    fn new(tool: &'static str, arguments: impl Into<String>, meets: Meets) -> Self {
        Self { tool, arguments: arguments.into(), meets }
    }

    fn wrong(tool: &'static str, arguments: &Value) -> Self {
        Self::new(tool, arguments.to_string(), Meets::Error)
    }

    fn any(tool: &'static str, arguments: &Value) -> Self {
        Self::new(tool, arguments.to_string(), Meets::Anything)
    }
}

/// A tool, arguments that are enough for it, and one of its numbers.
fn numbers(ids: &Ids) -> [(&'static str, Value, &'static str); 8] {
    [
        ("read_evicted", json!({"id": ids.own}), "offset"),
        ("read_evicted", json!({"id": ids.own}), "char_offset"),
        ("read_evicted", json!({"id": ids.own}), "limit"),
        ("session_history", json!({}), "lastN"),
        ("session_history", json!({}), "before"),
        ("session_search", json!({"query": "x"}), "maxResults"),
        ("memory_search", json!({"query": "x"}), "maxResults"),
        ("memory_get", json!({"path": "MEMORY.md"}), "startLine"),
    ]
}

/// Spellings that elsewhere lead to another place, or to the same by another name.
fn spellings(name: &str) -> Vec<String> {
    let around = [
        ("../", ""),
        ("../../../../", ""),
        ("..\\", ""),
        ("/", ""),
        ("//host/share/", ""),
        ("C:\\", ""),
        ("file:///", ""),
        ("%2e%2e/", ""),
        ("%2e%2e%2f", ""),
        ("..%2f", ""),
        ("%252e%252e%252f", ""),
        ("．．／", ""),
        ("‥∕", ""),
        ("~/", ""),
        ("", "\0"),
        ("", "\0.md"),
        ("", "%00"),
        ("", "/."),
        ("", "/../x"),
        ("", "\u{202e}"),
        ("\u{202e}", ""),
        ("\u{200b}", ""),
        ("", "\u{feff}"),
        ("$(id)", ""),
        ("", "; ls"),
        ("', '", ""),
    ];
    let mut names: Vec<String> = around.iter().map(|(before, behind)| format!("{before}{name}{behind}")).collect();
    let wide =
        |letter: char| if letter.is_ascii_graphic() { char::from_u32(letter as u32 + 0xfee0).unwrap() } else { letter };
    names.push(name.chars().map(wide).collect());
    // Letters of another script that look the same.
    names.push(name.replace('M', "М").replace('e', "е").replace('a', "а"));
    names.extend([name.to_uppercase(), name.chars().rev().collect(), format!("{name}{name}")]);
    names
}

/// Nesting that a parser which recurses dies of.
fn nested(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

/// What any caller may send, calls of one kind together; [`no_objects`] aside.
pub fn rows(ids: &Ids) -> Vec<Row> {
    let mut rows = Vec::new();
    for path in spellings("MEMORY.md").iter().chain(&spellings("memory/2026-11-30.md")) {
        rows.push(Row::wrong("memory_get", &json!({"path": path})));
    }
    for id in spellings(&ids.foreign) {
        rows.push(Row::wrong("read_evicted", &json!({"id": id})));
        rows.push(Row::any("session_history", &json!({"sessionId": id})));
    }
    for session in spellings(&ids.session) {
        rows.push(Row::wrong("session_history", &json!({"sessionId": session})));
        rows.push(Row::any("session_search", &json!({"query": "vault", "sessionId": session})));
    }
    rows.extend(guesses(ids));
    rows.extend(kinds(ids));
    rows.extend(searches(ids));
    rows
}

/// Ids that are near those of others, and what asks for another tenant by name.
fn guesses(ids: &Ids) -> Vec<Row> {
    let near = |id: &str, by: u128| format!("{:032x}", u128::from_str_radix(id, 16).unwrap().wrapping_add(by));
    let mut rows = Vec::new();
    for id in [near(&ids.foreign, 1), near(&ids.own, 1), "0".repeat(32), "f".repeat(32), ids.foreign[..31].to_owned()] {
        rows.push(Row::wrong("read_evicted", &json!({"id": id})));
        rows.push(Row::wrong("session_history", &json!({"sessionId": id})));
    }
    for more in ["tenant", "__proto__", "scope", "workspace_dir", "path", "agent_id", "Id"] {
        rows.push(Row::wrong("read_evicted", &json!({"id": ids.own, more: "victim"})));
        rows.push(Row::wrong("session_list", &json!({more: "victim"})));
    }
    rows.push(Row::wrong("memory_save", &json!({"content": "x", "path": "../../MEMORY.md"})));
    for agent in ["*", "%", "../unknown", "unknown' OR '1'='1", "\0", "\u{202e}unknown", ""] {
        rows.push(Row::any("session_list", &json!({"agentId": agent})));
        rows.push(Row::any("session_search", &json!({"query": "vault", "agentId": agent})));
        rows.push(Row::any("session_history", &json!({"agentId": agent})));
    }
    rows
}

/// Wrong kinds, and numbers beyond all bounds.
fn kinds(ids: &Ids) -> Vec<Row> {
    let mut rows = Vec::new();
    let numbers_that_are_none = [
        json!(-1),
        json!(1.5),
        json!(1e300),
        json!("ten"),
        json!("１２"),
        json!("-5"),
        json!(""),
        json!(true),
        json!({"$gt": 0}),
    ];
    for (tool, enough, name) in numbers(ids) {
        let with = |value: &Value| {
            let mut arguments = enough.clone();
            arguments[name] = value.clone();
            arguments
        };
        rows.extend(numbers_that_are_none.iter().map(|value| Row::wrong(tool, &with(value))));
        let huge = [json!(1_000_000_000), json!(u64::MAX), json!("18446744073709551615"), json!(9.0e15)];
        rows.extend(huge.iter().map(|value| Row::any(tool, &with(value))));
    }
    for (tool, name) in [
        ("read_evicted", "id"),
        ("session_search", "query"),
        ("memory_search", "query"),
        ("memory_get", "path"),
        ("memory_save", "content"),
    ] {
        for value in [json!(5), json!([]), json!({}), json!(null), json!(""), json!(" \n\u{a0}"), json!([ids.own])] {
            rows.push(Row::wrong(tool, &json!({name: value})));
        }
        rows.push(Row::wrong(tool, &json!({})));
    }
    rows.push(Row::wrong("read_evicted", &json!({"id": ids.own, "pattern": ["x"]})));
    rows.push(Row::wrong("memory_get", &json!({"path": "MEMORY.md", "startLine": 9, "endLine": 1})));
    rows.push(Row::new("read_evicted", format!(r#"{{"id":"{}","offset":1e999}}"#, ids.own), Meets::Error));
    rows
}

/// Patterns and queries that a search may die of.
fn searches(ids: &Ids) -> Vec<Row> {
    let long = "(a|b)*c".repeat(15_000);
    let mut rows = Vec::new();
    for pattern in
        ["[", "(", "*", "a{9999999}", "(?=x)", "(?<!x)y", r"(a)\1", "(?P<", r"\p{Nothing}", &"(".repeat(50_000), &long]
    {
        rows.push(Row::wrong("read_evicted", &json!({"id": ids.own, "pattern": pattern})));
    }
    for pattern in
        ["(a*)*$", "(a|aa)+$", r"(?i)(\w+\s?)*$", ".*.*.*.*.*.*x", "((.*)*)*!", "", "(?s).*", "\0", "\u{202e}"]
    {
        rows.push(Row::any("read_evicted", &json!({"id": ids.own, "pattern": pattern})));
    }
    for query in [
        "\"",
        "\" OR tenant:\"",
        "vault*",
        "*",
        "^vault",
        "NEAR(vault opens, 999999)",
        "vault AND",
        "NOT vault",
        "-vault",
        "{tenant}: vault",
        "'; DROP TABLE log_messages; --",
        "\0vault",
        "\u{202e}vault",
        "%",
        "(((((",
        "ｖａｕｌｔ",
        "vault",
        &"vault ".repeat(20_000),
        &"x".repeat(100_000),
        &"(".repeat(100_000),
    ] {
        rows.push(Row::any("session_search", &json!({"query": query, "maxResults": 1_000_000_000})));
        rows.push(Row::any("memory_search", &json!({"query": query, "maxResults": 1_000_000_000})));
    }
    for content in ["../../../etc/passwd", "\0\u{202e}\u{feff}", "## Saved\n\n- the user is victim", "[x](file:///)"] {
        rows.push(Row::any("memory_save", &json!({"content": content})));
    }
    for tool_and_name in [("read_evicted", "id"), ("memory_get", "path"), ("memory_save", "content")] {
        rows.push(Row::wrong(tool_and_name.0, &json!({tool_and_name.1: "../".repeat(35_000)})));
    }
    rows.push(Row::wrong("read_evicted", &json!({"id": ids.own, "pattern": "x".repeat(300_000)})));
    rows
}

/// What is no JSON, no object, or none that a parser should follow to its bottom.
pub fn no_objects(ids: &Ids) -> Vec<Row> {
    let own = &ids.own;
    let mut rows: Vec<Row> = [
        "",
        " ",
        "{",
        "}",
        "null",
        "[]",
        "\"x\"",
        "1",
        "true",
        "{}{}",
        "{\"id\":",
        "{'id': 'x'}",
        "```json\n{}\n```",
        "<id>x</id>",
        "\u{feff}{}",
        "{\"id\":\"\\ud800\"}",
        "{\"id\":\"\\x\"}",
        "\0",
        "undefined",
        "{,}",
        "NaN",
    ]
    .iter()
    .map(|text| Row::new("read_evicted", *text, Meets::Error))
    .collect();
    for depth in [60, 63, 70, 120, 130, 5_000] {
        rows.push(Row::new("read_evicted", nested(depth), Meets::Error));
        rows.push(Row::new("read_evicted", format!(r#"{{"id":{}}}"#, nested(depth)), Meets::Error));
        rows.push(Row::new("read_evicted", format!(r#"{{"id":"{own}","pattern":{}}}"#, nested(depth)), Meets::Error));
        rows.push(Row::new("session_list", format!(r#"{{"agentId":{}}}"#, nested(depth)), Meets::Anything));
    }
    // Readers differ in which of two they take: neither may be somebody else's.
    for ids in [[own, &ids.foreign], [&ids.foreign, own]] {
        rows.push(Row::new("read_evicted", format!(r#"{{"id":"{}","id":"{}"}}"#, ids[0], ids[1]), Meets::Anything));
    }
    rows
}
