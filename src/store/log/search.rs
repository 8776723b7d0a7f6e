//! Search: the words of a query as an expression of the index, the best messages, and the text around the hit.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use futures_util::TryStreamExt;
use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;

use super::passages::{Asked, passages, snippet};
use super::pieces::{agent_mark, tag};
use super::queries::{Failed, Patience};
use super::read::{agent, digest, ids, in_scope, log_of, logged};
use super::write::{of_passage, role_of};
use super::{Hit, Hits, MAX_HITS, MAX_QUERY, Scope, Search, SessionId};
use crate::store::Tenant;
use crate::wire::plain::plain;

/// Candidates that one expression yields at most.
const CANDIDATES: usize = 2_000;

/// Where a search looks.
struct Place {
    tenant: Tenant,
    /// What must stand in the index's first column.
    marks: Vec<String>,
    /// Only these messages.
    only: Option<HashSet<i64>>,
    session: Option<SessionId>,
    agent: Option<Arc<str>>,
    /// Not the answers that no client has sent back: nothing says whose they are.
    sent_only: bool,
}

/// One candidate: a message, the passage of it that fits best, and how well (less is better).
#[derive(Clone, Copy)]
struct Found {
    message: i64,
    passage: usize,
    score: f64,
}

/// What is looked for, and how long.
#[derive(Clone, Copy)]
struct Task<'a> {
    asked: &'a Asked,
    max: usize,
    patience: Patience<'a>,
}

/// # Errors
/// [`Failed::Late`] if the time was up before anything was found.
pub(super) async fn search(
    db: &mut SqliteConnection,
    (tenant, scope): (Option<&Tenant>, &Scope),
    search: &Search,
    patience: Patience<'_>,
) -> Result<Hits, Failed> {
    let query = search.query.get(..floor(&search.query, MAX_QUERY)).unwrap_or_default();
    let (asked, max) = (Asked::of(query), search.max.min(MAX_HITS));
    if asked.terms.is_empty() || max == 0 {
        return Ok(Hits::default());
    }
    let task = Task { asked: &asked, max, patience };
    let mut found: Vec<(f64, Hit)> = Vec::new();
    let mut cut_short = false;
    for tenant in tenants(db, tenant).await? {
        let Some(place) = place(db, tenant, scope, search).await? else { continue };
        let mut hits = Vec::new();
        match search_in(db, &place, task, &mut hits).await {
            Ok(()) => {}
            Err(Failed::Late) => cut_short = true,
            Err(error) => return Err(error),
        }
        found.extend(hits);
        if cut_short {
            break;
        }
    }
    if cut_short && found.is_empty() {
        return Err(Failed::Late);
    }
    found.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    Ok(Hits { best: found.into_iter().map(|(_, hit)| hit).take(max).collect(), cut_short })
}

/// The tenant, or for the operator all.
async fn tenants(db: &mut SqliteConnection, tenant: Option<&Tenant>) -> Result<Vec<Tenant>, sqlx::Error> {
    if let Some(tenant) = tenant {
        return Ok(vec![*tenant]);
    }
    let rows = sqlx::query("SELECT DISTINCT tenant FROM logs").fetch_all(db).await?;
    Ok(rows.iter().filter_map(|row| Some(Tenant(row.try_get::<&[u8], _>(0).ok()?.try_into().ok()?))).collect())
}

/// `None`: nothing is in scope.
async fn place(
    db: &mut SqliteConnection,
    tenant: Tenant,
    scope: &Scope,
    search: &Search,
) -> Result<Option<Place>, sqlx::Error> {
    let (session, agent) = (search.session, search.agent.as_ref());
    let mut place = Place { tenant, marks: Vec::new(), only: None, session, agent: None, sent_only: false };
    if session.is_some() || matches!(scope, Scope::Conversation { .. }) {
        let Some(log) = in_scope(db, (Some(&tenant), scope), session).await? else { return Ok(None) };
        place.marks.push(format!("s{log}"));
    }
    match scope {
        Scope::Conversation { session, chain } => {
            place.session = Some(*session);
            if let Some(chain) = chain {
                let Some(log) = log_of(db, Some(&tenant), session).await? else { return Ok(None) };
                place.only = Some(ids(db, log, chain, None).await?.into_values().collect());
                place.sent_only = true;
            }
        }
        Scope::Agent(own) if agent.is_some_and(|agent| agent != own) => return Ok(None),
        Scope::Agent(_) | Scope::Tenant => {}
    }
    let own = match scope {
        Scope::Agent(own) => Some(own),
        Scope::Conversation { .. } | Scope::Tenant => None,
    };
    if let Some(agent) = own.or(agent) {
        place.marks.push(agent_mark(&tenant, agent));
        place.agent = Some(Arc::clone(agent));
    }
    Ok(Some(place))
}

/// Finds until there is enough or the time is up; what was found until then is in `hits`.
async fn search_in(
    db: &mut SqliteConnection,
    place: &Place,
    task: Task<'_>,
    hits: &mut Vec<(f64, Hit)>,
) -> Result<(), Failed> {
    let Task { asked, max, patience } = task;
    let mut seen = HashSet::new();
    // The words as they were typed come first, then what has all of them, then what has some.
    let several = asked.terms.len() > 1;
    // An identifier alone, too: its parts may stand together in many messages that do not have it.
    let spelt = asked.phrase.len() > 1 || asked.terms.iter().any(|spellings| spellings.len() > 1);
    let tiers = [spelt.then(|| phrase(place, asked)), Some(all(place, asked)), several.then(|| any(place, asked))];
    for (rank, expression) in tiers.into_iter().enumerate().filter_map(|(rank, tier)| Some((rank, tier?))) {
        if hits.len() >= max {
            break;
        }
        for found in candidates(db, place, &expression, max).await? {
            // Of phrases all are looked at: which of them stands there letter by letter is not in the index.
            if rank > 0 && hits.len() >= max {
                break;
            }
            patience.lasts()?;
            if seen.insert(found.message)
                && let Some((hit, literal)) = hit(db, place, asked, found).await?
            {
                let order = rank as f64 * 2.0 + f64::from(u8::from(!literal));
                hits.push((order * 1e9 + found.score, hit));
            }
        }
    }
    Ok(())
}

/// The words as they follow one another.
fn phrase(place: &Place, asked: &Asked) -> String {
    let tag = tag(&place.tenant);
    let words: Vec<String> = asked.phrase.iter().map(|word| format!("{tag}{word}")).collect();
    within(place, &format!("\"{}\"", words.join(" ")))
}

/// All words.
fn all(place: &Place, asked: &Asked) -> String {
    let terms: Vec<String> = asked.terms.iter().map(|term| spellings(place, term)).collect();
    within(place, &format!("({})", terms.join(" AND ")))
}

/// Any of the words.
fn any(place: &Place, asked: &Asked) -> String {
    let terms: Vec<String> = asked.terms.iter().map(|term| spellings(place, term)).collect();
    within(place, &format!("({})", terms.join(" OR ")))
}

fn within(place: &Place, expression: &str) -> String {
    let marks: String = place.marks.iter().map(|mark| format!("scope : \"{mark}\" AND ")).collect();
    format!("{marks}{expression}")
}

/// One word in any of its spellings.
fn spellings(place: &Place, term: &[Vec<String>]) -> String {
    let spelling = |tokens: &Vec<String>| {
        let tokens: Vec<String> = tokens.iter().map(|token| quoted(place, token)).collect();
        format!("({})", tokens.join(" AND "))
    };
    format!("({})", term.iter().map(spelling).collect::<Vec<_>>().join(" OR "))
}

/// Tokens hold letters, digits and `_` alone.
fn quoted(place: &Place, token: &str) -> String {
    format!("\"{}{token}\"", tag(&place.tenant))
}

/// The messages that fit an expression, best first.
async fn candidates(
    db: &mut SqliteConnection,
    place: &Place,
    expression: &str,
    max: usize,
) -> Result<Vec<Found>, sqlx::Error> {
    let query = "SELECT rowid, bm25(log_index, 0.0, 1.0, 0.6) AS score FROM log_index WHERE log_index MATCH ? \
                 ORDER BY score, rowid DESC";
    let query = sqlx::query(query).bind(expression.to_owned()).persistent(false);
    let mut rows = query.fetch(db);
    let (mut found, mut seen): (Vec<Found>, HashSet<i64>) = (Vec::new(), HashSet::new());
    // A few more than are wanted: some may turn out to be out of scope or unfinished.
    let enough = (max * 4 + 16).min(CANDIDATES);
    while let Some(row) = rows.try_next().await? {
        let (message, passage) = of_passage(row.try_get(0)?);
        let visible = place.only.as_ref().is_none_or(|only| only.contains(&message));
        if visible && seen.insert(message) {
            found.push(Found { message, passage, score: row.try_get(1)? });
            if found.len() >= enough {
                break;
            }
        }
    }
    Ok(found)
}

/// A candidate as a hit, and whether the query stands in it letter by letter. `None`: it is not in scope after all.
async fn hit(
    db: &mut SqliteConnection,
    place: &Place,
    asked: &Asked,
    found: Found,
) -> Result<Option<(Hit, bool)>, Failed> {
    let query = "SELECT l.tenant, l.session, m.agent, m.digest, m.number, m.role, m.time, m.after IS NOT NULL, m.whole \
                 FROM log_messages m JOIN logs l ON l.id = m.log WHERE m.id = ?";
    let Some(row) = sqlx::query(query).bind(found.message).fetch_optional(&mut *db).await? else { return Ok(None) };
    let (tenant, session): (&[u8], &[u8]) = (row.try_get(0)?, row.try_get(1)?);
    let (Ok(session), Some(digest)) = (session.try_into().map(SessionId), digest(&row, 3)?) else { return Ok(None) };
    let agent = agent(&row, 2)?;
    let answered: bool = row.try_get(7)?;
    let in_scope = tenant == place.tenant.0.as_slice()
        && place.session.is_none_or(|only| only == session)
        && place.agent.as_ref().is_none_or(|only| *only == agent)
        && !(answered && place.sent_only)
        && row.try_get::<i64, _>(8)? == 1;
    if !in_scope {
        return Ok(None);
    }
    let message = match logged(db, found.message).await {
        Ok(message) => message,
        Err(Failed::Damaged) => return Ok(None),
        Err(error) => return Err(error),
    };
    let asked = asked.clone();
    let shown = tokio::task::spawn_blocking(move || {
        let text = plain(message.dialect, message.json.as_bytes()).text;
        shown(&text, found.passage, &asked)
    });
    let (snippet, literal) = shown.await.map_err(|_| Failed::Damaged)?;
    let hit = Hit {
        tenant: place.tenant,
        session,
        agent,
        digest,
        number: u32::try_from(row.try_get::<i64, _>(4)?).unwrap_or(u32::MAX),
        role: role_of(row.try_get(5)?),
        time: row.try_get(6)?,
        snippet,
    };
    Ok(Some((hit, literal)))
}

/// The snippet of a message, and whether the query stands in it letter by letter: of the passage that fits best, unless
/// it stands in another.
fn shown(text: &str, passage: usize, asked: &Asked) -> (String, bool) {
    let all = passages(text);
    let of = |place: &Range<usize>| text.get(place.clone()).unwrap_or_default();
    let best = all.get(passage).map(of).unwrap_or_default();
    let literal = std::iter::once(best).chain(all.iter().map(of)).find(|passage| asked.stands_in(passage));
    (snippet(literal.unwrap_or(best), &asked.tokens), literal.is_some())
}

fn floor(text: &str, mut at: usize) -> usize {
    at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}
