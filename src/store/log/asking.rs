//! The store's face of the log: messages are given to it, lists, pages and hits come back.

use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::queries::LogQuery;
use super::scribe::{Given, weight};
use super::{HistoryPage, Hits, LogBatch, Logged, Room, Scope, Search, SessionId, SessionInfo};
use crate::store::{Health, ReadError, Store, Tenant};
use crate::wire::Digest;

/// How many of a conversation's messages are asked for at once; mostly one of the latest is written.
const NEAR: usize = 256;
/// A search is over by then, even if it had to wait for its turn: before its asker gives up.
const ANSWERS_BEFORE: Duration = Duration::from_millis(500);

impl Store {
    /// The session that `name` names for a tenant, `root` being the digest of its first message. Its parts are
    /// kept apart, and nobody can make an id from outside.
    pub fn session_id(&self, tenant: &Tenant, name: Option<&[u8]>, root: Option<&Digest>) -> SessionId {
        SessionId(self.shared.secret().session(tenant, name, root))
    }

    /// How many of a conversation's leading messages need not be given to [`log`](Self::log) any more.
    pub fn logged(&self, tenant: &Tenant, session: &SessionId, chain: &[Digest]) -> usize {
        self.shared.log.known(tenant, session, chain)
    }

    /// Queues messages to be logged. Never waits: what does not fit is dropped and counted.
    pub fn log(&self, tenant: &Tenant, batch: LogBatch) {
        let usable = self.shared.path.is_some() && self.shared.health() == Health::Up;
        if batch.messages.is_empty() {
            return;
        }
        let messages = batch.messages.len();
        if !usable || !self.shared.log.take_room(&batch) {
            return self.shared.log.dropped(messages);
        }
        let marks = self.shared.log.marks_of(tenant, &batch);
        let bytes = weight(&batch);
        match self.log_in.try_send(Given::Batch(*tenant, batch)) {
            Ok(()) => self.shared.log.mark(&marks),
            Err(_) => {
                self.shared.log.give_room(bytes);
                self.shared.log.dropped(messages);
            }
        }
    }

    /// Messages that were not logged: their queue was full, or the store was gone.
    pub fn dropped_messages(&self) -> u64 {
        self.shared.log.dropped_so_far()
    }

    /// Counts messages that never reached [`log`](Self::log).
    pub fn drop_messages(&self, messages: usize) {
        self.shared.log.dropped(messages);
    }

    /// Waits until all that was logged so far is written, or cannot be.
    pub async fn flush_log(&self) {
        let (reply, done) = oneshot::channel();
        if self.log_in.send(Given::Flush(reply)).await.is_ok() {
            let _ = done.await;
        }
    }

    /// The sessions in scope, those used last first; at most [`MAX_SESSIONS`](super::MAX_SESSIONS).
    ///
    /// # Errors
    /// If the database does not answer within [`TEXT_BOUND`](crate::store::TEXT_BOUND).
    pub async fn sessions(&self, tenant: &Tenant, scope: &Scope) -> Result<Vec<SessionInfo>, ReadError> {
        let (tenant, scope) = (Some(*tenant), scope.clone());
        self.ask_log(&self.log_pages, |reply| LogQuery::Sessions { tenant, scope, reply }).await
    }

    /// A page of a session's messages, oldest first: of `session`, else of the scope's own. `None` where there is no
    /// such session in scope, whether or not it exists.
    ///
    /// # Errors
    /// If the database does not answer within [`TEXT_BOUND`](crate::store::TEXT_BOUND), or a message is damaged.
    pub async fn history(
        &self,
        tenant: &Tenant,
        scope: &Scope,
        session: Option<SessionId>,
        page: HistoryPage,
    ) -> Result<Option<Vec<Logged>>, ReadError> {
        self.history_within(tenant, scope, (session, page), Box::new(|_| true)).await
    }

    /// The same within `room`: it is asked before each message is loaded, the latest one first.
    ///
    /// # Errors
    /// As [`history`](Self::history), and [`ReadError::NoRoom`] if there is none for the latest message.
    pub async fn history_within(
        &self,
        tenant: &Tenant,
        scope: &Scope,
        (session, page): (Option<SessionId>, HistoryPage),
        room: Room,
    ) -> Result<Option<Vec<Logged>>, ReadError> {
        let (tenant, scope) = (Some(*tenant), scope.clone());
        self.ask_log(&self.log_pages, |reply| LogQuery::History { tenant, scope, session, page, room, reply }).await
    }

    /// Messages in scope with the words of a query, best first: those with all of them, then those with some; of equal
    /// ones the newest first.
    ///
    /// # Errors
    /// [`ReadError::Late`] if nothing was found within [`SEARCH_BOUND`](super::SEARCH_BOUND), though there was more to look at.
    pub async fn search_log(&self, tenant: &Tenant, scope: &Scope, search: &Search) -> Result<Hits, ReadError> {
        self.search(Some(*tenant), scope.clone(), search.clone()).await
    }

    /// The last of a conversation's messages that is written: the latest ones may not be yet. `None`: there is none.
    ///
    /// # Errors
    /// As [`sessions`](Self::sessions).
    pub async fn last_logged(
        &self,
        tenant: &Tenant,
        session: SessionId,
        chain: &[Digest],
    ) -> Result<Option<Digest>, ReadError> {
        for some in chain.rchunks(NEAR) {
            let (tenant, digests) = (*tenant, some.to_vec());
            let stored =
                self.ask_log(&self.log_pages, |reply| LogQuery::Stored { tenant, session, digests, reply }).await?;
            if let Some(last) = some.iter().rfind(|digest| stored.contains(*digest)) {
                return Ok(Some(*last));
            }
        }
        Ok(None)
    }

    /// The operator's list: all tenants' sessions.
    ///
    /// # Errors
    /// As [`sessions`](Self::sessions).
    pub async fn all_sessions(&self) -> Result<Vec<SessionInfo>, ReadError> {
        self.all_within(Scope::Tenant).await
    }

    /// The same, of those that an agent wrote in.
    ///
    /// # Errors
    /// As [`sessions`](Self::sessions).
    pub async fn sessions_of(&self, agent: &str) -> Result<Vec<SessionInfo>, ReadError> {
        self.all_within(Scope::Agent(agent.into())).await
    }

    async fn all_within(&self, scope: Scope) -> Result<Vec<SessionInfo>, ReadError> {
        self.ask_log(&self.log_pages, |reply| LogQuery::Sessions { tenant: None, scope, reply }).await
    }

    /// A page of any tenant's session, for the operator.
    ///
    /// # Errors
    /// As [`history`](Self::history).
    pub async fn any_history(&self, session: SessionId, page: HistoryPage) -> Result<Option<Vec<Logged>>, ReadError> {
        let (scope, session, room) = (Scope::Tenant, Some(session), Box::new(|_| true));
        self.ask_log(&self.log_pages, |reply| LogQuery::History { tenant: None, scope, session, page, room, reply })
            .await
    }

    /// A search through all tenants, for the operator.
    ///
    /// # Errors
    /// As [`search_log`](Self::search_log).
    pub async fn search_all(&self, search: &Search) -> Result<Hits, ReadError> {
        self.search(None, Scope::Tenant, search.clone()).await
    }

    async fn search(&self, tenant: Option<Tenant>, scope: Scope, search: Search) -> Result<Hits, ReadError> {
        let until = Instant::now() + self.shared.limits.text_bound().saturating_sub(ANSWERS_BEFORE);
        self.ask_log(&self.log_searches, |reply| LogQuery::Search { tenant, scope, search, until, reply }).await
    }

    /// Messages of a session in the order in which they were written, all branches together, for the operator: those
    /// behind the one with the number `after` in that order (0: from the first), with the number to go on from. None
    /// are left where there are none.
    ///
    /// # Errors
    /// As [`history`](Self::history).
    pub async fn written(&self, session: SessionId, after: i64) -> Result<(Vec<Logged>, i64), ReadError> {
        self.ask_log(&self.log_pages, |reply| LogQuery::Written { session, after, reply }).await
    }

    async fn ask_log<T>(
        &self,
        reader: &mpsc::Sender<LogQuery>,
        query: impl FnOnce(oneshot::Sender<Result<T, ReadError>>) -> LogQuery,
    ) -> Result<T, ReadError> {
        let (reply, answer) = oneshot::channel();
        reader.try_send(query(reply)).map_err(|_| ReadError::Unavailable)?;
        let answer = timeout(self.shared.limits.text_bound(), answer).await.map_err(|_| ReadError::Unavailable)?;
        answer.unwrap_or(Err(ReadError::Unavailable))
    }
}
