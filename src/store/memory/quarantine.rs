//! Checkpoints that a provider refused: out of use at once, also where the database cannot be written.

use super::{Key, Memory};
use crate::store::Tenant;
use crate::store::row::{Row, State, level_code};
use crate::wire::Digest;

/// Stands for the level of a quarantined checkpoint that memory did not have.
const UNREAD_LEVEL: i64 = -1;

impl Memory {
    /// Takes the checkpoint that applies at `digest` out of use.
    pub(in crate::store) fn quarantine(&mut self, tenant: &Tenant, digest: &Digest) {
        let key = (*tenant, *digest);
        let level = match self.rows.get(&key) {
            Some(row) => row.quarantine().map(level_code),
            None => Some(UNREAD_LEVEL),
        };
        if let Some(level) = level {
            self.quarantined.insert((key, level), (), 1);
        }
        self.version += 1;
        self.sessions.retain(|(owner, _), _| owner != tenant);
    }

    pub(super) fn apply_quarantine(&mut self, key: &Key, row: &mut Row) {
        if self.quarantined.contains(&(*key, UNREAD_LEVEL)) {
            self.quarantined.retain(|quarantined, ()| *quarantined != (*key, UNREAD_LEVEL));
            if let Some(level) = row.quarantine() {
                self.quarantined.insert((*key, level_code(level)), (), 1);
            }
        }
        self.keep_quarantined(key, row);
    }

    /// What was taken out of use stays so, whatever the database says yet.
    pub(super) fn keep_quarantined(&self, key: &Key, row: &mut Row) {
        for kept in &mut row.checkpoints {
            if self.quarantined.contains(&(*key, level_code(kept.checkpoint.level))) {
                kept.state = State::Quarantined;
            }
        }
    }
}
