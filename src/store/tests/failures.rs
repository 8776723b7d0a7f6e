//! Locked, full, read-only, deleted and damaged files.

use std::time::Instant;

use sqlx::Connection;

use super::*;

#[tokio::test]
async fn who_only_reads_creates_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let error = Store::open_existing(&url(folder.path()), Limits::default()).await.err().unwrap();
    assert!(error.to_string().contains("state.db"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let f = Fixture::new().await;
    Store::open_existing(&f.url(), Limits::default()).await.unwrap();
}

#[tokio::test]
async fn a_locked_file_costs_the_bound_and_nothing_lands_later() {
    let f = Fixture::impatient().await;
    let turns = chain("a", 4);
    let mut outsider = f.outsider().await;
    let lock = outsider.begin_with("BEGIN EXCLUSIVE").await.unwrap();
    let started = Instant::now();
    // The second waits behind the first: its time is up while the writer has it in hand.
    let late = folding(&turns, Level::Trim, "late", Stage::Activated);
    let both = tokio::join!(f.commit(evicting(&turns, "late")), f.commit(late));
    assert_eq!(both, (Err(CommitError::Slow), Err(CommitError::Slow)));
    assert!(started.elapsed() < COMMIT_BOUND * 40, "bounded, with room for a loaded machine");
    assert_eq!(f.store.health(), Health::Up, "a lock is no failure");
    lock.rollback().await.unwrap();
    f.store.flush().await;
    assert_eq!(f.known(&turns).await, Known::default());
    assert_eq!(f.another().await.known(&f.tenant, &turns).await, Known::default());
    f.commit(evicting(&turns, "in time")).await.unwrap();
}

/// Whoever opens it next need not wait for connections that are still about to close: the last one removes the log.
#[tokio::test]
async fn a_closed_store_has_left_its_file() {
    let f = Fixture::new().await;
    let turns = chain("a", 4);
    f.commit(evicting(&turns, "x")).await.unwrap();
    f.store.shared.memory().forget_rows();
    assert_eq!(f.known(&turns).await.evictions.len(), 1, "a reader is connected");
    f.store.close().await;
    let left: Vec<_> = std::fs::read_dir(f.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["state.db"]);
}

/// Another process that has the file to itself for a while, as whoever closes it last does, is waited for.
#[tokio::test]
async fn a_file_that_is_locked_when_it_is_opened_is_waited_for() {
    let f = Fixture::new().await;
    f.commit(evicting(&chain("a", 4), "x")).await.unwrap();
    f.store.close().await;
    let mut outsider = f.outsider().await;
    for pragma in ["PRAGMA locking_mode = EXCLUSIVE", "BEGIN EXCLUSIVE"] {
        sqlx::query(pragma).execute(&mut outsider).await.unwrap();
    }
    let mut opening = Box::pin(f.another());
    let path = file(f.folder.path());
    let tried = sqlite::open_reader(&path);
    let both = futures_util::future::select(&mut opening, Box::pin(tried)).await;
    let futures_util::future::Either::Right((tried, _)) = both else { panic!("opened while locked") };
    assert!(sqlite::is_busy(&tried.unwrap_err()), "as long as the database itself waits");
    outsider.close().await.unwrap();
    assert_eq!(opening.await.health(), Health::Up);
}

#[tokio::test]
async fn a_lock_that_stays_degrades_and_then_costs_nothing() {
    let f = Fixture::impatient().await;
    let mut outsider = f.outsider().await;
    let lock = outsider.begin_with("BEGIN EXCLUSIVE").await.unwrap();
    let turns = chain("a", 2);
    for _ in 0..3 {
        assert_eq!(f.commit(evicting(&turns, "x")).await, Err(CommitError::Slow));
    }
    assert_eq!(f.store.health(), Health::Degraded);
    assert_eq!(f.commit(evicting(&turns, "x")).await, Err(CommitError::Failed));
    lock.rollback().await.unwrap();
    f.store.retry_now().await;
    f.commit(evicting(&turns, "x")).await.unwrap();
}

#[tokio::test]
async fn three_late_lookups_in_a_row_degrade_and_fewer_do_not() {
    let f = Fixture::new().await;
    for _ in 0..3 {
        f.store.shared.found_too_late();
        f.store.shared.found_too_late();
        assert_eq!(f.store.health(), Health::Up);
        assert!(!f.store.shared.is_unreadable());
        f.store.shared.found_in_time();
    }
    (0..3).for_each(|_| f.store.shared.found_too_late());
    assert_eq!(f.store.health(), Health::Degraded);
    f.store.retry_now().await;
    assert_eq!(f.store.health(), Health::Up);
    f.store.shared.found_too_late();
    assert_eq!(f.store.health(), Health::Up, "counted anew");
}

#[tokio::test]
async fn a_commit_given_up_in_its_last_moment_is_undone() {
    let f = Fixture::new().await;
    let turns = chain("a", 4);
    f.commit(folding(&turns, Level::Trim, "prepared", Stage::Prepared)).await.unwrap();
    let mut db = f.outsider().await;
    let ticket = Arc::new(Ticket::default());
    let caller = Arc::clone(&ticket);
    // The hook runs inside COMMIT, when the writer can no longer be stopped.
    let hook = move || {
        caller.give_up();
        true
    };
    db.lock_handle().await.unwrap().set_commit_hook(hook);
    let mut batch = folding(&turns, Level::Trim, "activated", Stage::Activated);
    batch.evictions = evicting(&turns, "late").evictions;
    let packed = commit::prepare(&batch).unwrap();
    let owner = commit::Owner { tenant: &f.tenant, root: &turns[0], now: shared::now() };
    let applied = commit::apply(&mut db, owner, &packed, &ticket).await.unwrap();
    assert!(matches!(applied, commit::Applied::GivenUp));
    let known = f.another().await.known(&f.tenant, &turns).await;
    assert_eq!((known.evictions.len(), known.active), (0, None));
    assert_eq!(head(known.prepared.as_ref()), Some("prepared"), "as it was before");
}

#[tokio::test]
async fn a_commit_given_up_before_is_rolled_back() {
    let f = Fixture::new().await;
    let (turns, mut db) = (chain("a", 4), f.outsider().await);
    let commits = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counted = Arc::clone(&commits);
    let hook = move || counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < u32::MAX;
    db.lock_handle().await.unwrap().set_commit_hook(hook);
    let ticket = Ticket::default();
    assert!(ticket.give_up());
    let packed = commit::prepare(&evicting(&turns, "late")).unwrap();
    let owner = commit::Owner { tenant: &f.tenant, root: &turns[0], now: shared::now() };
    let applied = commit::apply(&mut db, owner, &packed, &ticket).await.unwrap();
    assert!(matches!(applied, commit::Applied::GivenUp));
    assert_eq!(commits.load(std::sync::atomic::Ordering::Relaxed), 0, "not even for a moment");
    assert_eq!(f.another().await.known(&f.tenant, &turns).await, Known::default());
}

/// Makes the writer's next statements fail with the real error of `pragma`.
async fn break_with(f: &Fixture, pragma: &str) {
    let (reply, done) = oneshot::channel();
    f.store.jobs.send(Job::Pragma(pragma.to_owned(), reply)).await.ok().unwrap();
    done.await.unwrap();
}

/// Does not compress, so that it needs pages that are not there.
fn noise() -> String {
    (0..200_000_u64).map(|i| char::from(b'!' + blake3::hash(&i.to_le_bytes()).as_bytes()[0] % 90)).collect()
}

/// A failed write ends its transaction in SQLite, of which its connection does not know.
#[tokio::test]
async fn a_log_that_cannot_be_written_costs_no_commit() {
    let f = Fixture::new().await;
    break_with(&f, "PRAGMA max_page_count = 1").await;
    log_rows::log(&f, log_rows::session(&f, "full"), "full", &[&noise()]).await;
    assert!(f.store.dropped_messages() > 0, "nothing failed");
    f.commit(evicting(&chain("a", 2), "after")).await.unwrap();
    assert_eq!(f.store.health(), Health::Up);
}

/// The same, and lives through it.
async fn survive(pragma: &str) {
    let f = Fixture::new().await;
    let turns = chain("a", 6);
    f.commit(evicting(&turns[..2], "before")).await.unwrap();
    break_with(&f, pragma).await;

    let noise = noise();
    let mut batch = evicting(&turns[..4], "during");
    batch.texts.push(f.store.text_key(&f.tenant).removed(noise));
    assert_eq!(f.commit(batch.clone()).await, Err(CommitError::Failed), "{pragma}");
    assert_eq!(f.store.health(), Health::Degraded);
    assert_eq!(f.commit(batch.clone()).await, Err(CommitError::Failed), "at once now");
    let known = f.known(&turns).await;
    assert!(known.evictions.contains_key(&turns[1]) && known.evictions.len() == 1, "known rewrites go on");
    f.store.hold_in_memory(&f.tenant, &folding(&turns[..5], Level::Fold, "recovered", Stage::Activated));
    assert_eq!(head(f.known(&turns).await.active.as_ref()), Some("recovered"), "recovery runs");

    f.store.retry_now().await;
    assert_eq!(f.store.health(), Health::Up, "the new connection has room again");
    f.commit(batch).await.unwrap();
    let known = f.known(&turns).await;
    assert_eq!((known.evictions.len(), head(known.active.as_ref())), (2, Some("recovered")));
}

#[tokio::test]
async fn a_full_disk_degrades_until_there_is_room() {
    survive("PRAGMA max_page_count = 1").await;
}

#[tokio::test]
async fn a_read_only_file_degrades_until_it_can_be_written() {
    survive("PRAGMA query_only = 1").await;
}

#[tokio::test]
async fn what_cannot_be_opened_says_why_and_serves_degraded() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    std::fs::write(folder.path().join("garbage"), "garbage ".repeat(1_000)).unwrap();
    for (path, says) in
        [("none/state.db", "create it"), ("folder", "cannot create or read"), ("garbage", "cannot be used")]
    {
        let url = format!("sqlite://{}", folder.path().join(path).display());
        let error = Store::open(&url, Limits::default()).await.err().unwrap();
        assert!(error.to_string().contains(says), "{path}: {error}");
        let store = Store::serve(&url, Limits::default()).await.unwrap();
        assert_eq!(store.health(), Health::Degraded);
        let (tenant, turns) = (store.tenant(&[b"key"]), chain("a", 3));
        assert_eq!(store.commit(&tenant, evicting(&turns, "x")).await, Err(CommitError::Failed));
        store.hold_in_memory(&tenant, &evicting(&turns, "held"));
        assert_eq!(store.known(&tenant, &turns).await.evictions.len(), 1);
    }
    assert_eq!(
        std::fs::read(folder.path().join("garbage")).unwrap(),
        "garbage ".repeat(1_000).into_bytes(),
        "untouched"
    );
    for url in ["", "sqlite://", "postgres://host/db", "sqlite://x?mode=ro", "compactproxy.db"] {
        assert!(matches!(Store::serve(url, Limits::default()).await, Err(OpenError::Url(_))), "{url}");
    }
}

#[tokio::test]
async fn a_folder_that_comes_later_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let later = folder.path().join("later");
    let store = Store::serve(&url(&later), Limits::default()).await.unwrap();
    let tenant = store.tenant(&[b"key"]);
    std::fs::create_dir(&later).unwrap();
    store.retry_now().await;
    assert_eq!((store.health(), store.tenant(&[b"key"])), (Health::Up, tenant), "its secret becomes the file's");
    store.commit(&tenant, evicting(&chain("a", 2), "x")).await.unwrap();
}

#[tokio::test]
async fn without_a_file_everything_is_volatile() {
    let store = Store::in_memory_only(Limits::default()).await.unwrap();
    assert_eq!(store.health(), Health::Degraded);
    let (tenant, turns) = (store.tenant(&[b"key"]), chain("a", 3));
    assert_eq!(store.commit(&tenant, evicting(&turns, "x")).await, Err(CommitError::Failed));
    let removed = store.text_key(&tenant).removed("held text".to_owned());
    store.hold_in_memory(&tenant, &Batch { texts: vec![removed.clone()], ..evicting(&turns, "held") });
    store.hold_in_memory(&tenant, &evicting(&turns, "second"));
    store.remember_forwarded(&tenant, &turns, Lasting::Yes);
    let known = store.known(&tenant, &turns).await;
    assert_eq!((known.evictions.get(&turns[2]), known.seen), (Some(&eviction("held")), 3));
    assert_eq!(store.text(&removed.id).await.unwrap().as_deref(), Some("held text"));
    store.close().await;
}

#[tokio::test]
async fn what_could_not_be_read_leaves_the_answer_incomplete() {
    let f = Fixture::new().await;
    let turns = chain("a", 4);
    f.commit(evicting(&turns, "x")).await.unwrap();
    assert!(!f.known(&turns).await.incomplete);
    let store = f.another().await;
    store.shared.set_unreadable();
    let known = store.known(&f.tenant, &turns).await;
    assert!(known.incomplete && known.evictions.is_empty());
    let found = store.overlays(&f.tenant, &turns).await;
    assert!(found.incomplete && found.rows.is_empty());
}
