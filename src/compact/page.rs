//! Reading removed texts back, whole or by pages.

use regex::{Regex, RegexBuilder};

/// What is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    /// Lines or characters to skip.
    pub offset: Option<usize>,
    /// Most lines or characters to return.
    pub limit: Option<usize>,
    pub unit: Unit,
    /// Only lines that match this regular expression, with their numbers and two lines around; `limit` counts them.
    pub pattern: Option<String>,
    /// With a pattern: characters to skip of the line at `offset`.
    pub char_offset: Option<usize>,
}

/// What `offset` and `limit` count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unit {
    #[default]
    Lines,
    /// Unicode characters: a giant of one line pages too.
    Chars,
}

/// A query that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    #[error("{0} must be a whole number")]
    Number(&'static str),
    #[error("unit must be lines or chars")]
    Unit,
    #[error("with a pattern, offset counts lines and limit matches; char_offset is for a pattern alone")]
    Mixed,
    #[error("unknown parameter {0}: offset, limit, unit, pattern and char_offset are known")]
    Unknown(String),
    #[error("pattern: {0}")]
    Pattern(String),
    #[error("pattern has more than {PATTERN_CHARS} characters")]
    LongPattern,
}

/// Most memory of a compiled pattern: what one costs to build and to run is bounded by it.
const PATTERN_BYTES: usize = 64 << 10;
/// Most characters of a pattern.
const PATTERN_CHARS: usize = 1_000;

impl Query {
    /// Reads the parameters of a URL's query, which must be decoded.
    pub fn of(pairs: impl Iterator<Item = (String, String)>) -> Result<Self, QueryError> {
        let mut query = Self::default();
        for (name, value) in pairs {
            match name.as_str() {
                "offset" => query.offset = Some(value.parse().map_err(|_| QueryError::Number("offset"))?),
                "limit" => query.limit = Some(value.parse().map_err(|_| QueryError::Number("limit"))?),
                "unit" => query.unit = value.parse()?,
                "pattern" => query.pattern = Some(value),
                "char_offset" => {
                    query.char_offset = Some(value.parse().map_err(|_| QueryError::Number("char_offset"))?);
                }
                _ => return Err(QueryError::Unknown(name)),
            }
        }
        query.checked()
    }

    /// # Errors
    /// [`QueryError::Mixed`]
    pub fn checked(self) -> Result<Self, QueryError> {
        let mixed = match self.pattern {
            Some(_) => self.unit == Unit::Chars,
            None => self.char_offset.is_some(),
        };
        if mixed { Err(QueryError::Mixed) } else { Ok(self) }
    }

    /// The page of `text` that is asked for, whatever the pattern. Without any parameter it is the text itself.
    pub fn page<'t>(&self, text: &'t str) -> &'t str {
        let (offset, limit) = (self.offset.unwrap_or(0), self.limit.unwrap_or(usize::MAX));
        let end = offset.saturating_add(limit);
        let place = |count: usize| match self.unit {
            Unit::Chars => text.char_indices().nth(count).map_or(text.len(), |(at, _)| at),
            Unit::Lines => text.split_inclusive('\n').take(count).map(str::len).sum(),
        };
        text.get(place(offset)..place(end)).unwrap_or_default()
    }
}

impl std::str::FromStr for Unit {
    type Err = QueryError;

    fn from_str(unit: &str) -> Result<Self, QueryError> {
        match unit {
            "lines" => Ok(Self::Lines),
            "chars" => Ok(Self::Chars),
            _ => Err(QueryError::Unit),
        }
    }
}

/// Lines of a text; a line feed at its end begins no further one.
pub fn lines(text: &str) -> usize {
    text.split_inclusive('\n').count()
}

/// A pattern as it is searched for.
pub fn compiled(pattern: &str) -> Result<Regex, QueryError> {
    if pattern.chars().nth(PATTERN_CHARS).is_some() {
        return Err(QueryError::LongPattern);
    }
    let built = RegexBuilder::new(pattern).size_limit(PATTERN_BYTES).build();
    built.map_err(|error| QueryError::Pattern(error.to_string()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page<'t>(text: &'t str, query: &[(&str, &str)]) -> Result<&'t str, QueryError> {
        Ok(Query::of(query.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())))?.page(text))
    }

    #[test]
    fn pages_count_lines_or_characters() {
        let text = "a\nb\nc\nd";
        assert_eq!(page(text, &[]).unwrap(), text);
        assert_eq!(page(text, &[("offset", "1"), ("limit", "2")]).unwrap(), "b\nc\n");
        assert_eq!(page(text, &[("offset", "3")]).unwrap(), "d");
        assert_eq!(page(text, &[("offset", "9")]).unwrap(), "");
        assert_eq!(page("äöü", &[("unit", "chars"), ("offset", "1"), ("limit", "1")]).unwrap(), "ö");
        assert_eq!(lines("a\nb\n"), 2);
    }

    #[test]
    fn nonsense_is_named() {
        assert_eq!(page("", &[("offset", "x")]), Err(QueryError::Number("offset")));
        assert_eq!(page("", &[("unit", "words")]), Err(QueryError::Unit));
        assert_eq!(page("", &[("pattern", "a"), ("unit", "chars")]), Err(QueryError::Mixed));
        assert_eq!(page("", &[("char_offset", "1")]), Err(QueryError::Mixed));
        assert!(matches!(page("", &[("page", "1")]), Err(QueryError::Unknown(_))));
    }

    #[test]
    fn patterns_are_bounded_in_length_and_memory() {
        let text = "a".repeat(PATTERN_CHARS);
        assert!(compiled(&text).unwrap().is_match(&text));
        assert_eq!(compiled(&format!("{text}a")).err(), Some(QueryError::LongPattern));
        assert!(compiled(r"(?i)\w+\s+IS").unwrap().is_match("x is a"));
        for pattern in ["(", "(?:a{50}){50}"] {
            assert!(matches!(compiled(pattern), Err(QueryError::Pattern(_))));
        }
    }

    proptest! {
        #[test]
        fn pages_add_up_to_the_text(text in "(?s).{0,60}", size in 1_usize..7, chars: bool) {
            let unit = if chars { Unit::Chars } else { Unit::Lines };
            let pages = (0..70).map(|n| {
                let query = Query { offset: Some(n * size), limit: Some(size), unit, ..Query::default() };
                query.page(&text).to_owned()
            });
            prop_assert_eq!(pages.collect::<String>(), text);
        }
    }
}
