//! What is written behind: nothing waits for it, losing it costs a cache break at most.

use std::collections::{HashMap, HashSet};

use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection, Row as _};

use crate::wire::Digest;

use super::Tenant;
use super::commit::{Owner, count_change, session};
use super::learned::{EXPIRY_SECONDS, Entry, LearnedId, LearnedWindow, MAX_ENTRIES, ToolUse, Value};
use super::memory::Key;
use super::overlays;

/// One thing to write down when there is time.
#[derive(Debug)]
pub(super) enum Note {
    Forwarded {
        tenant: Tenant,
        root: Digest,
        digest: Digest,
    },
    Learned(LearnedId, Entry),
    /// An aside is in use.
    Used {
        tenant: Tenant,
        digest: Digest,
        variant: Vec<u8>,
    },
}

/// Writes notes and last uses in one transaction. Gives the number of this change.
pub(super) async fn write(
    db: &mut SqliteConnection,
    notes: &[Note],
    touches: &HashSet<Key>,
    now: i64,
) -> Result<i64, sqlx::Error> {
    let mut transaction = db.begin_with("BEGIN IMMEDIATE").await?;
    let mut forwarded: HashMap<Key, Vec<u8>> = HashMap::new();
    for note in notes {
        match note {
            Note::Forwarded { tenant, root, digest } => {
                forwarded.entry((*tenant, *root)).or_default().extend_from_slice(digest);
            }
            Note::Learned(id, entry) => put_learned(&mut transaction, id, entry).await?,
            Note::Used { tenant, digest, variant } => {
                overlays::put_use(&mut transaction, tenant, (digest, variant), now).await?;
            }
        }
    }
    for ((tenant, root), digests) in &forwarded {
        let owner = Owner { tenant, root, now };
        put_forwarded(&mut transaction, owner, digests).await?;
    }
    for (tenant, root) in touches {
        let query = sqlx::query("UPDATE sessions SET last_used = max(last_used, ?) WHERE tenant = ? AND root = ?");
        query.bind(now).bind(tenant.0.as_slice()).bind(root.as_slice()).execute(&mut *transaction).await?;
    }
    let change = count_change(&mut transaction).await?;
    transaction.commit().await?;
    Ok(change)
}

/// Writes a session's digests, one behind another in `digests`: one statement for all, since each costs
/// more than its rows.
async fn put_forwarded(db: &mut SqliteConnection, owner: Owner<'_>, digests: &[u8]) -> Result<(), sqlx::Error> {
    let session = session(db, owner).await?;
    let query = "WITH RECURSIVE starts (at) AS (SELECT 1 UNION ALL SELECT at + 32 FROM starts WHERE at + 32 <= length(?2)) \
                 INSERT OR IGNORE INTO forwarded (tenant, digest, session) SELECT ?1, substr(?2, at, 32), ?3 FROM starts";
    let query = sqlx::query(query).bind(owner.tenant.0.as_slice()).bind(digests).bind(session);
    query.execute(db).await?;
    Ok(())
}

async fn put_learned(db: &mut SqliteConnection, id: &LearnedId, entry: &Entry) -> Result<(), sqlx::Error> {
    let tokens = |number: Option<u64>| number.and_then(|number| i64::try_from(number).ok());
    let query = sqlx::query(
        "REPLACE INTO learned (id, factor, input, total, takes_tools, learned_at) VALUES (?, ?, ?, ?, ?, ?)",
    );
    let query = query.bind(id.as_slice()).bind(entry.value.factor);
    let query = query.bind(tokens(entry.value.window.input)).bind(tokens(entry.value.window.total));
    let query = query.bind(entry.value.tools.map(|told| told == ToolUse::Taken));
    query.bind(entry.learned_at).execute(db).await?;
    Ok(())
}

/// All that was learned and has not expired, the newest first.
pub(super) async fn learned(db: &mut SqliteConnection, now: i64) -> Result<Vec<(LearnedId, Entry)>, sqlx::Error> {
    let query = "SELECT id, factor, input, total, takes_tools, learned_at FROM learned WHERE learned_at > ? \
                 ORDER BY learned_at DESC LIMIT ?";
    let query = sqlx::query(query).bind(now - EXPIRY_SECONDS).bind(i64::try_from(MAX_ENTRIES).unwrap_or(i64::MAX));
    let mut entries = Vec::new();
    for row in query.fetch_all(db).await? {
        let tokens = |column: usize| -> Result<Option<u64>, sqlx::Error> {
            Ok(row.try_get::<Option<i64>, _>(column)?.and_then(|number| u64::try_from(number).ok()))
        };
        let window = LearnedWindow { input: tokens(2)?, total: tokens(3)? };
        let taken = row.try_get::<Option<bool>, _>(4)?;
        let tools = taken.map(|taken| if taken { ToolUse::Taken } else { ToolUse::Refused });
        let value = Value { factor: row.try_get(1)?, window, tools };
        if let Ok(id) = row.try_get::<&[u8], _>(0)?.try_into() {
            entries.push((id, Entry { value, learned_at: row.try_get(5)? }));
        }
    }
    Ok(entries)
}
