//! The way of requests and answers into the session log. The answer path hands over what it has and goes on: bodies
//! are read on a thread of their own, known history costs a hash there, and what finds the queue full is dropped and
//! counted.

mod reader;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Uri};
use tokio::sync::oneshot;

use self::reader::Reader;
use super::Shard;
use super::budget::{Budget, Permit};
use super::identity::{Names, Session};
use super::origin::Incoming;
use super::tenant::{Identity, Proof};
use crate::store::{Store, Tenant};
use crate::wire::answered::Answered;
use crate::wire::memo::Memo;
use crate::wire::{Dialect, Digest, Errand};

/// Requests and answers that may wait to be read.
const MAX_ENTRIES: usize = 1_024;
/// Bytes of bodies that may wait. One body alone always may.
const MAX_BYTES: usize = 32 << 20;
/// How long what comes first waits for what comes with it: a wake-up of the reader's thread for each of them would cost
/// the client that they came from more than to hand them over does.
const GATHERING: Duration = Duration::from_millis(10);
/// Bytes of bodies that are not to wait so long.
const MANY_BYTES: usize = 1 << 20;
/// Bytes of an answer that are kept as they came; of a longer one so many are handed over at a time.
const RAW_BYTES: usize = 128 << 10;

/// Takes what is to be logged.
pub struct Journal {
    entries: SyncSender<Entry>,
    waiting: Arc<AtomicUsize>,
    reader: Thread,
    store: Arc<Store>,
}

/// Where an answer will belong, once its request was read.
pub type Ticket = Arc<OnceLock<Place>>;

/// The end of a logged conversation.
#[derive(Debug)]
pub struct Place {
    tenant: Tenant,
    session: Session,
    dialect: Dialect,
    /// Digest and number of the last message.
    tip: (Digest, u32),
}

enum Entry {
    Request(Box<Request>),
    /// A part of an answer; more are to come.
    Part(Arc<Mutex<Gathered>>, Vec<u8>, Permit),
    Answer(Ticket, Heard),
    Flush(oneshot::Sender<()>),
}

/// A request as its body came, decoded.
struct Request {
    shard: Arc<Shard>,
    index: usize,
    uri: Uri,
    /// Where policies may ask for them.
    headers: Option<HeaderMap>,
    names: Names,
    dialect: Dialect,
    tenant: Tenant,
    body: Bytes,
    /// The share of the buffer cap that the body has.
    _permit: Vec<Arc<Permit>>,
    ticket: Ticket,
}

/// A long answer as far as it was read. Its listener has it as well, so that it goes with that one.
struct Gathered {
    answered: Answered,
    /// The share of the buffer cap that it has.
    share: Permit,
    /// There was no room for it.
    dropped: bool,
}

impl Gathered {
    fn see(&mut self, raw: &[u8]) {
        self.answered.see(raw);
        if !self.dropped && !self.share.resize(self.answered.held()) {
            self.dropped = true;
        }
        if self.dropped {
            self.answered.give_up();
            let _ = self.share.resize(0);
        }
    }
}

/// The rest of an answer, as it came.
struct Heard {
    dialect: Dialect,
    /// What came before.
    gathered: Option<Arc<Mutex<Gathered>>>,
    raw: Vec<u8>,
    /// The share of the buffer cap that `raw` has.
    share: Permit,
}

/// Hears an answer pass.
pub struct Listener {
    journal: Arc<Journal>,
    ticket: Ticket,
    /// `None`: there was no room for it.
    heard: Option<Heard>,
    budget: Arc<Budget>,
}

impl Journal {
    /// With a thread that reads; it ends when the journal is gone. `None`: the system gives none.
    pub fn start(store: &Arc<Store>, memo: &Arc<Memo>) -> Option<Arc<Self>> {
        let (entries, taken) = sync_channel(MAX_ENTRIES);
        let waiting = Arc::new(AtomicUsize::new(0));
        let reader = Reader { store: Arc::clone(store), memo: Arc::clone(memo), waiting: Arc::clone(&waiting) };
        let thread = std::thread::Builder::new().name("journal".to_owned()).spawn(move || reader.run(&taken)).ok()?;
        Some(Arc::new(Self { entries, waiting, reader: thread.thread().clone(), store: Arc::clone(store) }))
    }

    /// Hands a request over, if it may be one to log: of a tenant that is proved, and not one that only counts. Gives
    /// a ticket for its answer.
    pub fn offer(&self, incoming: &Incoming<'_>, identity: &Identity) -> Option<Ticket> {
        let Incoming { shard, index, parts, dialect, body, permit, .. } = incoming;
        let config = &shard.proxy.config;
        let counts = Errand::of_path(parts.uri.path()) == Errand::Count;
        if !config.logs() || identity.proof != Proof::Known || counts {
            return None;
        }
        let bytes = body.len();
        let fits = |waiting: usize| (waiting == 0 || waiting + bytes <= MAX_BYTES).then_some(waiting + bytes);
        let Ok(before) = self.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits) else {
            self.store.drop_messages(1);
            return None;
        };
        let ticket = Ticket::default();
        let request = Request {
            shard: Arc::clone(shard),
            index: *index,
            uri: parts.uri.clone(),
            headers: (!config.policies.is_empty()).then(|| parts.headers.clone()),
            names: Names::of_headers(&parts.headers),
            dialect: *dialect,
            tenant: identity.tenant,
            body: body.clone(),
            _permit: permit.clone(),
            ticket: Arc::clone(&ticket),
        };
        match self.entries.try_send(Entry::Request(Box::new(request))) {
            Ok(()) => {
                if before < MANY_BYTES && before + bytes >= MANY_BYTES {
                    self.reader.unpark();
                }
                Some(ticket)
            }
            Err(_) => {
                self.waiting.fetch_sub(bytes, Ordering::AcqRel);
                self.store.drop_messages(1);
                None
            }
        }
    }

    /// Hears the answer to the request of `ticket`, as long as `budget` has room for it.
    pub fn listen(self: &Arc<Self>, ticket: Ticket, dialect: Dialect, budget: &Arc<Budget>) -> Listener {
        let heard = Heard { dialect, gathered: None, raw: Vec::new(), share: Permit::empty(budget) };
        Listener { journal: Arc::clone(self), ticket, heard: Some(heard), budget: Arc::clone(budget) }
    }

    /// Waits until all that was handed over is read.
    pub async fn flush(&self) {
        let (reply, done) = oneshot::channel();
        let mut entry = Entry::Flush(reply);
        while let Err(TrySendError::Full(back)) = self.entries.try_send(entry) {
            entry = back;
            tokio::task::yield_now().await;
        }
        self.reader.unpark();
        let _ = done.await;
    }
}

impl Listener {
    /// A piece of the answer, decoded. It is read on the journal's thread.
    pub fn see(&mut self, data: &[u8]) {
        let Some(heard) = &mut self.heard else { return };
        heard.raw.extend_from_slice(data);
        let fits = heard.share.resize(heard.raw.len());
        if !fits || heard.raw.len() > RAW_BYTES && !self.hand_over() {
            self.heard = None;
        }
    }

    /// Hands over what has come since the last time; false if there is no room for it.
    fn hand_over(&mut self) -> bool {
        let Some(Heard { dialect, gathered, raw, share }) = &mut self.heard else { return false };
        let made =
            || Gathered { answered: Answered::new(*dialect), share: Permit::empty(&self.budget), dropped: false };
        let gathered = gathered.get_or_insert_with(|| Arc::new(Mutex::new(made())));
        let (raw, share) = (std::mem::take(raw), std::mem::replace(share, Permit::empty(&self.budget)));
        self.journal.entries.try_send(Entry::Part(Arc::clone(gathered), raw, share)).is_ok()
    }

    /// The answer has come whole.
    pub fn finish(self) {
        let Self { journal, ticket, heard, .. } = self;
        let sent = heard.is_some_and(|heard| journal.entries.try_send(Entry::Answer(ticket, heard)).is_ok());
        if !sent {
            journal.store.drop_messages(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Limits;
    use crate::store::log::HistoryPage;
    use crate::wire::memo::DEFAULT_BYTES;

    #[tokio::test]
    async fn a_long_answer_is_handed_over_in_parts_and_logged_whole() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("state.db").display());
        let store = Store::open(&url, Limits::default()).await.unwrap();
        let journal = Journal::start(&store, &Arc::new(Memo::new(DEFAULT_BYTES))).unwrap();
        let (tenant, budget) = (store.tenant(&[b"t"]), Budget::new(1 << 20));
        let session = Session { id: store.session_id(&tenant, Some(b"s"), None), agent: "a".into(), named: true };
        let ticket = Ticket::default();
        ticket.set(Place { tenant, session: session.clone(), dialect: Dialect::Chat, tip: ([1; 32], 1) }).unwrap();
        let mut listener = journal.listen(ticket, Dialect::Chat, &budget);
        let event = |text: &str| format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n");
        for number in 0..40 {
            listener.see(event(&format!("{number} {}", "x".repeat(10_000))).as_bytes());
            assert!(budget.used() <= 2 * RAW_BYTES + 41 * 10_100, "{}", budget.used());
        }
        listener.see(b"data: [DONE]\n\n");
        listener.finish();
        journal.flush().await;
        store.flush_log().await;
        let page = HistoryPage { last: 10, before: None, tip: None, agent: None };
        let logged = store.any_history(session.id, page).await.unwrap().unwrap();
        let text = (0..40).map(|number| format!("{number} {}", "x".repeat(10_000))).collect::<String>();
        assert_eq!(logged.iter().map(crate::store::log::Logged::text).collect::<Vec<_>>(), [text]);
        assert_eq!((store.dropped_messages(), budget.used()), (0, 0));
    }
}
