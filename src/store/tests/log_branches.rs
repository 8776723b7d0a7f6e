//! The log's branches, what it keeps and no search finds, and sessions that go on after their log was swept.

use serde_json::json;

use super::super::log::{self, Cursor, HistoryPage, LogBatch, Message, Scope, Search, Tip, Unfound};
use super::log_rows::{ALL, batch, find, log, own, page, session, texts};
use super::*;
use crate::wire::Role;
use crate::wire::plain::Source;

#[tokio::test]
async fn forks_are_branches_of_one_tree() {
    let f = Fixture::new().await;
    let id = session(&f, "tree");
    log(&f, id, "tree", &["start", "left"]).await;
    let (trunk, fork) = (chain("tree", 2), chain("fork", 1)[0]);
    let mut other = batch(id, &[trunk[0], fork], &["start", "right"]);
    other.messages.remove(0);
    f.store.log(&f.tenant, other);
    f.store.flush_log().await;
    assert_eq!(texts(&page(&f, &own(id), None, ALL).await.unwrap()), ["start", "right"], "the latest");
    let left = HistoryPage { tip: Some(Tip::At(trunk[1])), ..ALL };
    assert_eq!(texts(&page(&f, &own(id), None, left).await.unwrap()), ["start", "left"]);
    let through = |digest: &Digest| HistoryPage { tip: Some(Tip::Through(Cursor::of(digest))), ..ALL };
    let hits = find(&f, &own(id), "left").await;
    assert_eq!(hits.len(), 1);
    let there = page(&f, &own(id), None, through(&hits[0].digest)).await.unwrap();
    assert_eq!(texts(&there), ["start", "left"], "a hit is read where it is");
    let there = page(&f, &own(id), None, through(&trunk[0])).await.unwrap();
    assert_eq!(texts(&there), ["start", "right"], "of several branches the latest");
    let there = page(&f, &own(id), None, HistoryPage { before: Some(2), ..through(&trunk[1]) }).await.unwrap();
    assert_eq!(texts(&there), ["start"]);
    assert!(page(&f, &own(id), None, through(&[9; 32])).await.unwrap().is_empty());
    let last = async |chain: &[Digest]| f.store.last_logged(&f.tenant, id, chain).await.unwrap();
    assert_eq!(last(&[trunk[0], fork, [9; 32], [8; 32]]).await, Some(fork), "what comes after is not written yet");
    assert_eq!(last(&[[9; 32]; 600]).await, None);
    assert_eq!(f.store.sessions(&f.tenant, &own(id)).await.unwrap()[0].messages, 3);
}

#[tokio::test]
async fn in_one_session_an_agent_chooses_its_branch_and_what_is_found() {
    let f = Fixture::new().await;
    let id = session(&f, "agents");
    let turns = chain("agents", 3);
    log(&f, id, "agents", &["start", "the word here", "and on"]).await;
    let side = LogBatch { agent: "sub".into(), ..batch(id, &chain("side", 2), &["a task", "the word there"]) };
    f.store.log(&f.tenant, side);
    f.store.flush_log().await;
    let of = |agent: &str| HistoryPage { agent: Some(agent.into()), ..ALL };
    assert_eq!(texts(&page(&f, &own(id), None, of("codex")).await.unwrap()), ["start", "the word here", "and on"]);
    assert_eq!(texts(&page(&f, &own(id), None, of("sub")).await.unwrap()), ["a task", "the word there"]);
    assert!(page(&f, &own(id), None, of("nobody")).await.unwrap().is_empty());
    let listed = f.store.sessions(&f.tenant, &own(id)).await.unwrap();
    assert_eq!(listed[0].agents.iter().map(|agent| &**agent).collect::<Vec<_>>(), ["codex", "sub"]);
    for scope in [own(id), Scope::Tenant] {
        let search = Search { query: "word".to_owned(), session: None, agent: Some("sub".into()), max: 1 };
        let hits = f.store.search_log(&f.tenant, &scope, &search).await.unwrap().best;
        assert_eq!(hits.iter().map(|hit| &*hit.agent).collect::<Vec<_>>(), ["sub"]);
    }
    // Who reads as one agent sees nothing of another's, on whatever branch.
    let foreign = HistoryPage { tip: Some(Tip::Through(Cursor::of(&turns[1]))), ..ALL };
    assert!(page(&f, &Scope::Agent("sub".into()), Some(id), foreign).await.unwrap().is_empty());
    let listed = f.store.sessions(&f.tenant, &Scope::Agent("sub".into())).await.unwrap();
    assert_eq!(listed[0].agents.iter().map(|agent| &**agent).collect::<Vec<_>>(), ["sub"]);
}

#[tokio::test]
async fn what_is_not_to_be_found_is_kept_and_found_by_no_search() {
    let f = Fixture::new().await;
    let id = session(&f, "unfound");
    let mut given = batch(id, &chain("unfound", 3), &["the needle", "needle again", "no more"]);
    given.messages[1].unfound = Unfound::Everything;
    let call = json!({"id": "a", "type": "function", "function": {"name": "session_search", "arguments": "{\"query\":\"needle\"}"}});
    let both = json!({"role": "assistant", "content": "Let me look for straw.", "tool_calls": [call]}).to_string();
    given.messages[2].json = both.clone().into();
    given.messages[2].unfound = Unfound::Parts(vec![Source::Call(0)]);
    // Before all of it, once and again where it has changed.
    for text in ["be brief, needle", "be brief, needle", "be long, needle"] {
        let lead = Message {
            digest: *blake3::hash(text.as_bytes()).as_bytes(),
            number: 0,
            parent: None,
            role: Role::System,
            json: json!({"role": "system", "content": text}).to_string().into(),
            unfound: Unfound::Everything,
            ..given.messages[0].clone()
        };
        let messages = [vec![lead], given.messages.clone()].concat();
        f.store.log(&f.tenant, LogBatch { messages, ..given.clone() });
    }
    f.store.flush_log().await;
    assert_eq!(find(&f, &own(id), "needle").await.iter().map(|hit| hit.number).collect::<Vec<_>>(), [1]);
    assert_eq!(find(&f, &own(id), "straw").await.iter().map(|hit| hit.number).collect::<Vec<_>>(), [3]);
    let all = page(&f, &own(id), None, ALL).await.unwrap();
    assert_eq!(all.iter().map(|message| message.number).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(all[2].json, both);
    assert_eq!(f.store.sessions(&f.tenant, &own(id)).await.unwrap()[0].messages, 3);
    let (written, _) = f.store.written(id, 0).await.unwrap();
    assert_eq!(written.iter().map(|message| message.number).collect::<Vec<_>>(), [0, 1, 2, 3, 0]);
}

#[tokio::test]
async fn a_log_that_was_swept_is_whole_again_when_its_session_goes_on() {
    let f = Fixture::new().await;
    let (id, other) = (session(&f, "swept"), session(&f, "kept"));
    let (turns, said) = (chain("swept", 101), (0..101).map(|n| format!("text {n}")).collect::<Vec<_>>());
    let said: Vec<&str> = said.iter().map(String::as_str).collect();
    log(&f, id, "swept", &said[..100]).await;
    log(&f, other, "kept", &["kept"]).await;
    let later = shared::now() + 40 * 24 * 3_600;
    let mut db = f.outsider().await;
    let used = sqlx::query("UPDATE logs SET last_used = ? WHERE session = ?").bind(later).bind(other.0.as_slice());
    used.execute(&mut db).await.unwrap();
    f.store.sweep_at(later).await;
    assert_eq!(f.store.logged(&f.tenant, &id, &turns), 0, "it is given anew");
    assert_eq!(f.store.logged(&f.tenant, &other, &chain("kept", 1)), 1, "another session's is not");
    log(&f, id, "swept", &said).await;
    assert_eq!(page(&f, &own(id), None, HistoryPage { last: 200, ..ALL }).await.unwrap().len(), 101);

    // It goes on while it is being swept.
    let number: i64 = sqlx::query_scalar("SELECT id FROM logs WHERE session = ?")
        .bind(id.0.as_slice())
        .fetch_one(&mut db)
        .await
        .unwrap();
    assert_eq!(log::detach(&mut db, number).await.unwrap(), Some(id));
    assert_eq!(log::delete_log(&mut db, number).await.unwrap(), retention::Due::More);
    assert!(find(&f, &Scope::Tenant, "text").await.is_empty() && page(&f, &own(id), None, ALL).await.is_none());
    f.store.shared.log.forget_session(&id);
    log(&f, id, "swept", &said).await;
    let sessions = f.store.sessions(&f.tenant, &own(id)).await.unwrap();
    assert_eq!((sessions[0].messages, page(&f, &own(id), None, ALL).await.unwrap().len()), (101, 100));
    f.store.sweep_at(0).await;
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM log_messages").fetch_one(&mut db).await.unwrap();
    assert_eq!(left, 102, "what was left of the old one is gone");
}
