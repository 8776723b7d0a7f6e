//! Queries. They run on connections of their own, so that no reader waits for the writer.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures_util::TryStreamExt;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{QueryBuilder, Row as _, Sqlite};

use crate::compact::TextId;
use crate::wire::Digest;

use super::Tenant;
use super::marks::mark;
use super::memory::Loaded;
use super::row::{Kept, Row, State, level_code};
use super::texts::{Damaged, unpack_row};

/// Digests in one query.
const DIGESTS_PER_QUERY: usize = 500;

/// All that is stored under these digests. A damaged row is left out and logged.
pub(super) async fn load(
    db: &mut SqliteConnection,
    tenant: &Tenant,
    digests: &[Digest],
) -> Result<Loaded, sqlx::Error> {
    let mut loaded = Loaded { rows: rows(db, tenant, digests).await?, forwarded: HashSet::new() };
    for chunk in digests.chunks(DIGESTS_PER_QUERY) {
        for row in select(db, "SELECT digest FROM forwarded", tenant, chunk).await? {
            loaded.forwarded.extend(digest(&row));
        }
    }
    Ok(loaded)
}

/// Evictions and checkpoints under these digests.
pub(super) async fn rows(
    db: &mut SqliteConnection,
    tenant: &Tenant,
    digests: &[Digest],
) -> Result<HashMap<Digest, Row>, sqlx::Error> {
    let mut rows: HashMap<Digest, Row> = HashMap::new();
    for chunk in digests.chunks(DIGESTS_PER_QUERY) {
        for found in select(db, "SELECT digest, body FROM evictions", tenant, chunk).await? {
            let (Some(digest), Some(eviction)) = (digest(&found), whole(unpack_row(found.try_get(1)?))) else {
                continue;
            };
            rows.entry(digest).or_default().eviction = Some(Arc::new(eviction));
        }
        for found in select(db, "SELECT digest, body, state FROM checkpoints", tenant, chunk).await? {
            let (Some(digest), Some(checkpoint)) = (digest(&found), whole(unpack_row(found.try_get(1)?))) else {
                continue;
            };
            let kept = Kept { checkpoint: Arc::new(checkpoint), state: State::from_code(found.try_get(2)?) };
            rows.entry(digest).or_default().checkpoints.push(kept);
        }
    }
    for row in rows.values_mut() {
        row.checkpoints.sort_by_key(|kept| level_code(kept.checkpoint.level));
    }
    Ok(rows)
}

async fn select(
    db: &mut SqliteConnection,
    from: &'static str,
    tenant: &Tenant,
    digests: &[Digest],
) -> Result<Vec<SqliteRow>, sqlx::Error> {
    let mut query = QueryBuilder::<Sqlite>::new(from);
    query.push(" WHERE tenant = ").push_bind(tenant.0.to_vec()).push(" AND digest IN (");
    let mut list = query.separated(", ");
    for digest in digests {
        list.push_bind(digest.to_vec());
    }
    query.push(")");
    query.build().persistent(false).fetch_all(db).await
}

/// The text stored under an id, still packed, and its length.
pub(super) async fn text(db: &mut SqliteConnection, id: &TextId) -> Result<Option<(Vec<u8>, i64)>, sqlx::Error> {
    let query = sqlx::query("SELECT body, length FROM texts WHERE id = ?").bind(id.0.as_slice());
    let Some(row) = query.fetch_optional(db).await? else { return Ok(None) };
    Ok(Some((row.try_get(0)?, row.try_get(1)?)))
}

/// Whether there is anything of a tenant's.
pub(super) async fn seen(db: &mut SqliteConnection, tenant: &Tenant) -> Result<bool, sqlx::Error> {
    let query = "SELECT EXISTS (SELECT 1 FROM sessions WHERE tenant = ?1) \
                 OR EXISTS (SELECT 1 FROM memory_files WHERE tenant = ?1) OR EXISTS (SELECT 1 FROM logs WHERE tenant = ?1)";
    sqlx::query(query).bind(tenant.0.as_slice()).fetch_one(db).await?.try_get(0)
}

/// The marks of all that is stored, one by one: they may be many.
pub(super) async fn marks(db: &mut SqliteConnection, mut each: impl FnMut(StoredMark)) -> Result<(), sqlx::Error> {
    let rows = "SELECT tenant, digest FROM evictions UNION ALL SELECT tenant, digest FROM checkpoints";
    marks_of(db, rows, |mark| each(StoredMark::Row(mark))).await?;
    marks_of(db, "SELECT tenant, digest FROM overlays", |mark| each(StoredMark::Overlay(mark))).await?;
    marks_of(db, "SELECT tenant, digest FROM forwarded", |mark| each(StoredMark::Forwarded(mark))).await
}

/// Fewest bytes of a body to which a stored row may apply.
pub(super) async fn least_covered(db: &mut SqliteConnection) -> Result<usize, sqlx::Error> {
    let row = sqlx::query("SELECT value FROM meta WHERE key = 'least_covered'").fetch_one(db).await?;
    // What is no such number stands for any body.
    Ok(usize::try_from(row.try_get::<i64, _>(0)?).unwrap_or(0))
}

/// What kind of row a mark stands for.
#[derive(Clone, Copy, Debug)]
pub(super) enum StoredMark {
    Row(u64),
    Forwarded(u64),
    Overlay(u64),
}

async fn marks_of(
    db: &mut SqliteConnection,
    query: &'static str,
    mut each: impl FnMut(u64),
) -> Result<(), sqlx::Error> {
    let mut rows = sqlx::query(query).fetch(db);
    while let Some(row) = rows.try_next().await? {
        let tenant = row.try_get::<&[u8], _>(0)?.try_into().map(Tenant);
        if let (Ok(tenant), Ok(digest)) = (tenant, row.try_get::<&[u8], _>(1)?.try_into()) {
            each(mark(&tenant, &digest));
        }
    }
    Ok(())
}

fn digest(row: &SqliteRow) -> Option<Digest> {
    row.try_get::<&[u8], _>(0).ok()?.try_into().ok()
}

fn whole<T>(row: Result<T, Damaged>) -> Option<T> {
    row.inspect_err(|error| tracing::warn!(%error, "row ignored")).ok()
}
