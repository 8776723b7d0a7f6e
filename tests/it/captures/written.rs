//! Requests as real clients send them, self-written: the fields that they are known by, in their order and case, with
//! bodies in their forms.

use compactproxy::demo::content::{source, test_log};
use serde_json::{Value, json};

use super::{Capture, Meta};

/// The requests of each client, in order.
pub fn clients() -> Vec<(String, Vec<Capture>)> {
    let named = [
        ("openai-python, chat", chat_python()),
        ("openai-python, responses", responses_python()),
        ("anthropic-python, threads", threads_python()),
        ("claude-code", claude_code()),
        ("codex, plain", codex(None)),
        ("codex, zstd", codex(Some("zstd"))),
        ("codex, socket", codex_socket()),
        ("curl", curl()),
    ];
    named.into_iter().map(|(name, captures)| (name.to_owned(), captures)).collect()
}

type Fields<'f> = &'f [(&'f str, &'f str)];

fn capture(start: (&str, &str), fields: Fields, body: String) -> Capture {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let headers = fields.iter().map(owned).collect();
    let (method, path) = start;
    let meta = Meta { method: method.into(), path: path.into(), headers, websocket: None };
    Capture { name: format!("{method} {path}"), meta, body: body.into_bytes() }
}

fn post(path: &str, fields: Fields, body: String) -> Capture {
    let length = body.len().to_string();
    capture(("POST", path), &[fields, &[("Content-Length", length.as_str())]].concat(), body)
}

/// As Python writes JSON: a space behind commas and colons, other scripts escaped.
fn spaced(value: &Value) -> String {
    let compact = value.to_string();
    let (mut text, mut inside, mut escaped) = (String::new(), false, false);
    for c in compact.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if inside => escaped = true,
            '"' => inside = !inside,
            _ => {}
        }
        match c {
            ',' | ':' if !inside => text.extend([c, ' ']),
            c if c.is_ascii() => text.push(c),
            c => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| text += &format!("\\u{unit:04x}")),
        }
    }
    text
}

const PYTHON: [(&str, &str); 6] = [
    ("Host", "127.0.0.1:8080"),
    ("Accept-Encoding", "gzip, deflate, br"),
    ("Connection", "keep-alive"),
    ("x-stainless-lang", "python"),
    ("x-stainless-retry-count", "0"),
    ("Content-Type", "application/json"),
];

fn chat_python() -> Vec<Capture> {
    let fields =
        [&PYTHON[..], &[("authorization", "Bearer sk-own"), ("x-stainless-helper-method", "chat.completions.stream")]];
    let mut messages =
        vec![json!({"role": "system", "content": "Du hilfst. 你好 🙂"}), json!({"role": "user", "content": "Fix it."})];
    let turn = |n: usize, messages: &mut Vec<Value>| {
        let call = json!({"id": format!("call_{n}"), "type": "function", "function": {"name": "shell", "arguments": "{\"cmd\": \"make\"}"}});
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
        messages.push(
            json!({"role": "tool", "tool_call_id": format!("call_{n}"), "content": test_log("make", 30_000, "x")}),
        );
    };
    (0..3)
        .map(|n| {
            turn(n, &mut messages);
            let tools = json!([{"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}}]);
            let body = json!({"messages": messages, "model": "gpt-5", "stream": true, "stream_options": {"include_usage": true}, "tools": tools});
            post("/v1/chat/completions", &fields.concat(), body.to_string())
        })
        .collect()
}

fn responses_python() -> Vec<Capture> {
    let fields = [&PYTHON[..], &[("authorization", "Bearer sk-own"), ("User-Agent", "Agents/Python 1.0")]].concat();
    let first =
        json!({"include": [], "input": "Read the file.", "instructions": "Be brief.", "model": "gpt-5", "tools": []});
    let output = json!([{"call_id": "call_1", "output": source("lib", 60), "type": "function_call_output"}]);
    let next = json!({"include": [], "input": output, "model": "gpt-5", "previous_response_id": "resp_1", "tools": []});
    let held = json!({"conversation": "conv_1", "input": [{"role": "user", "content": "And now?"}], "model": "gpt-5"});
    [first, next, held].iter().map(|body| post("/v1/responses", &fields, spaced(body))).collect()
}

fn threads_python() -> Vec<Capture> {
    let own = [
        ("Authorization", "Bearer sk-own"),
        ("anthropic-version", "2023-06-01"),
        ("anthropic-beta", "message-threads-2026-08-12"),
    ];
    let fields = [&PYTHON[..], &own].concat();
    let said = json!([{"role": "user", "content": "Begin."}]);
    let created =
        json!({"max_tokens": 2048, "messages": said, "model": "claude-x", "thread": {"type": "create"}, "tools": []});
    let result = json!([{"type": "tool_result", "tool_use_id": "toolu_1", "content": test_log("run", 90_000, "x")}]);
    let thread = json!({"type": "continue", "previous_message_id": "msg_1"});
    let next = json!({"max_tokens": 2048, "messages": [{"role": "user", "content": result}], "model": "claude-x", "thread": thread});
    [created, next].iter().map(|body| post("/v1/messages?beta=true", &fields, body.to_string())).collect()
}

/// A billing block that differs with each request, and a breakpoint that moves.
fn claude_code() -> Vec<Capture> {
    let own = [
        ("x-api-key", "sk-own"),
        ("anthropic-version", "2023-06-01"),
        ("anthropic-beta", "interleaved-thinking-2025-05-14,context-management-2025-06-27"),
        ("x-app", "cli"),
        ("User-Agent", "an-agent/1.0 (external, cli)"),
    ];
    let fields = [&PYTHON[..], &own].concat();
    let mark = json!({"type": "ephemeral"});
    let user = json!("{\"device\":\"d\",\"session\":\"00000000-0000-4000-8000-00000000000a\"}");
    let mut requests = Vec::new();
    for n in 1..4 {
        let system = json!([
            {"type": "text", "text": format!("x-anthropic-billing-header: cc_version=1.0; cch={n:05};")},
            {"type": "text", "text": "You are an agent.", "cache_control": mark},
        ]);
        let said = |k: usize| {
            let mut block = json!({"type": "text", "text": format!("Part {k}: {}", source("a", 5))});
            if k + 1 == n {
                block["cache_control"] = mark.clone();
            }
            json!({"role": "user", "content": [block]})
        };
        let thought = json!({"type": "thinking", "thinking": "So.", "signature": "RXJrQ2c="});
        let answer = json!({"role": "assistant", "content": [thought, {"type": "text", "text": "Done."}]});
        let messages: Vec<Value> = (0..n).flat_map(|k| [said(k), answer.clone()]).take(2 * n - 1).collect();
        let body = json!({"model": "claude-x", "system": system, "messages": messages, "max_tokens": 32000, "thinking": {"type": "adaptive"}, "metadata": {"user_id": user}, "stream": true});
        requests.push(post("/v1/messages?beta=true", &fields, body.to_string()));
    }
    let count = json!({"model": "claude-x", "messages": [{"role": "user", "content": "How long?"}]});
    requests.push(post("/v1/messages/count_tokens?beta=true", &fields, count.to_string()));
    requests
}

const CODEX: [(&str, &str); 8] = [
    ("session-id", "00000000-0000-4000-8000-00000000000b"),
    ("thread-id", "00000000-0000-4000-8000-00000000000b"),
    ("x-codex-turn-metadata", "{\"session_id\":\"00000000-0000-4000-8000-00000000000b\",\"turn_id\":\"1\"}"),
    ("accept", "text/event-stream"),
    ("content-type", "application/json"),
    ("authorization", "Bearer sk-own"),
    ("originator", "an_agent"),
    ("accept-encoding", "zstd,gzip"),
];

fn codex_body(turns: usize, more: &[(&str, Value)]) -> String {
    let mut input =
        vec![json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Begin."}]})];
    for n in 0..turns {
        let id = format!("call_{n}");
        input.push(json!({"type": "reasoning", "id": format!("rs_{n}"), "summary": [], "encrypted_content": "gAAAAABr".repeat(90)}));
        input.push(
            json!({"type": "custom_tool_call", "call_id": id, "name": "exec", "input": "make", "status": "completed"}),
        );
        input.push(json!({"type": "custom_tool_call_output", "call_id": id, "output": [{"type": "input_text", "text": test_log("m", 20_000, "x")}]}));
    }
    let mut body = json!({"model": "codex-x", "instructions": "You are an agent.", "input": input, "store": false, "stream": true, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "00000000-0000-4000-8000-00000000000b"});
    for (key, value) in more {
        body[*key] = value.clone();
    }
    body.to_string()
}

fn codex(encoding: Option<&str>) -> Vec<Capture> {
    let coded = encoding.map(|encoding| ("content-encoding", encoding));
    let fields = [&CODEX[..], coded.as_slice()].concat();
    let path = if encoding.is_some() { "/v1/responses?client_version=1" } else { "/v1/responses" };
    let mut requests: Vec<Capture> = (1..4).map(|turns| post(path, &fields, codex_body(turns, &[]))).collect();
    requests.push(capture(("GET", "/v1/models?client_version=1"), &CODEX[..2], String::new()));
    requests
}

/// An upgrade, then `response.create` messages: the first only warms up, the others continue it.
fn codex_socket() -> Vec<Capture> {
    let handshake = [
        ("Host", "127.0.0.1:8080"),
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="),
        ("openai-beta", "responses_websockets=2026-02-06"),
        ("sec-websocket-extensions", "permessage-deflate; client_max_window_bits"),
    ];
    let mut upgrade = capture(("GET", "/v1/responses"), &[&handshake[..], &CODEX[..2]].concat(), String::new());
    upgrade.meta.websocket = Some("upgrade".into());
    let message = |turns: usize, more: &[(&str, Value)]| {
        let create = [("type", json!("response.create"))];
        let mut message = capture(("WS", "/v1/responses"), &[], codex_body(turns, &[&create[..], more].concat()));
        message.meta.websocket = Some("message".into());
        message
    };
    vec![
        upgrade,
        message(1, &[("generate", json!(false))]),
        message(1, &[("previous_response_id", json!("resp_1"))]),
        message(2, &[("previous_response_id", json!("resp_1"))]),
    ]
}

/// What is no model's request: other methods, paths and encodings of nothing.
fn curl() -> Vec<Capture> {
    let fields =
        [("Host", "127.0.0.1:8080"), ("User-Agent", "curl/8.0"), ("Accept", "*/*"), ("Authorization", "Bearer sk-own")];
    let form = [&fields[..], &[("Content-Type", "application/x-www-form-urlencoded")]].concat();
    vec![
        capture(("GET", "/v1/models"), &fields, String::new()),
        capture(("DELETE", "/v1/responses/resp_1"), &fields, String::new()),
        post(
            "/v1/chat/completions",
            &form,
            "{ \"model\":\"m\",\r\n\t\"messages\":[{\"role\":\"user\",\"content\":\"\\u00fc\"}] } ".into(),
        ),
        post("/v1/embeddings", &form, "a=b".into()),
    ]
}
