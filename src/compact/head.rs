//! The message that stands for a summarized prefix: which texts go into it, and its checkpoint.

use crate::wire::Role;

use super::plan::{Shape, Situation, checkpoint};
use super::rows::{Checkpoint, Head, Level, Removed, TextId};
use super::{cuts, digest, ledger, pins, summary};

/// Tokens that a head is expected to need when a cut is chosen before it is written.
pub const ALLOWANCE: u64 = 3_000;

/// Where the summary's text comes from.
#[derive(Debug, Clone, Copy)]
pub enum Source<'t> {
    /// A side call's accepted answer.
    Model(&'t str),
    /// The deterministic digest: no model was to be had.
    Digest,
}
