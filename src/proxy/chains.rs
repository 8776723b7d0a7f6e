//! Chains of responses that the proxy has seen whole: what each request added to the history that its provider
//! holds. In memory only: losing it costs no more than that such a request's overflow passes as it is.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::origin::Incoming;
use crate::store::Tenant;
use crate::wire::chain::{self, Collector, Output};
use crate::wire::conversation::Fields;
use crate::wire::sse::Reader;
use crate::wire::{Conversation, Dialect, Errand, Role};

/// Bytes of all recorded turns together.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// Bytes of one response that are looked at; of a longer one nothing is recorded.
const MAX_RESPONSE: usize = 2 * 1024 * 1024;
/// Bytes of one request's own input; a longer one is not recorded. They are held while its answer comes, beside the
/// cap on buffered bodies.
const MAX_INPUT: usize = 2 * 1024 * 1024;
/// Turns of one chain.
const MAX_TURNS: usize = 2_000;

/// Recorded turns by the id of their response.
#[derive(Default)]
pub struct Chains {
    turns: Mutex<Turns>,
}

#[derive(Default)]
struct Turns {
    by_id: HashMap<(Tenant, String), Turn>,
    bytes: usize,
    /// Counts uses, so that the chains used last stay.
    clock: u64,
}

/// What one request and its response added.
struct Turn {
    previous: Option<String>,
    input: Bytes,
    output: Bytes,
    used: u64,
}

/// Which requests begin a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beginning {
    /// Those of a new conversation: a client that sends its whole history each time does not chain.
    New,
    /// All: on a socket what follows continues it.
    Any,
}

/// Whether others may continue the response to a request, so that it is recorded. `store`: the body's own.
pub fn is_recorded(incoming: &Incoming<'_>, store: Option<bool>) -> bool {
    let turn = Errand::of_path(incoming.parts.uri.path()) == Errand::Generate;
    let kept = incoming.chains == Beginning::Any || store != Some(false);
    incoming.dialect == Dialect::Responses && turn && kept
}

/// A request whose response is to be recorded.
pub struct Recorder {
    chains: Arc<Chains>,
    tenant: Tenant,
    previous: Option<String>,
    input: Bytes,
    answer: Answer,
}

/// What has come of the response.
enum Answer {
    Unread,
    Json(Vec<u8>),
    Stream(Box<Reader>, Collector),
    TooLong,
}

impl Chains {
    /// The items of all turns up to the response `id`, oldest first. `None` where one of them was not seen.
    pub fn history(&self, tenant: Tenant, id: &str) -> Option<Vec<Bytes>> {
        let mut items = Vec::new();
        self.walk(tenant, id, |turn| items.extend([turn.output.clone(), turn.input.clone()]))?;
        items.reverse();
        Some(items)
    }

    /// Whether all turns up to the response `id` were seen.
    pub fn is_whole(&self, tenant: Tenant, id: &str) -> bool {
        self.walk(tenant, id, |_| {}).is_some()
    }

    /// Shows the turns up to the response `id`, newest first, as ones just used. `None` where one was not seen.
    fn walk(&self, tenant: Tenant, id: &str, mut see: impl FnMut(&Turn)) -> Option<()> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.clock += 1;
        let (now, mut next) = (turns.clock, Some(id.to_owned()));
        for _ in 0..MAX_TURNS {
            let Some(id) = next else { return Some(()) };
            let turn = turns.by_id.get_mut(&(tenant, id))?;
            turn.used = now;
            see(turn);
            next = turn.previous.clone();
        }
        next.is_none().then_some(())
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }

    /// The recorder of a request's response, if the request begins a chain or continues a recorded one.
    pub fn record(
        self: &Arc<Self>,
        tenant: Tenant,
        conversation: &Conversation,
        begins: Beginning,
    ) -> Option<Recorder> {
        let previous = chain::previous(conversation);
        let recorded = match &previous {
            Some(id) => self.is_whole(tenant, id),
            None => !conversation.fields.continues && (begins == Beginning::Any || is_new(conversation)),
        };
        recorded.then(|| self.recorder(tenant, previous, (&conversation.fields, conversation.body))).flatten()
    }

    /// The recorder of the response to a request that begins a chain and is not read as a whole.
    pub fn record_first(self: &Arc<Self>, tenant: Tenant, request: (&Fields, &[u8])) -> Option<Recorder> {
        self.recorder(tenant, None, request)
    }

    fn recorder(
        self: &Arc<Self>,
        tenant: Tenant,
        previous: Option<String>,
        (fields, body): (&Fields, &[u8]),
    ) -> Option<Recorder> {
        let input = chain::input(fields, body, MAX_INPUT)?;
        let chains = Arc::clone(self);
        Some(Recorder { chains, tenant, previous, input, answer: Answer::Unread })
    }

    fn insert(&self, key: (Tenant, String), mut turn: Turn) {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.clock += 1;
        turn.used = turns.clock;
        turns.bytes += turn.bytes();
        if let Some(before) = turns.by_id.insert(key, turn) {
            turns.bytes -= before.bytes();
        }
        if turns.bytes > MAX_BYTES {
            turns.shrink();
        }
    }
}

impl Turns {
    /// Forgets the turns used longest ago, an eighth more than need be, so that it is not due at once again.
    fn shrink(&mut self) {
        let mut by_use: Vec<(u64, usize)> = self.by_id.values().map(|turn| (turn.used, turn.bytes())).collect();
        by_use.sort_unstable();
        let (mut left, mut upto) = (self.bytes, 0);
        for (used, bytes) in by_use {
            if left <= MAX_BYTES / 8 * 7 {
                break;
            }
            left -= bytes;
            upto = used;
        }
        self.by_id.retain(|_, turn| turn.used > upto);
        self.bytes = self.by_id.values().map(Turn::bytes).sum();
    }
}

impl Turn {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.input.len() + self.output.len() + 128
    }
}

/// Whether a conversation has no turn of the model's yet.
fn is_new(conversation: &Conversation) -> bool {
    conversation.items.iter().all(|item| !matches!(item.facts.role, Role::Assistant | Role::Tool))
}

impl Recorder {
    /// A piece of the response, decoded.
    pub fn see(&mut self, data: &[u8]) {
        if matches!(self.answer, Answer::Unread) {
            self.answer = match data.trim_ascii_start().first() {
                None => return,
                Some(b'{') => Answer::Json(Vec::new()),
                Some(_) => Answer::Stream(Box::new(Reader::with_limit(MAX_RESPONSE)), Collector::default()),
            };
        }
        let held = match &mut self.answer {
            Answer::Json(text) => {
                text.extend_from_slice(data);
                text.len()
            }
            Answer::Stream(reader, collector) => {
                reader.push(data);
                while let Some(event) = reader.next_event() {
                    collector.event(&event.data);
                }
                if reader.has_given_up() { usize::MAX } else { collector.bytes() }
            }
            Answer::Unread | Answer::TooLong => 0,
        };
        if held > MAX_RESPONSE {
            self.answer = Answer::TooLong;
        }
    }

    /// The response has ended: it is recorded if it was whole.
    pub fn finish(self) {
        let output = match self.answer {
            Answer::Json(text) => std::str::from_utf8(&text).ok().and_then(chain::output),
            Answer::Stream(_, collector) => collector.finish(),
            Answer::Unread | Answer::TooLong => None,
        };
        if let Some(Output { id, items }) = output {
            let turn = Turn { previous: self.previous, input: self.input, output: items, used: 0 };
            self.chains.insert((self.tenant, id), turn);
        }
    }
}

#[cfg(test)]
#[path = "chains_tests.rs"]
mod tests;
