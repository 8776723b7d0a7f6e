//! Recorded conversations keep the rules: the check against being too strict.

use std::path::{Path, PathBuf};

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::messages::{self, Signatures};
use super::request::{Api, Ids, ModelRequest, Purpose, kind, list, role, text};
use super::responses;
use super::responses::store::{Chains, Store};
use super::rules::Violation;

/// What a model makes, by the item's type, where it has no role.
const MADE: [&str; 5] = ["reasoning", "function_call", "custom_tool_call", "tool_search_call", "compaction"];

fn shared(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared")).join(path)
}

/// All JSON files of a folder; none where it is missing.
fn documents(folder: &str) -> Vec<(String, Value)> {
    let Ok(entries) = std::fs::read_dir(shared(folder)) else {
        println!("no {folder} here: skipped");
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: &PathBuf| serde_json::from_slice(&std::fs::read(path).unwrap()).ok();
    paths.iter().filter_map(|path| Some((path.file_name()?.to_string_lossy().into_owned(), read(path)?))).collect()
}

fn copied(document: &Value, keys: &[&str], mut body: Value) -> Value {
    for key in keys {
        if let Some(value) = document.get(*key).filter(|value| !value.is_null()) {
            body[*key] = value.clone();
        }
    }
    body
}

/// Ids that the providers themselves made, or another's.
fn ids(document: &Value) -> Ids {
    let own = text(document, "model").starts_with("gpt") || text(document, "model").starts_with("claude");
    if own && document["derived"] != true { Ids::Own } else { Ids::Any }
}

fn responses(mut request: ModelRequest, ids: Ids) -> Result<(), Violation> {
    responses::rules::parameters(&request.body)?;
    let store = Store::default();
    (request.input, request.held) = store.resolve(&request.body, &Chains::new())?;
    responses::rules::check(&request, ids, &store)
}

fn messages(request: &ModelRequest, ids: Ids, signatures: &mut Signatures) -> Result<(), Violation> {
    let settings = messages::Settings { ids, ..messages::Settings::default() };
    let dropped = messages::check(request, Purpose::Answer, &settings, signatures)?;
    assert!(dropped.is_empty());
    Ok(())
}

#[test]
fn responses_conversations_keep_the_rules() {
    for (name, document) in documents("corpus/responses") {
        let keys = ["instructions", "tools", "tool_choice", "reasoning", "include", "text", "store"];
        let mut items = list(&document, "input").to_vec();
        while items.last().is_some_and(|item| role(item) == "assistant" || MADE.contains(&kind(item))) {
            items.pop();
        }
        let body = copied(&document, &keys, json!({"model": "m", "input": items}));
        assert_eq!(responses(ModelRequest::new(Api::Responses, body), ids(&document)), Ok(()), "{name}");
    }
}

#[test]
fn messages_conversations_keep_the_rules() {
    let mut signatures = Signatures::default();
    for (name, document) in documents("corpus/anthropic") {
        let mut all = list(&document, "messages").to_vec();
        while all.last().is_some_and(|message| role(message) == "assistant") {
            all.pop();
        }
        answer_what_was_interrupted(&mut all);
        let keys = ["system", "tools", "tool_choice", "thinking"];
        let body = copied(&document, &keys, json!({"model": "m", "max_tokens": 8192, "messages": all}));
        let request = ModelRequest::new(Api::Messages, body);
        // Twice: what was opaque the first time must be the same the second.
        for _ in 0..2 {
            let checked = messages(&request, ids(&document), &mut signatures);
            assert_eq!(checked, Ok(()), "{name}");
        }
    }
}

/// Calls that the user interrupted have no result in the record; the client made one up when it sent them.
fn answer_what_was_interrupted(all: &mut [Value]) {
    for i in 1..all.len() {
        let asked = list(&all[i - 1], "content").iter().filter(|block| kind(block) == "tool_use");
        let given = |id: &str| list(&all[i], "content").iter().any(|block| text(block, "tool_use_id") == id);
        let missing = asked.map(|call| text(call, "id")).filter(|id| !given(id));
        let results: Vec<Value> =
            missing.map(|id| json!({"type": "tool_result", "tool_use_id": id, "content": "interrupted"})).collect();
        if role(&all[i]) == "user"
            && let Some(content) = all[i]["content"].as_array_mut()
        {
            content.splice(0..0, results);
        }
    }
}

/// What real clients sent, where it refers to nothing that a server would hold.
#[test]
fn recorded_requests_keep_the_rules() {
    let Ok(clients) = std::fs::read_dir(shared("clients/captures")) else { return println!("no captures: skipped") };
    let mut seen = 0;
    for client in clients {
        let folder = format!("clients/captures/{}", client.unwrap().file_name().to_string_lossy());
        let mut signatures = Signatures::default();
        for (name, body) in documents(&folder).into_iter().filter(|(name, _)| !name.ends_with(".meta.json")) {
            let meta: Value = serde_json::from_slice(
                &std::fs::read(shared(&folder).join(name.replace(".json", ".meta.json"))).unwrap(),
            )
            .unwrap();
            let path = text(&meta, "path");
            let elsewhere = ["previous_response_id", "conversation", "thread"];
            if elsewhere.iter().any(|key| body.get(*key).is_some_and(|value| !value.is_null())) {
                continue;
            }
            if path.ends_with("/responses") {
                assert_eq!(responses(ModelRequest::new(Api::Responses, body), Ids::Own), Ok(()), "{folder}/{name}");
                seen += 1;
            } else if path.ends_with("/messages") {
                let request = ModelRequest { headers: headers(&meta), ..ModelRequest::new(Api::Messages, body) };
                assert_eq!(messages(&request, Ids::Own, &mut signatures), Ok(()), "{folder}/{name}");
                seen += 1;
            }
        }
    }
    assert!(seen > 30, "{seen}");
}

fn headers(meta: &Value) -> HeaderMap {
    let pairs = list(meta, "headers").iter().filter_map(|pair| {
        let name: HeaderName = pair.get(0)?.as_str()?.parse().ok()?;
        Some((name, HeaderValue::from_str(pair.get(1)?.as_str()?).ok()?))
    });
    pairs.collect()
}
