//! What a session cost.

use super::provider::{Exchange, Verdict};

/// Prices in US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prices {
    pub input: f64,
    pub cached: f64,
    /// Of what is written to the cache, where that is billed.
    pub written: f64,
    pub output: f64,
}

/// The demo's assumption, in the range of a current mid-size model's list price.
pub const ASSUMED: Prices = Prices { input: 1.25, cached: 0.125, written: 1.5625, output: 10.0 };

/// Tokens that a provider billed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    pub requests: usize,
    pub input: u64,
    /// Of `input`, read from the prompt cache.
    pub cached: u64,
    /// Of `input`, written to the prompt cache where that is billed.
    pub written: u64,
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
            written: account.written + exchange.usage.written,
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
        let full = self.input.saturating_sub(self.cached + self.written);
        let cache = dollars(self.cached, prices.cached) + dollars(self.written, prices.written);
        dollars(full, prices.input) + cache + dollars(self.output, prices.output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cached_costs_the_cached_price() {
        let account = Account { requests: 2, input: 3_000_000, cached: 2_000_000, written: 0, output: 100_000 };
        let prices = Prices { input: 2.0, cached: 0.5, written: 2.5, output: 10.0 };
        assert!((account.cost(prices) - (2.0 + 1.0 + 1.0)).abs() < 1e-9);
        assert_eq!(account.cached_share(), 66);
        let written = Account { written: 400_000, ..account };
        assert!((written.cost(prices) - (1.2 + 1.0 + 1.0 + 1.0)).abs() < 1e-9);
        assert_eq!(Account::default().cached_share(), 0);
    }
}
