//! The families of wordings: which sentences speak of an input that is too long, and which only
//! sound like it (quotas, output caps, field lengths, echoed text).

use std::sync::LazyLock;

use regex::bytes::{Regex, RegexBuilder};

use super::numbers::Reading;
use super::{Scope, Unit};

/// What a sentence is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    None,
    /// The request as a whole has too many bytes.
    Bytes,
    /// The input is too long.
    Size(Unit),
}

/// Compiles one of this module tree's own patterns. ASCII only, which keeps the automata small.
#[expect(clippy::expect_used, reason = "the patterns are constants, each is compiled by the tests")]
pub(super) fn pattern(text: &str) -> Regex {
    RegexBuilder::new(text).unicode(false).build().expect("a pattern of our own")
}

macro_rules! families {
    ($($name:ident = [$($text:expr),* $(,)?];)*) => {
        $(static $name: LazyLock<Regex> = LazyLock::new(|| pattern(&[$($text),*].join("|")));)*
    };
}

families! {
    // The input, its length, and a word for "too much"; a limit is named where "exceeds" alone could mean anything.
    TOO_LONG = [
        r"\b(?:prompts?|inputs?|messages|conversation|context|request|history|chat|query|sequence|content)\b`?(?: \([^)]{0,40}\))?[^.;:]{0,40}?\btoo (?:long|large|big)\b",
        r"\btoo (?:long|large|many tokens)\b[^.;]{0,30}\b(?:for|to fit)\b[^.;]{0,30}\b(?:model|context)",
        r"\btoo (?:many|much) (?:input|prompt|context)\b",
        r"\btoo many (?:total )?tokens\b[^;]{0,80}\b(?:prompt|inputs?|messages|request|context|limit)\b",
        r"\b(?:prompts?|inputs?|messages|conversation|context|request|history|chat|query|sequence|prefill|tokens?)\b[^;]{0,60}\b(?:exceed\w*|surpass\w*|longer than|larger than|greater than|more than|over the|beyond|not fit|cannot be (?:greater|more|longer)|outgrow\w*|must be (?:less|smaller|at most|<)|must have (?:less|fewer|at most)|overflow\w*)\b[^;]{0,80}?\b(?:context|limit|max\w*|window|model'?s?|token|n_ctx\w*|allowed|length|capacity)",
        r"\b(?:shorten|shorter|reduce|truncate|trim|decrease)\b[^.;]{0,30}\b(?:length|size|number|amount)\b[^.;]{0,30}\b(?:prompt|messages|inputs?|conversation|context)\b",
        r"\b(?:provide|use|send|try) a (?:shorter|smaller) (?:prompt|input|message|context|conversation)",
        r"\b(?:shorten|reduce|trim) (?:your|the) (?:prompt|messages|inputs?|conversation|context)\b",
        r"^\W*(?:error:? )?too many tokens\W*$",
        r"\brange of (?:the )?(?:input|prompt|messages)[^.;]{0,20}\blength\b",
        r"\bmax(?:imum)? (?:input|prompt) (?:length|characters|chars|tokens) (?:is|of|=|:)",
        r"\bcannot truncate prompt\b",
        r"\b(?:input|prompt) tokens? (?:limit )?exceeded\b",
        r"\bmax tokens\b[^.;]{0,20}\bexceeded\b",
    ];
    // The window, and a word for "full", in either order.
    WINDOW = [
        r"\b(?:context|n_ctx\w*|max_model_len|max_seq_len|sequence length|token limit|prompt length|input length)\b(?:[^;]{0,120})\b(?:exceed\w*|surpass\w*|too (?:long|large|small)|longer|larger|overflow\w*|however|but|reduce|requested|resulted|reached|leaves 0|not enough|insufficient|ran out|full)\b",
        r"\b(?:exceed\w*|surpass\w*|overflow\w*|out of|beyond|longer than|larger than|greater than|more than|outside|not fit|reached|over)\b[^;]{0,80}\b(?:context (?:length|window|size|limit)|model(?:'s)? context|context\b|n_ctx\w*|max_model_len|max_seq_len|token limit|(?:maximum|max) (?:input|prompt|sequence)|model limit)",
        r"[<>]=? ?\d+ max(?:imum)?\b",
        r"\bcontext ?window ?exceeded",
    ];
    // Strong enough to count as error code, in any spelling.
    CODE = [
        r"context[_ ]?(?:length|window|size|limit)?[_ ]?(?:exceed|overflow|too|error)",
        r"exceed\w*[_ ]?context",
        r"(?:prompt|input|max_prompt_tokens|input_tokens|prompt_tokens|content_length)_?(?:is_)?(?:too_?(?:long|large|many)|exceed\w*|over)",
        r"tokens?_?limit_?(?:reached|exceeded)",
        r"invalid_request_prompt_too_long|string_too_long_prompt",
    ];
    WHOLE_REQUEST_BYTES = [
        r"\b(?:request|payload|body|entity|message)\b[^.;]{0,40}\b(?:too large|exceed\w*|larger than)\b[^;]{0,40}\b(?:size|bytes?|[kmg]i?b|max)\b",
        r"\b(?:request|payload|content|body) (?:entity |body )?too large\b",
    ];
    // Same words, other errors.
    FOREIGN = [
        r"\brate.?limit|\bper[ -](?:minute|min|day|hour|second|month)\b|\b[tr]p[md]\b|\bquota|\bbilling\b|\bcredits?\b|\bafford|\btoo many requests|\bthrottl|\boverloaded\b|\bwait before\b|\bextra usage\b|\bdaily\b|\bmonthly\b|\btoday\b|\bthis (?:minute|hour|day|week|month)\b|\bspending\b|\bconcurren|\bunauthori[sz]ed\b|\bpermission",
        r"\bimages?\b[^.;]{0,40}\b(?:exceed\w*|too (?:large|many|big)|dimensions?|pixels?|size)\b|\btoo many images\b|\bpixels\b|\bpdf\b|\bfile (?:size|too)|\baudio\b[^.;]{0,40}\b(?:exceed\w*|too)\b|\bvideo\b[^.;]{0,40}\b(?:exceed\w*|too)\b",
        r"\b(?:string|array|object) (?:value )?(?:too (?:long|large)|length)\b|\b(?:string|array) with (?:a )?(?:maximum|minimum|length)\b",
        r"^(?:\W*error:? )?\W*(?:invalid|unsupported|unknown|unrecognized|unexpected)\b (?:'|\x22|value|schema|type|role|field|argument)",
        r"^\W*invalid parameter: ",
        r"^\W*(?:messages|input|tools|system)(?:\.\d|\[\d)",
        r"\bvalidation errors? for\b|^\W*\d+ validation errors?\b",
        r"\bflagged\b|\bcontent (?:filter|management|policy)|\busage polic",
        r"\b(?:tool|function|header|url|uri|metadata|stop sequences?|file ?name|parameter name|tool name|description|title|user field|session|api key|password)\b[^.;:]{0,24}\b(?:too long|exceed\w*)",
        r"^\W*(?:logit_bias|stop|user|metadata|top_\w+|response_format|reasoning\w*|temperature|seed|n)\b\W*:|\bmust be one of\b",
        r"\btimed? ?out\b|\btime limit\b|\bdeadline\b",
        r"\bqueue[ds]?\b|\b(?:max\w*|exceeded|too many|number of)\b[^.;]{0,20}\bretr(?:y|ies)\b|\bretry (?:limit|attempts?|count|budget)\b|\b(?:at|over|no|insufficient|server|service|system|cluster|engine|gpu|deployment)\b[^.;]{0,20}\bcapacity\b",
        r"\b(?:does not|doesn't) exist\b|\b(?:model|endpoint|deployment|route) not found\b|\baccess\b[^.;]{0,12}\b(?:limits?|level|tier)\b",
        r"\b(?:too many|number of|\d+) (?:tools|functions|images|messages|documents|stop sequences|files|choices)\b",
        r"\bbeta\b|\bnot (?:yet )?(?:available|supported)\b",
    ];
    // The client asks for more output than the model ever writes: nothing to compact.
    OUTPUT_PARAMETER = [
        r"\bmax_(?:new_|completion_|output_)?tokens\b|\bmaxtokens\b|\bmax_new_tokens\b|\bmaxoutputtokens\b|\boutput tokens\b|\bcompletion tokens\b|\bmaximum tokens\b|\bmax output\b",
    ];
    // What such a sentence must name besides for the limit to be one of the window: the request alone has it all.
    WINDOW_NAMED = [
        r"\b(?:prompt|inputs?|messages|context|conversation|max_model_len|max_seq_len|sequence|prompt_len)\b",
    ];
    // What a sentence is about before it begins.
    LABEL = [
        r"^\W*(?:[a-z_]*error\W+)?(?:(?:invalid|bad|malformed|unprocessable|incorrect) (?:request|input|prompt|parameter|argument)s?|request validation (?:failed|error)|input validation (?:failed|error))\b[^:]{0,30}:\s*",
    ];
    // A sum of what the request has, though it speaks of images.
    IMAGES_AND_TEXT = [r"\btokens of (?:the )?(?:images? and (?:the )?text|text and (?:the )?images?)\b"];
    // What a failure of the server's must speak of to be one of length.
    LENGTH = [
        r"\b(?:prompts?|inputs?|messages|history|conversation|chat|query|sequence)\b[^.;:]{0,40}\b(?:length|long)\b|\bmax_(?:seq|model|input)_len",
    ];
    INPUT_NAMED = [
        r"\b(?:prompt|inputs?|messages|context|request|conversation|max_model_len|max_seq_len|sequence|prompt_len)\b",
    ];
    OUTPUT_SPOKEN = [
        r"\bcompletion\b|\bmax_(?:new_|completion_|output_)?tokens\b|\b(?:requested|maximum|of|or) output\b|\boutput tokens\b|\bgenerat",
    ];
    INPUT_SPOKEN = [r"\b(?:prompt|inputs?)\b"];
    TOKENS = [r"\btokens?\b|\d+tokens?\b|_tokens?\b|\bn_ctx|\bcontext\b"];
    BYTES = [r"\d ?(?:bytes?|[kmg]i?b)\b|\bbytes\b|\blarger than max\b"];
    CHARS = [r"\d ?(?:characters?|chars)\b|\b(?:number of|input|prompt) (?:characters|chars)\b"];
    PAGES = [r"\brequires \d+ pages\b|\bpages \(only\b"];
    TOTAL_SCOPE = [
        r"\bcontext|\bn_ctx|\bmax_model_len|\bmax_seq_len|\bmodel length|\bsequence length|\btotal\b|\bmax_(?:new_)?tokens`? must|\bmax_num_tokens|model token limit|\blength of the messages or completion",
    ];
    INPUT_SCOPE = [
        r"\b(?:maximum|max|allowed)\b[^.;\d]{0,20}\b(?:prompt|input)\b[^.;\d]{0,20}\b(?:length|tokens?)\b",
    ];
    // Where a request is quoted: what follows is not the provider's own wording.
    ECHO = [
        r#"['"](?:input|content|contents|messages|role|prompt|body|text|system|instructions|arguments)['"]\s*:"#,
        r"\binput_value=",
    ];
    QUOTED_VALUE = [
        r#"\b(?:value|values|content|text|got|found|received|near|json|string|argument|input|prompt|message|instruction|tool result|user said)s?(?:\s*[:=]\s*|\s+)(?:"[^"]{12,}"|'[^']{12,}'|`[^`]{12,}`)"#,
    ];
    FOREIGN_CODE = [
        r"rate_?limit|quota|billing|overloaded|throttl|resource_?exhausted|authentication|permission|unauthori[sz]ed|forbidden|content_filter|above_max_length|below_min|invalid_image|image_|invalid_function|not_found|insufficient|payment|request_timeout|extra_forbidden",
    ];
}

/// Phrases in other languages, matched as they stand.
const ELSEWHERE: &[&str] = &["超长", "超过最大长度", "上下文长度", "上下文窗口", "输入过长", "长度超过", "输入长度"];

/// What the sentence and its codes say. `reading` holds the numbers of the same sentence.
pub(super) fn signal(text: &str, codes: &[String], reading: &Reading) -> Signal {
    let bytes = text.as_bytes();
    let coded = codes.iter().any(|code| CODE.is_match(code.as_bytes())) || CODE.is_match(bytes);
    if FOREIGN.is_match(&IMAGES_AND_TEXT.replace_all(bytes, &b"tokens"[..])) {
        return Signal::None;
    }
    if PAGES.is_match(bytes) {
        return Signal::Size(Unit::Pages);
    }
    let tokens = TOKENS.is_match(bytes);
    if !tokens && !coded {
        if BYTES.is_match(bytes) || WHOLE_REQUEST_BYTES.is_match(bytes) || is_too_large_code(text, codes) {
            let about_request = WHOLE_REQUEST_BYTES.is_match(bytes) || TOO_LONG.is_match(bytes);
            return if about_request || is_too_large_code(text, codes) { Signal::Bytes } else { Signal::None };
        }
        if CHARS.is_match(bytes) {
            return if TOO_LONG.is_match(bytes) { Signal::Size(Unit::Chars) } else { Signal::None };
        }
    }
    let output_only = OUTPUT_PARAMETER.is_match(bytes) && !WINDOW_NAMED.is_match(&LABEL.replace(bytes, &b""[..]));
    if output_only && !coded {
        return if reading.nothing_left { Signal::Size(Unit::Tokens) } else { Signal::None };
    }
    let worded = TOO_LONG.is_match(bytes) || WINDOW.is_match(bytes) || ELSEWHERE.iter().any(|word| text.contains(word));
    let counted = tokens && INPUT_NAMED.is_match(bytes) && reading.is_over();
    if coded || worded || counted || reading.nothing_left { Signal::Size(Unit::Tokens) } else { Signal::None }
}

/// Anthropic's and its edge's code for bodies over 32 MB, with whatever sentence.
fn is_too_large_code(text: &str, codes: &[String]) -> bool {
    text.len() < 200 && codes.iter().any(|code| code == "request_too_large")
}

/// Whether a sentence speaks of length at all: a server that fails (500, 503) has other limits too, of its queue or of
/// its connections.
pub(super) fn is_about_length(text: &str, codes: &[String]) -> bool {
    let bytes = text.as_bytes();
    let told = [&TOKENS, &CODE, &LENGTH, &PAGES, &BYTES, &CHARS, &WHOLE_REQUEST_BYTES];
    told.iter().any(|family| family.is_match(bytes))
        || codes.iter().any(|code| CODE.is_match(code.as_bytes()))
        || ELSEWHERE.iter().any(|word| text.contains(word))
}

/// Whether the limit of a sentence bounds the input alone or input and output together.
pub(super) fn scope(text: &str) -> Scope {
    let bytes = text.as_bytes();
    let total = TOTAL_SCOPE.is_match(bytes) || OUTPUT_SPOKEN.is_match(bytes);
    let input_limit = INPUT_SCOPE.is_match(bytes) && !bytes.windows(7).any(|word| word == b"context");
    if total && !input_limit { Scope::Total } else { Scope::Input }
}

/// Whether the sentence offers less output as a way out.
pub(super) fn speaks_of_output(text: &str) -> bool {
    OUTPUT_SPOKEN.is_match(text.as_bytes())
}

/// Whether what the sentence counts is called input.
pub(super) fn speaks_of_input(text: &str) -> bool {
    INPUT_SPOKEN.is_match(text.as_bytes())
}

/// An error code of another kind of error; it speaks for everything inside the same object.
pub(super) fn is_foreign_code(code: &str) -> bool {
    FOREIGN_CODE.is_match(code.as_bytes()) && !CODE.is_match(code.as_bytes())
}

/// An HTML or XML page, from something between the proxy and the provider.
pub(super) fn is_markup(body: &[u8]) -> bool {
    let start = body.trim_ascii_start();
    start.first() == Some(&b'<') && start.get(1).is_some_and(|next| next.is_ascii_alphabetic() || *next == b'!')
}

/// The longest prefix of at most `max` bytes that ends at a character.
pub(super) fn prefix(text: &str, max: usize) -> &str {
    if text.len() <= max {
        text
    } else {
        (0..4).find_map(|back| text.get(..max.checked_sub(back)?)).unwrap_or_default()
    }
}

/// Lower case, single spaces, plain quotes and comparisons, without what is quoted from a request.
pub(super) fn normalise(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\u{2018}' | '\u{2019}' | '\u{b4}' => plain.push('\''),
            '\u{201c}' | '\u{201d}' => plain.push('"'),
            // Separators inside numbers.
            '\u{a0}' | '\u{202f}' | '\u{2009}' if plain.ends_with(|c: char| c.is_ascii_digit()) => plain.push(','),
            '\u{2264}' => plain.push_str("<="),
            '\u{2265}' => plain.push_str(">="),
            c if c.is_whitespace() && (plain.is_empty() || plain.ends_with(' ')) => {}
            c if c.is_whitespace() => plain.push(' '),
            c => plain.push(c.to_ascii_lowercase()),
        }
    }
    let plain = plain.replace("\\u003e", ">").replace("\\u003c", "<").replace("&gt;", ">").replace("&lt;", "<");
    let plain = plain.replace("&#39;", "'").replace("\\n", " ");
    let own = ECHO.find(plain.as_bytes()).map_or(plain.len(), |echo| echo.start());
    let own = prefix(&plain, own).trim_start_matches("input validation error: ");
    // MiniMax ends its sentences with a status code.
    let own = match own.starts_with("invalid params") {
        true => own.trim_end().trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '(' | ')')),
        false => own,
    };
    let unquoted = QUOTED_VALUE.replace_all(own.as_bytes(), &b" "[..]);
    String::from_utf8_lossy(&unquoted).into_owned()
}

#[cfg(test)]
pub(super) fn compile_all() {
    for regex in [&TOO_LONG, &WINDOW, &CODE, &WHOLE_REQUEST_BYTES, &FOREIGN, &OUTPUT_PARAMETER, &INPUT_NAMED] {
        assert!(!regex.is_match(b"hello"));
    }
    for regex in [&OUTPUT_SPOKEN, &TOKENS, &BYTES, &CHARS, &PAGES, &TOTAL_SCOPE, &INPUT_SCOPE, &ECHO] {
        assert!(!regex.is_match(b"hello"));
    }
    for regex in [&WINDOW_NAMED, &LABEL, &IMAGES_AND_TEXT, &LENGTH] {
        assert!(!regex.is_match(b"hello"));
    }
    assert!(!QUOTED_VALUE.is_match(b"hello") && !FOREIGN_CODE.is_match(b"hello"));
}
