//! A scripted provider whose model calls the proxy's tools, in each dialect.

use std::sync::{Arc, Mutex};

use compactproxy::demo::answer::{Answer, ToolCall};
use compactproxy::demo::provider::Settings;
use compactproxy::demo::request::ModelRequest;
use compactproxy::demo::script::{Behaviour, Reply};
use serde_json::{Value, json};

use super::chat::{ids, words};

pub const EVICTION: &str = "[tool_result_eviction]\nmax_result_chars = 2000\npreview_chars = 200\n";
pub const NEEDLE: &str = "the launch code is 4711";

pub fn sections(tools: &str) -> String {
    format!("{EVICTION}[tools]\npage_chars = 1_900\n{tools}")
}

/// A result too long to stay, with the needle in its middle.
pub fn long() -> String {
    format!("{}\n{NEEDLE}\n{}", words(1, 500), words(2, 500))
}

pub type Step = Box<dyn Fn(&ModelRequest) -> Reply + Send>;

/// A provider that takes these steps, then says "Done.", behind a proxy with these sections.
pub fn scripted(steps: Vec<Step>) -> Settings {
    let steps = Arc::new(Mutex::new(std::collections::VecDeque::from(steps)));
    let behaviour = Behaviour::new(move |request| {
        let step = steps.lock().unwrap().pop_front();
        step.map_or_else(|| Reply::Say(Answer::text("Done.")), |step| step(request))
    });
    Settings { behaviour: behaviour.with_summaries(), ..Settings::default() }
}

pub fn step(reply: impl Fn(&ModelRequest) -> Reply + Send + 'static) -> Step {
    Box::new(reply)
}

/// The proxy's tool, asked for the needle. Where it is not offered the model knows it from its history.
pub fn own(request: &ModelRequest, number: usize) -> ToolCall {
    // What the provider holds of the history is no part of the body.
    let seen = format!("{}{}", request.body, Value::from(request.messages()));
    let id = ids(seen.as_bytes()).first().cloned().unwrap_or_default();
    let offered = request
        .tools()
        .iter()
        .any(|tool| [&tool["function"]["name"], &tool["name"]].iter().any(|name| *name == "read_evicted"));
    assert!(offered || seen.contains("\"read_evicted\""), "{:?}", request.tools());
    let arguments = json!({"id": id, "pattern": "launch code"}).to_string();
    ToolCall { id: format!("own_{number}"), name: "read_evicted".to_owned(), arguments }
}

pub fn clients(number: usize) -> ToolCall {
    ToolCall { id: format!("call_{number}"), name: "execute".to_owned(), arguments: r#"{"command":"ls"}"#.to_owned() }
}

pub fn says(text: &str, calls: Vec<ToolCall>) -> Reply {
    Reply::Say(Answer { calls, text: Some(text.to_owned()).filter(|text| !text.is_empty()), ..Answer::default() })
}

/// Most items that a round's results are.
const MOST_RESULTS: usize = 128;

/// The result of a call that the request ends with.
pub fn result(request: &ModelRequest, id: &str) -> Option<String> {
    let of = |value: &Value| ["tool_call_id", "call_id", "tool_use_id"].iter().any(|key| value[*key] == id);
    let text = |value: &Value| value["output"].as_str().or_else(|| value["content"].as_str()).map(str::to_owned);
    let items = request.messages().iter().rev().take(1 + MOST_RESULTS);
    let mut values =
        items.flat_map(|item| std::iter::once(item).chain(item["content"].as_array().into_iter().flatten()));
    values.find_map(|value| text(value).filter(|_| of(value)))
}
