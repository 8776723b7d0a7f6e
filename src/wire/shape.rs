//! The dialect of a body whose path names none, by its members. Only what is certain counts: what could as well be
//! in another dialect, or be no model call at all, is in none. Bodies of other works of the same providers look
//! alike: embeddings and moderations have `model` and `input` too, counts of tokens `model` and `messages`.

use std::ops::Range;

use super::conversation::Dialect;
use super::members::text_of;
use super::scan::{Cursor, Member, elements, kind, members};

/// Bytes of a body within which its conversation has to begin; many tools may stand before it.
pub const BEGINNING: usize = 256 * 1024;

/// What the first bytes of a body show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// A conversation: whose, the whole body says.
    Conversation,
    /// Surely none.
    Other,
    /// Not enough to tell.
    Open,
}

/// Words that begin a part of the paths where providers do other work than model calls.
const OTHER_WORKS: [&str; 29] = [
    "assistant",
    "audio",
    "batch",
    "classif",
    "count",
    "embed",
    "eval",
    "event",
    "feedback",
    "file",
    "fine",
    "image",
    "log",
    "metric",
    "moderation",
    "pooling",
    "realtime",
    "render",
    "rerank",
    "score",
    "search",
    "speech",
    "telemetry",
    "thread",
    "token",
    "trace",
    "transcri",
    "upload",
    "vector",
];

/// Members of bodies that are something else: other works, records of calls, other providers' own APIs.
const FOREIGN: [&str; 25] = [
    "add_special_tokens",
    "assistant_id",
    "batch",
    "chat_history",
    "choices",
    "completion",
    "contents",
    "custom_id",
    "dimensions",
    "documents",
    "encoding_format",
    "events",
    "input_type",
    "jsonrpc",
    "keep_alive",
    "options",
    "output",
    "queries",
    "query",
    "requests",
    "response",
    "texts",
    "training_file",
    "video",
    "voice",
];

/// Members that only requests in Chat Completions have beside Messages.
const CHAT_ONLY: [&str; 15] = [
    "frequency_penalty",
    "function_call",
    "functions",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "n",
    "parallel_tool_calls",
    "presence_penalty",
    "reasoning_effort",
    "response_format",
    "seed",
    "stop",
    "store",
    "stream_options",
];

/// Members that only requests in Messages have beside Chat Completions.
const MESSAGES_ONLY: [&str; 6] =
    ["anthropic_version", "container", "context_management", "mcp_servers", "stop_sequences", "system"];

/// Members that make a Responses request of a body with `model` and a text for `input`.
const RESPONSES_ONLY: [&str; 5] = ["include", "instructions", "max_output_tokens", "previous_response_id", "reasoning"];

/// Whether a model call could be meant at a path that names no dialect.
pub fn may_be_meant(path: &str) -> bool {
    let words = path.split(|sign: char| !sign.is_ascii_alphanumeric()).map(str::to_ascii_lowercase);
    let other = |word: &str| OTHER_WORKS.iter().any(|work| word.starts_with(work)) || word.contains("token");
    // Ollama's own API looks like Chat Completions and is answered otherwise.
    !path.trim_end_matches('/').ends_with("/api/chat") && !words.into_iter().any(|word| other(&word))
}

/// Looks at the first bytes of a body.
pub fn begun(start: &[u8]) -> Begun {
    let mut cursor = Cursor::new(start, 0);
    match cursor.peek() {
        Some(b'{') => {}
        None => return Begun::Open,
        Some(_) => return Begun::Other,
    }
    let mut more = cursor.open(b'{', b'}');
    let mut text = false;
    while more == Ok(true) {
        let Ok(key) = cursor.key() else { return Begun::Open };
        if is_foreign(&key) {
            return Begun::Other;
        }
        if key == "messages" || key == "input" {
            text = match cursor.peek() {
                Some(b'[') => return element(cursor),
                Some(b'"') if key == "input" => true,
                None => return Begun::Open,
                Some(_) => return Begun::Other,
            };
        }
        if cursor.value().is_err() {
            return Begun::Open;
        }
        more = cursor.more(b'}');
    }
    match more {
        Ok(_) if text => Begun::Conversation,
        Ok(_) => Begun::Other,
        Err(_) => Begun::Open,
    }
}

/// What the first element of the array at the cursor shows.
fn element(mut cursor: Cursor<'_>) -> Begun {
    let begins = cursor.open(b'[', b']');
    match cursor.peek() {
        None => Begun::Open,
        Some(b'{') if begins == Ok(true) => Begun::Conversation,
        Some(_) => Begun::Other,
    }
}

/// The one of `spoken` that a whole body is in; `None` unless it is certain.
pub fn dialect(body: &[u8], spoken: &[Dialect]) -> Option<Dialect> {
    let whole = Object { text: body, members: members(body, 0).ok()? };
    if whole.members.iter().any(|(key, _)| is_foreign(key)) {
        return None;
    }
    let mut fitting = spoken.iter().copied().filter(|dialect| fits(*dialect, &whole));
    fitting.next().filter(|_| fitting.next().is_none())
}

fn is_foreign(key: &str) -> bool {
    FOREIGN.contains(&key)
}

fn fits(dialect: Dialect, whole: &Object<'_>) -> bool {
    match dialect {
        Dialect::Chat => is_chat(whole),
        Dialect::Messages => is_messages(whole),
        Dialect::Responses => is_responses(whole),
    }
}

fn is_chat(whole: &Object<'_>) -> bool {
    whole.is("model", b'"')
        && !whole.has_any(&["input", "prompt"])
        && !whole.has_any(&MESSAGES_ONLY)
        && whole.each("tools").iter().all(|tool| !tool.has_any(&["input_schema"]))
        && whole.some_and_all("messages", is_chat_message)
}

fn is_chat_message(message: &Object<'_>) -> bool {
    let called = |call: &Object<'_>| {
        let function = call.member("function").is_some_and(|function| function.is("arguments", b'"'));
        call.is("id", b'"') && (function || call.is("custom", b'{'))
    };
    let known = match message.text("role").as_deref() {
        Some("system" | "developer" | "user" | "assistant") => true,
        Some("tool") => message.is("tool_call_id", b'"'),
        Some("function") => message.is("name", b'"'),
        _ => false,
    };
    let part = |part: &Object<'_>| {
        let foreign = ["tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document", "input_text"];
        part.text("type").is_some_and(|form| !foreign.contains(&form.as_str()))
    };
    known && message.each("content").iter().all(part) && message.each("tool_calls").iter().all(called)
}

fn is_messages(whole: &Object<'_>) -> bool {
    whole.has_any(&["model", "anthropic_version"])
        && whole.has_any(&["max_tokens"])
        && !whole.has_any(&["input", "prompt"])
        && !whole.has_any(&CHAT_ONLY)
        && whole.each("tools").iter().all(|tool| !tool.has_any(&["function"]))
        && whole.some_and_all("messages", is_message)
}

fn is_message(message: &Object<'_>) -> bool {
    let known = matches!(message.text("role").as_deref(), Some("user" | "assistant"));
    let part = |part: &Object<'_>| {
        let foreign = ["image_url", "input_audio", "file", "refusal", "input_text"];
        part.text("type").is_some_and(|form| !foreign.contains(&form.as_str()))
    };
    known
        && (message.is("content", b'"') || message.is("content", b'['))
        && !message.has_any(&["tool_calls", "tool_call_id", "function_call", "reasoning_content"])
        && message.each("content").iter().all(part)
}

fn is_responses(whole: &Object<'_>) -> bool {
    let known = whole.is("model", b'"') && !whole.has_any(&["messages", "response_format"]);
    let prompt = whole.member("prompt").is_none_or(|prompt| !prompt.members.is_empty());
    let input = match whole.is("input", b'"') {
        true => whole.has_any(&RESPONSES_ONLY),
        false => whole.some_and_all("input", is_input_item),
    };
    known && prompt && input
}

/// Typed items and messages. Parts alone (`text`, `image_url`) are what moderations and embeddings take.
fn is_input_item(item: &Object<'_>) -> bool {
    let typed = |form: &str| {
        let others = ["message", "reasoning", "item_reference", "compaction", "compaction_trigger"];
        let more = ["additional_tools", "program", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response"];
        let ends = ["_call", "_call_output", "_output"].iter().any(|end| form.ends_with(end));
        others.contains(&form) || more.contains(&form) || ends
    };
    let role = item.text("role");
    let role = role.as_deref().is_some_and(|role| ["user", "assistant", "system", "developer"].contains(&role));
    match item.text("type") {
        Some(form) => typed(&form),
        None => role && item.has_any(&["content"]),
    }
}

/// An object within a body, with its members.
struct Object<'t> {
    text: &'t [u8],
    members: Vec<Member<'t>>,
}

impl<'t> Object<'t> {
    fn at(text: &'t [u8], span: &Range<usize>) -> Option<Self> {
        Some(Self { text, members: members(text, span.start).ok()? })
    }

    fn span(&self, key: &str) -> Option<&Range<usize>> {
        self.members.iter().find(|(name, _)| name == key).map(|(_, span)| span)
    }

    fn has_any(&self, keys: &[&str]) -> bool {
        self.members.iter().any(|(name, _)| keys.contains(&name.as_ref()))
    }

    /// Whether a member's value begins with `sign`.
    fn is(&self, key: &str, sign: u8) -> bool {
        self.span(key).is_some_and(|span| kind(self.text, span) == sign)
    }

    fn text(&self, key: &str) -> Option<String> {
        text_of(self.text, &self.members, key).ok().flatten()
    }

    fn member(&self, key: &str) -> Option<Self> {
        Self::at(self.text, self.span(key)?)
    }

    /// The elements of an array; what is no object has no members.
    fn each(&self, key: &str) -> Vec<Self> {
        let spans = self.span(key).and_then(|span| elements(self.text, span.start).ok()).unwrap_or_default();
        let object = |span| Self::at(self.text, &span).unwrap_or(Self { text: self.text, members: Vec::new() });
        spans.into_iter().map(object).collect()
    }

    /// Whether a member is an array of some elements, all of which `fit`.
    fn some_and_all(&self, key: &str, fit: impl Fn(&Self) -> bool) -> bool {
        let elements = self.each(key);
        !elements.is_empty() && elements.iter().all(fit)
    }
}

#[cfg(test)]
#[path = "tests/shape.rs"]
mod tests;
