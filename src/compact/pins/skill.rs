//! Skills that a tool loaded: their instructions stay in force after the result that brought them is gone.

use super::super::exchange::{Exchange, argument};
use super::{PinKind, State, Worth, result_slots};

/// Characters up to which the result itself is left alone.
const SHOWN_CHARS: usize = 40_000;
const LOADERS: &[&str] = &["skill", "loadskill", "useskill", "activateskill", "readskill", "invokeskill"];
const READERS: &[&str] = &["read", "readfile", "view", "viewfile", "openfile", "cat", "strreplaceeditor"];
const NAME: &[&str] = &["skill", "skill_name", "skillName", "name", "command"];
const PATH: &[&str] = &["file_path", "filePath", "path", "target_file", "filename"];

/// Every loaded skill, as it was loaded last.
pub fn states(exchanges: &[Exchange]) -> Vec<State> {
    let mut states: Vec<(String, State)> = Vec::new();
    for exchange in exchanges {
        let (Some(name), Some(_)) = (loaded(exchange), &exchange.result) else { continue };
        let text = format!("Skill {name}:\n{}", exchange.answer());
        let state = State {
            kind: PinKind::Skill,
            worth: Worth::First,
            item: exchange.item,
            text,
            shown: result_slots(exchange, SHOWN_CHARS),
        };
        states.retain(|(known, _)| *known != name);
        states.push((name, state));
    }
    states.into_iter().map(|(_, state)| state).collect()
}

fn loaded(exchange: &Exchange) -> Option<String> {
    let tool = exchange.tool();
    let arguments = exchange.json();
    if LOADERS.contains(&tool.as_str()) {
        return argument(&arguments, NAME);
    }
    let path = argument(&arguments, PATH)?;
    (READERS.contains(&tool.as_str()) && path.ends_with("SKILL.md")).then_some(path)
}
