//! Writing the log: some groups of pieces a transaction. Each statement is two changes of threads, so that what may go
//! together goes as one.

use std::sync::Arc;

use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection, Row as _};
use tokio::sync::oneshot;

use super::delete::retire;
use super::passages::MOST;
use super::pieces::agent_mark;
use super::{Kind, Message, SessionId};
use crate::store::Tenant;
use crate::store::sqlite::is_busy;
use crate::wire::{Dialect, Digest, Role};

/// What comes to the writer.
pub(in crate::store) enum Written {
    /// For one transaction.
    Groups(Vec<Group>),
    Flush(oneshot::Sender<()>),
}

/// Pieces of one session's messages, in order.
pub(in crate::store) struct Group {
    pub tenant: Tenant,
    pub session: SessionId,
    pub agent: Arc<str>,
    /// Empty where there is no user message.
    pub title: String,
    /// Unix seconds.
    pub now: i64,
    pub pieces: Vec<Piece>,
}

/// A part of one message. Its chunks come first, then its passages, then its end.
pub(in crate::store) enum Piece {
    Chunk { row: Arc<Row>, number: usize, bytes: usize, body: Vec<u8> },
    Passage { row: Arc<Row>, number: usize, bytes: usize, words: Words },
    End(Arc<Row>),
}

/// A message's row.
pub(in crate::store) struct Row {
    pub message: Message,
    pub kind: Kind,
    pub dialect: Dialect,
    /// Of its JSON.
    pub chunks: usize,
    /// Of its text: rows of the index.
    pub passages: usize,
    /// Unix seconds.
    pub time: i64,
}

/// The columns of one row of the index.
#[derive(Default)]
pub(in crate::store) struct Words {
    pub words: String,
    pub parts: String,
}

impl Piece {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Chunk { bytes, .. } | Self::Passage { bytes, .. } => *bytes,
            Self::End(_) => 64,
        }
    }

    fn row(&self) -> &Arc<Row> {
        match self {
            Self::Chunk { row, .. } | Self::Passage { row, .. } | Self::End(row) => row,
        }
    }
}

impl Group {
    /// Messages that end in this group.
    pub(in crate::store) fn messages(&self) -> usize {
        self.pieces.iter().filter(|piece| matches!(piece, Piece::End(_))).count()
    }
}

impl Row {
    /// An answer is kept under a digest that no chain has.
    fn digest(&self) -> Digest {
        match self.kind {
            Kind::Sent => self.message.digest,
            Kind::Answered => self.answer(self.message.number),
        }
    }

    fn answer(&self, number: u32) -> Digest {
        *blake3::keyed_hash(&self.message.digest, &number.to_le_bytes()).as_bytes()
    }

    /// What it follows. An answer's first item follows a message, the others each other.
    fn parent(&self) -> Option<Digest> {
        let of_answer = || (self.kind == Kind::Answered).then(|| self.answer(self.message.number.saturating_sub(1)));
        self.message.parent.or_else(of_answer)
    }

    /// What an answer follows.
    fn after(&self) -> Option<&Digest> {
        (self.kind == Kind::Answered).then_some(&self.message.digest)
    }
}

pub(super) fn role_code(role: Role) -> i64 {
    match role {
        Role::System => 0,
        Role::User => 1,
        Role::Assistant => 2,
        Role::Tool => 3,
        Role::Unknown => 4,
    }
}

pub(super) fn role_of(code: i64) -> Role {
    match code {
        0 => Role::System,
        1 => Role::User,
        2 => Role::Assistant,
        3 => Role::Tool,
        _ => Role::Unknown,
    }
}

pub(super) fn dialect_code(dialect: Dialect) -> i64 {
    match dialect {
        Dialect::Chat => 0,
        Dialect::Responses => 1,
        Dialect::Messages => 2,
    }
}

pub(super) fn dialect_of(code: i64) -> Dialect {
    match code {
        1 => Dialect::Responses,
        2 => Dialect::Messages,
        _ => Dialect::Chat,
    }
}

/// The first row of the index that a message has.
pub(super) fn first_passage(message: i64) -> i64 {
    message * size(MOST)
}

/// The last row of the index that it may have.
pub(super) fn last_passage(message: i64) -> i64 {
    first_passage(message) + size(MOST) - 1
}

/// The message and its passage that a row of the index belongs to.
pub(super) fn of_passage(row: i64) -> (i64, usize) {
    (row.div_euclid(size(MOST)), usize::try_from(row.rem_euclid(size(MOST))).unwrap_or(0))
}

fn size(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What came of groups that were to be written.
#[derive(Debug)]
pub(in crate::store) enum Wrote {
    All,
    Nothing(sqlx::Error),
}

/// Which message is being written.
#[derive(Clone, Copy)]
struct Open {
    id: i64,
    /// It was there whole before: nothing of it is written again.
    old: bool,
}

/// Writes groups, all or none.
///
/// # Errors
/// Where the connection is of no more use: it does not know how its transaction ended.
pub(in crate::store) async fn write(db: &mut SqliteConnection, groups: &[Group]) -> Result<Wrote, sqlx::Error> {
    let mut transaction = match db.begin_with("BEGIN IMMEDIATE").await {
        Ok(transaction) => transaction,
        Err(error) if is_busy(&error) => return Ok(Wrote::Nothing(error)),
        Err(error) => return Err(error),
    };
    for group in groups {
        if let Err(error) = write_group(&mut transaction, group).await {
            // A full disk, for one, has ended the transaction already.
            transaction.rollback().await?;
            return Ok(Wrote::Nothing(error));
        }
    }
    transaction.commit().await?;
    Ok(Wrote::All)
}

async fn write_group(db: &mut SqliteConnection, group: &Group) -> Result<(), sqlx::Error> {
    let log = log(db, group).await?;
    let scope = format!("s{log} {}", agent_mark(&group.tenant, &group.agent));
    let mut open: Option<(Digest, Open)> = None;
    for piece in &group.pieces {
        let digest = piece.row().digest();
        let at = match open {
            Some((of, at)) if of == digest => at,
            _ => message(db, (log, &group.agent), piece).await?,
        };
        open = Some((digest, at));
        if !at.old {
            put(db, log, at.id, (piece, &scope)).await?;
        }
    }
    Ok(())
}

/// The session's number; it is in use now.
async fn log(db: &mut SqliteConnection, group: &Group) -> Result<i64, sqlx::Error> {
    let (tenant, session, agent) = (group.tenant.0.as_slice(), group.session.0.as_slice(), group.agent.as_ref());
    let query = "INSERT INTO logs (tenant, session, agent, title, first_used, last_used, messages, tokens, bytes) \
                 VALUES (?, ?, ?, ?, ?, ?, 0, 0, 0) ON CONFLICT (tenant, session) DO UPDATE SET \
                 last_used = max(last_used, excluded.last_used), \
                 title = CASE title WHEN '' THEN excluded.title ELSE title END; \
                 INSERT OR IGNORE INTO log_agents (log, agent) \
                 SELECT id, ? FROM logs WHERE tenant = ? AND session = ?; \
                 SELECT id FROM logs WHERE tenant = ? AND session = ?";
    let query = sqlx::query(query).bind(tenant).bind(session).bind(agent).bind(group.title.as_str());
    let query = query.bind(group.now).bind(group.now).bind(agent).bind(tenant).bind(session);
    query.bind(tenant).bind(session).fetch_one(db).await?.try_get(0)
}

/// The row of the message that a piece belongs to. The first piece makes it.
async fn message(db: &mut SqliteConnection, owner: (i64, &str), piece: &Piece) -> Result<Open, sqlx::Error> {
    let ((log, _), row) = (owner, piece.row());
    let begins = matches!(piece, Piece::Chunk { number: 0, .. });
    if begins && let Some(id) = insert(db, owner, row).await? {
        return Ok(Open { id, old: false });
    }
    let found = sqlx::query("SELECT id, whole FROM log_messages WHERE log = ? AND digest = ?");
    let found = found.bind(log).bind(row.digest().as_slice()).fetch_optional(&mut *db).await?;
    // Its beginning was swept away meanwhile.
    let Some(found) = found else { return Ok(Open { id: 0, old: true }) };
    let (id, whole): (i64, i64) = (found.try_get(0)?, found.try_get(1)?);
    match (whole != 0, begins, row.kind) {
        (true, true, Kind::Answered) | (false, true, _) => retire(db, log, id).await?,
        (true, _, _) => return Ok(Open { id, old: true }),
        (false, false, _) => return Ok(Open { id, old: false }),
    }
    Ok(insert(db, owner, row).await?.map_or(Open { id: 0, old: true }, |id| Open { id, old: false }))
}

/// Makes a message's row; `None` if there is one.
async fn insert(db: &mut SqliteConnection, (log, agent): (i64, &str), row: &Row) -> Result<Option<i64>, sqlx::Error> {
    let (message, digest) = (&row.message, row.digest());
    let query = "INSERT INTO log_messages (log, digest, parent, after, number, role, agent, dialect, time, tokens, \
                 length, passages, whole) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0) \
                 ON CONFLICT (log, digest) DO NOTHING RETURNING id";
    let query = sqlx::query(query).bind(log).bind(digest.as_slice());
    let query = query.bind(row.parent().map(|parent| parent.to_vec()));
    let query = query.bind(row.after().map(|after| after.as_slice())).bind(i64::from(message.number));
    let query = query.bind(role_code(message.role)).bind(agent).bind(dialect_code(row.dialect)).bind(row.time);
    let query = query.bind(message.tokens.map(i64::from)).bind(size(message.json.len())).bind(size(row.passages));
    query.fetch_optional(db).await?.map(|made| made.try_get(0)).transpose()
}

async fn put(db: &mut SqliteConnection, log: i64, id: i64, (piece, scope): (&Piece, &str)) -> Result<(), sqlx::Error> {
    match piece {
        Piece::Chunk { number, body, .. } => {
            let query = sqlx::query("INSERT OR REPLACE INTO log_bodies (message, number, body) VALUES (?, ?, ?)");
            query.bind(id).bind(size(*number)).bind(body.as_slice()).execute(db).await?;
        }
        Piece::Passage { number, words, .. } => {
            let query = sqlx::query("INSERT INTO log_index (rowid, scope, words, parts) VALUES (?, ?, ?, ?)");
            let query = query.bind(first_passage(id) + size(*number)).bind(scope);
            query.bind(words.words.as_str()).bind(words.parts.as_str()).execute(db).await?;
        }
        Piece::End(row) => end(db, log, id, row).await?,
    }
    Ok(())
}

/// A message is whole if all of it was written: it counts from now on, and in place of the answer that it is. Where
/// a group was lost in between, a later request brings it again.
async fn end(db: &mut SqliteConnection, log: i64, id: i64, row: &Row) -> Result<(), sqlx::Error> {
    let query = "UPDATE log_messages SET whole = 1 WHERE id = ? \
                 AND (SELECT count(*) FROM log_bodies WHERE message = ?) = ? \
                 AND (SELECT count(*) FROM log_index_docsize WHERE id BETWEEN ? AND ?) = ?; \
                 UPDATE logs SET messages = messages + ?, tokens = tokens + ?, bytes = bytes + ? \
                 WHERE id = ? AND changes() = 1";
    let query = sqlx::query(query).bind(id).bind(id).bind(size(row.chunks));
    let query = query.bind(first_passage(id)).bind(last_passage(id)).bind(size(row.passages));
    let query = query.bind(i64::from(row.message.number.min(1)));
    let query = query.bind(i64::from(row.message.tokens.unwrap_or(0))).bind(size(row.message.json.len())).bind(log);
    if query.execute(&mut *db).await?.rows_affected() == 0 {
        return Ok(());
    }
    let sent_back = row.kind == Kind::Sent && row.message.role == Role::Assistant;
    if let (true, Some(parent)) = (sent_back, &row.message.parent) {
        let query = sqlx::query("SELECT id FROM log_messages WHERE log = ? AND after = ?");
        for found in query.bind(log).bind(parent.as_slice()).fetch_all(&mut *db).await? {
            retire(db, log, found.try_get(0)?).await?;
        }
    }
    Ok(())
}
