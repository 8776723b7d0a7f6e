//! Chains of responses that the proxy has seen whole: what each request added to the history that its provider
//! holds. In memory only: losing it costs no more than that such a request's overflow passes as it is, its results go by
//! no tool's name, and the log begins another conversation.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::origin::Incoming;
use crate::store::Tenant;
use crate::wire::chain::{self, Collector, Output};
use crate::wire::conversation::Fields;
use crate::wire::sse::Reader;
use crate::wire::{Conversation, Dialect, Errand};

/// Bytes of all recorded turns together.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// Bytes of one response that are looked at; of a longer one nothing is recorded.
const MAX_RESPONSE: usize = 2 * 1024 * 1024;
/// Bytes of one request's own input; a longer one is not recorded. They are held while its answer comes, beside the
/// cap on buffered bodies.
const MAX_INPUT: usize = 2 * 1024 * 1024;
/// Bytes of the input of a request that begins a chain with turns of the model's: its client may send the whole
/// history each time, each time longer.
pub const MAX_SHOWN: usize = 256 * 1024;
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
    /// Those of a new conversation, or with turns that are not the provider's: a client that sends its whole history
    /// each time does not chain.
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
    /// It is recorded, or too long.
    Over,
}

impl Chains {
    /// The items of all turns up to the response `id`, oldest first. `None` where one of them was not seen.
    pub fn history(&self, tenant: Tenant, id: &str) -> Option<Vec<Bytes>> {
        let mut items = Vec::new();
        self.walk(tenant, id, |turn| items.extend([turn.output.clone(), turn.input.clone()]))?;
        items.reverse();
        Some(items)
    }

    /// The items of the turns up to the response `id`, latest first, as far as they were seen.
    pub fn latest(&self, tenant: Tenant, id: &str) -> Vec<Bytes> {
        let mut items = Vec::new();
        self.walk(tenant, id, |turn| items.extend([turn.output.clone(), turn.input.clone()]));
        items
    }

    /// Whether all turns up to the response `id` were seen.
    pub fn is_whole(&self, tenant: Tenant, id: &str) -> bool {
        self.walk(tenant, id, |_| {}).is_some()
    }

    /// The ids of the responses up to `id`, latest first, as far as they were seen, and whether all of them were.
    pub fn ids(&self, tenant: Tenant, id: &str) -> (Vec<String>, bool) {
        let mut ids = vec![id.to_owned()];
        let whole = self.walk(tenant, id, |turn| ids.extend(turn.previous.clone())).is_some();
        (ids, whole)
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
        let (fields, body) = (&conversation.fields, conversation.body);
        let begun = || begins == Beginning::Any || chain::begins_read(conversation, MAX_SHOWN);
        let recorded = match &previous {
            Some(id) => self.is_whole(tenant, id),
            None => !fields.continues && begun(),
        };
        recorded.then(|| self.recorder(tenant, previous, (fields, body))).flatten()
    }

    /// The recorder of the response to a request that begins a chain and is not read as a whole.
    pub fn record_first(self: &Arc<Self>, tenant: Tenant, request: (&Fields, &[u8])) -> Option<Recorder> {
        self.recorder(tenant, None, request)
    }

    /// The recorder of the response to a request that says `input` behind the response `previous`, whatever its body says
    /// of what came before. `None`: that was not seen.
    pub fn record_behind(self: &Arc<Self>, tenant: Tenant, previous: String, input: Bytes) -> Option<Recorder> {
        let seen = input.len() <= MAX_INPUT && self.is_whole(tenant, &previous);
        let chains = Arc::clone(self);
        seen.then(|| Recorder { chains, tenant, previous: Some(previous), input, answer: Answer::Unread })
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

/// The tools of the calls in some turns' items that `wanted` answers. Mostly it is the last answer that asked: no more
/// is read than need be.
pub fn tools(latest: &[Bytes], wanted: &HashSet<String>) -> HashMap<String, String> {
    let mut tools = HashMap::new();
    for items in latest {
        if tools.len() == wanted.len() {
            break;
        }
        for call in chain::calls(items).into_iter().filter(|call| wanted.contains(&call.id)) {
            tools.entry(call.id).or_insert(call.name);
        }
    }
    tools
}

impl Turns {
    /// Forgets the turns used longest ago of the tenants that hold most, an eighth more than need be, so that it is not
    /// due at once again.
    fn shrink(&mut self) {
        let mut held: HashMap<Tenant, Vec<(u64, usize)>> = HashMap::new();
        for ((tenant, _), turn) in &self.by_id {
            held.entry(*tenant).or_default().push((turn.used, turn.bytes()));
        }
        let bytes = |turns: &Vec<(u64, usize)>| turns.iter().map(|(_, bytes)| bytes).sum::<usize>();
        let share = share(held.values().map(bytes).collect());
        // The last use, of each tenant, that is forgotten.
        let mut upto: HashMap<Tenant, u64> = HashMap::new();
        for (tenant, mut turns) in held {
            turns.sort_unstable();
            let mut left = bytes(&turns);
            for (used, bytes) in turns {
                if left <= share {
                    break;
                }
                left -= bytes;
                upto.insert(tenant, used);
            }
        }
        self.by_id.retain(|(tenant, _), turn| upto.get(tenant).is_none_or(|upto| turn.used > *upto));
        self.bytes = self.by_id.values().map(Turn::bytes).sum();
    }
}

/// The most that each may keep of what all of them hold, so that seven eighths of the cap are not exceeded: who holds
/// less than an equal share leaves the rest of it to the others.
fn share(mut held: Vec<usize>) -> usize {
    held.sort_unstable();
    let (mut left, mut others) = (MAX_BYTES / 8 * 7, held.len());
    for bytes in held {
        if bytes > left / others {
            return left / others;
        }
        left -= bytes;
        others -= 1;
    }
    MAX_BYTES
}

impl Turn {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.input.len() + self.output.len() + 128
    }
}

impl Recorder {
    /// A piece of the response, decoded. A response is recorded as soon as it is whole: who has its end may go on at
    /// once, without waiting for the body's.
    pub fn see(&mut self, data: &[u8]) {
        if matches!(self.answer, Answer::Unread) {
            self.answer = match data.trim_ascii_start().first() {
                None => return,
                Some(b'{') => Answer::Json(Vec::new()),
                Some(_) => Answer::Stream(Box::new(Reader::with_limit(MAX_RESPONSE)), Collector::default()),
            };
        }
        let (held, output) = match &mut self.answer {
            Answer::Json(text) => {
                text.extend_from_slice(data);
                let whole = data.trim_ascii_end().ends_with(b"}").then(|| std::str::from_utf8(text).ok());
                (text.len(), whole.flatten().and_then(chain::output))
            }
            Answer::Stream(reader, collector) => {
                reader.push(data);
                while let Some(event) = reader.next_event() {
                    collector.event(&event.data);
                }
                let held = if reader.has_given_up() { usize::MAX } else { collector.bytes() };
                (held, collector.take())
            }
            Answer::Unread | Answer::Over => (0, None),
        };
        if held > MAX_RESPONSE {
            self.answer = Answer::Over;
        } else if let Some(output) = output {
            self.record(output);
        }
    }

    fn record(&mut self, Output { id, items }: Output) {
        self.answer = Answer::Over;
        let (previous, input) = (self.previous.take(), std::mem::take(&mut self.input));
        self.chains.insert((self.tenant, id), Turn { previous, input, output: items, used: 0 });
    }
}

#[cfg(test)]
#[path = "chains_tests.rs"]
mod tests;
