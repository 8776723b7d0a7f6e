//! Which tools' results are left alone, and how a result finds its tool's name.

use std::sync::LazyLock;

use crate::config::glob;
use crate::wire::Conversation;

/// The shipped `excluded_tools`: tools that page themselves, or whose answers are tiny or pinned. Patterns
/// with `*`; case matters. A listed tool is still evicted beyond `excluded_limit_factor` times the limit, so
/// a listed tool that breaks its promise (a one-line file of megabytes) cannot end a run.
///
/// Deliberately absent: shells (`Bash`, `bash`, `execute`, `exec_command`, `run_shell_command`, `terminal`,
/// …), whose output has no bound; search (`grep*`, `Glob`, `search_files`, …), which counts matches but not
/// their length; the web and browsers; sub-agents (`Task`, `task`); and `read_many_files`, which joins every
/// file that a glob names: each can be read again by itself.
pub static SHIPPED: LazyLock<Vec<&str>> = LazyLock::new(|| [BOUNDED, NEVER_PRUNED].concat());

/// The proxy's own tool that reads removed texts, also where a client has it from the proxy's MCP server.
pub const READ_EVICTED: &str = "read_evicted";

/// Before the name of one of the proxy's own tools where the client has a tool of that name.
pub const OWN_PREFIX: &str = "compactproxy_";

/// Tools that bound their results themselves; these may be pruned once they are old.
const BOUNDED: &[&str] = &[
    // Readers with a line range or a window of their own: an evicted page would be read again at once.
    "read_file",
    "read_files",
    "readFile",
    "ReadFile",
    "read",
    "Read",
    "NotebookRead",
    "view",
    "View",
    "view_file",
    "open",
    "goto",
    "scroll_up",
    "scroll_down",
    // Writers: they answer with a line or a short excerpt.
    "write_file",
    "write_to_file",
    "write",
    "Write",
    "create_file",
    "create",
    "append_file",
    // Editors: likewise; some of them also view, by range and with a limit of their own.
    "edit_file",
    "edit",
    "Edit",
    "MultiEdit",
    "multiedit",
    "NotebookEdit",
    "replace",
    "replace_in_file",
    "insert",
    "patch",
    "apply_patch",
    "editor",
    "file_editor",
    "str_replace_editor",
    "str_replace_based_edit_tool",
    // Listings of one directory: bounded by the tools, and the map by which the next read is chosen.
    "list_files",
    "list_directory",
    "list_dir",
    "list",
    "ls",
    "LS",
    // Signs of life: a word or two.
    "think",
    "finish",
    "submit",
    "submit_and_exit",
];

/// The part of [`SHIPPED`] whose older results are never pruned either: look-ups of what was put aside, plans
/// and skills in force. File reads are not here: a pruned read keeps its head, its tail and a pointer to the
/// exact text, and the file can be read again.
pub const NEVER_PRUNED: &[&str] = &[
    // Memory and session look-ups: small pages of what compaction itself put aside.
    READ_EVICTED,
    "memory_*",
    "session_*",
    "save_memory",
    "memory",
    // Plans, todo lists and skills: short, and pinned by the other strategies.
    "todo_*",
    "todowrite",
    "todoread",
    "TodoWrite",
    "TodoRead",
    "write_todos",
    "read_todos",
    "update_plan",
    "task_tracker",
    "TaskCreate",
    "TaskUpdate",
    "TaskGet",
    "TaskList",
    "EnterPlanMode",
    "ExitPlanMode",
    "plan_mode_respond",
    "Skill",
    "skill",
    "activate_skill",
    "invoke_skill",
    "load_skill",
];

/// Whether a tool is named by one of the patterns: by its whole name, or by what is left without a prefix
/// ([`bare_names`]).
pub fn excluded<P: AsRef<str>>(name: &str, patterns: &[P]) -> bool {
    let names = bare_names(name);
    patterns.iter().any(|pattern| names.iter().any(|name| glob(pattern.as_ref(), name)))
}

/// A tool's possible names, longest first: the whole, and what is left without the prefix of a namespace or server
/// (`functions.read_file`, `mcp__files__read_file`), or of the proxy ([`OWN_PREFIX`]). A server's or a tool's name may
/// hold `__` itself, so every reading of that is among them; the last one is the shortest.
pub fn bare_names(name: &str) -> Vec<&str> {
    let own = name.rsplit_once('.').map_or(name, |(_, tool)| tool);
    let mut names = vec![name];
    names.extend(Some(own).filter(|own| own.len() < name.len()));
    names.extend(own.strip_prefix(OWN_PREFIX).map(|name| name.trim_start_matches(OWN_PREFIX)));
    names.extend(own.match_indices("__").filter_map(|(at, mark)| own.get(at + mark.len()..)));
    names.retain(|name| !name.is_empty());
    names
}

/// Name of the tool whose call result `result` of item `item` answers.
pub fn tool_of<'c>(conversation: &'c Conversation<'_>, item: usize, result: usize) -> Option<&'c str> {
    let id = conversation.items.get(item)?.facts.results.get(result)?;
    conversation.tool_of(item, id)
}

#[cfg(test)]
#[path = "exclusions_tests.rs"]
mod tests;
