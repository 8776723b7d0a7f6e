//! What other servers behind the same route demand on top (D1–D12), each in its own words.

use serde_json::{Value, json};

use super::request::{messages, role, tool_calls};
use super::rules::{Violation, invalid};

/// Whose rules a provider enforces beside OpenAI's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Profile {
    OpenAi,
    /// D1, D2.
    Mistral,
    /// D3, D4, D5: strict chat templates on local servers.
    Template,
    /// D6: thinking mode.
    DeepSeek,
    /// D8: thinking mode.
    Moonshot,
    /// D9.
    Gemini,
    /// D9, D10.
    Gemini3,
    /// D11.
    Xai,
    /// D12: Bedrock's Converse behind a gateway.
    Bedrock,
}

impl Profile {
    pub const ALL: [Self; 9] = [
        Self::OpenAi,
        Self::Mistral,
        Self::Template,
        Self::DeepSeek,
        Self::Moonshot,
        Self::Gemini,
        Self::Gemini3,
        Self::Xai,
        Self::Bedrock,
    ];
}

/// The first of the profile's rules that `body` breaks. The body keeps OpenAI's rules.
pub fn check(profile: Profile, body: &Value) -> Result<(), Violation> {
    match profile {
        Profile::OpenAi => Ok(()),
        Profile::Mistral => mistral_order(body).and_then(|()| mistral_counts(body)).and_then(|()| mistral_ids(body)),
        Profile::Template => template(body),
        Profile::DeepSeek => deepseek(body),
        Profile::Moonshot => moonshot(body),
        Profile::Gemini => gemini_order(body),
        Profile::Gemini3 => gemini_order(body).and_then(|()| gemini_signatures(body)),
        Profile::Xai => xai(body),
        Profile::Bedrock => bedrock(body),
    }
}

fn mistral(message: &str, kind: &str, code: &str) -> Violation {
    let rule = if code == "3280" { "D2" } else { "D1" };
    let body = json!({"object": "error", "message": message, "type": kind, "param": null, "code": code});
    Violation { rule, status: 400, body }
}

fn mistral_order(body: &Value) -> Result<(), Violation> {
    let order = |text: &str| mistral(text, "invalid_request_message_order", "3230");
    let list = messages(body);
    for (before, message) in list.iter().zip(list.iter().skip(1)) {
        let (before, role) = (role(before), role(message));
        let allowed = match before {
            "tool" => matches!(role, "assistant" | "tool"),
            "user" => role != "tool",
            _ => true,
        };
        if !allowed {
            return Err(order(&format!("Unexpected role '{role}' after role '{before}'")));
        }
    }
    let Some(last) = list.last() else { return Ok(()) };
    let prefix = last.get("prefix").and_then(Value::as_bool).unwrap_or_default();
    match role(last) {
        "user" | "tool" => Ok(()),
        "assistant" if prefix => Ok(()),
        other => Err(order(&format!(
            "Expected last role User or Tool (or Assistant with prefix True) for serving but got {other}"
        ))),
    }
}

/// As many results behind a message as it makes calls.
fn mistral_counts(body: &Value) -> Result<(), Violation> {
    let mut due = 0_usize;
    let unequal = || {
        let text = "Not the same number of function calls and responses";
        Err(mistral(text, "invalid_request_message_order", "3230"))
    };
    for message in messages(body) {
        match (role(message), due) {
            ("tool", 0) => return unequal(),
            ("tool", _) => due -= 1,
            (_, 0) => due = tool_calls(message).len(),
            _ => return unequal(),
        }
    }
    if due == 0 { Ok(()) } else { unequal() }
}

fn mistral_ids(body: &Value) -> Result<(), Violation> {
    let calls = messages(body).iter().flat_map(tool_calls).filter_map(|call| call.get("id").and_then(Value::as_str));
    let results = messages(body).iter().filter_map(|message| message.get("tool_call_id").and_then(Value::as_str));
    match calls.chain(results).find(|id| id.len() != 9 || !id.bytes().all(|byte| byte.is_ascii_alphanumeric())) {
        None => Ok(()),
        Some(id) => Err(mistral(
            &format!("Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9."),
            "invalid_function_call",
            "3280",
        )),
    }
}

fn template(body: &Value) -> Result<(), Violation> {
    let jinja = |rule, text: &str| Violation {
        rule,
        status: 500,
        body: json!({"error": {"code": 500, "message": format!("Jinja Exception: {text}"), "type": "server_error"}}),
    };
    if messages(body).iter().skip(1).any(|message| matches!(role(message), "system" | "developer")) {
        return Err(jinja("D5", "System message must be at the beginning."));
    }
    if let [.., before, last] = messages(body)
        && role(before) == "assistant"
        && role(last) == "assistant"
    {
        let text = "Cannot have 2 or more assistant messages at the end of the list.";
        let body = json!({"error": {"code": 400, "message": text, "type": "invalid_request_error"}});
        return Err(Violation { rule: "D4", status: 400, body });
    }
    // A tool loop is one assistant turn: calls, results and the words after them.
    let mut expected = "user";
    let mut before = "";
    for (_, message) in conversation(body) {
        let now = role(message);
        match now {
            "tool" | "function" => {}
            "assistant" if matches!(before, "tool" | "function") => {}
            _ if now == expected => expected = if now == "user" { "assistant" } else { "user" },
            _ => {
                let text = "After the optional system message, conversation roles must alternate user/assistant/user/assistant/...";
                return Err(jinja("D3", text));
            }
        }
        before = now;
    }
    Ok(())
}

fn has_reasoning(message: &Value) -> bool {
    message.get("reasoning_content").is_some_and(Value::is_string)
}

/// Thinking is on where any assistant message carries reasoning.
fn assistants(body: &Value) -> impl Iterator<Item = (usize, &Value)> {
    messages(body).iter().enumerate().filter(|(_, message)| role(message) == "assistant")
}

fn deepseek(body: &Value) -> Result<(), Violation> {
    let thinking = assistants(body).any(|(_, message)| has_reasoning(message));
    match assistants(body).find(|(_, message)| !has_reasoning(message)) {
        Some((i, _)) if thinking => {
            let text = format!("Missing reasoning_content field in the assistant message at message index {i}");
            Err(invalid("D6", &text, None, Some("invalid_request_error")))
        }
        _ => Ok(()),
    }
}

fn moonshot(body: &Value) -> Result<(), Violation> {
    let thinking = assistants(body).any(|(_, message)| has_reasoning(message));
    match assistants(body).find(|(_, message)| !tool_calls(message).is_empty() && !has_reasoning(message)) {
        Some((i, _)) if thinking => {
            let text = format!(
                "thinking is enabled but reasoning_content is missing in assistant tool call message at index {i}"
            );
            Err(invalid("D8", &text, None, None))
        }
        _ => Ok(()),
    }
}

fn google(rule: &'static str, text: &str) -> Violation {
    let body = json!([{"error": {"code": 400, "message": text, "status": "INVALID_ARGUMENT"}}]);
    Violation { rule, status: 400, body }
}

fn gemini_order(body: &Value) -> Result<(), Violation> {
    let mut before = "";
    let mut calls = 0;
    let mut results = 0;
    let unequal = "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.";
    for (_, message) in conversation(body) {
        let now = role(message);
        if now == "tool" {
            results += 1;
        } else {
            if results != calls {
                return Err(google("D9", unequal));
            }
            (calls, results) = (tool_calls(message).len(), 0);
            if calls > 0 && !matches!(before, "user" | "tool") {
                let text = "Please ensure that function call turn comes immediately after a user turn or after a function response turn.";
                return Err(google("D9", text));
            }
        }
        before = now;
    }
    if results == calls { Ok(()) } else { Err(google("D9", unequal)) }
}

fn gemini_signatures(body: &Value) -> Result<(), Violation> {
    let turn = messages(body).iter().rposition(|message| role(message) == "user").unwrap_or_default();
    let unsigned = messages(body).iter().enumerate().skip(turn).find(|(_, message)| {
        tool_calls(message)
            .first()
            .is_some_and(|call| call.pointer("/extra_content/google/thought_signature").is_none_or(Value::is_null))
    });
    match unsigned {
        None => Ok(()),
        Some((i, message)) => {
            let name =
                tool_calls(message).first().and_then(|call| call.pointer("/function/name")).and_then(Value::as_str);
            let name = name.unwrap_or_default();
            let text = format!(
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, and missing thought_signature may lead to degraded model performance. Additional data, function call `default_api:{name}`, position {i}."
            );
            Err(google("D10", &text))
        }
    }
}

fn xai(body: &Value) -> Result<(), Violation> {
    let many = messages(body).iter().any(|message| {
        let parts = message.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        parts.iter().filter(|part| part.get("type").and_then(Value::as_str) == Some("text")).count() > 1
    });
    if !many {
        return Ok(());
    }
    let body = json!({
        "code": "Client specified an invalid argument",
        "error": "The model expects a single `text` element per message.",
    });
    Err(Violation { rule: "D11", status: 400, body })
}

fn bedrock(body: &Value) -> Result<(), Violation> {
    let converse = |text: &str| Violation { rule: "D12", status: 400, body: json!({ "message": text }) };
    let tools = body.get("tools").is_some_and(|tools| !tools.is_null());
    let list = messages(body);
    if !tools && list.iter().any(|message| role(message) == "tool" || !tool_calls(message).is_empty()) {
        return Err(converse("The toolConfig field must be defined when using toolUse and toolResult content blocks."));
    }
    // Converse knows only user and assistant turns: results and a user's words behind them are one turn.
    let mixed = list.iter().zip(list.iter().skip(1)).position(|(a, b)| role(a) == "tool" && role(b) == "user");
    match mixed {
        None => Ok(()),
        Some(i) => Err(converse(&format!(
            "messages.{i}.content: Conversation blocks and tool result blocks cannot be provided in the same turn."
        ))),
    }
}

/// The messages of `body` whose role is not `system` or `developer`, with their indices.
fn conversation(body: &Value) -> impl Iterator<Item = (usize, &Value)> {
    messages(body).iter().enumerate().filter(|(_, message)| !matches!(role(message), "system" | "developer"))
}

#[cfg(test)]
#[path = "tests/profiles.rs"]
mod tests;
