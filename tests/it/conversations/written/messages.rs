//! Conversations at Messages: the provider's own tools, documents, changes in mid-conversation, breakpoints.

use compactproxy::demo::content::{matches, source, test_log};
use serde_json::{Value, json};

use super::Draft;
use crate::conversations::document::Document;
use crate::conversations::form::Form;

pub fn all() -> Vec<Document> {
    vec![served(), paused(), documents(), changes(), compacted(), breakpoints(), hidden()]
}

fn draft(name: &str) -> Draft {
    let tool = |name: &str| json!({"name": name, "input_schema": {"type": "object"}});
    let tools = json!([tool("shell"), tool("open_page"), tool("write_file")]);
    Draft::new(Form::Messages, name, &[("system", json!("You are careful.")), ("tools", tools)])
}

fn thinking(draft: &str, n: usize) -> Value {
    let thought = format!("I think of {draft}, step {n}.");
    json!({"type": "thinking", "thinking": thought, "signature": format!("RXJrQ2d{n}{}", draft.len())})
}

fn text(text: impl Into<String>) -> Value {
    let text: String = text.into();
    json!({"type": "text", "text": text})
}

fn log(n: usize, bytes: usize) -> String {
    test_log(&format!("run {n}"), bytes, "nothing of note")
}

fn answers(draft: &mut Draft, blocks: Value) {
    draft.push(json!({"role": "assistant", "content": blocks}));
}

fn given(draft: &mut Draft, blocks: Value) {
    draft.push(json!({"role": "user", "content": blocks}));
}

fn called(draft: &mut Draft, n: usize, name: &str, result: Value) {
    let id = format!("toolu_{n}");
    let input = json!({"path": format!("f{n}"), "text": source("f", 3)});
    answers(draft, json!([{"type": "tool_use", "id": id, "name": name, "input": input}]));
    given(draft, json!([{"type": "tool_result", "tool_use_id": id, "content": result}]));
}

fn search(n: usize) -> [Value; 2] {
    let id = format!("srvtoolu_{n}");
    let hit = json!({"type": "web_search_result", "url": "https://a.example/", "title": "t", "encrypted_content": "RW5j".repeat(200)});
    [
        json!({"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": format!("q {n}")}}),
        json!({"type": "web_search_tool_result", "tool_use_id": id, "content": [hit]}),
    ]
}

/// Tools of the provider's and of a server's in the same answer as the client's own.
fn served() -> Document {
    let draft = draft("served tools").repeat(12, |draft, n| {
        let [call, found] = search(n);
        let asked = format!("mcptoolu_{n}");
        let mcp = json!({"type": "mcp_tool_use", "id": asked, "name": "find", "server_name": "wiki", "input": {}});
        let told = json!({"type": "mcp_tool_result", "tool_use_id": asked, "is_error": false, "content": [text(log(n, 1_500))]});
        let id = format!("toolu_{n}");
        let own = json!({"type": "tool_use", "id": id, "name": "shell", "input": {"command": format!("make {n}")}});
        answers(draft, json!([thinking("served", n), call, found, mcp, told, own]));
        given(draft, json!([{"type": "tool_result", "tool_use_id": id, "content": log(n, 4_000), "is_error": false}]));
        answers(draft, json!([thinking("read", n), text(format!("Part {n} is done."))]));
        draft.user(&format!("Now part {}.", n + 1));
    });
    draft.done()
}

/// Answers in which the model paused: call and result in two messages.
fn paused() -> Document {
    let draft = draft("pauses").repeat(20, |draft, n| {
        let [call, found] = search(n);
        answers(draft, json!([text("I search."), call]));
        answers(draft, json!([found, text(matches("hit", 30))]));
        draft.user(&format!("And what of {n}?"));
    });
    draft.done()
}

/// Documents and pictures, from the user and in results.
fn documents() -> Document {
    let plain = |n: usize| json!({"type": "document", "title": "t", "source": {"type": "text", "media_type": "text/plain", "data": log(n, 1_000)}});
    let paper = json!({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQK"}});
    let picture =
        json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}});
    let draft = draft("documents").repeat(14, |draft, n| {
        let found = json!({"type": "search_result", "source": "https://a.example", "title": "t", "content": [text(matches("a", 3))]});
        called(draft, n, "open_page", json!([picture, text(log(n, 3_000)), found, plain(n)]));
        answers(draft, json!([text(format!("Page {n} is read."))]));
        given(draft, json!([paper, plain(n), text(format!("Compare it with page {n}."))]));
    });
    draft.done()
}

/// Instructions and tools that change on the way.
fn changes() -> Document {
    let draft = draft("changes").repeat(16, |draft, n| {
        called(draft, n, "shell", json!(log(n, 4_000)));
        let name = format!("added_{n}");
        let change = match n % 2 {
            0 => json!({"type": "mid_conv_system", "content": [text(format!("Instruction {n}."))]}),
            _ => json!({"type": "tool_addition", "tool": {"definition": {"name": name, "input_schema": {"type": "object"}}}}),
        };
        draft.push(json!({"role": "system", "content": [change]}));
        if n % 2 == 1 {
            called(draft, n + 500, &name, json!("ok"));
        }
    });
    draft.done()
}

/// The provider has compacted the beginning.
fn compacted() -> Document {
    let mut draft = draft("a compaction").repeat(3, |draft, n| called(draft, n, "shell", json!(log(n, 300))));
    answers(&mut draft, json!([{"type": "compaction", "content": "Three runs were green."}, text("It is compacted.")]));
    draft.user("Go on. Never touch the lock file.");
    draft.repeat(22, |draft, n| called(draft, n + 100, "shell", json!(log(n, 4_000)))).done()
}

/// Breakpoints of both lifetimes: on the system prompt, in a picture's place, on a result and on what the user says.
fn breakpoints() -> Document {
    let (long, short) = (json!({"type": "ephemeral", "ttl": "1h"}), json!({"type": "ephemeral"}));
    let tool = json!({"name": "shell", "input_schema": {"type": "object"}});
    let system = json!([{"type": "text", "text": "You are careful.", "cache_control": long}]);
    let mut draft = Draft::new(Form::Messages, "breakpoints", &[("system", system), ("tools", json!([tool]))]);
    given(&mut draft, json!([{"type": "text", "text": "Begin.", "cache_control": long}]));
    draft
        .repeat(24, |draft, n| {
            let mut result =
                json!({"type": "tool_result", "tool_use_id": format!("toolu_{n}"), "content": log(n, 4_000)});
            if n == 7 || n == 15 {
                result["cache_control"] = short.clone();
            }
            let input = json!({"command": format!("make {n}")});
            let call = json!({"type": "tool_use", "id": format!("toolu_{n}"), "name": "shell", "input": input});
            answers(draft, json!([text("I run it."), call]));
            given(draft, json!([result]));
        })
        .done()
}

/// Thinking that is hidden or left out, in one endless loop.
fn hidden() -> Document {
    let draft = draft("hidden thinking").repeat(30, |draft, n| {
        let id = format!("toolu_{n}");
        let hidden = json!({"type": "redacted_thinking", "data": "gAAAAABh".repeat(20 + n)});
        let call =
            json!({"type": "tool_use", "id": id, "name": "write_file", "input": {"path": "a", "text": source("a", 8)}});
        answers(draft, if n % 3 == 0 { json!([call]) } else { json!([hidden, call]) });
        given(draft, json!([{"type": "tool_result", "tool_use_id": id, "content": log(n, 2_500)}]));
    });
    draft.done()
}
