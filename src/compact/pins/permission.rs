//! What the user allowed, refused or answered through a tool. The wording comes out of tool results, so it is quoted
//! with the tool it answered and never counts as typed.

use super::super::excerpt::{one_line, split_at_char};
use super::super::exchange::{Exchange, argument};
use super::{PinKind, State, Worth, result_slots};

/// An answer is recognised by how it begins: a file that talks about permissions is none.
const LOOK_CHARS: usize = 240;
/// Characters of an answer that are quoted.
const QUOTE_CHARS: usize = 600;
/// An answer of the harness is short: a longer result with such a beginning is somebody's text about answers.
const SHOWN_CHARS: usize = 10_000;
/// Tools that put a question to the user.
const QUESTIONS: &[&str] = &[
    "askuserquestion",
    "askfollowupquestion",
    "askuser",
    "requestuserinput",
    "askclarification",
    "askhuman",
    "question",
];
/// Members that say what was asked or about to be done.
const ABOUT: &[&str] = &[
    "question",
    "command",
    "cmd",
    "file_path",
    "filePath",
    "path",
    "target_file",
    "url",
    "plan",
    "description",
    "prompt",
];

/// Tools besides whose result says what the user allowed.
const ASKING: &[&str] =
    &["exitplanmode", "enterplanmode", "planmoderespond", "requestpermission", "requestpermissions", "askpermission"];

/// Sentences of harnesses that stand in place of a refused tool's result, as they begin.
const REFUSALS: &[&str] = &[
    "the user doesn't want to proceed with this tool use",
    "the user doesn't want to take this action",
    "user rejected",
    "rejected by user",
    "rejected by the user",
    "the user rejected",
    "exec command rejected by user",
    "command rejected by user",
    "patch rejected by user",
    "user denied",
    "the user denied",
    "denied by user",
    "denied by the user",
    "user declined",
    "user has declined",
    "the user declined",
    "the user has declined",
    "user cancelled",
    "the user cancelled",
    "user canceled",
    "[request interrupted by user",
    "user chose to stay in plan mode",
    "permission denied by",
    "tool use was rejected",
    "permission to use",
    "claude requested permissions",
    "aborted by user",
    "user has specified a rule which prevents",
    "the user has specified a rule which prevents",
];
/// Sentences that say what the user allowed, as they begin; they count only in results of tools that ask.
const APPROVALS: &[&str] = &[
    "user has approved",
    "the user has approved",
    "the user approved",
    "user approved",
    "approved by user",
    "approved by the user",
    "user has answered your question",
    "user has allowed",
    "the user allowed",
    "user granted",
    "the user granted",
    "permission granted",
];

/// What a tool result says of the user's will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Granted,
    Refused,
}

/// The verdict with which a result begins, if it begins with one. Any tool's result may hold such words further in.
pub fn verdict(result: &str) -> Option<Verdict> {
    if !split_at_char(result, SHOWN_CHARS).1.is_empty() {
        return None;
    }
    let (start, _) = split_at_char(result.trim_start(), LOOK_CHARS);
    let start = start.to_lowercase().replace('\u{2019}', "'");
    let start = start.strip_prefix("error: ").unwrap_or(&start);
    let says = |phrases: &[&str]| phrases.iter().any(|phrase| start.starts_with(phrase));
    match (says(REFUSALS), says(APPROVALS)) {
        (true, _) => Some(Verdict::Refused),
        (false, true) => Some(Verdict::Granted),
        (false, false) => None,
    }
}

/// Every permission answer, the same one once.
pub fn states(exchanges: &[Exchange]) -> Vec<State> {
    let mut states: Vec<State> = Vec::new();
    for exchange in exchanges {
        let Some(answer) = &exchange.result else { continue };
        let tool = exchange.tool();
        let questions = QUESTIONS.contains(&tool.as_str());
        let (kind, worth) = match verdict(&answer.text) {
            Some(Verdict::Refused) => ("refused", Worth::First),
            Some(Verdict::Granted) if questions || ASKING.contains(&tool.as_str()) => ("approved", Worth::Second),
            _ if questions => ("answered", Worth::Second),
            _ => continue,
        };
        let about = argument(&exchange.json(), ABOUT).unwrap_or_else(|| exchange.arguments.clone());
        let text = format!(
            "- {kind}: tool {} about \"{}\"; the result said: \"{}\"",
            exchange.name,
            one_line(&about, 200),
            one_line(&answer.text, QUOTE_CHARS),
        );
        let shown = result_slots(exchange, SHOWN_CHARS);
        match states.iter_mut().find(|state| state.text == text) {
            // Said again: the latest stands for all.
            Some(known) => {
                known.item = exchange.item;
                known.shown = shown;
            }
            None => states.push(State { kind: PinKind::Permission, worth, item: exchange.item, text, shown }),
        }
    }
    states.sort_by_key(|state| state.item);
    states
}
