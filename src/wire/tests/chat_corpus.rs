//! Real conversations, where the folder with them is there.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::wire::Dialect;
use crate::wire::memo::Memo;
use crate::wire::read;
use crate::wire::{Conversation, Role, SlotKind};

const SALT: [u8; 16] = [3; 16];
/// Requests taken of one conversation.
const SAMPLES: usize = 6;

#[test]
fn real_conversations_are_read_whole() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/corpus/chat"));
    let Ok(files) = fs::read_dir(folder) else {
        println!("skipped: no corpus beside the project");
        return;
    };
    let memo = Memo::new(16 << 20);
    for file in files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|end| end == "json"))
    {
        let document: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let messages = document["messages"].as_array().unwrap();
        for sample in 1..=SAMPLES {
            let messages = &messages[..messages.len() * sample / SAMPLES];
            let body = json!({"model": "m", "messages": messages, "tools": document["tools"]}).to_string();
            let conversation = read(Dialect::Chat, body.as_bytes(), &memo, SALT).unwrap();
            compare(&conversation, messages);
            assert_eq!(
                Ok(conversation),
                read(Dialect::Chat, body.as_bytes(), &Memo::new(0), SALT),
                "{}",
                file.display()
            );
        }
    }
}

/// What was read against what a generic parser sees.
fn compare(conversation: &Conversation<'_>, messages: &[Value]) {
    let lead = conversation.lead.len();
    assert_eq!(lead + conversation.items.len(), messages.len());
    assert_eq!(lead, messages.iter().take_while(|message| message["role"] == "system").count());
    for (i, message) in messages[lead..].iter().enumerate() {
        let facts = &conversation.items[i].facts;
        assert_eq!(serde_json::from_slice::<Value>(conversation.raw(i)).unwrap(), *message);
        let mut spans: Vec<_> = facts.slots.iter().map(|slot| slot.span.clone()).collect();
        spans.sort_by_key(|span| span.start);
        assert!(spans.windows(2).all(|pair| pair[0].end <= pair[1].start));
        let calls = message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
        assert!(facts.calls.iter().map(|call| Value::from(&*call.id)).eq(calls.iter().map(|call| call["id"].clone())));
        for slot in &facts.slots {
            let text = conversation.text(i, slot);
            match slot.kind {
                SlotKind::Arguments(k) => assert_eq!(text.as_deref(), calls[k]["function"]["arguments"].as_str()),
                SlotKind::Text | SlotKind::Result(_) if message["content"].is_string() => {
                    assert_eq!(text.as_deref(), message["content"].as_str());
                }
                _ => {}
            }
        }
        if facts.role == Role::Tool {
            assert_eq!(facts.results, [message["tool_call_id"].as_str().unwrap()]);
            assert!(conversation.tool_of(i, &facts.results[0]).is_some());
        }
    }
}
