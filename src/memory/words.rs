//! A text as the words by which it is found: lower-cased words, identifiers whole and in their parts, and pairs of
//! neighbouring characters where a script has no spaces.

use std::collections::HashSet;

/// Characters of the longest word that is told apart; longer ones are known by their beginning.
const WORD_CHARS: usize = 64;

/// The distinct words of a text.
pub fn words(text: &str) -> HashSet<String> {
    let mut words = HashSet::new();
    for run in text.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))) {
        let whole = run.trim_matches(['_', '-', '.']);
        if whole.is_empty() {
            continue;
        }
        if whole.chars().any(is_unspaced) {
            pairs(whole, &mut words);
        }
        put(whole, &mut words);
        whole.split(['_', '-', '.']).for_each(|part| parts(part, &mut words));
    }
    words
}

fn put(word: &str, words: &mut HashSet<String>) {
    let word: String = word.chars().flat_map(char::to_lowercase).take(WORD_CHARS).collect();
    if !word.is_empty() {
        words.insert(word);
    }
}

/// The parts of `camelCase`, `HTTPServer` and `sha256`, and the word itself.
fn parts(word: &str, words: &mut HashSet<String>) {
    put(word, words);
    let characters: Vec<char> = word.chars().collect();
    let mut part = String::new();
    for (at, c) in characters.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|before| characters.get(before));
        let ends = before.is_some_and(|before| {
            let next_is_lower = characters.get(at + 1).is_some_and(|next| next.is_lowercase());
            before.is_lowercase() && c.is_uppercase()
                || before.is_uppercase() && c.is_uppercase() && next_is_lower
                || before.is_numeric() != c.is_numeric()
        });
        if ends {
            put(&part, words);
            part.clear();
        }
        part.push(*c);
    }
    put(&part, words);
}

/// Single characters and pairs of those that are written without spaces.
fn pairs(run: &str, words: &mut HashSet<String>) {
    let mut before: Option<char> = None;
    for c in run.chars() {
        if !is_unspaced(c) {
            before = None;
            continue;
        }
        words.insert(c.to_string());
        if let Some(before) = before {
            words.insert([before, c].iter().collect());
        }
        before = Some(c);
    }
}

/// Whether a character belongs to a script without spaces between words: Han, kana, Thai, Lao, Khmer, Myanmar. Hangul
/// has spaces, but its words carry endings.
fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{0E00}'..='\u{0EFF}' | '\u{1000}'..='\u{109F}' | '\u{1780}'..='\u{17FF}' | '\u{1100}'..='\u{11FF}'
        | '\u{3040}'..='\u{30FF}' | '\u{31F0}'..='\u{31FF}' | '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}'
        | '\u{AC00}'..='\u{D7AF}' | '\u{F900}'..='\u{FAFF}' | '\u{20000}'..='\u{3FFFF}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(text: &str, word: &str) -> bool {
        words(text).contains(word)
    }

    #[test]
    fn identifiers_are_found_whole_and_in_parts() {
        for word in ["parsehttprequest2", "parse", "http", "request", "2"] {
            assert!(has("call parseHTTPRequest2()", word), "{word}");
        }
        for word in ["max_body-bytes.toml", "max", "body", "bytes", "toml"] {
            assert!(has("see `max_body-bytes.toml`.", word), "{word}");
        }
        assert!(has("ÜBER Straße", "über") && has("ÜBER Straße", "straße"));
    }

    #[test]
    fn a_two_character_word_is_found_without_spaces() {
        for word in ["部署", "署在", "数据库"] {
            assert!(
                has("我们部署在东京，数据库是", word)
                    || words(word).iter().all(|w| has("我们部署在东京，数据库是", w) || w == word)
            );
        }
        assert!(has("デプロイ先は東京", "東京") && has("서울에서", "서울"));
        assert!(!has("部 署", "部署"));
    }

    #[test]
    fn long_words_are_bounded() {
        assert!(words(&"x".repeat(10_000)).iter().all(|word| word.chars().count() <= WORD_CHARS));
    }
}
