//! Taking messages out of the log: in small batches, however long they are.

use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;

use super::SessionId;
use super::write::{first_passage, last_passage};
use crate::store::retention::Due;

/// Rows of a message's JSON, and of the index, that one batch deletes.
pub(super) const CHUNKS_PER_BATCH: i64 = 16;
pub(super) const PASSAGES_PER_BATCH: i64 = 256;
/// Messages that one batch deletes.
const MESSAGES_PER_BATCH: i64 = 64;
/// About how many bytes of short messages it deletes.
const BYTES_PER_BATCH: i64 = 1 << 20;

/// Takes a message out of its session: it is seen no more, and counts no more. What one batch does not delete of it
/// is left to the sweep.
pub(super) async fn retire(db: &mut SqliteConnection, log: i64, id: i64) -> Result<(), sqlx::Error> {
    let query = "UPDATE logs SET (messages, tokens, bytes) = (SELECT logs.messages - 1, \
                 logs.tokens - coalesce(m.tokens, 0), logs.bytes - m.length FROM log_messages m WHERE m.id = ?2) \
                 WHERE id = ?1 AND EXISTS (SELECT 1 FROM log_messages WHERE id = ?2 AND whole = 1)";
    sqlx::query(query).bind(log).bind(id).execute(&mut *db).await?;
    if delete_some(db, id).await? == Due::More {
        // Its digest is free for what comes in its place.
        let query = "UPDATE log_messages SET whole = 2, digest = CAST('retired ' || id AS BLOB), parent = NULL, \
                     after = NULL WHERE id = ?";
        sqlx::query(query).bind(id).execute(db).await?;
    }
    Ok(())
}

/// Deletes a message, or as much of it as a batch may.
async fn delete_some(db: &mut SqliteConnection, id: i64) -> Result<Due, sqlx::Error> {
    let chunks = "DELETE FROM log_bodies WHERE (message, number) IN \
                  (SELECT message, number FROM log_bodies WHERE message = ? LIMIT ?)";
    let chunks = sqlx::query(chunks).bind(id).bind(CHUNKS_PER_BATCH).execute(&mut *db).await?;
    let passages = "DELETE FROM log_index WHERE rowid IN \
                    (SELECT id FROM log_index_docsize WHERE id BETWEEN ? AND ? LIMIT ?)";
    let passages = sqlx::query(passages).bind(first_passage(id)).bind(last_passage(id)).bind(PASSAGES_PER_BATCH);
    let passages = passages.execute(&mut *db).await?;
    let most = |deleted: u64, most: i64| i64::try_from(deleted).is_ok_and(|deleted| deleted >= most);
    if most(chunks.rows_affected(), CHUNKS_PER_BATCH) || most(passages.rows_affected(), PASSAGES_PER_BATCH) {
        return Ok(Due::More);
    }
    sqlx::query("DELETE FROM log_messages WHERE id = ?").bind(id).execute(db).await?;
    Ok(Due::Nothing)
}

/// Deletes some of what was taken out before.
pub(in crate::store) async fn delete_retired(db: &mut SqliteConnection) -> Result<Due, sqlx::Error> {
    let query = sqlx::query("SELECT id FROM log_messages WHERE whole = 2 LIMIT 1");
    match query.fetch_optional(&mut *db).await? {
        Some(row) => {
            delete_some(db, row.try_get(0)?).await?;
            Ok(Due::More)
        }
        None => Ok(Due::Nothing),
    }
}

/// Takes a whole log from its session, before any of it is deleted: it is seen no more, and what the session says from
/// now on begins another. `None`: it was taken before.
pub(in crate::store) async fn detach(db: &mut SqliteConnection, log: i64) -> Result<Option<SessionId>, sqlx::Error> {
    let query = sqlx::query("SELECT session FROM logs WHERE id = ?").bind(log);
    let row = query.fetch_one(&mut *db).await?;
    let Ok(session) = row.try_get::<&[u8], _>(0)?.try_into().map(SessionId) else { return Ok(None) };
    // No session's id is that long.
    let query = "UPDATE logs SET session = CAST('the log that goes ' || id AS BLOB), messages = 0, tokens = 0, bytes = 0, \
                 last_used = ?2 WHERE id = ?1";
    // Of all that goes it goes first: nobody reads it.
    sqlx::query(query).bind(log).bind(i64::MIN).execute(db).await?;
    Ok(Some(session))
}

/// Deletes a session's log, or as much of it as a batch may.
pub(in crate::store) async fn delete_log(db: &mut SqliteConnection, log: i64) -> Result<Due, sqlx::Error> {
    let query = sqlx::query("SELECT id, length FROM log_messages WHERE log = ? LIMIT ?");
    let (mut messages, mut bytes) = (0, 0);
    for row in query.bind(log).bind(MESSAGES_PER_BATCH).fetch_all(&mut *db).await? {
        if bytes >= BYTES_PER_BATCH || delete_some(db, row.try_get(0)?).await? == Due::More {
            return Ok(Due::More);
        }
        (messages, bytes) = (messages + 1, bytes + row.try_get::<i64, _>(1)?);
    }
    if messages == MESSAGES_PER_BATCH {
        return Ok(Due::More);
    }
    for table in ["DELETE FROM log_agents WHERE log = ?", "DELETE FROM logs WHERE id = ?"] {
        sqlx::query(table).bind(log).execute(&mut *db).await?;
    }
    Ok(Due::Nothing)
}
