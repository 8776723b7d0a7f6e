//! An answer in the making, whichever way its pieces come and go: what the model has said, and what its calls gave.

use std::sync::Arc;

use bytes::Bytes;

use super::super::Shard;
use super::super::aliases::{alias_row, offer_row};
use super::super::asides::Retold;
use super::super::identity::Names;
use super::super::offered::Offered;
use super::super::origin::Tools;
use super::super::overlay::row;
use super::super::reading::{Reading, Who};
use super::super::work::Work;
use super::enabled;
use crate::compact::binding::is_signed;
use crate::config::ToolScope;
use crate::store::{Batch, Overlay, OverlayKind, Tenant, ToolUse};
use crate::tools::execution::{Caller, Toolbox};
use crate::tools::sessions::View;
use crate::tools::shown::Shown;
use crate::wire::rounds::{Alias, Answer, Form, Own, OwnResult, Reach, Round};
use crate::wire::{self, Conversation, Dialect, Digest, Sight, chain};

/// What the model is told of calls at the end of a turn that may not go on.
const NOT_RUN: &str =
    "Error: not run, because this turn had too many such calls in a row. Call again if it is still needed.";
/// What the client is told where such a turn ends and the model has said nothing in it: an empty message is taken back by
/// few providers.
const NO_ANSWER: &str =
    "(No answer yet: this turn ended while the model was still looking things up. Ask it to go on.)";

/// An answer in the making.
pub(in super::super) struct Draft {
    pub(in super::super) shard: Arc<Shard>,
    pub(in super::super) dialect: Dialect,
    pub(in super::super) form: Form,
    pub(in super::super) offered: Arc<Offered>,
    toolbox: Toolbox,
    /// The client has no tools of its own.
    alone: bool,
    /// The history has blocks that are bound to the tools which come with it (A27).
    bound: bool,
    pub(in super::super) most_rounds: usize,
    /// Whose conversation it is, where the answer follows, and how long the body is at least.
    pub(in super::super) owner: (Tenant, Digest),
    place: (Digest, usize),
    /// The same in a history that its provider holds, should its client send all of it.
    retold: Option<Retold>,
    pub(in super::super) answer: Answer,
    results: Vec<Vec<OwnResult>>,
    /// What was hidden is no part of what the client has.
    pub(in super::super) forgotten: bool,
    /// Model calls so far.
    pub(in super::super) calls: usize,
}

impl Draft {
    /// `None`: the model cannot call the proxy's tools in the answer to this request.
    pub(in super::super) fn of(shard: &Arc<Shard>, work: &Work, form: Form) -> Option<Self> {
        let (offered, overlaid) = (work.offered()?, work.overlaid.as_ref()?);
        let settings = work.origin.strategies.tools.as_ref()?;
        let reading = shard.proxy.reading.as_ref()?;
        let ((caller, retold), enabled) = (caller(work, reading)?, enabled(&work.origin.strategies));
        let toolbox = Toolbox::new(Arc::clone(reading), caller, enabled, settings.page_chars);
        let own = match overlaid.alone {
            true => Own::alone(offered.names()),
            false => Own::beside(offered.names(), &overlaid.spaced),
        };
        if let Some(compactor) = &shard.proxy.compactor {
            compactor.told_of_tools(&work.origin, ToolUse::Taken);
        }
        Some(Self {
            shard: Arc::clone(shard),
            dialect: work.origin.dialect,
            form,
            offered: Arc::clone(offered),
            toolbox: toolbox.mirrored(work.origin.workspace.clone()).to(shown(work)),
            alone: overlaid.alone,
            bound: work.origin.read().is_ok_and(|conversation| is_signed(&conversation)),
            most_rounds: settings.max_rounds,
            owner: (work.origin.tenant, work.origin.root),
            place: (overlaid.tip, overlaid.least),
            retold,
            answer: Answer::with(work.origin.dialect, form, own),
            results: Vec::new(),
            forgotten: false,
            calls: 1,
        })
    }

    /// The model was told of more removed texts.
    pub(in super::super) fn show(&mut self, shown: Shown) {
        self.toolbox.show(shown);
    }

    /// The answer begins anew, without tools.
    pub(in super::super) fn forget(&mut self) {
        self.calls = self.most_rounds;
        self.forgotten = true;
        match self.form {
            // The client has the opening already.
            Form::Stream => self.answer.begin_anew(),
            Form::Json => self.answer = Answer::new(self.dialect, self.form, Arc::default()),
        }
    }

    /// Whether no further model call may follow.
    pub(in super::super) fn is_at_limit(&self) -> bool {
        self.calls >= self.most_rounds
    }

    /// Whether the request may go out once more without the proxy's tools.
    pub(super) fn may_begin_anew(&self) -> bool {
        !self.forgotten && !self.bound
    }

    /// How the proxy's tools come into the next model call. The last one has none of them to call, so that it brings an
    /// answer: a client's own stay, and where there are no others a history with calls needs them (P11).
    pub(in super::super) fn tools(&self) -> Tools {
        match self.is_at_limit() {
            false => Tools::Offered,
            true if self.alone => Tools::Uncalled,
            true => Tools::Without,
        }
    }

    pub(in super::super) fn count(&self, result: &'static str) {
        self.shard.proxy.metrics.round_ended(result);
    }

    /// Runs a round's calls, and gives their results as items.
    pub(in super::super) async fn run(&mut self, round: &Round) -> Bytes {
        let mut results = Vec::with_capacity(round.calls.len());
        for call in &round.calls {
            let name = self.offered.tool(&call.name).unwrap_or(&call.name);
            results.push(self.toolbox.call(name, &call.arguments).await);
        }
        let items = self.dialect.results(round, &results);
        self.results.push(results);
        items
    }

    /// The answer ends with `round`, whose calls are not run: the client sees none of them, and the model is told so
    /// when its turn comes again.
    pub(in super::super) fn refuse(&mut self, round: &Round, why: &'static str) {
        self.count(why);
        let result = OwnResult { text: NOT_RUN.to_owned(), failed: true };
        self.results.push(vec![result; round.calls.len()]);
    }

    /// The same for calls that were run, but with whose results nobody can be asked.
    pub(in super::super) fn take_back(&mut self, round: &Round) {
        self.results.pop();
        self.refuse(round, "no_room");
    }

    /// Where nothing was said in the turn that is over now, its client is told so.
    pub(super) fn break_silence(&mut self) {
        self.answer.break_silence(NO_ANSWER);
    }

    /// Where the provider has the answer, and the id by which its client knows it.
    pub(in super::super) fn alias(&self, reach: Reach) -> Option<(String, Alias)> {
        self.answer.alias(&self.results, reach)
    }

    /// Keeps what the client does not see of the answer, and which tools are offered.
    pub(in super::super) async fn keep(&self) {
        let Some(compactor) = &self.shard.proxy.compactor else { return };
        let (digest, least) = self.place;
        let aside = self.answer.aside(&self.results).filter(|_| !self.forgotten);
        let retold = self.retold.zip(aside.as_ref()).map(|(retold, aside)| retold.rows(aside, &self.offered));
        let retold: Vec<Overlay> = retold.into_iter().flatten().collect();
        let aside = aside.and_then(|aside| row(OverlayKind::Aside, digest, &aside, least));
        let alias = self.alias(Reach::Store);
        let shown = alias.as_ref().and_then(|(shown, _)| offer_row(shown, &self.offered));
        let mut rows: Vec<Overlay> = aside.into_iter().chain(alias.as_ref().and_then(alias_row)).collect();
        if rows.is_empty() {
            return self.keep_offer().await;
        }
        rows.extend(shown.into_iter().chain(self.offer()).chain(retold));
        compactor.keep_hidden(self.owner, rows).await;
    }

    /// Keeps which tools are offered, for those who continue this round's answer by its id. Nothing waits for the
    /// database: without this they have the tools no more.
    pub(in super::super) async fn keep_offer(&self) {
        let Some(compactor) = &self.shard.proxy.compactor else { return };
        if let Some(row) = self.offer() {
            let (tenant, root) = self.owner;
            let batch = Batch { root, overlays: vec![row], ..Batch::default() };
            compactor.store.keep(&tenant, batch).await;
        }
    }

    fn offer(&self) -> Option<Overlay> {
        self.answer.id(Reach::Store).and_then(|id| offer_row(&id, &self.offered))
    }
}

/// Who calls: this conversation, as far as it may see (L7). Where its provider holds a part of it that was seen, also
/// where it goes on as its client knows it.
fn caller(work: &Work, reading: &Reading) -> Option<(Caller, Option<Retold>)> {
    let origin = &work.origin;
    let sent = origin.read().ok()?;
    let body = unabridged(work, &sent);
    let memo = &origin.shard.proxy.compactor.as_ref()?.memo;
    let whole = body.as_ref().and_then(|whole| wire::read(origin.dialect, whole, memo, origin.tenant.0).ok());
    let named = |conversation: &Conversation<'_>| {
        let names = Names::of_headers(&origin.headers).with_body(conversation);
        let root = conversation.items.first()?.chain;
        Some(names.session(&reading.store, &origin.tenant, &root))
    };
    let retold = whole.as_ref().and_then(|whole| Retold::of(&named(whole)?, whole));
    // It is the conversation that it continues, as the log has it.
    let conversation = whole.filter(|_| origin.strategies.log).unwrap_or(sent);
    let session = named(&conversation)?;
    let chain: Vec<Digest> = conversation.chain().copied().collect();
    let scope = origin.strategies.tools.as_ref()?.scope;
    let view = View::of(scope, &session.agent, Some(session.id), Some(&*chain).filter(|_| !session.named));
    let view = view.map(|view| view.along(&chain));
    let (tenants, home, who) = (vec![origin.tenant], Some(origin.tenant), Who::Seen(origin.tenant));
    Some((Caller { tenants, home, who, agent: session.agent, view }, retold))
}

/// A request with the history that its provider holds, where all of it was seen.
fn unabridged(work: &Work, sent: &Conversation<'_>) -> Option<Bytes> {
    let origin = &work.origin;
    let previous = chain::previous(sent)?;
    let chains = &origin.shard.proxy.compactor.as_ref()?.chains;
    chain::unabridged(sent, &chains.history(origin.tenant, &previous)?)
}

/// The removed texts of which the model may know, as far as its tools are this conversation's alone (L7). Where the
/// provider holds a part of the history, nobody sees what that part names.
pub(super) fn shown(work: &Work) -> Shown {
    let origin = &work.origin;
    let scope = origin.strategies.tools.as_ref().map(|tools| tools.scope);
    let in_sight = |conversation: Conversation<'_>| {
        conversation.sight() == Sight::Whole && conversation.settled.is_empty() && conversation.superseded.is_empty()
    };
    if scope != Some(ToolScope::Session) || !origin.read().is_ok_and(in_sight) {
        return Shown::Any;
    }
    told(work)
}

/// The removed texts of which a request itself tells the model.
pub(in super::super) fn told(work: &Work) -> Shown {
    let origin = &work.origin;
    let whole = [origin.body.clone()];
    let pieces = work.pieces.as_deref().unwrap_or(&whole);
    origin.read().map_or(Shown::Any, |conversation| Shown::of(&conversation, pieces))
}
