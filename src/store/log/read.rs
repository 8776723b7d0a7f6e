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
/// Most messages behind the one that names a branch among which its end is looked for.
const MAX_AHEAD: i64 = 10_000;

pub(super) async fn stored(
    db: &mut SqliteConnection,
    (tenant, session): (&Tenant, &SessionId),
    digests: &[Digest],
) -> Result<HashSet<Digest>, Failed> {
    let Some(log) = log_of(db, Some(tenant), session).await? else { return Ok(HashSet::new()) };
    Ok(ids(db, log, digests, None).await?.into_keys().collect())
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

/// Rows of the messages with these digests that a log has; `only`: of those that this agent wrote.
pub(super) async fn ids(
    db: &mut SqliteConnection,
    log: i64,
    digests: &[Digest],
    only: Option<&str>,
) -> Result<HashMap<Digest, i64>, sqlx::Error> {
    let mut found = HashMap::new();
    for chunk in digests.chunks(DIGESTS_PER_QUERY) {
        let mut query = QueryBuilder::<Sqlite>::new("SELECT id, digest FROM log_messages WHERE whole = 1 AND log = ");
        query.push_bind(log);
        if let Some(agent) = only {
            // The sign keeps it from being looked for by its agent.
            query.push(" AND +agent = ").push_bind(agent);
        }
        query.push(" AND digest IN (");
        let mut list = query.separated(", ");
        for digest in chunk {
            list.push_bind(digest.to_vec());
        }
        query.push(")");
        for row in query.build().persistent(false).fetch_all(&mut *db).await? {
            found.extend(digest(&row, 1)?.map(|digest| Ok::<_, sqlx::Error>((digest, row.try_get(0)?))).transpose()?);
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
/// the conversation's own. A digest stands for all up to it: its place in the chain is its message's number.
async fn own_branch(
    db: &mut SqliteConnection,
    log: i64,
    chain: &[Digest],
    page: &HistoryPage,
) -> Result<Vec<i64>, sqlx::Error> {
    let mut upto = match page.tip {
        Some(Tip::At(tip)) => chain.iter().position(|digest| *digest == tip).map_or(chain.len(), |at| at + 1),
        // The conversation's own branch is the only one that it can name.
        Some(Tip::Through(cursor)) if !chain.iter().any(|digest| Cursor::of(digest) == cursor) => 0,
        Some(Tip::Through(_)) | None => chain.len(),
    };
    if let Some(agent) = page.agent.as_deref().filter(|_| page.tip.is_none()) {
        let last = match wrote(db, log, agent).await? {
            true => latest(db, log, chain.get(..upto).unwrap_or(chain), (1, Some(agent))).await?,
            false => Vec::new(),
        };
        let last = last.first().and_then(|(_, last)| chain.iter().position(|digest| digest == last));
        upto = last.map_or(0, |at| at + 1);
    }
    let before = page.before.map_or(usize::MAX, |before| before.saturating_sub(1) as usize);
    let own = chain.get(..upto.min(before)).unwrap_or(chain);
    let found = latest(db, log, own, (page.last.min(MAX_PAGE), None)).await?;
    Ok(found.into_iter().map(|(id, _)| id).collect())
}

/// The latest messages of a chain that a log has, latest first, at most `most`; `only`: those that this agent wrote.
async fn latest(
    db: &mut SqliteConnection,
    log: i64,
    chain: &[Digest],
    (most, only): (usize, Option<&str>),
) -> Result<Vec<(i64, Digest)>, sqlx::Error> {
    let mut found = Vec::new();
    for chunk in chain.rchunks(DIGESTS_PER_QUERY) {
        let ids = ids(db, log, chunk, only).await?;
        found.extend(chunk.iter().rev().filter_map(|digest| Some((*ids.get(digest)?, *digest))));
        if found.len() >= most {
            break;
        }
    }
    found.truncate(most);
    Ok(found)
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
        // A named branch is whoever's it is; which one is meant where none is named, an agent says.
        None => return last_written(db, log, page.agent.as_ref().or(only)).await,
    };
    let query = "SELECT id, number FROM log_messages WHERE log = ? AND digest BETWEEN ? AND ? AND whole = 1 \
                 AND number > 0 ORDER BY id DESC LIMIT 1";
    let query = sqlx::query(query).bind(log).bind(least.as_slice()).bind(most.as_slice());
    let Some(row) = query.fetch_optional(&mut *db).await? else { return Ok(None) };
    let (id, number): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    let before = page.before.map_or(i64::MAX, i64::from);
    match page.tip {
        Some(Tip::Through(_)) if number + 1 < before => end(db, log, id, before).await.map(Some),
        _ => Ok(Some(id)),
    }
}

/// The message that was written last, of all agents or of one.
async fn last_written(db: &mut SqliteConnection, log: i64, by: Option<&Arc<str>>) -> Result<Option<i64>, sqlx::Error> {
    let query = "SELECT max((SELECT id FROM log_messages m WHERE m.log = a.log AND m.agent = a.agent AND m.whole = 1 \
                 AND m.number > 0 ORDER BY id DESC LIMIT 1)) FROM log_agents a \
                 WHERE a.log = ?1 AND (?2 IS NULL OR a.agent = ?2)";
    let query = sqlx::query(query).bind(log).bind(by.map(|agent| agent.to_string()));
    query.fetch_one(db).await?.try_get(0)
}

/// The end of the branch that goes on from a message, as far as numbers below `before` go and [`MAX_AHEAD`] allows:
/// always with what was written last.
async fn end(db: &mut SqliteConnection, log: i64, id: i64, before: i64) -> Result<i64, sqlx::Error> {
    let query = "WITH RECURSIVE walk (id, steps) AS ( \
                 SELECT ?2, 0 \
                 UNION ALL SELECT (SELECT child.id FROM log_messages child WHERE child.log = ?1 AND child.parent = \
                   (SELECT digest FROM log_messages WHERE id = walk.id) AND child.whole = 1 AND child.number < ?3 \
                   ORDER BY child.id DESC LIMIT 1), steps + 1 FROM walk WHERE walk.id IS NOT NULL AND steps < ?4) \
                 SELECT id FROM walk WHERE id IS NOT NULL ORDER BY steps DESC LIMIT 1";
    sqlx::query(query).bind(log).bind(id).bind(before).bind(MAX_AHEAD).fetch_one(db).await?.try_get(0)
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
