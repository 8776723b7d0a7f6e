//! The files that there are: what a call is shown of them, when days' files go to the archive, and a MEMORY.md that no
//! model writes.

use std::sync::Arc;
use std::sync::Mutex;

use compactproxy::demo::answer::Answer;
use compactproxy::demo::script::Reply;
use compactproxy::memory::save::{Author, section};
use compactproxy::memory::{Day, MemoryPath};
use compactproxy::store::{Tenant, now};
use serde_json::{Value, json};

use super::{MEMORY, Stage, noted, noting, remembered, remembering, round};
use crate::support::chat::history;
use crate::support::wire::patiently;

/// The agent of a client that names none.
const AGENT: &str = "unknown";
const DAY: i64 = 86_400;

async fn single(settings: compactproxy::demo::provider::Settings) -> (Stage, Tenant) {
    let stage = Stage::new(settings, &format!("[state]\ntenant = \"single\"\n{MEMORY}")).await;
    let tenant = stage.store.tenant(&[b"single"]);
    (stage, tenant)
}

/// A conversation that is due for a summary.
fn long(name: &str, rule: usize) -> Value {
    let mut body = history(name, 0, 0);
    round(&mut body, rule);
    round(&mut body, rule + 1);
    body
}

fn today() -> MemoryPath {
    MemoryPath::Day(Day::of(now()))
}

#[tokio::test]
async fn who_reads_for_facts_is_shown_what_is_in_memory_already() {
    let (stage, tenant) = single(noting()).await;
    let keep = async |agent: &str, path, text: &str| {
        stage.store.append_memory(&tenant, agent, path, text).await.unwrap();
    };
    keep(AGENT, MemoryPath::Curated, "- Ana uses tabs.\n").await;
    keep(AGENT, today(), "- Bo deploys on Tuesdays.\n").await;
    keep(AGENT, MemoryPath::Day(Day::of(now() - 3 * DAY)), "- Another day's note.\n").await;
    keep("another", MemoryPath::Curated, "- Another agent's fact.\n").await;
    keep("another", today(), "- Another agent's note.\n").await;
    stage.post(&long("a", 1)).await;
    remembered(&stage.store, "rule-1.").await;
    let calls = stage.memory_calls();
    let call: Value = serde_json::from_str(&calls[0]).unwrap();
    let prompt = call["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap();
    let (before, said) = prompt.split_once("The part of the conversation:").unwrap();
    let (_, shown) = before.split_once("MEMORY.md:").unwrap();
    let (curated, day) = shown.split_once("What was noted today:").unwrap();
    assert!(curated.contains("- Ana uses tabs.") && day.contains("- Bo deploys on Tuesdays."), "{prompt}");
    assert!(!prompt.contains("Another") && said.contains("rule-1"), "{prompt}");
}

#[tokio::test]
async fn days_files_go_to_the_archive_when_they_are_old() {
    let (stage, tenant) = single(remembering(|_| Reply::Say(Answer::text("NO_REPLY")))).await;
    // A day aside: the test may run over midnight.
    let (old, young) = (Day::of(now() - 92 * DAY), Day::of(now() - 89 * DAY));
    for (agent, day) in [(AGENT, old), (AGENT, young), ("another", old)] {
        let text = format!("- Noted on {day}.\n");
        stage.store.append_memory(&tenant, agent, MemoryPath::Day(day), &text).await.unwrap();
    }
    stage.post(&json!({"model": "demo-model", "messages": [{"role": "user", "content": "Hello."}]})).await;
    let paths = async || {
        let mut all: Vec<String> = stage
            .store
            .memory_entries()
            .await
            .unwrap()
            .iter()
            .map(|entry| format!("{} {}", entry.agent, entry.path))
            .collect();
        all.sort();
        all
    };
    let archived = format!("{AGENT} memory/archive/{old}.md");
    patiently("the archive", async {
        while !paths().await.contains(&archived) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let kept = [format!("another memory/{old}.md"), format!("{AGENT} memory/{young}.md"), archived];
    assert_eq!(paths().await, kept);
    let path = MemoryPath::Archived(old);
    let file = stage.store.memory_file(&tenant, AGENT, path).await.unwrap().unwrap();
    assert_eq!(file.content, format!("- Noted on {old}.\n"));
}

/// What was refused is not asked for again by whatever wakes the work, until something new was noted.
#[tokio::test]
async fn a_memory_md_that_no_model_writes_is_not_asked_for_again_at_once() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let calls = Arc::clone(&asked);
    let (stage, tenant) = single(remembering(move |request| {
        let text = request.last_user_text().unwrap();
        if text.contains("The new notes") {
            calls.lock().unwrap().push(text);
            return Reply::Say(Answer::text("Bananas are a fruit."));
        }
        Reply::Say(Answer::text(if text.contains("rule-70 ") { noted(request) } else { "NO_REPLY".to_owned() }))
    }))
    .await;
    // So old that they are taken in, although more is being noted.
    let (path, note) = section(Author::Noted, now() - 3 * DAY, "- Ana uses tabs.").unwrap();
    stage.store.append_memory(&tenant, AGENT, path, &note).await.unwrap();
    stage.post(&json!({"model": "demo-model", "messages": [{"role": "user", "content": "Hello."}]})).await;
    let made = async |count: usize| {
        patiently("a call for MEMORY.md", async {
            while asked.lock().unwrap().len() < count {
                tokio::task::yield_now().await;
            }
        })
        .await;
    };
    made(1).await;
    // Conversations of which nothing is noted wake the work; each is read before the next is sent.
    for n in 0..4 {
        let before = stage.memory_calls().len();
        stage.post(&long(&format!("conversation {n}"), 10 * n + 10)).await;
        patiently("a conversation that was read", async {
            let read = async || {
                let waiting = stage.store.waiting_flush(&tenant, AGENT, i64::MAX).await.unwrap();
                matches!(waiting, compactproxy::store::Waiting::Nothing)
            };
            while stage.memory_calls().len() == before || !read().await {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    assert_eq!(asked.lock().unwrap().len(), 1);
    stage.post(&long("the last", 70)).await;
    made(2).await;
    let asked = asked.lock().unwrap().clone();
    assert!(!asked[0].contains("rule-70") && asked[1].contains("rule-70"), "once more, with what is new");
    assert_eq!(asked.len(), 2);
}
