//! Conversations at Responses: every family of calls, the provider's own tools, what stands for a history.

use compactproxy::demo::content::{matches, source, test_log};
use serde_json::{Value, json};

use super::Draft;
use crate::conversations::document::Document;
use crate::conversations::form::Form;

const PICTURE: &str = "data:image/png;base64,iVBORw0KGgo=";

pub fn all() -> Vec<Document> {
    vec![shells(), screens(), found_tools(), approvals(), hosted(), unknown(), compacted(), programs()]
}

fn draft(name: &str) -> Draft {
    let tools = json!([{"type": "function", "name": "read_file", "parameters": {"type": "object"}}]);
    Draft::new(Form::Responses, name, &[("instructions", json!("You are careful.")), ("tools", tools)])
}

fn reasoning(n: usize) -> Value {
    json!({"type": "reasoning", "id": format!("rs_{n}"), "summary": [], "encrypted_content": "gAAAAABr".repeat(40 + n)})
}

fn says(n: usize, phase: &str, text: String) -> Value {
    let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
    json!({"type": "message", "id": format!("msg_{n}"), "role": "assistant", "phase": phase, "content": content})
}

fn log(n: usize, bytes: usize) -> String {
    test_log(&format!("run {n}"), bytes, "nothing of note")
}

/// Local shells (answered as themselves and as functions), shells and patches.
fn shells() -> Document {
    let draft = draft("shells").repeat(14, |draft, n| {
        let (id, local) = (format!("c{n}"), n % 2 == 0);
        let action = json!({"type": "exec", "command": ["sh", "-c", format!("make {n}")], "env": {}});
        let answer = if local { "local_shell_call_output" } else { "function_call_output" };
        draft.all([
            reasoning(n),
            json!({"type": "local_shell_call", "id": format!("lsh_{n}"), "call_id": id, "action": action, "status": "completed"}),
            json!({"type": answer, "call_id": id, "output": log(n, 4_000)}),
        ]);
        let (id, patch) = (format!("s{n}"), format!("p{n}"));
        let operation = json!({"type": "update_file", "path": "src/a.rs", "diff": source("a", 6)});
        let printed = json!([{"stdout": log(n, 2_500), "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]);
        draft.all([
            json!({"type": "shell_call", "call_id": id, "action": {"commands": [format!("cat {n}")], "timeout_ms": null}}),
            json!({"type": "apply_patch_call", "call_id": patch, "operation": operation, "status": "completed"}),
            json!({"type": "shell_call_output", "call_id": id, "output": printed}),
            json!({"type": "apply_patch_call_output", "call_id": patch, "status": "completed", "output": "Done."}),
        ]);
    });
    draft.done()
}

/// Screens, which must stay pictures, and safety checks that were acknowledged.
fn screens() -> Document {
    let draft = draft("screens").repeat(24, |draft, n| {
        let id = format!("c{n}");
        let checks = json!([{"id": format!("sc_{n}"), "code": "irrelevant_domain", "message": "Look twice."}]);
        let screen = json!({"type": "computer_screenshot", "image_url": PICTURE});
        draft.all([
            reasoning(n),
            says(n, "commentary", format!("I look at page {n}: {}", matches("page", 12))),
            json!({"type": "computer_call", "call_id": id, "action": {"type": "click", "x": n, "y": 2}, "pending_safety_checks": checks}),
            json!({"type": "computer_call_output", "call_id": id, "acknowledged_safety_checks": checks, "output": screen}),
        ]);
    });
    draft.done()
}

/// Tools that the model found, and that the client added, and calls of them.
fn found_tools() -> Document {
    let draft = draft("found tools").repeat(10, |draft, n| {
        let (found, added) = (format!("found_{n}"), format!("added_{n}"));
        let tool = |name: &str| json!({"type": "function", "name": name, "parameters": {"type": "object"}});
        draft.all([
            reasoning(n),
            json!({"type": "tool_search_call", "call_id": format!("t{n}"), "arguments": {"query": "find"}}),
            json!({"type": "tool_search_output", "call_id": format!("t{n}"), "tools": [tool(&found)]}),
            json!({"type": "function_call", "call_id": format!("f{n}"), "name": found, "arguments": "{\"n\":1}"}),
            json!({"type": "function_call_output", "call_id": format!("f{n}"), "output": log(n, 5_000)}),
            says(n, "final_answer", "That was it.".into()),
            json!({"type": "additional_tools", "role": "developer", "tools": [tool(&added)]}),
        ]);
        draft.user(&format!("Use {added} for part {n}."));
        draft.all([
            json!({"type": "function_call", "call_id": format!("g{n}"), "name": added, "arguments": "{}"}),
            json!({"type": "function_call_output", "call_id": format!("g{n}"), "output": [{"type": "input_text", "text": log(n, 3_000)}]}),
        ]);
    });
    draft.done()
}

/// Calls of a server's that the user approved.
fn approvals() -> Document {
    let draft = draft("approvals").repeat(14, |draft, n| {
        let (ask, given) = (format!("mcpr_{n}"), format!("{{\"page\":{n}}}"));
        draft.all([
            json!({"type": "mcp_list_tools", "id": format!("mcpl_{n}"), "server_label": "wiki", "tools": [{"name": "find", "input_schema": {}}]}),
            reasoning(n),
            json!({"type": "mcp_approval_request", "id": ask, "server_label": "wiki", "name": "find", "arguments": given}),
            json!({"type": "mcp_approval_response", "approval_request_id": ask, "approve": true}),
            json!({"type": "mcp_call", "id": format!("mcp_{n}"), "approval_request_id": ask, "server_label": "wiki", "name": "find", "arguments": given, "output": log(n, 6_000)}),
            says(n, "final_answer", format!("Page {n} is read.")),
        ]);
        draft.user(&format!("Now page {}.", n + 1));
    });
    draft.done()
}

/// What the provider's own tools found and made.
fn hosted() -> Document {
    let draft = draft("hosted tools").repeat(16, |draft, n| {
        let results = json!([{"file_id": "file_1", "text": log(n, 1_500), "score": 0.5}]);
        let outputs = json!([{"type": "logs", "logs": log(n, 2_000)}]);
        draft.all([
            reasoning(n),
            json!({"type": "web_search_call", "id": format!("ws_{n}"), "status": "completed", "action": {"type": "search", "query": "q"}}),
            json!({"type": "file_search_call", "id": format!("fs_{n}"), "status": "completed", "queries": ["q"], "results": results}),
            json!({"type": "code_interpreter_call", "id": format!("ci_{n}"), "status": "completed", "code": "1", "container_id": "c", "outputs": outputs}),
            json!({"type": "image_generation_call", "id": format!("ig_{n}"), "status": "completed", "result": "iVBORw0KGgo="}),
            says(n, "final_answer", matches("hit", 8)),
        ]);
        draft.user(&format!("And question {n}?"));
    });
    draft.done()
}

/// Families and items of which no specification knows.
fn unknown() -> Document {
    let draft = draft("unknown items").repeat(16, |draft, n| {
        let id = format!("u{n}");
        draft.all([
            reasoning(n),
            json!({"type": "teleport_call", "call_id": id, "payload": {"to": n, "weight": 1.5}}),
            json!({"type": "teleport_call_output", "call_id": id, "output": log(n, 5_000)}),
            json!({"type": "sandbox_note", "seal": {"b": 1, "a": []}}),
            says(n, "final_answer", "Arrived.".into()),
        ]);
        draft.user(&format!("Next is {n}."));
    });
    draft.done()
}

/// The provider has compacted the beginning.
fn compacted() -> Document {
    let turn = |draft: &mut Draft, n: usize, bytes: usize| {
        let id = format!("c{n}");
        draft.all([
            reasoning(n),
            json!({"type": "function_call", "call_id": id, "name": "read_file", "arguments": "{}"}),
            json!({"type": "function_call_output", "call_id": id, "output": log(n, bytes)}),
        ]);
    };
    let mut draft = draft("a compaction").repeat(3, |draft, n| turn(draft, n, 300));
    draft.push(json!({"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAABc".repeat(60)}));
    draft.push(says(900, "final_answer", "It is compacted.".into()));
    draft.user("Go on. Never touch the lock file.");
    draft.repeat(22, |draft, n| turn(draft, n + 100, 4_000)).done()
}

/// Programs, and custom tools whose output is a list with pictures in it.
fn programs() -> Document {
    let draft = draft("programs").repeat(14, |draft, n| {
        let (id, custom) = (format!("p{n}"), format!("x{n}"));
        let output = json!([{"type": "input_text", "text": log(n, 3_000)}, {"type": "input_image", "image_url": PICTURE}]);
        draft.all([
            reasoning(n),
            json!({"type": "program", "id": format!("prog_{n}"), "call_id": id, "code": source("p", 4), "fingerprint": "fp=="}),
            json!({"type": "program_output", "call_id": id, "result": log(n, 2_000), "status": "completed"}),
            json!({"type": "custom_tool_call", "call_id": custom, "name": "exec", "input": source("x", 5)}),
            json!({"type": "custom_tool_call_output", "call_id": custom, "output": output}),
        ]);
    });
    draft.done()
}
