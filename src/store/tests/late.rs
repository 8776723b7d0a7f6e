//! What went out before it was committed is written as soon as it can be.

use super::*;

/// Of a recovery while another process holds the file.
async fn kept(f: &Fixture, turns: &[Digest], text: &str) -> TextId {
    let removed = f.store.text_key(&f.tenant).removed(text.to_owned());
    let batch = Batch { texts: vec![removed.clone()], ..folding(turns, Level::Fold, "recovered", Stage::Activated) };
    assert_eq!(f.commit(batch.clone()).await, Err(CommitError::Slow));
    f.store.keep(&f.tenant, batch).await;
    removed.id
}

async fn hold(f: &Fixture) -> sqlx::sqlite::SqliteConnection {
    let mut holder = f.outsider().await;
    sqlx::query("PRAGMA query_only = 0").execute(&mut holder).await.unwrap();
    sqlx::query("BEGIN IMMEDIATE").execute(&mut holder).await.unwrap();
    holder
}

async fn let_go(mut holder: sqlx::sqlite::SqliteConnection) {
    sqlx::query("ROLLBACK").execute(&mut holder).await.unwrap();
}

#[tokio::test]
async fn what_could_not_be_committed_is_there_at_once_and_after_a_restart() {
    // The second way is the orderly end.
    for closed in [false, true] {
        let f = Fixture::impatient().await;
        let turns = chain("a", 5);
        let holder = hold(&f).await;
        // More than memory keeps of texts.
        let text = "a line of a long text\n".repeat(600_000);
        assert!(text.len() > Limits::default().volatile_text_bytes);
        let id = kept(&f, &turns, &text).await;
        assert!(f.store.queued() > 0);
        assert!(f.store.text(&id).await.unwrap().as_deref() == Some(&*text), "read back at once");
        let_go(holder).await;
        match closed {
            false => f.store.flush().await,
            true => f.store.close().await,
        }
        let store = f.another().await;
        assert!(store.text(&id).await.unwrap().as_deref() == Some(&*text));
        assert_eq!(head(store.known(&f.tenant, &turns).await.active.as_ref()), Some("recovered"));
        assert_eq!(f.store.queued(), 0);
    }
}

#[tokio::test]
async fn what_was_given_up_before_it_was_written_never_applies() {
    let f = Fixture::impatient().await;
    let turns = chain("a", 5);
    let holder = hold(&f).await;
    kept(&f, &turns, "text").await;
    f.store.quarantine(&f.tenant, &turns[4]);
    let_go(holder).await;
    f.store.flush().await;
    assert_eq!(f.known(&turns).await.active, None);
    assert_eq!(f.another().await.known(&f.tenant, &turns).await.active, None);
}

#[tokio::test]
async fn of_too_much_the_oldest_lasts_no_longer_than_the_process() {
    let f = Fixture::with(Limits { max_late_bytes: 1_500, ..Limits::default() }).await;
    let holder = hold(&f).await;
    let noise = |n: u8| -> String {
        (0..1_000_u32)
            .map(|at| char::from(b'!' + blake3::hash(&[n, at as u8, (at >> 8) as u8]).as_bytes()[0] % 90))
            .collect()
    };
    let mut ids = Vec::new();
    for n in 0..3 {
        let removed = f.store.text_key(&f.tenant).removed(noise(n));
        f.store
            .keep(
                &f.tenant,
                Batch {
                    texts: vec![removed.clone()],
                    ..folding(&chain(&n.to_string(), 3), Level::Fold, "x", Stage::Activated)
                },
            )
            .await;
        ids.push(removed.id);
    }
    for id in &ids {
        assert!(f.store.text(id).await.unwrap().is_some());
    }
    let_go(holder).await;
    f.store.flush().await;
    let store = f.another().await;
    let mut found = Vec::new();
    for id in &ids {
        found.push(store.text(id).await.unwrap().is_some());
    }
    assert_eq!(found, [false, false, true]);
}

/// One batch cannot be written: the others are, in whatever order they came.
#[tokio::test]
async fn at_the_end_each_batch_has_its_try() {
    for failing in 0..3 {
        let f = Fixture::impatient().await;
        let holder = hold(&f).await;
        let all: Vec<Vec<Digest>> = ["a", "b", "c"].iter().map(|name| chain(name, 5)).collect();
        for (turns, text) in all.iter().zip(["one", "two", "three"]) {
            kept(&f, turns, text).await;
        }
        let_go(holder).await;
        let mut other = f.outsider().await;
        let digest: String = all[failing][4].iter().map(|byte| format!("{byte:02x}")).collect();
        let refuse = format!(
            "CREATE TRIGGER refuse BEFORE INSERT ON checkpoints WHEN NEW.digest = x'{digest}' BEGIN SELECT RAISE(ABORT, 'no'); END"
        );
        sqlx::query("PRAGMA query_only = 0").execute(&mut other).await.unwrap();
        sqlx::query(&refuse).execute(&mut other).await.unwrap();
        f.store.close().await;
        let store = f.another().await;
        for (number, turns) in all.iter().enumerate() {
            let found = store.known(&f.tenant, turns).await.active;
            assert_eq!(found.is_some(), number != failing, "{number} where {failing} fails");
        }
    }
}

/// What was late was meant for the file that is gone.
#[tokio::test]
async fn what_is_late_goes_with_a_file_that_is_deleted() {
    let f = Fixture::impatient().await;
    let turns = chain("a", 5);
    let holder = hold(&f).await;
    let id = kept(&f, &turns, "text").await;
    std::fs::remove_file(file(f.folder.path())).unwrap();
    f.store.flush().await;
    assert_eq!(f.store.queued(), 0);
    let_go(holder).await;
    let store = f.another().await;
    assert_eq!((store.text(&id).await, store.known(&f.tenant, &turns).await), (Ok(None), Known::default()));
}

/// Another process has the lock when this one ends, for longer than one try takes.
#[tokio::test]
async fn the_end_waits_for_another_process_that_holds_the_file() {
    let f = Fixture::impatient().await;
    let turns = chain("a", 5);
    let mut third = f.outsider().await;
    let holder = hold(&f).await;
    let id = kept(&f, &turns, "text").await;
    let trying = async {
        // Each of them takes as long as one that fails at the end.
        for _ in 0..2 {
            let busy = sqlx::query("BEGIN IMMEDIATE").execute(&mut third).await;
            assert!(sqlite::is_busy(&busy.unwrap_err()));
        }
        let_go(holder).await;
    };
    tokio::join!(f.store.close(), trying);
    assert!(f.another().await.text(&id).await.unwrap().is_some());
}

/// Between the writing and the word that it was given up, no request may see it.
#[tokio::test]
async fn what_was_given_up_before_it_was_written_applies_at_no_moment() {
    let f = Fixture::impatient().await;
    let turns = chain("a", 5);
    let holder = hold(&f).await;
    kept(&f, &turns, "text").await;
    f.store.quarantine(&f.tenant, &turns[4]);
    let_go(holder).await;
    // As the writer does it, before it says that it is written.
    let batch = folding(&turns, Level::Fold, "recovered", Stage::Activated);
    let packed = commit::prepare(&batch).unwrap();
    let mut db = f.outsider().await;
    sqlx::query("PRAGMA query_only = 0").execute(&mut db).await.unwrap();
    let owner = commit::Owner { tenant: &f.tenant, root: &turns[0], now: now() };
    let applied = commit::apply(&mut db, owner, &packed, &Ticket::default()).await.unwrap();
    let commit::Applied::Committed(rows, ..) = applied else { panic!("not committed") };
    let mut memory = f.store.shared.memory();
    memory.adopt(&f.tenant, &turns[0], rows);
    assert_eq!(memory.known_alone(&f.tenant, &turns).active, None);
}
