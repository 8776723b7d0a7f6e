//! A store that shows what serving would do, and leaves the file as it is.

use super::log_rows;
use super::*;

/// All that is in the file.
async fn dump(f: &Fixture) -> Vec<(String, i64)> {
    let mut db = f.outsider().await;
    let tables: Vec<String> =
        sqlx::query_scalar("SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'")
            .fetch_all(&mut db)
            .await
            .unwrap();
    let mut all = Vec::new();
    for table in tables {
        let count = format!("SELECT count(*) FROM {table}");
        all.push((table, sqlx::query_scalar(&count).fetch_one(&mut db).await.unwrap()));
    }
    let used = "SELECT coalesce(max(last_used), 0) FROM sessions";
    all.push(("last use".to_owned(), sqlx::query_scalar(used).fetch_one(&mut db).await.unwrap()));
    all
}

#[tokio::test]
async fn what_is_committed_is_in_force_here_and_nowhere_else() {
    let f = Fixture::new().await;
    let (turns, new) = (chain("a", 4), chain("b", 4));
    f.commit(evicting(&turns[..2], "before")).await.unwrap();
    log_rows::log(&f, log_rows::session(&f, "log"), "log", &["said"]).await;
    sqlx::query("UPDATE sessions SET last_used = 1").execute(&mut f.outsider().await).await.unwrap();
    f.store.flush().await;
    let before = dump(&f).await;

    let store = Store::rehearse(&f.url(), patient()).await.unwrap();
    assert_eq!((store.health(), store.tenant(&[b"openai", b"key"])), (Health::Up, f.tenant));
    assert_eq!(store.known(&f.tenant, &turns).await.evictions.len(), 1, "what is there is in force");
    for turns in [&turns, &new] {
        store.commit(&f.tenant, folding(turns, Level::Fold, "rehearsed", Stage::Activated)).await.unwrap();
        assert_eq!(head(store.known(&f.tenant, turns).await.active.as_ref()), Some("rehearsed"));
        store.remember_forwarded(&f.tenant, turns, Lasting::Yes);
    }
    store.flush().await;
    store.close().await;
    assert_eq!(dump(&f).await, before);
    assert_eq!(f.another().await.known(&f.tenant, &new).await, Known::default());
}

#[tokio::test]
async fn what_is_not_there_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::rehearse(&url(folder.path()), patient()).await.unwrap();
    let (tenant, turns) = (store.tenant(&[b"key"]), chain("a", 2));
    assert_eq!(store.health(), Health::Up);
    store.commit(&tenant, evicting(&turns, "x")).await.unwrap();
    assert_eq!(store.known(&tenant, &turns).await.evictions.len(), 1);
    store.close().await;
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    assert!(Store::rehearse(&url(&folder.path().join("none")), patient()).await.is_err(), "serving could not either");
    let f = Fixture::new().await;
    sqlx::query("DELETE FROM _sqlx_migrations WHERE version > 3").execute(&mut f.outsider().await).await.unwrap();
    let error = Store::rehearse(&f.url(), patient()).await.err().unwrap();
    assert!(error.to_string().contains("older compactproxy (schema version 3)"), "{error}");
}
