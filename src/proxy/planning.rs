//! What is to be removed from a request: proposed, waited for where it would overflow, and committed before it counts.

use std::sync::Arc;
use std::time::Instant;

use super::compaction::{Compactor, Conduct};
use super::jobs::Made;
use super::laid::{known_with, lay};
use super::memory;
use super::origin::Origin;
use super::sessions::{Means, Readiness, Session, Turn};
use super::sidecall::{self, Purpose};
use super::tenant::Proof;
use super::work::Work;
use super::workspace;
use crate::compact::plan::{Load, Need, Proposal, Situation, plan, plan_again, sighted};
use crate::compact::{Change, Known, estimate, trim};
use crate::store::{Batch, CommitError, Health, Stage};
use crate::telemetry::metrics::FailOpen;
use crate::wire::{Conversation, Digest};

/// New bytes of text that are counted on the event loop: at about 10 MB/s a tenth of a millisecond each KiB.
const COUNTED_INLINE: usize = 4 * 1024;

impl Compactor {
    /// Proposes rows, waits for a summary where the request would overflow, commits.
    pub(super) async fn plan(&self, work: &mut Work, conversation: &Conversation<'_>, chain: &[Digest]) {
        let origin = Arc::clone(&work.origin);
        let session = self.sessions.get(origin.tenant, origin.root);
        let situation = origin.situation(conversation, &work.known);
        let proposal = match effort(&situation, session) {
            Effort::Small => Some(plan(&situation)),
            Effort::Repeated => Some(plan_again(&situation)),
            Effort::Large(load) => {
                let proposal = origin.think(&work.known, plan).await;
                if let Some(load) = load.filter(|_| proposal.as_ref().is_some_and(Proposal::is_nothing)) {
                    self.sessions.idle(origin.tenant, origin.root, load);
                }
                proposal
            }
        };
        let metrics = &origin.shard.proxy.metrics;
        let Some(mut proposal) = proposal else { return metrics.failed_open(FailOpen::Plan) };
        let observes = origin.strategies.observe;
        // What cannot be kept is not removed: no side call for it, nothing that waits.
        if self.store.health() != Health::Up {
            if !observes && (!proposal.evictions.is_empty() || proposal.checkpoint.is_some()) {
                metrics.failed_open(FailOpen::Commit);
            }
            return;
        }
        if observes {
            return self.foresee(work, proposal).await;
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
        if self.commit(&origin, batch).await.is_err() {
            return metrics.failed_open(FailOpen::Commit);
        }
        work.known = self.known_now(work, chain).await;
        (work.actions, work.tokens, work.activated) = (actions, tokens, activated);
        if let Some(offer) = offer {
            self.begun(work, &offer).await;
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
            Means::SideCall if self.conduct == Conduct::Serving && self.sessions.is_worth_it(origin.payer()) => {
                Means::SideCall
            }
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

    /// Puts a proposal in force for this request alone, kept nowhere. A summary that is due counts as made, by the
    /// digest: no model is called.
    async fn foresee(&self, work: &mut Work, mut proposal: Proposal) {
        if let Need::Late { cut } | Need::Now { cut } = proposal.summary {
            self.activate(work, &mut proposal, (cut, None)).await;
        }
        work.known = known_with(&work.known, &proposal);
        work.activated = proposal.checkpoint.map(|(digest, _)| digest);
        (work.actions, work.tokens) = (proposal.actions, proposal.tokens);
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

    /// For a request that only counts: what would be evicted at first sight, and the tools that would come with it, kept
    /// nowhere.
    pub(super) async fn preview(&self, work: &mut Work) {
        let evictions = work.origin.think(&work.known, sighted).await.unwrap_or_default();
        if !evictions.is_empty() {
            Self::preview_offers(work);
            work.known.evictions.extend(evictions);
        }
    }

    /// Counts a request that was not planned.
    pub(super) async fn count(&self, work: &Work) -> Option<Change> {
        let counted = work.origin.think(&work.known, |situation| {
            let Change { before, after } = estimate::total(situation);
            Change { before: situation.calibrated(before), after: situation.calibrated(after) }
        });
        counted.await
    }

    /// Writes removed texts to the workspace, where one is configured, and commits the batch (L5).
    pub(super) async fn commit(&self, origin: &Arc<Origin>, mut batch: Batch) -> Result<(), CommitError> {
        // For a token that is only claimed nothing is written.
        if origin.proof == Proof::Claimed {
            return Err(CommitError::Failed);
        }
        if let Some(folder) = origin.workspace.as_deref().filter(|_| self.conduct == Conduct::Serving) {
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
}

/// What planning takes.
enum Effort {
    Small,
    /// Enough to delay the other requests of the shard, at this load if it is near the trigger of a summary.
    Large(Option<Load>),
    /// As it came to nothing a moment ago: little.
    Repeated,
}

fn effort(situation: &Situation, session: Session) -> Effort {
    let Situation { conversation, known, budget, .. } = *situation;
    let covered = known.active.as_deref().map_or(0, |active| active.covers);
    let new = conversation.items.iter().skip(covered).filter(|item| item.facts.tokens.get().is_none());
    let uncounted: usize = new.map(|item| item.facts.text_bytes).sum();
    let bound = situation.calibrated(estimate::bound(situation));
    let messages = estimate::messages(conversation, known.active.as_deref());
    if !budget.may_act(bound, messages) {
        return Effort::Small;
    }
    // From here on there is counting, for the first time with the vocabulary to load.
    if uncounted > COUNTED_INLINE || !situation.tokens.is_loaded() {
        return Effort::Large(None);
    }
    let load = situation.load();
    let near = budget.summary_near(load.tokens, load.messages).then_some(load);
    if trim::could_pay(situation, load) {
        return Effort::Large(near);
    }
    match near {
        None => Effort::Small,
        Some(load) if !situation.is_due(load) && session.was_idle(load, budget.trigger.unwrap_or(0)) => {
            Effort::Repeated
        }
        Some(_) => Effort::Large(near),
    }
}
