use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const ALL: [Dialect; 3] = [Dialect::Chat, Dialect::Responses, Dialect::Messages];

fn found(body: &Value) -> Option<Dialect> {
    dialect(body.to_string().as_bytes(), &ALL)
}

fn user(content: Value) -> Value {
    json!([{ "role": "user", "content": content }])
}

fn chats() -> Vec<Value> {
    let call = json!({ "id": "c", "type": "function", "function": { "name": "f", "arguments": "{}" } });
    let tools = json!([{ "type": "function", "function": { "name": "f", "parameters": {} } }]);
    vec![
        json!({ "model": "m", "messages": user(json!("Hi")) }),
        json!({ "messages": user(json!([{ "type": "text", "text": "Hi" }])), "model": "m", "stream": true }),
        json!({ "model": "m", "max_tokens": 9, "messages": [{ "role": "system", "content": "s" }, { "role": "user", "content": "u" }] }),
        json!({ "model": "m", "max_tokens": 9, "messages": user(json!("u")), "tools": tools }),
        json!({ "model": "m", "max_tokens": 9, "messages": [
            { "role": "user", "content": "u" },
            { "role": "assistant", "content": null, "tool_calls": [call] },
            { "role": "tool", "tool_call_id": "c", "content": "r" },
        ] }),
        json!({ "model": "m", "max_tokens": 9, "messages": user(json!([{ "type": "image_url", "image_url": { "url": "u" } }])) }),
    ]
}

fn messages() -> Vec<Value> {
    let tools = json!([{ "name": "f", "input_schema": { "type": "object" } }]);
    let result = json!({ "type": "tool_result", "tool_use_id": "t", "content": "r" });
    vec![
        json!({ "model": "m", "max_tokens": 9, "system": "s", "messages": user(json!("Hi")) }),
        json!({ "anthropic_version": "bedrock-2023-05-31", "max_tokens": 9, "messages": user(json!("Hi")) }),
        json!({ "model": "m", "max_tokens": 9, "messages": user(json!("u")), "tools": tools }),
        json!({ "model": "m", "max_tokens": 9, "messages": user(json!([result])) }),
    ]
}

fn responses() -> Vec<Value> {
    vec![
        json!({ "model": "m", "input": user(json!("Hi")) }),
        json!({ "model": "m", "input": "Hi", "instructions": "Be kind." }),
        json!({ "model": "m", "input": [{ "type": "function_call_output", "call_id": "c", "output": "r" }], "previous_response_id": "resp_1" }),
        json!({ "model": "m", "input": [{ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "x" }] }, { "type": "web_search_call", "id": "w" }] }),
    ]
}

#[test]
fn each_dialect_is_known_by_its_members() {
    for (dialect, bodies) in
        [(Dialect::Chat, chats()), (Dialect::Messages, messages()), (Dialect::Responses, responses())]
    {
        for body in bodies {
            assert_eq!(found(&body), Some(dialect), "{body}");
            assert_eq!(begun(body.to_string().as_bytes()), Begun::Conversation, "{body}");
        }
    }
}

/// What could be in two dialects is in the one that the upstream speaks, if that is one.
#[test]
fn what_fits_two_is_in_none_unless_only_one_is_spoken() {
    let body = json!({ "model": "m", "max_tokens": 9, "messages": user(json!([{ "type": "text", "text": "Hi" }])) });
    assert_eq!(found(&body), None);
    let bytes = body.to_string();
    assert_eq!(dialect(bytes.as_bytes(), &[Dialect::Messages]), Some(Dialect::Messages));
    assert_eq!(dialect(bytes.as_bytes(), &[Dialect::Chat, Dialect::Responses]), Some(Dialect::Chat));
    assert_eq!(dialect(bytes.as_bytes(), &[]), None);
}

#[test]
fn other_works_and_other_apis_are_in_no_dialect() {
    let parts = json!([{ "type": "text", "text": "x" }, { "type": "image_url", "image_url": { "url": "u" } }]);
    for body in [
        json!({ "model": "text-embedding-3-small", "input": "text" }),
        json!({ "model": "text-embedding-3-small", "input": ["a", "b"] }),
        json!({ "model": "text-embedding-3-small", "input": [[1, 2], [3]] }),
        json!({ "model": "m", "input": "text", "encoding_format": "float", "instructions": "x" }),
        json!({ "model": "omni-moderation-latest", "input": parts }),
        json!({ "model": "gpt-4o-mini-tts", "input": "Say it", "voice": "alloy", "instructions": "Slowly." }),
        json!({ "model": "dall-e-3", "prompt": "A cat", "n": 1 }),
        json!({ "model": "davinci", "prompt": "Once", "max_tokens": 9 }),
        json!({ "model": "m", "input": { "messages": user(json!("Hi")) }, "parameters": {} }),
        json!({ "model": "m", "messages": user(json!("Hi")), "options": { "num_ctx": 4096 } }),
        json!({ "model": "m", "messages": user(json!("Hi")), "choices": [] }),
        json!({ "model": "m", "messages": [], "max_tokens": 9 }),
        json!({ "model": "m", "messages": ["Hi"] }),
        json!({ "messages": user(json!("Hi")) }),
        json!({ "model": "m", "messages": user(json!([{ "text": "Converse" }])), "inferenceConfig": {} }),
        json!({ "model": "m", "messages": [{ "role": "user", "content": "u" }, { "role": "tool", "content": "no id" }] }),
        json!({ "contents": [{ "role": "user", "parts": [{ "text": "Hi" }] }] }),
        json!({ "model": "m", "messages": [{ "role": "user", "content": "u" }], "input": [{ "role": "user", "content": "u" }] }),
        json!([1]),
    ] {
        assert_eq!(found(&body), None, "{body}");
    }
}

#[test]
fn the_first_bytes_tell_what_need_not_be_taken_in() {
    for (start, shown) in [
        ("", Begun::Open),
        (" {", Begun::Open),
        (r#"{"model":"m","mess"#, Begun::Open),
        (r#"{"tools":[{"name":"a"#, Begun::Open),
        (r#"{"messages": ["#, Begun::Open),
        (r#"{"messages":[{"#, Begun::Conversation),
        (r#"{"input":"te"#, Begun::Open),
        (r#"{"input":["te"#, Begun::Other),
        (r#"{"input":"text","model":"m"}"#, Begun::Conversation),
        (r#"{"model":"m"}"#, Begun::Other),
        (r#"{"messages":7"#, Begun::Other),
        (r#"{"model":"m","documents":"#, Begun::Other),
        ("[", Begun::Other),
        ("x", Begun::Other),
    ] {
        assert_eq!(begun(start.as_bytes()), shown, "{start}");
    }
}

#[test]
fn paths_of_other_works_are_left_alone() {
    for path in ["/llm", "/v2/chat", "/gateway/openai/generate", "/v1/completions", "/model/openai.gpt/invoke"] {
        assert!(may_be_meant(path), "{path}");
    }
    for path in [
        "/v1/embeddings",
        "/api/embed",
        "/v1/moderations",
        "/v1/audio/speech",
        "/v1/files",
        "/v1/images/edits",
        "/tokenize",
        "/utils/token_counter",
        "/v1/x:countTokens",
        "/v1/rerank",
        "/v1/fine_tuning/jobs",
        "/v1/batches",
        "/v1/vector_stores",
        "/api/chat",
        "/v1/threads/runs",
        "/logs/llm",
        "/v1/evals",
    ] {
        assert!(!may_be_meant(path), "{path}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// No beginning of a conversation is ever taken for something else.
    #[test]
    fn beginnings_of_conversations_are_followed(which in 0usize..14, cut in 0usize..400) {
        let all: Vec<_> = [chats(), messages(), responses()].concat();
        let body = all[which % all.len()].to_string();
        prop_assert_ne!(begun(&body.as_bytes()[..cut.min(body.len())]), Begun::Other);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        begun(&bytes);
        prop_assert_eq!(dialect(&bytes, &ALL), None);
    }
}
