//! Shortening texts by whole characters, and fences that no content can close.

/// Lower-case hex digits of a fence's nonce.
const NONCE_DIGITS: usize = 16;

/// `text` itself if it has at most `head + tail` characters, else its first `head` and last `tail` characters
/// with `middle` on a line of its own between them. Never cuts inside a code point.
pub fn excerpt(text: &str, head: usize, tail: usize, middle: &str) -> String {
    let (start, rest) = split_at_char(text, head);
    let skip = rest.chars().count().saturating_sub(tail);
    if skip == 0 {
        return text.to_owned();
    }
    let (_, end) = split_at_char(rest, skip);
    format!("{start}\n{middle}\n{end}")
}

/// The text's beginning on one line: at most `max` characters, white space collapsed, `…` where it was cut.
pub fn one_line(text: &str, max: usize) -> String {
    // Words are taken from a bounded beginning: a text of megabytes costs no more than a short one.
    let (start, _) = split_at_char(text.trim_start(), max.saturating_mul(4));
    let words: Vec<&str> = start.split_whitespace().collect();
    let joined = words.join(" ");
    let (kept, cut) = split_at_char(&joined, max);
    if cut.is_empty() && start.len() == text.trim_start().len() { kept.to_owned() } else { format!("{kept}…") }
}

/// The last line that is not blank, as [`one_line`] gives it.
pub fn last_line(text: &str, max: usize) -> String {
    text.lines().rev().find(|line| !line.trim().is_empty()).map(|line| one_line(line, max)).unwrap_or_default()
}

/// A nonce that depends on the content alone and does not occur in it.
pub fn nonce(content: &str) -> String {
    let mut hash = blake3::hash(content.as_bytes());
    loop {
        let digits: String = hash.to_hex().chars().take(NONCE_DIGITS).collect();
        if !content.contains(&digits) {
            return digits;
        }
        hash = blake3::hash(hash.as_bytes());
    }
}

/// `content` between an opening and a closing line that it cannot contain.
pub fn fenced(label: &str, nonce: &str, content: &str) -> String {
    format!("<{label}-{nonce}>\n{content}\n</{label}-{nonce}>")
}

/// The text before and from its `at`-th character on.
pub fn split_at_char(text: &str, at: usize) -> (&str, &str) {
    // Never more characters than bytes: most texts need no count.
    if text.len() <= at {
        return (text, "");
    }
    let byte = text.char_indices().nth(at).map_or(text.len(), |(byte, _)| byte);
    text.split_at_checked(byte).unwrap_or((text, ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keeps_head_and_tail() {
        assert_eq!(excerpt("abcdef", 3, 3, "…"), "abcdef");
        assert_eq!(excerpt("abcdefg", 3, 3, "[x]"), "abc\n[x]\nefg");
        assert_eq!(excerpt("äöüßéè", 1, 1, "-"), "ä\n-\nè");
    }

    #[test]
    fn one_line_says_that_it_was_cut() {
        assert_eq!(one_line("  a\n b  ", 10), "a b");
        assert_eq!(one_line("abcdef", 3), "abc…");
    }

    proptest! {
        #[test]
        fn a_nonce_never_occurs_in_its_content(content in ".{0,200}") {
            prop_assert!(!content.contains(&nonce(&content)));
            prop_assert_eq!(nonce(&content), nonce(&content));
        }
    }
}
