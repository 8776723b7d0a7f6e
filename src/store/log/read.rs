//! Reading the log: single messages and pages of them. No query looks beyond its tenant and scope.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{QueryBuilder, Row as _, Sqlite};

use super::queries::{Failed, Patience};
use super::write::{dialect_of, role_of};
use super::{Cursor, HistoryPage, Logged, MAX_PAGE, MAX_PAGE_BYTES, Room, Scope, SessionId, Tip};
use crate::store::Tenant;
use crate::store::texts::unpack;
use crate::wire::Digest;

/// Digests in one query.
const DIGESTS_PER_QUERY: usize = 500;

pub(super) async fn stored(
    db: &mut SqliteConnection,
    (tenant, session): (&Tenant, &SessionId),
    digests: &[Digest],
) -> Result<HashSet<Digest>, Failed> {
    let Some(log) = log_of(db, Some(tenant), session).await? else { return Ok(HashSet::new()) };
    Ok(ids(db, log, digests).await?.into_iter().map(|(_, digest)| digest).collect())
}

/// The log of a session, if the tenant has it.
pub(super) async fn log_of(
    db: &mut SqliteConnection,
    tenant: Option<&Tenant>,
    session: &SessionId,
) -> Result<Option<i64>, sqlx::Error> {
    let query = "SELECT id FROM logs WHERE session = ?2 AND (?1 IS NULL OR tenant = ?1)";
    let query = sqlx::query(query).bind(tenant.map(|tenant| tenant.0.to_vec())).bind(session.0.as_slice());
    query.fetch_optional(db).await?.map(|row| row.try_get(0)).transpose()
}

/// Numbers of the messages with these digests that a log has.
pub(super) async fn ids(
    db: &mut SqliteConnection,
    log: i64,
    digests: &[Digest],
) -> Result<Vec<(i64, Digest)>, sqlx::Error> {
    let mut found = Vec::new();
    for chunk in digests.chunks(DIGESTS_PER_QUERY) {
        let mut query = QueryBuilder::<Sqlite>::new("SELECT id, digest FROM log_messages WHERE whole = 1 AND log = ");
        query.push_bind(log).push(" AND digest IN (");
        let mut list = query.separated(", ");
        for digest in chunk {
            list.push_bind(digest.to_vec());
        }
        query.push(")");
        for row in query.build().persistent(false).fetch_all(&mut *db).await? {
            found.extend(digest(&row, 1)?.map(|digest| Ok::<_, sqlx::Error>((row.try_get(0)?, digest))).transpose()?);
        }
    }
    Ok(found)
}

/// Whether an agent wrote in a log.
async fn wrote(db: &mut SqliteConnection, log: i64, agent: &str) -> Result<bool, sqlx::Error> {
    let query = sqlx::query("SELECT 1 FROM log_agents WHERE log = ? AND agent = ?").bind(log).bind(agent);
    Ok(query.fetch_optional(db).await?.is_some())
}

/// The log that `session` is, if it is in scope; of a conversation its own, where no session is named.
pub(super) async fn in_scope(
    db: &mut SqliteConnection,
    (tenant, scope): (Option<&Tenant>, &Scope),
    session: Option<SessionId>,
) -> Result<Option<i64>, sqlx::Error> {
    let own = match scope {
        Scope::Conversation { session, .. } => Some(*session),
        Scope::Agent(_) | Scope::Tenant => None,
    };
    if own.is_some() && session.is_some() && own != session {
        return Ok(None);
    }
    let Some(session) = session.or(own) else { return Ok(None) };
    let Some(log) = log_of(db, tenant, &session).await? else { return Ok(None) };
    match scope {
        Scope::Agent(agent) => Ok(wrote(db, log, agent).await?.then_some(log)),
        Scope::Conversation { .. } | Scope::Tenant => Ok(Some(log)),
    }
}

pub(super) async fn history(
    db: &mut SqliteConnection,
    (tenant, scope, session): (Option<&Tenant>, &Scope, Option<SessionId>),
    page: HistoryPage,
    (patience, room): (Patience<'_>, &mut Room),
) -> Result<Option<Vec<Logged>>, Failed> {
    let Some(log) = in_scope(db, (tenant, scope), session).await? else { return Ok(None) };
    let ids = match scope {
        Scope::Conversation { chain: Some(chain), .. } => own_branch(db, log, chain, &page).await?,
        Scope::Conversation { chain: None, .. } | Scope::Tenant => branch(db, log, &page, None).await?,
        Scope::Agent(agent) => branch(db, log, &page, Some(agent)).await?,
    };
    let (mut messages, mut bytes) = (Vec::new(), 0);
    for id in ids {
        patience.lasts()?;
        let length = length(db, id).await?;
        if bytes >= MAX_PAGE_BYTES {
            break;
        }
        if !room(length) {
            if messages.is_empty() {
                return Err(Failed::NoRoom);
            }
            break;
        }
        messages.push(logged(db, id).await?);
        bytes += length;
    }
    messages.reverse();
    Ok(Some(messages))
}

pub(super) async fn written(
    db: &mut SqliteConnection,
    session: SessionId,
    after: i64,
) -> Result<(Vec<Logged>, i64), Failed> {
    let Some(log) = log_of(db, None, &session).await? else { return Ok((Vec::new(), after)) };
    let query = "SELECT id FROM log_messages WHERE log = ? AND whole = 1 AND id > ? ORDER BY id LIMIT ?";
    let query = sqlx::query(query).bind(log).bind(after).bind(i64::try_from(MAX_PAGE).unwrap_or(i64::MAX));
    let (mut messages, mut bytes, mut last) = (Vec::new(), 0, after);
    for row in query.fetch_all(&mut *db).await? {
        if bytes >= MAX_PAGE_BYTES {
            break;
        }
        last = row.try_get(0)?;
        let message = logged(db, last).await?;
        bytes += message.json.len();
        messages.push(message);
    }
    Ok((messages, last))
}

/// A page of the messages of a log that `chain` has, latest message first: of all that the log holds these alone are
/// the conversation's own.
async fn own_branch(
    db: &mut SqliteConnection,
    log: i64,
    chain: &[Digest],
    page: &HistoryPage,
) -> Result<Vec<i64>, sqlx::Error> {
    let upto = match page.tip {
        Some(Tip::At(tip)) => chain.iter().position(|digest| *digest == tip).map_or(chain.len(), |at| at + 1),
        // The conversation's own branch is the only one that it can name.
        Some(Tip::Through(cursor)) if !chain.iter().any(|digest| Cursor::of(digest) == cursor) => 0,
        Some(Tip::Through(_)) | None => chain.len(),
    };
    let own = ids(db, log, chain.get(..upto).unwrap_or(chain)).await?;
    let own: HashSet<i64> = own.into_iter().map(|(id, _)| id).collect();
    let query =
        "SELECT id, number, agent FROM log_messages WHERE log = ? AND whole = 1 AND after IS NULL ORDER BY number DESC";
    let mut all = Vec::new();
    for row in sqlx::query(query).bind(log).fetch_all(db).await? {
        let (id, number): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        all.push((id, number, agent(&row, 2)?));
    }
    let own = all.into_iter().filter(|(id, ..)| own.contains(id));
    let upto =
        own.skip_while(|(_, _, wrote)| page.tip.is_none() && page.agent.as_ref().is_some_and(|agent| agent != wrote));
    let before = page.before.map_or(i64::MAX, i64::from);
    Ok(upto.filter(|(_, number, _)| *number < before).map(|(id, ..)| id).take(page.last.min(MAX_PAGE)).collect())
}

/// A page of a branch, latest message first; `only`: what this agent wrote. It ends before a message that is missing
/// (dropped), until a later request brings that.
async fn branch(
    db: &mut SqliteConnection,
    log: i64,
    page: &HistoryPage,
    only: Option<&Arc<str>>,
) -> Result<Vec<i64>, sqlx::Error> {
    let Some(tip) = tip(db, log, page, only).await? else { return Ok(Vec::new()) };
    let query = "WITH RECURSIVE walk (id, parent, number, agent) AS ( \
                 SELECT id, parent, number, agent FROM log_messages WHERE id = ?2 \
                 UNION ALL SELECT m.id, m.parent, m.number, m.agent FROM walk JOIN log_messages m \
                   ON m.log = ?1 AND m.digest = walk.parent AND m.whole = 1) \
                 SELECT id FROM walk WHERE number < ?3 AND (?4 IS NULL OR agent = ?4) LIMIT ?5";
    let query = sqlx::query(query).bind(log).bind(tip).bind(page.before.map_or(i64::MAX, i64::from));
    let query = query.bind(only.map(|agent| agent.to_string()));
    let rows = query.bind(i64::try_from(page.last.min(MAX_PAGE)).unwrap_or(i64::MAX)).fetch_all(db).await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}

/// The message that a branch ends with.
async fn tip(
    db: &mut SqliteConnection,
    log: i64,
    page: &HistoryPage,
    only: Option<&Arc<str>>,
) -> Result<Option<i64>, sqlx::Error> {
    let (least, most) = match page.tip {
        Some(Tip::At(digest)) => (digest, digest),
        Some(Tip::Through(Cursor(head))) => (filled(head, 0), filled(head, 0xff)),
        None => ([0; 32], [0xff; 32]),
    };
    // A named branch is whoever's it is; which one is meant where none is named, an agent says.
    let agent = page.agent.as_ref().or(only).filter(|_| page.tip.is_none());
    let query = "SELECT id, digest, number FROM log_messages WHERE log = ?1 AND digest BETWEEN ?2 AND ?3 AND whole = 1 \
                 AND number > 0 AND (?4 IS NULL OR agent = ?4) ORDER BY id DESC LIMIT 1";
    let query = sqlx::query(query).bind(log).bind(least.as_slice()).bind(most.as_slice());
    let Some(row) = query.bind(agent.map(|agent| agent.to_string())).fetch_optional(&mut *db).await? else {
        return Ok(None);
    };
    let found = (row.try_get(0)?, digest(&row, 1)?.unwrap_or_default());
    match page.tip {
        Some(Tip::Through(_)) => end(db, (log, row.try_get(2)?), found, page.before).await.map(Some),
        Some(Tip::At(_)) | None => Ok(Some(found.0)),
    }
}

/// The end of the branch that goes on from a message, as far as numbers below `before` go: always with what was
/// written last.
async fn end(
    db: &mut SqliteConnection,
    (log, number): (i64, i64),
    (mut id, mut digest_of): (i64, Digest),
    before: Option<u32>,
) -> Result<i64, sqlx::Error> {
    let query = "SELECT id, digest, parent FROM log_messages WHERE log = ? AND whole = 1 AND number > ? AND number < ? \
                 AND parent IS NOT NULL ORDER BY id";
    let query = sqlx::query(query).bind(log).bind(number).bind(before.map_or(i64::MAX, i64::from));
    let mut next: HashMap<Digest, (i64, Digest)> = HashMap::new();
    for row in query.fetch_all(db).await? {
        if let (Some(own), Some(parent)) = (digest(&row, 1)?, digest(&row, 2)?) {
            next.insert(parent, (row.try_get(0)?, own));
        }
    }
    while let Some(found) = next.remove(&digest_of) {
        (id, digest_of) = found;
    }
    Ok(id)
}

fn filled(head: [u8; 8], with: u8) -> Digest {
    let mut digest = [with; 32];
    digest.iter_mut().zip(head).for_each(|(byte, own)| *byte = own);
    digest
}

/// Bytes of a message's JSON.
async fn length(db: &mut SqliteConnection, id: i64) -> Result<usize, Failed> {
    let row = sqlx::query("SELECT length FROM log_messages WHERE id = ?").bind(id).fetch_optional(db).await?;
    let length: i64 = row.ok_or(Failed::Damaged)?.try_get(0)?;
    usize::try_from(length).map_err(|_| Failed::Damaged)
}

/// One message, complete.
pub(super) async fn logged(db: &mut SqliteConnection, id: i64) -> Result<Logged, Failed> {
    let query = "SELECT digest, parent, number, role, agent, time, tokens, dialect, after IS NOT NULL, length \
                 FROM log_messages WHERE id = ?";
    let row = sqlx::query(query).bind(id).fetch_optional(&mut *db).await?.ok_or(Failed::Damaged)?;
    let json = json(db, id, row.try_get(9)?).await?;
    Ok(Logged {
        digest: digest(&row, 0)?.ok_or(Failed::Damaged)?,
        parent: digest(&row, 1)?,
        number: u32::try_from(row.try_get::<i64, _>(2)?).unwrap_or(u32::MAX),
        role: role_of(row.try_get(3)?),
        agent: row.try_get::<&str, _>(4)?.into(),
        time: row.try_get(5)?,
        tokens: row.try_get::<Option<i64>, _>(6)?.and_then(|tokens| u32::try_from(tokens).ok()),
        dialect: dialect_of(row.try_get(7)?),
        answered: row.try_get(8)?,
        json,
    })
}

async fn json(db: &mut SqliteConnection, id: i64, length: i64) -> Result<String, Failed> {
    let rows = sqlx::query("SELECT body FROM log_bodies WHERE message = ? ORDER BY number").bind(id);
    let mut chunks: Vec<Vec<u8>> = Vec::new();
    for row in rows.fetch_all(&mut *db).await? {
        chunks.push(row.try_get(0)?);
    }
    // A long message takes longer to unpack than others may wait on this thread.
    let unpacked = tokio::task::spawn_blocking(move || {
        let mut json = Vec::new();
        for chunk in &chunks {
            json.extend(unpack(chunk).ok()?);
        }
        Some(json).filter(|json| i64::try_from(json.len()) == Ok(length))
    });
    let json = unpacked.await.ok().flatten().ok_or(Failed::Damaged)?;
    Ok(String::from_utf8(json).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

pub(super) fn digest(row: &SqliteRow, column: usize) -> Result<Option<Digest>, sqlx::Error> {
    Ok(row.try_get::<Option<&[u8]>, _>(column)?.and_then(|bytes| bytes.try_into().ok()))
}

/// An agent's name, shared.
pub(super) fn agent(row: &SqliteRow, column: usize) -> Result<Arc<str>, sqlx::Error> {
    Ok(row.try_get::<&str, _>(column)?.into())
}
