//! A removed text, or a part of it, for whoever fetches a URL or types a command.

use std::time::Instant;

use super::matches::{Bounds, SEARCH_TIME, matches};
use super::page::Place;
use crate::compact::page::{Query, QueryError, compiled};

/// The page that is asked for; with a pattern the matches with what is around them, as the model's tool shows them,
/// and how to go on where the search was over before the text.
///
/// # Errors
/// If the query makes no sense.
pub fn lookup(text: &str, query: &Query) -> Result<String, QueryError> {
    let Some(pattern) = &query.pattern else { return Ok(query.page(text).to_owned()) };
    let pattern = compiled(pattern)?;
    let bounds = Bounds { limit: query.limit, room: usize::MAX, until: Instant::now() + SEARCH_TIME };
    let start = Place { line: query.offset.unwrap_or(0), char: query.char_offset.unwrap_or(0) };
    // Behind the end nothing matches.
    Ok(matches(text, &pattern, start, bounds).map_or_else(|_| String::new(), |found| found.plain()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, pairs: &[(&str, &str)]) -> String {
        let query = Query::of(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        query.and_then(|query| lookup(text, &query)).unwrap()
    }

    #[test]
    fn a_page_is_exact_and_matches_come_with_their_numbers() {
        let text = "a\nb\nc\nneedle\ne\n";
        assert_eq!(of(text, &[]), text);
        assert_eq!(of(text, &[("offset", "1"), ("limit", "2")]), "b\nc\n");
        assert_eq!(of(text, &[("pattern", "need.e")]), "2-b\n3-c\n4:needle\n5-e\n");
        assert_eq!(of(text, &[("pattern", "nothing")]), "");
        assert_eq!(of(text, &[("pattern", "a"), ("offset", "9")]), "");
    }

    #[test]
    fn what_is_left_out_is_said_with_how_to_go_on() {
        let found = of("x1\nx2\nx3\n", &[("pattern", "x"), ("limit", "2")]);
        assert_eq!(found, "1:x1\n2:x2\n[there are more: go on with the same pattern and offset=2]\n");
        let found = of("x1\nx2\nx3\n", &[("pattern", "x"), ("offset", "2"), ("char_offset", "1")]);
        assert_eq!(found, "", "from a place in a line on");
    }
}
