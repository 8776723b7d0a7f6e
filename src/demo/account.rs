//! What a session cost.

use super::provider::{Exchange, Verdict};

/// Prices in US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prices {
    pub input: f64,
    pub cached: f64,
    pub output: f64,
}

/// The demo's assumption, in the range of a current mid-size model's list price.
pub const ASSUMED: Prices = Prices { input: 1.25, cached: 0.125, output: 10.0 };

/// Tokens that a provider billed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    pub requests: usize,
    pub input: u64,
    /// Of `input`, read from the prompt cache.
    pub cached: u64,
    pub output: u64,
}

impl Account {
    /// All accepted requests, side calls included; what was refused costs nothing.
    pub fn of<'e>(exchanges: impl IntoIterator<Item = &'e Exchange>) -> Self {
        let accepted = exchanges.into_iter().filter(|exchange| exchange.verdict == Verdict::Accepted);
        accepted.fold(Self::default(), |account, exchange| Self {
            requests: account.requests + 1,
            input: account.input + exchange.usage.prompt,
            cached: account.cached + exchange.usage.cached,
            output: account.output + exchange.usage.completion,
        })
    }

    /// Per cent of the input that came from the cache, rounded down.
    pub fn cached_share(&self) -> u64 {
        self.cached * 100 / self.input.max(1)
    }

    /// US dollars.
    pub fn cost(&self, prices: Prices) -> f64 {
        let dollars = |tokens: u64, price: f64| tokens as f64 / 1e6 * price;
        let full = self.input.saturating_sub(self.cached);
        dollars(full, prices.input) + dollars(self.cached, prices.cached) + dollars(self.output, prices.output)
    }
}
