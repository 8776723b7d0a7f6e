//! What goes when: whole sessions from their last use on, and the oldest first when the file is too
//! large. In small batches, between which commits come through.

use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection, Row as _};

use super::learned::EXPIRY_SECONDS;
use super::log;

/// Sessions in one batch.
const SESSIONS_PER_BATCH: usize = 8;
/// Rows of one table that one batch deletes of one session.
const ROWS_PER_BATCH: i64 = 500;
/// Texts that one batch deletes of one session: they may be large.
const TEXTS_PER_BATCH: i64 = 16;
/// Free pages given back to the file system after a batch.
const PAGES_PER_BATCH: u32 = 256;

/// What must go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Sessions last used before this go; unix seconds.
    pub(super) cutoff: i64,
    /// Bytes that the database may hold.
    pub(super) max_size: u64,
    /// Unix seconds.
    pub(super) now: i64,
}

/// Whether another batch is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    More,
    Nothing,
}

/// What one batch removed.
#[derive(Clone, Debug)]
pub(super) struct Swept {
    pub(super) due: Due,
    /// Some of a session, rows before the texts that they point to.
    pub(super) of_session: bool,
    /// Sessions whose log went, or begins to go.
    pub(super) logs: Vec<log::SessionId>,
}

/// Removes one batch.
pub(super) async fn sweep(db: &mut SqliteConnection, bounds: Bounds) -> Result<Swept, sqlx::Error> {
    let too_large = used_bytes(db).await? > bounds.max_size;
    // A file that is too large gives up its oldest session, however young that is.
    let (cutoff, sessions) = if too_large { (i64::MAX, 1) } else { (bounds.cutoff, SESSIONS_PER_BATCH) };
    let mut transaction = db.begin_with("BEGIN IMMEDIATE").await?;
    let due = log::delete_retired(&mut transaction).await?;
    let mut swept = Swept { due, of_session: false, logs: Vec::new() };
    for _ in 0..sessions {
        let oldest = "SELECT id, 0, last_used FROM sessions WHERE last_used < ?1 \
                      UNION ALL SELECT id, 1, last_used FROM logs WHERE last_used < ?1 ORDER BY 3, 2, 1 LIMIT 1";
        let oldest = sqlx::query(oldest).bind(cutoff).fetch_optional(&mut *transaction).await?;
        let Some(oldest) = oldest else { break };
        swept.due = Due::More;
        let left = match oldest.try_get::<i64, _>(1)? {
            0 => {
                swept.of_session = true;
                delete_some(&mut transaction, oldest.try_get(0)?).await?
            }
            _ => {
                let log = oldest.try_get(0)?;
                swept.logs.extend(log::detach(&mut transaction, log).await?);
                log::delete_log(&mut transaction, log).await?
            }
        };
        if left == Due::More {
            break;
        }
    }
    let expired = sqlx::query("DELETE FROM learned WHERE learned_at <= ?").bind(bounds.now - EXPIRY_SECONDS);
    expired.execute(&mut *transaction).await?;
    transaction.commit().await?;
    sqlx::query(&format!("PRAGMA incremental_vacuum({PAGES_PER_BATCH})")).execute(db).await?;
    Ok(swept)
}

/// Deletes a session, or as much of it as a batch may: texts only when no row is left that points to them.
async fn delete_some(db: &mut SqliteConnection, session: i64) -> Result<Due, sqlx::Error> {
    let forwarded = "DELETE FROM forwarded WHERE (tenant, digest) IN \
                     (SELECT tenant, digest FROM forwarded WHERE session = ?1 LIMIT ?2)";
    let of = |table: &str| {
        format!("DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE session = ?1 LIMIT ?2)")
    };
    // A text goes with the last session that used it.
    let texts = "DELETE FROM texts WHERE id IN (SELECT text FROM session_texts WHERE session = ?1 LIMIT ?2) AND NOT EXISTS \
                 (SELECT 1 FROM session_texts WHERE text = texts.id AND session != ?1)";
    let links = "DELETE FROM session_texts WHERE (session, text) IN \
                 (SELECT session, text FROM session_texts WHERE session = ?1 LIMIT ?2)";
    let rows = [
        (forwarded, ROWS_PER_BATCH),
        (&of("evictions"), ROWS_PER_BATCH),
        (&of("checkpoints"), ROWS_PER_BATCH),
        (&of("overlays"), ROWS_PER_BATCH),
        (&of("flushes"), TEXTS_PER_BATCH),
        (&of("flushed"), ROWS_PER_BATCH),
    ];
    for (statement, limit) in rows {
        if delete(db, statement, session, limit).await? == Due::More {
            return Ok(Due::More);
        }
    }
    delete(db, texts, session, TEXTS_PER_BATCH).await?;
    if delete(db, links, session, TEXTS_PER_BATCH).await? == Due::More {
        return Ok(Due::More);
    }
    sqlx::query("DELETE FROM sessions WHERE id = ?").bind(session).execute(db).await?;
    Ok(Due::Nothing)
}

/// Deletes at most `limit` rows of a session; more may be left if it were that many.
async fn delete(db: &mut SqliteConnection, statement: &str, session: i64, limit: i64) -> Result<Due, sqlx::Error> {
    let deleted = sqlx::query(statement).bind(session).bind(limit).execute(db).await?;
    let full = i64::try_from(deleted.rows_affected()).unwrap_or(i64::MAX) >= limit;
    Ok(if full { Due::More } else { Due::Nothing })
}

/// Bytes of the pages in use.
pub(super) async fn used_bytes(db: &mut SqliteConnection) -> Result<u64, sqlx::Error> {
    let query = "SELECT (page_count - freelist_count) * page_size \
                 FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()";
    let bytes: i64 = sqlx::query(query).fetch_one(db).await?.try_get(0)?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}
