//! The writer without its loop: what becomes of a part of the log that cannot be written.

use tempfile::TempDir;

use super::*;
use crate::store::Limits;
use crate::store::log::{self, Group, Kind, LogBatch, Message, SessionId, Unfound};
use crate::store::secret::InstallationSecret;
use crate::store::sqlite::Probe;
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
