//! A text as the words by which it is found: lower-cased, identifiers whole and in parts, and of scripts that are
//! written without blanks pairs of neighbours and single characters. The same cut is made of what is stored, in the
//! session log and in memory, and of what is asked for.

use std::collections::HashSet;

/// Characters of one token; what is longer is cut there.
const MAX_CHARS: usize = 64;
/// Parts of one identifier; what has more (digests, keys) counts as one word.
const MAX_PARTS: usize = 8;

/// What a token says of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A word, a whole identifier (its parts joined by `_`), a pair of unspaced characters: in the order of the text, so
    /// that phrases are found.
    Word,
    /// A part of an identifier, another spelling of it, a single unspaced character.
    Part,
}

/// One token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub kind: Kind,
    pub text: String,
    /// Byte offset in the text of the run of characters that it was cut from.
    pub at: usize,
}

/// A run of characters that are cut together, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Run {
    /// Parts in order, lower-case; one for a plain word. `spelt`: without separators. `joined`: names that `.` or `-` join
    /// to it, a method's or a file's, as they are cut when they stand alone; where they are more than one of its parts.
    Name { parts: Vec<String>, spelt: String, joined: Vec<(Vec<String>, String)> },
    /// Characters of a script that is written without blanks.
    Unspaced(Vec<char>),
}

/// The runs of a text with their offsets, in order.
pub fn runs(text: &str, mut each: impl FnMut(usize, Run)) {
    let mut chars = text.char_indices().peekable();
    while let Some((at, first)) = chars.next() {
        if is_unspaced(first) {
            let mut run = vec![first];
            while let Some((_, next)) = chars.next_if(|(_, next)| is_unspaced(*next)) {
                run.push(next);
            }
            each(at, Run::Unspaced(run));
        } else if is_word(first) {
            let mut run = String::from(first);
            while let Some(&(here, next)) = chars.peek() {
                let joins = matches!(next, '-' | '.') && begins_word(text, here + 1);
                if !is_word(next) && !joins {
                    break;
                }
                run.push(next);
                chars.next();
            }
            if run.chars().any(char::is_alphanumeric) {
                each(at, named(&run));
            }
        }
    }
}

/// The distinct words of a text and their parts.
pub fn words(text: &str) -> HashSet<String> {
    let mut words = HashSet::new();
    tokens(text, |token| {
        words.insert(token.text);
    });
    words
}

/// The tokens of a text, in order.
pub fn tokens(text: &str, mut each: impl FnMut(Token)) {
    runs(text, |at, run| run.tokens(|kind, text| each(Token { kind, text, at })));
}

impl Run {
    /// The tokens of a run, words first.
    pub fn tokens(&self, mut each: impl FnMut(Kind, String)) {
        match self {
            Self::Name { parts, spelt, joined } => {
                each(Kind::Word, parts.join("_"));
                if parts.len() > 1 {
                    each(Kind::Part, spelt.clone());
                    parts.iter().for_each(|part| each(Kind::Part, part.clone()));
                }
                for (parts, spelt) in joined {
                    each(Kind::Part, parts.join("_"));
                    if parts.len() > 1 {
                        each(Kind::Part, spelt.clone());
                    }
                }
            }
            Self::Unspaced(run) => {
                match run.as_slice() {
                    [one] => return each(Kind::Word, one.to_string()),
                    run => run.windows(2).for_each(|pair| each(Kind::Word, pair.iter().collect())),
                }
                run.iter().for_each(|one| each(Kind::Part, one.to_string()));
            }
        }
    }
}

/// An identifier or word, cut.
fn named(run: &str) -> Run {
    let (parts, spelt) = cut(run);
    let names = run.rsplit(['-', '.']).filter(|name| name.len() < run.len() && name.chars().any(char::is_alphanumeric));
    let more = |name: &(Vec<String>, String)| name.0.len() > 1 || parts.len() == 1;
    let joined = names.take(MAX_PARTS).map(cut).filter(more).collect();
    Run::Name { parts, spelt, joined }
}

/// The parts of a name, and how it is spelt without separators.
fn cut(name: &str) -> (Vec<String>, String) {
    let mut parts = split(name);
    let lower = |text: &mut dyn Iterator<Item = char>| -> String {
        text.filter(|c| c.is_alphanumeric() || is_mark(*c)).flat_map(lower).take(MAX_CHARS).collect()
    };
    let spelt = lower(&mut name.chars());
    if parts.len() > MAX_PARTS {
        parts.clear();
    }
    let mut parts: Vec<String> = parts.iter().map(|part| lower(&mut part.chars())).collect();
    if parts.is_empty() {
        parts.push(spelt.clone());
    }
    (parts, spelt)
}

/// Cuts at separators, before a capital that follows a small letter or begins a word behind capitals, and between
/// letters and digits.
fn split(run: &str) -> Vec<String> {
    let chars: Vec<char> = run.chars().collect();
    let mut parts: Vec<String> = vec![String::new()];
    for (i, &c) in chars.iter().enumerate() {
        if matches!(c, '_' | '-' | '.') {
            parts.push(String::new());
            continue;
        }
        let before = i.checked_sub(1).and_then(|i| chars.get(i)).copied().unwrap_or(c);
        let behind = chars.get(i + 1).copied().unwrap_or(c);
        let humps = c.is_uppercase() && (before.is_lowercase() || before.is_uppercase() && behind.is_lowercase());
        let digits = c.is_numeric() != before.is_numeric() && before.is_alphanumeric() && c.is_alphanumeric();
        if humps || digits {
            parts.push(String::new());
        }
        parts.last_mut().into_iter().for_each(|part| part.push(c));
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// One case for all: context-free, so that a text and a query come out alike.
fn lower(c: char) -> impl Iterator<Item = char> {
    c.to_lowercase().map(|c| if c == 'ς' { 'σ' } else { c })
}

fn begins_word(text: &str, at: usize) -> bool {
    text.get(at..).and_then(|rest| rest.chars().next()).is_some_and(is_word)
}

fn is_word(c: char) -> bool {
    (c.is_alphanumeric() || c == '_' || is_mark(c)) && !is_unspaced(c)
}

/// A combining mark: part of the letter before it.
fn is_mark(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{94d}' | '\u{9cd}' | '\u{200d}')
}

/// A character of a script without blanks between words: Han, kana, Bopomofo, Thai, Lao, Khmer, Myanmar. Hangul has
/// blanks, but its words carry endings.
pub fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1100}'..='\u{11ff}' | '\u{1780}'..='\u{17ff}'
        | '\u{3005}'..='\u{3007}' | '\u{3040}'..='\u{30ff}' | '\u{3100}'..='\u{312f}' | '\u{3130}'..='\u{318f}'
        | '\u{31f0}'..='\u{31ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}'
        | '\u{f900}'..='\u{faff}' | '\u{ff66}'..='\u{ff9f}' | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(text: &str) -> Vec<String> {
        let mut all = Vec::new();
        tokens(text, |token| all.push(token.text));
        all
    }

    fn whole(text: &str) -> Vec<String> {
        let mut words = Vec::new();
        tokens(text, |token| words.extend((token.kind == Kind::Word).then_some(token.text)));
        words
    }

    #[test]
    fn identifiers_whole_and_in_parts() {
        for name in ["getUserName", "get_user_name", "get-user-name", "get.user.name", "GetUserName", "GET_USER_NAME"] {
            assert_eq!(all(name), ["get_user_name", "getusername", "get", "user", "name"], "{name}");
        }
        assert_eq!(all("HTTPServer2"), ["http_server_2", "httpserver2", "http", "server", "2"]);
        assert_eq!(
            whole("src/proxy/compaction.rs: max_tokens=5"),
            ["src", "proxy", "compaction_rs", "max_tokens", "5"]
        );
        assert_eq!(whole("End. Begin -- x"), ["end", "begin", "x"]);
        assert_eq!(all("d41d8cd98f00b204e9800998ecf8427e").len(), 1, "a digest is one word");
    }

    #[test]
    fn names_that_are_joined_to_others_are_found_alone() {
        assert_eq!(whole("self.parse_config()"), ["self_parse_config"]);
        for text in [
            "self.parse_config()",
            "a.b.parseConfig",
            "x-parse_config",
            "parse_config.rs",
            "is.a.b.c.d.e.f.g.parse_config",
        ] {
            assert!(words(text).contains("parse_config") && words(text).contains("parseconfig"), "{text}");
        }
        let long = "Report_thumbnail_1456x728_2x_1_1116f34e28";
        assert!(
            words(&format!("{long}.png")).contains(&whole(long)[0]),
            "many parts are one word, also before an ending"
        );
        assert_eq!(all("1.2"), ["1_2", "12", "1", "2"]);
    }

    #[test]
    fn scripts_without_blanks_as_pairs_and_characters() {
        assert_eq!(all("天气预报"), ["天气", "气预", "预报", "天", "气", "预", "报"]);
        assert_eq!(all("用GPT写"), ["用", "gpt", "写"]);
        assert!(words("สวัสดีครับ").contains("รั") && words("서울에서").contains("서울") && words("部 署").len() == 2);
        assert_eq!(whole("カタカナ"), ["カタ", "タカ", "カナ"]);
    }

    #[test]
    fn long_words_are_known_by_their_beginning() {
        assert!(words(&"x".repeat(10_000)).iter().all(|word| word.chars().count() <= MAX_CHARS));
    }

    #[test]
    fn case_is_folded_beyond_ascii() {
        assert_eq!(all("ÄRGER Überweg"), ["ärger", "überweg"]);
        assert_eq!(all("ΟΔΟΣ"), all("οδος"));
    }

    proptest! {
        /// A token holds only what the index takes for one token, and comes from where it says.
        #[test]
        fn tokens_are_words_of_the_text(text in ".{0,80}|[a-zA-Z0-9_.天气 -]{0,60}") {
            tokens(&text, |token| {
                assert!(!token.text.is_empty());
                assert!(token.text.chars().all(|c| c == '_' || !c.is_ascii() || c.is_ascii_alphanumeric()), "{token:?}");
                assert!(text.is_char_boundary(token.at) && token.at < text.len());
            });
        }
    }
}
