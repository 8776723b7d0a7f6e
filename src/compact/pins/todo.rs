//! Todo lists and plans of steps: whole lists written at once, and task lists built call by call.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::super::exchange::{Exchange, argument};
use super::{PinKind, State, Worth, arguments_slot};

/// Tools that write the whole list at once (separators and case aside).
const WHOLE: &[&str] = &[
    "todowrite",
    "writetodos",
    "updateplan",
    "tasktracker",
    "updatetodolist",
    "settodos",
    "todolist",
    "managetodolist",
];
/// Members that hold the list.
const LIST: &[&str] = &["todos", "plan", "task_list", "taskList", "tasks", "items", "todoList", "steps"];
/// Members of an entry that say what is to be done.
const SUBJECT: &[&str] = &["content", "step", "subject", "title", "description", "text", "task", "name"];

/// A task's number in what its creation answered.
static TASK_ID: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"(?i)(?:#|task_?id"?\s*[:=]\s*"?|"id"\s*:\s*"?)([A-Za-z0-9_-]+)"#).ok());

struct Task {
    id: String,
    subject: String,
    status: String,
}

/// The list that was written last: whole, or as the series of creations and updates left it.
pub fn state(exchanges: &[Exchange]) -> Option<State> {
    let whole = exchanges.iter().rev().find_map(whole);
    let series = series(exchanges);
    match (whole, series) {
        (Some(whole), Some((series, last))) if last < whole.item => Some(merge(whole, series)),
        (Some(whole), None) => Some(whole),
        (_, series) => series.map(|(state, _)| state),
    }
}

/// A whole list written after a series replaces it in the text; the series' calls stay pinned with it.
fn merge(mut whole: State, series: State) -> State {
    whole.shown.extend(series.shown);
    whole
}

fn whole(exchange: &Exchange) -> Option<State> {
    if !WHOLE.contains(&exchange.tool().as_str()) {
        return None;
    }
    let text = list(&exchange.json())?;
    Some(State { kind: PinKind::Todo, worth: Worth::First, item: exchange.item, text, shown: arguments_slot(exchange) })
}

/// The list in a call's arguments; an empty list is a state as well. `None` where there is none (a mere look).
fn list(arguments: &Value) -> Option<String> {
    let list = LIST.iter().find_map(|key| arguments.get(key))?;
    let lines: Vec<String> = match list {
        Value::Array(entries) => entries.iter().filter_map(entry).collect(),
        Value::String(text) => vec![text.trim().to_owned()],
        _ => return None,
    };
    let body = if lines.is_empty() { "(the list is empty)".to_owned() } else { lines.join("\n") };
    let explanation = argument(arguments, &["explanation"]);
    Some(explanation.map_or(body.clone(), |why| format!("{why}\n{body}")))
}

fn entry(entry: &Value) -> Option<String> {
    if let Value::String(text) = entry {
        return Some(format!("- {text}"));
    }
    let subject = argument(entry, SUBJECT)?;
    let done = ["done", "completed"].iter().find_map(|key| entry.get(key)?.as_bool());
    let status = argument(entry, &["status", "state"])
        .or_else(|| done.map(|done| if done { "completed" } else { "pending" }.to_owned()));
    let notes = argument(entry, &["notes"]).map_or(String::new(), |notes| format!(" ({notes})"));
    Some(format!("- [{}] {subject}{notes}", status.unwrap_or_else(|| "pending".to_owned())))
}

/// The list that creations and updates built, and the item of the last of them.
fn series(exchanges: &[Exchange]) -> Option<(State, usize)> {
    let mut tasks: Vec<Task> = Vec::new();
    let mut shown = Vec::new();
    let (mut first, mut last) = (None, 0);
    for exchange in exchanges {
        match exchange.tool().as_str() {
            "taskcreate" => create(&mut tasks, exchange),
            "taskupdate" => update(&mut tasks, exchange),
            _ => continue,
        }
        first = first.or(Some(exchange.item));
        last = exchange.item;
        shown.extend(arguments_slot(exchange));
    }
    let lines: Vec<String> =
        tasks.iter().map(|task| format!("- #{} [{}] {}", task.id, task.status, task.subject)).collect();
    let text = if lines.is_empty() { "(the list is empty)".to_owned() } else { lines.join("\n") };
    Some((State { kind: PinKind::Todo, worth: Worth::First, item: first?, text, shown }, last))
}

fn create(tasks: &mut Vec<Task>, exchange: &Exchange) {
    let Some(subject) = argument(&exchange.json(), SUBJECT) else { return };
    let said = TASK_ID.as_ref().and_then(|form| form.captures(exchange.answer()));
    let said = said.and_then(|found| Some(found.get(1)?.as_str().to_owned()));
    let id = said.unwrap_or_else(|| (tasks.len() + 1).to_string());
    tasks.push(Task { id, subject, status: "pending".to_owned() });
}

fn update(tasks: &mut Vec<Task>, exchange: &Exchange) {
    let arguments = exchange.json();
    let Some(id) = argument(&arguments, &["taskId", "task_id", "id"]) else { return };
    let status = argument(&arguments, &["status", "state"]);
    if status.as_deref() == Some("deleted") {
        tasks.retain(|task| task.id != id);
        return;
    }
    let Some(task) = tasks.iter_mut().find(|task| task.id == id) else { return };
    if let Some(status) = status {
        task.status = status;
    }
    if let Some(subject) = argument(&arguments, &["subject", "title"]) {
        task.subject = subject;
    }
}
