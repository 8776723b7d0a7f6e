//! What refusals say of a body: that its form is to blame, also where that comes as a server's own failure (local servers
//! answer 500 where a chat template will not render the messages, D2 to D5), or that it has tools.

use std::sync::LazyLock;

use regex::bytes::{Regex, RegexBuilder};

use super::overflow::{self, EXAMINED_BYTES};

/// What templates, and those who check in their place, say of the order of roles, of call ids and of system messages.
const WORDINGS: &[&str] = &[
    r"\bjinja",
    r"\btemplate ?error\b",
    r"\bchat[ _]template\b[^.;]{0,80}\b(?:fail\w*|error|exception|render\w*|appl\w+)",
    r"\b(?:fail\w*|error|exception|render\w*|appl\w+)\b[^.;]{0,80}\bchat[ _]template\b",
    r"\broles? must (?:strictly )?alternate\b",
    r"\bunexpected role\b",
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
    r"\b(?:tools?|tool[ _-]use|functions?|(?:tool|function)[ _-]call\w*)\b[^.;]{0,60}\b(?:(?:is|are) (?:currently |yet )?(?:not|un)[ -]?(?:supported|enabled|available|allowed|permitted)|not supported|unsupported|isn't supported|aren't supported)\b",
    // Who reads requests strictly; llama.cpp before it had a template engine.
    r"\b(?:unknown|unrecognized|unsupported|extra) (?:request )?(?:arguments?|param\w*|fields?|keys?|propert\w+)\b[^.;]{0,30}\btools(?:[^\[.\w]|$)",
    r"\btools\W{1,4}extra (?:inputs|fields) (?:are )?not permitted\b",
];

/// The same by what is to be done about it: vLLM and SGLang without a parser for calls, llama.cpp without its engine.
const NO_PARSER: &[&str] = &[
    r"--enable-auto-tool-choice\b",
    r"\btools? param\w* requires? --jinja\b",
    r"\bunsupported tool_call_parser: none\b",
];

/// What is said of the moment. Nobody who takes no tools asks to be tried again.
const MOMENT: &[&str] = &[
    r"\btemporar(?:y|il)",
    r"\bunavailable\b",
    r"\b(?:currently|right now|at the moment|at this time)\b[^.;]{0,20}\bnot available\b",
    r"\bnot available\b[^.;]{0,20}\b(?:currently|right now|at the moment|at this time)\b",
    r"\b(?:try|retry|come back)\b[^.;]{0,40}\b(?:again|later|soon|shortly|moment|minutes?|seconds?)\b",
    r"\boverload",
    r"\brate[ _-]?limit",
    r"\btoo[ _]many[ _]requests\b",
    r"\b(?:over|at) capacity\b",
    r"\bmaintenance\b",
    r"\btimed? ?out\b",
];

/// What is said of the messages, where calls, results and their roles stand, of the way in which calls are made, or of
/// one kind of tools: not that there are some.
const OF_SOME: &[&str] = &[
    r"\broles? must\b",
    r"\brole\W{0,3}(?:of )?\W?(?:tool|function)\b",
    r"\b(?:tool|function)\W{0,2} roles?\b",
    r"\b(?:unexpected|unknown|unsupported|invalid) role\b",
    r"\bno user (?:query|message) found\b",
    r"\b(?:tool|function)[ _-]?(?:calls?|use)?[ _-]?(?:results?|outputs?|responses?|messages?|ids?|types?)\b",
    r"\b(?:tool|function)[ _-]calls?\b[^.;]{0,40}\b(?:must|should|were|was|found|followed|preceding|results?|messages?|history)\b",
    r"\b(?:assistant|previous|preceding|last|messages|history|conversation)\b[^.;]{0,60}\b(?:tool|function)[ _-](?:calls?|use)\b",
    r"\b(?:parallel|multiple|single|several|more than one|one)\b[^.;]{0,20}\b(?:tool|function)[ _-]?(?:calls?|use)\b",
    r"\b(?:type of tools?|tools? of type|tools?\[)",
];

static FORM: LazyLock<Regex> = LazyLock::new(|| any_of(WORDINGS));
static TOOLS: LazyLock<Regex> = LazyLock::new(|| any_of(NO_TOOLS));
static PARSER: LazyLock<Regex> = LazyLock::new(|| any_of(NO_PARSER));
static ELSE: LazyLock<Regex> = LazyLock::new(|| any_of(&[MOMENT, OF_SOME].concat()));

#[expect(clippy::expect_used, reason = "the patterns are constants and compiled by the tests")]
fn any_of(wordings: &[&str]) -> Regex {
    RegexBuilder::new(&wordings.join("|")).unicode(false).case_insensitive(true).build().expect("a pattern of our own")
}

/// Whether an error's body blames the form of the messages.
pub fn blames_form(body: &[u8]) -> bool {
    FORM.is_match(body.get(..EXAMINED_BYTES).unwrap_or(body))
}

/// Whether an error says that no tools are taken, whichever they are. `status`: that of its answer, if that is an error.
pub fn refuses_tools(status: Option<u16>, body: &[u8]) -> bool {
    let of_the_moment = |status: Option<u16>| status.is_some_and(overflow::is_of_the_moment);
    if of_the_moment(status) || of_the_moment(overflow::status_told(body)) {
        return false;
    }
    let said = overflow::said(body);
    PARSER.is_match(said.as_bytes()) || TOOLS.is_match(said.as_bytes()) && !ELSE.is_match(said.as_bytes())
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
            r#"{"code":500,"message":"Unsupported param: tools","type":"server_error"}"#,
            r#"{"object":"error","message":"Unsupported tool_call_parser: None","type":"BadRequestError","param":null,"code":400}"#,
            r#"{"error":{"message":"`tools` is not supported with this model","type":"invalid_request_error"}}"#,
            r#"{"error":{"message":"No endpoints found that support tool use. Try disabling \"question\". To learn more about provider routing, visit: https://openrouter.ai/docs/guides/routing/provider-selection","code":404}}"#,
            r#"{"error":{"message":"Function calling is not supported for this model"}}"#,
            r#"{"error":{"message":"Tool use is currently not supported for this model"}}"#,
            r#"{"error":{"message":"hf.co/x/y.gguf does not support tools"},"messages":[{"role":"tool","content":"try again later"}]}"#,
            r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"this model does not support tools\"}}","provider_name":"x"}}}"#,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"tools: Extra inputs are not permitted"}}"#,
        ] {
            assert!(refuses_tools(Some(400), text.as_bytes()), "{text}");
            assert!(!refuses_tools(Some(503), text.as_bytes()), "{text}");
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
        ] {
            assert!(!refuses_tools(Some(400), text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn what_is_of_the_moment_or_of_messages_is_no_refusal_of_tools() {
        for text in [
            // Of the moment.
            r#"{"error":{"message":"The function is currently unavailable"}}"#,
            r#"{"error":{"message":"tools are temporarily not supported"}}"#,
            r#"{"error":{"message":"Tool calling is currently not available for this model"}}"#,
            r#"{"error":{"message":"Tools are not available, please try again later."}}"#,
            r#"{"error":{"message":"Function calling is not enabled: overloaded"}}"#,
            r#"{"error":{"message":"tool use is not supported","code":"rate_limit_exceeded"}}"#,
            r#"{"error":{"message":"tool use is not available","code":503}}"#,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"tools are not available"}}"#,
            // Of the messages.
            r#"{"error":{"code":500,"message":"\n------------\nWhile executing CallExpression at line 189, column 32 in source:\n...== 0) %}  {{- raise_exception('After the optional system message, con...\n ^\nError: Jinja Exception: After the optional system message, conversation roles must alternate user and assistant roles except for tool calls and results.","type":"server_error"}}"#,
            r#"{"error":{"message":"Conversation roles must alternate user/assistant: the tool is not supported here"}}"#,
            r#"{"error":"Failed to apply chat template: No user query found in messages. Tools are not supported there."}"#,
            r#"{"error":{"message":"tool_call_id call_1 not found in 'tool_calls' of previous message"}}"#,
            r#"{"error":{"message":"Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."}}"#,
            r#"{"error":{"message":"Role 'tool' is not supported by this model"}}"#,
            r#"{"error":{"message":"Unsupported role: tool messages are not supported"}}"#,
            r#"{"error":{"message":"tool results are not supported by this template"}}"#,
            r#"{"error":{"message":"This template does not support tool calls in previous assistant messages"}}"#,
            r#"{"error":{"message":"assistant messages with tool_calls are not supported"}}"#,
            r#"{"error":{"message":"Jinja Exception: This model only supports single tool-calls at once!"}}"#,
            // Of one kind of them.
            r#"{"error":{"message":"This model does not support parallel tool calls"}}"#,
            r#"{"error":{"message":"parallel_tool_calls is not supported with this model"}}"#,
            r#"{"error":{"message":"Tool type 'web_search' is not supported"}}"#,
            r#"{"error":{"message":"deepseek-reasoner does not support this tool_choice"}}"#,
            r#"{"detail":[{"type":"missing","loc":["body","model"],"msg":"Field required","input":{"messages":[{"role":"user","content":"gemma does not support tools"}]}}]}"#,
            r#"{"error":{"message":"This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens (8900 in the messages, 100 in the functions)."}}"#,
        ] {
            assert!(!refuses_tools(Some(400), text.as_bytes()), "{text}");
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
        ] {
            assert!(blames_form(text.as_bytes()), "{text}");
        }
        for text in [
            "",
            "Internal Server Error",
            r#"{"error":{"message":"The server had an error while processing your request. Sorry about that!","type":"server_error"}}"#,
            r#"{"error":{"message":"CUDA out of memory. Tried to allocate 2.00 GiB","code":500}}"#,
            r#"{"error":{"message":"upstream connect error or disconnect/reset before headers"}}"#,
            r#"{"error":"the model runner has unexpectedly stopped"}"#,
        ] {
            assert!(!blames_form(text.as_bytes()), "{text}");
        }
    }
}
