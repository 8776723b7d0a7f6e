use super::*;
use crate::compact::fixture::{Chat, call, result, user};

/// Agent, tools of its that are left alone, tools that are not.
const AGENTS: &[(&str, &[&str], &[&str])] = &[
    ("Codex", &["apply_patch", "update_plan"], &["exec_command", "write_stdin", "shell", "exec", "tool_search"]),
    (
        "Claude Code",
        &["Read", "Write", "Edit", "MultiEdit", "NotebookEdit", "TodoWrite", "TaskUpdate", "ExitPlanMode", "Skill"],
        &["Bash", "BashOutput", "Grep", "Glob", "WebFetch", "WebSearch", "Task"],
    ),
    (
        "opencode",
        &["read", "write", "edit", "patch", "list", "todowrite", "todoread"],
        &["bash", "grep", "glob", "webfetch", "task"],
    ),
    (
        "Cline",
        &["read_files", "read_file", "editor", "write_to_file", "replace_in_file", "list_files", "plan_mode_respond"],
        &["run_commands", "execute_command", "search_files", "browser_action", "use_mcp_tool"],
    ),
    (
        "OpenHands",
        &["str_replace_editor", "file_editor", "think", "task_tracker", "finish", "invoke_skill"],
        &["execute_bash", "terminal", "browser"],
    ),
    (
        "SWE-agent",
        &["open", "goto", "create", "edit", "insert", "str_replace_editor", "submit"],
        &["bash", "find_file", "search_dir"],
    ),
    (
        "qwen-code",
        &["read_file", "write_file", "edit", "list_directory", "todo_write", "save_memory"],
        &["run_shell_command", "read_many_files", "grep_search", "search_file_content", "glob", "web_fetch"],
    ),
    (
        "gemini-cli",
        &["read_file", "write_file", "replace", "list_directory", "write_todos", "save_memory", "activate_skill"],
        &["run_shell_command", "read_many_files", "search_file_content", "glob", "google_web_search"],
    ),
    (
        "deepagents",
        &["read_file", "write_file", "edit_file", "ls", "write_todos"],
        &["execute", "grep", "glob", "task"],
    ),
    ("pi", &["read", "write", "edit"], &["bash"]),
    ("mini-swe-agent", &[], &["bash"]),
    (
        "the in-process seed",
        &[
            "read_file",
            "write_file",
            "edit_file",
            "list_files",
            "memory_search",
            "memory_get",
            "session_search",
            "todo_write",
        ],
        &["execute", "grep_files", "glob_files"],
    ),
];

#[test]
fn shipped_list_per_agent() {
    for (agent, left_alone, evictable) in AGENTS {
        for tool in *left_alone {
            assert!(excluded(tool, &SHIPPED), "{agent}: {tool}");
            assert!(excluded(&format!("mcp__files__{tool}"), &SHIPPED), "{agent}: {tool} by MCP");
            assert!(excluded(&format!("functions.{tool}"), &SHIPPED), "{agent}: {tool} in a namespace");
        }
        for tool in *evictable {
            assert!(!excluded(tool, &SHIPPED), "{agent}: {tool}");
            assert!(!excluded(&format!("mcp__shell__{tool}"), &SHIPPED), "{agent}: {tool} by MCP");
        }
    }
}

#[test]
fn never_pruned_is_part_of_the_shipped_list() {
    assert!(!excluded("read_file", NEVER_PRUNED));
}

#[test]
fn names_and_prefixes() {
    assert!(excluded("mcp__my__server__read_file", &["read_file"]), "a server's name may hold the separator");
    assert!(excluded("mcp__fs__read__file", &["read__file"]), "and so may a tool's");
    assert!(excluded("mcp__fs__read_file", &["mcp__fs__*"]), "a pattern may name the server");
    assert!(
        excluded("compactproxy_read_evicted", NEVER_PRUNED),
        "the proxy's own, where a client has one of that name"
    );
    assert!(excluded("compactproxy_memory_get", NEVER_PRUNED));
    assert!(!excluded("READ_FILE", &["read_file"]));
    assert!(!excluded("read_file_range", &["read_file"]));
    assert!(!excluded("", &SHIPPED));
    assert!(!excluded("read_file", &[] as &[&str]));
}

#[test]
fn the_proxys_tools_are_known_under_the_name_that_they_have_beside_a_clients_of_that_name() {
    for tool in ["read_evicted", "session_history", "memory_get"] {
        let beside = format!("{OWN_PREFIX}{tool}");
        assert!(excluded(&beside, &SHIPPED) && excluded(&beside, NEVER_PRUNED), "{beside}");
        assert!(excluded(&beside, &[tool]) && !excluded(&beside, &["execute"]));
    }
    assert!(!excluded("compactproxy_bash", &SHIPPED));
}

#[test]
fn a_result_belongs_to_the_nearest_call_before_it() {
    let chat = Chat::new(&[
        user("go"),
        call("c1", "read_file", "{}"),
        result("c1", "a"),
        call("c1", "bash", "{}"),
        result("c1", "b"),
        call("", "lookup", "{}"),
        result("lookup", "c"),
        result("nobody", "d"),
    ]);
    let conversation = chat.conversation();
    let names: Vec<_> = [2, 4, 6, 7, 1, 99].iter().map(|&item| tool_of(&conversation, item, 0)).collect();
    assert_eq!(names, [Some("read_file"), Some("bash"), Some("lookup"), None, None, None]);
}

/// One tool by all its names: found among excluded tools and read as the tool it is.
#[test]
fn qualified_names_are_read_alike_everywhere() {
    for name in [
        "update_plan",
        "functions.update_plan",
        "mcp__a__update_plan",
        "mcp__a__b__update_plan",
        "functions.mcp__a__update_plan",
        "mcp__a.b__update_plan",
        "a__update_plan",
    ] {
        assert!(excluded(name, &["update_plan"]), "{name}");
        let chat = Chat::new(&[user("go"), call("1", name, "{}"), result("1", "ok")]);
        let found = crate::compact::exchange::exchanges(&chat.conversation());
        assert_eq!(found[0].tool(), "updateplan", "{name}");
    }
    assert!(excluded("mcp__files__read__all", &["read__all"]) && excluded("mcp__files__read__all", &["all"]));
    assert!(!excluded("my_update_plan", &["update_plan"]) && !excluded("", &["update_plan"]));
}
