//! Where no tools may come: conversations whose provider refused a body with what the proxy added, and models that take no
//! tools at all, or seem to.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::Response;
use http::header::RETRY_AFTER;

use super::compaction::Compactor;
use super::hold::Sent;
use super::origin::{Incoming, Origin, model};
use super::tenant::Identity;
use super::work::Work;
use crate::store::{Tenant, ToolUse, ToolUseKey};
use crate::wire::{Conversation, Dialect, Digest};

/// Most conversations that are remembered as refused with tools, and most suspicions; beyond it all are forgotten.
const MOST_REFUSED: usize = 1_024;
/// How long a suspicion counts: an error in unknown words may have been one of the moment.
const SUSPECTED: Duration = Duration::from_secs(3_600);

/// Conversations whose provider refused a body with the proxy's tools. Lost at a restart, which costs one more refusal.
#[derive(Debug, Default)]
pub struct Refused(Mutex<HashSet<(Tenant, Digest)>>);

impl Refused {
    pub(super) fn note(&self, conversation: (Tenant, Digest)) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_REFUSED {
            known.clear();
        }
        known.insert(conversation);
    }

    pub(super) fn has(&self, conversation: (Tenant, Digest)) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&conversation)
    }
}

/// Models that may take no tools although they did not say so: what came of errors in words that nobody knows. Lost at a
/// restart, which costs one more attempt.
#[derive(Debug, Default)]
pub struct Suspicions(Mutex<HashMap<Taker, (Instant, Suspicion)>>);

/// What came of the same request without tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Suspicion {
    /// It was answered.
    Upheld,
    /// It failed as well, in the same way.
    Cleared,
}

/// Why tools are left out of a second attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The provider said that it takes none.
    Told,
    Suspected,
}

/// A model as it is asked: whose requests, at which upstream, in which dialect.
type Taker = (Tenant, Arc<str>, Dialect, Arc<str>);

impl Suspicions {
    fn note(&self, taker: Taker, what: Suspicion, now: Instant) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_REFUSED {
            known.clear();
        }
        known.insert(taker, (now, what));
    }

    fn of(&self, key: &ToolUseKey<'_>, now: Instant) -> Option<Suspicion> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_empty() {
            return None;
        }
        let taker = (*key.tenant, Arc::from(key.upstream), key.dialect, Arc::from(key.model));
        known.get(&taker).filter(|(noted, _)| now.duration_since(*noted) < SUSPECTED).map(|(_, what)| *what)
    }
}

impl Compactor {
    /// Whether a request's model takes no tools, as far as is known.
    pub(super) fn takes_no_tools(
        &self,
        incoming: &Incoming<'_>,
        identity: &Identity,
        conversation: &Conversation<'_>,
    ) -> bool {
        let upstream = incoming.shard.proxy.config.upstreams.get(incoming.index).map_or("", |upstream| &upstream.name);
        let model = model(&conversation.fields, incoming.parts.uri.path());
        let key = ToolUseKey { tenant: &identity.tenant, upstream, dialect: conversation.dialect, model };
        let suspected = || self.suspicions.of(&key, Instant::now()) == Some(Suspicion::Upheld);
        match self.store.tool_use(&key) {
            Some(told) => told == ToolUse::Refused,
            None => suspected(),
        }
    }

    /// A request's model has told whether it takes tools.
    pub(super) fn told_of_tools(&self, origin: &Origin, told: ToolUse) {
        self.store.learn_tool_use(&key(origin), told);
    }

    /// What came of a request without the tools that its server was suspected to have failed for.
    pub(super) fn suspected(&self, origin: &Origin, what: Suspicion) {
        let (upstream, model) = (Arc::clone(&origin.upstream), Arc::clone(&origin.model));
        self.suspicions.note((origin.tenant, upstream, origin.dialect, model), what, Instant::now());
    }

    /// Whether an answer may be a refusal of tools although it does not say so: the server failed at a request with tools
    /// of the proxy's alone, and nothing is known of how it takes any.
    pub(super) fn may_suspect_tools<B>(&self, work: &Work, answer: &Response<B>) -> bool {
        let suspect = has_failed(answer) && work.is_alone() && work.sent() == Sent::Offering;
        let key = key(&work.origin);
        suspect && self.store.tool_use(&key).is_none() && self.suspicions.of(&key, Instant::now()).is_none()
    }

    /// Before a second attempt, behind which there is no third: leaves tools out of which nobody knows whether the model
    /// takes them, so that one attempt mends their refusal as well. Those whose calls are in the history stay.
    pub(super) fn leave_untried(&self, work: &mut Work) {
        if !work.is_alone() || self.store.tool_use(&key(&work.origin)) == Some(ToolUse::Taken) {
            return;
        }
        let Some(overlaid) = work.overlaid.as_mut() else { return };
        let begins = overlaid.candidate.take().is_some() | work.begun.take().is_some();
        let offered = overlaid.offered.take_if(|_| !overlaid.puts_back).is_some();
        if !begins && !offered {
            return;
        }
        let origin = Arc::make_mut(&mut work.origin);
        origin.readers.evicted = None;
        if offered {
            origin.overlaid = work.original.is_some();
            origin.body = work.original.as_ref().unwrap_or(&overlaid.client).clone();
        }
    }
}

/// Whether a server has failed at a request. Who is busy, or late, says nothing of it.
pub(super) fn has_failed<B>(answer: &Response<B>) -> bool {
    matches!(answer.status().as_u16(), 500..=502) && !answer.headers().contains_key(RETRY_AFTER)
}

fn key(origin: &Origin) -> ToolUseKey<'_> {
    let Origin { tenant, upstream, dialect, model, .. } = origin;
    ToolUseKey { tenant, upstream, dialect: *dialect, model }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspicion_is_of_one_model_and_does_not_last() {
        let (suspicions, now, tenant) = (Suspicions::default(), Instant::now(), Tenant([1; 16]));
        let key = ToolUseKey { tenant: &tenant, upstream: "u", dialect: Dialect::Chat, model: "m" };
        assert_eq!(suspicions.of(&key, now), None);
        suspicions.note((tenant, "u".into(), Dialect::Chat, "m".into()), Suspicion::Upheld, now);
        let later = |part: Duration| now + SUSPECTED - part;
        assert_eq!(suspicions.of(&key, later(Duration::from_secs(1))), Some(Suspicion::Upheld));
        assert_eq!(suspicions.of(&key, later(Duration::ZERO)), None);
        assert_eq!(suspicions.of(&ToolUseKey { dialect: Dialect::Messages, ..key }, now), None);
        assert_eq!(suspicions.of(&ToolUseKey { model: "n", ..key }, now), None);
        for n in 0..MOST_REFUSED {
            suspicions.note((tenant, "u".into(), Dialect::Chat, n.to_string().into()), Suspicion::Cleared, now);
        }
        assert_eq!(suspicions.of(&key, now), None, "bounded");
    }
}
