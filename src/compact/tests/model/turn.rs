//! What came of one request.

use super::terms::Misfit;
use crate::compact::budget::Budget;
use crate::compact::ladder::{Goal, Rung};
use crate::compact::plan::{Load, Need, Proposal};
use crate::compact::render::Rendering;
use crate::compact::rows::Known;

/// What came of one request.
pub struct Turn {
    pub raw: Vec<u8>,
    /// As the rows in force render it.
    pub out: Vec<u8>,
    /// As it was sent: with the output limit and the provider's option set.
    pub sent: Vec<u8>,
    /// The provider refused the rewritten body: the client's own went out.
    pub original: bool,
    pub before: Known,
    pub known: Known,
    pub proposal: Proposal,
    pub rendering: Rendering,
    pub budget: Budget,
    /// Of the request as it was sent at first.
    pub load: Load,
    pub recovery: Option<Recovery>,
    /// All that was committed is there.
    pub stored: bool,
    pub accepted: bool,
}

impl Turn {
    /// What happened, by name.
    pub fn ways(&self) -> Vec<&'static str> {
        let rung = self.recovery.as_ref().and_then(|recovery| recovery.rung.as_ref());
        let mut ways: Vec<&str> = self.proposal.actions.names().collect();
        ways.extend(rung.map_or_else(Vec::new, |rung| rung.actions.names().collect()));
        ways.push(match self.proposal.summary {
            Need::No => "none",
            Need::Ahead { .. } => "ahead",
            Need::Late { .. } => "late",
            Need::Now { .. } => "now",
        });
        let more = [
            (self.rendering.checkpoint, "checkpoint"),
            (self.known.prepared.is_some(), "prepared"),
            (rung.is_some(), "recovered"),
            (rung.is_some_and(|rung| rung.actions.truncated), "shortened"),
            (!self.accepted, "refused"),
            (!self.stored, "lost"),
            (self.rendering.edits.is_empty(), "untouched"),
            (self.sent != self.out && !self.original, "lowered or with the option"),
            (self.original, "original"),
            (self.recovery.as_ref().is_some_and(|recovery| recovery.misfit == Misfit::Bytes), "bytes"),
            (self.recovery.as_ref().is_some_and(|recovery| recovery.misfit == Misfit::Output), "output"),
        ];
        ways.extend(more.into_iter().filter_map(|(on, way)| on.then_some(way)));
        ways
    }
}

/// What overflow recovery did.
pub struct Recovery {
    pub misfit: Misfit,
    /// `None`: the bytes alone counted.
    pub goal: Option<Goal>,
    /// `None`: hopeless.
    pub rung: Option<Rung>,
    pub first: Vec<u8>,
}

impl Recovery {
    /// Whether so many tokens are as few as was aimed at.
    pub fn reaches(&self, tokens: u64) -> bool {
        self.goal.is_none_or(|goal| tokens <= goal.target)
    }
}
