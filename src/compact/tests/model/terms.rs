//! The provider of the model: how much it takes, and what it says where that is exceeded.

use crate::wire::overflow::Scope;

/// Who answers, and how far its count is from ours.
#[derive(Clone, Copy, Debug)]
pub struct Provider {
    /// Tokens; a prompt that reaches it is refused.
    pub limit: u64,
    pub factor: f64,
    pub tells: Tells,
}

/// What a provider wants beside a prompt that is short enough.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms {
    /// Longest body, bytes (A20).
    pub bytes: Option<usize>,
    /// What the limit bounds.
    pub scope: Scope,
    pub option: DropBlock,
}

/// Whether the provider knows its own option for thinking that is bound to something else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DropBlock {
    #[default]
    Known,
    Unknown,
}

/// Why a body is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    Overflow,
    /// It would fit with less output.
    Output,
    Bytes,
}

/// What the provider's error says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tells {
    Numbers,
    Nothing,
}
