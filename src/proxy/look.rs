//! What a body says and what is known of it, before anything is decided.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;

use super::budget::Permit;
use super::chains::{Recorder, is_recorded, tools};
use super::compaction::Compactor;
use super::encoding::Encoding;
use super::intake::decoded;
use super::journal::Ticket;
use super::origin::{INLINE_BYTES, Incoming, Origin};
use super::tenant::{self, Asker, Identity, Proof};
use super::work::Work;
use crate::compact::plan::Actions;
use crate::compact::{Known, evict};
use crate::store::Tenant;
use crate::wire::{self, Conversation, Dialect, Digest, chain};

/// Bodies from this size on may overflow a window that nobody knows.
pub const UNKNOWN_WINDOW_BYTES: usize = 16 * 1024;

/// What a look at a body comes to.
pub enum Looked {
    Read(Box<Work>),
    /// A bypassed turn that continues an answer where the provider has it: this goes out in its place.
    Continued(Bytes, Arc<Permit>),
    /// It goes out as it is, and only an answer that is an error makes it worth
    /// [another look](Compactor::look_back).
    Unread(Seen),
}

/// What is to see the response to a body that goes out unread.
#[derive(Default)]
pub struct Seen {
    /// It may be one to record.
    pub recorder: Option<Recorder>,
    /// It may be one to log.
    pub ticket: Option<Ticket>,
}

impl Compactor {
    /// Takes the body's coding off.
    pub(super) async fn decode(&self, incoming: &mut Incoming<'_>) -> Option<Bytes> {
        let encoding = Encoding::of(&incoming.parts.headers)?;
        if encoding != Encoding::Identity {
            let decoded = decoded(&self.workers, incoming, encoding).await?;
            incoming.permit.push(Arc::new(decoded.permit));
            incoming.body = decoded.body;
        }
        Some(incoming.body.clone())
    }

    pub(super) fn identify(&self, incoming: &Incoming<'_>) -> Option<Identity> {
        let upstream = incoming.shard.proxy.config.upstreams.get(incoming.index)?;
        let Incoming { parts, .. } = incoming;
        let asker = Asker { upstream: &upstream.name, headers: &parts.headers, uri: &parts.uri };
        Some(tenant::identify(&self.store, &self.tenant_rule, &self.verified, &asker))
    }

    /// Reads a body, off the event loop where it is long and new.
    pub(super) async fn read<'b>(&self, dialect: Dialect, body: &'b Bytes, tenant: Tenant) -> Option<Conversation<'b>> {
        let salt = tenant.0;
        if let Some(conversation) = wire::read_known(dialect, body, &self.memo, salt, INLINE_BYTES) {
            return Some(self.with_tools(conversation, tenant).await);
        }
        let (memo, shared) = (Arc::clone(&self.memo), body.clone());
        let read = move || wire::read(dialect, &shared, &memo, salt).is_ok();
        self.workers.run(read).await.filter(|read| *read)?;
        let conversation = wire::read(dialect, body, &self.memo, salt).ok()?;
        Some(self.with_tools(conversation, tenant).await)
    }

    /// Names the tools of the calls that the provider holds and large results in sight answer, as far as they were
    /// recorded. Of what was recorded no more is read on the event loop than the end.
    async fn with_tools<'b>(&self, mut conversation: Conversation<'b>, tenant: Tenant) -> Conversation<'b> {
        let Some(previous) = chain::previous(&conversation) else { return conversation };
        let large = conversation.items.iter().filter(|item| evict::is_evictable(item));
        let answered: HashSet<String> = large.flat_map(|item| &item.facts.results).cloned().collect();
        if answered.is_empty() {
            return conversation;
        }
        let latest = self.chains.latest(tenant, &previous);
        let bytes = latest.iter().scan(0, |bytes: &mut usize, items| {
            *bytes += items.len();
            Some(*bytes)
        });
        let near = bytes.take_while(|bytes| *bytes <= INLINE_BYTES).count();
        let mut found = tools(latest.get(..near).unwrap_or_default(), &answered);
        if found.len() < answered.len() && near < latest.len() {
            found = self.workers.run(move || tools(&latest, &answered)).await.unwrap_or(found);
        }
        conversation.fields.unseen = Arc::new(found);
        conversation
    }

    /// A request with the rows that are known of it. `None`: it has no history, and none continues it.
    pub(super) async fn begin(
        &self,
        incoming: &Incoming<'_>,
        identity: Identity,
        conversation: &Conversation<'_>,
    ) -> Option<(Work, Vec<Digest>)> {
        let chain: Vec<Digest> = conversation.chain().copied().collect();
        let recorder = self.recorder(incoming, &identity, conversation);
        if chain.is_empty() && recorder.is_none() && !incoming.overlaid {
            return None;
        }
        let origin = Arc::new(Origin::new(self, incoming, identity, conversation));
        let known = match origin.proof {
            Proof::Known => self.store.known(&origin.tenant, &chain).await,
            Proof::Claimed => Known::default(),
        };
        let work = Work {
            known,
            pieces: None,
            actions: Actions::default(),
            tokens: None,
            activated: None,
            may_overflow: false,
            taught: false,
            drops_blocks: false,
            lacks_rows: false,
            tried_twice: false,
            recorder,
            overlaid: None,
            begun: None,
            original: None,
            ticket: None,
            origin,
        };
        Some((work, chain))
    }

    /// The recorder of a response that others may continue.
    fn recorder(&self, incoming: &Incoming<'_>, identity: &Identity, conversation: &Conversation) -> Option<Recorder> {
        is_recorded(incoming, conversation.fields.store)
            .then(|| self.chains.record(identity.tenant, conversation, incoming.chains))
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use serde_json::json;

    use super::*;
    use crate::config::Config;
    use crate::proxy::chains::Beginning;
    use crate::proxy::compaction::Conduct;
    use crate::store::{Limits, Store};

    /// Whether what asked for the result of a request is found, and whether that is read where it delays others: all
    /// threads that would delay nobody are busy.
    async fn named(called: &str, said: usize) -> (bool, bool) {
        let store = Store::in_memory_only(Limits::default()).await.unwrap();
        let compactor = Compactor::new(&Config::parse("", &|_| None).unwrap(), store, Conduct::Rehearsing);
        let tenant = Tenant([1; 16]);
        let first = Bytes::from(json!({"model": "m", "input": "begin"}).to_string());
        let conversation = compactor.read(Dialect::Responses, &first, tenant).await.unwrap();
        let mut recorder = compactor.chains.record(tenant, &conversation, Beginning::New).unwrap();
        let output = json!([
            {"type": "function_call", "call_id": called, "name": "shell", "arguments": "{}"},
            {"type": "message", "role": "assistant", "content": "x".repeat(said)},
        ]);
        recorder.see(json!({"id": "resp_1", "output": output}).to_string().as_bytes());
        let result = json!({"type": "function_call_output", "call_id": "call_1", "output": "word ".repeat(4_000)});
        let next = json!({"model": "m", "previous_response_id": "resp_1", "input": [result]});
        let next = Bytes::from(next.to_string());
        let (free, busy) = std::sync::mpsc::channel::<()>();
        let busy = Arc::new(std::sync::Mutex::new(busy));
        for _ in 0..std::thread::available_parallelism().unwrap().get() {
            let busy = Arc::clone(&busy);
            let begun = compactor.workers.run(move || busy.lock().unwrap().recv().is_err());
            assert_eq!(Box::pin(begun).now_or_never(), None);
        }
        let mut reading = Box::pin(compactor.read(Dialect::Responses, &next, tenant));
        let (at_once, conversation) = match (&mut reading).now_or_never() {
            Some(read) => (true, read),
            None => {
                drop(free);
                (false, reading.await)
            }
        };
        let unseen = Arc::clone(&conversation.unwrap().fields.unseen);
        (unseen.get("call_1").is_some_and(|name| name == "shell"), at_once)
    }

    #[tokio::test]
    async fn long_turns_are_read_where_that_delays_nobody() {
        assert_eq!(named("call_1", 100).await, (true, true));
        assert_eq!(named("call_1", 1 << 20).await, (true, false));
        assert_eq!(named("other", 1 << 20).await, (false, false));
    }
}
