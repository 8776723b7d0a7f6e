//! The stage between taking a body in and sending it: what to send in its place.
//!
//! read → known rows → plan → (wait for a summary) → commit → render → splice. Whatever is in doubt
//! ends the stage with what is known so far; the client's own body is always good (L2).

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};

use super::body::SendBody;
use super::breaker::Breaker;
use super::encoding::{Encoding, decode};
use super::headers::BodyHeaders;
use super::intake::Intake;
use super::jobs::Jobs;
use super::origin::{INLINE_BYTES, Incoming, Origin};
use super::recovery::LEAST_OUTPUT;
use super::sessions::{Means, Readiness, Sessions};
use super::tenant::{self, Identity, Proof};
use super::{sidecall, workspace};
use crate::compact::budget::{carries_media, floor_bytes};
use crate::compact::head::{self, Source};
use crate::compact::plan::{Actions, Need, Proposal, Situation, merge, plan};
use crate::compact::render::render;
use crate::compact::{Change, Checkpoint, Known, client_compaction, estimate, trim};
use crate::config::{Config, TenantRule};
use crate::store::{Batch, CommitError, Stage, Store, Tenant};
use crate::wire::memo::{DEFAULT_BYTES, Memo};
use crate::wire::splice::{Edit, splice, total_len};
use crate::wire::{Conversation, Digest, openai_chat};

/// Bodies from this size on may overflow a window that nobody knows.
pub const UNKNOWN_WINDOW_BYTES: usize = 16 * 1024;
/// No window in use is smaller, in tokens.
const LEAST_WINDOW: u64 = 4_096;

/// What compaction keeps across requests; shared by all shards.
pub struct Compactor {
    pub store: Arc<Store>,
    pub(super) memo: Arc<Memo>,
    pub(super) jobs: Jobs,
    pub(super) sessions: Sessions,
    pub(super) breaker: Breaker,
    tenant_rule: TenantRule,
    /// Smaller bodies need no look: nothing could be removed from them.
    floor: usize,
}

/// A request whose body was looked at, on its way.
pub struct Work {
    pub origin: Arc<Origin>,
    /// Rows in force, after this request's own.
    pub known: Known,
    /// What goes upstream; `None`: the client's own body.
    pub pieces: Option<Vec<Bytes>>,
    pub actions: Actions,
    /// Calibrated tokens before and after; `None` where they were not counted.
    pub tokens: Option<Change>,
    /// The checkpoint that this request activated.
    pub activated: Option<Digest>,
    pub recoverable: bool,
}

impl Compactor {
    pub fn new(config: &Config, store: Arc<Store>) -> Self {
        Self {
            store,
            memo: Arc::new(Memo::new(DEFAULT_BYTES)),
            jobs: Jobs::default(),
            sessions: Sessions::default(),
            breaker: Breaker::default(),
            tenant_rule: config.state.tenant.clone(),
            floor: floor(config),
        }
    }

    /// Looks at a body that was taken in. `None`: nothing to do with it now or later.
    pub async fn look(&self, mut incoming: Incoming<'_>) -> Option<Work> {
        let body = self.decoded(&incoming)?;
        incoming.body = body.clone();
        let identity = self.identify(&incoming)?;
        let conversation = self.read(&body, identity.tenant).await?;
        let chain: Vec<Digest> = conversation.chain().copied().collect();
        if chain.is_empty() {
            return None;
        }
        let known = match identity.proof {
            Proof::Known => self.store.known(&identity.tenant, &chain).await,
            Proof::Claimed => Known::default(),
        };
        let origin = Arc::new(Origin::new(self, &incoming, identity, &conversation));
        let mut work = Work {
            known,
            pieces: None,
            actions: Actions::default(),
            tokens: None,
            activated: None,
            recoverable: false,
            origin: Arc::clone(&origin),
        };
        let may_plan = origin.proof == Proof::Known && !client_compaction::asks_for_it(&conversation);
        if may_plan {
            self.plan(&mut work, &conversation, &chain).await;
        }
        if !origin.strategies.observe {
            self.place(&mut work, &conversation);
        }
        self.store.remember_forwarded(&origin.tenant, &chain);
        work.recoverable = work.may_overflow(&conversation);
        Some(work)
    }

    /// Remembers a conversation that passes untouched: what went whole stays whole (L5).
    pub async fn pass(&self, incoming: Incoming<'_>) {
        let Some((body, identity)) = self.decoded(&incoming).zip(self.identify(&incoming)) else { return };
        let Some(conversation) = self.read(&body, identity.tenant).await else { return };
        let chain: Vec<Digest> = conversation.chain().copied().collect();
        self.store.remember_forwarded(&identity.tenant, &chain);
    }

    /// The body without its coding, unless it is too small to have to do with anything.
    fn decoded(&self, incoming: &Incoming<'_>) -> Option<Bytes> {
        let cap = incoming.shard.proxy.config.server.max_body_bytes;
        let body = decode(Encoding::of(&incoming.parts.headers)?, &incoming.body, cap).ok()?;
        (body.len() >= self.floor || carries_media(&body)).then_some(body)
    }

    fn identify(&self, incoming: &Incoming<'_>) -> Option<Identity> {
        let upstream = incoming.shard.proxy.config.upstreams.get(incoming.index)?;
        Some(tenant::identify(&self.store, &self.tenant_rule, &upstream.name, &incoming.parts.headers))
    }

    /// Reads a body, off the event loop where it is long and new.
    async fn read<'b>(&self, body: &'b Bytes, tenant: Tenant) -> Option<Conversation<'b>> {
        let salt = tenant.0;
        if let Some(conversation) = openai_chat::read_known(body, &self.memo, salt, INLINE_BYTES) {
            return Some(conversation);
        }
        let (memo, shared) = (Arc::clone(&self.memo), body.clone());
        let read = move || openai_chat::read(&shared, &memo, salt).is_ok();
        tokio::task::spawn_blocking(read).await.ok().filter(|read| *read)?;
        openai_chat::read(body, &self.memo, salt).ok()
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
        work.tokens = proposal.tokens;
        if origin.strategies.observe {
            tracing::info!(actions = ?proposal.actions.names().collect::<Vec<_>>(), tokens = ?proposal.tokens, "observed");
            return;
        }
        self.provide(work, &mut proposal, chain).await;
        let Proposal { evictions, checkpoint, texts, actions, tokens, .. } = proposal;
        if evictions.is_empty() && checkpoint.is_none() {
            return;
        }
        let activated = checkpoint.as_ref().map(|(digest, _)| *digest);
        let checkpoint = checkpoint.map(|(digest, checkpoint)| (digest, checkpoint, Stage::Activated));
        let batch = Batch { root: origin.root, texts, evictions, checkpoint };
        if self.commit(&origin, batch).await.is_ok() {
            work.known = self.store.known(&origin.tenant, chain).await;
            (work.actions, work.tokens, work.activated) = (actions, tokens, activated);
        }
    }

    /// Sees to the summary that a proposal needs: begins it, or waits for it.
    async fn provide(&self, work: &Work, proposal: &mut Proposal, chain: &[Digest]) {
        let (origin, root) = (&work.origin, work.origin.root);
        let (cut, urgent) = match proposal.summary {
            Need::No => {
                if proposal.actions.summarized {
                    self.sessions.trigger(origin.tenant, root, Readiness::Ready);
                }
                return;
            }
            Need::Ahead { cut } => {
                let _ = sidecall::begin(self, origin, &work.known, cut);
                return;
            }
            Need::Late { cut } => (cut, false),
            Need::Now { cut } => (cut, true),
        };
        let means = self.sessions.trigger(origin.tenant, root, Readiness::Missing);
        let ticket = match means {
            Means::SideCall => sidecall::begin(self, origin, &work.known, cut),
            Means::DigestOnly => None,
        };
        if means == Means::SideCall && !urgent {
            return;
        }
        let made = match ticket {
            Some(ticket) => ticket.wait(sidecall::PATIENCE).await,
            None => None,
        };
        self.activate(work, proposal, (cut, made), chain).await;
    }

    /// Lays a summary, or the digest in its place, over what is proposed.
    async fn activate(
        &self,
        work: &Work,
        proposal: &mut Proposal,
        summary: (usize, Option<Arc<Checkpoint>>),
        chain: &[Digest],
    ) {
        let mut known = work.known.clone();
        known.evictions.extend(proposal.evictions.iter().cloned());
        if let Some((_, trimmed)) = &proposal.checkpoint {
            known.active = Some(Arc::clone(trimmed));
        }
        let (cut, made) = summary;
        let laid = work.origin.think(&known, move |situation| {
            let (summary, texts) = match made {
                Some(made) => ((*made).clone(), Vec::new()),
                None => head::summary(situation, cut, Source::Digest)?,
            };
            let merged = merge(situation, &summary);
            let known = Known { active: Some(Arc::new(merged.clone())), ..situation.known.clone() };
            let change = estimate::total(&situation.with(&known));
            let (before, after) = (situation.calibrated(change.before), situation.calibrated(change.after));
            Some((merged, texts, Change { before, after }))
        });
        let Some(Some((merged, texts, change))) = laid.await else { return };
        let smaller = proposal.tokens.is_none_or(|now| change.after < now.after);
        let Some(digest) = merged.covers.checked_sub(1).and_then(|last| chain.get(last)).filter(|_| smaller) else {
            return;
        };
        proposal.checkpoint = Some((*digest, Arc::new(merged)));
        proposal.texts.extend(texts);
        proposal.tokens = Some(change);
        proposal.actions.summarized = true;
    }

    /// The checkpoint in force never applies again: the provider refused it and took the original.
    pub(super) fn quarantine(&self, work: &Work) {
        let active = work.known.active.as_deref();
        let digest = active.and_then(|active| {
            let conversation = work.origin.read().ok()?;
            Some(conversation.items.get(active.covers.checked_sub(1)?)?.chain)
        });
        if let Some(digest) = digest {
            self.store.quarantine(&work.origin.tenant, &digest);
        }
    }

    /// Writes removed texts to the workspace, where one is configured, and commits the batch (L5).
    pub(super) async fn commit(&self, origin: &Origin, batch: Batch) -> Result<(), CommitError> {
        if let Some(folder) = &origin.workspace {
            workspace::write(folder, &batch.texts).await.map_err(|_| CommitError::Failed)?;
        }
        let committed = self.store.commit(&origin.tenant, batch).await;
        if let Err(error) = &committed {
            tracing::warn!(%error, "nothing new is removed from this request");
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

impl Work {
    /// The body to send. Can be made again for a second attempt.
    pub fn body(&self, intake: &Intake) -> SendBody {
        match &self.pieces {
            Some(pieces) => intake.rewritten(pieces.clone()),
            None => intake.original(),
        }
    }

    /// What the body needs of the request's headers.
    pub fn body_headers(&self) -> BodyHeaders {
        match &self.pieces {
            Some(pieces) => BodyHeaders::Rewritten(total_len(pieces) as u64),
            None => BodyHeaders::TakenIn,
        }
    }

    /// Response headers that tell of the rewrite.
    pub fn notes(&self) -> Vec<(HeaderName, HeaderValue)> {
        if self.pieces.is_none() {
            return Vec::new();
        }
        let mut notes = Vec::new();
        let actions = self.actions.names().collect::<Vec<_>>().join(", ");
        if let Ok(value) = HeaderValue::try_from(actions) {
            notes.push((HeaderName::from_static("x-compactproxy-action"), value));
        }
        if let Some(Change { before, after }) = self.tokens
            && let Ok(value) = HeaderValue::try_from(format!("before={before}, after={after}"))
        {
            notes.push((HeaderName::from_static("x-compactproxy-tokens"), value));
        }
        notes
    }

    /// Places `edits` in the body; without any, or if they do not fit, the original goes out.
    pub(super) fn set_pieces(&mut self, edits: Vec<Edit>) {
        self.pieces = match edits.is_empty() {
            true => None,
            false => splice(&self.origin.body, edits).ok(),
        };
        if self.pieces.is_none() {
            self.actions = Actions::default();
        }
    }

    /// Bytes that go upstream.
    pub fn sent_bytes(&self) -> usize {
        self.pieces.as_ref().map_or(self.origin.body.len(), |pieces| total_len(pieces))
    }

    /// Whether the provider could find this request too long, by its bytes alone.
    fn may_overflow(&self, conversation: &Conversation<'_>) -> bool {
        let origin = &self.origin;
        let bytes = self.sent_bytes();
        // Bytes do not bound what media cost.
        let carries_media = || conversation.items.iter().any(|item| !item.facts.media.is_empty());
        let could = match origin.budget.window {
            None => bytes >= UNKNOWN_WINDOW_BYTES || carries_media(),
            Some(window) => {
                let bound = origin.budget.output.saturating_add(bytes as u64);
                bound >= window.input.min(window.total) || carries_media()
            }
        };
        origin.strategies.recovery && !origin.strategies.observe && origin.proof == Proof::Known && could
    }

    /// Lowers the client's output limit where the upstream has told that there is no room for it, so that
    /// it need not refuse again.
    fn lowered_output(&mut self, conversation: &Conversation<'_>) -> Vec<Edit> {
        let origin = Arc::clone(&self.origin);
        let told = origin.told_total.zip(self.tokens).filter(|_| origin.strategies.recovery);
        let (Some((total, tokens)), Some(asked)) = (told, conversation.max_output()) else { return Vec::new() };
        let room = total.saturating_sub(tokens.after + tokens.after / 50 + 16);
        if asked <= room || room < LEAST_OUTPUT {
            return Vec::new();
        }
        self.actions.output_lowered = true;
        openai_chat::lower_output(conversation, room)
    }
}

/// Whether planning takes long enough to delay the other requests of the shard.
fn is_heavy(situation: &Situation) -> bool {
    let Situation { conversation, known, .. } = *situation;
    let covered = known.active.as_deref().map_or(0, |active| active.covers);
    let new = conversation.items.iter().skip(covered).filter(|item| item.facts.tokens.get().is_none());
    if new.map(|item| item.facts.text_bytes).sum::<usize>() > INLINE_BYTES {
        return true;
    }
    let bound = situation.calibrated(estimate::bound(situation));
    let messages = estimate::messages(conversation, known.active.as_deref());
    if !situation.budget.may_act(bound, messages) {
        return false;
    }
    let load = situation.load();
    situation.budget.summary_near(load.tokens, load.messages) || trim::could_pay(situation, load)
}

/// The least body that any strategy in any window could have to do with.
fn floor(config: &Config) -> usize {
    if !config.policies.is_empty() {
        return 0;
    }
    let configured = config.windows.iter().flat_map(|rule| [rule.input, rule.total]).flatten().min();
    let least = configured.unwrap_or(u64::MAX).min(LEAST_WINDOW);
    let smallest = crate::compact::budget::Window { input: least, total: least };
    let planned = floor_bytes(&config.strategies, Some(smallest)).min(floor_bytes(&config.strategies, None));
    match config.strategies.recovery {
        true => planned.min(UNKNOWN_WINDOW_BYTES).min(least as usize),
        false => planned,
    }
}
