//! Shells and subagents that were started in the background and, by all that the conversation says, still run.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::super::excerpt::{last_line, one_line, split_at_char};
use super::super::exchange::{Exchange, argument, words};
use super::{PinKind, State, Worth, result_slots};
use crate::wire::{Conversation, Role};

/// Characters at the beginning of a result that say whether something was started.
const LOOK_CHARS: usize = 600;
/// Tasks that are followed at a time; beyond them the oldest is given up.
const MAX_TASKS: usize = 64;
/// Characters up to which a result is left alone as it is.
const SHOWN_CHARS: usize = 2_000;
/// Members of a call's arguments that name a running task.
const IDS: &[&str] =
    &["bash_id", "shell_id", "task_id", "taskId", "agent_id", "agentId", "session_id", "process_id", "job_id", "id"];
const STARTERS: &[&str] = &[
    "bash",
    "shell",
    "execcommand",
    "executecommand",
    "runcommand",
    "runshellcommand",
    "execute",
    "execcell",
    "task",
    "agent",
    "exec",
];
/// Of those, the ones whose results are a program's output: only the harness's own wording counts there.
const SHELLS: &[&str] =
    &["bash", "shell", "execcommand", "executecommand", "runcommand", "runshellcommand", "execute", "exec", "execcell"];
const STOPPERS: &[&str] = &[
    "killshell",
    "killbash",
    "taskstop",
    "stoptask",
    "canceltask",
    "taskcancel",
    "closeagent",
    "killtask",
    "killprocess",
];

/// How harnesses name what they started: the id is group 1.
static ID: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"(?i)(?:session[ _]id|background with id|(?:shell|bash|task|agent|job|process)[ _]?id|agent id)\\?"?\s*[:=]?\s*\\?"?([A-Za-z0-9_-]*[0-9][A-Za-z0-9_-]*|[A-Za-z0-9]+[_-][A-Za-z0-9_-]+)"#).ok()
});
static RUNNING: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?i)running|in the background|background with id|launched|submitted|queued|pending|started|in_progress",
    )
    .ok()
});
static SHELL_RUNNING: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?i)running with session id|(?:running|started|moved) (?:in|to) (?:the )?background|background with id",
    )
    .ok()
});
static OVER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let words = "completed|complete|succeeded|success|failed|failure|killed|cancelled|canceled|stopped|done|finished|exited|error|terminated|timed_out";
    Regex::new(&format!(
        r#"(?i)<(?:status|state)>\s*(?:{words})\b|\\?"(?:status|state)\\?"\s*:\s*\\?"(?:{words})\b|\b(?:status|state)\s*[:=]\s*(?:{words})\b|exited with (?:exit )?code|<exit_code>|no longer running|not running|(?:was|has been|successfully) (?:killed|stopped|terminated|cancelled)|(?:task|agent|command|process) (?:{words})\b"#
    ))
    .ok()
});

#[derive(Debug)]
struct Task {
    id: String,
    what: String,
    status: String,
    state: State,
}

/// What still runs, in order of starting.
pub fn states(conversation: &Conversation<'_>, exchanges: &[Exchange]) -> Vec<State> {
    let mut tasks: Vec<Task> = Vec::new();
    let mut calls = exchanges.iter().peekable();
    for (i, item) in conversation.items.iter().enumerate() {
        while let Some(exchange) = calls.next_if(|exchange| exchange.item <= i) {
            poll(&mut tasks, exchange);
            tasks.extend(started(exchange));
            if tasks.len() > MAX_TASKS {
                tasks.remove(0);
            }
        }
        if item.facts.role == Role::User && !tasks.is_empty() {
            let said = words(conversation, i);
            tasks.retain(|task| !announces_end(&said, &task.id));
        }
    }
    tasks.into_iter().map(Task::into_state).collect()
}

/// The task that a call started, if it goes on after the call's result.
fn started(exchange: &Exchange) -> Option<Task> {
    let arguments = exchange.json();
    let asked = ["run_in_background", "is_background", "background"]
        .iter()
        .any(|key| arguments.get(key) == Some(&Value::Bool(true)));
    let tool = exchange.tool();
    let starts = asked || STARTERS.contains(&tool.as_str()) || tool.starts_with("spawn") || tool.starts_with("start");
    let head = head(exchange.answer());
    let id = ID.as_ref().and_then(|form| form.captures(head)).and_then(|found| Some(found.get(1)?.as_str().to_owned()));
    let form = if asked || !SHELLS.contains(&tool.as_str()) { &RUNNING } else { &SHELL_RUNNING };
    let running = form.as_ref().is_some_and(|form| form.is_match(head)) && !is_over(head);
    // Asked for and not yet answered is running; answered, the answer must name it or say so.
    if !starts || !(running && id.is_some() || asked && (exchange.result.is_none() || running)) {
        return None;
    }
    let what = argument(&arguments, &["description", "command", "cmd", "prompt", "task", "name"])
        .unwrap_or_else(|| exchange.arguments.clone());
    let id = id.unwrap_or_else(|| "unknown".to_owned());
    let status = last_line(exchange.answer(), 200);
    let state = State {
        kind: PinKind::Background,
        worth: Worth::First,
        item: exchange.item,
        text: String::new(),
        shown: result_slots(exchange, SHOWN_CHARS),
    };
    Some(Task { id, what: format!("{}: {}", exchange.name, one_line(&what, 200)), status, state })
}

/// What a later call about a running task says of it.
fn poll(tasks: &mut Vec<Task>, exchange: &Exchange) {
    let Some(id) = argument(&exchange.json(), IDS) else { return };
    let Some(at) = tasks.iter().position(|task| task.id == id) else { return };
    let head = head(exchange.answer());
    let stopped = STOPPERS.contains(&exchange.tool().as_str()) && exchange.result.is_some();
    if stopped || is_over(head) {
        tasks.remove(at);
    } else if let (Some(task), Some(_)) = (tasks.get_mut(at), &exchange.result) {
        task.status = last_line(exchange.answer(), 200);
        task.state.shown.extend(result_slots(exchange, SHOWN_CHARS));
    }
}

/// Whether a harness tells in a user message that a task is over.
fn announces_end(said: &str, id: &str) -> bool {
    said.split("</task-notification>").any(|note| note.contains(id) && is_over(note))
}

/// The harness's own words: what it says before the program's output begins.
fn head(result: &str) -> &str {
    let (start, _) = split_at_char(result, LOOK_CHARS);
    let ends = ["\nOutput:", "<stdout>", "<output>"];
    ends.iter()
        .filter_map(|end| start.split_once(end))
        .map(|(before, _)| before)
        .min_by_key(|b| b.len())
        .unwrap_or(start)
}

fn is_over(text: &str) -> bool {
    OVER.as_ref().is_some_and(|form| form.is_match(text))
}

impl Task {
    fn into_state(self) -> State {
        // Polls are repeated without end: of their results the last is the state.
        let shown = [self.state.shown.first(), self.state.shown.last()].into_iter().flatten().copied().collect();
        let text = format!("- id {} ({}); last seen: \"{}\"", self.id, self.what, self.status);
        State { text, shown, ..self.state }
    }
}
