//! What was said before a summary took its place, waiting to be read for facts: queued together with the summary's
//! activation, each message once.

use std::sync::Arc;

use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;

use super::commit::Owner;
use super::files::{Change, Changed, Keeper};
use super::reader::Query;
use super::texts::{Packer, unpack_text};
use super::{ReadError, Store, Tenant};
use crate::memory::MemoryPath;
use crate::wire::Digest;

/// Bytes of one flush: with its frame it fits into the window of any model that is worth asking.
const PART_BYTES: usize = 48 << 10;
/// Flushes that one activation queues; what goes beyond is left out, the oldest first.
const MAX_PARTS: usize = 64;

/// What user and model said in the messages that a summary replaces, in order.
#[derive(Clone)]
pub struct Said {
    pub agent: Arc<str>,
    /// The chain digest at a message, and its text. Those that were queued before are not queued again.
    pub messages: Vec<(Digest, String)>,
}

/// A piece of a conversation that waits.
#[derive(Clone, PartialEq, Eq)]
pub struct Flush {
    pub id: i64,
    pub text: String,
    /// How often it was tried in vain.
    pub attempts: u32,
}

/// What an agent's flushes say.
#[derive(Clone, PartialEq, Eq)]
pub enum Waiting {
    Nothing,
    /// Not before this moment; unix seconds.
    Until(i64),
    Due(Flush),
}

impl Store {
    /// The agent's oldest flush that is due at `now` (unix seconds).
    ///
    /// # Errors
    /// If the database does not answer in time or the text is damaged.
    pub async fn waiting_flush(&self, tenant: &Tenant, agent: &str, now: i64) -> Result<Waiting, ReadError> {
        let keeper = Keeper { tenant: *tenant, agent: agent.into() };
        self.query(|reply| Query::Flush { keeper, now, reply }).await
    }

    /// Ends a flush, and writes what came of it: both or neither. A flush that has ended already writes nothing.
    ///
    /// # Errors
    /// As [`append_memory`](Self::append_memory): then it still waits, or has ended with its text written.
    pub async fn finish_flush(
        &self,
        (tenant, agent): (&Tenant, &str),
        flush: i64,
        to: Option<(MemoryPath, String)>,
    ) -> Changed {
        self.change_memory(tenant, agent, Change::Append { to, flush: Some(flush) }).await
    }

    /// Puts a flush off until `due` (unix seconds) and counts the attempt.
    ///
    /// # Errors
    /// [`MemoryError::Unavailable`](super::MemoryError::Unavailable).
    pub async fn delay_flush(&self, (tenant, agent): (&Tenant, &str), flush: i64, due: i64) -> Changed {
        self.change_memory(tenant, agent, Change::Delay { flush, due }).await
    }
}

/// Queues the messages that were not queued before.
pub(super) async fn queue(
    db: &mut SqliteConnection,
    owner: Owner<'_>,
    session: i64,
    said: &Said,
) -> Result<(), sqlx::Error> {
    let mut new = Vec::new();
    for (digest, text) in &said.messages {
        let query = "INSERT OR IGNORE INTO flushed (tenant, agent, digest, session) VALUES (?, ?, ?, ?)";
        let query = sqlx::query(query).bind(owner.tenant.0.as_slice()).bind(&*said.agent).bind(digest.as_slice());
        if query.bind(session).execute(&mut *db).await?.rows_affected() > 0 {
            new.push(text.as_str());
        }
    }
    let parts = parts(&new);
    let skipped = parts.len().saturating_sub(MAX_PARTS);
    if skipped > 0 {
        tracing::warn!(skipped, "a conversation is too long to be read whole for memory");
    }
    for part in parts.iter().skip(skipped) {
        // What does not pack (memory is out) is not worth losing the summary for.
        let Some(body) = Packer::new().and_then(|mut packer| packer.pack(part.as_bytes())) else { continue };
        let query =
            "INSERT INTO flushes (tenant, agent, session, length, body, attempts, due) VALUES (?, ?, ?, ?, ?, 0, 0)";
        let query = sqlx::query(query).bind(owner.tenant.0.as_slice()).bind(&*said.agent).bind(session);
        query.bind(i64::try_from(part.len()).unwrap_or(i64::MAX)).bind(body).execute(&mut *db).await?;
    }
    Ok(())
}

/// Messages joined to parts of [`PART_BYTES`]; a longer message is a part by itself.
fn parts(texts: &[&str]) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for text in texts {
        match parts.last_mut() {
            Some(part) if part.len() + text.len() + 2 <= PART_BYTES => {
                part.push_str("\n\n");
                part.push_str(text);
            }
            _ => parts.push((*text).to_owned()),
        }
    }
    parts
}

pub(super) async fn waiting(
    db: &mut SqliteConnection,
    keeper: &Keeper,
    now: i64,
) -> Result<Result<Waiting, ReadError>, sqlx::Error> {
    let query = "SELECT id, length, body, attempts FROM flushes WHERE tenant = ? AND agent = ? AND due <= ? ORDER BY id LIMIT 1";
    let query = sqlx::query(query).bind(keeper.tenant.0.as_slice()).bind(&*keeper.agent).bind(now);
    if let Some(row) = query.fetch_optional(&mut *db).await? {
        let (id, attempts): (i64, i64) = (row.try_get(0)?, row.try_get(3)?);
        let text = unpack_text(row.try_get(2)?, row.try_get(1)?);
        let attempts = u32::try_from(attempts).unwrap_or(u32::MAX);
        return Ok(text.map(|text| Waiting::Due(Flush { id, text, attempts })).map_err(|_| ReadError::Damaged));
    }
    let query = sqlx::query("SELECT min(due) FROM flushes WHERE tenant = ? AND agent = ?");
    let row = query.bind(keeper.tenant.0.as_slice()).bind(&*keeper.agent).fetch_one(db).await?;
    Ok(Ok(row.try_get::<Option<i64>, _>(0)?.map_or(Waiting::Nothing, Waiting::Until)))
}

/// Ends a flush. False: it had ended already.
pub(super) async fn finish(db: &mut SqliteConnection, keeper: &Keeper, flush: i64) -> Result<bool, sqlx::Error> {
    let query = sqlx::query("DELETE FROM flushes WHERE id = ? AND tenant = ? AND agent = ?");
    let query = query.bind(flush).bind(keeper.tenant.0.as_slice()).bind(&*keeper.agent);
    Ok(query.execute(db).await?.rows_affected() > 0)
}

pub(super) async fn delay(
    db: &mut SqliteConnection,
    keeper: &Keeper,
    (flush, due): (i64, i64),
) -> Result<u64, sqlx::Error> {
    let query = "UPDATE flushes SET attempts = attempts + 1, due = ? WHERE id = ? AND tenant = ? AND agent = ?";
    let query = sqlx::query(query).bind(due).bind(flush).bind(keeper.tenant.0.as_slice()).bind(&*keeper.agent);
    Ok(query.execute(db).await?.rows_affected())
}
