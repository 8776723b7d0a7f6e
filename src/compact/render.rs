//! From a conversation and its activated rows to the edits of its body. Looks at nothing else:
//! the same history and the same rows give the same bytes, after any restart and under any
//! configuration (L4).

use std::borrow::Cow;

use crate::wire::splice::Edit;
use crate::wire::{Conversation, Sight, SlotKind};

use super::binding;
use super::cuts::is_kept;
use super::estimate::in_force;
use super::pictures;
use super::rows::{Checkpoint, Head, Known, Replacement};

/// The edits that bring a body to the form its activated rows ask for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rendering {
    pub edits: Vec<Edit>,
    /// An eviction was replayed.
    pub evicted: bool,
    /// A checkpoint was applied.
    pub checkpoint: bool,
}

/// Renders `conversation` under `known`. Rows that do not fit the items contribute nothing.
pub fn render(conversation: &Conversation, known: &Known) -> Rendering {
    let active = known.active.as_deref().filter(|checkpoint| fits(checkpoint, conversation));
    let head = active.and_then(|checkpoint| checkpoint.head.as_ref());
    let mut rendering = Rendering { checkpoint: active.is_some(), ..Rendering::default() };
    let remembered = known.remembered.as_deref().map_or("", |remembered| &remembered.text);
    if active.is_none() && known.evictions.is_empty() && remembered.is_empty() {
        return rendering;
    }
    let place = active.zip(head).and_then(|(checkpoint, head)| place(conversation, checkpoint, (head, remembered)));
    let upto = head.map_or(0, |head| head.upto);
    for (index, item) in conversation.items.iter().enumerate().skip(upto) {
        let eviction = known.evictions.get(&item.chain).map(|eviction| &**eviction);
        for replacement in in_force(active, eviction, index) {
            let Some(edit) = replace(conversation, index, replacement) else { continue };
            rendering.edits.push(edit);
            rendering.evicted |= eviction.is_some_and(|row| row.replacements.contains(replacement));
        }
    }
    for index in active.map_or(0..0, |checkpoint| binding::left_out(conversation, checkpoint)) {
        rendering.edits.extend(conversation.without_signed(index));
    }
    // Slots are in order of keys, edits in that of bytes.
    rendering.edits.sort_by_key(|edit| edit.span.start);
    match place {
        Some(place) => stand_in(&mut rendering.edits, place),
        None if remembered.is_empty() => {}
        None => conversation.before_opening(remembered).into_iter().for_each(|edit| insert(&mut rendering.edits, edit)),
    }
    rendering
}

/// The same items are another history where they continue one that the provider holds: nothing stands for them.
fn fits(checkpoint: &Checkpoint, conversation: &Conversation) -> bool {
    if conversation.sight() == Sight::Partial {
        return false;
    }
    let upto = checkpoint.head.as_ref().map_or(0, |head| head.upto);
    upto <= checkpoint.covers && checkpoint.covers <= conversation.items.len()
}

fn replace(conversation: &Conversation, index: usize, replacement: &Replacement) -> Option<Edit> {
    let item = conversation.items.get(index)?;
    let slot = item.facts.slots.get(replacement.slot)?;
    match slot.kind {
        SlotKind::Text | SlotKind::Result(_) | SlotKind::Arguments(_) | SlotKind::Input(_) | SlotKind::Media => {}
        SlotKind::Reasoning | SlotKind::Given | SlotKind::Other => return None,
    }
    let start = item.span.start;
    let with = conversation.replacement(index, slot, &replacement.text);
    Some(Edit { span: start + slot.span.start..start + slot.span.end, with })
}

/// What takes the place of the first items.
struct Place {
    /// The head as a message of its own, or nothing where it is folded.
    instead: Edit,
    /// The head in front of the next message's text.
    folded: Vec<Edit>,
}

/// The summary's message in place of the first items: folded into a user
/// message that follows within the covered history, else a user message of its own. What follows
/// beyond the covered history does not decide: it may not be there yet. What memory said is in none of the items that
/// the head replaces, and goes before it.
fn place(conversation: &Conversation, checkpoint: &Checkpoint, (head, remembered): (&Head, &str)) -> Option<Place> {
    let start = conversation.items.first()?.span.start;
    let last = conversation.items.get(head.upto.checked_sub(1)?)?;
    let next = conversation.items.get(head.upto).filter(|_| head.upto < checkpoint.covers);
    let head_text = match remembered {
        "" => Cow::Borrowed(&head.text),
        remembered => Cow::Owned(format!("{remembered}\n\n{}", head.text)),
    };
    let text = format!("{head_text}\n\n");
    let kept = kept(conversation, head.upto);
    let pictures = pictures::kept(conversation, head);
    // What the user showed stands beside what was asked, also where another message of the user's follows by now.
    if let Some(next) = next.filter(|_| pictures.is_empty())
        && let Some(folded) = conversation.fold_into(head.upto, &text)
    {
        let instead = Edit { span: start..next.span.start, with: kept.into() };
        return Some(Place { instead, folded });
    }
    let message = conversation.head_message_beside(head.upto, &head_text, &pictures);
    let instead = Edit { span: start..last.span.end, with: [kept, message.into()].concat().into() };
    Some(Place { instead, folded: Vec::new() })
}

/// The client's own bytes of those of the first `upto` items that no head stands for, each with its comma.
fn kept(conversation: &Conversation, upto: usize) -> Vec<u8> {
    let kept = (0..upto).filter(|index| is_kept(conversation, *index, upto));
    kept.flat_map(|index| [conversation.raw(index), b","].concat()).collect()
}

/// Puts the head before the edits of what it leaves. Where it is folded into a text that is itself replaced,
/// the two become one edit; a part of its own stands before a part that is replaced.
fn stand_in(edits: &mut Vec<Edit>, place: Place) {
    for folded in place.folded {
        insert(edits, folded);
    }
    edits.insert(0, place.instead);
}

/// Adds an insertion to edits in order of bytes; in a text that is replaced it goes into what replaces it.
fn insert(edits: &mut Vec<Edit>, insertion: Edit) {
    let at = insertion.span.start;
    match edits.iter_mut().find(|edit| edit.span.start < at && at < edit.span.end) {
        Some(edit) => edit.with = [edit.with.slice(..1), insertion.with, edit.with.slice(1..)].concat().into(),
        None => edits.insert(edits.partition_point(|edit| edit.span.start < at), insertion),
    }
}

#[cfg(test)]
#[path = "tests/render.rs"]
mod tests;
