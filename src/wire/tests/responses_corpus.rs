//! Real conversations and recorded requests, where the folders with them are there.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::compact::cuts::pairs;
use crate::wire::memo::Memo;
use crate::wire::{Conversation, Dialect, Digest, Role, SlotKind, read};

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
