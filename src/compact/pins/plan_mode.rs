//! Plan mode: whether it is on, and the plan that was presented in it.

use std::sync::LazyLock;

use regex::Regex;

use super::super::exchange::{Exchange, argument};
use super::permission::{Verdict, verdict};
use super::{PinKind, State, Worth, arguments_slot};

const PLAN: &[&str] = &["plan", "response", "plan_text", "content"];
const FILE: &[&str] = &["planFilePath", "plan_file_path", "plan_path", "planPath"];

/// A plan file's path in a tool's answer.
static FILE_IN_ANSWER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)plan (?:file )?(?:has been |was |is |will be )?(?:saved|written)?\s*(?:to|at|in)?:?\s*`?(/?[\w./~-]+\.md)").ok()
});

/// The state after the last call that entered or left plan mode or presented a plan.
pub fn state(exchanges: &[Exchange]) -> Option<State> {
    let (mut mode, mut plan, mut file) = (None, None, None);
    let (mut first, mut shown) = (None, Vec::new());
    for exchange in exchanges {
        let tool = exchange.tool();
        let refused = verdict(exchange.answer()) == Some(Verdict::Refused);
        match tool.as_str() {
            "enterplanmode" if refused => continue,
            "enterplanmode" => mode = Some("Plan mode is on."),
            "exitplanmode" if refused => {
                mode = Some("Plan mode is on; the user refused to leave it with the plan below.")
            }
            "exitplanmode" => mode = Some("Plan mode is off; the plan below was presented when it ended."),
            "planmoderespond" => mode = Some("Plan mode is on; the plan below was presented."),
            _ => continue,
        }
        let arguments = exchange.json();
        file = argument(&arguments, FILE).or_else(|| file_in(exchange.answer())).or(file);
        let presented = argument(&arguments, PLAN);
        if presented.is_some() || tool == "enterplanmode" {
            // A new plan, or a new round of planning: what was shown before is history.
            (first, shown) = (Some(exchange.item), Vec::new());
            plan = presented;
        }
        first = first.or(Some(exchange.item));
        shown.extend(arguments_slot(exchange));
    }
    let file = file.map_or(String::new(), |file| format!("\nPlan file: {file}"));
    let plan = plan.map_or(String::new(), |plan| format!("\nPlan:\n{plan}"));
    Some(State {
        kind: PinKind::PlanMode,
        worth: Worth::First,
        item: first?,
        text: format!("{}{file}{plan}", mode?),
        shown,
    })
}

fn file_in(answer: &str) -> Option<String> {
    Some(FILE_IN_ANSWER.as_ref()?.captures(answer)?.get(1)?.as_str().to_owned())
}
