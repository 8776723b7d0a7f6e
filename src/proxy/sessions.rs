//! What this process remembers of running conversations beside their rows: misses, and whether the
//! provider's prompt cache was seen warm. Losing it costs at most a side call.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::store::Tenant;
use crate::wire::Digest;

/// Requests that go by the digest alone after two misses running.
const DIGEST_ONLY: u8 = 10;
/// Sessions remembered; beyond it the memory is cleared (L8).
const MAX_SESSIONS: usize = 10_000;

/// One conversation tree, by the digest of its first item.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    missed: u8,
    digest_only: u8,
    /// The last answer reported tokens read from the prompt cache.
    pub warm: bool,
    /// A limit in an error text that was too small to be believed at once.
    doubted: Option<u64>,
    /// The last turn that came to the trigger, and how it was served.
    last: Option<(Digest, Means)>,
}

/// One turn of a session.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    pub tenant: Tenant,
    pub root: Digest,
    /// Digest of the whole history.
    pub tip: Digest,
}

/// The sessions of all tenants.
#[derive(Default)]
pub struct Sessions {
    known: Mutex<HashMap<(Tenant, Digest), Session>>,
}

/// How a request at its trigger may be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    SideCall,
    /// Two checkpoints running came too late: no paying per turn.
    DigestOnly,
}

impl Sessions {
    /// What is remembered of the session.
    pub fn get(&self, tenant: Tenant, root: Digest) -> Session {
        self.with(tenant, root, |session| *session)
    }

    /// Notes whether the provider read the prefix from its cache.
    pub fn warm(&self, tenant: Tenant, root: Digest, warm: bool) {
        self.with(tenant, root, |session| session.warm = warm);
    }

    /// Whether a limit that seemed too small is told for the second time running.
    pub fn doubted(&self, tenant: Tenant, root: Digest, limit: Option<u64>) -> bool {
        self.with(tenant, root, |session| std::mem::replace(&mut session.doubted, limit) == limit)
    }

    /// The trigger was reached: a checkpoint was ready, or not. The same turn again (a retry, or several at
    /// once) is served as before and counts once.
    pub fn trigger(&self, turn: Turn, ready: Readiness) -> Means {
        self.with(turn.tenant, turn.root, |session| match session.last {
            Some((tip, means)) if tip == turn.tip => means,
            _ => {
                let means = session.trigger(ready);
                session.last = Some((turn.tip, means));
                means
            }
        })
    }

    fn with<T>(&self, tenant: Tenant, root: Digest, what: impl FnOnce(&mut Session) -> T) -> T {
        let mut known = self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if known.len() >= MAX_SESSIONS && !known.contains_key(&(tenant, root)) {
            known.clear();
        }
        what(known.entry((tenant, root)).or_default())
    }
}

/// Whether a prepared checkpoint was there when the trigger was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    Missing,
}

impl Session {
    fn trigger(&mut self, ready: Readiness) -> Means {
        if self.digest_only > 0 {
            self.digest_only -= 1;
            return Means::DigestOnly;
        }
        match ready {
            Readiness::Ready => self.missed = 0,
            Readiness::Missing => self.missed += 1,
        }
        if self.missed < 2 {
            return Means::SideCall;
        }
        self.missed = 0;
        self.digest_only = DIGEST_ONLY - 1;
        Means::DigestOnly
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_misses_running_mean_the_digest_for_ten_requests() {
        let (sessions, tenant, root) = (Sessions::default(), Tenant([1; 16]), [2; 32]);
        let turns = std::cell::Cell::new(0_u8);
        let at = |ready| {
            turns.set(turns.get() + 1);
            let turn = Turn { tenant, root, tip: [turns.get(); 32] };
            let means = sessions.trigger(turn, ready);
            assert_eq!(sessions.trigger(turn, ready), means, "a retry is the same turn");
            means
        };
        assert_eq!(at(Readiness::Missing), Means::SideCall);
        assert_eq!(at(Readiness::Ready), Means::SideCall);
        assert_eq!(at(Readiness::Missing), Means::SideCall);
        for _ in 0..10 {
            assert_eq!(at(Readiness::Missing), Means::DigestOnly);
        }
        assert_eq!(at(Readiness::Missing), Means::SideCall);
        assert_eq!(sessions.get(Tenant([9; 16]), root), Session::default());
    }

    #[test]
    fn an_unlikely_limit_counts_when_it_is_told_twice() {
        let (sessions, tenant, root) = (Sessions::default(), Tenant([1; 16]), [2; 32]);
        assert!(!sessions.doubted(tenant, root, Some(4_000)));
        assert!(!sessions.doubted(tenant, root, Some(8_000)));
        assert!(sessions.doubted(tenant, root, Some(8_000)));
    }
}
