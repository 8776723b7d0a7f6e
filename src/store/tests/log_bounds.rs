//! The log's bounds: searches that take too long, messages that are very long, groups that are lost.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use super::super::log::{self, Hits, LogQuery, Search};
use super::log_rows::{ALL, batch, find, log, own, page, session};
use super::*;

#[tokio::test]
async fn a_search_whose_time_is_up_says_so_and_shows_what_it_has() {
    let f = Fixture::with(Limits { search_bound: Duration::ZERO, ..Limits::default() }).await;
    let id = session(&f, "one");
    log(&f, id, "one", &["needle 1", "needle 2", "needle 3", "needle 4"]).await;
    let search = Search { query: "needle".to_owned(), session: None, agent: None, max: 10 };
    assert_eq!(f.store.search_log(&f.tenant, &own(id), &search).await, Err(ReadError::Late));
    assert_eq!(page(&f, &own(id), None, ALL).await.unwrap().len(), 4, "the log is read all the same");
    assert_eq!(f.store.health(), Health::Up);

    // Whoever asked goes away in the middle.
    let asked = AtomicUsize::new(0);
    let gone = || asked.fetch_add(1, Ordering::Relaxed) >= 2;
    let hits = log::search_while(&mut f.outsider().await, &f.tenant, &search, &gone).await.unwrap();
    let Hits { best, cut_short } = hits;
    assert_eq!((best.len(), cut_short), (2, true));
}

#[tokio::test]
async fn a_query_is_broken_off_within_the_database() {
    let f = Fixture::new().await;
    let endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
    let late = log::late_query(&mut f.outsider().await, endless).await;
    assert!(late, "it would never end");
}

#[tokio::test]
async fn nobody_waits_for_anothers_search() {
    let f = Fixture::new().await;
    let id = session(&f, "one");
    let (released, hold) = oneshot::channel();
    f.store.log_searches.send(LogQuery::Hold(hold)).await.ok().unwrap();
    log(&f, id, "one", &["needle"]).await;
    assert_eq!(page(&f, &own(id), None, ALL).await.unwrap().len(), 1);
    let listed = f.store.sessions(&f.tenant, &own(id)).await.unwrap();
    assert_eq!(listed.len(), 1);
    drop(released);
    assert_eq!(find(&f, &own(id), "needle").await.len(), 1);
}

#[tokio::test]
async fn a_message_of_twenty_megabytes_is_kept_whole_and_goes_in_small_batches() {
    let f = Fixture::new().await;
    let (id, turns) = (session(&f, "giant"), chain("giant", 1));
    let image = format!("data:image/png;base64,{}", "iVBORw0K".repeat(20 << 17));
    let parts = json!([{"type": "text", "text": "a needle"}, {"type": "image_url", "image_url": {"url": image}}]);
    let sent = json!({"role": "user", "content": parts}).to_string();
    assert!(sent.len() > 20 << 20);
    let mut given = batch(id, &turns, &[""]);
    given.messages[0].json = sent.clone().into();
    f.store.log(&f.tenant, given);
    f.store.flush_log().await;
    assert!(page(&f, &own(id), None, ALL).await.unwrap()[0].json == sent);
    assert_eq!(find(&f, &own(id), "needle").await.len(), 1);

    let mut db = f.outsider().await;
    let rows = "SELECT count(*) FROM log_bodies";
    let mut left: i64 = sqlx::query_scalar(rows).fetch_one(&mut db).await.unwrap();
    let log = sqlx::query_scalar("SELECT id FROM logs").fetch_one(&mut db).await.unwrap();
    let mut batches = 0;
    loop {
        let due = super::super::log::delete_log(&mut db, log).await.unwrap();
        let now: i64 = sqlx::query_scalar(rows).fetch_one(&mut db).await.unwrap();
        assert!(left - now <= 16, "{left} to {now}");
        (left, batches) = (now, batches + 1);
        if due == retention::Due::Nothing {
            break;
        }
    }
    assert!(left == 0 && batches > 10, "{left} {batches}");
    let messages: i64 = sqlx::query_scalar("SELECT count(*) FROM log_messages").fetch_one(&mut db).await.unwrap();
    assert_eq!(messages, 0);
}

#[tokio::test]
async fn a_long_answer_makes_way_for_what_its_client_sends_back() {
    let f = Fixture::new().await;
    let id = session(&f, "answer");
    let turns = chain("answer", 2);
    log(&f, id, "answer", &["question"]).await;
    let long = "an answer of many words\n".repeat(50_000);
    let mut answered = batch(id, &turns, &["", &long]);
    let message = &mut answered.messages[1];
    (message.digest, message.parent) = (turns[0], Some(turns[0]));
    answered.messages.remove(0);
    answered.kind = log::Kind::Answered;
    for _ in 0..2 {
        f.store.log(&f.tenant, answered.clone());
    }
    f.store.flush_log().await;
    assert_eq!(page(&f, &own(id), None, ALL).await.unwrap().len(), 2);
    log(&f, id, "answer", &["question", &long]).await;
    let all = page(&f, &own(id), None, ALL).await.unwrap();
    assert_eq!((all.len(), all[1].answered), (2, false));
    assert_eq!(find(&f, &own(id), "many words").await.len(), 1);
    assert_eq!(f.store.sessions(&f.tenant, &own(id)).await.unwrap()[0].messages, 2);
    f.store.sweep_at(0).await;
    let retired = "SELECT count(*) FROM log_messages WHERE whole != 1";
    assert_eq!(sqlx::query_scalar::<_, i64>(retired).fetch_one(&mut f.outsider().await).await.unwrap(), 0);
    let orphans = "SELECT count(*) FROM log_bodies WHERE message NOT IN (SELECT id FROM log_messages)";
    assert_eq!(sqlx::query_scalar::<_, i64>(orphans).fetch_one(&mut f.outsider().await).await.unwrap(), 0);
}

#[tokio::test]
async fn a_message_with_a_hole_is_none_until_it_comes_again() {
    let f = Fixture::new().await;
    let id = session(&f, "hole");
    let (turns, text) = (chain("hole", 1), "words ".repeat(200_000));
    let given = batch(id, &turns, &[&text]);
    let mut db = f.outsider().await;
    let groups = log::write_all_but(&mut db, &f.tenant, &given, 2).await;
    assert!(groups > 4);
    assert!(page(&f, &own(id), None, ALL).await.unwrap().is_empty(), "damaged, were it there");
    f.store.log(&f.tenant, given);
    f.store.flush_log().await;
    let all = page(&f, &own(id), None, ALL).await.unwrap();
    assert!(all.len() == 1 && all[0].text() == text);
}
