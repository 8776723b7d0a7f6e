//! From a conversation and its activated rows to the edits of its body. Looks at nothing else:
//! the same history and the same rows give the same bytes, after any restart and under any
//! configuration (L4).

use bytes::Bytes;

use crate::wire::splice::Edit;
use crate::wire::{Conversation, Item, Role, SlotKind, openai_chat};

use super::estimate::in_force;
use super::rows::{Checkpoint, Head, Known};

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
    let upto = head.map_or(0, |head| head.upto);
    for (index, item) in conversation.items.iter().enumerate().skip(upto) {
        if active.is_none() && known.evictions.is_empty() {
            break;
        }
        let eviction = known.evictions.get(&item.chain).map(|eviction| &**eviction);
        for replacement in in_force(active, eviction, index) {
            let Some(edit) = replace(item, replacement.slot, &replacement.text) else { continue };
            rendering.edits.push(edit);
            rendering.evicted |= eviction.is_some_and(|row| row.replacements.contains(replacement));
        }
    }
    if let (Some(checkpoint), Some(head)) = (active, head) {
        rendering.edits.splice(0..0, place(conversation, checkpoint, head));
    }
    rendering
}

fn fits(checkpoint: &Checkpoint, conversation: &Conversation) -> bool {
    let upto = checkpoint.head.as_ref().map_or(0, |head| head.upto);
    upto <= checkpoint.covers && checkpoint.covers <= conversation.items.len()
}

fn replace(item: &Item, slot: usize, text: &str) -> Option<Edit> {
    let slot = item.facts.slots.get(slot)?;
    match slot.kind {
        SlotKind::Text | SlotKind::Result(_) | SlotKind::Arguments(_) | SlotKind::Input(_) => {}
        SlotKind::Reasoning | SlotKind::Other => return None,
    }
    let start = item.span.start;
    Some(Edit { span: start + slot.span.start..start + slot.span.end, with: openai_chat::replacement(slot, text) })
}

/// The summary's message in place of the first items (INVARIANTS "safe shape"): folded into a user
/// message that follows within the covered history, else a user message of its own. What follows
/// beyond the covered history does not decide: it may not be there yet.
fn place(conversation: &Conversation, checkpoint: &Checkpoint, head: &Head) -> Vec<Edit> {
    let (Some(first), Some(last)) = (conversation.items.first(), conversation.items.get(head.upto.wrapping_sub(1)))
    else {
        return Vec::new();
    };
    let shortened = checkpoint.edits.iter().any(|(index, _)| *index == head.upto);
    let next = conversation
        .items
        .get(head.upto)
        .filter(|item| head.upto < checkpoint.covers && item.facts.role == Role::User && !shortened);
    if let Some(next) = next
        && let Some(folded) = openai_chat::fold_into(conversation, head.upto, &head.text)
    {
        return vec![Edit { span: first.span.start..next.span.start, with: Bytes::new() }, folded];
    }
    let message = openai_chat::user_message(&head.text);
    vec![Edit { span: first.span.start..last.span.end, with: message.into() }]
}
