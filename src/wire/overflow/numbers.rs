//! The numbers of an error text and the part each of them plays.

use std::sync::LazyLock;

use regex::bytes::Regex;

use super::decode::FieldNumbers;
use super::phrases::pattern;

/// Numbers of one text that are looked at.
const MAX_NUMBERS: usize = 32;
/// Bytes before and after a number that say what it is.
const BEFORE_BYTES: usize = 110;
const AFTER_BYTES: usize = 60;

/// Token counts as read from a text.
#[derive(Debug, Default)]
pub(super) struct Reading {
    whole: Option<u64>,
    parts: Option<u64>,
    pub output: Option<u64>,
    pub total: Option<u64>,
    pub limit: Option<u64>,
    excess: Option<u64>,
    /// Another number that stands where a limit would.
    second_limit: Option<u64>,
    /// The input was counted only up to a point.
    pub lower_bound: bool,
    /// The server computed a negative room for output.
    pub nothing_left: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Input,
    /// One of several parts of the input, which add up.
    Addend,
    Output,
    Total,
    Limit,
    /// By how much the limit was exceeded.
    Excess,
    Nothing,
}

impl Reading {
    /// All input together.
    pub fn input(&self) -> Option<u64> {
        let counted = self.whole.or(self.parts).filter(|_| !self.lower_bound);
        counted.or_else(|| self.limit.zip(self.excess).map(|(limit, excess)| limit.saturating_add(excess)))
    }

    /// Whether the numbers alone say that something is over its limit.
    pub fn is_over(&self) -> bool {
        let sum = self.input().map(|input| input.saturating_add(self.output.unwrap_or(0)));
        let asked = sum.into_iter().chain(self.total).max();
        self.limit.zip(asked).is_some_and(|(limit, asked)| limit > 0 && asked >= limit)
    }

    /// Fills in what only stands in members beside the text.
    pub fn with_fields(mut self, fields: &FieldNumbers) -> Self {
        self.whole = self.whole.or(fields.input.filter(|_| self.parts.is_none()));
        self.limit = self.limit.or(fields.limit);
        self
    }

    /// "Context length exceeded: 9000 tokens (limit 8192)": of two limits and nothing to compare
    /// with them the larger was asked for.
    fn settle(mut self) -> Self {
        if let (Some(one), Some(other)) = (self.limit, self.second_limit)
            && self.input().or(self.total).is_none()
            && !self.lower_bound
        {
            (self.limit, self.total) = (Some(one.min(other)), Some(one.max(other)));
        }
        self
    }

    fn take(&mut self, part: Part, value: u64) {
        let slot = match part {
            Part::Input => &mut self.whole,
            Part::Addend => {
                self.parts = Some(self.parts.unwrap_or(0).saturating_add(value));
                return;
            }
            Part::Output => &mut self.output,
            Part::Total => &mut self.total,
            Part::Limit if value > 0 => {
                self.second_limit = self.limit.filter(|limit| *limit != value).map(|_| value).or(self.second_limit);
                &mut self.limit
            }
            Part::Excess => &mut self.excess,
            Part::Limit | Part::Nothing => return,
        };
        slot.get_or_insert(value);
    }
}

macro_rules! patterns {
    ($($name:ident = $text:expr;)*) => { $(static $name: LazyLock<Regex> = LazyLock::new(|| pattern($text));)* };
}

// What stands directly before (`…$`) or after (`^…`) a number. The order in which they are asked is
// in `part`; "nearest noun phrase wins" is what they add up to.
patterns! {
    SUM = r"(\d+)\s*\+\s*(\d+)\s*(?:>=?|exceeds?)\s*(\d+)";
    DIFFERENCE = r"(\d+)\s*>=?\s*(\d+)\s*-\s*(\d+)";
    RANGE = r"\b(?:input|prompt|messages)\b[^.;\[]{0,40}\[\s*[01]\s*,\s*(\d+)\s*[\])]";
    GOT_NEGATIVE = r"\bmax_\w*tokens\b[^.;]{0,60}\W(?:got|is|was|\()\s*-(\d+)";
    EXCESS_BEFORE = r"\b(?:by|excess of)\s+(?:about |at least )?$";
    IGNORE_BEFORE = r"\b(?:minimum|leaves|leaving|at least 1,? got|error code|code|status|http|pid|param|greater than)\W*(?:of |is )?\W*$";
    IGNORE_AFTER = r"^\s*(?:draft|other|more|minutes?|seconds?|s\b|ms\b|requests?|images?|tools?|pages?|bytes?|[kmg]i?b\b|characters?|chars\b|%)";
    SUM_BEFORE = r"(?:^|\S\s*)\b(?:input|inputs|prompt|messages)`?(?: tokens?)?\s*(?:and|\+|plus|with)\s*(?:the )?`?(?:max\w*|(?:requested )?output|completion)[^.;:<>=\d]{0,40}$";
    SUM_AFTER = r"^[\s)]*(?:tokens?\s+)?(?:in total|altogether|total\b|combined|input (?:and|\+) )";
    LIMIT_NOUN_BEFORE = r"(?:\b(?:max(?:imum)?|largest|allowed|supported|permitted|available|configured|context|model) (?:[a-z_]+ ){0,2}(?:length|len|size|window|limit|tokens|count|context|capacity)s?|\blimit|\bwindow|\bcontext_(?:length|window|size)|\bmax_(?:seq|model|input|context|num|total|prompt|position)_\w+|\bn_ctx\w*|\b(?:max(?:imum)?))\b\W*(?:\b(?:is|was|of|are|at|to|for (?:this|the) (?:model|endpoint) is)\b)?(?:\W*\b(?:only|just|about|set to)\b)*[\s(:='`]*$";
    OUTPUT_BEFORE = r"(?:\bmax_(?:new_|completion_|output_)?tokens\b|\bgenerat\w+|\bcompletion|\boutput)(?: length| tokens| token count)?\W*(?:is too (?:large|high|big)|of|is|was|set to|=)?[\s(:='`]*$";
    OUTPUT_AFTER = r#"^[\s)`'"]*(?:tokens?\s+)?(?:(?:in|for|of|from|as)\s+)?(?:the\s+|your\s+)?(?:requested\s+)?(?:completion|output|response\b|generation|generated|new tokens|`?max_(?:new_|completion_|output_)?tokens)"#;
    PART_AFTER = r"^[\s)]*(?:tokens?\s+)?(?:in|of|from|for)\s+(?:(?:the|your|text|tool|image|chat|system)\s+)*(?:messages?|prompt|inputs?|functions?|tools?|history|text)\b";
    INPUT_AFTER = r"^[\s`']*(?:input|prompt|inputs)\b";
    LIMIT_AFTER = r"^[\s)]*(?:-?tokens?\s+)?(?:max(?:imum)?\b|limit\b|allowed|available|context|is the (?:max|limit))";
    INPUT_BEFORE = r"\b(?:prompt|inputs?|messages|request|conversation|history|query|context)\s+(?:(?:tokens?|length|size|count|total|currently)\s+)*(?:has|have|had|is|was|were|are|contains?|contained|resulted in|results in|uses?|used|with|includes|totals?|comes to|came to|takes)\b(?: (?:about|approximately|a total of|at least|already|over))*\W*$|\b(?:prompt|input)\W+(?:total )?length\W*$|\b(?:n_keep|n_prompt_tokens|prompt_tokens|input_tokens|prompt_len)\W*$";
    TOTAL_BEFORE = r"(?:\b(?:requested|total|requires?|needs?|needed|got|used|current length(?: is)?)\b(?: (?:a|of|is|was|about|approximately|at least|tokens?|token count|total|sequence|length|count))*|requested:)[\s(:='`]*$";
    LIMIT_BEFORE = r"(?:\b(?:exceed\w*|(?:longer|larger|greater|more|less|fewer|bigger|higher) than|over|above|beyond|surpass\w*|up to|at most|limit(?:ed)?|cap|max(?:imum)?|n_ctx\w*|supports?|must be|within|too (?:large|long) for|only|vs)\b|[<>]=?)[^.;:,]{0,70}[\s(:='`]*$";
    INPUT_WEAK_BEFORE = r"\b(?:prompt\w*|inputs?\w*|messages?|request|conversation|context|sequence|tokens?|token count|length|count|n_keep|first|given|prefill|passed|n_prompt_tokens|size|provided|sent)\W*(?:\w+\W+){0,4}$";
    AT_LEAST_BEFORE = r"\bat least\s+$";
}

/// Reads a normalised text.
pub(super) fn read(text: &str) -> Reading {
    let text = without_separators(text.as_bytes());
    let bytes = text.as_slice();
    let mut reading = Reading { nothing_left: goes_negative(bytes), ..Reading::default() };
    let explicit: [(&Regex, &[Part]); 3] = [
        (&SUM, &[Part::Input, Part::Output, Part::Limit]),
        (&DIFFERENCE, &[Part::Output, Part::Limit, Part::Input]),
        (&RANGE, &[Part::Limit]),
    ];
    for (formula, parts) in explicit {
        let Some(found) = formula.captures(bytes) else { continue };
        for (part, group) in parts.iter().zip(found.iter().skip(1).flatten()) {
            if let Some(value) = std::str::from_utf8(group.as_bytes()).ok().and_then(|digits| digits.parse().ok()) {
                reading.take(*part, value);
            }
        }
        return reading;
    }
    let numbers = scan(bytes);
    for (i, number) in numbers.iter().enumerate() {
        let from = i.checked_sub(1).and_then(|i| numbers.get(i)).map_or(0, |previous| previous.end);
        let to = numbers.get(i + 1).map_or(bytes.len(), |next| next.start);
        let before = bytes.get(from.max(number.start.saturating_sub(BEFORE_BYTES))..number.start).unwrap_or_default();
        let after = bytes.get(number.end..to.min(number.end + AFTER_BYTES)).unwrap_or_default();
        let before = last_clause(before);
        let part = part(before, after);
        if matches!(part, Part::Input | Part::Addend) && AT_LEAST_BEFORE.is_match(before) {
            reading.lower_bound = true;
        }
        reading.take(part, number.value);
    }
    reading.settle()
}

/// What a number is, from its surroundings up to the neighbouring numbers.
fn part(before: &[u8], after: &[u8]) -> Part {
    let rules: [(&Regex, &[u8], Part); 15] = [
        (&EXCESS_BEFORE, before, Part::Excess),
        (&IGNORE_AFTER, after, Part::Nothing),
        (&SUM_BEFORE, before, Part::Total),
        (&LIMIT_NOUN_BEFORE, before, Part::Limit),
        (&IGNORE_BEFORE, before, Part::Nothing),
        (&SUM_AFTER, after, Part::Total),
        (&OUTPUT_AFTER, after, Part::Output),
        (&PART_AFTER, after, Part::Addend),
        (&INPUT_AFTER, after, Part::Input),
        (&LIMIT_AFTER, after, Part::Limit),
        (&OUTPUT_BEFORE, before, Part::Output),
        (&INPUT_BEFORE, before, Part::Input),
        (&TOTAL_BEFORE, before, Part::Total),
        (&LIMIT_BEFORE, before, Part::Limit),
        (&INPUT_WEAK_BEFORE, before, Part::Input),
    ];
    rules.iter().find(|(rule, context, _)| rule.is_match(context)).map_or(Part::Nothing, |(_, _, part)| *part)
}

/// What follows the last sentence or semicolon.
fn last_clause(before: &[u8]) -> &[u8] {
    let end = |pair: &[u8]| matches!(pair, [b'.' | b';' | b'!' | b'?', b' ']);
    let at = before.windows(2).rposition(end).map_or(0, |at| at + 2);
    before.get(at..).unwrap_or_default()
}

/// A room for output below zero that no client asks for; −1 is a common "no limit".
fn goes_negative(text: &[u8]) -> bool {
    GOT_NEGATIVE.captures(text).and_then(|found| found.get(1)).is_some_and(|digits| digits.as_bytes() != b"1")
}

struct Number {
    value: u64,
    start: usize,
    end: usize,
}

/// The free-standing whole numbers of a text: no versions, model names, indices, addresses.
fn scan(text: &[u8]) -> Vec<Number> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = text.iter().skip(at).position(u8::is_ascii_digit).map(|skip| at + skip) {
        let mut end = start + text.iter().skip(start).take_while(|byte| byte.is_ascii_digit()).count();
        let digits = text.get(start..end).and_then(|digits| std::str::from_utf8(digits).ok());
        let mut value: Option<u64> = digits.and_then(|digits| digits.parse().ok());
        let next = |i: usize| text.get(i).copied().unwrap_or(b' ');
        if next(end) == b'k' && !next(end + 1).is_ascii_alphanumeric() {
            value = value.and_then(|value| value.checked_mul(1000));
            end += 1;
        }
        let rest = text.get(end..).unwrap_or_default();
        let glued = match rest {
            [b'.', digit, ..] => digit.is_ascii_digit(),
            [b'>', ..] => start.checked_sub(1).and_then(|i| text.get(i)) == Some(&b'<'),
            [b'-', letter, ..] => letter.is_ascii_alphanumeric() && !rest.starts_with(b"-token"),
            [byte, ..] => (byte.is_ascii_alphanumeric() || *byte == b'_') && !rest.starts_with(b"token"),
            [] => false,
        };
        if let Some(value) = value.filter(|_| !glued && starts_free(text, start)) {
            found.push(Number { value, start, end });
            if found.len() == MAX_NUMBERS {
                break;
            }
        }
        at = end;
    }
    found
}

/// Whether a number at `start` is none of: the tail of a name, an index, a decimal, a port.
fn starts_free(text: &[u8], start: usize) -> bool {
    let back = |n: usize| start.checked_sub(n).and_then(|i| text.get(i)).copied().unwrap_or(b' ');
    let (last, second) = (back(1), back(2));
    match last {
        b'-' => !(second.is_ascii_alphanumeric() || second == b' ' || second == b'('),
        b'.' | b'[' | b'/' => !(second.is_ascii_alphanumeric() || second == b'\''),
        b':' => !second.is_ascii_digit(),
        other => !(other.is_ascii_alphanumeric() || other == b'_'),
    }
}

/// The text with `200,000`, `200_000`, `200'000` and `1.048.576` written as plain digits.
fn without_separators(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let free = !plain.last().is_some_and(|last: &u8| last.is_ascii_alphanumeric() || *last == b'.');
        let to = match (byte.is_ascii_digit(), free) {
            (true, true) => number_end(text, at),
            (true, false) => digits_end(text, at),
            (false, _) => at + 1,
        };
        let taken = text.get(at..to).unwrap_or_default();
        plain.extend(taken.iter().filter(|b| taken.len() == 1 || b.is_ascii_digit()));
        at = to;
    }
    plain
}

/// Where the digits end that start at `start`.
fn digits_end(text: &[u8], start: usize) -> usize {
    start + text.iter().skip(start).take_while(|byte| byte.is_ascii_digit()).count()
}

/// Where the free-standing number that starts at `start` ends, groups of three behind separators included.
fn number_end(text: &[u8], start: usize) -> usize {
    let run = |from: usize| digits_end(text, from) - from;
    let mut end = digits_end(text, start);
    let in_list = start.checked_sub(1).and_then(|i| text.get(i)) == Some(&b'[');
    if end - start > 3 || in_list {
        return end;
    }
    let mut groups = 0;
    while matches!(text.get(end), Some(b',' | b'_' | b'\'' | b'.')) && run(end + 1) == 3 {
        let rest = text.get(end + 4..).unwrap_or_default();
        // A single group behind a point is a decimal unless it counts tokens.
        let thousands =
            text.get(end) != Some(&b'.') || groups > 0 || rest.starts_with(b".") || rest.starts_with(b" token");
        if !thousands {
            break;
        }
        groups += 1;
        end += 4;
    }
    end
}
