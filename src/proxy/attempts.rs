//! At most two upstream attempts per model call (L6): the first as planned, the second only while
//! nothing was sent to the client and only for a reason that can be mended.

use http::header::RETRY_AFTER;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;

use super::Exchange;
use super::compaction::Compactor;
use super::hold::{ERROR_BYTES, Sent, Step};
use super::holding::{Held, hold};
use super::intake::Intake;
use super::legible::Legible;
use super::origin::Tools;
use super::refused_tools::{Cause, Suspicion, has_failed};
use super::reply::Fault;
use super::second::{Attempt, Blames, Next, Refusal, next};
use super::tenant::Proof;
use super::work::Work;
use crate::store::ToolUse;
use crate::telemetry::metrics::FailOpen;
use crate::wire::overflow::Verdict;
use crate::wire::{Digest, Errand, refusal};

/// What both attempts are made of.
struct Call<'c> {
    compactor: &'c Compactor,
    parts: &'c Parts,
    intake: &'c Intake,
}

impl Exchange<'_> {
    /// The first attempt, and a second one where the first was refused for a reason that can be mended.
    pub(super) async fn attempts(&self, parts: &Parts, intake: &Intake, work: &mut Work) -> Result<Held, Fault> {
        let answer = self.send(parts, intake, work).await?;
        Ok(self.settle((parts, intake), work, answer).await)
    }

    /// What follows from the answer to the first attempt.
    pub(super) async fn settle(
        &self,
        (parts, intake): (&Parts, &Intake),
        work: &mut Work,
        answer: Response<Incoming>,
    ) -> Held {
        let (step, first) = self.judge(work, answer).await;
        let Some(compactor) = self.shard.proxy.compactor.as_ref() else { return first };
        let call = Call { compactor, parts, intake };
        let follows = next(Attempt::First, refusal(work, step, &first));
        let mended = matches!(follows, Next::Shorten(_));
        if work.lacks_rows && !mended && is_refusal(first.answer.status()) && speaks_of_thinking(&first) {
            let incoming = self.incoming(parts, intake);
            if let Some(incoming) = incoming
                && let Some(again) = Box::pin(compactor.with_rows(incoming)).await
            {
                return self.with_rows(&call, (work, again), first).await;
            }
        }
        let is_told = !matches!(step, Step::Hold | Step::Release);
        match follows {
            Next::Shorten(verdict) if is_told => self.compacted(&call, work, verdict, first).await,
            Next::WithoutTools if is_told => self.without_tools(&call, work, (first, Cause::Told)).await,
            Next::Original if is_told => self.original(&call, work, first).await,
            _ if compactor.may_suspect_tools(work, &first.answer) => {
                self.without_tools(&call, work, (first, Cause::Suspected)).await
            }
            _ => first,
        }
    }

    /// After an overflow: a shorter body. If that fails as well, the first error stands, unless the second
    /// one says nothing of the request.
    async fn compacted(&self, call: &Call<'_>, work: &mut Work, verdict: Verdict, first: Held) -> Held {
        let before = (work.pieces.clone(), work.actions, work.tokens);
        let planned = work.activated.take();
        let second = match call.compactor.recover(work, verdict).await {
            true => {
                work.tried_twice = true;
                Some(self.try_once(call.parts, call.intake, work).await)
            }
            false => None,
        };
        let (result, second) = match second {
            None => ("hopeless", None),
            Some(Ok((Step::Hold | Step::Release, held))) if held.answer.status().is_success() => {
                ("recovered", Some(held))
            }
            Some(Ok((step, held))) => match next(Attempt::Shorter, refusal(work, step, &held)) {
                Next::FirstRefusal { condemned } => {
                    // What the provider does not take is not to be in force at the next turn.
                    let tools = condemned && work.begun.is_some() && call.compactor.give_up_overlay(work);
                    if condemned && !tools && work.activated.is_some() {
                        call.compactor.quarantine(work);
                    }
                    if work.sent() == Sent::Offering && refuses_tools(&held) {
                        call.compactor.told_of_tools(&work.origin, ToolUse::Refused);
                    }
                    if matches!(step, Step::Rejected(_)) && speaks_of_thinking(&held) {
                        call.compactor.bindings.refused(&work.origin);
                    }
                    ("failed", None)
                }
                _ => ("refused", Some(held)),
            },
            Some(Err(_)) => ("failed", None),
        };
        work.activated = work.activated.or(planned);
        self.shard.proxy.metrics.recovery_ended(result);
        second.unwrap_or_else(|| {
            (work.pieces, work.actions, work.tokens) = before;
            first
        })
    }

    /// After a refusal of a body for what its thinking is bound to: the body as the model saw it.
    async fn with_rows(&self, call: &Call<'_>, (work, again): (&mut Work, Work), first: Held) -> Held {
        match self.try_once(call.parts, call.intake, &again).await {
            Ok((Step::Hold | Step::Release, held)) if held.answer.status().is_success() => {
                // Its success is the proof. What was new in it and went whole is bound as well.
                if let Ok(conversation) = again.origin.read() {
                    let chain: Vec<Digest> = conversation.chain().copied().collect();
                    call.compactor.remember_whole(&again.origin.tenant, (&conversation, &chain), &again.known);
                }
                let before = std::mem::replace(work, again);
                (work.recorder, work.ticket, work.tried_twice) = (before.recorder, before.ticket, true);
                held
            }
            // It says nothing of the request. But who has no more than a claim sees nothing of what was read for it.
            Ok((Step::Hold | Step::Release | Step::Recover(_), held))
                if work.origin.proof == Proof::Known && matches!(held.answer.status().as_u16(), 429 | 500..) =>
            {
                held
            }
            _ => first,
        }
    }

    /// After an error that is, or may be, a refusal of tools: the same body without the proxy's. If that is taken this
    /// model gets none any more.
    async fn without_tools(&self, call: &Call<'_>, work: &mut Work, (first, cause): (Held, Cause)) -> Held {
        let again = Box::pin(self.work_again(call.parts, call.intake, Tools::Without)).await;
        let Some(mut again) = again else { return self.original(call, work, first).await };
        work.tried_twice = true;
        let Ok((step, held)) = self.try_once(call.parts, call.intake, &again).await else { return first };
        let status = held.answer.status();
        let is_taken = status.is_success() && matches!(step, Step::Hold | Step::Release);
        // What is too long has been read without complaint of anything else.
        let is_long = matches!(step, Step::Recover(_));
        if let Step::Recover(verdict) = step {
            call.compactor.taught(&mut again, verdict).await;
        }
        if is_taken {
            self.shard.proxy.metrics.failed_open(FailOpen::Tools);
        }
        match cause {
            Cause::Told if is_taken || is_long => call.compactor.told_of_tools(&work.origin, ToolUse::Refused),
            // Refused without tools as well: so it was not for them, or not for them alone.
            Cause::Told if is_refusal(status) => drop(call.compactor.give_up_overlay(work)),
            Cause::Told => {}
            Cause::Suspected if is_taken => call.compactor.suspected(&work.origin, Suspicion::Upheld),
            Cause::Suspected if !is_long && has_failed(&held.answer) => {
                call.compactor.suspected(&work.origin, Suspicion::Cleared);
            }
            // It says nothing of tools: the question stays open.
            Cause::Suspected => {}
        }
        // A client that has no tools is not told that none are taken. Otherwise the first error is about its own body as
        // much as one of a body that is still rewritten.
        let is_of_ours = cause == Cause::Told && work.is_alone();
        let says_nothing = matches!(status.as_u16(), 429 | 500..);
        if !(is_taken || is_long || is_of_ours || says_nothing || !again.is_rewritten()) {
            return first;
        }
        if again.pieces.is_some() {
            (again.actions, again.tokens, again.activated) = (work.actions, work.tokens, work.activated);
        }
        again.tried_twice = true;
        *work = *again;
        held
    }

    /// After a refusal of a rewritten body: the client's own.
    async fn original(&self, call: &Call<'_>, work: &mut Work, first: Held) -> Held {
        tracing::warn!(
            status = first.answer.status().as_u16(),
            upstream = self.route.upstream.name,
            "a rewritten body was refused: the original goes out"
        );
        let before = (work.pieces.clone(), work.actions, work.tokens);
        work.send_original();
        match self.try_once(call.parts, call.intake, work).await {
            Ok((step, held)) => {
                let accepted = held.answer.status().is_success() && matches!(step, Step::Hold | Step::Release);
                let generates = work.origin.errand == Errand::Generate;
                // Too long, or refused for anything else, the client's own body says nothing for the rewritten one.
                let bound = generates && speaks_of_thinking(&first) && (accepted || !speaks_of_thinking(&held));
                if bound {
                    call.compactor.bindings.refused(&work.origin);
                }
                if accepted {
                    self.shard.proxy.metrics.failed_open(FailOpen::Refused);
                }
                // A refused count, or a provider's own compaction, says nothing of the session's turns.
                if accepted && generates {
                    // Should the checkpoint be to blame after all, the next refusal says so.
                    if !call.compactor.give_up_overlay(work) {
                        call.compactor.quarantine(work);
                    }
                } else if bound && work.known.active.is_some() {
                    // The thinking behind it is bound to what it replaced, at the next turn as well: it would stand in
                    // the way of the full fold.
                    call.compactor.quarantine(work);
                }
                held
            }
            Err(_) => {
                (work.pieces, work.actions, work.tokens) = before;
                first
            }
        }
    }

    pub(super) async fn try_once(&self, parts: &Parts, intake: &Intake, work: &Work) -> Result<(Step, Held), Fault> {
        let answer = self.send(parts, intake, work).await?;
        Ok(self.judge(work, answer).await)
    }

    /// Sends the body that `work` has now.
    async fn send(&self, parts: &Parts, intake: &Intake, work: &Work) -> Result<Response<Incoming>, Fault> {
        let request = Request::from_parts(work.head(parts), work.body(intake));
        self.attempt(request, work.body_headers()).await
    }

    /// Holds an answer back as far as that may end in another attempt: an error always, a success only where
    /// the prompt could be too long.
    async fn judge(&self, work: &Work, answer: Response<Incoming>) -> (Step, Held) {
        let status = answer.status();
        let held = work.may_overflow || work.mends() && !status.is_success();
        match held || may_be_refused(work, status) || work.lacks_rows && is_refusal(status) {
            true => {
                // Who says when to come back refuses nothing for good.
                let offering = work.sent() == Sent::Offering && answer.headers().contains_key(RETRY_AFTER);
                let sent = if offering { Sent::Rewritten } else { work.sent() };
                hold(answer, sent, self.shard.proxy.hold_time).await
            }
            false => (Step::Release, Held::untouched(answer)),
        }
    }
}

/// An answer that was held back to its end, as the rule of the two attempts takes it.
fn refusal(work: &Work, step: Step, held: &Held) -> Refusal {
    let status = held.answer.status().as_u16();
    let (verdict, status, blames) = match step {
        Step::Recover(verdict) => (verdict, status, Blames::Nothing),
        // Inside a success it is the error that names the status.
        Step::Rejected(status) if refuses_tools(held) => (Verdict::Other, status, Blames::Tools),
        Step::Rejected(status @ (400 | 422)) => (Verdict::Other, status, Blames::Nothing),
        Step::Rejected(status) => (Verdict::Other, status, Blames::Form),
        Step::Hold | Step::Release => (Verdict::Other, status, Blames::Nothing),
    };
    Refusal { verdict, status: Some(status), sent: work.sent(), blames, overflow: work.overflow() }
}

/// Whether a status says that the request itself is at fault.
fn is_refusal(status: StatusCode) -> bool {
    matches!(status.as_u16(), 400 | 422)
}

/// Whether an answer may be the refusal of a rewritten body: some say so inside a success, and of tools under any status.
fn may_be_refused(work: &Work, status: StatusCode) -> bool {
    match work.sent() {
        Sent::Original => false,
        Sent::Rewritten => matches!(status.as_u16(), 200 | 400 | 422 | 500),
        Sent::Offering => matches!(status.as_u16(), 200 | 400..),
    }
}

/// Whether a refusal is about signed thinking (A10, A27).
fn speaks_of_thinking(refusal: &Held) -> bool {
    says(refusal, |text| memchr::memmem::find(text, b"thinking").is_some())
}

/// Whether a refusal says that no tools are taken.
fn refuses_tools(refusal: &Held) -> bool {
    let (status, head) = (refusal.answer.status(), refusal.answer.headers());
    let status = (!status.is_success()).then_some(status.as_u16());
    !head.contains_key(RETRY_AFTER) && says(refusal, |text| refusal::refuses_tools(status, text))
}

/// Whether the text of a refusal is one of these.
fn says(refusal: &Held, what: impl FnOnce(&[u8]) -> bool) -> bool {
    let Some(mut legible) = Legible::of(refusal.answer.headers(), ERROR_BYTES) else { return false };
    let mut text = Vec::new();
    for piece in &refusal.pieces {
        legible.feed(piece, |read| text.extend_from_slice(read));
    }
    what(&text)
}
