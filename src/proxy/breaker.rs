//! When side calls are not to be made: after failures, after a 429, at a low rate limit, at the
//! hourly token cap. Kept per tenant and upstream; the client's own requests come first.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::recent::Recent;
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
/// Keys remembered; beyond it those go that were not used for longest (L8).
const MAX_KEYS: usize = 10_000;

#[derive(Debug, Default)]
struct State {
    failures: u32,
    /// After failures.
    paused_until: Option<Instant>,
    /// By the provider's rate limit.
    limited_until: Option<Instant>,
    hour: Option<Instant>,
    tokens: u64,
}

/// The breakers of all tenants and upstreams.
pub struct Breaker {
    states: Mutex<Recent<(Tenant, Arc<str>), State>>,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { states: Mutex::new(Recent::new(MAX_KEYS)) }
    }
}

impl State {
    /// Neither at the rate limit nor at the cap.
    fn may_spend(&self, now: Instant) -> bool {
        let limited = self.limited_until.is_some_and(|until| now < until);
        let same_hour = self.hour.is_some_and(|start| now.duration_since(start) < HOUR);
        !(limited || same_hour && self.tokens >= HOURLY_TOKENS)
    }
}

impl Breaker {
    /// Whether a side call may be made now.
    pub fn allows(&self, tenant: Tenant, upstream: &Arc<str>, now: Instant) -> bool {
        self.with(tenant, upstream, |state| state.may_spend(now) && state.paused_until.is_none_or(|until| now >= until))
    }

    /// Whether a side call may be made for a request that was refused without it: earlier failures do not
    /// count, the provider's rate limit and the cap do.
    pub fn allows_recovery(&self, tenant: Tenant, upstream: &Arc<str>, now: Instant) -> bool {
        self.with(tenant, upstream, |state| state.may_spend(now))
    }

    /// A side call ended well.
    pub fn succeeded(&self, tenant: Tenant, upstream: &Arc<str>) {
        self.with(tenant, upstream, |state| state.failures = 0);
    }

    /// A side call cost `tokens`, whatever its answer is good for.
    pub fn spent(&self, tenant: Tenant, upstream: &Arc<str>, tokens: u64, now: Instant) {
        self.with(tenant, upstream, |state| {
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
                state.paused_until = Some(now + PAUSE);
            }
        });
    }

    /// A side call met the provider's rate limit.
    pub fn rate_limited(&self, tenant: Tenant, upstream: &Arc<str>, now: Instant) {
        self.with(tenant, upstream, |state| state.limited_until = Some(now + PAUSE));
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
        what(states.entry((tenant, upstream.clone())))
    }
}

/// What remains of each limit, and the limit: OpenAI's and Anthropic's names.
const LIMITS: [(&str, &str); 6] = [
    ("x-ratelimit-remaining-requests", "x-ratelimit-limit-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-limit-tokens"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-limit"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-limit"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-limit"),
    ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-limit"),
];

/// Whether little is left of a limit, where both figures are numbers.
fn low(headers: &http::HeaderMap) -> bool {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.parse::<f64>().ok();
    LIMITS.iter().any(|(remaining, limit)| match (number(remaining), number(limit)) {
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
    fn little_of_any_limit_pauses_side_calls() {
        let (tenant, upstream, now) = (Tenant([1; 16]), Arc::<str>::from("u"), Instant::now());
        for (remaining, limit) in LIMITS {
            for (left, allowed) in [("9999", false), ("10000", true), ("", true), ("soon", true)] {
                let breaker = Breaker::default();
                let mut headers = http::HeaderMap::new();
                headers.insert(limit, "100000".parse().unwrap());
                headers.insert(remaining, left.parse().unwrap());
                breaker.observe(tenant, &upstream, (200, &headers), now);
                assert_eq!(breaker.allows(tenant, &upstream, now), allowed, "{remaining}: {left}");
            }
        }
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
        assert!(breaker.allows_recovery(tenant, &upstream, now), "a failure elsewhere does not stop a recovery");
        assert!(breaker.allows(tenant, &upstream, now + PAUSE));
        assert!(breaker.allows(Tenant([2; 16]), &upstream, now), "another tenant's breaker is its own");

        let later = now + PAUSE;
        breaker.observe(tenant, &upstream, (200, &limits("500")), later);
        assert!(breaker.allows(tenant, &upstream, later));
        breaker.observe(tenant, &upstream, (200, &limits("99")), later);
        assert!(!breaker.allows(tenant, &upstream, later));
        assert!(!breaker.allows_recovery(tenant, &upstream, later));

        let later = later + PAUSE;
        breaker.spent(tenant, &upstream, HOURLY_TOKENS - 1, later);
        assert!(breaker.allows(tenant, &upstream, later));
        breaker.spent(tenant, &upstream, 1, later);
        breaker.succeeded(tenant, &upstream);
        assert!(!breaker.allows(tenant, &upstream, later));
        assert!(!breaker.allows_recovery(tenant, &upstream, later));
        assert!(breaker.allows(tenant, &upstream, later + HOUR));
    }
}
