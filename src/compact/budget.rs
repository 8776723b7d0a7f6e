//! How much fits, and from which size on each strategy acts.

use crate::config::{Auto, CompactionSettings, Keep, PruneSettings, Strategies, TruncateSettings, WindowLimits};

use super::calibration::Calibration;
use super::tokens::PER_MESSAGE;

/// A model's context window in tokens; `input <= total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Window {
    /// Most that a request may have.
    pub input: u64,
    /// Most that request and answer may have together.
    pub total: u64,
}

/// What was read in errors and model lists; either number may be all that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Learned {
    pub input: Option<u64>,
    pub total: Option<u64>,
}

/// The thresholds in force for one request, in calibrated tokens. `None`: that trigger is off.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    pub window: Option<Window>,
    /// The window is what the upstream itself said.
    pub told: bool,
    /// Output that the client asked for.
    pub output: u64,
    /// A summary is activated at this estimate.
    pub trigger: Option<u64>,
    pub trigger_messages: Option<usize>,
    /// How much of the end stays verbatim.
    pub keep: KeepTail,
    /// A trim is due at this estimate.
    pub trim: Option<u64>,
    pub trim_messages: Option<usize>,
    /// Least gain of truncated arguments; of pruned results.
    pub truncate_gain: u64,
    pub prune_gain: u64,
    /// Newest tool output that prune leaves alone.
    pub protect: u64,
}

/// How much of the end of a conversation stays verbatim, resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepTail {
    Tokens(u64),
    Messages(usize),
}

/// Distance to a limit that is kept: a request of exactly the limit is refused (C13).
const MARGIN: u64 = 16;

/// Fewest bytes of a message in a conversation array, comma included: `{"role":"user"},`.
const MESSAGE_BYTES: usize = 16;

impl Window {
    /// A window of which one number may be unknown: total defaults to input, input to total.
    pub fn new(input: Option<u64>, total: Option<u64>) -> Option<Self> {
        let (input, total) = (input.filter(|&n| n > 0), total.filter(|&n| n > 0));
        let total_or_input = total.or(input)?;
        Some(Self { input: input.unwrap_or(total_or_input).min(total_or_input), total: total_or_input })
    }

    /// The window of a model: configuration, else what was learned, else the built-in table, else unknown.
    /// A learned number keeps the table's other one only where the table agrees with it.
    pub fn resolve(configured: WindowLimits, (model, betas): (&str, &str), learned: Option<Learned>) -> Option<Self> {
        let WindowLimits { input, total } = configured;
        Self::new(input, total).or_else(|| {
            let table = super::windows::built_in(model, betas);
            learned.and_then(|learned| learned.completed(table)).or(table)
        })
    }
}

impl Learned {
    fn completed(self, table: Option<Window>) -> Option<Window> {
        match (self.input, self.total, table) {
            (Some(input), None, Some(known)) if known.input == input => Some(known),
            (None, Some(total), Some(known)) if known.total == total => Some(known),
            _ => Window::new(self.input, self.total),
        }
    }
}

impl Budget {
    /// The thresholds of `strategies` in this window, for a request that asks for `output` tokens at most.
    pub fn new(strategies: &Strategies, window: Option<Window>, output: Option<u64>) -> Self {
        let output = output.unwrap_or(0);
        let compaction = strategies.compaction.as_ref();
        let truncate = strategies.truncate.as_ref();
        let prune = strategies.prune.as_ref();
        let trigger = compaction.and_then(|settings| summary_trigger(settings, window, output));
        Self {
            window,
            told: false,
            output,
            trigger,
            trigger_messages: compaction.map(|settings| settings.trigger_messages).filter(|&n| n > 0),
            keep: keep_tail(compaction.map_or(Keep::Tokens(Auto::Auto), |settings| settings.keep), window, trigger),
            trim: truncate.and_then(|settings| trim_trigger(settings, window)),
            trim_messages: truncate.map(|settings| settings.trigger_messages).filter(|&n| n > 0),
            truncate_gain: min_gain(truncate.map_or(Auto::Auto, |settings| settings.min_gain_tokens), window),
            prune_gain: min_gain(prune.map_or(Auto::Auto, |settings| settings.min_gain_tokens), window),
            protect: protect(prune, window),
        }
    }

    /// The estimate from which a summary is made ahead: 85 % of the trigger.
    pub fn prepare(&self) -> Option<u64> {
        self.trigger.map(|trigger| percent(trigger, 85))
    }

    /// The tail in tokens, whether or not it is set in messages.
    pub fn keep_tokens(&self) -> u64 {
        match self.keep {
            KeepTail::Tokens(tokens) => tokens,
            KeepTail::Messages(_) => {
                self.window.map_or(32_000, |window| percent(window.input, 10).clamp(2_000, 32_000))
            }
        }
    }

    /// What a compaction aims at: half of the trigger, so that it is rare and deep; half of the window where
    /// there is no trigger.
    pub fn target(&self) -> Option<u64> {
        self.trigger.or(self.window.map(|window| window.input)).map(|most| most / 2)
    }

    /// Whether a summary is due.
    pub fn summary_due(&self, estimate: u64, messages: usize) -> bool {
        reached(self.trigger, estimate) || reached(self.trigger_messages, messages)
    }

    /// Whether a summary is near enough to be made ahead: 85 % of a trigger.
    pub fn summary_near(&self, estimate: u64, messages: usize) -> bool {
        let messages_near = self.trigger_messages.map(|trigger| (trigger * 85).div_ceil(100));
        reached(self.prepare(), estimate) || reached(messages_near, messages)
    }

    /// Whether anything but first-sight eviction could be due at up to `bound` tokens.
    pub fn may_act(&self, bound: u64, messages: usize) -> bool {
        self.summary_near(bound, messages)
            || self.trim_due(bound, messages)
            || bound >= self.protect.saturating_add(self.prune_gain)
            || self.told && !self.fits(bound)
    }

    /// Whether a trim is due.
    pub fn trim_due(&self, estimate: u64, messages: usize) -> bool {
        reached(self.trim, estimate) || reached(self.trim_messages, messages)
    }

    /// Whether a request of this estimate would be taken by the provider. True where the window is unknown.
    /// Output counts up to half of the input window: beyond that the output limit is at fault, not the
    /// conversation.
    pub fn fits(&self, estimate: u64) -> bool {
        let Some(window) = self.window else { return true };
        let beside_output = window.total.saturating_sub(self.output).max(window.input / 2);
        estimate.saturating_add(MARGIN) <= window.input.min(beside_output)
    }
}

/// Whether a count stands at a threshold that is on, or above it.
fn reached<N: PartialOrd>(threshold: Option<N>, count: N) -> bool {
    threshold.is_some_and(|threshold| count >= threshold)
}

fn percent(n: u64, percent: u64) -> u64 {
    (u128::from(n) * u128::from(percent) / 100) as u64
}

/// A share of the window, but at most `most`; `most` where the window is unknown.
fn share(window: Option<Window>, part: u64, most: u64) -> u64 {
    window.map_or(most, |window| percent(window.input, part).min(most))
}

/// min(0.95 · input, total − max(output, reserved)), never below half of input; reserved is at most a third
/// of the window. A fixed trigger is never above that.
fn summary_trigger(settings: &CompactionSettings, window: Option<Window>, output: u64) -> Option<u64> {
    let auto = window.map(|window| {
        let reserved = settings.reserved_tokens.min(window.total / 3);
        let beside_output = window.total.saturating_sub(output.max(reserved));
        percent(window.input, 95).min(beside_output).max(window.input.div_ceil(2))
    });
    match settings.trigger_tokens {
        Auto::Fixed(0) => None,
        Auto::Fixed(tokens) => Some(auto.map_or(tokens, |auto| tokens.min(auto))),
        Auto::Auto => auto,
    }
}

fn trim_trigger(settings: &TruncateSettings, window: Option<Window>) -> Option<u64> {
    match settings.trigger_tokens {
        Auto::Fixed(0) => None,
        Auto::Fixed(tokens) => Some(window.map_or(tokens, |window| tokens.min(window.input))),
        Auto::Auto => Some(share(window, 40, 40_000)),
    }
}

/// min(32,000, max(2,000, 0.1 × window)), but a tail always leaves room for a summary within the target.
fn keep_tail(keep: Keep, window: Option<Window>, trigger: Option<u64>) -> KeepTail {
    let tokens = match keep {
        Keep::Messages(messages) => return KeepTail::Messages(messages),
        Keep::Tokens(Auto::Fixed(tokens)) => tokens,
        Keep::Tokens(Auto::Auto) => window.map_or(32_000, |window| percent(window.input, 10).clamp(2_000, 32_000)),
    };
    KeepTail::Tokens(trigger.map_or(tokens, |trigger| tokens.min(percent(trigger / 2, 75))))
}

fn min_gain(setting: Auto, window: Option<Window>) -> u64 {
    match setting {
        Auto::Fixed(tokens) => tokens,
        Auto::Auto => share(window, 10, 20_000),
    }
}

fn protect(prune: Option<&PruneSettings>, window: Option<Window>) -> u64 {
    match prune.map_or(Auto::Auto, |settings| settings.protect_tokens) {
        Auto::Fixed(tokens) => tokens,
        Auto::Auto => share(window, 25, 40_000),
    }
}

/// The least length of a body, in bytes, at which a planned strategy could do anything: smaller bodies need
/// no reading unless they [carry media](crate::wire::Glance), whose tokens bytes do not bound. Tokens and
/// characters are never more than bytes; calibration may raise an estimate threefold. `usize::MAX` where
/// nothing is planned. Overflow recovery is not: it reads the body when the error has come.
pub fn floor_bytes(strategies: &Strategies, window: Option<Window>) -> usize {
    let budget = Budget::new(strategies, window, Some(u64::MAX));
    let eviction = strategies.eviction.as_ref().map(|settings| {
        settings.max_result_tokens.unwrap_or(usize::MAX).min(settings.max_result_chars).saturating_add(1)
    });
    let truncate = strategies
        .truncate
        .as_ref()
        .map(|settings| bytes_of(budget.truncate_gain).max(settings.max_arg_length.saturating_add(1)));
    let prune = strategies
        .prune
        .as_ref()
        .map(|settings| bytes_of(budget.prune_gain).max(settings.max_output_chars.saturating_add(1)));
    let messages = budget.trigger_messages.map(|messages| messages.saturating_mul(MESSAGE_BYTES));
    let tokens = budget.trigger.map(bytes_of);
    [eviction, truncate, prune, messages, tokens].into_iter().flatten().min().unwrap_or(usize::MAX)
}

/// The least bytes that can be estimated at so many tokens: one token a byte, times the largest calibration.
fn bytes_of(tokens: u64) -> usize {
    (tokens.saturating_sub(PER_MESSAGE) as f64 / Calibration::MAX) as usize
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
