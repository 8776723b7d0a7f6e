use super::super::super::request::Api;
use super::*;

fn messages(all: Value) -> Value {
    json!({"model": "m", "max_tokens": 4096, "tools": [{"name": "f"}], "messages": all})
}

fn with(key: &str, value: Value) -> Value {
    let mut body = messages(json!([user("go")]));
    body[key] = value;
    body
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn says(blocks: Value) -> Value {
    json!({"role": "assistant", "content": blocks})
}

fn call(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "f", "input": {}})
}

fn result(id: &str) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": "ok"})
}

fn gives(blocks: Value) -> Value {
    json!({"role": "user", "content": blocks})
}

fn thought(text: &str) -> Value {
    json!({"type": "thinking", "thinking": text, "signature": format!("of {text}")})
}

fn request(body: &Value, betas: &str) -> ModelRequest {
    let mut headers = HeaderMap::new();
    headers.insert("anthropic-beta", betas.parse().unwrap());
    ModelRequest { headers, ..ModelRequest::new(Api::Messages, body.clone()) }
}

fn checked(body: &Value, betas: &str, settings: &Settings) -> Result<Vec<Place>, Violation> {
    check(&request(body, betas), Purpose::Answer, settings, &mut Signatures::default())
}

#[track_caller]
fn keeps(body: &Value) {
    assert_eq!(checked(body, "", &Settings::default()), Ok(Vec::new()), "{body}");
}

#[track_caller]
fn breaks(rule: &str, says: &str, body: &Value) {
    let violation = checked(body, "", &Settings::default()).expect_err("it was accepted");
    let error = &violation.body["error"];
    let message = error["message"].as_str().unwrap();
    assert_eq!((violation.rule, violation.status), (rule, 400), "{message}");
    assert_eq!((&violation.body["type"], &error["type"]), (&json!("error"), &json!("invalid_request_error")));
    assert!(message.contains(says), "{message}");
}

#[test]
fn a1_every_call_has_its_result_in_the_next_message() {
    let missing = "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: t2. Each";
    keeps(&messages(json!([
        user("go"),
        says(json!([call("t1"), call("t2")])),
        gives(json!([result("t2"), result("t1")]))
    ])));
    breaks(
        "A1",
        missing,
        &messages(json!([user("go"), says(json!([call("t1"), call("t2")])), gives(json!([result("t1")]))])),
    );
    breaks("A1", "without `tool_result`", &messages(json!([user("go"), says(json!([call("t1")])), user("no")])));
    let twice = json!([user("go"), says(json!([call("t1")])), gives(json!([result("t1"), result("t1")]))]);
    breaks("A1", "each tool_use must have a single result", &messages(twice));
    let same = json!([user("go"), says(json!([call("t1"), call("t1")])), gives(json!([result("t1")]))]);
    breaks("A1", "`tool_use` ids must be unique", &messages(same));
    // Two messages of a user are one turn.
    keeps(&messages(json!([user("go"), says(json!([call("t1")])), gives(json!([result("t1")])), user("and")])));
    let split = json!([
        user("go"),
        says(json!([call("t1"), call("t2")])),
        gives(json!([result("t1")])),
        gives(json!([result("t2")]))
    ]);
    keeps(&messages(split));
}

#[test]
fn a2_every_result_has_its_call_in_the_message_before() {
    let says_so = "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: t1. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.";
    breaks("A2", says_so, &messages(json!([gives(json!([result("t1")]))])));
    let late = json!([
        user("go"),
        says(json!([call("t1")])),
        gives(json!([result("t1")])),
        says(json!([{"type": "text", "text": "a"}])),
        gives(json!([result("t1")])),
    ]);
    breaks("A2", "messages.4.content.0: unexpected", &messages(late));
    breaks("A2", "can only be in `assistant` messages", &messages(json!([gives(json!([call("t1")]))])));
    breaks(
        "A2",
        "can only be in `user` messages",
        &messages(json!([user("go"), says(json!([result("t1")])), user("a")])),
    );
}

#[test]
fn a3_results_come_first() {
    let text = json!({"type": "text", "text": "and"});
    keeps(&messages(json!([user("go"), says(json!([call("t1")])), gives(json!([result("t1"), text]))])));
    breaks(
        "A3",
        "immediately after: t1",
        &messages(json!([user("go"), says(json!([call("t1")])), gives(json!([text, result("t1")]))])),
    );
}

#[test]
fn a4_tools_of_the_server_answer_in_the_same_turn() {
    let search = json!({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}});
    let found = json!({"type": "web_search_tool_result", "tool_use_id": "s1", "content": []});
    let remote = json!({"type": "mcp_tool_use", "id": "s1", "name": "x", "server_name": "y", "input": {}});
    let got = json!({"type": "mcp_tool_result", "tool_use_id": "s1", "content": []});
    keeps(&messages(json!([user("go"), says(json!([search, found])), user("on")])));
    keeps(&messages(json!([user("go"), says(json!([remote, got])), user("on")])));
    let alone = "corresponding `server_tool_use` block before it";
    breaks("A4", alone, &messages(json!([user("go"), says(json!([found])), user("on")])));
    breaks("A4", alone, &messages(json!([user("go"), says(json!([remote, found])), user("on")])));
    breaks("A4", "`mcp_tool_use`", &messages(json!([user("go"), says(json!([got])), user("on")])));
    let open = "`web_search` tool use with id `s1` was found without a corresponding `web_search_tool_result` block";
    breaks("A4", open, &messages(json!([user("go"), says(json!([search])), user("on")])));
    // A paused turn is sent back as it is.
    let allowed = Settings { prefill: Prefill::Allowed, ..Settings::default() };
    let paused = messages(json!([user("go"), says(json!([search]))]));
    assert_eq!(checked(&paused, "", &allowed), Ok(Vec::new()));
}

#[test]
fn a5_a6_a7_order_of_roles() {
    breaks("A5", "first message must use the \"user\" role", &messages(json!([says(json!("a")), user("b")])));
    breaks("A5", "Unexpected role \"system\"", &messages(json!([{"role": "system", "content": "a"}, user("b")])));
    breaks("A5", "messages.0.role", &messages(json!([{"content": "a"}])));
    keeps(&messages(json!([user("a"), user("b")])));
    let ends = messages(json!([user("a"), says(json!("b"))]));
    breaks("A6", "does not support assistant message prefill", &ends);
    let allowed = Settings { prefill: Prefill::Allowed, ..Settings::default() };
    assert_eq!(checked(&ends, "", &allowed), Ok(Vec::new()));
    let space = messages(json!([user("a"), says(json!("b "))]));
    assert_eq!(checked(&space, "", &allowed).unwrap_err().rule, "A7");
}

#[test]
fn a8_a9_texts_are_not_empty_results_may_be() {
    breaks("A8", "all messages must have non-empty content", &messages(json!([user("")])));
    breaks("A8", "all messages must have non-empty content", &messages(json!([gives(json!([]))])));
    breaks("A8", "must be non-empty", &messages(json!([gives(json!([{"type": "text", "text": ""}]))])));
    breaks("A8", "must contain non-whitespace text", &messages(json!([user(" \n")])));
    breaks("A8", "messages.0.content: Field required", &messages(json!([{"role": "user"}])));
    breaks(
        "A8",
        "system: text content blocks must be non-empty",
        &with("system", json!([{"type": "text", "text": ""}])),
    );
    keeps(&with("system", json!("be good")));
    keeps(&with("system", json!([{"type": "text", "text": "be good"}])));
    let answered = |mut result: Value, content: Option<Value>| {
        result.as_object_mut().unwrap().remove("content");
        result.as_object_mut().unwrap().extend(content.map(|content| ("content".to_owned(), content)));
        messages(json!([user("go"), says(json!([call("t")])), gives(json!([result]))]))
    };
    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}});
    for content in [None, Some(json!("")), Some(json!([])), Some(json!([image, {"type": "text", "text": "a"}]))] {
        keeps(&answered(result("t"), content));
    }
    breaks("A9", "type: Input should be", &answered(result("t"), Some(json!([call("x")]))));
}

#[test]
fn a10_a11_a12_thinking_has_its_place() {
    let enabled = |all: Value| {
        let mut body = messages(all);
        body["thinking"] = json!({"type": "enabled", "budget_tokens": 1024});
        body
    };
    let text = json!({"type": "text", "text": "a"});
    let on = |blocks: Value| json!([user("go"), says(blocks), gives(json!([result("t")]))]);
    keeps(&enabled(on(json!([thought("x"), text, call("t")]))));
    keeps(&enabled(on(json!([{"type": "redacted_thinking", "data": "AA"}, call("t")]))));
    let expected = "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`. When `thinking` is enabled";
    breaks("A11", expected, &enabled(on(json!([text, call("t")]))));
    keeps(&messages(on(json!([text, call("t")]))));
    breaks("A12", "the first block must be", &enabled(on(json!([text, thought("x"), call("t")]))));
    let last = json!([user("go"), says(json!([text, thought("x")])), user("b")]);
    breaks("A12", "The final block in an assistant message cannot be `thinking`.", &enabled(last));
    // A finished turn's thinking may be left out (A13).
    keeps(&enabled(json!([user("go"), says(json!([text])), user("b")])));
    let allowed = Settings { prefill: Prefill::Allowed, ..Settings::default() };
    let disabled = messages(json!([user("go"), says(json!([thought("x"), text]))]));
    let error = checked(&disabled, "", &allowed).unwrap_err();
    assert!(error.rule == "A12" && error.body.to_string().contains("When thinking is disabled"), "{error:?}");
    let unsigned = json!({"type": "thinking", "thinking": "x"});
    breaks("A10", "thinking.signature: Field required", &messages(on(json!([unsigned, call("t")]))));
}

#[test]
fn a14_room_for_thinking_and_answer() {
    breaks("A14", "max_tokens: Field required", &json!({"model": "m", "messages": [user("a")]}));
    let budget = |most: u64, budget: u64| {
        let mut body = with("max_tokens", most.into());
        body["thinking"] = json!({"type": "enabled", "budget_tokens": budget});
        body
    };
    keeps(&budget(2_049, 2_048));
    breaks("A14", "`max_tokens` must be greater than `thinking.budget_tokens`", &budget(2_048, 2_048));
    breaks("A14", "greater than or equal to 1024", &budget(2_048, 1_023));
    assert!(checked(&budget(2_048, 4_096), "a, interleaved-thinking-2025-05-14", &Settings::default()).is_ok());
    let counted = request(&json!({"model": "m", "messages": [user("a")]}), "");
    assert!(check(&counted, Purpose::Count, &Settings::default(), &mut Signatures::default()).is_ok());
}

#[test]
fn a15_a16_a17_breakpoints() {
    let marked = |text: &str, ttl: &str| json!({"type": "text", "text": text, "cache_control": {"type": "ephemeral", "ttl": ttl}});
    let of = |ttls: &[&str]| gives(ttls.iter().map(|ttl| marked("a", ttl)).collect());
    keeps(&messages(json!([of(&["1h", "1h", "5m", "5m"])])));
    breaks(
        "A15",
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
        &messages(json!([of(&["5m"; 5])])),
    );
    let mut everywhere = messages(json!([of(&["5m"; 2])]));
    everywhere["system"] = json!([marked("a", "5m")]);
    everywhere["tools"] = json!([{"name": "f", "cache_control": {"type": "ephemeral"}}]);
    keeps(&everywhere);
    everywhere["cache_control"] = json!({"type": "ephemeral"});
    breaks("A15", "Found 5.", &everywhere);
    breaks(
        "A17",
        "messages.0.content.1.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m'",
        &messages(json!([of(&["5m", "1h"])])),
    );
    breaks("A17", "'5m' or '1h'", &messages(json!([of(&["2h"])])));
    breaks(
        "A16",
        "cache_control cannot be set for empty text blocks",
        &messages(json!([gives(json!([marked("", "5m")]))])),
    );
    let mut thinks = thought("x");
    thinks["cache_control"] = json!({"type": "ephemeral"});
    breaks(
        "A16",
        "thinking.cache_control: Extra inputs are not permitted",
        &messages(json!([user("a"), says(json!([thinks, {"type": "text", "text": "a"}])), user("b")])),
    );
}

#[test]
fn a18_a19_context_management() {
    let edits = |kinds: &[&str]| json!({"edits": kinds.iter().map(|kind| json!({"type": kind})).collect::<Vec<_>>()});
    let managed = with("context_management", edits(&["clear_thinking_20251015", "clear_tool_uses_20250919"]));
    breaks("A18", "Extra inputs are not permitted", &managed);
    assert!(checked(&managed, MANAGEMENT, &Settings::default()).is_ok());
    let late = with("context_management", edits(&["clear_tool_uses_20250919", "clear_thinking_20251015"]));
    assert_eq!(checked(&late, MANAGEMENT, &Settings::default()).unwrap_err().rule, "A18");
    let compacted = |content: Value| {
        messages(json!([user("a"), says(json!([{"type": "compaction", "content": content}])), user("b")]))
    };
    keeps(&compacted(json!("all so far")));
    keeps(&compacted(Value::Null));
    breaks("A19", "at least 1 character", &compacted(json!("")));
}

#[test]
fn a20_a21_a22_blocks() {
    let large = json!({"type": "image", "source": {"type": "base64", "data": "A".repeat(7_000_000)}});
    breaks(
        "A20",
        "messages.0.content.0.image.source.base64: image exceeds 5 MB maximum: 5250000 bytes",
        &messages(json!([gives(json!([large]))])),
    );
    assert_eq!(size(11, &Settings { max_bytes: 10, ..Settings::default() }).unwrap_err().status, 413);
    assert_eq!(size(10, &Settings { max_bytes: 10, ..Settings::default() }), Ok(()));
    let tool = |kind: &str, name: &str| json!({"type": kind, "tool": {"type": "tool_reference", "name": name}});
    let text = json!({"type": "text", "text": "a"});
    keeps(&messages(json!([gives(json!([text, tool("tool_addition", "f"), tool("tool_removal", "f")]))])));
    breaks("A21", "Tool reference 'g' not found", &messages(json!([gives(json!([text, tool("tool_removal", "g")]))])));
    let defined = json!({"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"name": "g"}}});
    keeps(&messages(json!([gives(json!([text, defined, tool("tool_removal", "g")]))])));
    let called = |block: Value| messages(json!([user("a"), says(json!([block])), gives(json!([result("t")]))]));
    for (key, value, text) in [
        ("id", json!("a.b"), "'^[a-zA-Z0-9_-]+$'"),
        ("name", json!("x".repeat(129)), "128 characters"),
        ("input", json!("{}"), "valid dictionary"),
    ] {
        let mut block = call("t");
        block[key] = value;
        breaks("A22", text, &called(block));
    }
    let mut toolless = called(call("t"));
    toolless.as_object_mut().unwrap().remove("tools");
    breaks("P11", "must define tools", &toolless);
    toolless["tool_choice"] = json!({"type": "auto"});
    breaks("P11", "tool_choice may only be specified", &toolless);
    keeps(&messages(json!([
        user("a"),
        says(json!([{"type": "unheard_of", "x": 1}])),
        gives(json!([{"type": "unheard_of"}]))
    ])));
}

#[test]
fn parameters_and_threads() {
    breaks("P8", "model: Field required", &json!({"messages": [user("a")], "max_tokens": 1}));
    breaks("A5", "messages: Field required", &json!({"model": "m", "max_tokens": 1}));
    breaks("P7", "at least one message is required", &messages(json!([])));
    let thread = with("thread", json!({"type": "create"}));
    let error = checked(&thread, "", &Settings::default()).unwrap_err();
    assert_eq!(error.body["error"]["details"]["error_code"], "thread_unsupported_request");
}
