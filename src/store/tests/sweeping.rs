//! Retention and the size cap.

use super::*;

const DAY: i64 = 24 * 3_600;

async fn with_text(f: &Fixture, name: &str, text: String) -> TextId {
    let removed = f.store.text_key(&f.tenant).removed(text);
    let turns = chain(name, 3);
    f.commit(Batch { texts: vec![removed.clone()], ..evicting(&turns, name) }).await.unwrap();
    removed.id
}

#[tokio::test]
async fn a_session_goes_whole_a_retention_after_its_last_use() {
    let f = Fixture::new().await;
    let (own, shared_text) = (with_text(&f, "a", "own".into()).await, with_text(&f, "a", "shared".into()).await);
    f.commit(folding(&chain("a", 5), Level::Trim, "active", Stage::Activated)).await.unwrap();
    f.store.remember_forwarded(&f.tenant, &chain("a", 5), Lasting::Yes);
    f.store.flush().await;
    let now = shared::now();
    f.store.sweep_at(now + 30 * DAY - 60).await;
    assert!(f.another().await.known(&f.tenant, &chain("a", 5)).await.active.is_some(), "not yet");
    with_text(&f, "b", "shared".into()).await;
    // The second session was used later; the clock of the rows is set back for the first.
    let back =
        sqlx::query("UPDATE sessions SET last_used = last_used - 100 WHERE root = ?").bind(chain("a", 1)[0].to_vec());
    back.execute(&mut f.outsider().await).await.unwrap();
    f.store.sweep_at(now + 30 * DAY - 50).await;
    let store = f.another().await;
    assert_eq!(store.known(&f.tenant, &chain("a", 5)).await, Known::default());
    assert_eq!(store.known(&f.tenant, &chain("b", 3)).await.evictions.len(), 1);
    assert_eq!(f.store.text(&own).await, Ok(None));
    assert_eq!(f.store.text(&shared_text).await.unwrap().as_deref(), Some("shared"), "another session uses it");
    f.store.sweep_at(now + 31 * DAY).await;
    assert_eq!(f.store.text(&shared_text).await, Ok(None));
}

#[tokio::test]
async fn being_looked_up_is_use() {
    let f = Fixture::new().await;
    with_text(&f, "a", "text".into()).await;
    let back = "UPDATE sessions SET last_used = last_used - 1000000";
    sqlx::query(back).execute(&mut f.outsider().await).await.unwrap();
    let store = f.another().await;
    store.known(&f.tenant, &chain("a", 3)).await;
    store.flush().await;
    store.sweep_at(shared::now() + 30 * DAY - 60).await;
    assert_eq!(f.another().await.known(&f.tenant, &chain("a", 3)).await.evictions.len(), 1);
}

#[tokio::test]
async fn a_large_session_goes_in_several_batches() {
    let f = Fixture::new().await;
    let turns = chain("a", 1_200);
    for len in 1..=turns.len() {
        f.store.remember_forwarded(&f.tenant, &turns[..len], Lasting::Yes);
    }
    f.store.flush().await;
    let mut db = f.outsider().await;
    let bounds = retention::Bounds { cutoff: i64::MAX, max_size: u64::MAX, now: 0 };
    let mut batches = 0;
    while retention::sweep(&mut db, bounds).await.unwrap().due == retention::Due::More {
        batches += 1;
    }
    assert_eq!(batches, 3, "500, 500 and 200 with the rest");
    assert_eq!(f.another().await.known(&f.tenant, &turns).await.seen, 0);
}

#[tokio::test]
async fn over_the_size_cap_the_oldest_sessions_go_until_it_fits() {
    let max_size = 1_000_000;
    let f = Fixture::with(Limits { max_size, ..Limits::default() }).await;
    let noise = |seed: u64| -> String {
        (0..120_000_u64)
            .map(|i| char::from(b'!' + blake3::hash(&(i + seed).to_le_bytes()).as_bytes()[0] % 90))
            .collect()
    };
    let mut ids = Vec::new();
    for session in 0..12_u64 {
        ids.push(with_text(&f, &session.to_string(), noise(session * 1_000_000)).await);
        f.store.sweep_at(0).await;
    }
    let mut kept = Vec::new();
    for id in &ids {
        kept.push(f.store.text(id).await.unwrap().is_some());
    }
    let first = kept.iter().position(|kept| *kept).unwrap();
    assert!(first > 0 && kept[first..].iter().all(|kept| *kept), "the oldest are gone, the youngest stay: {kept:?}");
    assert!(kept.len() - first >= 6, "no more than needed: {kept:?}");
    f.store.close().await;
    assert!(std::fs::metadata(file(f.folder.path())).unwrap().len() <= max_size + 300_000, "space is given back");
}

#[tokio::test]
async fn what_was_swept_is_not_replayed_from_memory() {
    let f = Fixture::new().await;
    let id = with_text(&f, "a", "text".into()).await;
    f.commit(folding(&chain("a", 5), Level::Summary, "later", Stage::Prepared)).await.unwrap();
    let known = f.known(&chain("a", 5)).await;
    assert!(known.evictions.len() == 1 && known.prepared.is_some());
    f.store.sweep_at(shared::now() + 31 * DAY).await;
    assert_eq!(f.store.text(&id).await, Ok(None));
    assert_eq!(f.known(&chain("a", 5)).await, Known::default(), "no pointer to a text that is gone");
}

/// A session that is over the size cap by itself loses some of its texts: never one that a row points to.
#[tokio::test]
async fn no_row_outlives_its_text() {
    let f = Fixture::new().await;
    let turns = chain("a", 600);
    let mut batch = Batch { root: turns[0], ..Batch::default() };
    for digest in &turns {
        let removed = f.store.text_key(&f.tenant).removed(format!("{digest:?}"));
        batch.evictions.push((*digest, eviction(&removed.id.to_string())));
        batch.texts.push(removed);
    }
    f.commit(batch).await.unwrap();
    let mut db = f.outsider().await;
    let bounds = retention::Bounds { cutoff: i64::MAX, max_size: u64::MAX, now: 0 };
    let counts = "SELECT (SELECT count(*) FROM evictions), (SELECT count(*) FROM texts)";
    while retention::sweep(&mut db, bounds).await.unwrap().due == retention::Due::More {
        let (rows, texts): (i64, i64) = sqlx::query_as(counts).fetch_one(&mut db).await.unwrap();
        assert!(rows == 0 || texts == 600, "{rows} rows, {texts} texts");
    }
}

/// Nobody asks for it: housekeeping does.
#[tokio::test]
async fn a_database_that_is_too_large_is_swept_by_itself() {
    let f = Fixture::new().await;
    let mut first = None;
    for n in 0..3 {
        let hash = |at: u32| blake3::hash(format!("{n} {at}").as_bytes()).to_hex().to_string();
        let text = with_text(&f, &format!("session {n}"), (0..20_000).map(hash).collect()).await;
        first.get_or_insert(text);
    }
    f.store.flush().await;
    let oldest = first.unwrap();
    assert!(f.store.text(&oldest).await.unwrap().is_some());
    let store = Store::open(&f.url(), Limits { max_size: 1_000_000, ..patient() }).await.unwrap();
    let gone = async { while store.text(&oldest).await != Ok(None) {} };
    tokio::time::timeout(std::time::Duration::from_secs(60), gone).await.unwrap();
}
