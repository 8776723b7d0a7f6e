//! When side calls are not to be made: after failures, after a 429, at a low rate limit, at the
//! hourly token cap. Kept per tenant and upstream; the client's own requests come first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::store::Tenant;

/// Failures running that open the breaker.
const MAX_FAILURES: u32 = 3;
/// How long an open breaker, a 429 or a low rate limit keeps side calls away.
const PAUSE: Duration = Duration::from_secs(60);
/// Tokens that the side calls of one tenant may cost an hour.
pub const HOURLY_TOKENS: u64 = 4_000_000;
const HOUR: Duration = Duration::from_secs(3600);
/// Below this share of the reported request or token limit side calls wait.
const LOW_SHARE: f64 = 0.1;
/// Keys remembered (L8).
const MAX_KEYS: usize = 10_000;

#[derive(Debug, Default)]
struct State {
    failures: u32,
    closed_until: Option<Instant>,
    hour: Option<Instant>,
    tokens: u64,
}

/// The breakers of all tenants and upstreams.
#[derive(Default)]
pub struct Breaker {
    states: Mutex<HashMap<(Tenant, Arc<str>), State>>,
}

impl Breaker {
    /// Whether a side call may be made now.
    pub fn allows(&self, tenant: Tenant, upstream: &Arc<str>, now: Instant) -> bool {
        self.with(tenant, upstream, |state| {
            let paused = state.closed_until.is_some_and(|until| now < until);
            let same_hour = state.hour.is_some_and(|start| now.duration_since(start) < HOUR);
            !(paused || same_hour && state.tokens >= HOURLY_TOKENS)
        })
    }

    /// A side call ended well and cost `tokens`.
    pub fn succeeded(&self, tenant: Tenant, upstream: &Arc<str>, tokens: u64, now: Instant) {
        self.with(tenant, upstream, |state| {
            state.failures = 0;
            if state.hour.is_none_or(|start| now.duration_since(start) >= HOUR) {
                state.hour = Some(now);
                state.tokens = 0;
            }
            state.tokens = state.tokens.saturating_add(tokens);
        });
    }

    /// A side call failed.
    pub fn failed(&self, tenant: Tenant, upstream: &Arc<str>, now: Instant) {
        self.with(tenant, upstream, |state| {
            state.failures += 1;
            if state.failures >= MAX_FAILURES {
                state.failures = 0;
                state.closed_until = Some(now + PAUSE);
            }
        });
    }

    /// A side call met the provider's rate limit.
    pub fn rate_limited(&self, tenant: Tenant, upstream: &Arc<str>, now: Instant) {
        self.with(tenant, upstream, |state| state.closed_until = Some(now + PAUSE));
    }

    /// Reads the rate limits that an answer of the provider reports, of any call.
    pub fn observe(&self, tenant: Tenant, upstream: &Arc<str>, answer: (u16, &http::HeaderMap), now: Instant) {
        let (status, headers) = answer;
        if status == 429 || low(headers) {
            self.rate_limited(tenant, upstream, now);
        }
    }

    fn with<T>(&self, tenant: Tenant, upstream: &Arc<str>, what: impl FnOnce(&mut State) -> T) -> T {
        let mut states = self.states.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let key = (tenant, upstream.clone());
        if states.len() >= MAX_KEYS && !states.contains_key(&key) {
            states.clear();
        }
        what(states.entry(key).or_default())
    }
}

/// OpenAI's `x-ratelimit-remaining-*` against `x-ratelimit-limit-*`, where both are numbers.
fn low(headers: &http::HeaderMap) -> bool {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.parse::<f64>().ok();
    let pairs = [
        ("x-ratelimit-remaining-requests", "x-ratelimit-limit-requests"),
        ("x-ratelimit-remaining-tokens", "x-ratelimit-limit-tokens"),
    ];
    pairs.iter().any(|(remaining, limit)| match (number(remaining), number(limit)) {
        (Some(remaining), Some(limit)) => limit > 0.0 && remaining < LOW_SHARE * limit,
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(remaining: &str) -> http::HeaderMap {
        let mut headers = http::HeaderMap::new();
        headers.insert("x-ratelimit-remaining-tokens", remaining.parse().unwrap());
        headers.insert("x-ratelimit-limit-tokens", "1000".parse().unwrap());
        headers
    }

    #[test]
    fn failures_rate_limits_and_the_cap_pause_side_calls() {
        let (tenant, upstream, now) = (Tenant([1; 16]), Arc::<str>::from("u"), Instant::now());
        let breaker = Breaker::default();
        assert!(breaker.allows(tenant, &upstream, now));
        (0..2).for_each(|_| breaker.failed(tenant, &upstream, now));
        assert!(breaker.allows(tenant, &upstream, now));
        breaker.failed(tenant, &upstream, now);
        assert!(!breaker.allows(tenant, &upstream, now));
        assert!(breaker.allows(tenant, &upstream, now + PAUSE));
        assert!(breaker.allows(Tenant([2; 16]), &upstream, now), "another tenant's breaker is its own");

        let later = now + PAUSE;
        breaker.observe(tenant, &upstream, (200, &limits("500")), later);
        assert!(breaker.allows(tenant, &upstream, later));
        breaker.observe(tenant, &upstream, (200, &limits("99")), later);
        assert!(!breaker.allows(tenant, &upstream, later));

        let later = later + PAUSE;
        breaker.succeeded(tenant, &upstream, HOURLY_TOKENS - 1, later);
        assert!(breaker.allows(tenant, &upstream, later));
        breaker.succeeded(tenant, &upstream, 1, later);
        assert!(!breaker.allows(tenant, &upstream, later));
        assert!(breaker.allows(tenant, &upstream, later + HOUR));
    }
}
