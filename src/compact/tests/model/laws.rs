//! The proxy's own laws (L1, L4, L5), which must hold of every turn.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use serde_json::Value;

use crate::compact::binding;
use crate::compact::cuts::is_kept;
use crate::compact::plan::{Actions, Need};
use crate::compact::render::render;
use crate::compact::rows::{Checkpoint, Known, Remembered, TextId};
use crate::wire::memo::Memo;
use crate::wire::{self, Conversation, Digest};

use super::blocks::{self, unmarked};
use super::history::Message;
use super::items::dialect;
use super::judge::Judge;
use super::states;
use super::store::Store;
use super::turn::Turn;
use super::world::{World, written};

/// L1, L5: what is not replaced is as the client wrote it; what is can be read back exactly.
pub fn recoverable(world: &World, turn: &Turn, messages: &[Message]) {
    if turn.rendering.edits.is_empty() {
        assert_eq!(turn.out, turn.raw);
        return;
    }
    let (raw, out) = (read(&turn.raw), read(&turn.out));
    assert_eq!(turn.raw[..raw.items[0].span.start], turn.out[..raw.items[0].span.start]);
    let rest = |conversation: &Conversation| conversation.items.last().unwrap().span.end;
    assert_eq!(turn.raw[rest(&raw)..], turn.out[rest(&out)..]);

    let head = turn.known.active.as_deref().and_then(|active| active.head.as_ref());
    let upto = head.map_or(0, |head| head.upto);
    let own = out.items.len() + upto - raw.items.len();
    let kept = (0..upto).filter(|i| is_kept(&raw, *i, upto)).count();
    assert!(own <= usize::from(head.is_some()) + kept, "{own} new messages, {kept} of them kept");
    for index in upto..raw.items.len() {
        let sent = out.raw(index + own - upto);
        // How many new messages there are does not tell: one that is kept and comes to stand first leads the conversation.
        let bears = |item: &[u8]| memchr::memmem::find(item, b"<compactproxy-notice-").is_some();
        let here = index == upto && bears(sent) && !bears(raw.raw(index));
        let folded = head.filter(|_| here).map(|head| head.text.as_str());
        if !replaced(turn, &raw, index) && folded.is_none() {
            assert_eq!(raw.raw(index), sent, "item {index} changed without a row");
        }
        if turn.stored {
            same_or_removed(&world.store, &json(raw.raw(index)), &json(sent), folded.unwrap_or_default());
        }
    }
    if turn.stored {
        let text = String::from_utf8_lossy(&turn.out).into_owned();
        ids(&text).iter().for_each(|id| assert!(world.store.texts.contains_key(id), "id {id} is unknown"));
        // A summary that was made for this very request keeps what it replaces, or nothing, as is configured.
        let made_now = matches!(turn.proposal.summary, Need::Now { .. }) && turn.recovery.is_none();
        let before = turn.before.active.as_deref().and_then(|active| active.head.as_ref());
        if let (Some(head), Some(settings)) =
            (head.filter(|_| made_now && head != before), &world.strategies.compaction)
        {
            assert_eq!(!head.offloaded.is_empty(), settings.offload_before_compact);
        }
        let complete = turn.known.active.as_deref().map_or(0, Checkpoint::summarized);
        if let Some(head) = head.filter(|head| !head.offloaded.is_empty()) {
            let kept: String = head.offloaded.iter().map(|id| world.store.texts[id].clone()).collect();
            // What a compaction of the provider's settled is no item any more.
            let replaced = messages.iter().skip(messages.len() - raw.items.len()).take(complete);
            let replaced = replaced.map(|message| format!("{}\n", message.json));
            assert_eq!(unmarked(kept.as_bytes()), unmarked(replaced.collect::<String>().as_bytes()));
        }
    }
}

pub fn replaced(turn: &Turn, conversation: &Conversation, index: usize) -> bool {
    let active = turn.known.active.as_deref().map_or(&[][..], |active| &active.edits);
    let without_thoughts = turn.known.active.as_deref().is_some_and(|active| {
        !conversation.items[index].facts.signed.is_empty() && binding::left_out(conversation, active).contains(&index)
    });
    turn.known.evictions.contains_key(&conversation.items[index].chain)
        || active.iter().any(|(item, _)| *item == index)
        || without_thoughts
}

/// Equal, or with strings of which the ids in them give the original.
fn same_or_removed(store: &Store, whole: &Value, sent: &Value, head: &str) {
    match (whole, sent) {
        (Value::Array(whole), Value::Array(sent)) => {
            // What stays of replaced messages stands at the end of the turn that the head is in (A21).
            let moved = |block: &Value| !head.is_empty() && blocks::is_change(block) && !whole.contains(block);
            let sent: Vec<Value> = sent.iter().filter(|block| !moved(block)).cloned().collect();
            // A block of its own in front.
            let own = sent.first().is_some_and(|block| !head.is_empty() && block["text"] == head.trim_end());
            let (sent, mut head) = if own { (&sent[1..], "") } else { (&sent[..], head) };
            let kept = |block: &&Value| sent.iter().any(blocks::is_thought) || !blocks::is_thought(block);
            let whole: Vec<&Value> = whole.iter().filter(kept).collect();
            assert_eq!(whole.len(), sent.len());
            for (whole, sent) in whole.into_iter().zip(sent) {
                let here = std::mem::take(&mut head);
                let folded = !here.is_empty() && sent.to_string().contains("compactproxy-notice");
                same_or_removed(store, whole, sent, if folded { here } else { "" });
                head = if folded { "" } else { here };
            }
        }
        // Blocks stand beside what was a string.
        (Value::String(text), Value::Array(_)) if !head.is_empty() => {
            same_or_removed(store, &serde_json::json!([{ "type": "text", "text": text }]), sent, head);
        }
        (Value::Object(_), Value::Object(_)) if whole["type"] != sent["type"] => medium(store, whole, sent),
        (Value::Object(whole), Value::Object(sent)) => {
            let keys = |object: &serde_json::Map<String, Value>| object.keys().cloned().collect::<Vec<_>>();
            assert_eq!(keys(whole), keys(sent));
            for (key, whole) in whole {
                let head = if matches!(key.as_str(), "content" | "text") { head } else { "" };
                same_or_removed(store, whole, &sent[key], head);
            }
        }
        (Value::String(whole), Value::String(sent)) => text(store, whole, sent, head),
        (whole, sent) => assert_eq!(whole, sent),
    }
}

/// A picture or file may be a note with the id of its JSON; a breakpoint stays (A16).
fn medium(store: &Store, whole: &Value, sent: &Value) {
    assert_eq!(whole.get("cache_control"), sent.get("cache_control"));
    let bare = |value: &Value| {
        let mut members = value.as_object().cloned().unwrap_or_default();
        members.remove("cache_control");
        members
    };
    let is = |text: &String| serde_json::from_str(text).is_ok_and(|kept: Value| bare(&kept) == bare(whole));
    let found = ids(sent["text"].as_str().unwrap()).iter().any(|id| store.texts.get(id).is_some_and(is));
    assert!(found, "no id in {sent} gives {whole}");
}

fn text(store: &Store, whole: &str, sent: &str, head: &str) {
    let sent = sent.strip_prefix(head).unwrap_or(sent);
    let sent = if head.is_empty() { sent } else { sent.trim_start_matches('\n') };
    if whole == sent || whole.trim_start_matches('\n') == sent {
        return;
    }
    if let (Ok(whole @ Value::Object(_)), Ok(sent)) = (serde_json::from_str(whole), serde_json::from_str(sent)) {
        return same_or_removed(store, &whole, &sent, "");
    }
    assert!(!sent.is_empty());
    let found = ids(sent).iter().any(|id| store.texts.get(id).is_some_and(|text| text == whole));
    assert!(found, "no id in {sent:?} gives {whole:?}");
    assert!(serde_json::from_str::<Value>(whole).is_err(), "arguments that parsed no longer do: {sent}");
}

fn ids(text: &str) -> Vec<TextId> {
    text.match_indices("id ").filter_map(|(at, _)| text.get(at + 3..at + 35)?.parse().ok()).collect()
}

/// The user's rules, the latest list and plan, what still runs and the latest refusal stand in the body, whatever a
/// summarizer said.
pub fn remembered(turn: &Turn, messages: &[Message]) {
    let mut strings = String::new();
    collect(&json(&turn.out), &mut strings);
    for rule in messages.iter().filter_map(|message| message.rule.as_ref()) {
        assert!(strings.contains(rule), "{rule} is gone");
    }
    for state in states::in_force(messages) {
        assert!(strings.contains(state), "{state} is gone");
    }
}

fn collect(value: &Value, into: &mut String) {
    match value {
        Value::String(text) => into.push_str(text),
        Value::Array(values) => values.iter().for_each(|value| collect(value, into)),
        Value::Object(members) => members.values().for_each(|value| collect(value, into)),
        _ => {}
    }
}

/// L4: what both turns' clients sent alike is sent alike, as long as the same checkpoint is active.
pub fn frozen(world: &World, before: Option<&Turn>, turn: &Turn) {
    // What the provider refused is in force no more.
    if turn.original {
        return;
    }
    let conversation = wire::read(dialect(&turn.raw), &turn.raw, &Memo::new(0), [9; 16]).unwrap();
    let known = if turn.stored { world.store.known(&conversation) } else { turn.known.clone() };
    assert_eq!(written(&turn.raw, &render(&conversation, &known)), turn.out, "other bytes after a restart");
    let Some(before) = before.filter(|before| !before.original && before.known.active == turn.known.active) else {
        return;
    };
    let (old, new) = (read(&before.raw), read(&turn.raw));
    let (old_out, new_out) = (read(&before.out), read(&turn.out));
    let alike = |i: &usize| unmarked(old.raw(*i)) == unmarked(new.raw(*i));
    let common = (0..old.items.len().min(new.items.len())).take_while(alike).count();
    let upto = turn.known.active.as_deref().map_or(0, Checkpoint::summarized);
    let own = old_out.items.len() + upto - old.items.len();
    for index in 0..(common + own).saturating_sub(upto) {
        let (old, new) = (old_out.raw(index), new_out.raw(index));
        assert_eq!(unmarked(old), unmarked(new), "item {index} was not frozen");
    }
}

/// L5: what went whole stays whole until a checkpoint covers it.
pub fn stays_whole(whole: &mut HashSet<Digest>, turn: &Turn) {
    let raw = read(&turn.raw);
    let covers = turn.known.active.as_deref().map_or(0, |active| active.covers);
    for (index, item) in raw.items.iter().enumerate() {
        let rewritten = replaced(turn, &raw, index);
        if index >= covers {
            assert!(!(rewritten && whole.contains(&item.chain)), "item {index} went whole before");
        }
        if !rewritten {
            whole.insert(item.chain);
        }
    }
}

/// A section that is off plans nothing; the message that waits for an answer is only evicted or recovered.
pub fn only_what_is_on(world: &World, turn: &Turn) {
    let (on, proposal) = (&world.strategies, &turn.proposal);
    let Actions { evicted, truncated, pruned, summarized, folded, .. } = proposal.actions;
    assert!(on.eviction.is_some() || (!evicted && proposal.evictions.is_empty()));
    assert!(on.truncate.is_some() || !truncated);
    assert!(on.prune.is_some() || !pruned);
    assert!(on.compaction.is_some() || (!summarized && !folded && proposal.summary == Need::No));
    if turn.before == crate::compact::Known::default()
        && proposal.evictions.is_empty()
        && proposal.checkpoint.is_none()
        && proposal.summary == Need::No
        && turn.recovery.is_none()
    {
        assert!(turn.rendering.edits.is_empty());
    }
    if turn.recovery.is_some() {
        return;
    }
    let (raw, out) = (read(&turn.raw), read(&turn.out));
    let last = raw.items.len() - 1;
    let recovered = turn.known.active.as_deref().is_some_and(|active| active.covers == raw.items.len());
    if !turn.known.evictions.contains_key(&raw.items[last].chain) && !recovered {
        assert_eq!(raw.raw(last), out.raw(out.items.len() - 1));
    }
}

/// What memory said at the beginning stands once in the body, whatever became of the first items, and changes nothing
/// else; the body stays valid.
pub fn begun_with_memory(judge: &Judge, turn: &Turn) {
    const NOTE: &str = "what memory said";
    let conversation = read(&turn.raw);
    if conversation.opening().is_empty() {
        return;
    }
    let remembered = Some(Arc::new(Remembered { text: NOTE.into(), tokens: 3 }));
    let known = Known { remembered, ..turn.known.clone() };
    let out = written(&turn.raw, &render(&conversation, &known));
    let (without, with) = (read(&turn.out), read(&out));
    assert_eq!(without.items.len(), with.items.len());
    let changed: Vec<usize> = (0..with.items.len()).filter(|&i| without.raw(i) != with.raw(i)).collect();
    let [at] = changed[..] else { panic!("items {changed:?} were changed") };
    let text = |conversation: &Conversation, at: usize| {
        let mut strings = String::new();
        collect(&json(conversation.raw(at)), &mut strings);
        strings
    };
    let (without, with) = (text(&without, at), text(&with, at));
    assert_eq!(with.matches(NOTE).count(), 1);
    let rest = with.replacen(&format!("{NOTE}\n\n"), "", 1).replacen(NOTE, "", 1);
    // In Messages a string becomes two blocks, each of which says that it is text.
    let bare = |text: &str| text.replace("text", "");
    assert_eq!(bare(&rest), bare(&without));
    judge.accepts_else(&turn.raw, &out);
}

/// Recovery's own promises.
pub fn recovered(world: &World, turn: &Turn) {
    let Some(recovery) = turn.recovery.as_ref().filter(|_| !turn.original) else { return };
    let Some(rung) = &recovery.rung else {
        assert_eq!(turn.sent, recovery.first);
        return;
    };
    assert_ne!(turn.sent, recovery.first, "replayed with the same body");
    let Some(goal) = recovery.goal else {
        return assert!(turn.sent.len() < recovery.first.len(), "not fewer bytes");
    };
    assert!(rung.tokens < goal.limit && rung.tokens < turn.load.tokens);
    assert!(world.count(&turn.sent) < world.count(&recovery.first), "not smaller");
}

pub fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// Reads through a memory: the bodies of a session are read many times.
pub fn read(body: &[u8]) -> Conversation<'_> {
    static MEMO: LazyLock<Memo> = LazyLock::new(|| Memo::new(1 << 24));
    wire::read(dialect(body), body, &MEMO, [2; 16]).unwrap()
}
