//! A text in passages: what one row of the index covers, so that words found together stand together, and the hit's
//! place is known.

use std::collections::HashSet;
use std::ops::Range;

use crate::compact::excerpt::split_at_char;
use crate::memory::words::{Kind, Run, runs, tokens};

/// Bytes of a passage.
pub(super) const BYTES: usize = 4_000;
/// Bytes that two passages share, so that what stands at a seam is found.
pub(super) const OVERLAP: usize = 240;
/// Passages of one message: its first 14 million bytes are indexed ([`MAX_INDEXED`](super::MAX_INDEXED)).
pub(in crate::store) const MOST: usize = 4_096;
/// Characters of a snippet, and how many of them stand before the hit.
const SNIPPET: usize = 320;
const BEFORE: usize = 80;

/// The passages of a text, in order; at least one, at most [`MOST`].
pub(in crate::store) fn passages(text: &str) -> Vec<Range<usize>> {
    let mut passages = Vec::new();
    let mut start = 0;
    loop {
        let end = if text.len() - start <= BYTES + OVERLAP { text.len() } else { seam(text, start + BYTES) };
        passages.push(start..end);
        if end >= text.len() || passages.len() == MOST {
            return passages;
        }
        start = boundary(text, end - OVERLAP);
    }
}

/// The last blank before `at`, so that no word is cut; `at` itself where there is none near.
fn seam(text: &str, at: usize) -> usize {
    let at = boundary(text, at);
    let near = boundary(text, at - OVERLAP.min(at));
    let blank = text.get(near..at).and_then(|near| near.rfind(|c: char| c.is_whitespace()));
    blank.map_or(at, |blank| near + blank).max(near + 1).min(at)
}

fn boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// The part of a passage around the hit: where most of `wanted` stand together, on one line's breadth of characters.
pub(in crate::store) fn snippet(passage: &str, wanted: &HashSet<String>) -> String {
    let mut found: Vec<(usize, String)> = Vec::new();
    tokens(passage, |token| {
        if wanted.contains(&token.text) {
            found.push((token.at, token.text));
        }
    });
    let reach = |from: usize| from..from + SNIPPET - BEFORE;
    let score = |at: usize| {
        let near = found.iter().filter(|(other, _)| reach(at).contains(other));
        near.map(|(_, text)| text).collect::<HashSet<_>>().len()
    };
    // Of several such places the first.
    let best = found.iter().map(|(at, _)| *at).max_by_key(|at| (score(*at), std::cmp::Reverse(*at))).unwrap_or(0);
    cut(passage, best)
}

/// [`SNIPPET`] characters of `text`, [`BEFORE`] of them before `at`; `…` where more stands.
fn cut(text: &str, at: usize) -> String {
    let (before, behind) = text.split_at_checked(at).unwrap_or((text, ""));
    let skipped = before.chars().count().saturating_sub(BEFORE);
    let (_, before) = split_at_char(before, skipped);
    let (behind, rest) = split_at_char(behind, SNIPPET - before.chars().count());
    let sign = |more: bool| if more { "…" } else { "" };
    format!("{}{before}{behind}{}", sign(skipped > 0), sign(!rest.is_empty()))
}

/// What a query asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::store) struct Asked {
    /// For each word of the query: spellings of which one must be there, each of tokens that must all be there.
    pub terms: Vec<Vec<Vec<String>>>,
    /// The words as they follow one another.
    pub phrase: Vec<String>,
    /// All tokens, for the snippet.
    pub tokens: HashSet<String>,
    /// The query as it was typed, in one case and with single blanks.
    literal: String,
}

/// Words of a query that count; more are left out.
const MAX_TERMS: usize = 32;

impl Asked {
    /// Reads a query. Empty where it holds no word.
    pub(in crate::store) fn of(query: &str) -> Self {
        let mut asked = Self { literal: flat(query), ..Self::default() };
        runs(query, |_, run| {
            if asked.terms.len() >= MAX_TERMS {
                return;
            }
            let (mut words, mut parts) = (Vec::new(), Vec::new());
            run.tokens(|kind, text| if kind == Kind::Word { words.push(text) } else { parts.push(text) });
            asked.phrase.extend(words.iter().cloned());
            asked.tokens.extend(words.iter().chain(&parts).cloned());
            asked.terms.push(match run {
                Run::Unspaced(_) => vec![words],
                Run::Name { parts, spelt, .. } if parts.len() > 1 => vec![words, vec![spelt], parts],
                Run::Name { .. } => vec![words],
            });
        });
        asked
    }

    /// Whether a text holds the query letter by letter, case and blanks aside.
    pub(in crate::store) fn stands_in(&self, text: &str) -> bool {
        flat(text).contains(&self.literal)
    }
}

/// In one case, and with single blanks.
fn flat(text: &str) -> String {
    text.split_whitespace().map(str::to_lowercase).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_snippet_shows_the_hit_not_the_beginning() {
        let text = format!("{}\nthe needle lies here\n{}", "hay ".repeat(900), "more ".repeat(900));
        let wanted = Asked::of("needle lies").tokens;
        let mut all = passages(&text).into_iter().filter_map(|place| text.get(place));
        let passage = all.find(|passage| passage.contains("needle")).unwrap();
        let snippet = snippet(passage, &wanted);
        assert!(snippet.contains("the needle lies here") && snippet.starts_with('…') && snippet.ends_with('…'));
        assert!(snippet.chars().count() <= SNIPPET + 2);
    }

    #[test]
    fn of_a_very_long_text_a_stated_part_is_indexed() {
        let text = "some words of no matter\n".repeat((20 << 20) / 24);
        let passages = passages(&text);
        let end = passages.last().unwrap().end;
        assert!(passages.len() == MOST && end >= super::super::MAX_INDEXED && end < text.len(), "{end}");
        assert!(passages.iter().all(|place| place.len() <= BYTES + OVERLAP));
    }

    #[test]
    fn a_query_is_words_and_identifiers() {
        assert_eq!(Asked::of("  ?! ").terms.len(), 0);
        let asked = Asked::of("getName 天气预");
        assert_eq!(asked.phrase, ["get_name", "天气", "气预"]);
        assert_eq!(asked.terms[0], [vec!["get_name"], vec!["getname"], vec!["get", "name"]]);
        assert_eq!(asked.terms[1], [vec!["天气", "气预"]]);
    }

    proptest! {
        #[test]
        fn passages_cover_the_text_and_end(text in "([a-z天é]{1,9}[ \n]?){0,3000}") {
            let passages = passages(&text);
            prop_assert_eq!(passages.first().unwrap().start, 0);
            prop_assert_eq!(passages.last().unwrap().end, text.len());
            for pair in passages.windows(2) {
                prop_assert!(pair[1].start < pair[0].end && pair[1].start > pair[0].start);
            }
            prop_assert!(passages.iter().all(|place| text.get(place.clone()).is_some_and(|text| text.len() <= BYTES + OVERLAP)));
        }
    }
}
