//! How far token estimates are from what providers count, learned from their answers.

use serde::{Deserialize, Serialize};

/// How far reported usage is from the estimates: a factor learned from answers, kept in `0.5..=3.0`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    factor: f64,
}

impl Default for Calibration {
    fn default() -> Self {
        Self { factor: 1.0 }
    }
}

impl Calibration {
    pub const MIN: f64 = 0.5;
    pub const MAX: f64 = 3.0;

    /// Weight of a new pair against all before it.
    const WEIGHT: f64 = 0.3;

    /// Requests smaller than this say more about fixed costs than about the text: not learned from.
    const LEAST: u64 = 500;

    /// A factor learned before.
    pub fn of(factor: f64) -> Self {
        Self { factor }
    }

    /// Learns from one answer: what was estimated for the request as sent, and the input tokens that the
    /// provider reported for it (cached ones included).
    pub fn observe(&mut self, estimated: u64, reported: u64) {
        if estimated < Self::LEAST || reported == 0 {
            return;
        }
        let ratio = reported as f64 / estimated as f64;
        // No tokenizer is that far off: something else was counted, such as what the cache did not have.
        if !(Self::MIN..=Self::MAX).contains(&ratio) {
            return;
        }
        self.factor = self.factor() + Self::WEIGHT * (ratio - self.factor());
    }

    /// The factor, within its bounds also when it was read from a damaged row.
    pub fn factor(&self) -> f64 {
        if self.factor.is_finite() { self.factor.clamp(Self::MIN, Self::MAX) } else { 1.0 }
    }
}
