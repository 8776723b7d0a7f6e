//! A connection for queries, opened when it is first needed and anew after a failure.

use std::sync::Arc;

use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;
use tokio::sync::{mpsc, oneshot, watch};

use crate::compact::TextId;
use crate::memory::{MemoryFile, MemoryPath};
use crate::wire::Digest;

use super::door::Inside;
use super::files::{self, Keeper, MemoryEntry, sizes};
use super::flushes::{self, Waiting};
use super::memory::Loaded;
use super::overlays::{self, Found};
use super::shared::Shared;
use super::sqlite::{at_one_moment, files as files_at, is_busy, open_reader};
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
    Sizes {
        keeper: Keeper,
        reply: oneshot::Sender<Result<Vec<(MemoryPath, usize)>, ReadError>>,
    },
    Room {
        keeper: Keeper,
        path: MemoryPath,
        reply: oneshot::Sender<Result<usize, ReadError>>,
    },
    Previous {
        keeper: Keeper,
        path: MemoryPath,
        reply: oneshot::Sender<Result<Option<String>, ReadError>>,
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
    calls: watch::Receiver<u64>,
    /// The connection, and that it is one.
    db: Option<(SqliteConnection, Inside)>,
}

impl Reader {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { calls: shared.door.calls(), shared, db: None }
    }

    /// The next question. Until it comes, the reader leaves when it is to.
    pub(super) async fn next<Q>(&mut self, queries: &mut mpsc::Receiver<Q>) -> Option<Q> {
        loop {
            tokio::select! {
                biased;
                Ok(()) = self.calls.changed() => self.leave().await,
                query = queries.recv() => return query,
            }
        }
    }

    /// Answers until nobody can ask any more.
    pub(super) async fn run(mut self, mut queries: mpsc::Receiver<Query>) {
        while let Some(query) = self.next(&mut queries).await {
            self.answer(query).await;
        }
        self.leave().await;
    }

    async fn answer(&mut self, query: Query) {
        match query {
            Query::Rows { tenant, digests, reply } if !reply.is_closed() => {
                let _ = reply.send(self.asked(async |db| reads::load(db, &tenant, &digests).await).await);
            }
            Query::Text { id, reply } if !reply.is_closed() => {
                let text = self.text(&id).await;
                let _ = reply.send(text);
            }
            Query::Overlays { tenant, digests, reply } if !reply.is_closed() => {
                let _ = reply.send(self.asked(async |db| overlays::read(db, &tenant, &digests).await).await);
            }
            Query::Rows { .. } | Query::Text { .. } | Query::Overlays { .. } => {}
            Query::Files { keeper, path, reply } => {
                let files = self.asked(async |db| files::read(db, &keeper, path).await).await;
                let _ = reply.send(files.and_then(|files| files.into_iter().collect()));
            }
            Query::Sizes { keeper, reply } => {
                let _ = reply.send(self.asked(async |db| sizes::sizes(db, &keeper).await).await);
            }
            Query::Room { keeper, path, reply } => {
                let _ = reply.send(self.asked(async |db| sizes::room(db, &keeper, path).await).await);
            }
            Query::Previous { keeper, path, reply } => {
                let previous = self.asked(async |db| sizes::previous(db, &keeper, path).await).await;
                let _ = reply.send(previous.and_then(|previous| previous));
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

    async fn text(&mut self, id: &TextId) -> Result<Option<String>, ReadError> {
        let Some((packed, length)) = self.asked(async |db| reads::text(db, id).await).await? else { return Ok(None) };
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
            Ok(db) => at_one_moment(db, query).await,
            Err(error) => Err(error),
        };
        match said {
            Ok(said) => Ok(said),
            Err(error) => Err(self.failed(&error).await),
        }
    }

    async fn marks(&mut self, turn: u64) {
        let shared = Arc::clone(&self.shared);
        let read = async |db: &mut SqliteConnection| {
            reads::marks(db, |mark| shared.memory().add_mark(mark)).await?;
            reads::least_covered(db).await
        };
        if let Ok(least_covered) = self.asked(read).await {
            self.shared.memory().completed(turn, least_covered);
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

    /// Closes the connection; the next query opens it anew.
    pub(super) async fn leave(&mut self) {
        if let Some((db, _inside)) = self.db.take() {
            let _ = db.close().await;
        }
    }

    /// A connection to what the writer has opened. `PoolClosed`: there is nothing now, or something else lies there,
    /// which the writer will see as well.
    pub(super) async fn db(&mut self) -> Result<&mut SqliteConnection, sqlx::Error> {
        if self.db.is_some() && self.shared.door.is_gone() {
            self.leave().await;
        }
        if self.db.is_none() {
            self.calls.mark_unchanged();
            let inside = self.shared.door.enter().await;
            let path = self.shared.path.as_deref().filter(|_| self.is_there()).ok_or(sqlx::Error::PoolClosed)?;
            let opened = open_reader(path).await;
            if self.is_there() {
                self.db = Some((opened?, inside));
            } else if let Ok(db) = opened {
                let _ = db.close().await;
            }
        }
        self.db.as_mut().map(|(db, _)| db).ok_or(sqlx::Error::PoolClosed)
    }

    /// Whether what the writer has opened still lies at its path.
    fn is_there(&self) -> bool {
        self.shared.door.open().is_some_and(|open| self.shared.path.as_deref().and_then(files_at) == Some(open))
    }

    async fn failed(&mut self, error: &sqlx::Error) -> ReadError {
        tracing::debug!(%error, "query failed");
        if !is_busy(error) {
            self.leave().await;
            // Of a file that was deleted or replaced nothing follows for the one that comes in its place.
            if self.is_there() {
                self.shared.set_unreadable();
                self.shared.degrade(error);
            }
        }
        ReadError::Unavailable
    }
}
