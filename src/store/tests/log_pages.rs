//! A page of a very long session costs no more than one of a short one.

use super::super::log::{self, Cursor, HistoryPage, Scope, SessionId, Tip};
use super::log_rows::{ALL, own, session};
use super::*;

/// Messages of the conversation, and of a sub-agent's in the same session.
const LONG: u32 = 20_000;
const SIDE: u32 = 5_000;
/// What one page may cost, in thousands of steps: to look at each message would cost several times as much.
const PAGE: u32 = 60;

fn digest(n: u32) -> Digest {
    format!("{n:08}{:024}", 0).into_bytes().try_into().unwrap()
}

/// A session of a conversation, in which a sub-agent has a branch of its own, written last.
async fn long(f: &Fixture, db: &mut sqlx::sqlite::SqliteConnection) -> SessionId {
    let id = session(f, "long");
    let log = "INSERT INTO logs (id, tenant, session, agent, title, first_used, last_used, messages, tokens, bytes) \
               VALUES (1, ?1, ?2, 'codex', '', ?3, ?3, 0, 0, 0)";
    let log = sqlx::query(log).bind(f.tenant.0.as_slice()).bind(id.0.as_slice());
    log.bind(shared::now()).execute(&mut *db).await.unwrap();
    for (agent, first, count) in [("codex", 0, LONG), ("sub", LONG, SIDE)] {
        sqlx::query("INSERT INTO log_agents VALUES (1, ?)").bind(agent).execute(&mut *db).await.unwrap();
        let messages = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?3) \
                        INSERT INTO log_messages (log, digest, parent, number, role, agent, dialect, time, length, passages, whole) \
                        SELECT 1, CAST(printf('%08d%024d', ?2 + i, 0) AS BLOB), \
                        CASE WHEN i > 1 THEN CAST(printf('%08d%024d', ?2 + i - 1, 0) AS BLOB) END, i, 1, ?1, 0, 0, 0, 0, 1 FROM n";
        let messages = sqlx::query(messages).bind(agent).bind(first).bind(count);
        messages.execute(&mut *db).await.unwrap();
    }
    id
}

#[tokio::test]
async fn a_page_of_a_long_history_reads_no_more_than_one_of_a_short_one() {
    let f = Fixture::new().await;
    let mut db = f.outsider().await;
    let id = long(&f, &mut db).await;
    let chain: Vec<Digest> = (1..=LONG).map(digest).collect();
    let within = Scope::Conversation { session: id, chain: Some(chain.into()) };
    let page = HistoryPage { last: 20, ..ALL };
    let of = |agent: &str| Some(agent.into());
    let through = |n: u32| Some(Tip::Through(Cursor::of(&digest(n))));
    let at = |n: u32| Some(Tip::At(digest(n)));
    let cases: [(Scope, HistoryPage, u32); 14] = [
        (own(id), page.clone(), SIDE),
        (own(id), HistoryPage { agent: of("codex"), ..page.clone() }, LONG),
        (own(id), HistoryPage { agent: of("sub"), ..page.clone() }, SIDE),
        (own(id), HistoryPage { tip: at(10_000), ..page.clone() }, 10_000),
        // As a hit says, and as a page says of the one before it.
        (own(id), HistoryPage { tip: through(5_000), before: Some(5_001), ..page.clone() }, 5_000),
        (own(id), HistoryPage { tip: through(5_000), before: Some(5_000), ..page.clone() }, 4_999),
        (own(id), HistoryPage { tip: through(LONG + 50), before: Some(51), ..page.clone() }, 50),
        (own(id), HistoryPage { tip: through(5_000), before: Some(5_021), ..page.clone() }, 5_020),
        (Scope::Tenant, page.clone(), SIDE),
        (Scope::Agent("codex".into()), page.clone(), LONG),
        (Scope::Agent("sub".into()), HistoryPage { tip: through(LONG + 50), before: Some(51), ..page.clone() }, 50),
        (within.clone(), page.clone(), LONG),
        (within.clone(), HistoryPage { before: Some(5_001), ..page.clone() }, 5_000),
        (within.clone(), HistoryPage { tip: at(7_000), before: Some(6_001), ..page.clone() }, 6_000),
    ];
    for (scope, page, last) in cases {
        let what = format!("{page:?} {last}");
        let read = log::page_within(&mut db, PAGE, (&f.tenant, &scope, id), page).await;
        assert_eq!(read, Some((last - 19..=last).collect()), "{what}");
    }
    // Who has no message in it is not looked for in each.
    for agent in ["sub", "nobody"] {
        let page = HistoryPage { agent: of(agent), ..page.clone() };
        let most = if agent == "sub" { 30 * PAGE } else { PAGE };
        assert_eq!(log::page_within(&mut db, most, (&f.tenant, &within, id), page).await, Some(vec![]), "{agent}");
    }
    // A branch that is named by an early message goes on for so many.
    let page = HistoryPage { tip: through(5_000), ..page };
    let read = log::page_within(&mut db, 30 * PAGE, (&f.tenant, &own(id), id), page).await;
    assert_eq!(read, Some((14_981..=15_000).collect()));
}
