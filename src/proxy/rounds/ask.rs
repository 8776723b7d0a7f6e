//! The model calls behind the first one. Each is a request for itself: planned, mended, learned from.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderValue, TRAILER};
use http::request::Parts;

use super::super::body::Framing;
use super::super::budget::Permit;
use super::super::chains::Recorder;
use super::super::headers::BodyHeaders;
use super::super::holding::Held;
use super::super::intake::Intake;
use super::super::origin::Tools;
use super::super::outcome::Outcome;
use super::super::reply::Fault;
use super::super::{Exchange, learning};
use super::call::Call;
use super::draft::shown;
use super::{End, Rounds};
use crate::compact::binding::is_signed;
use crate::tools::shown::Shown;
use crate::wire::chain;
use crate::wire::rounds::Reach;
use crate::wire::splice::splice;

impl Rounds {
    /// The next model call's body: the client's with the rounds behind it, the last of which ends with `said`. `None`:
    /// there is no room for it.
    pub(super) async fn continued(&mut self, said: Bytes) -> Option<Intake> {
        let compactor = self.shard.proxy.compactor.as_ref()?;
        // Others may continue the answer that follows: what they continue begins before this round.
        let (chains, id) = (&compactor.chains, self.draft.answer.id(Reach::Store));
        self.recorder = id.clone().and_then(|id| chains.record_behind(self.draft.owner.0, id, said.clone()));
        let client = self.client.as_ref()?.body.clone();
        let mut permit = Permit::empty(&self.shard.proxy.budget);
        if !self.share.resize(self.held()) || !permit.grow(client.len() + self.added.len()) {
            return None;
        }
        let conversation = compactor.read(self.draft.dialect, &client, self.draft.owner.0).await?;
        // Who continues an answer by its id has the next round continue this one.
        let id = id.filter(|_| chain::previous(&conversation).is_some());
        let edits = match id.and_then(|id| conversation.behind(&id, &said)) {
            Some(edits) => edits,
            None => vec![conversation.appended(self.added.get(1..)?)?],
        };
        let body = splice(&client, edits).ok()?.concat().into();
        Some(Intake { body, framing: Framing::Length, trailers: None, permit: Arc::new(permit) })
    }

    /// The next model call.
    pub(super) async fn ask_on(&mut self, intake: Intake) -> Result<Call, End> {
        self.draft.calls += 1;
        let mut parts = self.parts.clone();
        for name in [CONTENT_ENCODING, TRAILER] {
            parts.headers.remove(name);
        }
        parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(intake.body.len()));
        let (tools, recorder) = (self.tools(&intake.body).await, self.recorder.take());
        let (call, shown) = self.ask((&parts, &intake), tools, recorder).await?;
        self.draft.show(shown);
        Ok(call)
    }

    /// How the proxy's tools come into the next model call, with this body. Signed blocks are bound to the tools that were
    /// there (A27): where there are some the tools stay as they are.
    async fn tools(&self, body: &Bytes) -> Tools {
        let tools = self.draft.tools();
        let Some(compactor) = self.shard.proxy.compactor.as_ref().filter(|_| tools == Tools::Without) else {
            return tools;
        };
        match compactor.read(self.draft.dialect, body, self.draft.owner.0).await {
            Some(conversation) if is_signed(&conversation) => Tools::Offered,
            _ => tools,
        }
    }

    /// The client's own body once more, without tools: nothing of the rounds so far was shown.
    pub(super) async fn ask_anew(&mut self) -> Result<Call, End> {
        self.draft.forget();
        let none = || End::Fault(Fault::new(Outcome::AnswerBroken, "the client's request is gone"));
        let intake = self.intake.take().ok_or_else(none)?;
        let (call, _) = self.ask((&self.parts, &intake), Tools::Without, None).await?;
        Ok(call)
    }

    /// One model call, and the removed texts of which it told the model.
    async fn ask(
        &self,
        (parts, intake): (&Parts, &Intake),
        tools: Tools,
        recorder: Option<Recorder>,
    ) -> Result<(Call, Shown), End> {
        let fault = || End::Fault(Fault::new(Outcome::ConnectFailed, "there is no upstream for this request"));
        let (route, clients) = self.shard.upstream(self.index).ok_or_else(fault)?;
        let dialect = Some(self.draft.dialect);
        let exchange = Exchange { shard: &self.shard, index: self.index, route, clients, dialect };
        let Some(mut work) = exchange.work_again(parts, intake, tools).await else {
            let request = http::Request::from_parts(parts.clone(), intake.original());
            let answer = exchange.attempt(request, BodyHeaders::TakenIn).await.map_err(End::Fault)?;
            return Ok((Call { held: Held::untouched(answer), watch: None }, Shown::default()));
        };
        work.recorder = recorder.or(work.recorder.take());
        let held = exchange.attempts(parts, intake, &mut work).await.map_err(End::Fault)?;
        let watch = learning::of_call(&self.shard, &mut work, (held.answer.status(), held.answer.headers()));
        let shown = if work.offered().is_some() { shown(&work) } else { Shown::default() };
        Ok((Call { held, watch }, shown))
    }
}
