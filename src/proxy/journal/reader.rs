//! The journal's thread: reads what was handed over and gives it to the session log.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::super::origin;
use super::{Entry, GATHERING, Gathered, Heard, Place, Request, Ticket};
use crate::config::{Config, Subject};
use crate::store::Store;
use crate::store::log::{Kind, LogBatch, Message, Unfound};
use crate::tools::definitions::Tool;
use crate::wire::answered::Answered;
use crate::wire::memo::Memo;
use crate::wire::plain::{Source, plain};
use crate::wire::{self, Conversation, Digest, Role, chain};

/// What the journal's thread works with.
pub(super) struct Reader {
    pub(super) store: Arc<Store>,
    pub(super) memo: Arc<Memo>,
    pub(super) waiting: Arc<AtomicUsize>,
}

impl Reader {
    pub(super) fn run(self, taken: &Receiver<Entry>) {
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

fn locked(gathered: &Mutex<Gathered>) -> MutexGuard<'_, Gathered> {
    gathered.lock().unwrap_or_else(PoisonError::into_inner)
}
