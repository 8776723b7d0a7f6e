//! The writer without its loop: what becomes of a part of the log that cannot be written.

use tempfile::TempDir;

use super::*;
use crate::store::log::{self, Group, Kind, LogBatch, Message, SessionId, Unfound};
use crate::store::secret::InstallationSecret;
use crate::store::sqlite::Probe;
use crate::store::{Limits, migrations};
use crate::wire::{Dialect, Role};

const TENANT: Tenant = Tenant([1; 16]);

struct Alone {
    writer: Writer,
    _folder: TempDir,
    _queries: mpsc::Receiver<Query>,
}

impl Alone {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let secret = InstallationSecret::random().unwrap();
        let shared = Arc::new(Shared::new(Some(folder.path().join("state.db")), Limits::default(), secret));
        let (queries, taken) = mpsc::channel(1);
        let mut writer = Writer::new(shared, queries.downgrade());
        writer.open(Probe::None).await.unwrap();
        Self { writer, _folder: folder, _queries: taken }
    }

    /// Writes the message of each of these sessions as one.
    async fn log(&mut self, said: &[&str]) {
        let batches: Vec<LogBatch> = said.iter().map(|text| batch(text)).collect();
        let groups: Vec<Group> = log::given(&self.writer.shared.log, &TENANT, &batches);
        assert_eq!(groups.len(), said.len());
        self.writer.log(Written::Groups(groups)).await;
    }

    async fn run(&mut self, query: &str) {
        let (db, _) = self.writer.db.as_mut().unwrap();
        sqlx::query(query).execute(db).await.unwrap();
    }

    /// Titles of the sessions whose message is there whole.
    async fn written(&mut self) -> Vec<String> {
        let (db, _) = self.writer.db.as_mut().unwrap();
        let query = "SELECT title FROM logs JOIN log_messages ON log = logs.id WHERE whole = 1 ORDER BY logs.id";
        sqlx::query_scalar(query).fetch_all(db).await.unwrap()
    }

    /// Which of these are not given again.
    fn known(&self, said: &[&str]) -> Vec<bool> {
        let shared = &self.writer.shared.log;
        said.iter().map(|text| log::is_known(shared, &TENANT, (&session(text), &digest(text)))).collect()
    }

    /// How often the file was opened.
    fn openings(&self) -> u64 {
        *self.writer.shared.door.calls().borrow()
    }

    fn dropped(&self) -> u64 {
        log::lost(&self.writer.shared.log)
    }
}

fn digest(text: &str) -> Digest {
    *blake3::hash(text.as_bytes()).as_bytes()
}

fn session(text: &str) -> SessionId {
    SessionId(*digest(text).first_chunk().unwrap())
}

/// A session that says nothing but `text`.
fn batch(text: &str) -> LogBatch {
    let message = Message {
        digest: digest(text),
        parent: None,
        number: 1,
        role: Role::User,
        tokens: None,
        json: serde_json::json!({"role": "user", "content": text}).to_string().into(),
        unfound: Unfound::Nothing,
    };
    let (session, agent) = (session(text), "agent".into());
    LogBatch { session, agent, dialect: Dialect::Chat, kind: Kind::Sent, messages: vec![message] }
}

#[tokio::test]
async fn of_messages_that_are_written_as_one_those_are_lost_alone_that_cannot_be_written() {
    let mut alone = Alone::new().await;
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON log_messages \
                  WHEN NEW.log IN (SELECT id FROM logs WHERE title LIKE 'bad%') BEGIN SELECT RAISE(ABORT, 'no'); END";
    alone.run(refuse).await;
    let (said, before) = (["good", "bad", "fine", "bad too", "last"], alone.openings());
    alone.log(&said).await;
    assert_eq!(alone.written().await, ["good", "fine", "last"]);
    assert_eq!(alone.known(&said), [true, false, true, false, true], "what was lost is given again");
    assert_eq!((alone.dropped(), alone.openings()), (2, before), "and the connection is as good as before");
    alone.run("DROP TRIGGER refuse").await;
    alone.log(&["bad", "bad too"]).await;
    assert_eq!(alone.written().await, ["good", "fine", "last", "bad", "bad too"]);
}

/// A full disk ends the transaction in SQLite, of which the connection does not know.
#[tokio::test]
async fn a_connection_of_no_more_use_is_opened_anew_once_for_all_that_is_lost() {
    let mut alone = Alone::new().await;
    alone.log(&["before"]).await;
    alone.run("PRAGMA max_page_count = 1").await;
    let noise = (0..5_000_u32).map(|n| blake3::hash(&n.to_le_bytes()).to_string()).collect::<String>();
    let (large, before) = (noise.get(..40_000).unwrap(), alone.openings());
    alone.log(&["small", large, "small too"]).await;
    assert_eq!((alone.dropped(), alone.openings()), (3, before + 1));
    assert_eq!(alone.known(&["small", "small too"]), [false, false], "what was lost is given again");
    alone.log(&["after"]).await;
    assert_eq!(alone.written().await, ["before", "after"]);
}

/// A file of the version before, with so many messages in it that an index over them takes a while.
async fn old_file(path: &std::path::Path) {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path).create_if_missing(true);
    let mut old = sqlx::ConnectOptions::connect(&options).await.unwrap();
    migrations::migrate_to(&mut old, 8).await.unwrap();
    let fill = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) \
                INSERT INTO log_messages (log, digest, number, role, agent, dialect, time, length, passages, whole) \
                SELECT 1, i, i, 0, 'agent', 0, 0, 0, 0, 1 FROM n";
    sqlx::query(fill).execute(&mut old).await.unwrap();
    sqlx::Connection::close(old).await.unwrap();
}

fn impatient() -> Limits {
    Limits { migration_patience: Duration::ZERO, ..Limits::default() }
}

#[tokio::test]
async fn a_long_migration_goes_on_behind_a_start_that_did_not_wait_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    old_file(&path).await;
    let shared = Arc::new(Shared::new(Some(path.clone()), impatient(), InstallationSecret::random().unwrap()));
    let (queries, _taken) = mpsc::channel(1);
    let mut writer = Writer::new(Arc::clone(&shared), queries.downgrade());
    let (reply, first) = oneshot::channel();
    writer.first = Some(reply);
    {
        let mut opening = std::pin::pin!(writer.open(Probe::None));
        tokio::select! {
            biased;
            begun = first => begun.unwrap().unwrap(),
            opened = &mut opening => panic!("nobody was told before {opened:?}"),
        }
        assert_eq!(shared.health(), crate::store::Health::Degraded, "it serves without");
        opening.await.unwrap();
    }
    assert_eq!(shared.health(), crate::store::Health::Up);
    let (db, _) = writer.db.as_mut().unwrap();
    let newest: i64 = sqlx::query_scalar("SELECT max(version) FROM _sqlx_migrations").fetch_one(db).await.unwrap();
    assert_eq!(newest, migrations::newest());
}

#[tokio::test]
async fn a_command_waits_for_a_long_migration_and_a_start_comes_to_it_in_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let url = |name: &str| format!("sqlite://{}", folder.path().join(name).display());
    for name in ["a.db", "b.db"] {
        old_file(&folder.path().join(name)).await;
    }
    let command = crate::store::Store::open(&url("a.db"), impatient()).await.unwrap();
    assert_eq!(command.health(), crate::store::Health::Up);
    let serving = crate::store::Store::serve(&url("b.db"), impatient()).await.unwrap();
    serving.flush().await;
    assert_eq!(serving.health(), crate::store::Health::Up, "what is asked of the writer waits for the file");
}

/// The lock of another process is no migration that gets on.
#[tokio::test]
async fn a_file_that_another_process_holds_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    old_file(&path).await;
    let mut other = crate::store::sqlite::open_reader(&path).await.unwrap();
    sqlx::query("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let shared = Arc::new(Shared::new(Some(path), Limits::default(), InstallationSecret::random().unwrap()));
    let (queries, _taken) = mpsc::channel(1);
    let mut writer = Writer::new(Arc::clone(&shared), queries.downgrade());
    let refused = writer.open(Probe::None).await.unwrap_err();
    assert!(matches!(&refused, OpenError::Schema { .. } | OpenError::Database { .. }), "{refused}");
    assert_eq!(shared.health(), crate::store::Health::Degraded);
    sqlx::query("ROLLBACK").execute(&mut other).await.unwrap();
    writer.open(Probe::None).await.unwrap();
    assert_eq!(shared.health(), crate::store::Health::Up);
}

/// Nothing that an opening does has the bound anew.
#[tokio::test]
async fn an_opening_whose_time_is_up_is_over_whatever_it_waits_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let secret = || InstallationSecret::random().unwrap();
    let (queries, _taken) = mpsc::channel(1);
    let mut first =
        Writer::new(Arc::new(Shared::new(Some(path.clone()), Limits::default(), secret())), queries.downgrade());
    first.open(Probe::None).await.unwrap();
    let mut writer =
        Writer::new(Arc::new(Shared::new(Some(path.clone()), Limits::default(), secret())), queries.downgrade());
    let mut other = crate::store::sqlite::open_reader(&path).await.unwrap();
    for lock in ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"] {
        sqlx::query(lock).execute(&mut other).await.unwrap();
        let before = Instant::now();
        let over = writer.open_until(Probe::Room, before).await.unwrap_err();
        assert!(over.is_busy() || matches!(over, OpenError::Slow(_)), "{lock}: {over}");
        assert!(before.elapsed() < OPEN_BOUND, "{lock}");
        sqlx::query("ROLLBACK").execute(&mut other).await.unwrap();
    }
    writer.open(Probe::Room).await.unwrap();
}

#[test]
fn what_gives_no_sign_for_as_long_as_an_opening_may_take_is_given_up() {
    let long_ago = Instant::now().checked_sub(2 * OPEN_BOUND).unwrap();
    let last = |millis| Arc::new(std::sync::atomic::AtomicU64::new(millis));
    let silent = |millis| opening::Signs { begun: long_ago, last: last(millis) }.are_missing();
    assert!(silent(0) && silent(4_000));
    assert!(!silent(9_000));
}
