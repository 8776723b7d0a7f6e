//! Tools that a search found (Messages, A21): the provider puts a tool's definition where the search's answer refers to
//! it. Where that answer is replaced, the model has to know what there is to search for again. In Responses the search
//! itself stays (`Standing::Kept`).

use super::{PinKind, State, Worth};
use crate::wire::Conversation;

/// The names of all tools that searches found, in order of appearance.
pub fn state(conversation: &Conversation<'_>) -> Option<State> {
    let mut names: Vec<String> = Vec::new();
    let mut last = None;
    for index in 0..conversation.items.len() {
        for name in conversation.referenced_tools(index) {
            last = Some(index);
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    let (kind, worth) = (PinKind::Tools, Worth::First);
    Some(State { kind, worth, item: last?, text: names.join(", "), shown: Vec::new() })
}
