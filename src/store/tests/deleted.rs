//! A state file, or its log, that is deleted or replaced under the store. Nothing here is about time: whoever waits
//! waits as long as it takes.

use futures_util::FutureExt;

use super::sqlite::{Files, Probe};
use super::*;

async fn commit(f: &Fixture, batch: Batch) -> Result<(), CommitError> {
    let ((reply, answer), ticket) = (oneshot::channel(), Arc::new(Ticket::default()));
    let packed = Box::new(commit::prepare(&batch).unwrap());
    f.store.jobs.send(Job::Commit { tenant: f.tenant, packed, ticket, reply }).await.ok().unwrap();
    answer.await.unwrap()
}

/// Waits until the reader of texts has done what it was asked for before.
async fn texts_are_idle(f: &Fixture) {
    let (reply, answer) = oneshot::channel();
    f.store.texts.send(Query::Seen { tenant: f.tenant, reply }).await.ok().unwrap();
    answer.await.unwrap().unwrap();
}

/// Rows that are found through the reader of rows.
async fn rows(f: &Fixture, chain: &[Digest]) -> Result<memory::Loaded, ReadError> {
    let (reply, answer) = oneshot::channel();
    let query = Query::Rows { tenant: f.tenant, digests: chain.to_vec(), reply };
    f.store.lookups.send(query).await.ok().unwrap();
    answer.await.unwrap()
}

/// Evictions and checkpoints in the file, as another process sees them.
async fn stored(f: &Fixture) -> (i64, i64) {
    let counts = "SELECT (SELECT count(*) FROM evictions), (SELECT count(*) FROM checkpoints)";
    sqlx::query_as(counts).fetch_one(&mut f.outsider().await).await.unwrap()
}

#[tokio::test]
async fn whatever_is_deleted_in_whatever_order_the_next_commit_lands() {
    let orders: [&[&str]; 6] =
        [&[""], &["", "-shm", "-wal"], &["-wal", "-shm", ""], &["-wal"], &["-shm"], &["-wal", "-shm"]];
    for (suffixes, connected) in orders.into_iter().flat_map(|order| [(order, true), (order, false)]) {
        let f = Fixture::new().await;
        let turns = chain("a", 4);
        commit(&f, evicting(&turns[..2], "before")).await.unwrap();
        texts_are_idle(&f).await;
        if connected {
            rows(&f, &turns).await.unwrap();
        }
        for suffix in suffixes {
            // Housekeeping may have noticed already, and closed them.
            let _ = std::fs::remove_file(f.folder.path().join(format!("state.db{suffix}")));
        }
        let what = format!("{suffixes:?} {connected}");
        commit(&f, folding(&turns[..3], Level::Trim, "after", Stage::Activated)).await.expect(&what);
        assert_eq!(f.store.health(), Health::Up, "{what}");
        let before = i64::from(!suffixes.contains(&""));
        assert_eq!(stored(&f).await, (before, 1), "{what}: what lies at the path has it");
        rows(&f, &turns).await.unwrap();
        let known = f.store.shared.memory().known_alone(&f.tenant, &turns);
        let remembered = usize::from(before == 1);
        assert_eq!(
            (known.evictions.len(), head(known.active.as_ref())),
            (remembered, Some("after")),
            "{what}: memory is as valid as the texts"
        );
        assert_eq!(f.another().await.tenant(&[b"openai", b"key"]), f.tenant, "{what}: the secret moved along");
    }
}

/// Nobody need wait for the next look of housekeeping.
#[tokio::test]
async fn nothing_is_replayed_that_points_into_a_file_that_is_gone() {
    let f = Fixture::new().await;
    let turns = chain("a", 4);
    f.commit(evicting(&turns, "before")).await.unwrap();
    assert_eq!(f.known(&turns).await.evictions.len(), 1);
    // What is still to be written of it was true of the file that is gone.
    f.store.remember_forwarded(&f.tenant, &turns, Lasting::Yes);
    std::fs::remove_file(file(f.folder.path())).unwrap();
    assert_eq!(f.known(&turns).await, Known::default());
    f.commit(evicting(&turns, "again")).await.unwrap();
    f.store.flush().await;
    assert_eq!((stored(&f).await, f.known(&turns).await.seen), ((1, 0), 0));
}

/// A file that is replaced is gone as well; one that is there costs no wait. The writer need not have seen it: neither
/// memory nor a reader that is still connected to it says what was in it.
#[tokio::test]
async fn what_points_into_a_file_that_is_gone_is_forgotten_however_late_the_writer_is() {
    let parts = Parts::new().await;
    let mut reader = parts.reader();
    reader.db().await.unwrap();
    let other = parts.folder.path().join("other");
    std::fs::write(&other, "").unwrap();
    std::fs::rename(&other, file(parts.folder.path())).unwrap();
    assert!(matches!(reader.db().await, Err(sqlx::Error::PoolClosed)), "it was connected");

    let f = Fixture::new().await;
    let turns = chain("a", 4);
    f.commit(evicting(&turns, "before")).await.unwrap();
    texts_are_idle(&f).await;
    assert_eq!(f.known(&turns).now_or_never().expect("no wait").evictions.len(), 1);
    std::fs::remove_file(file(f.folder.path())).unwrap();
    assert!(f.known(&turns).now_or_never().is_none(), "the writer is asked");
    assert_eq!(f.store.shared.memory().known_alone(&f.tenant, &turns), Known::default());
}

/// Until the writer has opened it anew, nobody goes on without what is known.
#[tokio::test]
async fn rows_are_waited_for_while_the_file_is_opened_anew() {
    let f = Fixture::new().await;
    let turns = chain("a", 4);
    commit(&f, evicting(&turns, "x")).await.unwrap();
    f.store.shared.memory().forget_rows();
    std::fs::remove_file(f.folder.path().join("state.db-wal")).unwrap();
    let known = f.known(&turns).await;
    assert_eq!((known.evictions.len(), known.incomplete), (1, false));
}

/// Logs beside a file that is new are those of another that is gone.
#[tokio::test]
async fn logs_of_a_deleted_file_are_not_taken_for_the_new_ones() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("state.db-shm");
    std::fs::write(&index, "of another").unwrap();
    let in_use = std::fs::File::open(&index).unwrap();
    let store = Store::open(&url(folder.path()), Limits::default()).await.unwrap();
    assert_ne!(std::fs::metadata(&index).unwrap().ino(), in_use.metadata().unwrap().ino());
    store.close().await;
}

/// A store without its thread: what readers and writer do happens here, in the order of the test.
struct Parts {
    shared: Arc<Shared>,
    folder: TempDir,
    _writer: sqlx::sqlite::SqliteConnection,
}

impl Parts {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let secret = secret::InstallationSecret::random().unwrap();
        let shared = Arc::new(Shared::new(Some(file(folder.path())), Limits::default(), secret.clone()));
        let path = file(folder.path());
        let mut connected = sqlite::connect(&path).await.unwrap();
        sqlite::bring_up(&path, &mut connected.db).await.unwrap();
        let opened = sqlite::make_ready(&path, connected, &secret, Probe::None).await.unwrap();
        shared.opened(opened.files, opened.secret);
        Self { shared, folder, _writer: opened.db }
    }

    fn reader(&self) -> reader::Reader {
        reader::Reader::new(Arc::clone(&self.shared))
    }

    fn files(&self) -> Option<Files> {
        sqlite::files(&file(self.folder.path()))
    }
}

#[tokio::test]
async fn a_reader_opens_nothing_but_what_the_writer_has_opened() {
    let parts = Parts::new().await;
    parts.reader().db().await.unwrap();
    let other = Parts::new().await;
    for suffix in ["", "-wal", "-shm"] {
        let name = format!("state.db{suffix}");
        std::fs::rename(other.folder.path().join(&name), parts.folder.path().join(&name)).unwrap();
        assert!(matches!(parts.reader().db().await, Err(sqlx::Error::PoolClosed)), "another's {name}");
    }
    std::fs::remove_file(file(parts.folder.path())).unwrap();
    assert!(matches!(parts.reader().db().await, Err(sqlx::Error::PoolClosed)), "nothing");
    assert_eq!((parts.files(), parts.shared.health()), (None, Health::Up), "the writer will see");
    assert!(!parts.shared.is_unreadable());
}

#[tokio::test]
async fn the_writer_opens_when_the_readers_have_left_and_they_return_behind_it() {
    let parts = Parts::new().await;
    let (mut reader, mut calls) = (parts.reader(), parts.shared.door.calls());
    reader.db().await.unwrap();
    let mut clearing = Box::pin(parts.shared.door.clear());
    assert!((&mut clearing).now_or_never().is_none(), "one is connected");
    assert!(calls.changed().now_or_never().is_some(), "it is asked to leave");
    reader.leave().await;
    let alone = clearing.await;
    assert!(reader.db().now_or_never().is_none(), "not while the writer opens");
    drop(alone);
    reader.db().await.unwrap();
}

/// A process that closes any handle on a file gives up all its locks on it, and another process that comes and goes
/// takes the log along.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn opening_a_file_that_is_in_use_gives_up_no_lock() {
    use std::os::unix::fs::MetadataExt;
    let f = Fixture::new().await;
    commit(&f, evicting(&chain("a", 2), "x")).await.unwrap();
    let inode = format!(":{} ", std::fs::metadata(file(f.folder.path())).unwrap().ino());
    let locks = || std::fs::read_to_string("/proc/locks").map(|all| all.lines().filter(|l| l.contains(&inode)).count());
    let Ok(before) = locks() else { return eprintln!("note: this system shows no locks") };
    assert!(before > 0);
    let other = f.another().await;
    assert!(locks().unwrap() > 0);
    drop(other);
}
