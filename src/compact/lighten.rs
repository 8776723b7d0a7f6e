//! A request that has too many bytes: the oldest pictures and files go first (A20), since texts hardly weigh.

use serde_json::json;

use crate::wire::SlotKind;

use super::binding::{self, Binding};
use super::ladder::Rung;
use super::plan::{Actions, Situation, load_under};
use super::rows::{Cut, Removed, Replacement, TextId};
use super::trim::{assemble, edited};

/// The oldest media replaced by short notes, until half of the body's bytes are left. `None` where that frees
/// less than a tenth, or where signed thinking keeps all of it.
pub fn lightened(situation: &Situation) -> Option<Rung> {
    if binding::of(situation) == Binding::Live {
        return None;
    }
    let conversation = situation.conversation;
    let total = conversation.body.len();
    let (mut left, mut cuts) = (total, Vec::new());
    for (item, found) in conversation.items.iter().enumerate().skip(situation.summarized()) {
        for (slot, place) in found.facts.slots.iter().enumerate().filter(|(_, slot)| slot.kind == SlotKind::Media) {
            let Some(text) = conversation.text(item, place).filter(|_| left > total / 2) else { continue };
            let removed = situation.key.removed(text);
            let note = note(removed.id, removed.text.len());
            let Some(gain) = removed.text.len().checked_sub(note.len()).filter(|gain| *gain > 0) else { continue };
            let cut = cut((item, slot), note, removed);
            if !edited(situation, &cut) {
                left = left.saturating_sub(gain);
                cuts.push(cut);
            }
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

fn cut((item, slot): (usize, usize), text: String, removed: Removed) -> Cut {
    Cut { item, replacement: Replacement { slot, text }, removed: vec![removed] }
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
