//! Caches and queues at their limits, and what never asks the database.

use std::time::Duration;

use futures_util::FutureExt;

use super::*;

#[tokio::test]
async fn a_known_conversation_asks_the_database_nothing() {
    let f = Fixture::new().await;
    let turns = chain("a", 1_000);
    f.commit(evicting(&turns[..500], "x")).await.unwrap();
    let store = f.another().await;
    let known = store.known(&f.tenant, &turns[..998]).await;
    assert_eq!(known.evictions.len(), 1);
    let at_once = store.shared.memory().known(&f.tenant, &turns[..998], Instant::now());
    assert_eq!(at_once.unwrap(), known);
    // All marks are read soon after the opening; from then on new digests are known to be new.
    while store.shared.memory().known(&f.tenant, &turns, Instant::now()).is_err() {
        tokio::task::yield_now().await;
    }
    let unknown = store.shared.memory().known(&f.tenant, &chain("b", 1_000), Instant::now());
    assert_eq!(unknown.unwrap(), Known::default());
}

#[tokio::test]
async fn own_changes_keep_unknown_digests_free() {
    let f = Fixture::new().await;
    let is_free = |name| f.store.shared.memory().known(&f.tenant, &chain(name, 9), Instant::now()).is_ok();
    while !is_free("a") {
        tokio::task::yield_now().await;
    }
    f.commit(evicting(&chain("b", 3), "x")).await.unwrap();
    f.store.remember_forwarded(&f.tenant, &chain("b", 3), Lasting::Yes);
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut f.outsider().await).await.unwrap();
    f.store.flush().await;
    assert!(is_free("c"), "also when somebody copies the log");
    sqlx::query("UPDATE meta SET value = value + 1 WHERE key = 'changes'")
        .execute(&mut f.outsider().await)
        .await
        .unwrap();
    f.store.flush().await;
    while !is_free("d") {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn caches_too_small_for_anything_change_no_answer() {
    let tiny = Limits {
        row_cache_bytes: 1,
        session_cache_bytes: 1,
        volatile_text_bytes: 1,
        max_row_marks: 2,
        max_forwarded_marks: 2,
        ..Limits::default()
    };
    let f = Fixture::with(tiny).await;
    let turns = chain("a", 40);
    for len in 1..=20 {
        f.commit(evicting(&turns[..len], &len.to_string())).await.unwrap();
        f.store.remember_forwarded(&f.tenant, &turns[..len], Lasting::Yes);
    }
    f.known(&turns).await;
    f.commit(folding(&turns[..30], Level::Trim, "active", Stage::Activated)).await.unwrap();
    f.store.flush().await;
    let known = f.known(&turns).await;
    assert_eq!((known.evictions.len(), known.seen, head(known.active.as_ref())), (20, 20, Some("active")));
    assert_eq!(known, f.another().await.known(&f.tenant, &turns).await);
    f.store.quarantine(&f.tenant, &turns[29]);
    assert_eq!(f.known(&turns).await.active, None, "quarantine needs no row in memory");
    f.store.flush().await;
    assert_eq!(f.known(&turns).await.active, None);
}

#[tokio::test]
async fn a_volatile_text_is_kept_up_to_its_cap() {
    let limits = Limits { volatile_text_bytes: 10, ..Limits::default() };
    let store = Store::in_memory_only(limits).await.unwrap();
    let tenant = store.tenant(&[b"key"]);
    for (len, kept) in [(9, true), (10, true), (11, false)] {
        let removed = store.text_key(&tenant).removed("x".repeat(len));
        store.hold_in_memory(&tenant, &Batch { texts: vec![removed.clone()], ..Batch::default() });
        assert_eq!(store.text(&removed.id).await.unwrap().is_some(), kept, "{len} bytes");
    }
}

/// A text of so many bytes that does not compress.
fn noise(bytes: usize) -> String {
    let mut reader = blake3::Hasher::new().finalize_xof();
    let mut raw = vec![0; bytes];
    reader.fill(&mut raw);
    raw.into_iter().map(|byte| char::from(b' ' + byte % 90)).collect()
}

fn removing(f: &Fixture, chain: &[Digest], bytes: usize) -> Batch {
    Batch { texts: vec![f.store.text_key(&f.tenant).removed(noise(bytes))], ..evicting(chain, "x") }
}

/// The only thread that could pack is busy: however long that takes, the bound has not begun.
#[test]
fn packing_a_long_text_does_not_count_against_the_bound() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let bound = std::time::Duration::from_millis(1);
        let f = Fixture::with(Limits { commit_bound: bound, ..patient() }).await;
        let (done, busy) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || busy.recv());
        let turns = chain("a", 2);
        let mut long = std::pin::pin!(f.commit(removing(&f, &turns, PACKED_INLINE + 1)));
        assert!(timeout(bound * 5, &mut long).await.is_err());
        drop(done);
        let _ = busy.await;
        // It had its bound, which a busy machine may miss.
        assert_ne!(long.await, Err(CommitError::Failed));
    });
}

#[tokio::test]
async fn a_heavy_batch_that_is_late_degrades_nothing() {
    use sqlx::Connection;
    let f = Fixture::impatient().await;
    let mut outsider = f.outsider().await;
    let lock = outsider.begin_with("BEGIN EXCLUSIVE").await.unwrap();
    let turns = chain("a", 2);
    for _ in 0..4 {
        assert_eq!(f.commit(removing(&f, &turns, 3 << 20)).await, Err(CommitError::Slow));
        assert_eq!(f.store.health(), Health::Up);
    }
    lock.rollback().await.unwrap();
    f.store.flush().await;
    assert_eq!(f.known(&turns).await, Known::default(), "it goes whole");
    f.store.remember_forwarded(&f.tenant, &turns, Lasting::Yes);
    let patient = f.another().await;
    f.store.flush().await;
    patient.commit(&f.tenant, removing(&f, &turns, 3 << 20)).await.unwrap();
    assert!(patient.known(&f.tenant, &turns).await.evictions.is_empty(), "once, and then for good");
}

#[tokio::test]
async fn who_waits_behind_a_heavy_batch_says_nothing_of_the_store() {
    let f = Fixture::new().await;
    let shared = &f.store.shared;
    shared.writing(commit::Weight::Heavy);
    (0..4).for_each(|_| shared.was_slow(commit::Weight::Light));
    assert_eq!(f.store.health(), Health::Up);
    shared.writing(commit::Weight::Light);
    (0..2).for_each(|_| shared.was_slow(commit::Weight::Light));
    assert_eq!(f.store.health(), Health::Up);
    shared.was_slow(commit::Weight::Light);
    assert_eq!(f.store.health(), Health::Degraded);
}

#[test]
fn a_batch_of_many_texts_is_written_in_statements_of_bounded_size() {
    let key = secret::InstallationSecret::random().unwrap().text_key(&Tenant([1; 16]));
    let sizes = |lengths: &[usize]| -> Vec<usize> {
        let texts = lengths.iter().map(|length| key.removed(noise(*length))).collect();
        let packed = commit::prepare(&Batch { texts, ..Batch::default() }).unwrap();
        packed.statements().map(<[_]>::len).collect()
    };
    assert!(sizes(&[]).is_empty());
    assert_eq!(sizes(&[10; 130]), [64, 64, 2]);
    assert_eq!(sizes(&[3 << 20, 10, 10, 3 << 20, 3 << 20]), [1, 2, 1, 1]);
    assert_eq!(sizes(&[600_000; 5]), [2, 2, 1], "compressed a little");
}

#[test]
fn full_queues_never_block() {
    let secret = secret::InstallationSecret::random().unwrap();
    let shared = Arc::new(Shared::new(Some("unused".into()), Limits::default(), secret.clone()));
    let folder = tempfile::tempdir().unwrap();
    shared.opened(sqlite::files(folder.path()).unwrap(), secret);
    let ((jobs, _jobs), (notes, mut noted)) = (mpsc::channel(1), mpsc::channel(2));
    let ((lookups, _lookups), (texts, _texts)) = (mpsc::channel(1), mpsc::channel(1));
    let (log_in, _given) = mpsc::channel(1);
    let ((log_pages, _pages), (log_searches, _searches)) = (mpsc::channel(1), mpsc::channel(1));
    let store = Store { shared, jobs, notes, lookups, texts, log_in, log_pages, log_searches };
    let tenant = store.tenant(&[b"key"]);
    for name in ["a", "b", "c"] {
        store.remember_forwarded(&tenant, &chain(name, 2), Lasting::Yes);
    }
    assert!(noted.try_recv().is_ok() && noted.try_recv().is_ok() && noted.try_recv().is_err(), "the third was dropped");

    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let turns = chain("d", 3);
        let before = Instant::now();
        // Nobody takes jobs here: the first waits out its bound, the second finds no place.
        let both =
            tokio::join!(store.commit(&tenant, evicting(&turns, "x")), store.commit(&tenant, evicting(&turns, "y")));
        assert_eq!(both, (Err(CommitError::Slow), Err(CommitError::Slow)));
        assert!((COMMIT_BOUND..COMMIT_BOUND * 40).contains(&before.elapsed()));
        // The lookup waits out its bound as well, and the answer is what memory has.
        assert_eq!(store.known(&tenant, &turns).await, Known { incomplete: true, ..Known::default() });
        assert_eq!(store.health(), Health::Up, "one is no failure");
    });
}

/// Who waits for what is added and for rows waits once, however late the store is.
#[tokio::test]
async fn all_that_is_waited_for_patiently_is_waited_for_once() {
    let f = Fixture::new().await;
    let turns = chain("a", 4);
    let added = Overlay { digest: turns[1], kind: OverlayKind::Aside, body: "[]".into(), least: 0 };
    let batch = Batch { overlays: vec![added], ..evicting(&turns, "x") };
    f.another().await.commit(&f.tenant, batch).await.unwrap();
    f.store.flush().await;
    // The readers are kept out.
    let alone = f.store.shared.door.clear().await;
    let until = Until::within(Duration::from_millis(20));
    assert!(f.store.overlays_patiently(until, &f.tenant, &turns).await.incomplete);
    let known = f.store.known_patiently(until, &f.tenant, &turns).now_or_never();
    assert!(known.unwrap().incomplete, "its time is up");
    drop(alone);
    let until = f.store.patience();
    assert_eq!(f.store.known_patiently(until, &f.tenant, &turns).await.evictions.len(), 1);
    assert_eq!(f.store.overlays_patiently(until, &f.tenant, &turns).await.rows.len(), 1);
}
