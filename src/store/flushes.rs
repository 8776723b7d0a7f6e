//! What was said before a summary took its place, waiting to be read for facts: queued together with the summary's
//! activation, each message once.

use std::sync::Arc;

use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;

use super::commit::Owner;
use super::files::{Change, Changed, Keeper};
use super::reader::Query;
use super::texts::{Packer, unpack_text};
use super::{MemoryError, ReadError, Store, Tenant};
use crate::memory::MemoryPath;
use crate::memory::portions::{portions, rest};
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

/// A part of a conversation that waits.
#[derive(Clone, PartialEq, Eq)]
pub struct Flush {
    pub id: i64,
    /// What is still to be read.
    pub text: String,
    /// What was found before `text`, and had no room in a file.
    pub facts: Option<String>,
    /// How often the next piece was tried in vain.
    pub attempts: u32,
}

/// A step forward with a flush: it is made only if nobody has made it before.
pub(super) struct Step {
    flush: i64,
    /// Bytes that waited before, and whether facts did.
    length: i64,
    facts: bool,
    /// What is left, packed, and its bytes.
    rest: (Vec<u8>, i64),
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

    /// Goes on with a flush behind the first `read` bytes of its text, and writes what came of them: both or neither. A
    /// flush of which nothing is left ends; one that has gone on already writes nothing.
    ///
    /// # Errors
    /// As [`append_memory`](Self::append_memory): then it still waits, or has gone on with its text written.
    pub async fn advance_flush(
        &self,
        (tenant, agent): (&Tenant, &str),
        (flush, read): (&Flush, usize),
        to: Option<(MemoryPath, String)>,
    ) -> Changed {
        let flush = Some(step(flush, read)?);
        self.change_memory(tenant, agent, Change::Append { to, flush }).await
    }

    /// Goes on with a flush, and keeps with it what came of the first `read` bytes of its text, until there is room.
    ///
    /// # Errors
    /// [`MemoryError::Unavailable`].
    pub async fn keep_facts(
        &self,
        (tenant, agent): (&Tenant, &str),
        (flush, read): (&Flush, usize),
        facts: String,
    ) -> Changed {
        let flush = step(flush, read)?;
        self.change_memory(tenant, agent, Change::Keep { flush, facts }).await
    }

    /// Puts a flush off until `due` (unix seconds) and counts the attempt.
    ///
    /// # Errors
    /// [`MemoryError::Unavailable`].
    pub async fn delay_flush(&self, (tenant, agent): (&Tenant, &str), flush: i64, due: i64) -> Changed {
        self.change_memory(tenant, agent, Change::Delay { flush, due }).await
    }
}

fn step(flush: &Flush, read: usize) -> Result<Step, MemoryError> {
    let rest = rest(&flush.text, read);
    let body = Packer::new().and_then(|mut packer| packer.pack(rest.as_bytes())).ok_or(MemoryError::Unavailable)?;
    let length = |text: &str| i64::try_from(text.len()).unwrap_or(i64::MAX);
    Ok(Step { flush: flush.id, length: length(&flush.text), facts: flush.facts.is_some(), rest: (body, length(&rest)) })
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
    let parts = portions(&new.join("\n\n"), PART_BYTES);
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

pub(super) async fn waiting(
    db: &mut SqliteConnection,
    keeper: &Keeper,
    now: i64,
) -> Result<Result<Waiting, ReadError>, sqlx::Error> {
    let query = "SELECT id, length, body, attempts, facts FROM flushes WHERE tenant = ? AND agent = ? AND due <= ? ORDER BY id LIMIT 1";
    let query = sqlx::query(query).bind(keeper.tenant.0.as_slice()).bind(&*keeper.agent).bind(now);
    if let Some(row) = query.fetch_optional(&mut *db).await? {
        let (id, attempts): (i64, i64) = (row.try_get(0)?, row.try_get(3)?);
        let text = unpack_text(row.try_get(2)?, row.try_get(1)?);
        let (facts, attempts) = (row.try_get(4)?, u32::try_from(attempts).unwrap_or(u32::MAX));
        return Ok(text.map(|text| Waiting::Due(Flush { id, text, facts, attempts })).map_err(|_| ReadError::Damaged));
    }
    let query = sqlx::query("SELECT min(due) FROM flushes WHERE tenant = ? AND agent = ?");
    let row = query.bind(keeper.tenant.0.as_slice()).bind(&*keeper.agent).fetch_one(db).await?;
    Ok(Ok(row.try_get::<Option<i64>, _>(0)?.map_or(Waiting::Nothing, Waiting::Until)))
}

/// Goes on with a flush, which ends where neither text nor facts are left. False: somebody else has done so already.
pub(super) async fn advance(
    db: &mut SqliteConnection,
    keeper: &Keeper,
    step: &Step,
    facts: Option<&str>,
) -> Result<bool, sqlx::Error> {
    let Step { flush, length, facts: had_facts, rest: (body, left) } = step;
    let query = "UPDATE flushes SET body = ?, length = ?, facts = ?, attempts = 0, due = 0 \
                 WHERE id = ? AND tenant = ? AND agent = ? AND length = ? AND (facts IS NOT NULL) = ?";
    let query = sqlx::query(query).bind(body).bind(left).bind(facts).bind(flush);
    let query = query.bind(keeper.tenant.0.as_slice()).bind(&*keeper.agent).bind(length).bind(had_facts);
    let went_on = query.execute(&mut *db).await?.rows_affected() > 0;
    if went_on && *left == 0 && facts.is_none() {
        sqlx::query("DELETE FROM flushes WHERE id = ?").bind(flush).execute(db).await?;
    }
    Ok(went_on)
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
