//! Reading a completion as a client does, and finding fault with a stream that is not well-formed.

use serde_json::Value;

use super::answer::{ToolCall, Usage};

/// An answer that was read to its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Completion {
    pub text: Option<String>,
    pub calls: Vec<ToolCall>,
    pub finish: String,
    pub usage: Usage,
}

/// Reads an answer in one piece.
pub fn from_json(body: &[u8]) -> Result<Completion, String> {
    let body: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let mut completion = Completion::default();
    completion.take_usage(&body);
    let choice = body.pointer("/choices/0").ok_or_else(|| error_message(body.to_string().as_bytes()))?;
    completion.finish = string(choice, "/finish_reason").unwrap_or_default();
    completion.text = string(choice, "/message/content");
    let calls = choice.pointer("/message/tool_calls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    completion.calls = calls
        .iter()
        .map(|call| ToolCall {
            id: string(call, "/id").unwrap_or_default(),
            name: string(call, "/function/name").unwrap_or_default(),
            arguments: string(call, "/function/arguments").unwrap_or_default(),
        })
        .collect();
    Ok(completion)
}

/// Reads a whole event stream. An error if an event is no JSON or an error, if the finish reason or
/// the `[DONE]` at the end is missing.
pub fn from_stream(body: &[u8]) -> Result<Completion, String> {
    let body = std::str::from_utf8(body).map_err(|error| error.to_string())?;
    let mut completion = Completion::default();
    let mut done = false;
    let events = body.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
    for data in events {
        if done {
            return Err("an event after [DONE]".to_owned());
        }
        if data == "[DONE]" {
            done = true;
            continue;
        }
        let event: Value = serde_json::from_str(data).map_err(|error| error.to_string())?;
        if event.get("error").is_some() {
            return Err(error_message(data.as_bytes()));
        }
        completion.take_usage(&event);
        if let Some(choice) = event.pointer("/choices/0") {
            completion.take_choice(choice)?;
        }
    }
    match (done, completion.finish.is_empty()) {
        (true, false) => Ok(completion),
        (true, true) => Err("the stream has no finish reason".to_owned()),
        (false, _) => Err(error_message(body.as_bytes())),
    }
}

/// What an error body says, at most 300 characters of it.
pub fn error_message(body: &[u8]) -> String {
    let parsed: Option<Value> = serde_json::from_slice(body).ok();
    let paths = ["/error/message", "/message", "/detail", "/error"];
    let message = parsed.as_ref().and_then(|body| paths.iter().find_map(|path| string(body, path)));
    let message = message.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
    message.chars().take(300).collect()
}

fn string(value: &Value, path: &str) -> Option<String> {
    value.pointer(path).and_then(Value::as_str).map(str::to_owned)
}

impl Completion {
    fn take_usage(&mut self, body: &Value) {
        let number = |path: &str| body.pointer(path).and_then(Value::as_u64).unwrap_or_default();
        if body.get("usage").is_some_and(Value::is_object) {
            self.usage = Usage {
                prompt: number("/usage/prompt_tokens"),
                cached: number("/usage/prompt_tokens_details/cached_tokens"),
                completion: number("/usage/completion_tokens"),
                ..Usage::default()
            };
        }
    }

    fn take_choice(&mut self, choice: &Value) -> Result<(), String> {
        if let Some(finish) = string(choice, "/finish_reason") {
            self.finish = finish;
        }
        if let Some(text) = string(choice, "/delta/content") {
            self.text.get_or_insert_default().push_str(&text);
        }
        let deltas = choice.pointer("/delta/tool_calls").and_then(Value::as_array);
        for delta in deltas.map(Vec::as_slice).unwrap_or_default() {
            let index = delta.get("index").and_then(Value::as_u64).ok_or("a tool call without index")?;
            if index == self.calls.len() as u64 {
                let id = string(delta, "/id").ok_or("a tool call that does not begin with its id")?;
                let name = string(delta, "/function/name").ok_or("a tool call without a name")?;
                self.calls.push(ToolCall { id, name, arguments: String::new() });
            }
            let call = usize::try_from(index).ok().and_then(|index| self.calls.get_mut(index));
            let call = call.ok_or("a tool call out of order")?;
            call.arguments.push_str(&string(delta, "/function/arguments").unwrap_or_default());
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "tests/completion.rs"]
mod tests;
