//! The message that stands for a summarized prefix: where the prefix ends, and what the message says.

use crate::wire::{Conversation, Item, Role};

use super::budget::KeepTail;
use super::compose::{Parts, Story, compose, fold_text, offload_text};
use super::digest::digest;
use super::ledger::ledger;
use super::pins::pins;
use super::plan::{Load, Shape, Situation, checkpoint};
use super::rows::{Checkpoint, Head, Level, Removed, TextId};
use super::tokens::PER_MESSAGE;
use super::{cuts, estimate};

/// Most tokens of the ledger, and its share of the window in percent.
const LEDGER: (u64, u64) = (20_000, 15);
/// Most tokens of pins, and their share of the window in percent.
const PINS: (u64, u64) = (6_000, 8);
/// Most tokens of a digest, and its share of the window in percent.
const DIGEST: (u64, u64) = (2_500, 5);
/// Tokens of the frame around all of it.
const FRAME: u64 = 400;

/// From so many pointers on, the replaced messages are kept anew as one text: each costs some sixty tokens.
const MOST_POINTERS: usize = 8;

/// Where the summary's text comes from.
#[derive(Debug, Clone, Copy)]
pub enum Source<'t> {
    /// A side call's accepted answer.
    Model(&'t str),
    /// The deterministic digest: no model was to be had.
    Digest,
}

/// A bound of `most` tokens, less in a small window.
fn bounded(situation: &Situation, (most, percent): (u64, u64)) -> u64 {
    situation.budget.window.map_or(most, |window| most.min(window.input * percent / 100))
}

/// Tokens (uncalibrated) that the head of the first `cut` items is expected to need, and those of them that stay
/// before it; `items` are those of the request without it.
pub fn expected(situation: &Situation, cut: usize, items: &[u32]) -> u64 {
    let typed = situation.conversation.items.iter().zip(items).take(cut);
    head_of(situation, typed.map(typed_tokens).sum()) + estimate::kept(situation.conversation, items, cut)
}

/// What an item may add to the ledger.
fn typed_tokens((item, tokens): (&Item, &u32)) -> u64 {
    if item.facts.role == Role::User { u64::from(*tokens).min(800) } else { 0 }
}

/// Tokens that a head is expected to need where the ledger needs `typed`.
fn head_of(situation: &Situation, typed: u64) -> u64 {
    typed.min(bounded(situation, LEDGER)) + bounded(situation, DIGEST) + FRAME
}

/// The first item of the tail that a summary made now would keep, so that the request reaches its
/// target; `None` where nothing more can be summarized. A summary made ahead leaves room in the tail
/// for what comes until the trigger is reached.
pub fn cut(situation: &Situation, load: Load) -> Option<usize> {
    let Situation { budget, conversation, .. } = *situation;
    let upto = situation.summarized();
    let items = estimate::per_item(situation, situation.known.active.as_deref());
    let wanted = match budget.keep {
        KeepTail::Messages(keep) => {
            let keep = keep.saturating_sub(to_come(situation, load));
            cuts::cut_for_messages(conversation, keep.max(1))
        }
        KeepTail::Tokens(keep) => {
            let to_come = budget.trigger.map_or(0, |trigger| trigger.saturating_sub(load.tokens));
            let keep = situation.uncalibrated(keep.saturating_sub(to_come)).max(1);
            let by_messages = budget.trigger_messages.map(|trigger| (trigger / 2).max(1));
            let fewest = by_messages.and_then(|keep| cuts::cut_for_messages(conversation, keep));
            cuts::cut_for_tokens(conversation, &items, keep).max(fewest)
        }
    };
    let from = wanted.unwrap_or(0).max(upto + 1);
    let candidates = candidates(situation, from);
    let target = budget.target().map_or(u64::MAX, |target| situation.uncalibrated(target));
    reaching(situation, &candidates, &items, target).or(candidates.last().copied())
}

/// The cuts from item `from` on behind which a tail stays, without those of summaries that the provider refused.
pub fn candidates(situation: &Situation, from: usize) -> Vec<usize> {
    let within = from..situation.conversation.items.len();
    let is_refused = |covers: usize| situation.known.refused.contains(&(covers, Level::Summary));
    let refused = |cut: usize| {
        let covers = covers(situation.conversation, cut);
        is_refused(covers) || is_refused(situation.beyond_active(covers))
    };
    let cuts = cuts::boundaries(situation.conversation).into_iter();
    cuts.filter(|cut| within.contains(cut) && !refused(*cut)).collect()
}

/// How many items a summary of the first `cut` has to speak for: where it is folded into a user message, for that and
/// for what follows it. In a shorter history that message is the one to be answered, and stays as it is.
fn covers(conversation: &Conversation, cut: usize) -> usize {
    let next = conversation.items.get(cut);
    if next.is_some_and(|next| next.facts.role == Role::User) { cut + 2 } else { cut }
}

/// Messages that come until the trigger is reached, if they come in groups like the last one.
fn to_come(situation: &Situation, load: Load) -> usize {
    let missing = situation.budget.trigger_messages.map_or(0, |trigger| trigger.saturating_sub(load.messages));
    let last = smallest_tail(situation).unwrap_or(0);
    let last = situation.conversation.items.iter().skip(last).filter(|item| cuts::is_message(&item.facts)).count();
    missing.next_multiple_of(last.max(1))
}

/// The first of some cuts behind whose head the request has at most `target` uncalibrated tokens;
/// `items` are those of the request without it. What a head costs is estimated first and then measured.
pub fn reaching(situation: &Situation, candidates: &[usize], items: &[u32], target: u64) -> Option<usize> {
    const TRIES: usize = 4;
    let room = target.saturating_sub(situation.overhead());
    // Sums over the first items, so that each candidate costs a look.
    let tokens = sums(items.iter().map(|tokens| u64::from(*tokens)));
    let typed = sums(situation.conversation.items.iter().zip(items).map(typed_tokens));
    let stays = |(index, tokens): (usize, &u32)| match cuts::is_kept(situation.conversation, index, items.len()) {
        true => u64::from(*tokens),
        false => 0,
    };
    let kept = sums(items.iter().enumerate().map(stays));
    let upto = |sums: &[u64], k: usize| sums.get(k).or(sums.last()).copied().unwrap_or(0);
    // With what stays before the head, whatever the cut.
    let tail = |k: usize| upto(&tokens, items.len()) - upto(&tokens, k) + upto(&kept, k);
    let mut least = 0;
    let mut found = None;
    for _ in 0..TRIES {
        let fits = |k: &usize| tail(*k).saturating_add(head_of(situation, upto(&typed, *k)).max(least)) <= room;
        let cut = candidates.iter().copied().find(fits)?;
        found = Some(cut);
        let head = measured(situation, cut);
        if tail(cut).saturating_add(head) <= room {
            break;
        }
        least = head;
    }
    found
}

/// 0, and the sum after each number.
fn sums(numbers: impl Iterator<Item = u64>) -> Vec<u64> {
    let running = numbers.scan(0_u64, |sum, number| {
        *sum = sum.saturating_add(number);
        Some(*sum)
    });
    std::iter::once(0).chain(running).collect()
}

/// Tokens of the head of the first `cut` items with a record as long as a digest may be.
fn measured(situation: &Situation, cut: usize) -> u64 {
    let said = Said::of(situation, cut, String::new(), Source::Digest);
    situation.tokens.count_text(&compose(&said.parts())) + bounded(situation, DIGEST) + PER_MESSAGE
}

/// The smallest tail that any cut leaves, as its first item.
pub fn smallest_tail(situation: &Situation) -> Option<usize> {
    let count = situation.conversation.items.len();
    cuts::boundaries(situation.conversation).into_iter().rfind(|k| *k < count && *k > situation.summarized())
}

/// A checkpoint in which one message stands for the first `cut` items, with the texts it took out.
pub fn summary(situation: &Situation, cut: usize, source: Source) -> Option<(Checkpoint, Vec<Removed>)> {
    let story = record(situation, cut, source);
    let said = Said::of(situation, cut, story, source);
    let text = compose(&said.parts());
    let (head, removed) = said.into_head(cut, text);
    situation.conversation.items.get(cut)?;
    let covers = covers(situation.conversation, cut);
    let shape = Shape { level: Level::Summary, covers, head: Some(head), edits: Vec::new() };
    Some((checkpoint(situation, shape), removed))
}

/// A checkpoint in which one message stands for the whole history, the latest results in it up to
/// `keep` tokens; `None` where calls are still open.
pub fn fold(situation: &Situation, source: Source, keep: u64) -> Option<(Checkpoint, Vec<Removed>)> {
    let count = situation.conversation.items.len();
    if !cuts::may_fold(situation.conversation) {
        return None;
    }
    let story = record(situation, count, source);
    let said = Said::of(situation, count, story, source);
    let counter = |text: &str| situation.tokens.count_text(text) as usize;
    let text = fold_text(situation.conversation, &said.parts(), keep as usize, &counter);
    let (head, removed) = said.into_head(count, text);
    let head = Head { asks: true, ..head };
    let shape = Shape { level: Level::Fold, covers: count, head: Some(head), edits: Vec::new() };
    Some((checkpoint(situation, shape), removed))
}

/// What a summary made ahead says, and a digest of what came after it; `None` where there is none.
pub fn story_ahead(situation: &Situation) -> Option<String> {
    let prepared = situation.known.prepared.as_deref()?.head.as_ref()?;
    let count = situation.conversation.items.len();
    let from = prepared.upto.max(situation.summarized()).min(count);
    let newer = prepared.upto > situation.summarized();
    let counter = |text: &str| situation.tokens.count_text(text) as usize;
    let rest = digest(situation.conversation, from..count, bounded(situation, DIGEST) as usize, &counter);
    newer.then(|| format!("{}\n\nWhat came after that, recorded without a model:\n\n{rest}", prepared.summary.trim()))
}

/// The first `upto` items alone: a head is the same whatever came after what it replaces, since the client
/// may go back to where that was not there.
fn replaced<'b>(conversation: &Conversation<'b>, upto: usize) -> Conversation<'b> {
    let items = conversation.items.iter().take(upto).cloned().collect();
    Conversation {
        dialect: conversation.dialect,
        body: conversation.body,
        fields: conversation.fields.clone(),
        lead: conversation.lead.clone(),
        settled: conversation.settled.clone(),
        superseded: Vec::new(),
        items,
    }
}

fn record(situation: &Situation, upto: usize, source: Source) -> String {
    let counter = |text: &str| situation.tokens.count_text(text) as usize;
    let replaced = replaced(situation.conversation, upto);
    match source {
        Source::Model(text) => text.to_owned(),
        Source::Digest => digest(&replaced, 0..upto, bounded(situation, DIGEST) as usize, &counter),
    }
}

/// What a head says of the first items, and the texts behind its pointers.
struct Said<'s> {
    ledger: super::ledger::Ledger,
    pins: super::pins::Pins,
    story: String,
    source: Source<'s>,
    pointers: Vec<TextId>,
    offloaded: Option<Removed>,
}

impl<'s> Said<'s> {
    fn of(situation: &Situation, upto: usize, story: String, source: Source<'s>) -> Self {
        let counter = |text: &str| situation.tokens.count_text(text) as usize;
        let key = situation.key;
        let conversation = &replaced(situation.conversation, upto);
        let offload = situation.strategies.compaction.as_ref().is_some_and(|settings| settings.offload_before_compact);
        let earlier = situation.known.active.as_deref().and_then(|active| active.head.as_ref());
        // The kept texts are all of the replaced messages, or none: also where offloading was off for a while.
        let earlier = earlier.filter(|head| offload && head.upto <= upto);
        let earlier = earlier.filter(|head| (1..MOST_POINTERS).contains(&head.offloaded.len()));
        let from = earlier.map_or(0, |head| head.upto);
        let mut pointers = earlier.map_or_else(Vec::new, |head| head.offloaded.clone());
        let offloaded = offload.then(|| key.removed(offload_text(conversation, from..upto)));
        pointers.extend(offloaded.as_ref().map(|removed| removed.id));
        Self {
            ledger: ledger(conversation, upto, bounded(situation, LEDGER) as usize, key, &counter),
            pins: pins(conversation, bounded(situation, PINS) as usize, key),
            story,
            source,
            pointers,
            offloaded,
        }
    }

    fn parts(&self) -> Parts<'_> {
        let story = match self.source {
            Source::Model(_) => Story::Summary(&self.story),
            Source::Digest => Story::Digest(&self.story),
        };
        Parts { ledger: &self.ledger, pins: &self.pins.pins, story, pointers: &self.pointers }
    }

    fn into_head(self, upto: usize, text: String) -> (Head, Vec<Removed>) {
        let mut removed = self.ledger.removed;
        removed.extend(self.pins.removed);
        removed.extend(self.offloaded);
        (Head { upto, text, summary: self.story, offloaded: self.pointers, asks: false }, removed)
    }
}
