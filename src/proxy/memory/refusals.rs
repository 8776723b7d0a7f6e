//! Notes that no model takes into `MEMORY.md`: the same call again costs the same, so that it is made ever less often.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::super::recent::Recent;
use super::{Key, MAX_AGENTS, seconds};
use crate::memory::consolidate::Plan;

/// The longest wait, unless notes rest for longer anyway.
const LAST_WAIT: Duration = Duration::from_secs(24 * 3_600);

/// What was refused last, by agent.
pub(super) struct Refusals {
    agents: Mutex<Recent<Key, Refused>>,
}

#[derive(Default)]
struct Refused {
    /// A digest of what was asked.
    input: [u8; 32],
    /// How often running.
    times: u32,
    /// Not asked again before (unix seconds).
    until: i64,
}

impl Default for Refusals {
    fn default() -> Self {
        Self { agents: Mutex::new(Recent::new(MAX_AGENTS)) }
    }
}

impl Refusals {
    /// Until when (unix seconds) a plan is not to be asked for. `None`: it may be now.
    pub(super) fn until(&self, key: &Key, plan: &Plan, now: i64) -> Option<i64> {
        let mut agents = self.agents();
        let refused = agents.entry(key.clone());
        Some(refused.until).filter(|until| refused.times > 0 && refused.input == digest(plan) && now < *until)
    }

    /// Nothing came of a plan: when (unix seconds) it may be asked for again. After `wait` seconds first, and after
    /// twice as long each further time.
    pub(super) fn refused(&self, key: &Key, plan: &Plan, (now, wait): (i64, i64)) -> i64 {
        let mut agents = self.agents();
        let (refused, input) = (agents.entry(key.clone()), digest(plan));
        if refused.input != input {
            *refused = Refused { input, ..Refused::default() };
        }
        let longest = wait.max(seconds(LAST_WAIT));
        let wait = wait.saturating_mul(1 << refused.times.min(32)).min(longest);
        (refused.times, refused.until) = (refused.times.saturating_add(1), now.saturating_add(wait));
        refused.until
    }

    fn agents(&self) -> MutexGuard<'_, Recent<Key, Refused>> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of what a call says of the agent. What is noted later is another input.
fn digest(plan: &Plan) -> [u8; 32] {
    let mut hash = blake3::Hasher::new();
    for part in [&plan.curated, &plan.notes] {
        hash.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    *hash.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Tenant;

    fn plan(notes: &str) -> Plan {
        Plan { curated: "- zero\n".to_owned(), expected: 1, notes: notes.to_owned(), merged: Vec::new() }
    }

    #[test]
    fn the_wait_doubles_up_to_a_day_and_begins_anew_with_other_notes() {
        let (refusals, key) = (Refusals::default(), (Tenant([1; 16]), "agent".into()));
        let mut now = 0;
        for wait in [1_800, 3_600, 7_200, 14_400, 28_800, 57_600, 86_400, 86_400] {
            assert_eq!(refusals.until(&key, &plan("a"), now), None, "its time has come");
            assert_eq!(refusals.refused(&key, &plan("a"), (now, 1_800)), now + wait);
            assert_eq!(refusals.until(&key, &plan("a"), now + wait - 1), Some(now + wait));
            now += wait;
        }
        assert_eq!(refusals.refused(&key, &plan("a"), (now, 1_800)), now + 86_400);
        assert_eq!(refusals.until(&key, &plan("a b"), now), None, "something was noted");
        assert_eq!(refusals.refused(&key, &plan("a b"), (now, 1_800)), now + 1_800);
        assert_eq!(refusals.until(&(Tenant([2; 16]), "agent".into()), &plan("a b"), now), None);
        // Who has notes rest for longer than a day waits no less.
        assert_eq!(refusals.refused(&key, &plan("c"), (0, 200_000)), 200_000);
        assert_eq!(refusals.refused(&key, &plan("c"), (0, 200_000)), 200_000);
    }
}
