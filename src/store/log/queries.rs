//! Questions to the log and who answers them, each within its time and only while somebody waits.

use std::collections::HashSet;
use std::time::Instant;

use sqlx::sqlite::SqliteConnection;
use tokio::sync::{mpsc, oneshot};

use super::lists::sessions;
use super::read::{history, stored, written};
use super::search::search;
use super::{HistoryPage, Hits, Logged, Room, Scope, Search, SessionId, SessionInfo};
use crate::store::reader::Reader;
use crate::store::sqlite::{at_one_moment, is_interrupted};
use crate::store::{ReadError, Tenant};
use crate::wire::Digest;

/// Steps of the database between two looks at the time.
const STEPS: i32 = 1_000;

type Reply<T> = oneshot::Sender<Result<T, ReadError>>;

/// One question; whoever asked may have gone. `tenant`: `None` for the operator, who sees all.
pub(in crate::store) enum LogQuery {
    /// Which of these messages are written.
    Stored {
        tenant: Tenant,
        session: SessionId,
        digests: Vec<Digest>,
        reply: Reply<HashSet<Digest>>,
    },
    Sessions {
        tenant: Option<Tenant>,
        scope: Scope,
        reply: Reply<Vec<SessionInfo>>,
    },
    History {
        tenant: Option<Tenant>,
        scope: Scope,
        session: Option<SessionId>,
        page: HistoryPage,
        room: Room,
        reply: Reply<Option<Vec<Logged>>>,
    },
    Written {
        session: SessionId,
        after: i64,
        reply: Reply<(Vec<Logged>, i64)>,
    },
    Search {
        tenant: Option<Tenant>,
        scope: Scope,
        search: Search,
        /// It is over then, even if it had to wait for its turn.
        until: Instant,
        reply: Reply<Hits>,
    },
    /// Answers nothing else until this is closed.
    #[cfg(test)]
    Hold(oneshot::Receiver<()>),
}

/// A reader that knows the log.
pub(in crate::store) struct LogReader(pub Reader);

/// Why a query has no answer.
#[derive(Debug)]
pub(super) enum Failed {
    Database(sqlx::Error),
    Damaged,
    /// Its time is up, or nobody waits any more.
    Late,
    /// What it would read has no room.
    NoRoom,
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        if is_interrupted(&error) { Self::Late } else { Self::Database(error) }
    }
}

/// How long a query may go on.
#[derive(Clone, Copy)]
pub(super) struct Patience<'r> {
    pub until: Instant,
    /// Whether nobody waits for the answer any more.
    pub gone: &'r (dyn Fn() -> bool + Send + Sync),
}

impl Patience<'_> {
    /// # Errors
    /// [`Failed::Late`] when it is over.
    pub(super) fn lasts(&self) -> Result<(), Failed> {
        if Instant::now() >= self.until || (self.gone)() { Err(Failed::Late) } else { Ok(()) }
    }
}

impl LogReader {
    /// Answers until nobody can ask any more.
    pub(in crate::store) async fn run(mut self, mut queries: mpsc::Receiver<LogQuery>) {
        while let Some(query) = self.0.next(&mut queries).await {
            self.answer(query).await;
        }
        self.0.leave().await;
    }

    async fn answer(&mut self, query: LogQuery) {
        let until = Instant::now() + self.0.limits().text_bound();
        match query {
            LogQuery::Stored { tenant, session, digests, reply } if !reply.is_closed() => {
                let owner = (&tenant, &session);
                let _ = reply.send(self.with(until, async |db| stored(db, owner, &digests).await).await);
            }
            LogQuery::Sessions { tenant, scope, reply } if !reply.is_closed() => {
                let listed = self.with(until, async |db| sessions(db, tenant.as_ref(), &scope).await).await;
                let _ = reply.send(listed);
            }
            LogQuery::History { tenant, scope, session, page, mut room, reply } if !reply.is_closed() => {
                let asked = (tenant.as_ref(), &scope, session);
                let patience = Patience { until, gone: &|| reply.is_closed() };
                let read = self.with(until, async |db| history(db, asked, page, (patience, &mut room)).await).await;
                // Whoever gets the page has the room that it takes, and nobody else.
                drop(room);
                let _ = reply.send(read);
            }
            LogQuery::Search { tenant, scope, search: asked, until, reply } if !reply.is_closed() => {
                let until = until.min(Instant::now() + self.0.limits().search_bound);
                let patience = Patience { until, gone: &|| reply.is_closed() };
                let place = (tenant.as_ref(), &scope);
                let found = self.with(until, async |db| search(db, place, &asked, patience).await).await;
                let _ = reply.send(found);
            }
            LogQuery::Written { session, after, reply } if !reply.is_closed() => {
                let _ = reply.send(self.with(until, async |db| written(db, session, after).await).await);
            }
            #[cfg(test)]
            LogQuery::Hold(released) => drop(released.await),
            _ => {}
        }
    }

    /// Asks the database, which breaks off when the time is up.
    async fn with<T>(
        &mut self,
        until: Instant,
        query: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, Failed>,
    ) -> Result<T, ReadError> {
        let answer = match self.0.db().await {
            Ok(db) => limited(db, until, query).await,
            Err(error) => Err(error.into()),
        };
        Err(match answer {
            Ok(answer) => return Ok(answer),
            Err(Failed::Damaged) => ReadError::Damaged,
            Err(Failed::Late) => ReadError::Late,
            Err(Failed::NoRoom) => ReadError::NoRoom,
            Err(Failed::Database(error)) => {
                // The log says nothing of the store's health.
                tracing::debug!(%error, "log not read");
                self.0.leave().await;
                ReadError::Unavailable
            }
        })
    }
}

/// Runs a query that the database breaks off at a time.
pub(super) async fn limited<T>(
    db: &mut SqliteConnection,
    until: Instant,
    query: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, Failed>,
) -> Result<T, Failed> {
    at_one_moment(db, async |db| {
        db.lock_handle().await?.set_progress_handler(STEPS, move || Instant::now() < until);
        let answer = query(&mut *db).await;
        db.lock_handle().await?.remove_progress_handler();
        answer
    })
    .await
}
