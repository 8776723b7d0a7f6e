//! What the demo says, and whether it was so.

use std::time::Duration;

use super::WINDOW;
use super::account::{ASSUMED, Account};
use super::agent::{Outcome, Run, Turn};
use super::recalled::Recalled;
use super::request::Api;
use super::rules::Violation;
use super::trace::{Event, Passage};

/// Least share of the input from the cache, per cent.
const LEAST_CACHED: u64 = 50;

/// All that was observed.
#[derive(Debug, Clone)]
pub struct Evidence {
    pub api: Api,
    /// How the session ended without the proxy.
    pub direct: Outcome,
    /// Tokens of the whole history at each call.
    pub raw: Vec<u64>,
    /// What the session would have cost in a window without end.
    pub baseline: Account,
    /// The agent's history is the one it would have had in a window without end, but for the provider's stamps and for
    /// what the model thought: it thinks once more where it reads back.
    pub same_history: bool,
    pub run: Run,
    pub passages: Vec<Passage>,
    /// All that the proxy sent.
    pub proxied: Account,
    /// Of it, what it sent on its own account.
    pub side: Account,
    /// Requests that the provider refused as too long.
    pub refused: usize,
    pub violations: Vec<Violation>,
    /// Requests without the user's rule.
    pub without_rule: usize,
    pub read_back: ReadBack,
    /// What the model read back itself.
    pub recalled: Option<Recalled>,
    /// The call at which the provider's window became smaller, and the new window.
    pub shrunk: Option<(usize, u64)>,
    /// Of all that was played. It says as much of the machine as of the proxy, so nothing is claimed of it.
    pub elapsed: Duration,
}

/// What came of reading a removed text back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadBack {
    /// Nothing was removed, or nothing says where it is.
    NoPointer,
    Failed(String),
    Text {
        /// The path it was read from.
        pointer: String,
        same: bool,
        bytes: usize,
    },
}

/// A sentence that is printed, and whether it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub text: String,
    pub held: bool,
}

/// How often each thing happened, by the bytes that arrived.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub evicted: usize,
    pub pruned: usize,
    pub truncated: usize,
    pub summarized: usize,
    pub recovered: usize,
}

impl Counts {
    pub fn of(passages: &[Passage]) -> Self {
        passages.iter().flat_map(|passage| &passage.events).fold(Self::default(), |mut counts, event| {
            match event {
                Event::Evicted { .. } => counts.evicted += 1,
                Event::Pruned { results, .. } => counts.pruned += results,
                Event::Truncated { calls, .. } => counts.truncated += calls,
                Event::Summarized { .. } => counts.summarized += 1,
                Event::Recovered { .. } => counts.recovered += 1,
            }
            counts
        })
    }
}

/// Everything that the demo claims.
pub fn claims(evidence: &Evidence) -> Vec<Claim> {
    let counts = Counts::of(&evidence.passages);
    let (run, proxied, baseline) = (&evidence.run, &evidence.proxied, &evidence.baseline);
    let turns = evidence.raw.len();
    let said = |action: &str| run.turns.iter().flat_map(Turn::actions).any(|done| done == action);
    let claim = |held: bool, text: String| Claim { text, held };
    let refused = evidence.refused;
    vec![
        claim(
            matches!(&evidence.direct, Outcome::Died(death) if death.status == 400 && death.turn < turns),
            format!("without compactproxy the provider's window of {WINDOW} tokens ends the session"),
        ),
        claim(
            run.finished() && run.turns.len() == turns && turns >= 30,
            format!("with compactproxy the agent made all {turns} calls and saw no error"),
        ),
        claim(evidence.same_history, format!("the agent's own history is {}", as_expected(evidence.api))),
        claim(evidence.violations.is_empty(), "the strict provider found no broken rule in any request".to_owned()),
        claim(counts.evicted > 0 && said("evicted"), format!("{} oversized results were evicted", counts.evicted)),
        claim(counts.truncated > 0 && said("truncated"), format!("{} past calls were truncated", counts.truncated)),
        claim(
            counts.summarized > 0 && (said("summarized") || said("folded")),
            format!("{} times older calls went behind a summary", counts.summarized),
        ),
        claim(
            refused > 0 && counts.recovered == refused && said("recovered"),
            format!("every refused request ({refused}) was recovered; the agent did not notice"),
        ),
        claim(
            evidence.without_rule == 0 && !evidence.passages.is_empty(),
            "the user's rule stood word for word in every request".to_owned(),
        ),
        claim(
            matches!(evidence.read_back, ReadBack::Text { same: true, .. }),
            "a removed text was read back and is the same to the byte".to_owned(),
        ),
        claim(
            evidence.recalled.as_ref().is_some_and(|text| text.rounds > 1 && text.told && text.unseen),
            "the model read a removed text back by itself, with a tool that the agent never saw".to_owned(),
        ),
        claim(
            proxied.cached_share() >= LEAST_CACHED,
            format!("{} % of all tokens sent came from the prompt cache", proxied.cached_share()),
        ),
        claim(
            run.finished() && proxied.cost(ASSUMED) < baseline.cost(ASSUMED),
            format!(
                "it cost ${:.2}; in a window without end it would have been ${:.2}",
                proxied.cost(ASSUMED),
                baseline.cost(ASSUMED)
            ),
        ),
    ]
}

/// What is said of a history that is as it should be.
fn as_expected(api: Api) -> &'static str {
    match api {
        Api::Chat => "byte for byte what it would have been",
        Api::Responses => "what it would have been, but for the provider's ids and the model's thinking",
        Api::Messages => "what it would have been, but for the model's thinking",
    }
}

#[cfg(test)]
#[path = "tests/claims.rs"]
mod tests;
