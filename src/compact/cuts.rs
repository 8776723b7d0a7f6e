//! Where a conversation may be cut: groups that stay whole, and tails that every upstream accepts.
//!
//! Rules: call and result stay together (C1, C2, C12, R1), reasoning stays with all it produced (R4), items of an
//! unknown role stay with both neighbours (P9), calls still open at the end stay in the tail.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use crate::wire::{Conversation, Facts, Item, Role, SlotKind, Standing};

/// Most calls of one answer (C8).
const MOST_CALLS: usize = 128;

/// A call and the result that answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Item that makes the call, and the call's index in its `calls`.
    pub call: (usize, usize),
    /// Item that answers, and the result's index in its `results`; `None` while nothing does.
    pub result: Option<(usize, usize)>,
}

/// All calls in order of appearance, each with its result. Ids may be used again for other calls: a result belongs to
/// the nearest preceding call of its id that has none yet. Legacy function results pair by name.
pub fn pairs(conversation: &Conversation<'_>) -> Vec<Pair> {
    let mut pairs: Vec<Pair> = Vec::new();
    // By id, the items that call it, each with its calls that wait, in order.
    let mut open: HashMap<&str, Vec<(usize, VecDeque<usize>)>> = HashMap::new();
    for (i, item) in conversation.items.iter().enumerate() {
        // Its own calls first: what the provider runs is answered within the item.
        for (c, call) in item.facts.calls.iter().enumerate() {
            let key = if call.id.is_empty() { call.name.as_str() } else { call.id.as_str() };
            let waiting = open.entry(key).or_default();
            match waiting.last_mut().filter(|(from, _)| *from == i) {
                Some((_, calls)) => calls.push_back(pairs.len()),
                None => waiting.push((i, VecDeque::from([pairs.len()]))),
            }
            pairs.push(Pair { call: (i, c), result: None });
        }
        for (r, id) in item.facts.results.iter().enumerate() {
            let Some(waiting) = open.get_mut(id.as_str()) else { continue };
            let Some((_, calls)) = waiting.last_mut() else { continue };
            if let Some(pair) = calls.pop_front().and_then(|answered| pairs.get_mut(answered)) {
                pair.result = Some((i, r));
            }
            if calls.is_empty() {
                waiting.pop();
            }
        }
    }
    pairs
}

/// The smallest units that may be cut, in order; together they are all items.
pub fn groups(conversation: &Conversation<'_>) -> Vec<Range<usize>> {
    let n = conversation.items.len();
    let glued = glued(conversation);
    let mut groups = Vec::new();
    let mut start = 0;
    for k in 1..=n {
        if k == n || glued.get(k) == Some(&false) {
            groups.push(start..k);
            start = k;
        }
    }
    groups
}

/// All `k`, ascending, such that the items before `k` may be replaced by one user message: no group is split and the
/// tail starts with an assistant item (the message stands before it) or with a user text that is not the last item
/// (the message is folded into it; D1, D3, D9, D12). The number of items itself is among them where everything may be
/// folded.
pub fn boundaries(conversation: &Conversation<'_>) -> Vec<usize> {
    let n = conversation.items.len();
    let glued = glued(conversation);
    let free = |k: usize| glued.get(k) == Some(&false);
    (1..=n).filter(|&k| free(k) && (k == n || starts_tail(conversation, k))).collect()
}

/// Whether the whole conversation may become one user message: it ends in no open call, reasoning or unknown item.
pub fn may_fold(conversation: &Conversation<'_>) -> bool {
    let n = conversation.items.len();
    n > 0 && glued(conversation).get(n) == Some(&false)
}

/// The cut with the smallest tail that has at least `keep_tokens`; `counts` are tokens by item. `None` where the
/// conversation has no such tail behind a boundary. The tail is never empty and ends as the conversation does.
pub fn cut_for_tokens(conversation: &Conversation<'_>, counts: &[u32], keep_tokens: u64) -> Option<usize> {
    let cost = |i: usize| counts.get(i).map_or(0, |&tokens| u64::from(tokens));
    cut(conversation, keep_tokens, cost)
}

/// The cut with the smallest tail that has at least `keep_messages` messages, rounded up to a group.
pub fn cut_for_messages(conversation: &Conversation<'_>, keep_messages: usize) -> Option<usize> {
    let cost = |i: usize| conversation.items.get(i).map_or(0, |item| u64::from(is_message(&item.facts)));
    cut(conversation, keep_messages as u64, cost)
}

/// Whether an item counts as a message: it is neither a system message nor reasoning.
pub fn is_message(facts: &Facts) -> bool {
    facts.role != Role::System && !is_reasoning(facts)
}

fn cut(conversation: &Conversation<'_>, keep: u64, cost: impl Fn(usize) -> u64) -> Option<usize> {
    let n = conversation.items.len();
    let (mut tail, mut from) = (0_u64, n);
    boundaries(conversation).into_iter().rev().filter(|&k| k < n).find(|&k| {
        tail += (k..from).map(&cost).sum::<u64>();
        from = k;
        tail >= keep
    })
}

/// For every `k`: whether items `k - 1` and `k` belong together (at the number of items: whether the end is open).
fn glued(conversation: &Conversation<'_>) -> Vec<bool> {
    let n = conversation.items.len();
    let mut change = vec![0_i64; n + 2];
    // Keeps the items `from..=to` together.
    let mut glue = |from: usize, to: usize| {
        if let Some(start) = change.get_mut(from + 1) {
            *start += 1;
        }
        if let Some(end) = change.get_mut(to + 1) {
            *end -= 1;
        }
    };
    let live = live_from(conversation);
    for pair in pairs(conversation) {
        match pair.result {
            Some((result, _)) => glue(pair.call.0, result),
            None if pair.call.0 >= live => glue(pair.call.0, n),
            None => {}
        }
    }
    // What answers a call again stays with the answer before: a call of the provider's with its approval (R2).
    let mut answers: HashMap<&str, usize> = HashMap::new();
    for (i, item) in conversation.items.iter().enumerate() {
        for id in &item.facts.results {
            if let Some(before) =
                answers.insert(id, i).filter(|before| *before < i && item.facts.role == Role::Assistant)
            {
                glue(before, i);
            }
        }
    }
    let mut answer = Answer::Unreasoned;
    for (i, item) in conversation.items.iter().enumerate() {
        if answer.goes_on(item) {
            glue(i - 1, i);
        }
        answer = answer.after(conversation, item);
        match item.facts.role {
            Role::Unknown => glue(i.saturating_sub(1), i + 1),
            _ if is_reasoning(&item.facts) => glue(i, i + 1),
            _ if !item.facts.results.is_empty() && i > 0 => glue(i - 1, i),
            Role::Assistant if i > 0 && answers_on(conversation, i) => glue(i - 1, i),
            _ => {}
        }
    }
    change
        .iter()
        .take(n + 1)
        .scan(0, |open, step| {
            *open += step;
            Some(*open > 0)
        })
        .collect()
}

/// The answer that the last item is of, as far as its reasoning binds what follows (R4).
#[derive(Clone, Copy)]
enum Answer {
    /// Whatever comes is bound to no reasoning that was seen.
    Unreasoned,
    /// All that the model made behind its reasoning, so far with so many calls.
    Reasoned(usize),
    /// The same behind a result: clients answer parallel calls one by one as well, so that a call may still be of it.
    Answered(usize),
}

impl Answer {
    /// Whether `item` is of the same answer, or may be.
    fn goes_on(self, item: &Item) -> bool {
        match self {
            Self::Unreasoned => false,
            Self::Reasoned(_) => item.facts.role == Role::Assistant,
            Self::Answered(calls) => {
                item.facts.role == Role::Assistant && calls < MOST_CALLS && !item.facts.calls.is_empty()
            }
        }
    }

    /// What holds behind `item`. New reasoning begins an answer, and so does what the model says behind a result.
    fn after(self, conversation: &Conversation<'_>, item: &Item) -> Self {
        let facts = &item.facts;
        match (self, facts.role) {
            (_, Role::Assistant) if is_reasoning(facts) => Self::Reasoned(0),
            (Self::Reasoned(calls), Role::Assistant) => Self::Reasoned(calls + facts.calls.len()),
            (Self::Answered(calls), Role::Assistant) if self.goes_on(item) => Self::Answered(calls + facts.calls.len()),
            // Where an answer is one message, what stands behind a result is of another.
            (Self::Reasoned(calls) | Self::Answered(calls), _)
                if !facts.results.is_empty() && conversation.dialect.parts_answers() =>
            {
                Self::Answered(calls)
            }
            _ => Self::Unreasoned,
        }
    }
}

/// Whether item `i` goes on with the answer before it: in Messages the two are one (A5), as where the model paused (A4).
fn answers_on(conversation: &Conversation<'_>, i: usize) -> bool {
    let before = i.checked_sub(1).and_then(|before| conversation.items.get(before));
    conversation.dialect.joins_answers() && before.is_some_and(|item| item.facts.role == Role::Assistant)
}

/// First item of the model's last turn, if only results follow it: a call before it that has no result gets none.
fn live_from(conversation: &Conversation<'_>) -> usize {
    let n = conversation.items.len();
    let mut start = n;
    for (i, item) in conversation.items.iter().enumerate().rev() {
        match item.facts.role {
            Role::Assistant => start = i,
            _ if start < n => break,
            Role::User if item.facts.results.is_empty() => break,
            _ => {}
        }
    }
    start
}

fn starts_tail(conversation: &Conversation<'_>, k: usize) -> bool {
    let Some(item) = conversation.items.get(k) else { return false };
    let facts = &item.facts;
    match facts.role {
        _ if !facts.results.is_empty() => false,
        Role::Assistant => true,
        // A message folded into the last item would change what the model is asked.
        Role::User => k + 1 < conversation.items.len() && facts.slots.iter().any(|slot| slot.kind == SlotKind::Text),
        // A system message right behind the lead is left to the cut before or after it (D5).
        Role::System | Role::Tool | Role::Unknown => false,
    }
}

/// Whether item `index` stays where the first `upto` items are replaced: it sets what the model can do, or is the
/// reasoning of an answer that called for that among them (R4).
pub fn is_kept(conversation: &Conversation<'_>, index: usize, upto: usize) -> bool {
    let upto = upto.min(conversation.items.len());
    let Some((item, behind)) = conversation.items.get(index..upto).and_then(<[_]>::split_first) else { return false };
    let kept = |item: &Item| item.facts.standing == Standing::Kept;
    kept(item) || is_reasoning(&item.facts) && answer_of(conversation, behind).any(kept)
}

/// The calls among the items behind reasoning that are of the same answer, or may be.
fn answer_of<'c>(conversation: &'c Conversation<'_>, behind: &'c [Item]) -> impl Iterator<Item = &'c Item> {
    let of_it = behind.iter().scan(Answer::Reasoned(0), |answer, item| {
        // What the model made and is not of this answer begins another.
        let is_another = item.facts.role == Role::Assistant && !answer.goes_on(item);
        *answer = answer.after(conversation, item);
        (!is_another && !matches!(answer, Answer::Unreasoned)).then_some(item)
    });
    of_it.filter(|item| item.facts.role == Role::Assistant && !item.facts.calls.is_empty())
}

/// Reasoning that stands as an item of its own.
fn is_reasoning(facts: &Facts) -> bool {
    let mut kinds = facts.slots.iter().map(|slot| slot.kind);
    facts.role == Role::Assistant
        && facts.calls.is_empty()
        && facts.media.is_empty()
        && (!facts.signed.is_empty() || kinds.clone().any(|kind| kind == SlotKind::Reasoning))
        && kinds.all(|kind| matches!(kind, SlotKind::Reasoning | SlotKind::Given | SlotKind::Other))
}

#[cfg(test)]
#[path = "tests/cuts.rs"]
pub(crate) mod tests;
