//! What waits to be read for memory: queued with its summary, once a message, ended with its outcome.

use super::*;
use crate::memory::MemoryPath;

const AGENT: &str = "codex";

fn said(turns: &[Digest], texts: &[&str]) -> Option<Arc<Said>> {
    let messages = turns.iter().copied().zip(texts.iter().map(|text| (*text).to_owned())).collect();
    Some(Arc::new(Said { agent: AGENT.into(), messages }))
}

fn summary(turns: &[Digest], texts: &[&str]) -> Batch {
    Batch { said: said(turns, texts), ..folding(turns, Level::Summary, "summary", Stage::Activated) }
}

async fn due(store: &Store, tenant: &Tenant, now: i64) -> Option<Flush> {
    match store.waiting_flush(tenant, AGENT, now).await.unwrap() {
        Waiting::Due(flush) => Some(flush),
        Waiting::Nothing | Waiting::Until(_) => None,
    }
}

fn day() -> MemoryPath {
    "memory/2026-11-30.md".parse().unwrap()
}

#[tokio::test]
async fn each_message_waits_once_also_in_forks_and_later_summaries() {
    let f = Fixture::new().await;
    let turns = chain("a", 6);
    f.commit(summary(&turns[..3], &["one", "two", "three"])).await.unwrap();
    let mut fork = turns[..2].to_vec();
    fork.extend(chain("fork", 2));
    f.commit(summary(&fork, &["one", "two", "other", "more"])).await.unwrap();
    f.commit(summary(&turns, &["one", "two", "three", "four", "five", "six"])).await.unwrap();
    f.commit(summary(&turns, &["one", "two", "three", "four", "five", "six"])).await.unwrap();
    let mut texts = Vec::new();
    while let Some(flush) = due(&f.store, &f.tenant, 0).await {
        texts.push(flush.text.clone());
        f.store.advance_flush((&f.tenant, AGENT), (&flush, flush.text.len()), None).await.unwrap();
    }
    assert_eq!(texts, ["one\n\ntwo\n\nthree", "other\n\nmore", "four\n\nfive\n\nsix"]);
}

#[tokio::test]
async fn a_flush_ends_once_and_its_text_is_written_with_it() {
    let f = Fixture::new().await;
    let turns = chain("a", 2);
    f.commit(summary(&turns, &["one", "two"])).await.unwrap();
    f.store.close().await;
    // A kill before the outcome is written leaves the flush; a second worker may have it as well.
    let (store, other) = (f.another().await, f.another().await);
    let (mine, theirs) = (due(&store, &f.tenant, 0).await.unwrap(), due(&other, &f.tenant, 0).await.unwrap());
    assert!(mine == theirs);
    for store in [&store, &other] {
        let to = Some((day(), "- fact\n".to_owned()));
        store.advance_flush((&f.tenant, AGENT), (&mine, mine.text.len()), to).await.unwrap();
    }
    let file = store.memory_file(&f.tenant, AGENT, day()).await.unwrap().unwrap();
    assert_eq!(file.content, "- fact\n");
    assert!(store.waiting_flush(&f.tenant, AGENT, 0).await.unwrap() == Waiting::Nothing);
}

#[tokio::test]
async fn each_piece_of_a_flush_is_written_once_and_what_is_left_waits() {
    let f = Fixture::new().await;
    f.commit(summary(&chain("a", 1), &["### user\none two"])).await.unwrap();
    let whole = due(&f.store, &f.tenant, 0).await.unwrap();
    let owner = (&f.tenant, AGENT);
    f.store.delay_flush(owner, whole.id, 0).await.unwrap();
    for _ in 0..2 {
        let to = Some((day(), "- one\n".to_owned()));
        f.store.advance_flush(owner, (&whole, "### user\none ".len()), to).await.unwrap();
    }
    let left = due(&f.store, &f.tenant, 0).await.unwrap();
    assert_eq!((left.text.as_str(), left.attempts, left.id), ("### user (goes on)\ntwo", 0, whole.id));
    for flush in [&whole, &left, &left] {
        let to = Some((day(), "- two\n".to_owned()));
        f.store.advance_flush(owner, (flush, flush.text.len()), to).await.unwrap();
    }
    assert!(due(&f.store, &f.tenant, 0).await.is_none());
    assert_eq!(f.store.memory_file(&f.tenant, AGENT, day()).await.unwrap().unwrap().content, "- one\n- two\n");
}

#[tokio::test]
async fn facts_without_room_wait_with_what_is_left() {
    let f = Fixture::new().await;
    f.commit(summary(&chain("a", 1), &["one two"])).await.unwrap();
    let (whole, owner) = (due(&f.store, &f.tenant, 0).await.unwrap(), (&f.tenant, AGENT));
    for facts in ["- one", "- again"] {
        f.store.keep_facts(owner, (&whole, 4), facts.to_owned()).await.unwrap();
    }
    f.store.close().await;
    let store = f.another().await;
    let kept = due(&store, &f.tenant, 0).await.unwrap();
    assert_eq!((kept.text.as_str(), kept.facts.as_deref()), ("two", Some("- one")));
    for _ in 0..2 {
        let to = Some((day(), "- one\n".to_owned()));
        store.advance_flush(owner, (&kept, 0), to).await.unwrap();
    }
    let left = due(&store, &f.tenant, 0).await.unwrap();
    assert_eq!((left.text.as_str(), left.facts.as_deref()), ("two", None));
    // Also where nothing else is left.
    store.keep_facts(owner, (&left, 3), "- two".to_owned()).await.unwrap();
    let kept = due(&store, &f.tenant, 0).await.unwrap();
    assert_eq!((kept.text.as_str(), kept.facts.as_deref()), ("", Some("- two")));
    store.advance_flush(owner, (&kept, 0), Some((day(), "- two\n".to_owned()))).await.unwrap();
    assert!(store.waiting_flush(&f.tenant, AGENT, 0).await.unwrap() == Waiting::Nothing);
    assert_eq!(store.memory_file(&f.tenant, AGENT, day()).await.unwrap().unwrap().content, "- one\n- two\n");
}

#[tokio::test]
async fn what_cannot_be_written_still_waits() {
    let f = Fixture::new().await;
    f.commit(summary(&chain("a", 1), &["one"])).await.unwrap();
    f.store.append_memory(&f.tenant, AGENT, day(), &"x".repeat(MAX_FILE_BYTES)).await.unwrap();
    let flush = due(&f.store, &f.tenant, 0).await.unwrap();
    let to = Some((day(), "- fact\n".to_owned()));
    assert_eq!(f.store.advance_flush((&f.tenant, AGENT), (&flush, 3), to).await, Err(MemoryError::FileFull));
    assert!(due(&f.store, &f.tenant, 0).await.unwrap() == flush);
    f.store.delay_flush((&f.tenant, AGENT), flush.id, 100).await.unwrap();
    assert!(f.store.waiting_flush(&f.tenant, AGENT, 99).await.unwrap() == Waiting::Until(100));
    assert_eq!(due(&f.store, &f.tenant, 100).await.unwrap().attempts, 1);
}

#[tokio::test]
async fn flushes_are_their_tenants_and_agents_own() {
    let f = Fixture::new().await;
    let other = f.store.tenant(&[b"other"]);
    let turns = chain("a", 1);
    f.commit(summary(&turns, &["one"])).await.unwrap();
    let flush = due(&f.store, &f.tenant, 0).await.unwrap();
    assert!(due(&f.store, &other, 0).await.is_none());
    for (tenant, agent) in [(&other, AGENT), (&f.tenant, "another")] {
        let to = Some((day(), "- fact\n".to_owned()));
        assert_eq!(f.store.advance_flush((tenant, agent), (&flush, 3), to).await, Ok(0));
        assert_eq!(f.store.memory_files(tenant, agent).await.unwrap(), []);
    }
    f.store.commit(&other, summary(&turns, &["one"])).await.unwrap();
    assert!(due(&f.store, &other, 0).await.is_some(), "the same words of another tenant");
}

#[tokio::test]
async fn a_long_conversation_waits_in_parts_and_goes_with_its_session() {
    let f = Fixture::new().await;
    let turns = chain("a", 12);
    let text = "x".repeat(16 << 10);
    f.commit(summary(&turns, &[text.as_str(); 12])).await.unwrap();
    let mut parts = 0;
    while let Some(flush) = due(&f.store, &f.tenant, 0).await {
        assert!(flush.text.len() <= 48 << 10);
        parts += 1;
        f.store.delay_flush((&f.tenant, AGENT), flush.id, 1).await.unwrap();
    }
    assert_eq!(parts, 6);
    // One message that is longer than all of them is no exception.
    f.commit(summary(&chain("b", 1), &[&format!("### user\n{}THE MIDDLE{}", "y".repeat(99_000), "y".repeat(99_000))]))
        .await
        .unwrap();
    let mut read = String::new();
    while let Some(flush) = due(&f.store, &f.tenant, 0).await {
        assert!(flush.text.len() <= 48 << 10 && flush.text.starts_with("### user"));
        read += &flush.text;
        f.store.delay_flush((&f.tenant, AGENT), flush.id, 1).await.unwrap();
    }
    assert_eq!(read.matches('y').count(), 198_000);
    assert!(read.replace("### user (goes on)\n", "").contains("yTHE MIDDLEy"));
    f.store.sweep_at(i64::MAX / 2).await;
    assert!(f.store.waiting_flush(&f.tenant, AGENT, 1).await.unwrap() == Waiting::Nothing);
    f.commit(summary(&turns, &["x"; 12])).await.unwrap();
    assert!(due(&f.store, &f.tenant, 0).await.is_some(), "nothing of it is remembered");
}
