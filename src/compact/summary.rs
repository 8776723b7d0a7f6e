//! Summaries: what is asked of the model, whether its answer may be used, and the texts that are made of it.

use super::excerpt::split_at_char;

pub use super::compose::{Parts, Story, compose, fold_text, offload_text};
pub use super::summary_prompt::{DEFAULT_PROMPT, MESSAGES, WARM_INSTRUCTION, prompt};
pub use super::transcript::{steps, transcript};

/// Characters of an answer that is short enough to be a refusal and nothing else.
const REFUSAL_CHARS: usize = 600;
/// Characters that a model may say before the first heading without being quoted.
const PREAMBLE_CHARS: usize = 300;
const FIRST_HEADING: &str = "SESSION INTENT";

const REFUSALS: &[&str] = &[
    "i'm sorry",
    "i am sorry",
    "sorry,",
    "i can't",
    "i cannot",
    "i can not",
    "i won't",
    "i will not",
    "i'm not able",
    "i am not able",
    "i'm unable",
    "i am unable",
    "unfortunately, i can",
    "as an ai",
    "我无法",
    "抱歉",
    "很抱歉",
    "对不起",
    "申し訳",
];

/// Beginnings of an answer that is a tool call written as text.
const CALLS: &[&str] = &["<tool_call", "<function_call", "<function=", "<invoke", "[TOOL_CALLS]", "<|tool_call"];

/// Why a side call's answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// By itself, or the provider does not say.
    Stop,
    /// At the output limit.
    Length,
    /// It calls a tool.
    ToolCall,
    /// The provider's filter or the model refused.
    Refused,
}

/// Why an answer is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Rejection {
    #[error("the summary is empty")]
    Empty,
    #[error("the model refused to summarise")]
    Refused,
    #[error("the summary was cut off at the output limit")]
    CutOff,
    #[error("the model called a tool instead of summarising")]
    ToolCall,
    #[error("the summary is not smaller than what it replaces")]
    NotSmaller,
}

impl Finish {
    /// Reads `finish_reason`, `stop_reason` or a Responses status.
    pub fn of(reason: Option<&str>) -> Self {
        match reason.unwrap_or_default() {
            "length" | "max_tokens" | "incomplete" | "max_output_tokens" | "model_context_window_exceeded" => {
                Self::Length
            }
            "tool_calls" | "function_call" | "tool_use" => Self::ToolCall,
            "content_filter" | "refusal" | "safety" => Self::Refused,
            _ => Self::Stop,
        }
    }
}

/// The summary in a model's answer, cleaned of wrapping and of marks that are the proxy's own. `replaces` is the size
/// in tokens of what it would stand for, by the same `count`. Nonsense passes: ledger and pins make it harmless.
pub fn accept(
    output: &str,
    finish: Finish,
    replaces: usize,
    count: &dyn Fn(&str) -> usize,
) -> Result<String, Rejection> {
    match finish {
        Finish::Length => return Err(Rejection::CutOff),
        Finish::ToolCall => return Err(Rejection::ToolCall),
        Finish::Refused => return Err(Rejection::Refused),
        Finish::Stop => {}
    }
    let text = sanitised(without_preamble(without_fence(without_thoughts(output.trim()))));
    if !text.chars().any(char::is_alphanumeric) {
        return Err(Rejection::Empty);
    }
    if is_call(&text) {
        return Err(Rejection::ToolCall);
    }
    if is_refusal(&text) {
        return Err(Rejection::Refused);
    }
    if count(&text) >= replaces { Err(Rejection::NotSmaller) } else { Ok(text) }
}

fn is_call(text: &str) -> bool {
    let json = serde_json::from_str::<serde_json::Value>(text).ok();
    let called = json.is_some_and(|json| json.get("name").is_some() && json.get("arguments").is_some());
    called || CALLS.iter().any(|start| text.starts_with(start))
}

fn is_refusal(text: &str) -> bool {
    let (_, rest) = split_at_char(text, REFUSAL_CHARS);
    let start = text.to_lowercase().replace('\u{2019}', "'");
    rest.is_empty() && !text.contains(FIRST_HEADING) && REFUSALS.iter().any(|refusal| start.starts_with(refusal))
}

/// Without the thoughts that some models write before their answer.
fn without_thoughts(text: &str) -> &str {
    let thoughts = ["think", "thinking", "reasoning"].iter().find_map(|tag| {
        let rest = text.strip_prefix(&format!("<{tag}>"))?;
        rest.split_once(&format!("</{tag}>")).map(|(_, answer)| answer)
    });
    thoughts.unwrap_or(text).trim()
}

/// Without a code fence around the whole.
fn without_fence(text: &str) -> &str {
    let inner = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    let Some((language, content)) = inner.and_then(|inner| inner.split_once('\n')) else { return text };
    let one_word = language.chars().all(char::is_alphanumeric);
    // A fence inside would mean that the first one closes earlier.
    if one_word && !content.contains("```") { content.trim() } else { text }
}

/// Without a short sentence before the first heading.
fn without_preamble(text: &str) -> &str {
    let Some(at) = text.find(FIRST_HEADING) else { return text };
    let line = text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |newline| newline + 1);
    let (Some(preamble), Some(rest)) = (text.get(..line), text.get(line..)) else { return text };
    if preamble.chars().count() <= PREAMBLE_CHARS { rest.trim() } else { text }
}

/// Marks that only the proxy writes are made unlike them.
fn sanitised(text: &str) -> String {
    text.replace("<compactproxy-", "(compactproxy-").replace("</compactproxy-", "(/compactproxy-")
}

#[cfg(test)]
#[path = "tests/summary.rs"]
mod tests;
