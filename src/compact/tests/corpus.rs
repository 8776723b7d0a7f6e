//! The texts over recorded conversations of real agents, where the folder with them is there.

use super::*;
use crate::compact::cuts::{boundaries, cut_for_tokens, pairs};
use crate::compact::digest::digest;
use crate::compact::ledger::ledger;
use crate::compact::pins::pins;
use crate::compact::rows::TextKey;
use crate::compact::talk::{Talk, count};
use crate::compact::transcript::clipped;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/corpus/chat");
const KEY: TextKey = TextKey([7; 32]);

fn recorded() -> Vec<(String, Talk)> {
    let Ok(folder) = std::fs::read_dir(FOLDER) else {
        println!("skipped: no recorded conversations at {FOLDER}");
        return Vec::new();
    };
    let paths = folder.filter_map(|entry| Some(entry.ok()?.path()));
    paths
        .map(|path| {
            let body: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).expect("file")).expect("json");
            (path.display().to_string(), Talk::recorded(body["messages"].as_array().expect("messages")))
        })
        .collect()
}

#[test]
fn every_recorded_conversation_is_cut_and_told() {
    for (name, talk) in recorded() {
        let conversation = talk.conversation();
        let n = conversation.items.len();
        let counts: Vec<u32> = conversation.items.iter().map(|item| item.facts.text_bytes as u32 / 4).collect();
        let total: u64 = counts.iter().map(|&tokens| u64::from(tokens)).sum();
        assert!(boundaries(&conversation).len() * 4 > n, "{name}: too few boundaries");
        let cut = cut_for_tokens(&conversation, &counts, total / 5).expect(&name);
        assert!(
            pairs(&conversation).iter().all(|pair| pair.result.is_none_or(|(i, _)| (i < cut) == (pair.call.0 < cut)))
        );
        let ledger = ledger(&conversation, cut, 20_000, &KEY, &count);
        let mut replaced = conversation.clone();
        replaced.items.truncate(cut);
        let pins = pins(&replaced, 8_000, &KEY);
        let digest = digest(&conversation, 0..cut, 1_000, &count);
        assert!(count(&digest) <= 1_000, "{name}");
        assert!(count(&clipped(&conversation, 0..cut, 4_000, &count)) <= 4_000, "{name}");
        let parts = Parts { ledger: &ledger, pins: &pins.pins, story: Story::Digest(&digest), pointers: &[] };
        let head = compose(&parts);
        println!(
            "{name}: {n} items, {total} tokens, cut {cut}; ledger {} entries, {} tokens; pins {}; head {}",
            ledger.entries.len(),
            ledger.entries.iter().map(|entry| count(&entry.text)).sum::<usize>(),
            pins.pins.iter().map(|pin| format!("{:?} {}", pin.kind, pin.text.len())).collect::<Vec<_>>().join(", "),
            count(&head)
        );
        if std::env::var_os("SHOW").is_some_and(|show| name.contains(&*show.to_string_lossy())) {
            println!("{head}");
        }
    }
}
