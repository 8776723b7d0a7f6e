//! Which tools read what is removed from a request.

use std::sync::Arc;

use super::origin::Readers;
use super::overlay::Overlaid;
use crate::compact::Known;
use crate::wire::Conversation;

/// Tools of known agents that read files, by name; those that do nothing else come first.
const FILE_READERS: [&str; 13] = [
    "read_file",
    "Read",
    "read",
    "view",
    "View",
    "view_file",
    "readFile",
    "ReadFile",
    "read_files",
    "read_many_files",
    "file_editor",
    "str_replace_editor",
    "str_replace_based_edit_tool",
];

/// The client's own tool that reads files.
pub(super) fn file_reader(conversation: &Conversation<'_>) -> Option<Arc<str>> {
    let declared = conversation.declared();
    FILE_READERS.iter().find(|name| declared.iter().any(|other| other == *name)).map(|name| (*name).into())
}

/// Names of tools that read what is removed from this request, of which `known` was in force before.
pub(super) fn readers(conversation: &Conversation<'_>, overlaid: Option<&Overlaid>, known: &Known) -> Readers {
    let removed_before = !known.evictions.is_empty() || known.active.is_some();
    let offered = overlaid.and_then(|overlaid| match removed_before {
        // What follows a first removal names no tool that may not come.
        true => overlaid.offered.as_ref(),
        false => overlaid.offered.as_ref().or(overlaid.candidate.as_ref().filter(|_| !overlaid.bound)),
    });
    Readers { file: file_reader(conversation), evicted: offered.and_then(|offered| offered.reader()) }
}
