//! What this process remembers of running conversations beside their rows: misses, and whether the
//! provider's prompt cache was seen warm. Losing it costs at most a side call.

use std::sync::{Arc, Mutex};

use super::recent::Recent;
use crate::compact::plan::Load;
use crate::store::Tenant;
use crate::wire::Digest;

/// Requests that go by the digest alone after two misses running.
const DIGEST_ONLY: u8 = 10;
/// Refused evictions after which a session is left as it is: no paying twice per turn.
const MAX_REFUSED: u8 = 2;
/// Summaries that no later request has shown before a client counts as one whose histories do not come back: it trims
/// them itself, or its first message changes.
const MAX_UNSEEN: usize = 8;
/// Of so many summaries for such a client one is made all the same: it may have changed.
const UNSEEN_PER_TRY: usize = 10;
/// A summary is made ahead from 85 % of its trigger on: a sixty-fourth more, or a message or two, is no reason to ask
/// anew whether one is worth it.
const IDLE_PART: u64 = 64;
const IDLE_MESSAGES: usize = 2;
/// Sessions remembered; beyond it those go that were not used for longest (L8).
const MAX_SESSIONS: usize = 10_000;

/// One conversation tree, by the digest of its first item.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    missed: u8,
    digest_only: u8,
    /// The last answer reported tokens read from the prompt cache.
    pub warm: bool,
    /// Times that the provider refused evictions and took the original.
    refused: u8,
    /// A limit in an error text that was too small to be believed at once.
    doubted: Option<u64>,
    /// The last turn that came to the trigger, and how it was served.
    last: Option<(Digest, Means)>,
    /// The load, near the trigger, at which nothing was planned last.
    idle: Option<Load>,
}

/// One turn of a session.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    pub tenant: Tenant,
    pub root: Digest,
    /// Digest of the whole history.
    pub tip: Digest,
}

/// The sessions of all tenants, and what becomes of the summaries that are made for them.
pub struct Sessions {
    known: Mutex<Recent<(Tenant, Digest), Session>>,
    payers: Mutex<Recent<Payer, Unseen>>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self { known: Mutex::new(Recent::new(MAX_SESSIONS)), payers: Mutex::new(Recent::new(MAX_SESSIONS)) }
    }
}

/// Who pays for summaries: a tenant with one model of one upstream. Nothing narrower stays the same where every turn
/// begins another session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Payer {
    pub tenant: Tenant,
    pub upstream: Arc<str>,
    pub model: Arc<str>,
}

/// What was made for a payer since a summary was of use.
#[derive(Debug, Default)]
struct Unseen {
    /// Digests of summarized prefixes that no later request has begun with, at most [`MAX_UNSEEN`].
    prefixes: Vec<Digest>,
    /// Summaries that were not made since.
    skipped: usize,
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

    /// Notes how many tokens of the prefix the provider read from its cache.
    pub fn cached(&self, tenant: Tenant, root: Digest, tokens: u64) {
        self.with(tenant, root, |session| session.warm = tokens > 0);
    }

    /// The provider refused a body without a checkpoint and took the original.
    pub fn refused(&self, tenant: Tenant, root: Digest) {
        self.with(tenant, root, |session| session.refused = session.refused.saturating_add(1));
    }

    /// Whether a limit that seemed too small is told for the second time running.
    pub fn doubted(&self, tenant: Tenant, root: Digest, limit: Option<u64>) -> bool {
        self.with(tenant, root, |session| std::mem::replace(&mut session.doubted, limit) == limit)
    }

    /// Nothing was planned at a load near the trigger.
    pub fn idle(&self, tenant: Tenant, root: Digest, load: Load) {
        self.with(tenant, root, |session| session.idle = Some(load));
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

    /// A summary of the prefix with this digest was made.
    pub fn made(&self, payer: Payer, prefix: Digest) {
        self.paying(payer, |unseen| {
            if unseen.prefixes.len() < MAX_UNSEEN && !unseen.prefixes.contains(&prefix) {
                unseen.prefixes.push(prefix);
            }
        });
    }

    /// A request with this history came: where it begins with a prefix that was summarized, summaries are of use.
    pub fn came(&self, payer: Payer, chain: &[Digest]) {
        self.paying(payer, |unseen| {
            if unseen.prefixes.iter().any(|prefix| chain.contains(prefix)) {
                *unseen = Unseen::default();
            }
        });
    }

    /// Whether another summary may be of use.
    pub fn is_worth_it(&self, payer: Payer) -> bool {
        self.paying(payer, |unseen| {
            if unseen.prefixes.len() < MAX_UNSEEN {
                return true;
            }
            unseen.skipped = (unseen.skipped + 1) % UNSEEN_PER_TRY;
            if unseen.skipped != 0 {
                return false;
            }
            // Room for the one that is tried now.
            unseen.prefixes.remove(0);
            true
        })
    }

    fn paying<T>(&self, payer: Payer, what: impl FnOnce(&mut Unseen) -> T) -> T {
        let mut payers = self.payers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        what(payers.entry(payer))
    }

    fn with<T>(&self, tenant: Tenant, root: Digest, what: impl FnOnce(&mut Session) -> T) -> T {
        let mut known = self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        what(known.entry((tenant, root)))
    }
}

/// Whether a prepared checkpoint was there when the trigger was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    Missing,
}

impl Session {
    /// Whether planning came to nothing at about this load. `trigger`: that of a summary, of which a small part is not
    /// worth another look.
    pub fn was_idle(&self, load: Load, trigger: u64) -> bool {
        self.idle.is_some_and(|idle| {
            idle.tokens.abs_diff(load.tokens) <= trigger / IDLE_PART
                && idle.messages.abs_diff(load.messages) <= IDLE_MESSAGES
        })
    }

    /// Whether evictions are still sent.
    pub fn is_rewritten(&self) -> bool {
        self.refused < MAX_REFUSED
    }

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
    fn a_little_more_is_as_idle_as_before() {
        let (sessions, tenant, root) = (Sessions::default(), Tenant([1; 16]), [2; 32]);
        let load = |tokens, messages| Load { tokens, messages };
        let was = |tokens, messages| sessions.get(tenant, root).was_idle(load(tokens, messages), 6_400);
        assert!(!was(0, 0));
        sessions.idle(tenant, root, load(6_000, 10));
        assert!(was(6_000, 10) && was(6_100, 12) && was(5_900, 8));
        assert!(!was(6_101, 10) && !was(5_899, 10) && !was(6_000, 13));
    }

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
    fn summaries_that_no_later_request_shows_become_rare() {
        let sessions = Sessions::default();
        let payer = |model: &str| Payer { tenant: Tenant([1; 16]), upstream: "u".into(), model: model.into() };
        let digest = |turn: usize| *blake3::hash(&turn.to_le_bytes()).as_bytes();
        // Every turn has another history.
        let turn = |turn: usize| {
            sessions.came(payer("m"), &[digest(turn), digest(turn + 1_000)]);
            let made = sessions.is_worth_it(payer("m"));
            if made {
                sessions.made(payer("m"), digest(turn));
            }
            usize::from(made)
        };
        assert_eq!((0..108).map(turn).sum::<usize>(), MAX_UNSEEN + 10);
        assert!(sessions.is_worth_it(payer("other")), "another model is another client");
        sessions.came(payer("m"), &[digest(5_000), digest(107)]);
        assert_eq!((200..208).map(turn).sum::<usize>(), MAX_UNSEEN, "one was of use");
    }

    #[test]
    fn a_full_memory_forgets_others_first() {
        let (sessions, tenant) = (Sessions::default(), Tenant([1; 16]));
        let root = |n: usize| *blake3::hash(&n.to_le_bytes()).as_bytes();
        sessions.cached(tenant, root(0), 1);
        for n in 1..3 * MAX_SESSIONS {
            sessions.cached(tenant, root(n), 1);
            assert!(!n.is_multiple_of(1_000) || sessions.get(tenant, root(0)).warm, "{n}");
        }
        assert!(!sessions.get(tenant, root(1)).warm);
    }

    #[test]
    fn an_unlikely_limit_counts_when_it_is_told_twice() {
        let (sessions, tenant, root) = (Sessions::default(), Tenant([1; 16]), [2; 32]);
        assert!(!sessions.doubted(tenant, root, Some(4_000)));
        assert!(!sessions.doubted(tenant, root, Some(8_000)));
        assert!(sessions.doubted(tenant, root, Some(8_000)));
    }
}
