//! What is stored of a conversation: from memory, else from the database within a bound.

use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::{sleep, timeout_at};

use super::overlays::together;
use super::reader::Query;
use super::writer::Job;
use super::{FoundOverlays, Health, ReadError, Store, Tenant};
use crate::compact::Known;
use crate::wire::Digest;

/// A look-up that was hindered is tried again, so far apart…
const BETWEEN_LOOKUPS: Duration = Duration::from_millis(10);
/// …and so often where the writer has no file.
const LOOKUPS: usize = 5;

/// How long a look-up may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// Its bound; nobody is asked who was late again and again.
    Usual,
    Until(Until),
}

/// Until when a request waits, in all, for what going on without has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Until(tokio::time::Instant);

#[cfg(test)]
impl Until {
    pub(super) fn within(bound: Duration) -> Self {
        Self(tokio::time::Instant::now() + bound)
    }
}

impl Store {
    /// What is stored of a conversation, by its chain digests in order. Asks the database only for
    /// what memory has no answer to; what cannot be read in time is absent this once, and the answer incomplete.
    pub async fn known(&self, tenant: &Tenant, chain: &[Digest]) -> Known {
        self.known_within(Wait::Usual, tenant, chain).await
    }

    /// A longer wait than a look-up's, [`TEXT_BOUND`](super::TEXT_BOUND) from now on.
    pub fn patience(&self) -> Until {
        Until(tokio::time::Instant::now() + self.shared.limits.text_bound())
    }

    /// The same where going on without has failed. What was found is remembered.
    pub async fn known_patiently(&self, until: Until, tenant: &Tenant, chain: &[Digest]) -> Known {
        self.known_within(Wait::Until(until), tenant, chain).await
    }

    async fn known_within(&self, wait: Wait, tenant: &Tenant, chain: &[Digest]) -> Known {
        let found = || self.shared.memory().known(tenant, chain, Instant::now());
        let mut known = found();
        if !known.as_ref().is_ok_and(points_nowhere) && self.forgets_what_is_gone() {
            known = found();
        }
        let missing = match known {
            Ok(known) => return known,
            Err(missing) => missing,
        };
        let query = |reply| Query::Rows { tenant: *tenant, digests: missing.digests.clone(), reply };
        match self.look_up(wait, query).await {
            Some(loaded) => self.shared.memory().known_with(tenant, chain, (&missing, loaded)),
            None => Known { incomplete: true, ..self.shared.memory().known_alone(tenant, chain) },
        }
    }

    /// Whether the file that was open is gone: with the texts in it, what points to them is forgotten, however late the
    /// writer is. While the store is degraded memory is all there is.
    fn forgets_what_is_gone(&self) -> bool {
        let gone = self.health() == Health::Up && self.shared.door.if_gone(|| self.shared.memory().forget_stored());
        if gone {
            // A full queue has a commit in it, which looks at the file as well.
            let _ = self.jobs.try_send(Job::Follow);
        }
        gone
    }

    /// What is added to a conversation, by its chain digests in order. What cannot be read in time is absent this
    /// once, and the answer incomplete.
    pub async fn overlays(&self, tenant: &Tenant, chain: &[Digest]) -> FoundOverlays {
        self.overlays_within(Wait::Usual, tenant, chain).await
    }

    /// The same where going on without has failed. What was found is remembered.
    pub async fn overlays_patiently(&self, until: Until, tenant: &Tenant, chain: &[Digest]) -> FoundOverlays {
        self.overlays_within(Wait::Until(until), tenant, chain).await
    }

    async fn overlays_within(&self, wait: Wait, tenant: &Tenant, chain: &[Digest]) -> FoundOverlays {
        let (rows, missing) = self.shared.memory().overlays(tenant, chain);
        if missing.is_empty() || self.shared.path.is_none() {
            return FoundOverlays { rows, incomplete: false };
        }
        let query = |reply| Query::Overlays { tenant: *tenant, digests: missing.clone(), reply };
        let Some(loaded) = self.look_up(wait, query).await else {
            return FoundOverlays { rows, incomplete: true };
        };
        self.shared.memory().adopt_overlays(tenant, &missing, &loaded);
        FoundOverlays { rows: together(chain, rows, loaded), incomplete: false }
    }

    /// Asks the database within the bound of a look-up, and anew where it was hindered: another connection was in the
    /// way, or what lies at the path is being opened. To go on without what is known breaks the provider's cache.
    async fn look_up<T>(
        &self,
        wait: Wait,
        query: impl Fn(oneshot::Sender<Result<T, ReadError>>) -> Query,
    ) -> Option<T> {
        let until = match wait {
            Wait::Usual => tokio::time::Instant::now() + self.shared.limits.lookup_bound,
            Wait::Until(Until(until)) => until,
        };
        let asked = async {
            for hindered in 0.. {
                let given_up = hindered >= LOOKUPS && self.health() != Health::Up;
                if given_up || wait == Wait::Usual && self.shared.is_unreadable() {
                    break;
                }
                let (reply, answer) = oneshot::channel();
                self.lookups.try_send(query(reply)).ok()?;
                if let Ok(found) = answer.await.ok()? {
                    return Some(found);
                }
                sleep(BETWEEN_LOOKUPS).await;
            }
            None
        };
        match timeout_at(until, asked).await {
            Ok(found) => {
                if found.is_some() {
                    self.shared.found_in_time();
                }
                found
            }
            Err(_) => {
                self.shared.found_too_late();
                None
            }
        }
    }
}

/// Whether no row applies, none of which could point to a text that is gone.
fn points_nowhere(known: &Known) -> bool {
    known.evictions.is_empty() && known.active.is_none() && known.prepared.is_none()
}
