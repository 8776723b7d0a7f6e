//! A connection for queries, opened when it is first needed and anew after a failure.

use std::sync::Arc;

use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;
use tokio::sync::{mpsc, oneshot};

use crate::compact::TextId;
use crate::memory::{MemoryFile, MemoryPath};
use crate::wire::Digest;

use super::files::{self, Keeper, MemoryEntry};
use super::flushes::{self, Waiting};
use super::memory::Loaded;
use super::overlays::{self, Found};
use super::shared::Shared;
use super::sqlite::{is_busy, open_reader};
use super::texts::unpack_text;
use super::{Limits, ReadError, Tenant, reads};

/// One question; whoever asked may have gone.
pub(super) enum Query {
    Rows {
        tenant: Tenant,
        digests: Vec<Digest>,
        reply: oneshot::Sender<Result<Loaded, ReadError>>,
    },
    Text {
        id: TextId,
        reply: oneshot::Sender<Result<Option<String>, ReadError>>,
    },
    Overlays {
        tenant: Tenant,
        digests: Vec<Digest>,
        reply: oneshot::Sender<Result<Found, ReadError>>,
    },
    Files {
        keeper: Keeper,
        path: Option<MemoryPath>,
        reply: oneshot::Sender<Result<Vec<MemoryFile>, ReadError>>,
    },
    Entries {
        reply: oneshot::Sender<Result<Vec<MemoryEntry>, ReadError>>,
    },
    Flush {
        keeper: Keeper,
        now: i64,
        reply: oneshot::Sender<Result<Waiting, ReadError>>,
    },
    /// Whether there is anything of a tenant's.
    Seen {
        tenant: Tenant,
        reply: oneshot::Sender<Result<bool, ReadError>>,
    },
    /// Read all marks; the number is [`Memory::forget_completeness`](super::memory::Memory)'s.
    Marks(u64),
    /// Copy the write-ahead log into the database, as far as nobody is in the way.
    Checkpoint,
}

pub(super) struct Reader {
    shared: Arc<Shared>,
    db: Option<SqliteConnection>,
    epoch: u64,
}

impl Reader {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, db: None, epoch: 0 }
    }

    /// Answers until nobody can ask any more.
    pub(super) async fn run(mut self, mut queries: mpsc::Receiver<Query>) {
        while let Some(query) = queries.recv().await {
            match query {
                Query::Rows { tenant, digests, reply } if !reply.is_closed() => {
                    let rows = self.rows(&tenant, &digests).await;
                    let _ = reply.send(rows);
                }
                Query::Text { id, reply } if !reply.is_closed() => {
                    let text = self.text(&id).await;
                    let _ = reply.send(text);
                }
                Query::Overlays { tenant, digests, reply } if !reply.is_closed() => {
                    let overlays = self.overlays(&tenant, &digests).await;
                    let _ = reply.send(overlays);
                }
                Query::Rows { .. } | Query::Text { .. } | Query::Overlays { .. } => {}
                Query::Files { keeper, path, reply } => {
                    let files = self.asked(async |db| files::read(db, &keeper, path).await).await;
                    let _ = reply.send(files.and_then(|files| files.into_iter().collect()));
                }
                Query::Entries { reply } => {
                    let _ = reply.send(self.asked(files::entries).await);
                }
                Query::Flush { keeper, now, reply } => {
                    let waiting = self.asked(async |db| flushes::waiting(db, &keeper, now).await).await;
                    let _ = reply.send(waiting.and_then(|waiting| waiting));
                }
                Query::Seen { tenant, reply } => {
                    let _ = reply.send(self.asked(async |db| reads::seen(db, &tenant).await).await);
                }
                Query::Marks(turn) => self.marks(turn).await,
                Query::Checkpoint => self.checkpoint().await,
            }
        }
        if let Some(db) = self.db {
            let _ = db.close().await;
        }
    }

    async fn rows(&mut self, tenant: &Tenant, digests: &[Digest]) -> Result<Loaded, ReadError> {
        let loaded = match self.db().await {
            Ok(db) => reads::load(db, tenant, digests).await,
            Err(error) => Err(error),
        };
        loaded.map_err(|error| self.failed(&error))
    }

    async fn overlays(&mut self, tenant: &Tenant, digests: &[Digest]) -> Result<Found, ReadError> {
        let found = match self.db().await {
            Ok(db) => overlays::read(db, tenant, digests).await,
            Err(error) => Err(error),
        };
        found.map_err(|error| self.failed(&error))
    }

    async fn text(&mut self, id: &TextId) -> Result<Option<String>, ReadError> {
        let text = match self.db().await {
            Ok(db) => reads::text(db, id).await,
            Err(error) => Err(error),
        };
        let Some((packed, length)) = text.map_err(|error| self.failed(&error))? else { return Ok(None) };
        // A long text takes longer to unpack than a commit may wait on this thread.
        let unpacked = tokio::task::spawn_blocking(move || unpack_text(&packed, length)).await;
        unpacked.map_err(|_| ReadError::Unavailable)?.map(Some).map_err(|_| ReadError::Damaged)
    }

    /// What a query says of the database.
    async fn asked<T>(
        &mut self,
        query: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, ReadError> {
        let said = match self.db().await {
            Ok(db) => query(db).await,
            Err(error) => Err(error),
        };
        said.map_err(|error| self.failed(&error))
    }

    async fn marks(&mut self, turn: u64) {
        let shared = Arc::clone(&self.shared);
        let read = match self.db().await {
            Ok(db) => match reads::marks(db, |mark| shared.memory().add_mark(mark)).await {
                Ok(()) => reads::least_covered(db).await,
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        match read {
            Ok(least_covered) => shared.memory().completed(turn, least_covered),
            Err(error) => drop(self.failed(&error)),
        }
    }

    async fn checkpoint(&mut self) {
        let Ok(db) = self.db().await else { return };
        if let Err(error) = sqlx::query("PRAGMA wal_checkpoint(PASSIVE)").execute(db).await {
            tracing::debug!(%error, "log not copied");
        }
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// Opens anew at the next query.
    pub(super) fn let_go(&mut self) {
        self.db = None;
    }

    pub(super) async fn db(&mut self) -> Result<&mut SqliteConnection, sqlx::Error> {
        let (epoch, path) = (self.shared.epoch(), self.shared.path.as_ref());
        // A database that was never opened for writing may have no schema.
        let path = path.filter(|_| epoch > 0).ok_or(sqlx::Error::PoolClosed)?;
        if epoch != self.epoch {
            self.db = None;
            self.epoch = epoch;
        }
        match &mut self.db {
            Some(db) => Ok(db),
            db @ None => Ok(db.insert(open_reader(path).await?)),
        }
    }

    fn failed(&mut self, error: &sqlx::Error) -> ReadError {
        tracing::debug!(%error, "query failed");
        if !is_busy(error) {
            self.db = None;
            self.shared.set_unreadable();
            self.shared.degrade(error);
        }
        ReadError::Unavailable
    }
}
