//! The way of requests and answers into the session log. The answer path hands over what it has and goes on: bodies
//! are read on a thread of their own, known history costs a hash there, and what finds the queue full is dropped and
//! counted.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Uri};
use tokio::sync::oneshot;

use super::Shard;
use super::budget::{Budget, Permit};
use super::identity::{Names, Session};
use super::origin::{self, Incoming};
use super::tenant::{Identity, Proof};
use crate::config::{Config, Subject};
use crate::store::log::{Kind, LogBatch, Message, Unfound};
use crate::store::{Store, Tenant};
use crate::tools::definitions::Tool;
use crate::wire::answered::Answered;
use crate::wire::memo::Memo;
use crate::wire::plain::{Source, plain};
use crate::wire::{self, Conversation, Dialect, Digest, Errand, Role, chain};

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

/// What the journal's thread works with.
struct Reader {
    store: Arc<Store>,
    memo: Arc<Memo>,
    waiting: Arc<AtomicUsize>,
}

impl Reader {
    fn run(self, taken: &Receiver<Entry>) {
        while let Ok(first) = taken.recv() {
            // Whoever wants them read at once ends the pause, or has before it began.
            std::thread::park_timeout(GATHERING);
            self.entry(first);
            taken.try_iter().for_each(|entry| self.entry(entry));
        }
    }

    fn entry(&self, entry: Entry) {
        match entry {
            Entry::Request(request) => {
                self.request(&request);
                self.waiting.fetch_sub(request.body.len(), Ordering::AcqRel);
            }
            Entry::Part(gathered, raw, _share) => locked(&gathered).see(&raw),
            Entry::Answer(ticket, heard) => self.answer(&ticket, heard),
            Entry::Flush(reply) => drop(reply.send(())),
        }
    }

    fn request(&self, request: &Request) {
        let Request { dialect, body, tenant, .. } = request;
        let Ok(sent) = wire::read(*dialect, body, &self.memo, tenant.0) else { return };
        let whole = continued(request, &sent);
        // It is the session that it continues, as if its client had sent all of it.
        let whole = whole.as_ref().and_then(|whole| wire::read(*dialect, whole, &self.memo, tenant.0).ok());
        let conversation = whole.unwrap_or(sent);
        let Some(first) = conversation.items.first().filter(|_| is_logged(request, &conversation)) else { return };
        let session = request.names.clone().with_body(&conversation).session(&self.store, tenant, &first.chain);
        let chain: Vec<Digest> = conversation.chain().copied().collect();
        let known = self.store.logged(tenant, &session.id, &chain);
        let leading = leading(&conversation);
        let changed = leading.filter(|lead| self.store.logged(tenant, &session.id, &[lead.digest]) == 0);
        let messages = changed.chain(messages(&conversation, known)).collect();
        let agent = Arc::clone(&session.agent);
        self.store.log(tenant, LogBatch { session: session.id, agent, dialect: *dialect, kind: Kind::Sent, messages });
        if let Some(tip) = chain.last() {
            let tip = (*tip, u32::try_from(chain.len()).unwrap_or(u32::MAX));
            let _ = request.ticket.set(Place { tenant: *tenant, session, dialect: *dialect, tip });
        }
    }

    fn answer(&self, ticket: &Ticket, heard: Heard) {
        let Some(Place { tenant, session, dialect, tip }) = ticket.get() else { return };
        let Heard { dialect: spoken, gathered, raw, share: _share } = heard;
        let dropped = gathered.as_ref().is_some_and(|gathered| locked(gathered).dropped);
        if dropped {
            return self.store.drop_messages(1);
        }
        let begun = gathered.map(|gathered| std::mem::replace(&mut locked(&gathered).answered, Answered::new(spoken)));
        let mut answered = begun.unwrap_or_else(|| Answered::new(spoken));
        answered.see(&raw);
        let (tip, last) = *tip;
        let message = |(json, i): (Bytes, u32)| Message {
            digest: tip,
            parent: (i == 0).then_some(tip),
            number: last.saturating_add(i + 1),
            role: Role::Assistant,
            tokens: None,
            unfound: unfound(plain(*dialect, &json).calls.iter().map(String::as_str), []),
            json,
        };
        let messages = answered.finish().into_iter().zip(0..).map(message).collect();
        let (session, agent) = (session.id, Arc::clone(&session.agent));
        self.store.log(tenant, LogBatch { session, agent, dialect: *dialect, kind: Kind::Answered, messages });
    }
}

fn locked(gathered: &Mutex<Gathered>) -> MutexGuard<'_, Gathered> {
    gathered.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the configuration in force for a request has it logged.
fn is_logged(request: &Request, conversation: &Conversation<'_>) -> bool {
    let config: &Config = &request.shard.proxy.config;
    let Some(headers) = &request.headers else { return config.strategies.log };
    let path = request.uri.path();
    let upstream = config.upstreams.get(request.index).map_or("", |upstream| &upstream.name);
    let model = origin::model(&conversation.fields, path);
    config.strategies(&Subject { model, upstream, path, headers }).log
}

/// A request with the history that its provider holds, where all of it was seen.
fn continued(request: &Request, sent: &Conversation<'_>) -> Option<Bytes> {
    let previous = chain::previous(sent)?;
    let compactor = request.shard.proxy.compactor.as_ref()?;
    chain::unabridged(sent, &compactor.chains.history(request.tenant, &previous)?)
}

/// The messages before the conversation, which say how the model is to be: by themselves, so that each is kept once
/// however often it comes, and again where it has changed. No search finds them: they say nothing of what happened.
fn leading<'c>(conversation: &'c Conversation<'_>) -> impl Iterator<Item = Message> + 'c {
    let raws = conversation.lead.iter().filter_map(|span| conversation.body.get(span.clone()));
    raws.map(|raw| Message {
        digest: blake3::derive_key("compactproxy 2026 leading messages", raw),
        parent: None,
        number: 0,
        role: Role::System,
        tokens: None,
        json: Bytes::copy_from_slice(raw),
        unfound: Unfound::Everything,
    })
}

/// The messages from the `known`-th on. Copied: the rest of the body need not be kept for them.
fn messages<'c>(conversation: &'c Conversation<'_>, known: usize) -> impl Iterator<Item = Message> + 'c {
    let before = move |i: usize| Some(conversation.items.get(i.checked_sub(1)?)?.chain);
    let items = conversation.items.iter().enumerate().skip(known);
    let message = move |(i, item): (usize, &wire::Item)| Message {
        digest: item.chain,
        parent: before(i),
        number: u32::try_from(i + 1).unwrap_or(u32::MAX),
        role: item.facts.role,
        tokens: item.facts.tokens.get().copied(),
        json: Bytes::copy_from_slice(conversation.raw(i)),
        unfound: {
            let results = item.facts.results.iter().map(|id| conversation.tool_of(i, id));
            unfound(item.facts.calls.iter().map(|call| call.name.as_str()), results)
        },
    };
    items.map(message)
}

/// The calls of the proxy's own tools, and what these answered: a search that found them would show but what was
/// looked for, and shown, before.
fn unfound<'n>(
    calls: impl IntoIterator<Item = &'n str>,
    results: impl IntoIterator<Item = Option<&'n str>>,
) -> Unfound {
    let called = calls.into_iter().enumerate().filter(|(_, name)| Tool::is_called(name));
    let answered = results.into_iter().enumerate().filter(|(_, name)| name.is_some_and(Tool::is_called));
    let called = called.map(|(at, _)| Source::Call(at));
    let parts: Vec<Source> = called.chain(answered.map(|(at, _)| Source::Result(at))).collect();
    if parts.is_empty() { Unfound::Nothing } else { Unfound::Parts(parts) }
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
