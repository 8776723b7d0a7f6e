//! The schema, by versions. A released version never changes; a change is a new version.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;

use sqlx::error::BoxDynError;
use sqlx::migrate::{MigrateError, Migration, MigrationSource, MigrationType, Migrator};
use sqlx::sqlite::SqliteConnection;

/// All versions, ascending: number, name, statements.
const VERSIONS: &[(i64, &str, &str)] = &[
    (1, "rows", include_str!("migrations/1_rows.sql")),
    (2, "learned", include_str!("migrations/2_learned.sql")),
    (3, "least_covered", include_str!("migrations/3_least_covered.sql")),
    (4, "log", include_str!("migrations/4_log.sql")),
    (5, "overlays", include_str!("migrations/5_overlays.sql")),
    (6, "memory", include_str!("migrations/6_memory.sql")),
    (7, "retired", include_str!("migrations/7_retired.sql")),
    (8, "kept_facts", include_str!("migrations/8_kept_facts.sql")),
    (9, "log_order", include_str!("migrations/9_log_order.sql")),
    (10, "tool_use", include_str!("migrations/10_tool_use.sql")),
];

/// The schema up to and including a version.
#[derive(Debug)]
struct UpTo(i64);

impl<'s> MigrationSource<'s> for UpTo {
    fn resolve(self) -> Pin<Box<dyn Future<Output = Result<Vec<Migration>, BoxDynError>> + Send + 's>> {
        let versions = VERSIONS.iter().filter(move |(version, ..)| *version <= self.0);
        let migrations = versions.map(|(version, name, sql)| {
            Migration::new(*version, Cow::Borrowed(*name), MigrationType::Simple, Cow::Borrowed(*sql), false)
        });
        let migrations = migrations.collect();
        Box::pin(async move { Ok(migrations) })
    }
}

/// Brings the database to this program's schema.
///
/// # Errors
/// `VersionMissing` if a newer program has written it; otherwise what the database says.
pub(super) async fn migrate(db: &mut SqliteConnection) -> Result<(), MigrateError> {
    migrate_to(db, i64::MAX).await
}

/// This program's version.
pub(super) fn newest() -> i64 {
    VERSIONS.last().map_or(0, |(version, ..)| *version)
}

pub(super) async fn migrate_to(db: &mut SqliteConnection, version: i64) -> Result<(), MigrateError> {
    Migrator::new(UpTo(version)).await?.run(db).await
}
