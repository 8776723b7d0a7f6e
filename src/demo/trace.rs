//! What became of the agent's history on its way: read off the bytes that the provider received,
//! not off what the proxy says of itself.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::agent::Run;
use super::client::{Client, Part};
use super::provider::{Exchange, Origin, Verdict};
use super::request::list;

/// Something that happened to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A result was replaced the first time it was sent. Characters.
    Evicted { tool: String, before: usize, after: usize },
    /// Results that had been sent whole before became shorter. Characters.
    Pruned { results: usize, before: usize, after: usize },
    /// Arguments of past calls became shorter. Characters.
    Truncated { calls: usize, before: usize, after: usize },
    /// So many more calls, with their results, are now behind a summary.
    Summarized { calls: usize },
    /// The provider refused so many tokens and then took so many, within one call of the agent's.
    Recovered { refused: u64, accepted: u64 },
}

/// One call of the agent's, as the provider saw it.
#[derive(Debug, Clone, Default)]
pub struct Passage {
    /// Tokens of the prompt that was accepted, and of them from the cache.
    pub sent: u64,
    pub cached: u64,
    pub events: Vec<Event>,
}

/// The agent's calls as they arrived, one for each turn of `run`.
pub fn passages(client: &dyn Client, run: &Run, exchanges: &[Exchange]) -> Vec<Passage> {
    let mut by_step: HashMap<usize, Vec<&Exchange>> = HashMap::new();
    for exchange in exchanges.iter().filter(|exchange| exchange.origin == Origin::Agent) {
        by_step.entry(exchange.step().unwrap_or(usize::MAX)).or_default().push(exchange);
    }
    let items = run.history.iter().map(|text| serde_json::from_str(text).unwrap_or(Value::Null));
    let history: Vec<Vec<Part>> = items.map(|item| client.parts(&item)).collect();
    let mut seen = Seen::default();
    let steps = run.turns.iter().enumerate();
    let passages = steps.map(|(step, turn)| {
        let arrived = by_step.get(&step).map(Vec::as_slice).unwrap_or_default();
        let raw = history.get(..turn.messages).unwrap_or_default().concat();
        passage(client, &raw, arrived, &mut seen)
    });
    passages.collect()
}

/// What was known to be changed before.
#[derive(Default)]
struct Seen {
    sent: HashSet<String>,
    shortened: HashMap<String, usize>,
    truncated: HashMap<String, usize>,
    summarized: HashSet<String>,
}

fn passage(client: &dyn Client, raw: &[Part], arrived: &[&Exchange], seen: &mut Seen) -> Passage {
    let Some(accepted) = arrived.iter().find(|exchange| exchange.verdict == Verdict::Accepted) else {
        return Passage::default();
    };
    let remaining: Vec<Part> =
        list(&accepted.json(), client.list()).iter().flat_map(|item| client.parts(item)).collect();
    let mut events = shortened(raw, &remaining, seen);
    let (sent, cached) = (accepted.usage.prompt, accepted.usage.cached);
    let refused = arrived.iter().find(|exchange| exchange.verdict == Verdict::Overflow);
    events.extend(refused.map(|refused| Event::Recovered { refused: refused.usage.prompt, accepted: sent }));
    Passage { sent, cached, events }
}

fn shortened(raw: &[Part], sent: &[Part], seen: &mut Seen) -> Vec<Event> {
    let results: HashMap<&str, usize> = sent.iter().filter_map(result).collect();
    let remaining: HashMap<&str, usize> = sent.iter().filter_map(arguments).collect();
    let mut events = Vec::new();
    let (mut pruned, mut truncated) = (Sum::default(), Sum::default());
    for (id, before) in raw.iter().filter_map(result) {
        let first = seen.sent.insert(id.to_owned());
        let Some(after) = results.get(id).copied().filter(|after| *after < before) else { continue };
        if seen.shortened.insert(id.to_owned(), after) == Some(after) {
            continue;
        }
        if first {
            events.push(Event::Evicted { tool: tool_of(raw, id), before, after });
        } else {
            pruned.add(before, after);
        }
    }
    let calls = raw.iter().filter_map(arguments);
    let mut summarized = 0;
    for (id, before) in calls {
        match remaining.get(id) {
            None => summarized += usize::from(seen.summarized.insert(id.to_owned())),
            Some(after) if *after < before && seen.truncated.insert(id.to_owned(), *after) != Some(*after) => {
                truncated.add(before, *after);
            }
            Some(_) => {}
        }
    }
    if pruned.count > 0 {
        events.push(Event::Pruned { results: pruned.count, before: pruned.before, after: pruned.after });
    }
    if truncated.count > 0 {
        events.push(Event::Truncated { calls: truncated.count, before: truncated.before, after: truncated.after });
    }
    if summarized > 0 {
        events.push(Event::Summarized { calls: summarized });
    }
    events
}

#[derive(Default)]
struct Sum {
    count: usize,
    before: usize,
    after: usize,
}

impl Sum {
    fn add(&mut self, before: usize, after: usize) {
        self.count += 1;
        self.before += before;
        self.after += after;
    }
}

/// Id and length in characters of a tool result.
fn result(part: &Part) -> Option<(&str, usize)> {
    match part {
        Part::Result { id, text } => Some((id, text.chars().count())),
        Part::Call { .. } => None,
    }
}

/// Id and length in characters of a call's arguments.
fn arguments(part: &Part) -> Option<(&str, usize)> {
    match part {
        Part::Call { id, arguments, .. } => Some((id, arguments.chars().count())),
        Part::Result { .. } => None,
    }
}

fn tool_of(raw: &[Part], of: &str) -> String {
    let tool = raw.iter().find_map(|part| match part {
        Part::Call { id, tool, .. } if id == of => Some(tool),
        _ => None,
    });
    tool.map_or("a tool", String::as_str).to_owned()
}

#[cfg(test)]
#[path = "tests/trace.rs"]
mod tests;
