//! Refusals of a body's form that come as a server's own failure: local servers answer 500 where a chat template
//! will not render the messages (D2 to D5).

use std::sync::LazyLock;

use regex::bytes::{Regex, RegexBuilder};

use super::overflow::EXAMINED_BYTES;

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

#[expect(clippy::expect_used, reason = "the patterns are constants and compiled by the tests")]
static FORM: LazyLock<Regex> = LazyLock::new(|| {
    let text = WORDINGS.join("|");
    RegexBuilder::new(&text).unicode(false).case_insensitive(true).build().expect("a pattern of our own")
});

/// Whether an error's body blames the form of the messages.
pub fn blames_form(body: &[u8]) -> bool {
    FORM.is_match(body.get(..EXAMINED_BYTES).unwrap_or(body))
}

#[cfg(test)]
mod tests {
    use super::*;

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
