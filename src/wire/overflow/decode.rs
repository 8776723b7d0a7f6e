//! Decode first, match second: the sentences of an error body, out of all its wrappings.

use serde_json::{Map, Value};

/// Strings that hold JSON are decoded at most this deep.
const MAX_REDECODES: usize = 4;
/// Nesting of objects and arrays that is followed.
const MAX_NESTING: usize = 12;
/// Elements of one array that are followed.
const MAX_ELEMENTS: usize = 16;
/// Attempts to read JSON inside one string; each costs at most one pass over it.
const MAX_ATTEMPTS: usize = 8;
/// Sentences taken from one body.
const MAX_SAYINGS: usize = 64;
/// Bytes of one sentence: wordings are short, what is longer is a traceback or an echo.
const MAX_SAYING_BYTES: usize = 16 * 1024;

/// Whether the body is known to be an error, by its status or its event's name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    Error,
    Unsure,
}

/// One sentence of an error with what stands beside it.
#[derive(Debug, Default)]
pub(super) struct Saying {
    /// Normalised: lower case, single spaces, echoes of the request cut off.
    pub text: String,
    /// Lower-case values of `code`, `type` and the like.
    pub codes: Vec<String>,
    pub fields: FieldNumbers,
    /// It or what contains it is an error of another kind (rate, credit, access).
    pub vetoed: bool,
    /// The HTTP status that it names, by number or by name.
    pub status: Option<u16>,
    /// A success that is an overflow in disguise, with the limit if it shows.
    pub silent: Option<Option<u64>>,
}

/// Token counts given as members of their own.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct FieldNumbers {
    pub input: Option<u64>,
    pub limit: Option<u64>,
}

/// Members whose string is a sentence.
const TEXT_KEYS: &[&str] = &[
    "message",
    "msg",
    "error",
    "error_message",
    "error_msg",
    "errorMessage",
    "Message",
    "detail",
    "details",
    "description",
    "reason",
    "title",
    "raw",
    "cause",
    "error_description",
    "status_msg",
];
/// Members that are followed into objects and arrays. Deliberately not `input`, `messages`, `ctx`:
/// validation errors echo the request there.
const CHILD_KEYS: &[&str] = &[
    "error",
    "errors",
    "message",
    "detail",
    "details",
    "metadata",
    "raw",
    "cause",
    "innererror",
    "inner_error",
    "provider_error",
    "upstream_error",
    "base_resp",
    "err",
];
/// Members that hold either the upstream's answer or an echo: followed if error-shaped.
const DOUBTFUL_KEYS: &[&str] = &["response", "body", "responseBody", "response_body", "data"];
const CODE_KEYS: &[&str] =
    &["code", "type", "error_type", "errorType", "error_code", "errorCode", "status", "reason", "__type", "name"];
const STATUS_KEYS: &[&str] = &["code", "status", "http_code", "status_code", "statusCode"];
const INPUT_KEYS: &[&str] = &["n_prompt_tokens", "prompt_tokens", "input_tokens", "num_prompt_tokens"];
const LIMIT_KEYS: &[&str] =
    &["n_ctx", "context_length", "max_context_length", "max_input_tokens", "max_model_len", "context_window"];

/// All sentences of a body, outermost first.
pub(super) fn sayings(body: &[u8], known: Known) -> Vec<Saying> {
    let mut walk = Walk { found: Vec::new() };
    let text = String::from_utf8_lossy(body);
    let text = text.trim_start_matches('\u{feff}').trim();
    match serde_json::from_str::<Value>(text) {
        Ok(value) => walk.root(&value, known),
        Err(_) => match events(text) {
            Some(events) => events.iter().for_each(|(data, known)| walk.event(data, *known)),
            None if known == Known::Error => walk.text(text, &Beside::default(), Depth::default()),
            None => {}
        },
    }
    walk.found
}

/// The data of a body that is an event stream, whatever its content type said.
fn events(text: &str) -> Option<Vec<(String, Known)>> {
    ["data:", "event:", "error:", ":", "id:"].iter().any(|field| text.starts_with(field)).then_some(())?;
    let mut reader = crate::wire::sse::Reader::new();
    reader.push(text.as_bytes());
    reader.finish();
    let events: Vec<_> = std::iter::from_fn(|| reader.next_event()).take(MAX_SAYINGS).collect();
    let named = |name: &Option<String>| match name.as_deref() {
        Some("error") => Known::Error,
        _ => Known::Unsure,
    };
    Some(events.into_iter().map(|event| (event.data, named(&event.name))).collect())
}

#[derive(Default, Clone)]
struct Beside {
    codes: Vec<String>,
    fields: FieldNumbers,
    vetoed: bool,
    status: Option<u16>,
}

#[derive(Default, Clone, Copy)]
struct Depth {
    nesting: usize,
    redecodes: usize,
}

struct Walk {
    found: Vec<Saying>,
}

impl Walk {
    fn event(&mut self, data: &str, known: Known) {
        match serde_json::from_str::<Value>(data) {
            Ok(value) => self.root(&value, known),
            Err(_) if known == Known::Error => self.text(data, &Beside::default(), Depth::default()),
            Err(_) => {}
        }
    }

    fn root(&mut self, value: &Value, known: Known) {
        // A gateway may encode the whole body once more.
        if let Value::String(inner) = value
            && let Ok(value) = serde_json::from_str::<Value>(inner)
            && !value.is_string()
        {
            return self.root(&value, known);
        }
        if let Some(limit) = silent_overflow(value) {
            self.found.push(Saying { silent: Some(limit), ..Saying::default() });
        } else if is_error(value) || (known == Known::Error && !value.as_object().is_some_and(is_answer)) {
            self.value(value, &Beside::default(), Depth::default());
        }
    }

    fn value(&mut self, value: &Value, beside: &Beside, depth: Depth) {
        if depth.nesting >= MAX_NESTING || self.found.len() >= MAX_SAYINGS {
            return;
        }
        let deeper = Depth { nesting: depth.nesting + 1, ..depth };
        match value {
            Value::String(text) => self.text(text, beside, deeper),
            Value::Array(values) => {
                values.iter().take(MAX_ELEMENTS).for_each(|value| self.value(value, beside, deeper));
            }
            Value::Object(object) => self.object(object, beside, deeper),
            _ => {}
        }
    }

    fn object(&mut self, object: &Map<String, Value>, outer: &Beside, depth: Depth) {
        let codes: Vec<String> = CODE_KEYS.iter().filter_map(|key| code(object.get(*key)?)).collect();
        let vetoed = outer.vetoed
            || codes.iter().any(|code| super::phrases::is_foreign_code(code))
            || STATUS_KEYS.iter().filter_map(|key| object.get(*key)).any(is_foreign_status);
        let number = |keys: &[&str]| keys.iter().find_map(|key| object.get(*key)?.as_u64());
        let fields = FieldNumbers { input: number(INPUT_KEYS), limit: number(LIMIT_KEYS) };
        let status = super::kind::status(STATUS_KEYS.iter().filter_map(|key| object.get(*key)), &codes);
        let beside = Beside { codes, fields, vetoed, status };
        let before = self.found.len();
        for text in TEXT_KEYS.iter().filter_map(|key| object.get(*key)?.as_str()) {
            self.text(text, &beside, depth);
        }
        if self.found.len() == before {
            self.push(String::new(), &beside);
        }
        let inherited = Beside { vetoed, ..Beside::default() };
        for child in CHILD_KEYS.iter().filter_map(|key| object.get(*key)).filter(|child| !child.is_string()) {
            self.value(child, &inherited, depth);
        }
        for error in choice_errors(object) {
            self.value(error, &inherited, depth);
        }
        for child in DOUBTFUL_KEYS.iter().filter_map(|key| object.get(*key)) {
            let decoded = child.as_str().and_then(|text| serde_json::from_str(text).ok());
            let child = decoded.as_ref().unwrap_or(child);
            if is_error(child) {
                self.value(child, &inherited, depth);
            }
        }
    }

    /// A sentence and the JSON inside it.
    fn text(&mut self, text: &str, beside: &Beside, depth: Depth) {
        if self.found.len() >= MAX_SAYINGS {
            return;
        }
        let text = super::phrases::prefix(text, super::EXAMINED_BYTES);
        if depth.redecodes >= MAX_REDECODES {
            return self.push(super::phrases::normalise(super::phrases::prefix(text, MAX_SAYING_BYTES)), beside);
        }
        let deeper = Depth { redecodes: depth.redecodes + 1, ..depth };
        let (outside, inside) = embedded(text);
        if inside.is_empty() && text.contains("{\\\"") {
            return self.text(&text.replace("\\\"", "\"").replace("\\\\", "\\"), beside, deeper);
        }
        self.push(super::phrases::normalise(super::phrases::prefix(&outside, MAX_SAYING_BYTES)), beside);
        let inherited = Beside { vetoed: beside.vetoed, ..Beside::default() };
        for value in inside.iter().filter(|value| !is_request(value)) {
            self.value(value, &inherited, deeper);
        }
    }

    fn push(&mut self, text: String, beside: &Beside) {
        let Beside { codes, fields, vetoed, status } = beside.clone();
        self.found.push(Saying { text, codes, fields, vetoed, status, silent: None });
    }
}

/// The text around JSON objects in a string, and the objects.
fn embedded(text: &str) -> (String, Vec<Value>) {
    let (mut outside, mut inside) = (String::new(), Vec::new());
    let mut rest = text;
    let mut from = 0;
    for _ in 0..MAX_ATTEMPTS {
        let Some(at) = rest.get(from..).and_then(|tail| tail.find('{')).map(|at| from + at) else { break };
        let (Some(head), Some(tail)) = (rest.get(..at), rest.get(at..)) else { break };
        from = at + 1;
        if !tail.trim_start_matches(['{', ' ', '\n', '\r', '\t']).starts_with('"') {
            continue;
        }
        let mut stream = serde_json::Deserializer::from_str(tail).into_iter::<Value>();
        if let Some(Ok(value)) = stream.next() {
            outside.push_str(head);
            outside.push(' ');
            inside.push(value);
            rest = tail.get(stream.byte_offset()..).unwrap_or_default();
            from = 0;
        }
    }
    outside.push_str(rest);
    (outside, inside)
}

/// A string code in lower case; numbers say nothing.
fn code(value: &Value) -> Option<String> {
    value.as_str().filter(|code| code.len() <= 128).map(str::to_ascii_lowercase)
}

/// A status inside the body that is never an overflow.
fn is_foreign_status(value: &Value) -> bool {
    let status = value.as_u64().or_else(|| value.as_str()?.parse().ok());
    matches!(status, Some(401 | 402 | 403 | 429 | 529))
}

/// The echo of a request rather than an error.
fn is_request(value: &Value) -> bool {
    ["messages", "role", "contents"].iter().any(|key| value.get(key).is_some()) && value.get("error").is_none()
}

/// A model's answer.
fn is_answer(object: &Map<String, Value>) -> bool {
    ["choices", "candidates", "output", "content"].iter().any(|key| object.get(*key).is_some_and(Value::is_array))
}

fn is_error(value: &Value) -> bool {
    match value {
        Value::Array(values) => values.iter().take(MAX_ELEMENTS).any(is_error),
        Value::Object(object) => is_error_object(object),
        _ => false,
    }
}

/// Whether JSON under a 200 says by its shape that it is an error.
pub(super) fn is_error_object(object: &Map<String, Value>) -> bool {
    let text = |key: &str| object.get(key).and_then(Value::as_str);
    let has = |key: &str| match object.get(key) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::Array(values)) => !values.is_empty(),
        Some(Value::Object(members)) => !members.is_empty(),
        Some(Value::String(text)) => !text.is_empty(),
        Some(_) => true,
    };
    let failed = object.get("response").and_then(|response| response.get("error")).is_some_and(Value::is_object);
    let by_name = has("error") || text("type") == Some("error") || text("object") == Some("error");
    let bare = ["errors", "detail"].iter().any(|key| has(key)) || (text("role").is_none() && text("message").is_some());
    by_name || failed || is_refused(object) || choice_errors(object).next().is_some() || (bare && !is_answer(object))
}

/// MiniMax's way of saying so: a status of its own beside empty members of an answer.
fn is_refused(object: &Map<String, Value>) -> bool {
    let status = object.get("base_resp").and_then(|told| told.get("status_code")?.as_i64());
    status.is_some_and(|status| status != 0) && !is_answer(object)
}

/// Errors in place of what was to be said.
fn choice_errors(object: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let choices = object.get("choices").and_then(Value::as_array).into_iter().flatten().take(MAX_ELEMENTS);
    choices.filter_map(|choice| choice.get("error")).filter(|error| error.is_object())
}

/// A success without any output because the prompt filled the window. The inner
/// value is the window where the usage shows it.
fn silent_overflow(value: &Value) -> Option<Option<u64>> {
    let choice = value.pointer("/choices/0")?;
    let count = |key: &str| value.pointer(key).and_then(Value::as_u64);
    let written = count("/usage/completion_tokens");
    let empty = choice.pointer("/message/content").is_none_or(|text| text.is_null() || text == "")
        && choice.pointer("/message/tool_calls").is_none_or(Value::is_null);
    match choice.get("finish_reason").and_then(Value::as_str)? {
        "model_context_window_exceeded" if written == Some(0) || empty => Some(None),
        "length" if written == Some(0) && empty => Some(count("/usage/prompt_tokens")),
        _ => None,
    }
}
