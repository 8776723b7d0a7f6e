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
    /// Only lines that match this regular expression, with their numbers and two lines around.
    pub pattern: Option<String>,
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
    #[error("unknown parameter {0}: offset, limit, unit and pattern are known")]
    Unknown(String),
    #[error("pattern: {0}")]
    Pattern(String),
    #[error("pattern has more than {PATTERN_CHARS} characters")]
    LongPattern,
}

/// Lines around a match.
const AROUND: usize = 2;
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
                _ => return Err(QueryError::Unknown(name)),
            }
        }
        Ok(query)
    }

    /// The page of `text` that is asked for. Without any parameter it is the text itself.
    pub fn page(&self, text: &str) -> Result<String, QueryError> {
        let filtered = match &self.pattern {
            Some(pattern) => matching(text, pattern)?,
            None if self.offset.is_none() && self.limit.is_none() => return Ok(text.to_owned()),
            None => return Ok(self.cut(text).to_owned()),
        };
        Ok(self.cut(&filtered).to_owned())
    }

    fn cut<'t>(&self, text: &'t str) -> &'t str {
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

/// The matching lines with those around them, each as `NUMBER:line`, runs parted by `--`.
fn matching(text: &str, pattern: &str) -> Result<String, QueryError> {
    let pattern = compiled(pattern)?;
    let lines: Vec<&str> = text.lines().collect();
    let mut wanted = vec![false; lines.len()];
    for (at, _) in lines.iter().enumerate().filter(|(_, line)| pattern.is_match(line)) {
        let around = at.saturating_sub(AROUND)..(at + AROUND + 1).min(lines.len());
        wanted.get_mut(around).unwrap_or_default().fill(true);
    }
    let mut found = String::new();
    let mut last = None;
    for (at, line) in lines.iter().enumerate().filter(|(at, _)| wanted.get(*at) == Some(&true)) {
        if last.is_some_and(|last| last + 1 < at) {
            found.push_str("--\n");
        }
        found.push_str(&format!("{}:{line}\n", at + 1));
        last = Some(at);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page(text: &str, query: &[(&str, &str)]) -> Result<String, QueryError> {
        Query::of(query.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())))?.page(text)
    }

    #[test]
    fn pages_count_lines_or_characters() {
        let text = "a\nb\nc\nd";
        assert_eq!(page(text, &[]).unwrap(), text);
        assert_eq!(page(text, &[("offset", "1"), ("limit", "2")]).unwrap(), "b\nc\n");
        assert_eq!(page(text, &[("offset", "3")]).unwrap(), "d");
        assert_eq!(page(text, &[("offset", "9")]).unwrap(), "");
        assert_eq!(page("äöü", &[("unit", "chars"), ("offset", "1"), ("limit", "1")]).unwrap(), "ö");
        assert_eq!(page("a\nb\nc\nneedle\ne", &[("pattern", "need.e")]).unwrap(), "2:b\n3:c\n4:needle\n5:e\n");
        assert_eq!(lines("a\nb\n"), 2);
    }

    #[test]
    fn nonsense_is_named() {
        assert_eq!(page("", &[("offset", "x")]), Err(QueryError::Number("offset")));
        assert_eq!(page("", &[("unit", "words")]), Err(QueryError::Unit));
        assert!(matches!(page("", &[("pattern", "(")]), Err(QueryError::Pattern(_))));
        assert!(matches!(page("", &[("page", "1")]), Err(QueryError::Unknown(_))));
    }

    #[test]
    fn patterns_are_bounded_in_length_and_memory() {
        let text = "a".repeat(PATTERN_CHARS);
        assert_eq!(page(&text, &[("pattern", &text)]).unwrap(), format!("1:{text}\n"));
        assert_eq!(page(&text, &[("pattern", &format!("{text}a"))]), Err(QueryError::LongPattern));
        assert_eq!(page("x is a", &[("pattern", r"(?i)\w+\s+IS")]).unwrap(), "1:x is a\n");
        assert!(matches!(page("a", &[("pattern", "(?:a{50}){50}")]), Err(QueryError::Pattern(_))));
    }

    proptest! {
        #[test]
        fn pages_add_up_to_the_text(text in "(?s).{0,60}", size in 1_usize..7, chars: bool) {
            let unit = if chars { Unit::Chars } else { Unit::Lines };
            let pages = (0..70).map(|n| {
                Query { offset: Some(n * size), limit: Some(size), unit, pattern: None }.page(&text).unwrap()
            });
            prop_assert_eq!(pages.collect::<String>(), text);
        }
    }
}
