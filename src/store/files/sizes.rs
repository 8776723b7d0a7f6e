//! What is known of memory files without reading them: their sizes, the room that is left; and what they said before.

use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;

use super::{Keeper, MAX_FILE_BYTES, MAX_TENANT_BYTES, MAX_TENANT_FILES};
use crate::memory::MemoryPath;
use crate::store::reader::Query;
use crate::store::texts::unpack_text;
use crate::store::{ReadError, Store, Tenant};

impl Store {
    /// Names and bytes of all memory files of an agent, in the order of [`memory_files`](Self::memory_files).
    ///
    /// # Errors
    /// If the database does not answer in time.
    pub async fn memory_sizes(&self, tenant: &Tenant, agent: &str) -> Result<Vec<(MemoryPath, usize)>, ReadError> {
        let keeper = Keeper { tenant: *tenant, agent: agent.into() };
        self.query(|reply| Query::Sizes { keeper, reply }).await
    }

    /// Bytes by which a file may grow: it, and all of the tenant's.
    ///
    /// # Errors
    /// If the database does not answer in time.
    pub async fn memory_room(&self, tenant: &Tenant, agent: &str, path: MemoryPath) -> Result<usize, ReadError> {
        let keeper = Keeper { tenant: *tenant, agent: agent.into() };
        self.query(|reply| Query::Room { keeper, path, reply }).await
    }

    /// What a file said before its last change; `None` if there is no such file, or it has said nothing else.
    ///
    /// # Errors
    /// If the database does not answer in time or the text is damaged.
    pub async fn previous_memory(
        &self,
        tenant: &Tenant,
        agent: &str,
        path: MemoryPath,
    ) -> Result<Option<String>, ReadError> {
        let keeper = Keeper { tenant: *tenant, agent: agent.into() };
        self.query(|reply| Query::Previous { keeper, path, reply }).await
    }
}

pub(in crate::store) async fn sizes(
    db: &mut SqliteConnection,
    keeper: &Keeper,
) -> Result<Vec<(MemoryPath, usize)>, sqlx::Error> {
    let query = sqlx::query("SELECT path, length FROM memory_files WHERE tenant = ? AND agent = ? ORDER BY path");
    let mut sizes = Vec::new();
    for row in query.bind(keeper.tenant.0.as_slice()).bind(&*keeper.agent).fetch_all(db).await? {
        if let Ok(path) = row.try_get::<&str, _>(0)?.parse() {
            sizes.push((path, bytes(row.try_get(1)?)));
        }
    }
    Ok(sizes)
}

pub(in crate::store) async fn room(
    db: &mut SqliteConnection,
    keeper: &Keeper,
    path: MemoryPath,
) -> Result<usize, sqlx::Error> {
    let query = "SELECT count(*), coalesce(sum(length), 0), max(CASE WHEN agent = ?2 AND path = ?3 THEN length END) \
                 FROM memory_files WHERE tenant = ?1";
    let query = sqlx::query(query).bind(keeper.tenant.0.as_slice()).bind(&*keeper.agent).bind(path.to_string());
    let row = query.fetch_one(db).await?;
    let (files, all, own): (i64, i64, Option<i64>) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    if own.is_none() && bytes(files) >= MAX_TENANT_FILES {
        return Ok(0);
    }
    let of_file = MAX_FILE_BYTES.saturating_sub(bytes(own.unwrap_or(0)));
    Ok(of_file.min(MAX_TENANT_BYTES.saturating_sub(bytes(all))))
}

pub(in crate::store) async fn previous(
    db: &mut SqliteConnection,
    keeper: &Keeper,
    path: MemoryPath,
) -> Result<Result<Option<String>, ReadError>, sqlx::Error> {
    let query = "SELECT previous_body, previous_length FROM memory_files WHERE tenant = ? AND agent = ? AND path = ?";
    let query = sqlx::query(query).bind(keeper.tenant.0.as_slice()).bind(&*keeper.agent).bind(path.to_string());
    let Some(row) = query.fetch_optional(db).await? else { return Ok(Ok(None)) };
    let (Some(body), Some(length)) = (row.try_get::<Option<&[u8]>, _>(0)?, row.try_get(1)?) else {
        return Ok(Ok(None));
    };
    Ok(unpack_text(body, length).map(Some).map_err(|_| ReadError::Damaged))
}

fn bytes(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}
