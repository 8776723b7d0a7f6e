//! Classification of provider errors: is the prompt too long, does only the output not fit, or is
//! it something else? The body is decoded first (`decode`), its sentences are
//! matched against families of wordings (`phrases`), and where they hold numbers the numbers
//! decide (`numbers`), because several providers use budget wording for plain overflows.

mod decode;
mod kind;
mod numbers;
mod phrases;
#[cfg(test)]
mod tests;

use decode::{Known, Saying};
pub use kind::{is_busy, is_of_the_moment, status_told};
use numbers::Reading;
use phrases::Signal;

/// How much of an error body is examined, in bytes: some providers echo the request (P5).
pub const EXAMINED_BYTES: usize = 256 * 1024;

/// Smallest and largest token limit that an error text can teach.
const TEACHABLE: std::ops::RangeInclusive<u64> = 1_024..=20_000_000;

/// What a provider's answer says about the size of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The input alone is too long.
    Overflow(Sizes),
    /// The input fits, input and requested output together do not.
    OutputBudget(Sizes),
    /// Anything else: not for recovery.
    Other,
}

/// The numbers of an error text. All of them are tokens; errors in other units have none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sizes {
    /// All input parts together.
    pub input: Option<u64>,
    /// Requested output.
    pub output: Option<u64>,
    /// What was asked for where the text does not say of what it consists.
    pub requested: Option<u64>,
    /// The limit that was broken; check with [`learned`] before keeping it.
    pub limit: Option<u64>,
    pub scope: Scope,
    pub unit: Unit,
    /// The text does not decide between too much input and too much output, or not whether a
    /// shorter history helps: the own estimate decides.
    pub ambiguous: bool,
    /// No error at all: the provider cut the prompt or stopped at once and answered with success.
    pub silent: bool,
}

/// What a limit bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scope {
    /// The input alone.
    #[default]
    Input,
    /// Input and output together.
    Total,
}

/// The unit in which a request was too large.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unit {
    #[default]
    Tokens,
    Bytes,
    Chars,
    /// Cache pages of a local server.
    Pages,
}

/// What an error text teaches about a window, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hint {
    pub input: Option<u64>,
    pub total: Option<u64>,
}

/// Classifies an answer: its status and (the beginning of) its decoded body. For an event inside a
/// stream pass the event's data and status 200.
pub fn classify(status: u16, body: &[u8]) -> Verdict {
    match status {
        200 => decide(&decode::sayings(examined(body), Known::Unsure), status),
        400 | 404 | 413 | 422 | 500 | 503 => classify_error(status, body),
        _ => Verdict::Other,
    }
}

/// Classifies what is known to be an error whatever its status and shape, such as the data of an
/// event named `error`.
pub fn classify_event(data: &[u8]) -> Verdict {
    decide(&decode::sayings(examined(data), Known::Error), 200)
}

/// All that an error says, in one line: its sentences, without what they repeat of the request, and its codes.
pub fn said(body: &[u8]) -> String {
    let sayings = decode::sayings(examined(body), Known::Error);
    let of_each = sayings.into_iter().map(|saying| [vec![saying.text], saying.codes].concat().join("; "));
    of_each.collect::<Vec<_>>().join("; ")
}

/// Whether JSON under a success says by its shape that it is an error.
pub fn is_error(object: &serde_json::Map<String, serde_json::Value>) -> bool {
    decode::is_error_object(object)
}

/// The limit that a verdict teaches, if its number can be believed.
pub fn learned(verdict: &Verdict) -> Option<Hint> {
    let (Verdict::Overflow(sizes) | Verdict::OutputBudget(sizes)) = verdict else { return None };
    // A sentence about the output alone tells how much the model writes at most, not what fits into its window.
    let of_output = sizes.output.is_some() && sizes.input.is_none() && sizes.requested.is_none();
    let believable = sizes.unit == Unit::Tokens && !of_output;
    let limit = sizes.limit.filter(|limit| believable && TEACHABLE.contains(limit))?;
    Some(match sizes.scope {
        Scope::Input => Hint { input: Some(limit), total: None },
        Scope::Total => Hint { input: None, total: Some(limit) },
    })
}

fn examined(body: &[u8]) -> &[u8] {
    body.get(..EXAMINED_BYTES).unwrap_or(body)
}

fn classify_error(status: u16, body: &[u8]) -> Verdict {
    let body = examined(body);
    if phrases::is_markup(body) {
        return Verdict::Other;
    }
    if status == 413 && body.trim_ascii().is_empty() {
        return too_many_bytes();
    }
    decide(&decode::sayings(body, Known::Error), status)
}

/// A size cap of an edge or gateway: nothing is known but that less would be better.
fn too_many_bytes() -> Verdict {
    Verdict::Overflow(Sizes { unit: Unit::Bytes, ambiguous: true, ..Sizes::default() })
}

/// The verdict of the saying that knows most; earlier ones win ties. One body may hold several
/// errors, of a first backend and of its fallbacks.
fn decide(sayings: &[Saying], status: u16) -> Verdict {
    let mut best = (0, Verdict::Other);
    for saying in sayings.iter().filter(|saying| !saying.vetoed) {
        let verdict = judge(saying, status);
        let weight = match &verdict {
            Verdict::Other => 0,
            Verdict::Overflow(sizes) | Verdict::OutputBudget(sizes) => 1 + known_numbers(sizes),
        };
        if weight > best.0 {
            best = (weight, verdict);
        }
    }
    best.1
}

fn known_numbers(sizes: &Sizes) -> usize {
    [sizes.input, sizes.output, sizes.requested, sizes.limit].iter().flatten().count()
}

fn judge(saying: &Saying, status: u16) -> Verdict {
    if let Some(limit) = saying.silent {
        let sizes = Sizes { limit, scope: Scope::Total, ambiguous: true, silent: true, ..Sizes::default() };
        return Verdict::Overflow(sizes);
    }
    let text = &saying.text;
    if matches!(status, 500 | 503) && !phrases::is_about_length(text, &saying.codes) {
        return Verdict::Other;
    }
    let reading = numbers::read(text).with_fields(&saying.fields);
    match phrases::signal(text, &saying.codes, &reading) {
        Signal::None => Verdict::Other,
        Signal::Bytes => too_many_bytes(),
        Signal::Size(Unit::Tokens) => weigh(text, &reading, status),
        Signal::Size(unit) => Verdict::Overflow(Sizes { unit, ..Sizes::default() }),
    }
}

/// Compares the numbers; `reading` comes from a text that speaks of size.
fn weigh(text: &str, reading: &Reading, status: u16) -> Verdict {
    let mut sizes = Sizes {
        input: reading.input(),
        output: reading.output,
        requested: reading.total,
        limit: reading.limit,
        scope: phrases::scope(text),
        ..Sizes::default()
    };
    if let (None, Some(total), Some(output)) = (sizes.input, sizes.requested, sizes.output) {
        sizes.input = total.checked_sub(output).filter(|_| !reading.lower_bound);
    }
    let speaks_of_output = phrases::speaks_of_output(text);
    if sizes.output.is_none() && !speaks_of_output && phrases::speaks_of_input(text) {
        sizes.input = sizes.input.or(sizes.requested.filter(|_| !reading.lower_bound));
    }
    let Some(limit) = sizes.limit else {
        sizes.ambiguous = speaks_of_output || status == 413 || text.contains("total length");
        return Verdict::Overflow(sizes);
    };
    match (sizes.input, sizes.output) {
        _ if reading.nothing_left => Verdict::Overflow(sizes),
        (Some(input), _) if input >= limit => Verdict::Overflow(sizes),
        (Some(input), Some(output)) => {
            let sum = input.saturating_add(output);
            // vLLM stops counting at limit - output + 1, so that sum may hide any length.
            sizes.ambiguous = sum <= limit.saturating_add(1);
            if sum < limit { Verdict::Overflow(sizes) } else { Verdict::OutputBudget(sizes) }
        }
        (Some(input), None) => match sizes.requested.filter(|total| *total >= limit) {
            Some(total) => {
                sizes.output = total.checked_sub(input);
                Verdict::OutputBudget(sizes)
            }
            None if speaks_of_output => Verdict::OutputBudget(sizes),
            None => {
                sizes.ambiguous = true;
                Verdict::Overflow(sizes)
            }
        },
        (None, Some(_)) => {
            sizes.ambiguous = true;
            Verdict::OutputBudget(sizes)
        }
        (None, None) => {
            sizes.ambiguous = speaks_of_output;
            Verdict::Overflow(sizes)
        }
    }
}
