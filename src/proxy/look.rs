//! What a body says and what is known of it, before anything is decided.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;

use super::budget::Permit;
use super::chains::{Recorder, is_recorded};
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
            return Some(self.with_tools(conversation, tenant));
        }
        let (memo, shared) = (Arc::clone(&self.memo), body.clone());
        let read = move || wire::read(dialect, &shared, &memo, salt).is_ok();
        self.workers.run(read).await.filter(|read| *read)?;
        let conversation = wire::read(dialect, body, &self.memo, salt).ok()?;
        Some(self.with_tools(conversation, tenant))
    }

    /// Names the tools of the calls that the provider holds and large results in sight answer, as far as they were
    /// recorded.
    fn with_tools<'b>(&self, mut conversation: Conversation<'b>, tenant: Tenant) -> Conversation<'b> {
        let Some(previous) = chain::previous(&conversation) else { return conversation };
        let large = conversation.items.iter().filter(|item| evict::is_evictable(item));
        let answered: HashSet<&str> = large.flat_map(|item| &item.facts.results).map(String::as_str).collect();
        if !answered.is_empty() {
            let tools = self.chains.tools(tenant, &previous, &answered);
            conversation.fields.unseen = Arc::new(tools);
        }
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
