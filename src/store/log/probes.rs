//! What tests ask of the log's parts.

use std::time::{Duration, Instant};

use sqlx::sqlite::SqliteConnection;

use super::pieces::Groups;
use super::queries::{Failed, Patience, limited};
use super::search::search;
use super::{Hits, LogBatch, Scope, Search, write};
use crate::store::Tenant;

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

/// Whether a query is broken off that would take longer than some milliseconds.
pub async fn late_query(db: &mut SqliteConnection, query: &str) -> bool {
    let until = Instant::now() + Duration::from_millis(5);
    let asked = limited(db, until, async |db| Ok(sqlx::query(query).fetch_one(db).await.map(drop)?)).await;
    matches!(asked, Err(Failed::Late)) && sqlx::query("SELECT 1").fetch_one(db).await.is_ok()
}

/// Writes a batch without one of its groups; how many there are.
pub async fn write_all_but(db: &mut SqliteConnection, tenant: &Tenant, batch: &LogBatch, lost: usize) -> usize {
    let mut count = 0;
    for (number, group) in Groups::of(*tenant, batch, 0).unwrap().enumerate() {
        if number != lost {
            write(db, &[group]).await.unwrap();
        }
        count += 1;
    }
    count
}
