//! The stage between taking a body in and sending it: what to send in its place.
//!
//! read → known rows → plan → (wait for a summary) → commit → render → splice. Whatever is in doubt
//! ends the stage with what is known so far; the client's own body is always good (L2).

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::bindings::Bindings;
use super::breaker::Breaker;
use super::chains::{Chains, Recorder, is_recorded};
use super::encoding::Encoding;
use super::intake::decoded;
use super::jobs::{Jobs, Made};
use super::journal::{Journal, Ticket};
use super::laid::{known_with, lay};
use super::memory::{self, Memories};
use super::origin::{INLINE_BYTES, Incoming, Origin};
use super::overlay::{Overlaid, Refused};
use super::sessions::{Means, Readiness, Sessions, Turn};
use super::sidecall::{self, Purpose};
use super::tenant::{self, Asker, Identity, Proof, Verified};
use super::unread::Passage;
use super::work::Work;
use super::workers::Workers;
use super::workspace;
use crate::compact::plan::{Actions, Need, Proposal, Situation, plan, sighted};
use crate::compact::render::render;
use crate::compact::{Change, Evictions, Known, client_compaction, estimate, evict, trim};
use crate::config::{Config, TenantRule};
use crate::store::{Batch, CommitError, Health, Lasting, Stage, Store, Tenant};
use crate::wire::memo::{DEFAULT_BYTES, Memo};
use crate::wire::{self, Conversation, Dialect, Digest, Errand};

/// Bodies from this size on may overflow a window that nobody knows.
pub const UNKNOWN_WINDOW_BYTES: usize = 16 * 1024;
/// New bytes of text that are counted on the event loop: at about 10 MB/s a tenth of a millisecond each KiB.
const COUNTED_INLINE: usize = 4 * 1024;

/// What a look at a body comes to.
pub enum Looked {
    Read(Box<Work>),
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
    pub(super) chains: Arc<Chains>,
    /// `None`: nothing is logged.
    pub journal: Option<Arc<Journal>>,
    /// Decoding, reading and planning off the event loops.
    pub(super) workers: Workers,
    /// How long a request that would overflow waits for its summary.
    pub patience: Duration,
    pub(super) tenant_rule: TenantRule,
}

impl Compactor {
    pub fn new(config: &Config, store: Arc<Store>) -> Self {
        let memo = Arc::new(Memo::new(DEFAULT_BYTES));
        let journal = config.logs().then(|| Journal::start(&store, &memo)).flatten();
        Self {
            store,
            memo,
            journal,
            jobs: Jobs::default(),
            sessions: Sessions::default(),
            breaker: Breaker::default(),
            memories: Memories::default(),
            bindings: Bindings::default(),
            verified: Verified::default(),
            refused_tools: Refused::default(),
            chains: Arc::default(),
            workers: Workers::one_per_core(),
            patience: sidecall::PATIENCE,
            tenant_rule: config.state.tenant.clone(),
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
        work.overlaid = overlaid;
        work.known.remembered = self.remembered(incoming, &work.origin, conversation).await;
        work.read_by(conversation);
        let origin = Arc::clone(&work.origin);
        let rewritten = self.sessions.get(origin.tenant, origin.root).is_rewritten();
        if !rewritten {
            work.known.evictions = Evictions::default();
        }
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
        if !origin.strategies.observe {
            self.place(&mut work, conversation);
        }
        // What was only counted was never forwarded.
        if origin.errand != Errand::Count {
            self.remember(&identity, (conversation, &chain), &work.known);
            work.ticket = self.offer(incoming, &identity);
        }
        memory::begin(self, &origin);
        work.bound();
        // The body says nothing of how long a history is that the provider holds.
        work.may_overflow |= work.recovers() && work.recorder.is_some() && conversation.fields.continues;
        Some(work)
    }

    /// For a request that only counts: what would be evicted at first sight, and the tools that would come with it, kept
    /// nowhere.
    async fn preview(&self, work: &mut Work) {
        let evictions = work.origin.think(&work.known, sighted).await.unwrap_or_default();
        if !evictions.is_empty() {
            Self::preview_offers(work);
            work.known.evictions.extend(evictions);
        }
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

    /// A request with the rows that are known of it. `None`: it has no history, and none continues it.
    async fn begin(
        &self,
        incoming: &Incoming<'_>,
        identity: Identity,
        conversation: &Conversation<'_>,
    ) -> Option<(Work, Vec<Digest>)> {
        let chain: Vec<Digest> = conversation.chain().copied().collect();
        let recorder = self.recorder(incoming, &identity, conversation);
        if chain.is_empty() && recorder.is_none() {
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
            recorder,
            overlaid: None,
            begun: None,
            ticket: None,
            origin,
        };
        Some((work, chain))
    }

    /// Remembers a conversation that passes untouched: what went whole stays whole (L5).
    pub async fn pass(&self, mut incoming: Incoming<'_>) {
        if Errand::of_path(incoming.parts.uri.path()) == Errand::Count {
            return;
        }
        let Some((body, identity)) = self.decode(&mut incoming).await.zip(self.identify(&incoming)) else { return };
        let Some(conversation) = self.read(incoming.dialect, &body, identity.tenant).await else { return };
        let chain: Vec<Digest> = conversation.chain().copied().collect();
        self.remember(&identity, (&conversation, &chain), &Known::default());
        let _ = self.offer(&incoming, &identity);
    }

    /// Hands a request to the session log.
    fn offer(&self, incoming: &Incoming<'_>, identity: &Identity) -> Option<Ticket> {
        self.journal.as_ref()?.offer(incoming, identity)
    }

    /// What went whole is remembered, but nothing is written for a mere claim. Every large result counts, not the end
    /// alone: the client may go back behind the end and on from there.
    fn remember(&self, identity: &Identity, (conversation, chain): (&Conversation<'_>, &[Digest]), known: &Known) {
        if identity.proof == Proof::Claimed {
            return;
        }
        let tenant = &identity.tenant;
        for upto in evict::went_whole(conversation, known).filter_map(|item| chain.get(..=item)) {
            self.store.remember_forwarded(tenant, upto, Lasting::Yes);
        }
        let lasting = conversation.items.iter().skip(known.seen).any(evict::is_evictable);
        self.store.remember_forwarded(tenant, chain, if lasting { Lasting::Yes } else { Lasting::No });
    }

    /// The recorder of a response that others may continue.
    fn recorder(&self, incoming: &Incoming<'_>, identity: &Identity, conversation: &Conversation) -> Option<Recorder> {
        is_recorded(incoming, conversation.fields.store)
            .then(|| self.chains.record(identity.tenant, conversation, incoming.chains))
            .flatten()
    }

    /// Counts a request that was not planned.
    async fn count(&self, work: &Work) -> Option<Change> {
        let counted = work.origin.think(&work.known, |situation| {
            let Change { before, after } = estimate::total(situation);
            Change { before: situation.calibrated(before), after: situation.calibrated(after) }
        });
        counted.await
    }

    /// Takes the body's coding off.
    async fn decode(&self, incoming: &mut Incoming<'_>) -> Option<Bytes> {
        let encoding = Encoding::of(&incoming.parts.headers)?;
        if encoding != Encoding::Identity {
            let decoded = decoded(&self.workers, incoming, encoding).await?;
            incoming.permit.push(Arc::new(decoded.permit));
            incoming.body = decoded.body;
        }
        Some(incoming.body.clone())
    }

    fn identify(&self, incoming: &Incoming<'_>) -> Option<Identity> {
        let upstream = incoming.shard.proxy.config.upstreams.get(incoming.index)?;
        let Incoming { parts, .. } = incoming;
        let asker = Asker { upstream: &upstream.name, headers: &parts.headers, uri: &parts.uri };
        Some(tenant::identify(&self.store, &self.tenant_rule, &self.verified, &asker))
    }

    /// Reads a body, off the event loop where it is long and new.
    pub(super) async fn read<'b>(&self, dialect: Dialect, body: &'b Bytes, tenant: Tenant) -> Option<Conversation<'b>> {
        let salt = tenant.0;
        if let Some(conversation) = wire::read_known(dialect, body, &self.memo, salt, INLINE_BYTES) {
            return Some(conversation);
        }
        let (memo, shared) = (Arc::clone(&self.memo), body.clone());
        let read = move || wire::read(dialect, &shared, &memo, salt).is_ok();
        self.workers.run(read).await.filter(|read| *read)?;
        wire::read(dialect, body, &self.memo, salt).ok()
    }

    /// Proposes rows, waits for a summary where the request would overflow, commits.
    async fn plan(&self, work: &mut Work, conversation: &Conversation<'_>, chain: &[Digest]) {
        let origin = Arc::clone(&work.origin);
        let proposal = if is_heavy(&origin.situation(conversation, &work.known)) {
            origin.think(&work.known, plan).await
        } else {
            Some(plan(&origin.situation(conversation, &work.known)))
        };
        let Some(mut proposal) = proposal else { return };
        if origin.strategies.observe {
            tracing::info!(actions = ?proposal.actions.names().collect::<Vec<_>>(), tokens = ?proposal.tokens, "observed");
            return;
        }
        // What cannot be kept is not removed: no side call for it, nothing that waits.
        if self.store.health() != Health::Up {
            return;
        }
        self.provide(work, &mut proposal, chain).await;
        let offer = self.begin_offers(work, &proposal, conversation);
        let Proposal { evictions, checkpoint, texts, actions, tokens, .. } = proposal;
        if evictions.is_empty() && checkpoint.is_none() {
            work.tokens = tokens;
            return;
        }
        let activated = checkpoint.as_ref().map(|(digest, _)| *digest);
        let checkpoint = checkpoint.map(|(digest, checkpoint)| (digest, checkpoint, Stage::Activated));
        let mut batch = Batch { root: origin.root, texts, evictions, checkpoint, ..Batch::default() };
        batch.overlays.extend(offer.clone());
        if self.commit(&origin, batch).await.is_ok() {
            work.known = self.known_now(work, chain).await;
            (work.actions, work.tokens, work.activated) = (actions, tokens, activated);
            if let Some(offer) = offer {
                self.begun(work, &offer).await;
            }
        }
    }

    /// The rows that are in force for a request now.
    pub(super) async fn known_now(&self, work: &Work, chain: &[Digest]) -> Known {
        let remembered = work.known.remembered.clone();
        Known { remembered, ..self.store.known(&work.origin.tenant, chain).await }
    }

    /// Sees to the summary that a proposal needs: begins it, or waits for it.
    async fn provide(&self, work: &Work, proposal: &mut Proposal, chain: &[Digest]) {
        let origin = &work.origin;
        let turn = Turn { tenant: origin.tenant, root: origin.root, tip: chain.last().copied().unwrap_or_default() };
        self.sessions.came(origin.payer(), chain);
        let (cut, urgent) = match proposal.summary {
            Need::No => {
                if proposal.actions.summarized {
                    self.sessions.trigger(turn, Readiness::Ready);
                }
                return;
            }
            Need::Ahead { cut } => {
                if self.sessions.is_worth_it(origin.payer()) {
                    let _ = sidecall::begin(self, origin, &work.known, cut, Purpose::Planned);
                }
                return;
            }
            Need::Late { cut } => (cut, false),
            Need::Now { cut } => (cut, true),
        };
        let means = match self.sessions.trigger(turn, Readiness::Missing) {
            Means::SideCall if self.sessions.is_worth_it(origin.payer()) => Means::SideCall,
            _ => Means::DigestOnly,
        };
        let ticket = match means {
            Means::SideCall => sidecall::begin(self, origin, &work.known, cut, Purpose::Planned),
            Means::DigestOnly => None,
        };
        if means == Means::SideCall && !urgent {
            return;
        }
        let made = match ticket {
            Some(ticket) => ticket.wait(self.patience).await,
            None => None,
        };
        self.activate(work, proposal, (cut, made)).await;
    }

    /// Lays a summary, or the digest in its place, over what is proposed.
    async fn activate(&self, work: &Work, proposal: &mut Proposal, summary: (usize, Made)) {
        let (cut, made) = summary;
        let known = known_with(&work.known, proposal);
        let laid = work.origin.think(&known, move |situation| lay(situation, cut, made));
        if let Some(Some(laid)) = laid.await {
            laid.over(proposal);
        }
    }

    /// The checkpoint in force never applies again: the provider refused it and took the original. Evictions alone
    /// are given up for the session when that has happened twice.
    pub(super) fn quarantine(&self, work: &Work) {
        let origin = &work.origin;
        let Some(active) = work.known.active.as_deref() else {
            return self.sessions.refused(origin.tenant, origin.root);
        };
        let last = active.covers.checked_sub(1);
        let digest = origin.read().ok().and_then(|conversation| Some(conversation.items.get(last?)?.chain));
        if let Some(digest) = digest {
            self.store.quarantine(&origin.tenant, &digest);
        }
    }

    /// Writes removed texts to the workspace, where one is configured, and commits the batch (L5).
    pub(super) async fn commit(&self, origin: &Arc<Origin>, mut batch: Batch) -> Result<(), CommitError> {
        // For a token that is only claimed nothing is written.
        if origin.proof == Proof::Claimed {
            return Err(CommitError::Failed);
        }
        if let Some(folder) = &origin.workspace {
            workspace::write(folder, &batch.texts).await.map_err(|error| {
                tracing::warn!(%error, folder, "nothing new is removed from this request");
                CommitError::Failed
            })?;
        }
        batch.said = memory::said(origin, &batch).await;
        let is_said = batch.said.is_some();
        let started = Instant::now();
        let committed = self.store.commit(&origin.tenant, batch).await;
        origin.shard.proxy.metrics.committed(started.elapsed());
        if let Err(error) = &committed {
            tracing::warn!(%error, "nothing new is removed from this request");
        } else if is_said {
            memory::wake(self, origin);
        }
        committed
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

/// Whether planning takes long enough to delay the other requests of the shard.
fn is_heavy(situation: &Situation) -> bool {
    let Situation { conversation, known, .. } = *situation;
    let covered = known.active.as_deref().map_or(0, |active| active.covers);
    let new = conversation.items.iter().skip(covered).filter(|item| item.facts.tokens.get().is_none());
    let uncounted: usize = new.map(|item| item.facts.text_bytes).sum();
    let bound = situation.calibrated(estimate::bound(situation));
    let messages = estimate::messages(conversation, known.active.as_deref());
    if !situation.budget.may_act(bound, messages) {
        return false;
    }
    // From here on there is counting, for the first time with the vocabulary to load.
    if uncounted > COUNTED_INLINE || !situation.tokens.is_loaded() {
        return true;
    }
    let load = situation.load();
    situation.budget.summary_near(load.tokens, load.messages) || trim::could_pay(situation, load)
}
