//! What a key means that is not set. `proxy.toml` shows the same values; a test compares them.

use std::time::Duration;

pub const LISTEN: ([u8; 4], u16) = ([127, 0, 0, 1], 8787);
pub const ADMIN_LISTEN: ([u8; 4], u16) = ([127, 0, 0, 1], 8788);
/// Bytes.
pub const MAX_BODY: u64 = 64 << 20;
/// Bytes.
pub const MAX_BUFFERED: u64 = 256 << 20;
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15 * 60);
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(15 * 60);

pub const STATE_URL: &str = "sqlite://compactproxy.db";
pub const RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);
/// Bytes.
pub const MAX_STATE: u64 = 10 << 30;

pub const MAX_RESULT_CHARS: usize = 80_000;
pub const PREVIEW_CHARS: usize = 2_000;
pub const EXCLUDED_LIMIT_FACTOR: usize = 4;

pub const TRUNCATE_TRIGGER_MESSAGES: usize = 25;
pub const TRUNCATE_KEEP_MESSAGES: usize = 20;
pub const MAX_ARG_LENGTH: usize = 2_000;
pub const TRUNCATION_TEXT: &str =
    "... [truncated: {n} characters of this past call are hidden, id {id}; do not copy this text] ...";

pub const MAX_OUTPUT_CHARS: usize = 2_000;

pub const RESERVED_TOKENS: u64 = 20_000;

/// Tools whose results stay whole up to `excluded_limit_factor` times the limit: name patterns. Each family
/// of [`EXCLUDED_FAMILIES`] in turn.
pub fn excluded_tools() -> Vec<String> {
    EXCLUDED_FAMILIES.iter().flat_map(|(_, names)| *names).map(|name| (*name).to_owned()).collect()
}

/// Why a tool is excluded, and under which names known agents have it. Search tools and shells are not
/// here, on purpose: what they return has no bound of its own.
pub const EXCLUDED_FAMILIES: [(&str, &[&str]); 6] = [
    (
        "readers page by themselves, and what was asked for is what the model needs in full",
        &["read_file", "read_files", "read_many_files", "Read", "read", "view", "NotebookRead", "view_image"],
    ),
    (
        "writers and editors answer with a line or the changed excerpt",
        &[
            "write_file",
            "write_to_file",
            "Write",
            "write",
            "edit_file",
            "Edit",
            "edit",
            "MultiEdit",
            "multiedit",
            "NotebookEdit",
            "replace_in_file",
            "replace",
            "patch",
            "apply_patch",
        ],
    ),
    (
        "editors that read, create and replace under one name page as readers do",
        &["str_replace_editor", "str_replace_based_edit_tool", "file_editor", "editor"],
    ),
    ("listings of one directory are short", &["list_files", "list_directory", "list_dir", "list", "ls", "LS"]),
    (
        "plans and todo lists are short, and pinned",
        &[
            "todo_write",
            "todo_read",
            "todowrite",
            "todoread",
            "TodoWrite",
            "TodoRead",
            "write_todos",
            "TaskCreate",
            "TaskUpdate",
            "TaskGet",
            "TaskList",
            "update_plan",
            "EnterPlanMode",
            "ExitPlanMode",
            "plan_mode_respond",
            "task_tracker",
            "think",
            "finish",
            "submit_and_exit",
            "attempt_completion",
        ],
    ),
    (
        "memory, session and skill tools return little, or what must not be lost",
        &["memory", "memory_*", "save_memory", "session_*", "Skill"],
    ),
];
