//! What tests ask of the log's parts.

use std::time::{Duration, Instant};

use sqlx::sqlite::SqliteConnection;

use super::pieces::Groups;
use super::queries::{Failed, Patience, limited};
use super::read::history;
use super::search::search;
use super::{Group, HistoryPage, Hits, LogBatch, Room, Scope, Search, SessionId, Shared, Wrote, write};
use crate::store::Tenant;
use crate::wire::Digest;

/// A search through all of a tenant's until `gone`.
pub async fn search_while(
    db: &mut SqliteConnection,
    tenant: &Tenant,
    asked: &Search,
    gone: &(dyn Fn() -> bool + Send + Sync),
) -> Option<Hits> {
    let patience = Patience { until: Instant::now() + Duration::from_secs(3_600), gone };
    search(db, (Some(tenant), &Scope::Tenant), asked, patience).await.ok()
}

/// Numbers of the messages on a page, where it takes no more than so many thousand steps of the database.
pub async fn page_within(
    db: &mut SqliteConnection,
    thousands: u32,
    (tenant, scope, session): (&Tenant, &Scope, SessionId),
    page: HistoryPage,
) -> Option<Vec<u32>> {
    let mut left = thousands;
    let goes_on = move || {
        left = left.saturating_sub(1);
        left > 0
    };
    db.lock_handle().await.unwrap().set_progress_handler(1_000, goes_on);
    let patience = Patience { until: Instant::now() + Duration::from_secs(3_600), gone: &|| false };
    let mut room: Room = Box::new(|_| true);
    let read = history(db, (Some(tenant), scope, Some(session)), page, (patience, &mut room)).await;
    db.lock_handle().await.unwrap().remove_progress_handler();
    Some(read.ok()??.iter().map(|message| message.number).collect())
}

/// Whether a query is broken off that would take longer than some milliseconds.
pub async fn late_query(db: &mut SqliteConnection, query: &str) -> bool {
    let until = Instant::now() + Duration::from_millis(5);
    let asked = limited(db, until, async |db| Ok(sqlx::query(query).fetch_one(db).await.map(drop)?)).await;
    matches!(asked, Err(Failed::Late)) && sqlx::query("SELECT 1").fetch_one(db).await.is_ok()
}

/// The groups of batches, which count as given from now on.
pub fn given(shared: &Shared, tenant: &Tenant, batches: &[LogBatch]) -> Vec<Group> {
    batches.iter().for_each(|batch| shared.mark(&shared.marks_of(tenant, batch)));
    batches.iter().flat_map(|batch| Groups::of(*tenant, batch, 0).unwrap()).collect()
}

/// Messages that were lost so far.
pub fn lost(shared: &Shared) -> u64 {
    shared.dropped_so_far()
}

/// Whether a session's message is not given again.
pub fn is_known(shared: &Shared, tenant: &Tenant, (session, digest): (&SessionId, &Digest)) -> bool {
    shared.known(tenant, session, &[*digest]) == 1
}

/// Writes a batch without one of its groups; how many there are.
pub async fn write_all_but(db: &mut SqliteConnection, tenant: &Tenant, batch: &LogBatch, lost: usize) -> usize {
    let mut count = 0;
    for (number, group) in Groups::of(*tenant, batch, 0).unwrap().enumerate() {
        if number != lost {
            assert!(matches!(write(db, &[group]).await, Ok(Wrote::All)));
        }
        count += 1;
    }
    count
}
