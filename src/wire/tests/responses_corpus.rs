//! Real conversations and recorded requests, where the folders with them are there.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::compact::client_compaction::asks_for_it;
use crate::compact::cuts::pairs;
use crate::wire::chain;
use crate::wire::memo::Memo;
use crate::wire::{Conversation, Dialect, Digest, Role, SlotKind, read, usage};

const SALT: [u8; 16] = [3; 16];
/// Requests taken of one conversation.
const SAMPLES: usize = 6;

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared")).join(folder);
    let Ok(files) = fs::read_dir(&folder) else {
        println!("skipped: no {} beside the project", folder.display());
        return Vec::new();
    };
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn real_conversations_are_read_whole() {
    let memo = Memo::new(16 << 20);
    for file in files("corpus/responses") {
        let document: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let input = document["input"].as_array().unwrap();
        for sample in 1..=SAMPLES {
            let input = &input[..input.len() * sample / SAMPLES];
            let body = json!({"model": "m", "input": input, "tools": document["tools"]}).to_string();
            let conversation = read(Dialect::Responses, body.as_bytes(), &memo, SALT).unwrap();
            compare(&conversation, input);
            let fresh = read(Dialect::Responses, body.as_bytes(), &Memo::new(0), SALT);
            assert_eq!(Ok(conversation), fresh, "{}", file.display());
        }
    }
}

/// What was read against what a generic parser sees.
fn compare(conversation: &Conversation<'_>, input: &[Value]) {
    let lead = conversation.lead.len();
    assert_eq!(lead + conversation.items.len(), input.len());
    for (i, item) in input[lead..].iter().enumerate() {
        let facts = &conversation.items[i].facts;
        assert_eq!(serde_json::from_slice::<Value>(conversation.raw(i)).unwrap(), *item);
        assert_ne!(facts.role, Role::Unknown, "{item}");
        let mut spans: Vec<_> = facts.slots.iter().map(|slot| slot.span.clone()).collect();
        spans.sort_by_key(|span| span.start);
        assert!(spans.windows(2).all(|pair| pair[0].end <= pair[1].start));
        for slot in &facts.slots {
            let text = conversation.text(i, slot);
            match slot.kind {
                SlotKind::Arguments(_) => assert_eq!(text.as_deref(), item["arguments"].as_str()),
                SlotKind::Result(_) if item["output"].is_string() => {
                    assert_eq!(text.as_deref(), item["output"].as_str());
                }
                SlotKind::Text if item["content"].is_string() => assert_eq!(text.as_deref(), item["content"].as_str()),
                _ => {}
            }
        }
        if item["call_id"].is_string() && facts.role == Role::Tool {
            assert!(conversation.tool_of(i, &facts.results[0]).is_some());
        }
    }
    let paired = pairs(conversation).iter().filter(|pair| pair.result.is_some()).count();
    let outputs =
        input[lead..].iter().filter(|item| item["type"].as_str().is_some_and(|kind| kind.ends_with("_output")));
    assert_eq!(paired, outputs.count());
}

/// The chains of a client's requests, in order; those that are no JSON here (compressed ones) are left out.
fn chains(client: &str) -> Vec<Vec<Digest>> {
    let is_body = |file: &PathBuf| {
        let name = file.file_name().unwrap().to_str().unwrap();
        name.ends_with(".json") && !name.ends_with(".meta.json")
    };
    let memo = Memo::new(16 << 20);
    let bodies = files(&format!("clients/captures/{client}")).into_iter().filter(is_body);
    bodies
        .filter_map(|file| {
            let body = fs::read(file).unwrap();
            serde_json::from_slice::<Value>(&body).ok()?;
            let conversation = read(Dialect::Responses, &body, &memo, SALT).unwrap();
            assert!(
                conversation.items.iter().all(|item| item.facts.role != Role::Unknown || client.contains("remote"))
            );
            Some(conversation.chain().copied().collect())
        })
        .collect()
}

#[test]
fn recorded_clients_continue_their_own_history() {
    for client in ["codex", "codex-gpt-6.2-sol", "openai_py-responses-stream", "openai_agents-responses-stream"] {
        for pair in chains(client).windows(2) {
            assert!(pair[1].starts_with(&pair[0]), "{client}");
        }
    }
    // Its own compaction begins another history.
    chains("codex-compact-remote");
    chains("codex-compact");
    for client in ["openai_py-responses-prev", "openai_agents-responses-prev"] {
        chains(client);
    }
}

#[test]
fn the_compaction_requests_of_codex_are_known() {
    for (client, asking) in [("codex-compact", &["004", "011"][..]), ("codex-compact-remote", &["003", "006"][..])] {
        let bodies = files(&format!("clients/captures/{client}"));
        for file in bodies.iter().filter(|file| !file.to_str().unwrap().ends_with(".meta.json")) {
            let body = fs::read(file).unwrap();
            let number = file.file_stem().unwrap().to_str().unwrap();
            if number > "011" || serde_json::from_slice::<Value>(&body).is_err() {
                continue;
            }
            let conversation = read(Dialect::Responses, &body, &Memo::new(0), SALT).unwrap();
            assert_eq!(asks_for_it(&conversation), asking.contains(&number), "{}", file.display());
        }
    }
}

/// Requests and answers of many providers and clients.
#[test]
fn recorded_exchanges_are_read() {
    let (mut requests, mut answers) = (0, 0);
    for file in files("corpus/exchanges") {
        for line in fs::read_to_string(file).unwrap().lines() {
            let exchange: Value = serde_json::from_str(line).unwrap();
            if exchange["api"] != "responses" {
                continue;
            }
            let body = exchange["request"]["body"].as_str().unwrap_or_default();
            let asked: Value = serde_json::from_str(body).unwrap_or_default();
            if asked["input"].is_array() || asked["input"].is_string() {
                let read = read(Dialect::Responses, body.as_bytes(), &Memo::new(0), SALT);
                assert!(read.is_ok_and(|read| read.lead.len() + read.items.len() > 0), "{body}");
                requests += 1;
            }
            let said = exchange["response"]["body"].as_str().unwrap_or_default();
            let told: Value = serde_json::from_str(said).unwrap_or_default();
            if told["object"] == "response" && told["usage"].is_object() {
                let due = told["usage"]["input_tokens"].as_u64();
                let observed = usage::from_body(said.as_bytes());
                assert_eq!(observed.usage.map(|usage| usage.prompt_tokens), due);
                assert!(chain::output(said).is_some() && Dialect::Responses.read_answer(said.as_bytes()).is_some());
                answers += 1;
            }
            if exchange["status"] == 200 && said.contains("event: response.completed") {
                let observed = usage::from_stream_tail(said.as_bytes(), usage::Shown::All);
                assert!(observed.done && observed.usage.is_some(), "{said}");
                assert!(Dialect::Responses.read_answer(said.as_bytes()).is_some());
                answers += 1;
            }
        }
    }
    println!("{requests} requests, {answers} answers");
}
