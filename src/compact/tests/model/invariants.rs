//! What must hold of every body that is neither a law of the proxy's own nor a rule of a provider.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::compact::binding;
use crate::compact::cuts::is_kept;
use crate::compact::plan::Need;
use crate::compact::rows::{Checkpoint, Known, Level};
use crate::config::SignedThinking;
use crate::wire::{Conversation, Dialect, Role, Sight, SlotKind};

use super::judge::is_novel;
use super::laws::{json, read, replaced};
use super::turn::Turn;
use super::world::World;

pub fn all(world: &World, turn: &Turn) {
    let (raw, out) = (read(&turn.raw), read(&turn.out));
    paired(&raw, &out);
    if raw.dialect == Dialect::Chat {
        in_order(turn, &raw, &out);
    }
    turn_is_whole(world, turn, (&raw, &out));
    spliced(turn, &raw, &out);
    novel_survives(turn, &raw, &out);
    smaller(world, turn);
    output_only_lowered(turn);
}

/// §6.1: every call that is sent has its result, unless the client's own had none; and every result its call.
pub fn paired(raw: &Conversation, out: &Conversation) {
    let unanswered = |conversation: &Conversation| {
        let mut open: BTreeMap<String, i64> = BTreeMap::new();
        for item in conversation.settled.iter().chain(&conversation.items) {
            for call in &item.facts.calls {
                let id = if call.id.is_empty() { &call.name } else { &call.id };
                *open.entry(id.clone()).or_default() += 1;
            }
            // An approval is answered again by the call that it was for.
            let once = item.facts.results.iter().take(1.max(item.facts.results.len() - approvals(&item.facts.results)));
            once.for_each(|id| *open.entry(id.clone()).or_default() -= 1);
        }
        open.retain(|_, count| *count != 0);
        open
    };
    let (before, after) = (unanswered(raw), unanswered(out));
    assert!(after.iter().all(|open| before.get(open.0) == Some(open.1)), "{after:?}, but {before:?} in the input");
}

fn approvals(results: &[String]) -> usize {
    results.iter().filter(|id| id.starts_with("mcpr_")).count()
}

/// §6.2: what stands for the first items is a user's, and no assistant's message or tool's result is moved next to
/// another.
pub fn in_order(turn: &Turn, raw: &Conversation, out: &Conversation) {
    assert_eq!(out.items[0].facts.role, Role::User);
    let upto = summarized(turn);
    if upto == 0 || upto == raw.items.len() {
        return;
    }
    let behind = |conversation: &Conversation, at: usize| conversation.items.get(at).map(|item| item.facts.role);
    let at = out.items.len() - (raw.items.len() - upto);
    assert_eq!(behind(out, at), behind(raw, upto), "the tail begins otherwise");
    match at {
        0 => assert_eq!(behind(out, 0), Some(Role::User), "folded into no user's message"),
        _ => assert_eq!(behind(out, at), Some(Role::Assistant), "no answer behind the head"),
    }
}

/// §6.3: in the turn that goes on, where thinking is signed, nothing is touched but first-sight evictions; or all of it
/// is folded.
pub fn turn_is_whole(world: &World, turn: &Turn, (raw, out): (&Conversation, &Conversation)) {
    let Some(active) = turn.known.active.as_deref() else { return };
    let Some(start) = raw.turn(raw.items.len()) else { return };
    let signed = raw.items.iter().skip(start).any(|item| !item.facts.signed.is_empty());
    let folded = active.level == Level::Fold || world.strategies.signed_thinking == SignedThinking::Dropped;
    if !signed || folded || turn.original {
        return;
    }
    let evicted = Known { active: None, ..turn.known.clone() };
    let evicted = super::world::written(&turn.raw, &crate::compact::render::render(raw, &evicted));
    let evicted = read(&evicted);
    // What a checkpoint speaks for was there before the turn's first thought.
    let first = start.max(active.covers);
    for (index, behind) in (first..raw.items.len()).rev().zip(1..) {
        assert_eq!(evicted.raw(index), out.raw(out.items.len() - behind), "item {index} of the turn that goes on");
    }
}

/// §6.4: of a history that is not all in sight only new results are evicted; where the provider compacts it, nothing
/// is planned.
pub fn out_of_sight(turn: &Turn) {
    let raw = read(&turn.raw);
    let asks = crate::compact::client_compaction::asks_for_it(&raw);
    if raw.sight() == Sight::Partial || raw.fields.managed || asks {
        assert!(turn.proposal.checkpoint.is_none() && turn.proposal.summary == Need::No);
    }
    if asks {
        assert!(turn.proposal.evictions.is_empty());
    }
    if raw.sight() == Sight::Partial {
        assert!(turn.recovery.as_ref().is_none_or(|recovery| recovery.rung.is_none()));
        let evicted = |index: &usize| turn.known.evictions.contains_key(&raw.items[*index].chain);
        let out = read(&turn.out);
        let changed = (0..raw.items.len()).filter(|index| raw.raw(*index) != out.raw(*index));
        assert!(changed.into_iter().all(|index| evicted(&index)));
    }
}

/// §6.6: of what is changed, nothing but texts: every byte outside of strings is the client's.
pub fn spliced(turn: &Turn, raw: &Conversation, out: &Conversation) {
    let (upto, n) = (summarized(turn), raw.items.len());
    let active = turn.known.active.as_deref();
    let thinking = active.map_or(0..0, |active| binding::left_out(raw, active));
    let media = |index: usize| {
        let edits = active.map_or(&[][..], |active| &active.edits);
        let slots = &raw.items[index].facts.slots;
        edits.iter().any(|(item, edit)| *item == index && slots[edit.slot].kind == SlotKind::Media)
    };
    let own = out.items.len() + upto - n;
    let head = active.and_then(|active| active.head.as_ref());
    let kept = (0..upto).filter(|index| is_kept(raw, *index, upto)).count();
    for index in upto..n {
        let folded = head.is_some() && index == upto && own == kept;
        if replaced(turn, raw, index) && !thinking.contains(&index) && !media(index) && !folded {
            let sent = out.raw(index + own - upto);
            assert_eq!(outside_strings(raw.raw(index)), outside_strings(sent), "item {index} has another structure");
        }
    }
}

/// JSON without what its strings say.
fn outside_strings(json: &[u8]) -> String {
    let (mut inside, mut escaped) = (false, false);
    let outside = json.iter().filter(|&&byte| {
        let was = inside;
        match byte {
            _ if escaped => escaped = false,
            b'\\' if inside => escaped = true,
            b'"' => inside = !inside,
            _ => {}
        }
        !was || !inside
    });
    outside.map(|byte| char::from(*byte)).collect()
}

/// §6.9: what is of an unknown type is sent as it is, unless a head stands for it.
pub fn novel_survives(turn: &Turn, raw: &Conversation, out: &Conversation) {
    let novel = |conversation: &Conversation, from: usize| {
        let items = (from..conversation.items.len()).map(|index| json(conversation.raw(index)));
        let blocks = items.flat_map(|item| match item["content"].as_array() {
            Some(blocks) => blocks.clone(),
            None => vec![item],
        });
        blocks.filter(is_novel).map(|block| without_texts(&block)).collect::<Vec<_>>()
    };
    let from = out.items.len() + summarized(turn) - raw.items.len();
    assert_eq!(novel(raw, summarized(turn)), novel(out, from));
}

/// What a call says beside what a tool said and was given.
fn without_texts(value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(members) = value.as_object_mut() {
        members.retain(|key, _| !matches!(key.as_str(), "output" | "cache_control"));
    }
    value
}

/// §6.7: what is planned makes a request smaller.
pub fn smaller(world: &World, turn: &Turn) {
    // Where bytes are too many pictures go: they have few tokens.
    let by_bytes = turn.recovery.as_ref().is_some_and(|recovery| recovery.goal.is_none());
    if turn.known.active.is_some() && turn.known.active != turn.before.active && !by_bytes {
        let (raw, out) = (world.count(&turn.raw), world.count(&turn.out));
        assert!(out < raw, "{raw} became {out}: {:?}", turn.proposal.actions);
    }
}

/// §6.10: an output limit is lowered or as it was; nothing else differs from what the rows make of the body but the
/// provider's own option.
pub fn output_only_lowered(turn: &Turn) {
    const LIMITS: [&str; 3] = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
    let (mut out, mut sent) = (json(if turn.original { &turn.raw } else { &turn.out }), json(&turn.sent));
    let least = out.pointer("/thinking/budget_tokens").and_then(Value::as_u64).map_or(3_000, |budget| budget + 1);
    for limit in LIMITS {
        let (before, after) = (out.get(limit).and_then(Value::as_u64), sent.get(limit).and_then(Value::as_u64));
        let lowered = before.zip(after).is_some_and(|(before, after)| after < before && after >= least.max(3_000));
        assert!(before == after || lowered, "{limit}: {before:?} became {after:?}");
        [&mut out, &mut sent].into_iter().for_each(|body| drop(body.as_object_mut().unwrap().remove(limit)));
    }
    if let Some(thinking) = sent.get_mut("thinking").and_then(Value::as_object_mut) {
        thinking.remove("block_binding");
    }
    assert_eq!(out, sent);
}

fn summarized(turn: &Turn) -> usize {
    turn.known.active.as_deref().map_or(0, Checkpoint::summarized)
}
