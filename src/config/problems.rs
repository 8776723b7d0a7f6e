//! What is wrong with a configuration: everything at once, each with its key and line.

use std::fmt;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Line in the file, from 1; `None` where it is about the file as a whole.
    pub line: Option<usize>,
    /// Dotted key such as `compaction.keep_tokens`; empty where there is none.
    pub key: String,
    pub message: String,
}

/// Everything that is wrong with one file, in the order of its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems {
    file: String,
    /// Byte offset at which each line begins.
    lines: Vec<usize>,
    list: Vec<Problem>,
}

impl Problems {
    /// No problems yet, of a file with this text.
    pub fn of_text(text: &str) -> Self {
        let begins = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Self { file: "proxy.toml".into(), lines: std::iter::once(0).chain(begins).collect(), list: Vec::new() }
    }

    /// The one problem of a file that could not be read.
    pub fn unreadable(file: &std::path::Path, error: &std::io::Error) -> Self {
        let mut problems = Self::of_text("").named(file);
        problems.add(None, "", format!("cannot be read: {error}"));
        problems
    }

    /// The same problems under the file's own name.
    #[must_use]
    pub fn named(mut self, file: &std::path::Path) -> Self {
        self.file = file.display().to_string();
        self
    }

    /// Adds a problem at a byte offset. What was said of a line is not said twice (a policy inherits the
    /// contradictions of the sections that it overrides), nor anything more of a line that is no TOML.
    pub fn add(&mut self, at: Option<usize>, key: impl Into<String>, message: impl Into<String>) {
        let problem = Problem { line: at.map(|at| self.line(at)), key: key.into(), message: message.into() };
        let said =
            |known: &Problem| known.line == problem.line && (known.message == problem.message || known.key.is_empty());
        if problem.line.is_none() || !self.list.iter().any(said) {
            self.list.push(problem);
            self.list.sort_by_key(|problem| problem.line);
        }
    }

    /// The value of `result`, or `None` with its error added, unless the entry has one: a value whose
    /// variable is not set is not judged any further.
    pub fn keep<T>(&mut self, entry: Entry<'_>, result: Result<T, String>) -> Option<T> {
        let line = Some(self.line(entry.at()));
        let known = self.list.iter().any(|problem| problem.line == line && problem.key == entry.key);
        match result {
            Ok(value) => Some(value),
            Err(_) if known => None,
            Err(message) => {
                self.add(Some(entry.at()), entry.key, message);
                None
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.list.iter()
    }

    fn line(&self, at: usize) -> usize {
        self.lines.partition_point(|begin| *begin <= at)
    }
}

/// A value of the file with its dotted key.
#[derive(Clone, Copy)]
pub struct Entry<'v> {
    pub key: &'v str,
    pub value: &'v toml::Spanned<toml::de::DeValue<'v>>,
}

impl Entry<'_> {
    /// Byte offset of the value.
    pub fn at(&self) -> usize {
        self.value.span().start
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.list.iter().enumerate() {
            let line_break = if index == 0 { "" } else { "\n" };
            write!(f, "{line_break}{}:", self.file)?;
            if let Some(line) = problem.line {
                write!(f, "{line}:")?;
            }
            if !problem.key.is_empty() {
                write!(f, " {}:", problem.key)?;
            }
            write!(f, " {}", problem.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// `; did you mean "…"?` where one of `names` is at most two edits away from `key`, else nothing.
pub fn did_you_mean(key: &str, names: &[&str]) -> String {
    let nearest = names.iter().map(|name| (distance(key, name), name)).min();
    match nearest {
        Some((edits, name)) if edits <= 2 && edits < key.len() => format!("; did you mean `{name}`?"),
        _ => String::new(),
    }
}

/// Levenshtein distance in bytes.
fn distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.bytes().enumerate() {
        let mut diagonal = i;
        let mut before = i + 1;
        for (cell, b) in row.iter_mut().skip(1).zip(right.bytes()) {
            let substituted = diagonal + usize::from(a != b);
            diagonal = *cell;
            before = substituted.min(diagonal + 1).min(before + 1);
            *cell = before;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_count_from_one() {
        let mut problems = Problems::of_text("a\nbc\n\nd");
        for at in [0, 1, 2, 4, 5, 6] {
            problems.add(Some(at), format!("k{at}"), format!("at {at}"));
        }
        let lines: Vec<_> = problems.iter().filter_map(|problem| problem.line).collect();
        assert_eq!(lines, [1, 1, 2, 2, 3, 4]);
        assert!(problems.to_string().contains("proxy.toml:2: k4: at 4\n"));
    }

    #[test]
    fn near_names_are_proposed_and_far_ones_are_not() {
        assert_eq!(did_you_mean("keep_token", &["keep_tokens", "model"]), "; did you mean `keep_tokens`?");
        assert_eq!(did_you_mean("colour", &["keep_tokens", "model"]), "");
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }
}
