//! Small bodies go out without being read: nothing can be due in them, and nothing of them was ever replaced.
//! Only an answer that is an error makes one worth a look.
//!
//! Why that is sound:
//! - No strategy that is in force for the request (by its model, path and headers, as [`Origin`](super::origin::Origin)
//!   has it) acts below [`floor_bytes`]: tokens and characters are never more than bytes (beside media, which are
//!   looked for).
//! - What was replaced stays replaced (L4): the store knows the fewest bytes to which any row may apply, also
//!   after a restart.
//! - What went whole stays whole (L5) although it is not remembered: it is below [`UNKNOWN_WINDOW_BYTES`] in all
//!   and below the limit of eviction in force. Only a lower limit, set later, could evict some of it, which
//!   would break the prompt cache once.
//! - What others may continue is recorded (Responses), which takes no more than the bytes of its input. That of a
//!   request which continues another is read.
//! - Who sent it is known already: a token that is only claimed is proved by an answer to a body that was read.
//! - An overflow is recovered (L6): the body is still here when the error comes. Only an error inside a success
//!   needs hold-back, and that begins where bytes and requested output could fill the window.

use http::request::Parts;
use http::{HeaderMap, Request};

use super::chains::{Beginning, MAX_SHOWN, Recorder, is_recorded};
use super::compaction::Compactor;
use super::headers::BodyHeaders;
use super::holding::Held;
use super::intake::Intake;
use super::look::{Seen, UNKNOWN_WINDOW_BYTES};
use super::observe::Watch;
use super::origin::{self, Incoming};
use super::outcome::Record;
use super::reply::Fault;
use super::tenant::{Identity, Proof};
use super::{Additions, Exchange, learning};
use crate::compact::budget::{Window, floor_bytes};
use crate::config::{Inject, Strategies, Subject};
use crate::store::WindowKey;
use crate::wire::{self, Glance, chain};

/// What becomes of a body.
pub(super) enum Passage {
    Read,
    /// It goes out unread; its response may be one to record.
    Unread(Option<Recorder>),
}

impl Compactor {
    /// Whether a body need not be read, by its size and what it says beside its conversation.
    pub(super) fn passage(&self, incoming: &Incoming<'_>, identity: &Identity) -> Passage {
        match self.unread(incoming, identity) {
            Some(recorder) => Passage::Unread(recorder),
            None => Passage::Read,
        }
    }

    /// `None`: it is to be read. Else the recorder of its response, where that is one to record.
    fn unread(&self, incoming: &Incoming<'_>, identity: &Identity) -> Option<Option<Recorder>> {
        let Incoming { shard, index, parts, dialect, chains, body, .. } = incoming;
        if identity.proof == Proof::Claimed || *chains == Beginning::Any {
            return None;
        }
        if body.len() >= UNKNOWN_WINDOW_BYTES || self.store.may_cover(body.len()) {
            return None;
        }
        let Glance { fields, media } = wire::glance(*dialect, body).ok()?;
        if media {
            return None;
        }
        let path = parts.uri.path();
        // Others may continue what is kept, and what is continued may be elsewhere.
        let recorded = is_recorded(incoming, fields.store);
        if fields.continues && (recorded || self.store.may_overlay()) {
            return None;
        }
        let config = &shard.proxy.config;
        let upstream = config.upstreams.get(*index).map_or("", |upstream| &upstream.name);
        let model = origin::model(&fields, path);
        let strategies = config.strategies(&Subject { model, upstream, path, headers: &parts.headers });
        if strategies.tools.as_ref().is_some_and(|tools| tools.inject == Inject::Always) {
            return None;
        }
        // It may be the beginning of a session.
        if strategies.memory.as_ref().is_some_and(|memory| memory.inject) && !strategies.observe {
            return None;
        }
        if strategies.memory.is_some() && !strategies.observe && self.memories.want(identity.tenant, &parts.headers) {
            return None;
        }
        let (tenant, betas) = (&identity.tenant, origin::betas(&parts.headers, &fields));
        let key = WindowKey { tenant, upstream, path, model, betas: &betas };
        let told = self.store.window(&key);
        let window = origin::window(config, &key, told);
        // A configured window may be larger than what the upstream has told.
        let told = told.and_then(|told| told.total);
        if body.len() >= floor(&strategies, (window, told), fields.most_output().unwrap_or(0)) {
            return None;
        }
        // A client that sends its whole history each time does not chain.
        if !recorded || !chain::begins(&fields, body, MAX_SHOWN)? {
            return Some(None);
        }
        Some(self.chains.record_first(identity.tenant, (&fields, body)))
    }
}

/// The least bytes of a body, asking for so much output, that may need more than to be passed on. `told`: input and
/// output together, as the upstream has told.
fn floor(strategies: &Strategies, (window, told): (Option<Window>, Option<u64>), output: u64) -> usize {
    let planned = floor_bytes(strategies, window);
    let limits = window.map(|window| window.input.min(window.total)).into_iter().chain(told);
    let Some(least) = limits.min().filter(|_| strategies.recovery) else { return planned };
    let overflowing = least.saturating_sub(output);
    planned.min(usize::try_from(overflowing).unwrap_or(usize::MAX))
}

impl Exchange<'_> {
    /// Shows an answer to its recorder and to the log alone.
    fn watching(&self, seen: Seen, headers: &HeaderMap) -> Option<Box<Watch>> {
        let Seen { recorder, ticket } = seen;
        let journal = self.shard.proxy.compactor.as_ref().and_then(|compactor| compactor.journal.as_ref());
        let listener = journal.zip(ticket).zip(self.dialect);
        let listener =
            listener.map(|((journal, ticket), dialect)| journal.listen(ticket, dialect, &self.shard.proxy.budget));
        if recorder.is_none() && listener.is_none() {
            return None;
        }
        Some(Watch::new(headers, |_, _| {})?.recorded_by(recorder).heard_by(listener))
    }

    /// Sends a body as it came. Should the answer be an error, the body is looked at after all.
    pub(super) async fn unread(
        &self,
        parts: &Parts,
        intake: &Intake,
        (seen, record): (Seen, &mut Record),
    ) -> Result<(Held, Additions), Fault> {
        let request = Request::from_parts(parts.clone(), intake.original());
        let answer = self.attempt(request, BodyHeaders::TakenIn).await?;
        if answer.status().is_success() {
            let watch = self.watching(seen, answer.headers());
            return Ok((Held::untouched(answer), Additions { watch, ..Additions::default() }));
        }
        Box::pin(async {
            let looked = match (&self.shard.proxy.compactor, self.incoming(parts, intake)) {
                (Some(compactor), Some(incoming)) => compactor.look_back(incoming).await,
                _ => None,
            };
            let Some(mut work) = looked.map(Box::new) else {
                return Ok((Held::untouched(answer), Additions::default()));
            };
            let held = self.settle((parts, intake), &mut work, answer).await;
            record.compacted(&work);
            let notes = work.notes();
            let watch = learning::of_last_call(self.shard, work, (held.answer.status(), held.answer.headers()));
            Ok((held, Additions { notes, watch, rounds: None }))
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn the_floor_follows_window_and_output() {
        let config =
            Config::parse("[tool_result_eviction]\n[truncate_args]\n[prune]\n[compaction]", &|_| None).unwrap();
        let window = |tokens| Some(Window { input: tokens, total: tokens });
        let floor_told = |window, told, output| floor(&config.strategies, (window, told), output);
        let floor = |window, output| floor_told(window, None, output);
        assert!(floor(None, 0) > 4_000 && floor(window(128_000), 0) > 4_000);
        assert!(floor(window(4_096), 0) < 2_000, "a small window is soon full");
        assert_eq!(floor(window(128_000), 127_000), 1_000, "where output and bytes could fill it");
        assert_eq!(floor(window(128_000), 200_000), 0);
        assert!(floor(None, u64::MAX) > 4_000, "an error is looked back from");
        assert_eq!(floor_told(window(128_000), Some(8_192), 8_000), 192, "the upstream has told less");
        assert_eq!(floor_told(window(8_192), Some(128_000), 8_000), 192);
    }
}
