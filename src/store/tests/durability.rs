//! What a restart, a kill or an older program leaves.

use std::os::unix::fs::PermissionsExt;

use sqlx::ConnectOptions;
use sqlx::Connection;
use sqlx::sqlite::SqliteConnectOptions;

use super::*;

#[tokio::test]
async fn of_a_window_what_is_not_told_is_kept_as_it_is_known() {
    let f = Fixture::new().await;
    let key = WindowKey { tenant: &f.tenant, upstream: "u", path: "p", model: "m", betas: "" };
    for (input, total, known) in [
        (Some(8_000), None, (Some(8_000), None)),
        (None, Some(10_000), (Some(8_000), Some(10_000))),
        (None, Some(6_000), (None, Some(6_000))),
        (Some(5_000), None, (Some(5_000), Some(6_000))),
        (Some(9_000), None, (Some(9_000), None)),
    ] {
        f.store.learn_window(&key, LearnedWindow { input, total });
        let window = f.store.window(&key).unwrap();
        assert_eq!((window.input, window.total), known);
    }
}

#[tokio::test]
async fn a_restart_gives_the_same() {
    let f = Fixture::new().await;
    let turns = chain("a", 700);
    for len in [5, 300, 650] {
        f.commit(evicting(&turns[..len], &format!("evicted {len}"))).await.unwrap();
    }
    f.commit(folding(&turns[..400], Level::Summary, "active", Stage::Activated)).await.unwrap();
    f.commit(folding(&turns[..600], Level::Fold, "prepared", Stage::Prepared)).await.unwrap();
    f.store.remember_forwarded(&f.tenant, &turns[..690], Lasting::Yes);
    f.store.learn_calibration(&f.tenant, "openai", "gpt", 1.5);
    let key = WindowKey { tenant: &f.tenant, upstream: "openai", path: "/v1", model: "gpt", betas: "" };
    let window = LearnedWindow { input: Some(8_192), total: None };
    f.store.learn_window(&key, window);
    let removed = f.store.text_key(&f.tenant).removed("removed".to_owned());
    f.commit(Batch { root: turns[0], texts: vec![removed.clone()], ..Batch::default() }).await.unwrap();
    let before = f.known(&turns).await;
    assert_eq!((before.evictions.len(), before.seen), (3, 690));
    f.store.close().await;
    assert_eq!(f.commit(evicting(&turns, "x")).await, Err(CommitError::Failed), "closed");

    let store = f.another().await;
    assert_eq!(store.tenant(&[b"openai", b"key"]), f.tenant, "the secret is kept");
    assert_eq!(store.known(&f.tenant, &turns).await, before);
    assert_eq!(store.text(&removed.id).await.unwrap().as_deref(), Some("removed"));
    assert_eq!(store.calibration(&f.tenant, "openai", "gpt"), Some(1.5));
    assert_eq!(store.window(&key), Some(window));
}

#[tokio::test]
async fn a_kill_loses_nothing_that_was_committed() {
    let f = Fixture::new().await;
    let turns = chain("a", 4);
    f.commit(folding(&turns, Level::Trim, "kept", Stage::Activated)).await.unwrap();
    f.store.remember_forwarded(&f.tenant, &turns, Lasting::Yes);
    // The writer's files as a kill at this moment leaves them.
    let copy = tempfile::tempdir().unwrap();
    for suffix in ["", "-wal"] {
        let name = format!("state.db{suffix}");
        std::fs::copy(f.folder.path().join(&name), copy.path().join(&name)).unwrap();
    }
    let store = Store::open(&url(copy.path()), Limits::default()).await.unwrap();
    let known = store.known(&f.tenant, &turns).await;
    assert_eq!(head(known.active.as_ref()), Some("kept"));
    assert!(known.seen == 0 || known.seen == 4, "what is written behind may be lost");
}

#[tokio::test]
async fn nobody_else_may_read_the_files() {
    let f = Fixture::new().await;
    f.commit(evicting(&chain("a", 2), "x")).await.unwrap();
    for suffix in ["", "-wal", "-shm"] {
        let file = f.folder.path().join(format!("state.db{suffix}"));
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "{file:?}");
    }
    f.store.close().await;
    std::fs::set_permissions(file(f.folder.path()), PermissionsExt::from_mode(0o644)).unwrap();
    f.another().await;
    assert_eq!(std::fs::metadata(file(f.folder.path())).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn rows_of_version_1_stay_readable() {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteConnectOptions::new().filename(file(folder.path())).create_if_missing(true);
    let mut old = options.connect().await.unwrap();
    migrations::migrate_to(&mut old, 1).await.unwrap();
    let secret = secret::InstallationSecret::random().unwrap();
    let put = sqlx::query("INSERT INTO meta (key, value) VALUES ('secret', ?)").bind(secret.as_bytes());
    put.execute(&mut old).await.unwrap();
    let (tenant, turns) = (secret.tenant(&[b"openai", b"key"]), chain("a", 3));
    let mut batch = evicting(&turns, "old");
    batch.texts.push(secret.text_key(&tenant).removed("old text".to_owned()));
    let owner = commit::Owner { tenant: &tenant, root: &turns[0], now: shared::now() };
    let packed = commit::prepare(&batch).unwrap();
    commit::apply(&mut old, owner, &packed, &Ticket::default()).await.unwrap();
    old.close().await.unwrap();

    let store = Store::open(&url(folder.path()), Limits::default()).await.unwrap();
    assert_eq!(store.tenant(&[b"openai", b"key"]), tenant);
    assert_eq!(store.known(&tenant, &turns).await.evictions.get(&turns[2]), Some(&eviction("old")));
    assert_eq!(store.text(&batch.texts[0].id).await.unwrap().as_deref(), Some("old text"));
    store.flush().await;
    assert!(store.may_cover(0), "how small a body its rows apply to was not written down");
    store.learn_calibration(&tenant, "openai", "gpt", 1.5);
    store.flush().await;
    assert_eq!(store.health(), Health::Up, "the new version's table is there");
}

/// Tokens before and after that stand in a row.
fn counted(before: u64) -> Change {
    Change { before, after: 1 }
}

/// Waits until all marks are read.
async fn ready(store: &Store) {
    while store.may_cover(0) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_least_body_with_a_row_is_known_after_a_restart_and_to_others() {
    let f = Fixture::new().await;
    ready(&f.store).await;
    assert!(!f.store.may_cover(1 << 40), "nothing is stored");
    let other = f.another().await;
    let mut batch = evicting(&chain("a", 2), "x");
    batch.evictions[0].1 = Arc::new(Eviction { replacements: Vec::new(), tokens: counted(5_004) });
    f.commit(batch).await.unwrap();
    assert!(f.store.may_cover(5_000) && !f.store.may_cover(4_999));
    let mut folding = folding(&chain("b", 3), Level::Fold, "x", Stage::Prepared);
    let prepared = folding.checkpoint.as_mut().unwrap();
    prepared.1 = Arc::new(Checkpoint { tokens: counted(3_000), ..(*prepared.1).clone() });
    f.commit(folding).await.unwrap();
    assert!(f.store.may_cover(3_000) && !f.store.may_cover(2_999));
    // Another process's rows may be anything until they were looked at.
    other.flush().await;
    ready(&other).await;
    assert!(other.may_cover(3_000) && !other.may_cover(2_999));
    f.store.close().await;
    let again = f.another().await;
    ready(&again).await;
    assert!(again.may_cover(3_000) && !again.may_cover(2_999));
}

#[tokio::test]
async fn what_recovery_holds_without_a_database_counts_too() {
    let store = Store::in_memory_only(Limits::default()).await.unwrap();
    assert!(!store.may_cover(1 << 40));
    let mut batch = folding(&chain("a", 3), Level::Fold, "x", Stage::Activated);
    let held = batch.checkpoint.as_mut().unwrap();
    held.1 = Arc::new(Checkpoint { tokens: counted(700), ..(*held.1).clone() });
    store.hold_in_memory(&store.tenant(&[b"a"]), &batch);
    assert!(store.may_cover(700) && !store.may_cover(699));
}

#[tokio::test]
async fn only_what_is_to_last_is_written() {
    let f = Fixture::new().await;
    let (short, long) = (chain("short", 3), chain("long", 3));
    f.store.remember_forwarded(&f.tenant, &short, Lasting::No);
    f.store.remember_forwarded(&f.tenant, &long, Lasting::Yes);
    assert_eq!((f.known(&short).await.seen, f.known(&long).await.seen), (3, 3));
    f.store.close().await;
    let again = f.another().await;
    assert_eq!((again.known(&f.tenant, &short).await.seen, again.known(&f.tenant, &long).await.seen), (0, 3));
}

#[tokio::test]
async fn a_newer_programs_file_is_refused_with_a_reason() {
    let f = Fixture::new().await;
    f.store.close().await;
    let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                 VALUES (99, 'later', 1, x'00', 0)";
    sqlx::query(newer).execute(&mut f.outsider().await).await.unwrap();
    let error = Store::open(&f.url(), Limits::default()).await.err().unwrap();
    assert!(error.to_string().contains("newer compactproxy (schema version 99)"), "{error}");
    assert_eq!(Store::serve(&f.url(), Limits::default()).await.unwrap().health(), Health::Degraded);
}
