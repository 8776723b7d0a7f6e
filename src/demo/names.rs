//! The names of tools, declared and called, with the errors by which they are refused (C8, R7, A22).

use serde_json::Value;

use super::messages::rules::invalid as refused_by_anthropic;
use super::request::{Api, ModelRequest, kind, list, text};
use super::rules::{Violation, bounded, invalid};

/// Which names of tools are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Names {
    /// Those that OpenAI and Anthropic take.
    #[default]
    Plain,
    /// Also with dots and letters of any script, as lenient servers take them; for conversations recorded there.
    Any,
}

/// Longest name at OpenAI and at Anthropic, characters.
const MOST: [usize; 2] = [64, 128];
/// Most that a namespace nests.
const MOST_NESTED: usize = 2;

/// The first name that the provider does not take, in what the request brings itself.
pub fn check(request: &ModelRequest) -> Result<(), Violation> {
    let brought = request.messages().get(request.held..).unwrap_or_default();
    match request.api {
        Api::Chat => {
            list(&request.body, "tools")
                .iter()
                .enumerate()
                .try_for_each(|(n, tool)| callee(&format!("tools[{n}]"), tool))?;
            brought.iter().enumerate().try_for_each(|(n, message)| calls(&format!("messages[{n}]"), message))
        }
        Api::Responses => {
            declared("tools", list(&request.body, "tools"), MOST_NESTED)?;
            brought.iter().enumerate().try_for_each(|(n, item)| of_item(&format!("input[{n}]"), item))
        }
        Api::Messages => {
            let own = |tool: &Value| matches!(kind(tool), "" | "custom");
            let tools = list(&request.body, "tools").iter().enumerate().filter(|(_, tool)| own(tool));
            tools
                .map(|(n, tool)| (format!("tools.{n}.custom"), tool))
                .try_for_each(|(at, tool)| of_anthropic(&at, tool))?;
            brought.iter().enumerate().try_for_each(|(n, message)| blocks(n, message))
        }
    }
}

/// A tool or a call of Chat Completions.
fn callee(at: &str, value: &Value) -> Result<(), Violation> {
    let forms = ["function", "custom"].into_iter().filter_map(|form| Some((form, value.get(form)?)));
    forms.into_iter().try_for_each(|(form, inner)| of_openai("C8", &format!("{at}.{form}"), inner))
}

fn calls(at: &str, message: &Value) -> Result<(), Violation> {
    let calls = list(message, "tool_calls").iter().enumerate();
    calls.into_iter().try_for_each(|(n, call)| callee(&format!("{at}.tool_calls[{n}]"), call))
}

/// Tools of Responses that have a name of the client's own, those of a namespace included.
fn declared(at: &str, tools: &[Value], nested: usize) -> Result<(), Violation> {
    for (n, tool) in tools.iter().enumerate() {
        let at = format!("{at}[{n}]");
        if matches!(kind(tool), "function" | "custom") {
            of_openai("R7", &at, tool)?;
        }
        if nested > 0 {
            declared(&format!("{at}.tools"), list(tool, "tools"), nested - 1)?;
        }
    }
    Ok(())
}

fn of_item(at: &str, item: &Value) -> Result<(), Violation> {
    match kind(item) {
        "function_call" | "custom_tool_call" => of_openai("R7", at, item),
        "additional_tools" => declared(&format!("{at}.tools"), list(item, "tools"), MOST_NESTED),
        _ => Ok(()),
    }
}

fn blocks(n: usize, message: &Value) -> Result<(), Violation> {
    let calls = list(message, "content").iter().enumerate().filter(|(_, block)| kind(block) == "tool_use");
    calls.into_iter().try_for_each(|(k, call)| of_anthropic(&format!("messages.{n}.content.{k}.tool_use"), call))
}

fn of_openai(rule: &'static str, at: &str, named: &Value) -> Result<(), Violation> {
    let (at, name) = (format!("{at}.name"), text(named, "name"));
    if name.is_empty() {
        let text = format!(
            "Invalid '{at}': empty string. Expected a string with minimum length 1, but got an empty string instead."
        );
        return Err(invalid(rule, &text, Some(&at), Some("empty_string")));
    }
    if !is_plain(name) {
        let text = format!(
            "Invalid '{at}': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
        );
        return Err(invalid(rule, &text, Some(&at), Some("invalid_value")));
    }
    let [most, _] = MOST;
    bounded(rule, &at, name, most)
}

fn of_anthropic(at: &str, named: &Value) -> Result<(), Violation> {
    let (name, [_, most]) = (text(named, "name"), MOST);
    let wrong = match name.len() {
        0 => "String should have at least 1 character".to_owned(),
        _ if name.chars().count() > most => format!("String should have at most {most} characters"),
        _ if !is_plain(name) => format!("String should match pattern '^[a-zA-Z0-9_-]{{1,{most}}}$'"),
        _ => return Ok(()),
    };
    Err(refused_by_anthropic("A22", format!("{at}.name: {wrong}")))
}

fn is_plain(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

#[cfg(test)]
#[path = "tests/names.rs"]
mod tests;
