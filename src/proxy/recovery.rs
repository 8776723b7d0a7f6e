//! The second attempt: what to send after the provider refused, and whose error the client sees if
//! that fails too (L6).

use std::sync::Arc;

use super::budget::Permit;
use super::compaction::Compactor;
use super::learning::Counted;
use super::limits::Place;
use super::origin::Origin;
use super::sidecall::{self, Purpose};
use super::tenant::Proof;
use super::work::Work;
use crate::compact::calibration::Calibration;
use crate::compact::head::Source;
use crate::compact::ladder::{Goal, Rung, Step, finish, goal, start};
use crate::compact::lighten::lightened;
use crate::compact::plan::{Actions, Proposal};
use crate::compact::render::render;
use crate::compact::{Change, Known, estimate};
use crate::store::{Batch, Stage};
use crate::wire::overflow::{Scope, Sizes, Unit, Verdict};
use crate::wire::splice::{Edit, splice, total_len};
use crate::wire::{Conversation, Digest, Sight, chain};

/// Tokens between a lowered output limit and what the provider's numbers leave.
const MARGIN: u64 = 16;
/// Most tokens of the tool that comes with a first removal.
const OFFER: u64 = 600;
/// Where the limit is not this many times the tool's tokens, the room is the conversation's.
const OFFER_SHARE: u64 = 8;

impl Compactor {
    /// Rewrites `work` for its second attempt. False: nothing helps, the error is the client's.
    pub(super) async fn recover(&self, work: &mut Work, verdict: Verdict) -> bool {
        let (sizes, budget_only) = match verdict {
            Verdict::Other => return false,
            Verdict::OutputBudget(sizes) => (sizes, !sizes.ambiguous),
            Verdict::Overflow(sizes) => (sizes, false),
        };
        self.learn(work, &verdict, &sizes).await;
        self.leave_untried(work);
        let lowered = self.lowered(work, &sizes).await;
        if budget_only && let Some(edits) = lowered {
            return self.send_lowered(work, edits);
        }
        let both = sizes.ambiguous.then_some(()).and(lowered_value(work, &sizes));
        self.compact(work, &sizes, both).await
    }

    /// Where the provider holds the history: puts the request with all of it in the work's place, if every turn of it
    /// was seen. What was counted for the request itself says nothing of that.
    async fn make_whole(&self, work: &mut Work) -> bool {
        if work.origin.sight == Sight::Whole {
            return true;
        }
        let Ok(conversation) = work.origin.read() else { return false };
        let tenant = work.origin.tenant;
        let history = chain::previous(&conversation).and_then(|id| self.chains.history(tenant, &id));
        let Some(body) = history.and_then(|history| chain::rebuilt(&conversation, &history)) else { return false };
        let mut permit = Permit::empty(&work.origin.shard.proxy.budget);
        let origin = permit.grow(body.len()).then(|| work.origin.with_body(body, permit)).flatten();
        let Some(origin) = origin.filter(|origin| origin.sight == Sight::Whole) else { return false };
        let (known, remembered) = {
            let Ok(whole) = origin.read() else { return false };
            let chain: Vec<Digest> = whole.chain().copied().collect();
            (self.store.known(&tenant, &chain).await, self.remembered_before(&origin, &whole).await)
        };
        work.known = known;
        work.remember(remembered);
        (work.origin, work.pieces, work.tokens) = (Arc::new(origin), None, None);
        true
    }

    /// The edits that lower the client's own output limit to what the error says is left.
    async fn lowered(&self, work: &Work, sizes: &Sizes) -> Option<Vec<Edit>> {
        let room = lowered_value(work, sizes)?;
        let conversation = work.origin.read().ok()?;
        let edits = conversation.lower_output(room);
        (!edits.is_empty()).then_some(edits)
    }

    fn send_lowered(&self, work: &mut Work, lowered: Vec<Edit>) -> bool {
        let origin = Arc::clone(&work.origin);
        let Ok(conversation) = origin.read() else { return false };
        let mut edits = render(&conversation, &work.known).edits;
        edits.extend(lowered);
        work.actions.output_lowered = true;
        work.set_pieces(edits);
        work.pieces.is_some()
    }

    /// Goes down the ladder and activates what it finds.
    async fn compact(&self, work: &mut Work, sizes: &Sizes, lowered_to: Option<u64>) -> bool {
        if !self.make_whole(work).await {
            return false;
        }
        let offer = self.room_for_tools(work, sizes);
        let origin = Arc::clone(&work.origin);
        let Some(rung) = self.climb_down(&origin, &work.known, (sizes, offer)).await else { return false };
        let Ok(conversation) = origin.read() else { return false };
        let refused = work.sent_bytes();
        // Not sent, so not activated either: it would apply to the turns after this one.
        if !is_shorter(work, &conversation, &rung) {
            return false;
        }
        let Some(known) = self.activate_rung(work, &rung).await else { return false };
        work.known = known;
        let mut edits = render(&conversation, &work.known).edits;
        if let Some(room) = lowered_to.or_else(|| left_beside(work, sizes)) {
            let lowered = conversation.lower_output(room);
            work.actions.output_lowered = !lowered.is_empty();
            edits.extend(lowered);
        }
        let actions = Actions { recovered: true, ..rung.actions };
        work.actions = Actions { checkpoint: false, ..work.actions }.and(actions);
        work.set_pieces(edits);
        // Another writer may have been first: what is placed is what is stored, not what was proposed.
        work.pieces.is_some() && work.sent_bytes() < refused
    }

    /// Tokens for the tool that comes with a request's first removal. Where it would take too much of the window, it does
    /// not come.
    fn room_for_tools(&self, work: &mut Work, sizes: &Sizes) -> u64 {
        let Some(overlaid) = work.overlaid.as_mut().filter(|overlaid| overlaid.candidate.is_some()) else { return 0 };
        let told = sizes.limit.filter(|_| sizes.unit == Unit::Tokens);
        let limit = told.or(work.origin.budget.window.map(|window| window.input));
        if limit.is_none_or(|limit| limit >= OFFER * OFFER_SHARE) {
            return OFFER;
        }
        overlaid.candidate = None;
        Arc::make_mut(&mut work.origin).readers.evicted = None;
        0
    }

    /// The first rung that helps and leaves `offer` tokens of its room.
    async fn climb_down(&self, origin: &Arc<Origin>, known: &Known, (sizes, offer): (&Sizes, u64)) -> Option<Rung> {
        // Of too many bytes pictures have most.
        if sizes.unit == Unit::Bytes
            && let Some(rung) = origin.think(known, lightened).await.flatten()
        {
            return Some(rung);
        }
        let (sizes, output) = (*sizes, Some(origin.budget.output).filter(|output| *output > 0));
        let window = origin.budget.window;
        let (goal, step) = origin
            .think(known, move |situation| {
                let goal = goal(&sizes, situation.load().tokens, output, window);
                let less = |tokens: u64| tokens.saturating_sub(offer);
                let goal = Goal { target: less(goal.target), limit: less(goal.limit) };
                (goal, start(situation, goal))
            })
            .await?;
        let cut = match step {
            Step::Send(rung) => return Some(*rung),
            Step::Hopeless => return None,
            Step::Summarize { cut } => cut,
        };
        let made = match sidecall::begin(self, origin, known, cut, Purpose::Recovery) {
            Some(ticket) => ticket.wait(self.patience).await,
            None => None,
        };
        let summary = made.and_then(|made| made.checkpoint.head.as_ref().map(|head| head.summary.clone()));
        self.finish(origin, known, (goal, cut, summary)).await
    }

    async fn finish(
        &self,
        origin: &Arc<Origin>,
        known: &Known,
        (goal, cut, summary): (Goal, usize, Option<String>),
    ) -> Option<Rung> {
        let step = origin.think(known, move |situation| {
            let source = summary.as_deref().map_or(Source::Digest, Source::Model);
            finish(situation, goal, Some((cut, source)))
        });
        match step.await? {
            Step::Send(rung) => Some(*rung),
            Step::Summarize { .. } | Step::Hopeless => None,
        }
    }

    /// Puts in force what recovery found.
    async fn activate_rung(&self, work: &mut Work, rung: &Rung) -> Option<Known> {
        let origin = Arc::clone(&work.origin);
        let conversation = origin.read().ok()?;
        let known = match origin.strategies.observe {
            true => Known { active: Some(Arc::new(rung.checkpoint.clone())), ..work.known.clone() },
            false => self.keep_rung(work, rung, &conversation).await?,
        };
        let change = estimate::total(&origin.situation(&conversation, &known));
        let calibrated = |tokens| (tokens as f64 * origin.calibration).ceil() as u64;
        work.tokens = Some(Change { before: calibrated(change.before), after: calibrated(change.after) });
        Some(known)
    }

    /// Activates it in the store; where that fails in memory, and there later (L5).
    async fn keep_rung(&self, work: &mut Work, rung: &Rung, conversation: &Conversation<'_>) -> Option<Known> {
        let origin = Arc::clone(&work.origin);
        let chain: Vec<Digest> = conversation.chain().copied().collect();
        let digest = *chain.get(rung.checkpoint.covers.checked_sub(1)?)?;
        let checkpoint = (digest, Arc::new(rung.checkpoint.clone()));
        let proposal = Proposal { checkpoint: Some(checkpoint.clone()), ..Proposal::default() };
        let offer = self.begin_offers(work, &proposal, conversation);
        let checkpoint = Some((checkpoint.0, checkpoint.1, Stage::Activated));
        let texts = rung.texts.clone();
        let mut batch = Batch { root: origin.root, texts, checkpoint, ..Batch::default() };
        batch.overlays.extend(offer.clone());
        // The texts name the tool already, so that it comes in either case.
        if self.commit(&origin, batch.clone()).await.is_err() {
            self.store.keep(&origin.tenant, batch).await;
        }
        if let Some(offer) = offer {
            self.begun(work, &offer).await;
        }
        work.activated = Some(digest);
        Some(self.known_now(work, &chain).await)
    }

    /// Keeps what an overflow teaches that is not mended any more.
    pub(super) async fn taught(&self, work: &mut Work, verdict: Verdict) {
        if let Verdict::OutputBudget(sizes) | Verdict::Overflow(sizes) = verdict {
            self.learn(work, &verdict, &sizes).await;
        }
    }

    /// Keeps what an error teaches of the window and of the estimate.
    async fn learn(&self, work: &mut Work, verdict: &Verdict, sizes: &Sizes) {
        let origin = &work.origin;
        self.learn_limit(&Place::of(origin), verdict);
        work.taught = true;
        if origin.proof == Proof::Claimed {
            return;
        }
        let comparable = sizes.unit == Unit::Tokens && origin.sight == Sight::Whole;
        let Some(reported) = sizes.input.filter(|_| comparable) else { return };
        let estimated = origin.think(&work.known, |situation| estimate::total(situation).after).await;
        if let Some(estimated) = estimated {
            self.calibrate(&Counted::by(origin), estimated, reported);
        }
    }

    /// Moves the calibration towards what was reported for an uncalibrated estimate.
    pub(super) fn calibrate(&self, counted: &Counted, estimated: u64, reported: u64) {
        let mut calibration = Calibration::of(counted.calibration);
        calibration.observe(estimated, reported);
        self.store.learn_calibration(&counted.tenant, &counted.upstream, &counted.model, calibration.factor());
    }
}

/// Whether the body would be shorter than the one that was refused.
fn is_shorter(work: &Work, conversation: &Conversation<'_>, rung: &Rung) -> bool {
    let known = Known { active: Some(Arc::new(rung.checkpoint.clone())), ..work.known.clone() };
    let pieces = splice(&work.origin.body, render(conversation, &known).edits);
    pieces.is_ok_and(|pieces| total_len(&pieces) < work.sent_bytes())
}

/// What a limit of input and output together leaves for the output beside the compacted input, where the
/// client asked for more.
fn left_beside(work: &Work, sizes: &Sizes) -> Option<u64> {
    let total = sizes.limit.filter(|_| sizes.unit == Unit::Tokens && sizes.scope == Scope::Total)?;
    let tokens = work.tokens?;
    // As far as the own estimate was below the provider's count it still is.
    let counted = sizes.input.unwrap_or(tokens.before).max(tokens.before.max(1));
    let after = u128::from(tokens.after) * u128::from(counted) / u128::from(tokens.before.max(1));
    let after = u64::try_from(after).unwrap_or(u64::MAX);
    let room = total.checked_sub(after.saturating_add(after / 50).saturating_add(MARGIN))?;
    (room >= work.origin.least_output && work.origin.budget.output > room).then_some(room)
}

/// The largest output limit that the error's numbers leave room for; `None` where that is too little.
fn lowered_value(work: &Work, sizes: &Sizes) -> Option<u64> {
    let limit = sizes.limit.filter(|_| sizes.unit == Unit::Tokens)?;
    // Without the provider's count, the own estimate of the whole, with two percent for its error.
    let estimated = work.tokens.filter(|_| work.origin.sight == Sight::Whole);
    let input = sizes.input.or(estimated.map(|tokens| tokens.after + tokens.after / 50))?;
    limit.checked_sub(input + MARGIN).filter(|room| *room >= work.origin.least_output)
}
