//! What refusals say of a body: that its form is to blame, also where that comes as a server's own failure (local servers
//! answer 500 where a chat template will not render the messages, D2 to D5), or that it has tools. Who is busy, or has
//! something out of order for the moment, says neither.

use std::sync::LazyLock;

use regex::bytes::{Regex, RegexBuilder};

use super::overflow::EXAMINED_BYTES;

/// What templates, and those who check in their place, say of the order of roles, of call ids and of system messages.
const WORDINGS: &[&str] = &[
    r"(?:^|[^\w-])jinja",
    r"\btemplate ?error\b",
    r"\bchat[ _]template\b[^.;]{0,80}\b(?:fail\w*|error|exception|render\w*|appl\w+)",
    r"\b(?:fail\w*|error|exception|render\w*|appl\w+)\b[^.;]{0,80}\bchat[ _]template\b",
    r"\broles? must (?:strictly )?alternate\b",
    r"\bunexpected role\b",
    r"\broles?\b\W{1,4}(?:tool|function|system|developer)\b[^.;]{0,30}(?:\bnot\b|n't\b|\bunsupported\b)",
    r"\bexpected last role\b",
    r"\b(?:only|unknown|unsupported|invalid)\b[^.;]{0,60}\broles?\b",
    r"\bsystem (?:message|role|prompt)\b[^.;]{0,30}\b(?:must be|should be|not supported)\b",
    r"\btool call id was\b",
    r"\bnot the same number of function calls and responses\b",
    r"\bcannot have 2 or more assistant messages\b",
    r"\bno user (?:query|message) found\b",
];

/// What servers say whose model, or whose configuration, takes no tools at all.
const NO_TOOLS: &[&str] = &[
    // Ollama, Bedrock, OpenRouter, Groq, Mistral, Gemini and who words it like them.
    r"(?:\bnot|n't|\bno endpoints? found that|\bunable to) support\w*\b[^.;]{0,60}\b(?:tools?|functions?|(?:tool|function)[ _-]call\w*)\b",
    r"\b(?:tools?|tool[ _-]use|tool[ _-]choice|functions?|(?:tool|function)[ _-]call\w*)\b[^.;]{0,60}\b(?:(?:is|are) (?:currently |yet )?not (?:currently |yet )?(?:supported|enabled|available|allowed|permitted)|not supported|unsupported|isn't supported|aren't supported)\b",
    // vLLM without a parser for calls, llama.cpp without its template engine.
    r"--enable-auto-tool-choice\b",
    r"\btools? param\w* requires? --jinja\b",
    // Who reads requests strictly.
    r"\b(?:unknown|unrecognized|unsupported|extra) (?:request )?(?:arguments?|param\w*|fields?|keys?|propert\w+)\b[^.;]{0,30}\btools(?:[^\[.\w]|$)",
    r"\btools\W{1,4}extra (?:inputs|fields) (?:are )?not permitted\b",
];

/// What is said of a failure that passes.
const MOMENTS: &[&str] = &[
    r"\btemporar",
    r"\b(?:try|retry|trying) (?:again|later|your request)\b",
    r"\bcurrently (?:un|over)",
    r"\bover(?:loaded|load|capacity)\b",
    r"\b(?:rate|usage)[ _-]?limit",
    r"\bat the moment\b",
    r"\bmaintenance\b",
    r"\bout of capacity\b",
];

static FORM: LazyLock<Regex> = LazyLock::new(|| any_of(WORDINGS));
static TOOLS: LazyLock<Regex> = LazyLock::new(|| any_of(NO_TOOLS));
static MOMENT: LazyLock<Regex> = LazyLock::new(|| any_of(MOMENTS));

/// What the text of a refusal blames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blames {
    /// Nothing that the proxy may have brought into the body.
    Nothing,
    /// The form of the messages, whatever else it speaks of: the client's own body has neither that form nor the
    /// proxy's tools.
    Form,
    /// That there are tools.
    Tools,
}

#[expect(clippy::expect_used, reason = "the patterns are constants and compiled by the tests")]
fn any_of(wordings: &[&str]) -> Regex {
    RegexBuilder::new(&wordings.join("|")).unicode(false).case_insensitive(true).build().expect("a pattern of our own")
}

/// What an error's body blames; `status`: the one that it came with, or names, if there is any.
pub fn blames(status: Option<u16>, body: &[u8]) -> Blames {
    let text = body.get(..EXAMINED_BYTES).unwrap_or(body);
    let of_moment = || matches!(status, Some(408 | 425 | 429 | 503 | 504 | 529)) || MOMENT.is_match(text);
    match () {
        () if FORM.is_match(text) => Blames::Form,
        () if TOOLS.is_match(text) && !of_moment() => Blames::Tools,
        () => Blames::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_no_tools_is_understood_and_what_is_wrong_with_one_is_something_else() {
        for text in [
            r#"{"error":{"message":"registry.ollama.ai/library/gemma3:4b does not support tools","type":"api_error","param":null,"code":null}}"#,
            r#"{"error":"registry.ollama.ai/library/gemma:2b does not support tools"}"#,
            r#"{"object":"error","message":"\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set","type":"BadRequestError","param":null,"code":400}"#,
            r#"{"error":{"message":"No endpoints found that support tool use. To learn more about provider routing, visit: https://openrouter.ai/docs","code":404}}"#,
            r#"{"error":{"code":500,"message":"tools param requires --jinja flag","type":"server_error"}}"#,
            r#"{"error":{"message":"`tool calling` is not supported with this model","type":"invalid_request_error"}}"#,
            r#"{"error":{"message":"Unsupported parameter: 'tools' is not supported with this model.","type":"invalid_request_error","param":"tools","code":"unsupported_parameter"}}"#,
            r#"{"object":"error","message":"Function calling is not enabled for this model","type":"invalid_request_error","code":3051}"#,
            r#"{"error":{"code":400,"message":"Function calling is not enabled for models/gemma-3-27b-it","status":"INVALID_ARGUMENT"}}"#,
            r#"{"message":"This model doesn't support tool use."}"#,
            r#"{"message":"This model doesn't support tool use in streaming mode."}"#,
            r#"{"error":{"message":"deepseek-reasoner does not support Function Calling"}}"#,
            r#"{"error":{"message":"Unrecognized request argument supplied: tools"}}"#,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"tools: Extra inputs are not permitted"}}"#,
        ] {
            for status in [None, Some(400), Some(404), Some(500), Some(501)] {
                assert_eq!(blames(status, text.as_bytes()), Blames::Tools, "{status:?} {text}");
            }
            for status in [408, 429, 503, 504, 529] {
                assert_eq!(blames(Some(status), text.as_bytes()), Blames::Nothing, "{status} is of the moment: {text}");
            }
        }
        for text in [
            "",
            r#"{"error":{"message":"Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified."}}"#,
            r#"{"error":{"message":"Missing required parameter: 'tools[0].function.name'."}}"#,
            r#"{"error":{"message":"Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 129 instead."}}"#,
            r#"{"error":{"message":"An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'."}}"#,
            r#"{"type":"error","error":{"message":"messages.2: `tool_use` ids were found without `tool_result` blocks immediately after: t1."}}"#,
            r#"{"type":"error","error":{"message":"unexpected `tool_use_id` found in `tool_result` blocks: t1. Each `tool_result` block must have a corresponding `tool_use` block"}}"#,
            r#"{"error":{"message":"Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported."}}"#,
            r#"{"error":{"message":"max_tokens is too large"}}"#,
            r#"{"error":{"message":"Unknown parameter: 'tools[0].strict'."}}"#,
            r#"{"error":{"message":"The function is currently unavailable.","type":"server_error"}}"#,
            r#"{"error":{"message":"Tool calling is temporarily not available for this model. Please try again later."}}"#,
            r#"{"error":{"message":"Function calling is not available at the moment, the service is overloaded."}}"#,
            r#"{"error":{"message":"Tools are currently unavailable"}}"#,
            r#"{"error":{"message":"No tool call found for function call output with call_id call_1.","param":"input"}}"#,
            r#"{"error":{"message":"Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."}}"#,
            r#"{"error":{"message":"tool_call_id call_1 not found in 'tool_calls' of previous message"}}"#,
            r#"{"error":{"message":"This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens (8900 in the messages, 100 in the functions)."}}"#,
        ] {
            assert_ne!(blames(Some(400), text.as_bytes()), Blames::Tools, "{text}");
        }
    }

    #[test]
    fn templates_blame_the_form_and_other_failures_do_not() {
        for text in [
            r#"{"error":{"code":500,"message":"Jinja Exception: After the optional system message, conversation roles must alternate user/assistant/user/assistant/...","type":"server_error"}}"#,
            r#"{"object":"error","message":"After the optional system message, conversation roles must alternate user/assistant","code":500}"#,
            r#"{"detail":"Tool call id was turn1_0 but must be a-z, A-Z, 0-9, with a length of 9."}"#,
            r#"{"object":"error","message":"Unexpected role 'user' after role 'tool'","code":"3230"}"#,
            "Cannot have 2 or more assistant messages at the end of the list.",
            r#"{"error":"Failed to apply chat template: No user query found in messages."}"#,
            r#"{"error":{"message":"System message must be at the beginning."}}"#,
            "jinja2.exceptions.TemplateError: Only user and assistant roles are supported!",
            // What was rewritten is to blame as much as what was offered.
            r#"{"error":{"code":500,"message":"Jinja Exception: tools are not supported where the first message is not the user's"}}"#,
            r#"{"error":"Failed to apply chat template: this model does not support tools behind a system message"}"#,
            r#"{"error":{"message":"Role 'tool' is not supported by this model"}}"#,
        ] {
            assert_eq!(blames(Some(500), text.as_bytes()), Blames::Form, "{text}");
        }
        for text in [
            "",
            "Internal Server Error",
            r#"{"error":{"message":"The server had an error while processing your request. Sorry about that!","type":"server_error"}}"#,
            r#"{"error":{"message":"CUDA out of memory. Tried to allocate 2.00 GiB","code":500}}"#,
            r#"{"error":{"message":"upstream connect error or disconnect/reset before headers"}}"#,
            r#"{"error":"the model runner has unexpectedly stopped"}"#,
        ] {
            assert_eq!(blames(Some(500), text.as_bytes()), Blames::Nothing, "{text}");
        }
    }
}
