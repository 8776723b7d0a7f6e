//! The stage between taking a body in and sending it: what to send in its place.
//!
//! read → known rows → plan → (wait for a summary) → commit → render → splice: [`look`](super::look) →
//! [`planning`](super::planning) → here → [`forwarded`](super::forwarded). Whatever is in doubt ends the stage with what
//! is known so far; the client's own body is always good (L2).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::bindings::Bindings;
use super::breaker::Breaker;
use super::chains::Chains;
use super::jobs::Jobs;
use super::journal::Journal;
use super::look::{Looked, Seen};
use super::memory::{self, Memories};
use super::origin::Incoming;
use super::overlay::Overlaid;
use super::refused_tools::{Refused, Suspicions};
use super::sessions::Sessions;
use super::sidecall;
use super::tenant::{Identity, Proof, Verified};
use super::unread::Passage;
use super::work::Work;
use super::workers::Workers;
use crate::compact::render::render;
use crate::compact::{Evictions, binding, client_compaction};
use crate::config::{Config, TenantRule};
use crate::store::{Health, Store};
use crate::telemetry::metrics::FailOpen;
use crate::wire::memo::{DEFAULT_BYTES, Memo};
use crate::wire::{Conversation, Errand};

/// Of `max_buffered_bytes`, the part that summaries in the making may hold is one in so many: calls that hang leave the
/// rest to requests.
const JOBS_SHARE: usize = 2;

/// Whether what is looked at will be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conduct {
    Serving,
    /// It is only shown what would be: no model is called, and nothing counts as sent.
    Rehearsing,
}

/// What compaction keeps across requests; shared by all shards.
pub struct Compactor {
    pub store: Arc<Store>,
    pub(super) memo: Arc<Memo>,
    pub(super) jobs: Jobs,
    pub(super) sessions: Sessions,
    pub(super) breaker: Breaker,
    /// Agents whose memory has work to do.
    pub memories: Memories,
    pub(super) bindings: Bindings,
    pub(super) verified: Verified,
    pub(super) refused_tools: Refused,
    pub(super) suspicions: Suspicions,
    pub(super) chains: Arc<Chains>,
    /// `None`: nothing is logged.
    pub journal: Option<Arc<Journal>>,
    /// Decoding, reading and planning off the event loops.
    pub(super) workers: Workers,
    /// How long a request that would overflow waits for its summary.
    pub patience: Duration,
    pub(super) tenant_rule: TenantRule,
    pub(super) conduct: Conduct,
}

impl Compactor {
    pub fn new(config: &Config, store: Arc<Store>, conduct: Conduct) -> Self {
        let memo = Arc::new(Memo::new(DEFAULT_BYTES));
        let logs = config.logs() && conduct == Conduct::Serving;
        let journal = logs.then(|| Journal::start(&store, &memo)).flatten();
        Self {
            store,
            memo,
            journal,
            jobs: Jobs::new(config.server.max_buffered_bytes / JOBS_SHARE),
            sessions: Sessions::default(),
            breaker: Breaker::default(),
            memories: Memories::default(),
            bindings: Bindings::default(),
            verified: Verified::default(),
            refused_tools: Refused::default(),
            suspicions: Suspicions::default(),
            chains: Arc::default(),
            workers: Workers::one_per_core(),
            patience: sidecall::PATIENCE,
            tenant_rule: config.state.tenant.clone(),
            conduct,
        }
    }

    /// Looks at a body that was taken in.
    pub async fn look(&self, mut incoming: Incoming<'_>) -> Looked {
        let Some(body) = self.decode(&mut incoming).await else { return Looked::Unread(Seen::default()) };
        let Some(identity) = self.identify(&incoming) else { return Looked::Unread(Seen::default()) };
        match self.passage(&incoming, &identity) {
            Passage::Unread(recorder) => Looked::Unread(Seen { recorder, ticket: self.offer(&incoming, &identity) }),
            Passage::Read => match Box::pin(self.rewritten(&incoming, &body, identity)).await {
                Some(work) => Looked::Read(Box::new(work)),
                None => Looked::Unread(Seen::default()),
            },
        }
    }

    /// Reads the body, lays over it what the proxy adds to the conversation, plans and places what comes of it.
    async fn rewritten(&self, incoming: &Incoming<'_>, body: &Bytes, identity: Identity) -> Option<Work> {
        let conversation = self.read(incoming.dialect, body, identity.tenant).await?;
        let mut overlaid = self.overlay(incoming, &identity, &conversation).await;
        let Some((body, permit)) = overlaid.as_mut().and_then(|overlaid| overlaid.body.take()) else {
            return self.planned(incoming, identity, overlaid, &conversation).await;
        };
        // What cannot be read with what is added, can be without.
        let Some(laid) = self.read(incoming.dialect, &body, identity.tenant).await else {
            return self.planned(incoming, identity, None, &conversation).await;
        };
        let mut incoming = incoming.clone();
        incoming.permit.push(permit);
        (incoming.body, incoming.overlaid) = (body.clone(), true);
        self.planned(&incoming, identity, overlaid, &laid).await
    }

    /// Plans and places.
    async fn planned(
        &self,
        incoming: &Incoming<'_>,
        identity: Identity,
        overlaid: Option<Overlaid>,
        conversation: &Conversation<'_>,
    ) -> Option<Work> {
        let (mut work, chain) = self.begin(incoming, identity, conversation).await?;
        work.lay(overlaid);
        work.remember(self.remembered(incoming, &work.origin, conversation).await);
        work.read_by(conversation);
        let origin = Arc::clone(&work.origin);
        let rewritten = self.sessions.get(origin.tenant, origin.root).is_rewritten();
        if !rewritten {
            work.known.evictions = Evictions::default();
        }
        if work.known.incomplete {
            origin.shard.proxy.metrics.failed_open(FailOpen::Lookup);
        }
        let observed = origin.strategies.observe.then(|| work.known.clone());
        let plannable = origin.proof == Proof::Known && rewritten && !work.known.incomplete && !chain.is_empty();
        if plannable && !client_compaction::asks_for_it(conversation) {
            match origin.errand {
                Errand::Generate => self.plan(&mut work, conversation, &chain).await,
                // What cannot be kept would not be removed.
                Errand::Count if self.store.health() == Health::Up => self.preview(&mut work).await,
                _ => {}
            }
        }
        if work.tokens.is_none() && work.may_exceed_total(conversation) {
            work.tokens = self.count(&work).await;
        }
        self.place(&mut work, conversation);
        if let Some(known) = observed {
            work.report(known);
        }
        // What was only counted, or shown, was never forwarded.
        if origin.errand != Errand::Count && self.conduct == Conduct::Serving {
            self.remember(&identity, (conversation, &chain), &work.known);
            work.ticket = self.offer(incoming, &identity);
        }
        memory::begin(self, &origin);
        work.bound();
        let unsure = origin.proof == Proof::Claimed || work.known.incomplete;
        work.lacks_rows = unsure && binding::is_signed(conversation);
        // The body says nothing of how long a history is that the provider holds.
        work.may_overflow |= work.mends() && work.recorder.is_some() && conversation.fields.continues;
        Some(work)
    }

    /// Looks at a body after all that went out as it is and was answered with an error.
    pub async fn look_back(&self, mut incoming: Incoming<'_>) -> Option<Work> {
        let body = self.decode(&mut incoming).await?;
        let identity = self.identify(&incoming)?;
        let conversation = self.read(incoming.dialect, &body, identity.tenant).await?;
        let (mut work, _) = self.begin(&incoming, identity, &conversation).await?;
        work.bound();
        Some(work)
    }

    /// Renders the rows in force.
    pub(super) fn place(&self, work: &mut Work, conversation: &Conversation<'_>) {
        let rendering = render(conversation, &work.known);
        work.actions.evicted |= rendering.evicted;
        work.actions.checkpoint |= rendering.checkpoint && work.activated.is_none();
        let mut edits = rendering.edits;
        edits.extend(work.lowered_output(conversation));
        work.set_pieces(edits);
    }
}
