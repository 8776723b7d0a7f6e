//! The digest: a record of a prefix without any model, in the sections of a summary.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::excerpt::{one_line, split_at_char};
use super::exchange::{Exchange, exchanges, words};
use super::pins::latest_plan;
use super::typed::Typed;
use crate::wire::{Conversation, Role};

/// Members of a call's arguments that name a file or a place.
const PATHS: &[&str] = &[
    "path",
    "file_path",
    "filePath",
    "filename",
    "file_name",
    "target_file",
    "notebook_path",
    "absolute_path",
    "file",
    "dir_path",
    "directory",
    "url",
];
/// Characters of a path, of a sentence and of a plan in the digest.
const PATH_CHARS: usize = 200;
const SENTENCE_CHARS: usize = 160;
const PLAN_CHARS: usize = 2_000;
/// Calls that one line speaks of at most: a long turn gets several lines.
const CALLS_PER_LINE: usize = 12;
/// Paths that one line names at most.
const PATHS_PER_LINE: usize = 5;
/// Tools that one line names at most.
const NAMES_PER_LINE: usize = 24;
/// Percent of the budget for the turns and for the artifacts.
const SUMMARY_SHARE: usize = 55;
const ARTIFACTS_SHARE: usize = 30;

/// Where a patch says which file it changes.
static PATCHED: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?m)^\s*\*\*\* (?:(?:Add|Update|Delete) File|Move to): ([^\n]+)").ok());

/// What one line of the digest tells.
#[derive(Clone, Debug, Default)]
struct Stretch {
    asked: String,
    tools: Vec<String>,
    paths: Vec<String>,
    said: String,
}

/// The digest of the items in `range` in at most about `budget` tokens by `count`. It names tools and paths in prose
/// and never in the form of calls (P10); the user's words are the ledger's business.
pub fn digest(
    conversation: &Conversation<'_>,
    range: Range<usize>,
    budget: usize,
    count: &dyn Fn(&str) -> usize,
) -> String {
    let exchanges: Vec<Exchange> =
        exchanges(conversation).into_iter().filter(|exchange| range.contains(&exchange.item)).collect();
    let stretches = stretches(conversation, range, &exchanges);
    let turns = turns(&stretches, budget * SUMMARY_SHARE / 100, count);
    let artifacts = artifacts(&exchanges, budget * ARTIFACTS_SHARE / 100, count);
    let plan = latest_plan(conversation).unwrap_or_default();
    let frame = "## SESSION INTENT\nSee the user's own messages above; they say what is wanted.\n\n\
                 ## SUMMARY\n\n\n## ARTIFACTS\n\n\n## NEXT STEPS\n";
    let left = budget.saturating_sub(count(frame) + count(&turns) + count(&artifacts));
    let next = fit_lines(&next_steps(&plan), left, count);
    format!(
        "## SESSION INTENT\nSee the user's own messages above; they say what is wanted.\n\n\
         ## SUMMARY\n{turns}\n\n## ARTIFACTS\n{artifacts}\n\n## NEXT STEPS\n{next}"
    )
}

/// Files and places that a call names in its arguments, in order of appearance.
pub fn paths(exchange: &Exchange) -> Vec<String> {
    let arguments = exchange.json();
    let mut found = Vec::new();
    named(&arguments, 0, &mut found);
    // A patch stands in a string member or is the whole free-text input.
    let patch = ["input", "patch", "command"].iter().find_map(|key| arguments.get(key)?.as_str());
    if let Some(form) = PATCHED.as_ref() {
        let headers = form.captures_iter(patch.unwrap_or(&exchange.arguments));
        found.extend(headers.filter_map(|header| Some(header.get(1)?.as_str().trim().to_owned())));
    }
    let mut seen = BTreeSet::new();
    found.retain(|path| seen.insert(path.clone()));
    found.into_iter().map(|path| one_line(&path, PATH_CHARS)).collect()
}

fn named(value: &Value, depth: usize, found: &mut Vec<String>) {
    match value {
        Value::Object(members) if depth < 4 => {
            for (key, value) in members {
                match value {
                    Value::String(path) if PATHS.contains(&key.as_str()) && !path.trim().is_empty() => {
                        found.push(path.clone());
                    }
                    Value::Array(list) if matches!(key.as_str(), "paths" | "files" | "file_paths") => {
                        found.extend(list.iter().filter_map(|path| path.as_str().map(str::to_owned)));
                        list.iter().for_each(|entry| named(entry, depth + 1, found));
                    }
                    _ => named(value, depth + 1, found),
                }
            }
        }
        Value::Array(list) if depth < 4 => list.iter().for_each(|value| named(value, depth + 1, found)),
        _ => {}
    }
}

fn stretches(conversation: &Conversation<'_>, range: Range<usize>, exchanges: &[Exchange]) -> Vec<Stretch> {
    let typed = Typed::new(conversation, range.end);
    let mut calls = exchanges.iter().peekable();
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut current = Stretch::default();
    for i in range {
        let Some(item) = conversation.items.get(i) else { break };
        match item.facts.role {
            Role::User => {
                if let Some(text) = typed.text(i) {
                    stretches.push(std::mem::take(&mut current));
                    current.asked = one_line(&text, SENTENCE_CHARS / 2);
                }
            }
            Role::Assistant => {
                let text = one_line(&words(conversation, i), SENTENCE_CHARS);
                if !text.is_empty() {
                    current.said = text;
                }
            }
            _ => {}
        }
        while let Some(exchange) = calls.next_if(|exchange| exchange.item <= i) {
            if current.tools.len() >= CALLS_PER_LINE {
                stretches.push(std::mem::take(&mut current));
            }
            current.tools.push(exchange.name.clone());
            current.paths.extend(paths(exchange));
        }
    }
    stretches.push(current);
    stretches.retain(|stretch| !(stretch.asked.is_empty() && stretch.tools.is_empty() && stretch.said.is_empty()));
    stretches
}

/// One line a stretch, the newest in full; what does not fit of the older is told in one line at the beginning.
fn turns(stretches: &[Stretch], budget: usize, count: &dyn Fn(&str) -> usize) -> String {
    if stretches.is_empty() {
        return "- Nothing was done yet.".to_owned();
    }
    let all: Vec<String> = stretches.iter().map(Stretch::line).collect();
    let total: usize = all.iter().map(|line| count(line) + 1).sum();
    if total <= budget {
        return all.join("\n");
    }
    let mut left = budget * 3 / 4;
    let fitting = all.iter().rev().take_while(|line| take(&mut left, count(line) + 1)).count();
    let (older, newer) = all.split_at_checked(all.len() - fitting).unwrap_or_default();
    let told = stretches.get(..older.len()).unwrap_or_default();
    let mut lines = vec![earlier(told, budget / 4, count)];
    lines.extend_from_slice(newer);
    lines.join("\n")
}

/// Many stretches in one line: which tools were used, as far as there is room.
fn earlier(stretches: &[Stretch], budget: usize, count: &dyn Fn(&str) -> usize) -> String {
    let tools = tally(stretches.iter().flat_map(|stretch| &stretch.tools));
    let full = format!("- Earlier turns, in short: the assistant used {tools}.");
    if !tools.is_empty() && count(&full) <= budget {
        full
    } else {
        "- Earlier turns are not told one by one.".to_owned()
    }
}

fn artifacts(exchanges: &[Exchange], budget: usize, count: &dyn Fn(&str) -> usize) -> String {
    let mut order: Vec<String> = Vec::new();
    let mut touched: HashMap<String, Vec<&str>> = HashMap::new();
    // From the newest on: what was touched last is needed most.
    for exchange in exchanges.iter().rev() {
        for path in paths(exchange) {
            let tools = touched.entry(path.clone()).or_insert_with(|| {
                order.push(path);
                Vec::new()
            });
            if !tools.contains(&exchange.name.as_str()) {
                tools.push(&exchange.name);
            }
        }
    }
    let lines: Vec<String> = order
        .iter()
        .map(|path| format!("- {path} ({})", touched.get(path).map(|tools| tools.join(", ")).unwrap_or_default()))
        .collect();
    if lines.is_empty() { "- No files were named.".to_owned() } else { fit_lines(&lines.join("\n"), budget, count) }
}

fn next_steps(plan: &str) -> String {
    if plan.is_empty() {
        return "- Go on with what the user's latest messages ask for.".to_owned();
    }
    let done = |line: &&str| ["[completed]", "[done]", "[cancelled]"].iter().any(|status| line.contains(status));
    let open: Vec<&str> = plan.lines().filter(|line| !done(line)).collect();
    if open.is_empty() {
        return "- All of the latest plan is done; go on with what the user's latest messages ask for.".to_owned();
    }
    let open = open.join("\n");
    let (open, _) = split_at_char(&open, PLAN_CHARS);
    format!("What is open of the latest plan or todo list:\n{open}")
}

/// The first lines of `text` that fit; at least one line, shortened if it must be.
fn fit_lines(text: &str, budget: usize, count: &dyn Fn(&str) -> usize) -> String {
    if count(text) <= budget {
        return text.to_owned();
    }
    let more = "- … and others";
    let mut left = budget.saturating_sub(count(more) + 1);
    let lines: Vec<&str> = text.lines().take_while(|line| take(&mut left, count(line) + 1)).collect();
    if lines.is_empty() { more.to_owned() } else { format!("{}\n{more}", lines.join("\n")) }
}

/// Takes `cost` from what is left, if there is as much.
fn take(left: &mut usize, cost: usize) -> bool {
    let rest = left.checked_sub(cost);
    *left = rest.unwrap_or(*left);
    rest.is_some()
}

/// Tool names with how often each was used, in order of first use.
fn tally<'n>(names: impl Iterator<Item = &'n String>) -> String {
    let mut order: Vec<(&str, usize)> = Vec::new();
    let mut others = false;
    for name in names {
        let full = order.len() == NAMES_PER_LINE;
        match order.iter_mut().find(|(known, _)| known == name) {
            Some((_, times)) => *times += 1,
            None if full => others = true,
            None => order.push((name, 1)),
        }
    }
    let told = order
        .iter()
        .map(|(name, times)| if *times == 1 { (*name).to_owned() } else { format!("{name} ({times} times)") });
    let told = told.collect::<Vec<_>>().join(", ");
    if others { format!("{told} and others") } else { told }
}

impl Stretch {
    fn line(&self) -> String {
        let mut told = Vec::new();
        if !self.asked.is_empty() {
            told.push(format!("the user wrote \"{}\"", self.asked));
        }
        if !self.tools.is_empty() {
            let mut used = format!("the assistant used {}", tally(self.tools.iter()));
            let mut seen = BTreeSet::new();
            let paths: Vec<&str> =
                self.paths.iter().map(String::as_str).filter(|path| seen.insert(*path)).take(PATHS_PER_LINE).collect();
            if !paths.is_empty() {
                used.push_str(&format!(" on {}", paths.join(", ")));
            }
            told.push(used);
        }
        if !self.said.is_empty() {
            told.push(format!("the assistant wrote \"{}\"", self.said));
        }
        format!("- {}.", told.join("; "))
    }
}

#[cfg(test)]
#[path = "tests/digest.rs"]
mod tests;
