//! `memory_search`: lines of memory files, best first.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use super::day::Day;
use super::file::MemoryFile;
use super::path::MemoryPath;
use super::words::words;
use crate::compact::excerpt::one_line;

/// Hits where a search does not say how many.
pub const DEFAULT_HITS: usize = 30;
/// Most hits of one search.
pub const MAX_HITS: usize = 100;
/// Characters of a query that are looked at.
const QUERY_CHARS: usize = 500;
/// Characters of a line that are shown.
const SHOWN_CHARS: usize = 300;
/// What a line weighs that has the query as it was typed.
const PHRASE: f64 = 2.0;

/// A line that has something of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    pub path: MemoryPath,
    /// From 1.
    pub line: usize,
    /// The line, at most 300 characters of it.
    pub text: String,
}

/// A line with the words of the query that it has.
struct Line<'t> {
    path: MemoryPath,
    number: usize,
    text: &'t str,
    has: Vec<String>,
}

/// The best `most` lines for `query`, at most [`MAX_HITS`]: rare words count more, and the query as it was typed
/// most. Ties: `MEMORY.md`, then the newest day, then the order of the file.
pub fn search(files: &[MemoryFile], query: &str, most: usize) -> Vec<Hit> {
    let query: String = query.trim().chars().take(QUERY_CHARS).collect();
    let wanted = words(&query);
    let found: Vec<Line<'_>> = files.iter().flat_map(|file| lines(file, &wanted)).collect();
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for word in found.iter().flat_map(|line| &line.has) {
        *counts.entry(word).or_default() += 1;
    }
    let weight = |word: &String| {
        let rare = counts.get(word.as_str()).copied().unwrap_or(1) as f64;
        // A whole identifier says more than one of its parts.
        (1.0 + found.len() as f64 / rare).ln() * (1.0 + word.chars().count() as f64).ln()
    };
    let phrase = query.to_lowercase();
    let mut scored: Vec<(f64, &Line<'_>)> = Vec::with_capacity(found.len());
    for line in &found {
        let whole = if line.text.to_lowercase().contains(&phrase) { PHRASE } else { 1.0 };
        scored.push((line.has.iter().map(weight).sum::<f64>() * whole, line));
    }
    scored.sort_by(|(a, one), (b, other)| b.total_cmp(a).then_with(|| place(one).cmp(&place(other))));
    let hits = scored.into_iter().take(most.min(MAX_HITS));
    hits.map(|(_, line)| Hit { path: line.path, line: line.number, text: one_line(line.text, SHOWN_CHARS) }).collect()
}

/// The lines that have a word of those wanted.
fn lines<'t>(file: &'t MemoryFile, wanted: &HashSet<String>) -> Vec<Line<'t>> {
    let line = |(index, text): (usize, &'t str)| {
        // In an order of their own, so that sums are the same each time.
        let mut has: Vec<String> = words(text).intersection(wanted).cloned().collect();
        has.sort_unstable();
        (!has.is_empty()).then_some(Line { path: file.path, number: index + 1, text, has })
    };
    file.content.lines().enumerate().filter_map(line).collect()
}

/// Where a line stands among equals.
fn place(line: &Line<'_>) -> (u8, Reverse<Option<Day>>, usize) {
    let kind = match line.path {
        MemoryPath::Curated => 0,
        MemoryPath::Day(_) => 1,
        MemoryPath::Archived(_) => 2,
    };
    (kind, Reverse(line.path.day()), line.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, content: &str) -> MemoryFile {
        let (path, content) = (path.parse().unwrap(), content.to_owned());
        MemoryFile { path, content, version: 1, merged: 0, updated: 0 }
    }

    fn found(files: &[(&str, &str)], query: &str) -> Vec<(String, usize)> {
        let files: Vec<MemoryFile> = files.iter().map(|(path, text)| file(path, text)).collect();
        let hits = search(&files, query, DEFAULT_HITS);
        hits.into_iter().map(|hit| (hit.path.to_string(), hit.line)).collect()
    }

    const FILES: [(&str, &str); 4] = [
        ("memory/archive/2026-01-02.md", "- The build uses tabs."),
        ("memory/2026-11-29.md", "## Noted\n\n- The build runs on parse_http_request.\n- 我们的数据库部署在东京。"),
        ("memory/2026-11-30.md", "- The deploy window is Tuesday.\n- The build uses spaces, not tabs."),
        ("MEMORY.md", "# Memory\n- The build is cargo.\n"),
    ];

    fn at(path: &str, line: usize) -> (String, usize) {
        (path.to_owned(), line)
    }

    #[test]
    fn the_best_line_comes_first_with_file_and_line() {
        assert_eq!(found(&FILES, "deploy window")[0], at("memory/2026-11-30.md", 1));
        assert_eq!(found(&FILES, "httpRequest")[0], at("memory/2026-11-29.md", 3));
        assert_eq!(found(&FILES, "部署")[0], at("memory/2026-11-29.md", 4));
        assert_eq!(found(&FILES, "build uses tabs")[0], at("memory/archive/2026-01-02.md", 1), "as it was typed");
        assert!(found(&FILES, "kubernetes").is_empty() && found(&FILES, " \n").is_empty());
    }

    #[test]
    fn equals_come_in_the_order_of_use() {
        let hits = found(&FILES, "build");
        let expected = [
            at("MEMORY.md", 2),
            at("memory/2026-11-30.md", 2),
            at("memory/2026-11-29.md", 3),
            at("memory/archive/2026-01-02.md", 1),
        ];
        assert_eq!(hits, expected);
    }

    #[test]
    fn hits_and_what_they_show_are_bounded() {
        let text = format!("needle {}\n", "x".repeat(2_000)).repeat(200);
        let files = [file("MEMORY.md", &text)];
        assert_eq!(search(&files, "needle", 3).len(), 3);
        let all = search(&files, "needle", usize::MAX);
        assert_eq!(all.len(), MAX_HITS);
        assert!(all.iter().all(|hit| hit.text.chars().count() <= SHOWN_CHARS + 1));
        assert!(!search(&files, &"needle ".repeat(100_000), 1).is_empty());
    }
}
