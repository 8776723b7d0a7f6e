//! A request that has too many bytes: the oldest pictures and files go first (A20), since texts hardly weigh.

use serde_json::json;

use crate::wire::SlotKind;

use super::binding::{self, Binding};
use super::exchange::slots_of;
use super::ladder::Rung;
use super::plan::{Actions, Situation, load_under};
use super::render;
use super::rows::{Cut, Removed, Replacement, TextId};
use super::trim::{assemble, edited};

/// The oldest media replaced by short notes, until half of the bytes that would be sent are left; those of the
/// message that is to be answered last, and only where the others are not enough. `None` where that frees less than
/// a tenth, or where signed thinking keeps all of it.
pub fn lightened(situation: &Situation) -> Option<Rung> {
    if binding::of(situation) == Binding::Live {
        return None;
    }
    let total = sent(situation);
    let (mut left, mut cuts) = (total, Vec::new());
    for (at, text) in media(situation) {
        if left <= total / 2 {
            break;
        }
        let removed = situation.key.removed(text);
        let note = note(removed.id, removed.text.len());
        let Some(gain) = removed.text.len().checked_sub(note.len()).filter(|gain| *gain > 0) else { continue };
        let cut = cut(at, note, removed);
        if !edited(situation, &cut) {
            left = left.saturating_sub(gain);
            cuts.push(cut);
        }
    }
    if cuts.is_empty() || left > total / 10 * 9 {
        return None;
    }
    let trim = assemble(situation, cuts, Actions { truncated: true, ..Actions::default() });
    let tokens = load_under(situation, &trim.checkpoint).tokens;
    let rung = Rung { checkpoint: trim.checkpoint, texts: trim.texts, actions: trim.actions, tokens };
    situation.applies(&rung.checkpoint).then_some(rung)
}

/// Bytes of the body under the known rewrites.
fn sent(situation: &Situation) -> usize {
    let Situation { conversation, known, .. } = *situation;
    let edits = render::render(conversation, known).edits;
    let placed: usize = edits.iter().map(|edit| edit.with.len()).sum();
    let replaced: usize = edits.iter().map(|edit| edit.span.len()).sum();
    (conversation.body.len() + placed).saturating_sub(replaced)
}

/// Item, slot and JSON of every picture and file that is sent, in the order in which they may go.
fn media<'s>(situation: &'s Situation) -> impl Iterator<Item = ((usize, usize), String)> + 's {
    let conversation = situation.conversation;
    let asked = conversation.turn(conversation.items.len());
    let items = (situation.summarized()..conversation.items.len()).filter(move |item| Some(*item) != asked);
    items.chain(asked.filter(|item| *item >= situation.summarized())).flat_map(move |item| {
        let slots = slots_of(conversation, item, |kind| kind == SlotKind::Media);
        let json = move |slot| conversation.text(item, conversation.items.get(item)?.facts.slots.get(slot)?);
        slots.into_iter().filter_map(move |slot| Some(((item, slot), json(slot)?)))
    })
}

fn cut((item, slot): (usize, usize), text: String, removed: Removed) -> Cut {
    Cut { item, replacement: Replacement { slot, text: text.into() }, removed: vec![removed] }
}

/// The block that stands for a picture or file: its JSON can be read back.
fn note(id: TextId, bytes: usize) -> String {
    let text = format!(
        "[A picture or file of {bytes} bytes stood here; it was taken out because the request was too large. \
         Its JSON: id {id}, /_compactproxy/evicted/{id}]"
    );
    json!({ "type": "text", "text": text }).to_string()
}

#[cfg(test)]
#[path = "tests/lighten.rs"]
mod tests;
