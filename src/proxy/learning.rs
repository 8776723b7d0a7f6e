//! What answers that pass teach: the estimate's calibration, whether the prompt cache is warm, windows.

use std::sync::Arc;
use std::time::Instant;

use http::{HeaderMap, StatusCode, Uri};
use serde_json::Value;

use super::Shard;
use super::foresight::Foresight;
use super::hold;
use super::limits::Place;
use super::observe::{Ending, Tail, Watch};
use super::origin::Origin;
use super::tenant::{self, Asker, Proof};
use super::work::Work;
use crate::store::{LearnedWindow, Tenant, WindowKey};
use crate::wire::usage::{self, Observed, Usage};
use crate::wire::{Dialect, Sight};

/// Smallest and largest window that is believed, in tokens.
const TEACHABLE: std::ops::RangeInclusive<u64> = 1_024..=20_000_000;

/// The observer of an answer to a model call, if there is something to learn from it.
pub fn of_call(shard: &Arc<Shard>, work: &mut Work, answer: (StatusCode, &HeaderMap)) -> Option<Box<Watch>> {
    let (status, headers) = answer;
    let (shard, origin) = (Arc::clone(shard), Arc::clone(&work.origin));
    let compactor = shard.proxy.compactor.as_ref()?;
    compactor.breaker.observe(origin.tenant, &origin.upstream, (status.as_u16(), headers), Instant::now());
    if !status.is_success() {
        return None;
    }
    if let Some(mark) = origin.mark {
        compactor.verified.accept(mark);
    }
    // Where the provider holds a part of the history, its count is of more than was estimated.
    let counted_whole = work.tokens.filter(|_| origin.sight == Sight::Whole);
    let estimated = counted_whole.map(|tokens| tokens.after as f64 / origin.calibration);
    // Not the origin itself: it holds the request's body, and an answer may take minutes.
    let (tenant, root) = (origin.tenant, origin.root);
    let observed = if origin.stream { in_events } else { in_body };
    let (counted, proof, place) = (Counted::by(&origin), origin.proof, Place::of(&origin));
    let dialect = origin.dialect;
    // An error that recovery has seen has taught already, and is not told twice by being relayed.
    let teaches = work.recovers() && !work.taught;
    let least = origin.budget.window.map_or(0, |window| window.total / 2);
    drop(origin);
    let (recorder, ticket) = (work.recorder.take(), work.ticket.take());
    let listening = ticket.zip(compactor.journal.as_ref());
    let listener = listening.map(|(ticket, journal)| journal.listen(ticket, dialect, &shard.proxy.budget));
    let watch = Watch::new(headers, move |ending, tail| {
        let Some(compactor) = shard.proxy.compactor.as_ref() else { return };
        let observed = observed(&tail);
        // Whoever got an error may close at once.
        if observed.usage.is_none() && teaches {
            compactor.learn_limit(&place, &hold::ended_in(&tail.bytes(), tail.shown()));
        }
        let (Ending::Complete, Some(usage)) = (ending, observed.usage) else { return };
        shard.proxy.metrics.cached(usage.cached_tokens);
        compactor.sessions.cached(tenant, root, usage.cached_tokens);
        if proof != Proof::Known {
            return;
        }
        if let Some(estimated) = estimated {
            compactor.calibrate(&counted, estimated.round() as u64, usage.prompt_tokens);
        }
        // One sample never halves what is known.
        let believed = |window: &LearnedWindow| window.total.is_none_or(|total| total >= least);
        if let Some(window) = filled(&observed, usage).filter(believed) {
            compactor.store.learn_window(&place.key(), window);
        }
    })?;
    Some(watch.recorded_by(recorder).heard_by(listener))
}

/// The same where the request is done with, with what recovery would have made of it where it is only observed.
pub fn of_last_call(
    shard: &Arc<Shard>,
    mut work: Box<Work>,
    (status, headers): (StatusCode, &HeaderMap),
) -> Option<Box<Watch>> {
    let watch = of_call(shard, &mut work, (status, headers));
    let Some(foresight) = Foresight::of(work, status) else { return watch };
    let watch = watch.or_else(|| Watch::new(headers, |_, _| {}));
    Some(watch?.foreseen_by(Some(foresight)))
}

/// Whose estimates a count of the provider's corrects.
pub struct Counted {
    pub tenant: Tenant,
    pub upstream: Arc<str>,
    pub model: Arc<str>,
    /// The factor that the estimate was made with.
    pub calibration: f64,
}

impl Counted {
    pub fn by(origin: &Origin) -> Self {
        let (upstream, model) = (Arc::clone(&origin.upstream), Arc::clone(&origin.model));
        Self { tenant: origin.tenant, upstream, model, calibration: origin.calibration }
    }
}

/// The window that an answer has filled to its end, if it ended for that.
fn filled(observed: &Observed, usage: Usage) -> Option<LearnedWindow> {
    let full = observed.finish_reason.as_deref() == Some("model_context_window_exceeded");
    let total = usage.prompt_tokens.saturating_add(usage.completion_tokens);
    (full && TEACHABLE.contains(&total)).then_some(LearnedWindow { input: None, total: Some(total) })
}

/// What a stream says at its end.
fn in_events(tail: &Tail) -> Observed {
    usage::from_stream_tail(&tail.bytes(), tail.shown())
}

/// What an answer says that was not asked for as a stream; on a socket it comes in events all the same.
fn in_body(tail: &Tail) -> Observed {
    let whole = tail.is_whole().then(|| usage::from_body(&tail.bytes()));
    whole.filter(|observed| observed.usage.is_some()).unwrap_or_else(|| in_events(tail))
}

/// The observer of a model list: local servers tell their windows there.
pub fn of_models(
    shard: &Arc<Shard>,
    index: usize,
    asked: (&Uri, &HeaderMap),
    headers: &HeaderMap,
) -> Option<Box<Watch>> {
    let (uri, request) = asked;
    let shard = Arc::clone(shard);
    let compactor = shard.proxy.compactor.as_ref()?;
    let upstream = shard.proxy.config.upstreams.get(index)?.name.clone();
    let asker = Asker { upstream: &upstream, headers: request, uri };
    let identity = tenant::identify(&compactor.store, &compactor.tenant_rule, &compactor.verified, &asker);
    // Some providers list their models to anybody: such an answer is no proof either.
    let tenant = Some(identity.tenant).filter(|_| identity.proof == Proof::Known)?;
    let base = uri.path().split("/models").next()?.to_owned();
    Watch::new(headers, move |ending, tail| {
        if ending != Ending::Complete || !tail.is_whole() {
            return;
        }
        let Some(compactor) = shard.proxy.compactor.as_ref() else { return };
        for (model, window) in windows(&tail.bytes()) {
            for dialect in [Dialect::Chat, Dialect::Responses, Dialect::Messages] {
                let path = format!("{base}{}", dialect.path());
                let key = WindowKey { tenant: &tenant, upstream: &upstream, path: &path, model: &model, betas: "" };
                // A list says what the model could have, an error what this server has given it.
                let told = compactor.store.window(&key).unwrap_or_default();
                compactor.store.learn_window(&key, told.narrowed(window));
            }
        }
    })
}

/// Whether a path asks for models: `…/models`, `…/models/NAME`.
pub fn asks_for_models(path: &str) -> bool {
    path.ends_with("/models") || path.contains("/models/") && !path.ends_with(':')
}

/// Models and their windows, from `max_model_len` (vLLM), `context_length` (OpenRouter and others),
/// `meta.n_ctx` (llama.cpp).
fn windows(body: &[u8]) -> Vec<(String, LearnedWindow)> {
    let Ok(value) = serde_json::from_slice::<Value>(body) else { return Vec::new() };
    let listed = value.get("data").or_else(|| value.get("models")).and_then(Value::as_array);
    let models: Vec<&Value> = listed.map_or_else(|| vec![&value], |models| models.iter().collect());
    models.into_iter().filter_map(window).collect()
}

fn window(model: &Value) -> Option<(String, LearnedWindow)> {
    let name = model.get("id").or_else(|| model.get("name"))?.as_str()?;
    let places = ["/max_model_len", "/context_length", "/meta/n_ctx", "/n_ctx", "/max_context_length"];
    let total = places.iter().find_map(|place| model.pointer(place)?.as_u64())?;
    TEACHABLE.contains(&total).then(|| (name.to_owned(), LearnedWindow { input: None, total: Some(total) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_read_in_the_forms_of_local_servers() {
        let read =
            |text: &str| windows(text.as_bytes()).into_iter().map(|(name, w)| (name, w.total)).collect::<Vec<_>>();
        let list = r#"{"data":[{"id":"a","max_model_len":32768},{"id":"b"},{"id":"c","meta":{"n_ctx":8192}},{"id":"d","context_length":1}]}"#;
        assert_eq!(read(list), [("a".to_owned(), Some(32768)), ("c".to_owned(), Some(8192))]);
        assert_eq!(read(r#"{"id":"x","context_length":200000}"#), [("x".to_owned(), Some(200_000))]);
        assert!(read("not json").is_empty());
        assert!(asks_for_models("/v1/models") && asks_for_models("/v1/models/x") && !asks_for_models("/v1/chat"));
    }
}
