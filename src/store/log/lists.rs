//! The list of sessions in scope.

use std::collections::HashMap;
use std::sync::Arc;

use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{QueryBuilder, Row as _, Sqlite};

use super::queries::Failed;
use super::read::{agent, ids, log_of};
use super::{MAX_SESSIONS, Scope, SessionId, SessionInfo};
use crate::store::Tenant;

pub(super) async fn sessions(
    db: &mut SqliteConnection,
    tenant: Option<&Tenant>,
    scope: &Scope,
) -> Result<Vec<SessionInfo>, Failed> {
    let columns = "SELECT id, tenant, session, agent, title, first_used, last_used, messages, tokens, bytes, \
                   (SELECT group_concat(agent, ' ') FROM log_agents WHERE log = logs.id) FROM logs ";
    let mut query = QueryBuilder::<Sqlite>::new(columns);
    query.push("WHERE messages > 0");
    if let Some(tenant) = tenant {
        query.push(" AND tenant = ").push_bind(tenant.0.to_vec());
    }
    match scope {
        Scope::Conversation { session, .. } => query.push(" AND session = ").push_bind(session.0.to_vec()),
        Scope::Agent(agent) => {
            query.push(" AND id IN (SELECT log FROM log_agents WHERE agent = ").push_bind(agent.to_string()).push(")")
        }
        Scope::Tenant => &mut query,
    };
    query.push(" ORDER BY last_used DESC, id DESC LIMIT ").push_bind(i64::try_from(MAX_SESSIONS).unwrap_or(i64::MAX));
    let mut sessions = Vec::new();
    for row in query.build().persistent(false).fetch_all(&mut *db).await? {
        sessions.extend(info(&row, scope)?);
    }
    if let (Scope::Conversation { chain: Some(chain), .. }, Some(mut own)) = (scope, sessions.first().cloned()) {
        let log = log_of(db, tenant, &own.id).await?;
        let visible = match log {
            Some(log) => ids(db, log, chain, None).await?,
            None => HashMap::new(),
        };
        // Nothing of who else began with the same words: neither how much that is, nor when it was, nor its title.
        (own.messages, own.tokens, own.bytes) = (0, 0, 0);
        own.title.clear();
        own.agents.clear();
        for id in visible.values() {
            let query = sqlx::query("SELECT time, tokens, length, agent FROM log_messages WHERE id = ?").bind(id);
            let row = query.fetch_one(&mut *db).await?;
            let time = row.try_get(0)?;
            (own.first, own.last) = match own.messages {
                0 => (time, time),
                _ => (own.first.min(time), own.last.max(time)),
            };
            own.messages += 1;
            own.tokens += unsigned(row.try_get::<Option<i64>, _>(1)?.unwrap_or(0));
            own.bytes += unsigned(row.try_get(2)?);
            let agent = agent(&row, 3)?;
            if !own.agents.contains(&agent) {
                own.agents.push(agent);
            }
        }
        return Ok(if own.messages == 0 { Vec::new() } else { vec![own] });
    }
    Ok(sessions)
}

fn info(row: &SqliteRow, scope: &Scope) -> Result<Option<SessionInfo>, sqlx::Error> {
    let ids = row.try_get::<&[u8], _>(1)?.try_into().ok().zip(row.try_get::<&[u8], _>(2)?.try_into().ok());
    let Some((tenant, id)) = ids else { return Ok(None) };
    let (first, all) = (row.try_get::<&str, _>(3)?, row.try_get::<Option<&str>, _>(10)?.unwrap_or_default());
    // Names hold no blank.
    let others = all.split(' ').filter(|agent| !agent.is_empty() && *agent != first);
    let mut agents: Vec<Arc<str>> = [first].into_iter().chain(others).map(Arc::from).collect();
    if let Scope::Agent(own) = scope {
        agents.retain(|agent| agent == own);
    }
    Ok(Some(SessionInfo {
        tenant: Tenant(tenant),
        id: SessionId(id),
        agents,
        title: row.try_get(4)?,
        first: row.try_get(5)?,
        last: row.try_get(6)?,
        messages: unsigned(row.try_get(7)?),
        tokens: unsigned(row.try_get(8)?),
        bytes: unsigned(row.try_get(9)?),
    }))
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
