//! That the model itself read a removed text back: by what the provider received and what the agent was sent.

use super::agent::{Agent, Run};
use super::client::{self, Part};
use super::content::NEEDLE;
use super::provider::{Exchange, Origin, Verdict};
use super::reader::{READER, goes_on};

/// A text that was out of sight, and then part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recalled {
    /// The agent's call within which it was read; counted from one.
    pub call: usize,
    /// Model calls that it took.
    pub rounds: usize,
    /// The text's id, as the model had it.
    pub id: String,
    pub kept: Kept,
    /// Bytes of the whole text.
    pub bytes: usize,
    /// Characters that the model read of it.
    pub page: usize,
    /// The agent has the line from the model alone, and in the answer to this call.
    pub told: bool,
    /// Nothing that the agent was sent names the tool.
    pub unseen: bool,
}

/// What a text is that was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// The result of one call.
    Result,
    /// Messages that a summary stands for, with the calls' results in them.
    Messages,
}

/// What came of the one occasion that the session has; `text`: the text behind an id.
pub async fn recalled(
    agent: &Agent,
    run: &Run,
    exchanges: &[Exchange],
    text: impl AsyncFn(&str) -> Option<String>,
) -> Option<Recalled> {
    let own = exchanges.iter().filter(|exchange| exchange.origin == Origin::Agent);
    let accepted: Vec<&Exchange> = own.filter(|exchange| exchange.verdict == Verdict::Accepted).collect();
    let read = |exchange: &&Exchange| goes_on(&exchange.request()?).zip(exchange.step());
    let ((arguments, page), step) = accepted.iter().rev().find_map(read)?;
    let rounds: Vec<&Exchange> = accepted.into_iter().filter(|exchange| exchange.step() == Some(step)).collect();
    let shows = |exchange: &Exchange| memchr::memmem::find(&exchange.body, NEEDLE.as_bytes()).is_some();
    if rounds.first().is_none_or(|first| shows(first)) || !page.contains(NEEDLE) {
        return None;
    }
    let arguments: serde_json::Value = serde_json::from_str(&arguments).ok()?;
    let id = arguments.get("id")?.as_str()?.to_owned();
    let text = text(&id).await.filter(|text| text.contains(NEEDLE))?;
    Some(Recalled {
        call: step + 1,
        rounds: rounds.len(),
        id,
        kept: if agent.session.long_log() == Some(text.as_str()) { Kept::Result } else { Kept::Messages },
        bytes: text.len(),
        page: page.chars().count(),
        told: told(agent, run, step),
        unseen: run.turns.iter().all(|turn| memchr::memmem::find(&turn.answer, READER.as_bytes()).is_none()),
    })
}

/// Whether the line is among what the agent took from the answer of a step.
fn told(agent: &Agent, run: &Run, step: usize) -> bool {
    let length = |turn: usize| run.turns.get(turn).map(|turn| turn.messages);
    let (Some(from), Some(to)) = (length(step), length(step + 1)) else { return false };
    let taken = run.history.get(from..to).unwrap_or_default();
    let client = client::of(agent.api);
    taken.iter().any(|item| {
        let parts = serde_json::from_str(item).map(|item| client.parts(&item)).unwrap_or_default();
        item.contains(NEEDLE) && !parts.iter().any(|part| matches!(part, Part::Result { .. }))
    })
}
