//! What a batch leaves behind, and who wins.

use super::*;

#[tokio::test]
async fn rows_apply_where_their_digest_is_in_the_chain() {
    let f = Fixture::new().await;
    let turns = chain("a", 6);
    f.commit(evicting(&turns[..3], "evicted")).await.unwrap();
    assert!(f.known(&turns[..2]).await.evictions.is_empty());
    assert_eq!(f.known(&turns).await.evictions.get(&turns[2]), Some(&eviction("evicted")));
    assert!(f.known(&chain("b", 6)).await.evictions.is_empty());
    let mut fork = turns[..2].to_vec();
    fork.extend(chain("fork", 4));
    assert_eq!(f.known(&fork).await, Known::default(), "an edited history has other digests");
}

#[tokio::test]
async fn the_longest_activated_checkpoint_applies_and_a_longer_prepared_one_waits() {
    let f = Fixture::new().await;
    let turns = chain("a", 9);
    f.commit(folding(&turns[..3], Level::Trim, "first", Stage::Activated)).await.unwrap();
    f.commit(folding(&turns[..6], Level::Trim, "second", Stage::Activated)).await.unwrap();
    f.commit(folding(&turns[..5], Level::Summary, "shorter", Stage::Prepared)).await.unwrap();
    let known = f.known(&turns).await;
    assert_eq!((head(known.active.as_ref()), head(known.prepared.as_ref())), (Some("second"), None));
    assert_eq!(head(f.known(&turns[..5]).await.active.as_ref()), Some("first"), "a rewound history");
    f.commit(folding(&turns[..8], Level::Summary, "longer", Stage::Prepared)).await.unwrap();
    assert_eq!(head(f.known(&turns).await.prepared.as_ref()), Some("longer"));
    f.commit(folding(&turns[..8], Level::Summary, "longer", Stage::Activated)).await.unwrap();
    let known = f.known(&turns).await;
    assert_eq!((head(known.active.as_ref()), known.prepared), (Some("longer"), None), "activation flips the state");
}

#[tokio::test]
async fn at_one_digest_the_deepest_level_applies() {
    let f = Fixture::new().await;
    let turns = chain("a", 4);
    f.commit(folding(&turns, Level::Fold, "fold", Stage::Activated)).await.unwrap();
    f.commit(folding(&turns, Level::Trim, "trim", Stage::Activated)).await.unwrap();
    assert_eq!(head(f.known(&turns).await.active.as_ref()), Some("fold"));
    f.store.quarantine(&f.tenant, &turns[3]);
    assert_eq!(head(f.known(&turns).await.active.as_ref()), Some("trim"));
}

#[tokio::test]
async fn the_first_writer_wins() {
    let f = Fixture::new().await;
    let other = f.another().await;
    let turns = chain("a", 4);
    let batch = |text| Batch {
        evictions: evicting(&turns, text).evictions,
        ..folding(&turns, Level::Trim, text, Stage::Activated)
    };
    assert_eq!(other.known(&f.tenant, &turns).await, Known::default(), "it has looked before");
    f.commit(batch("first")).await.unwrap();
    other.commit(&f.tenant, batch("second")).await.unwrap();
    for store in [&f.store, &other, &f.another().await] {
        let known = store.known(&f.tenant, &turns).await;
        assert_eq!(head(known.active.as_ref()), Some("first"));
        assert_eq!(known.evictions.get(&turns[3]), Some(&eviction("first")));
    }
}

#[tokio::test]
async fn what_another_process_writes_is_found() {
    let f = Fixture::new().await;
    let other = f.another().await;
    let turns = chain("a", 4);
    f.known(&turns).await;
    other.commit(&f.tenant, evicting(&turns, "theirs")).await.unwrap();
    other.remember_forwarded(&f.tenant, &turns, Lasting::Yes);
    other.close().await;
    // Looks at the file, as every tick does.
    f.store.flush().await;
    let known = f.known(&turns).await;
    assert_eq!(known.seen, 4);
    assert_eq!(known.evictions.get(&turns[3]), Some(&eviction("theirs")));
}

#[tokio::test]
async fn what_went_whole_stays_whole() {
    let f = Fixture::new().await;
    let turns = chain("a", 4);
    f.store.remember_forwarded(&f.tenant, &turns, Lasting::Yes);
    f.commit(evicting(&turns, "too late")).await.unwrap();
    assert!(f.known(&turns).await.evictions.is_empty(), "from memory");
    f.store.flush().await;
    let other = f.another().await;
    other.commit(&f.tenant, evicting(&turns, "too late")).await.unwrap();
    let known = other.known(&f.tenant, &turns).await;
    assert_eq!((known.evictions.len(), known.seen), (0, 4), "and from the file");
}

#[tokio::test]
async fn the_longest_forwarded_prefix_is_seen() {
    let f = Fixture::new().await;
    let turns = chain("a", 9);
    assert_eq!(f.known(&turns[..3]).await.seen, 0);
    f.store.remember_forwarded(&f.tenant, &turns[..3], Lasting::Yes);
    assert_eq!(f.known(&turns[..3]).await.seen, 3, "a retry");
    assert_eq!(f.known(&turns).await.seen, 3);
    f.store.remember_forwarded(&f.tenant, &turns[..5], Lasting::Yes);
    assert_eq!(f.known(&turns).await.seen, 5, "also for a longer chain that was looked up before");
    assert_eq!(f.known(&turns[..4]).await.seen, 3, "rewound");
}

#[tokio::test]
async fn a_quarantined_checkpoint_never_applies_again() {
    let f = Fixture::new().await;
    let turns = chain("a", 4);
    let batch = || folding(&turns, Level::Trim, "refused", Stage::Activated);
    f.commit(batch()).await.unwrap();
    assert!(f.known(&turns).await.active.is_some());
    f.store.quarantine(&f.tenant, &turns[3]);
    assert_eq!(f.known(&turns).await.active, None);
    f.commit(batch()).await.unwrap();
    assert_eq!(f.known(&turns).await.active, None, "not by another activation either");
    let again = f.another().await.known(&f.tenant, &turns).await;
    assert_eq!(again.active, None, "nor after a restart");
    for known in [f.known(&turns).await, again] {
        assert_eq!(known.refused, [(4, Level::Trim)], "planning knows, and proposes another");
    }
    assert_eq!(f.known(&turns[..3]).await.refused, []);
}

#[tokio::test]
async fn writing_a_text_that_exists_is_success() {
    let f = Fixture::new().await;
    let removed = f.store.text_key(&f.tenant).removed("line\r\n\u{1F600}\0".repeat(1_000));
    let batch = |name| Batch { root: chain(name, 1)[0], texts: vec![removed.clone()], ..Batch::default() };
    f.commit(batch("a")).await.unwrap();
    f.commit(batch("b")).await.unwrap();
    assert_eq!(f.store.text(&removed.id).await.unwrap().as_deref(), Some(removed.text.as_str()));
    assert_eq!(f.store.text(&TextId([9; 16])).await, Ok(None));
}

#[tokio::test]
async fn it_works_from_runtimes_on_other_threads() {
    let f = Fixture::new().await;
    let work = |number: usize| {
        let (store, tenant) = (Arc::clone(&f.store), f.tenant);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let turns = chain(&format!("thread {number}"), 3);
                store.commit(&tenant, evicting(&turns, "x")).await.unwrap();
                store.known(&tenant, &turns).await.evictions.len()
            })
        })
    };
    let threads: Vec<_> = (0..4).map(work).collect();
    assert!(threads.into_iter().all(|thread| thread.join().unwrap() == 1));
}

/// What is remembered is bounded, what is there is not: else a long conversation would change with every request.
#[tokio::test]
async fn all_of_a_conversation_is_found_however_little_of_it_is_remembered() {
    let f = Fixture::with(Limits { overlay_cache_bytes: 4_000, ..patient() }).await;
    let turns = chain("long", 9);
    let body = |n: usize| n.to_string().repeat(if n == 5 { 9_000 } else { 1_000 });
    for (n, digest) in turns.iter().enumerate() {
        let aside = Overlay { digest: *digest, kind: OverlayKind::Aside, body: body(n).into(), least: 0 };
        f.commit(Batch { root: turns[0], overlays: vec![aside], ..Batch::default() }).await.unwrap();
    }
    for store in [Arc::clone(&f.store), f.another().await, Arc::clone(&f.store)] {
        for _ in 0..3 {
            let found = store.overlays(&f.tenant, &turns).await;
            let bodies: Vec<String> = found.rows.iter().map(|row| row.body.to_string()).collect();
            assert!(bodies == (0..9).map(body).collect::<Vec<_>>() && !found.incomplete, "{} of 9", bodies.len());
        }
    }
}

#[tokio::test]
async fn of_many_answers_to_one_history_those_in_use_stay() {
    let f = Fixture::new().await;
    let store = &f.store;
    let aside =
        |n: usize| Overlay { digest: [7; 32], kind: OverlayKind::Aside, body: format!("{n:02}").into(), least: 0 };
    let put = async |n: usize| {
        let batch = Batch { root: [7; 32], overlays: vec![aside(n)], ..Batch::default() };
        f.commit(batch).await.unwrap();
    };
    for n in 0..16 {
        put(n).await;
    }
    assert_eq!(store.overlays(&f.tenant, &[[7; 32]]).await.rows.len(), 16);
    store.used_overlay(&f.tenant, &aside(0));
    store.flush().await;
    for n in 16..20 {
        put(n).await;
    }
    put(19).await;
    let kept = store.overlays(&f.tenant, &[[7; 32]]).await.rows;
    let kept: Vec<String> = kept.iter().map(|overlay| overlay.body.to_string()).collect();
    let expected: Vec<String> = std::iter::once(0).chain(5..20).map(|n| format!("{n:02}")).collect();
    assert_eq!(kept, expected, "the oldest of the others have gone");
}
