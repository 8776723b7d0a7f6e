//! Memory files: rows by tenant, agent and path, written at once and read on a reader's connection. They belong to
//! no session and do not expire, but count in the database's size.

pub(super) mod sizes;

use std::sync::Arc;

use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Connection, Row as _};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::flushes::Step;
use super::reader::Query;
use super::texts::{Packer, unpack_text};
use super::writer::Job;
use super::{ReadError, Store, Tenant, flushes};
use crate::memory::{Day, MemoryFile, MemoryPath};

/// Most bytes of one memory file.
pub const MAX_FILE_BYTES: usize = 256 << 10;
/// Most bytes of all memory files of a tenant.
pub const MAX_TENANT_BYTES: usize = 16 << 20;
/// Most memory files of a tenant.
pub const MAX_TENANT_FILES: usize = 4_096;
/// Most bytes of an agent's name.
pub const MAX_AGENT_BYTES: usize = 128;

/// A memory file's name and size, for those who may see all tenants'.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryEntry {
    pub tenant: Tenant,
    pub agent: String,
    pub path: MemoryPath,
    pub bytes: usize,
    pub updated: i64,
}

/// A change that did not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    #[error("the store does not answer, is read-only or full")]
    Unavailable,
    #[error("the stored file is damaged")]
    Damaged,
    #[error("the file has changed since it was read")]
    Stale,
    #[error("a memory file has at most {MAX_FILE_BYTES} bytes")]
    FileFull,
    #[error("all memory files of a tenant have at most {MAX_TENANT_BYTES} bytes, in {MAX_TENANT_FILES} files")]
    TenantFull,
    #[error("an agent's name has 1 to {MAX_AGENT_BYTES} bytes")]
    Agent,
}

/// What takes a file's place.
#[derive(Clone)]
pub struct Rewrite {
    pub content: String,
    /// The version that the file has to have; 0: there must be none.
    pub expected: u64,
    /// Day's files, and how many of their bytes the content has taken in.
    pub merged: Vec<(MemoryPath, usize)>,
}

/// Whose files are meant.
#[derive(Debug, Clone)]
pub(super) struct Keeper {
    pub(super) tenant: Tenant,
    pub(super) agent: Arc<str>,
}

/// One change, in one transaction.
pub(super) enum Change {
    /// Adds to a file, as what came of a step with a flush where there is one: only if that is still to be made.
    Append { to: Option<(MemoryPath, String)>, flush: Option<Step> },
    /// Makes a step with a flush, and keeps with it what came of it.
    Keep { flush: Step, facts: String },
    /// Writes a file anew.
    Replace { path: MemoryPath, rewrite: Rewrite },
    /// Puts a flush off until `due` (unix seconds).
    Delay { flush: i64, due: i64 },
    /// Moves the files of earlier days to the archive.
    Archive { before: Day },
}

pub(super) type Changed = Result<u64, MemoryError>;

impl Store {
    /// All memory files of an agent, `MEMORY.md` first, then days in order.
    ///
    /// # Errors
    /// If the database does not answer within [`TEXT_BOUND`](super::TEXT_BOUND) or a file is damaged.
    pub async fn memory_files(&self, tenant: &Tenant, agent: &str) -> Result<Vec<MemoryFile>, ReadError> {
        self.read_files(tenant, agent, None).await
    }

    /// One memory file; `None` if there is none.
    ///
    /// # Errors
    /// As [`memory_files`](Self::memory_files).
    pub async fn memory_file(
        &self,
        tenant: &Tenant,
        agent: &str,
        path: MemoryPath,
    ) -> Result<Option<MemoryFile>, ReadError> {
        Ok(self.read_files(tenant, agent, Some(path)).await?.pop())
    }

    async fn read_files(
        &self,
        tenant: &Tenant,
        agent: &str,
        path: Option<MemoryPath>,
    ) -> Result<Vec<MemoryFile>, ReadError> {
        let keeper = Keeper { tenant: *tenant, agent: agent.into() };
        self.query(|reply| Query::Files { keeper, path, reply }).await
    }

    /// Names and sizes of all memory files, of all tenants: for the operator.
    ///
    /// # Errors
    /// If the database does not answer within [`TEXT_BOUND`](super::TEXT_BOUND).
    pub async fn memory_entries(&self) -> Result<Vec<MemoryEntry>, ReadError> {
        self.query(|reply| Query::Entries { reply }).await
    }

    pub(super) async fn query<T>(
        &self,
        query: impl FnOnce(oneshot::Sender<Result<T, ReadError>>) -> Query,
    ) -> Result<T, ReadError> {
        if self.shared.path.is_none() {
            return Err(ReadError::Unavailable);
        }
        let (reply, answer) = oneshot::channel();
        self.texts.try_send(query(reply)).map_err(|_| ReadError::Unavailable)?;
        let answer = timeout(self.shared.limits.text_bound(), answer).await.map_err(|_| ReadError::Unavailable)?;
        answer.unwrap_or(Err(ReadError::Unavailable))
    }

    /// Adds `content` to the end of a file, which is made if there is none. Gives its new version.
    ///
    /// # Errors
    /// The limits, and [`MemoryError::Unavailable`], after which it may have been written all the same.
    pub async fn append_memory(&self, tenant: &Tenant, agent: &str, path: MemoryPath, content: &str) -> Changed {
        let change = Change::Append { to: Some((path, content.to_owned())), flush: None };
        self.change_memory(tenant, agent, change).await
    }

    /// Writes a file anew if it is still as expected; the content before is kept beside it. Gives the new version.
    ///
    /// # Errors
    /// As [`append_memory`](Self::append_memory), and [`MemoryError::Stale`].
    pub async fn replace_memory(&self, tenant: &Tenant, agent: &str, path: MemoryPath, rewrite: Rewrite) -> Changed {
        self.change_memory(tenant, agent, Change::Replace { path, rewrite }).await
    }

    /// Moves the files of days before `before` to the archive. Gives how many.
    ///
    /// # Errors
    /// [`MemoryError::Unavailable`].
    pub async fn archive_memory(&self, tenant: &Tenant, agent: &str, before: Day) -> Changed {
        self.change_memory(tenant, agent, Change::Archive { before }).await
    }

    pub(super) async fn change_memory(&self, tenant: &Tenant, agent: &str, change: Change) -> Changed {
        if agent.is_empty() || agent.len() > MAX_AGENT_BYTES {
            return Err(MemoryError::Agent);
        }
        if self.shared.path.is_none() {
            return Err(MemoryError::Unavailable);
        }
        let keeper = Keeper { tenant: *tenant, agent: agent.into() };
        let (reply, answer) = oneshot::channel();
        self.jobs.try_send(Job::Memory { keeper, change, reply }).map_err(|_| MemoryError::Unavailable)?;
        let answer = timeout(self.shared.limits.text_bound(), answer).await.map_err(|_| MemoryError::Unavailable)?;
        answer.unwrap_or(Err(MemoryError::Unavailable))
    }
}

/// Makes a change, or none of it.
pub(super) async fn apply(
    db: &mut SqliteConnection,
    keeper: &Keeper,
    change: &Change,
    now: i64,
) -> Result<Changed, sqlx::Error> {
    let mut transaction = db.begin_with("BEGIN IMMEDIATE").await?;
    let changed = match change {
        Change::Append { to, flush } => append(&mut transaction, keeper, (to.as_ref(), flush.as_ref()), now).await?,
        Change::Keep { flush, facts } => {
            Ok(flushes::advance(&mut transaction, keeper, flush, Some(facts)).await?.into())
        }
        Change::Replace { path, rewrite: Rewrite { content, expected, merged } } => {
            let replaced = put(&mut transaction, (keeper, *path), content, (Some(*expected), now)).await?;
            for (day, bytes) in merged.iter().filter(|_| replaced.is_ok()) {
                take_in(&mut transaction, (keeper, *day), *bytes).await?;
            }
            replaced
        }
        Change::Delay { flush, due } => Ok(flushes::delay(&mut transaction, keeper, (*flush, *due)).await?),
        Change::Archive { before } => Ok(archive(&mut transaction, keeper, *before).await?),
    };
    match changed {
        Ok(_) => transaction.commit().await?,
        Err(_) => transaction.rollback().await?,
    }
    Ok(changed)
}

async fn append(
    db: &mut SqliteConnection,
    keeper: &Keeper,
    (to, flush): (Option<&(MemoryPath, String)>, Option<&Step>),
    now: i64,
) -> Result<Changed, sqlx::Error> {
    if let Some(flush) = flush
        && !flushes::advance(db, keeper, flush, None).await?
    {
        // Somebody else has written what it had to say.
        return Ok(Ok(0));
    }
    let Some((path, content)) = to else { return Ok(Ok(0)) };
    let before = match read(db, keeper, Some(*path)).await?.pop() {
        None => String::new(),
        Some(Ok(file)) => file.content,
        Some(Err(_)) => return Ok(Err(MemoryError::Damaged)),
    };
    put(db, (keeper, *path), &(before + content), (None, now)).await
}

/// Writes a file, at the version `expected` where one is; what it said before is kept.
async fn put(
    db: &mut SqliteConnection,
    (keeper, path): (&Keeper, MemoryPath),
    content: &str,
    (expected, now): (Option<u64>, i64),
) -> Result<Changed, sqlx::Error> {
    if content.len() > MAX_FILE_BYTES {
        return Ok(Err(MemoryError::FileFull));
    }
    let Some(body) = Packer::new().and_then(|mut packer| packer.pack(content.as_bytes())) else {
        return Ok(Err(MemoryError::Unavailable));
    };
    let (tenant, agent, path) = (keeper.tenant.0.as_slice(), &*keeper.agent, path.to_string());
    let there = sqlx::query("SELECT version FROM memory_files WHERE tenant = ? AND agent = ? AND path = ?");
    let there = there.bind(tenant).bind(agent).bind(&path).fetch_optional(&mut *db).await?;
    let version: i64 = there.map_or(Ok(0), |row| row.try_get(0))?;
    if expected.is_some_and(|expected| i64::try_from(expected) != Ok(version)) {
        return Ok(Err(MemoryError::Stale));
    }
    let others = "SELECT count(*), coalesce(sum(length), 0) FROM memory_files WHERE tenant = ?1 AND NOT (agent = ?2 AND path = ?3)";
    let others = sqlx::query(others).bind(tenant).bind(agent).bind(&path).fetch_one(&mut *db).await?;
    let (files, bytes): (i64, i64) = (others.try_get(0)?, others.try_get(1)?);
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).saturating_add(content.len());
    if usize::try_from(files).unwrap_or(usize::MAX) >= MAX_TENANT_FILES || bytes > MAX_TENANT_BYTES {
        return Ok(Err(MemoryError::TenantFull));
    }
    // A file that became shorter was written anew: nothing of it counts as taken in.
    let query = "INSERT INTO memory_files (tenant, agent, path, version, merged, length, body, updated) \
                 VALUES (?1, ?2, ?3, 1, 0, ?4, ?5, ?6) \
                 ON CONFLICT (tenant, agent, path) DO UPDATE SET version = version + 1, \
                 merged = CASE WHEN excluded.length < memory_files.length THEN 0 ELSE memory_files.merged END, \
                 previous_length = memory_files.length, previous_body = memory_files.body, \
                 length = excluded.length, body = excluded.body, updated = excluded.updated";
    let query = sqlx::query(query).bind(tenant).bind(agent).bind(&path);
    let length = i64::try_from(content.len()).unwrap_or(i64::MAX);
    query.bind(length).bind(body).bind(now).execute(db).await?;
    Ok(Ok(u64::try_from(version).unwrap_or(0) + 1))
}

async fn take_in(
    db: &mut SqliteConnection,
    (keeper, day): (&Keeper, MemoryPath),
    bytes: usize,
) -> Result<(), sqlx::Error> {
    let query = "UPDATE memory_files SET merged = min(length, ?) WHERE tenant = ? AND agent = ? AND path = ?";
    let query = sqlx::query(query).bind(i64::try_from(bytes).unwrap_or(i64::MAX));
    let query = query.bind(keeper.tenant.0.as_slice()).bind(&*keeper.agent).bind(day.to_string());
    query.execute(db).await?;
    Ok(())
}

/// A day that has a file in the archive already stays where it is.
async fn archive(db: &mut SqliteConnection, keeper: &Keeper, before: Day) -> Result<u64, sqlx::Error> {
    let names = [MemoryPath::Day(before).to_string(), MemoryPath::Day(Day::of(i64::MIN)).to_string()];
    let query = "UPDATE OR IGNORE memory_files SET path = 'memory/archive/' || substr(path, 8) \
                 WHERE tenant = ?1 AND agent = ?2 AND path < ?3 AND path >= ?4";
    let query = sqlx::query(query).bind(keeper.tenant.0.as_slice()).bind(&*keeper.agent);
    let [before, first] = names;
    Ok(query.bind(before).bind(first).execute(db).await?.rows_affected())
}

type Read = Result<MemoryFile, ReadError>;

/// An agent's files, or one of them.
pub(super) async fn read(
    db: &mut SqliteConnection,
    keeper: &Keeper,
    path: Option<MemoryPath>,
) -> Result<Vec<Read>, sqlx::Error> {
    let query = "SELECT path, length, body, version, merged, updated FROM memory_files \
                 WHERE tenant = ?1 AND agent = ?2 AND (?3 IS NULL OR path = ?3) ORDER BY path";
    let query = sqlx::query(query).bind(keeper.tenant.0.as_slice()).bind(&*keeper.agent);
    let rows = query.bind(path.map(|path| path.to_string())).fetch_all(db).await?;
    rows.iter().map(file).collect()
}

fn file(row: &SqliteRow) -> Result<Read, sqlx::Error> {
    let (path, length, body): (&str, i64, &[u8]) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let (Ok(path), Ok(content)) = (path.parse(), unpack_text(body, length)) else {
        return Ok(Err(ReadError::Damaged));
    };
    let (version, merged): (i64, i64) = (row.try_get(3)?, row.try_get(4)?);
    let (version, merged) = (u64::try_from(version).unwrap_or(0), usize::try_from(merged).unwrap_or(0));
    Ok(Ok(MemoryFile { path, content, version, merged, updated: row.try_get(5)? }))
}

/// All there is, in order.
pub(super) async fn entries(db: &mut SqliteConnection) -> Result<Vec<MemoryEntry>, sqlx::Error> {
    let query = "SELECT tenant, agent, path, length, updated FROM memory_files ORDER BY tenant, agent, path";
    let mut entries = Vec::new();
    for row in sqlx::query(query).fetch_all(db).await? {
        let (tenant, path): (&[u8], &str) = (row.try_get(0)?, row.try_get(2)?);
        let (Ok(tenant), Ok(path)) = (tenant.try_into(), path.parse()) else { continue };
        let bytes = usize::try_from(row.try_get::<i64, _>(3)?).unwrap_or(0);
        let entry =
            MemoryEntry { tenant: Tenant(tenant), agent: row.try_get(1)?, path, bytes, updated: row.try_get(4)? };
        entries.push(entry);
    }
    Ok(entries)
}
