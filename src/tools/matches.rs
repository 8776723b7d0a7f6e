//! Lines of a long text that match a pattern, for a model: with their numbers and the lines around them, bounded in
//! characters and in time, and with how to go on. Of a very long line only what is around each match is shown.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use regex::Regex;

use super::page::{NoPlace, Place, Size, byte_at, go_on};

/// A search in one text takes this long at most.
pub const SEARCH_TIME: Duration = Duration::from_secs(2);
/// Lines shown before and after a match.
const AROUND: usize = 2;
/// Most characters of a line that is shown whole.
const WHOLE: usize = 400;
/// Characters shown on each side of a match in a longer line, and most of the match itself.
const BESIDE: usize = 150;
/// Bytes of a line that are searched at once, and how far behind them a match that begins in them may end: so there
/// is always a moment to look at the time.
const PIECE: usize = 64 << 10;
const OVERLAP: usize = 4 << 10;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The matches that fit, with what is around them.
    pub shown: String,
    /// How many matching lines (in very long ones: places) those are.
    pub count: usize,
    /// Where the search goes on, and why it ended; `None`: all of the text was searched.
    pub next: Option<(Place, Stopped)>,
    pub size: Size,
}

/// Why a search ended before the text did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// The page is full, or as many were found as asked for.
    Full,
    /// It took too long.
    Late,
}

/// Bounds of one search.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Most matching lines.
    pub limit: Option<usize>,
    /// Most characters that are shown.
    pub room: usize,
    pub until: Instant,
}

/// Searches a text from a place on.
///
/// # Errors
/// If the text has no such place.
pub fn matches(text: &str, pattern: &Regex, start: Place, bounds: Bounds) -> Result<Found, NoPlace> {
    let begin = byte_at(text, Place { char: 0, ..start })?;
    let from = byte_at(text, start)? - begin;
    let mut search = Search { pattern, bounds, shown: String::new(), chars: 0, count: 0, searched: 0 };
    let mut around = Around::default();
    let rest = text.get(begin..).unwrap_or_default();
    let mut next = None;
    for (index, line) in rest.lines().enumerate() {
        let first = if index == 0 { Cursor { byte: from, char: start.char } } else { Cursor::default() };
        let line = Line { number: start.line + index + 1, text: line };
        if let Some((cursor, why)) = search.line(line, first, &mut around) {
            next = Some((Place { line: line.number - 1, char: cursor.char }, why));
            break;
        }
    }
    Ok(Found { shown: search.shown, count: search.count, next, size: Size::of(text) })
}

/// A line with its number from 1, without its end.
#[derive(Clone, Copy)]
struct Line<'t> {
    number: usize,
    text: &'t str,
}

/// A place in a line.
#[derive(Clone, Copy, Default)]
struct Cursor {
    byte: usize,
    char: usize,
}

/// Lines around matches: those before the current one that were not shown, and how many after a match still are.
#[derive(Default)]
struct Around<'t> {
    before: VecDeque<Line<'t>>,
    after: usize,
    last_shown: usize,
}

struct Search<'s> {
    pattern: &'s Regex,
    bounds: Bounds,
    shown: String,
    /// Of `shown`.
    chars: usize,
    count: usize,
    /// Bytes since the time was looked at.
    searched: usize,
}

impl<'t> Around<'t> {
    fn passed(&mut self, line: Line<'t>) {
        if self.before.len() == AROUND {
            self.before.pop_front();
        }
        self.before.push_back(line);
    }

    /// What stands before a match in a line: a mark where lines were left out, and the lines before it.
    fn lead(&self, line: Line<'_>) -> String {
        let first = self.before.front().map_or(line.number, |before| before.number);
        let gap = if self.last_shown > 0 && self.last_shown + 1 < first { "--\n" } else { "" };
        let before: String = self.before.iter().map(|line| context(*line)).collect();
        format!("{gap}{before}")
    }
}

impl Search<'_> {
    /// One line; a place in it if the search ends there.
    fn line<'t>(&mut self, line: Line<'t>, from: Cursor, around: &mut Around<'t>) -> Option<(Cursor, Stopped)> {
        let long = line.text.char_indices().nth(WHOLE).is_some();
        let (mut cursor, mut shown_to, mut found) = (from, 0, false);
        loop {
            let hit = match self.find(line.text, cursor.byte) {
                Ok(Some(hit)) => hit,
                Ok(None) => break,
                Err(reached) => return Some((cursor.to(line.text, reached), Stopped::Late)),
            };
            cursor = cursor.to(line.text, hit.start);
            if shown_to == 0 || hit.end > shown_to {
                let (entry, end) = if long { window(line, cursor, &hit) } else { (whole(line), line.text.len()) };
                if !self.add(&around.lead(line), &entry) {
                    return Some((cursor, Stopped::Full));
                }
                (found, shown_to) = (true, end);
                around.before.clear();
                (around.last_shown, around.after) = (line.number, AROUND);
            }
            // A match of nothing is not found again.
            let least =
                hit.start + line.text.get(hit.start..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8);
            if shown_to >= line.text.len() || hit.end.max(least) >= line.text.len() {
                break;
            }
            cursor = cursor.to(line.text, hit.end.max(least));
            if self.is_late() {
                return Some((cursor, Stopped::Late));
            }
        }
        if !found {
            self.pass(line, around);
        }
        None
    }

    /// A line without a match: it may stand after one.
    fn pass<'t>(&mut self, line: Line<'t>, around: &mut Around<'t>) {
        let shown = context(line);
        let chars = shown.chars().count();
        if around.after > 0 && self.chars + chars <= self.bounds.room {
            self.shown += &shown;
            self.chars += chars;
            around.after -= 1;
            around.last_shown = line.number;
        } else {
            around.after = 0;
            around.passed(line);
        }
    }

    /// Shows a match, with what stands before it if that fits as well. The first one always fits.
    fn add(&mut self, lead: &str, entry: &str) -> bool {
        if self.bounds.limit.is_some_and(|limit| self.count >= limit) {
            return false;
        }
        let (before, chars) = (lead.chars().count(), entry.chars().count());
        let with_lead = self.chars + before + chars <= self.bounds.room;
        if !with_lead && self.count > 0 {
            return false;
        }
        if with_lead {
            self.shown += lead;
            self.chars += before;
        }
        self.shown += entry;
        self.chars += chars;
        self.count += 1;
        true
    }

    /// The next match in a line from a byte on. `Err`: the byte up to which there is none, for now it is late.
    fn find(&mut self, line: &str, from: usize) -> Result<Option<Range<usize>>, usize> {
        let mut from = from;
        loop {
            let border = boundary(line, from + PIECE);
            let end = boundary(line, border + OVERLAP);
            let hit = self.pattern.find_at(line.get(..end).unwrap_or_default(), from);
            if let Some(hit) = hit.filter(|hit| hit.start() < border || end == line.len()) {
                // To know where a match ends, the pattern may have been tried on all that follows.
                self.searched += end - from;
                return Ok(Some(hit.range()));
            }
            if end == line.len() {
                self.searched += end - from;
                return if self.is_late() { Err(end) } else { Ok(None) };
            }
            self.searched += border - from;
            from = border;
            if self.is_late() {
                return Err(from);
            }
        }
    }

    fn is_late(&mut self) -> bool {
        if self.searched < PIECE {
            return false;
        }
        self.searched = 0;
        Instant::now() >= self.bounds.until
    }
}

impl Stopped {
    fn and_how_to_go_on(self, next: Place) -> String {
        let next = go_on(next);
        match self {
            Self::Full => format!("there are more: go on with the same pattern and {next}"),
            Self::Late => format!("the search took too long: go on with a simpler pattern and {next}"),
        }
    }
}

impl Cursor {
    fn to(self, line: &str, byte: usize) -> Self {
        let passed = line.get(self.byte..byte).unwrap_or_default().chars().count();
        Self { byte, char: self.char + passed }
    }
}

/// The last place at or before a byte that is between characters.
fn boundary(line: &str, byte: usize) -> usize {
    (0..4).filter_map(|back| byte.checked_sub(back)).find(|at| line.is_char_boundary(*at)).unwrap_or(line.len())
}

fn whole(line: Line<'_>) -> String {
    format!("{}:{}\n", line.number, line.text)
}

fn context(line: Line<'_>) -> String {
    match line.text.char_indices().nth(WHOLE / 2) {
        None => format!("{}-{}\n", line.number, line.text),
        Some(_) if line.text.chars().nth(WHOLE).is_none() => format!("{}-{}\n", line.number, line.text),
        Some((end, _)) => format!("{}-{}…\n", line.number, line.text.get(..end).unwrap_or_default()),
    }
}

/// What is around a match in a long line, and the byte at which it ends.
fn window(line: Line<'_>, start: Cursor, hit: &Range<usize>) -> (String, usize) {
    let before = line.text.get(..hit.start).unwrap_or_default();
    let begin = before.char_indices().rev().nth(BESIDE - 1).map_or(0, |(at, _)| at);
    let matched = line.text.get(hit.clone()).unwrap_or_default();
    let shown_of_it = matched.char_indices().nth(BESIDE).map_or(hit.end, |(at, _)| hit.start + at);
    let after = line.text.get(shown_of_it..).unwrap_or_default();
    let end = after.char_indices().nth(BESIDE).map_or(line.text.len(), |(at, _)| shown_of_it + at);
    let shown = line.text.get(begin..end).unwrap_or_default();
    let char = start.char - before.get(begin..).unwrap_or_default().chars().count();
    (format!("{}@{char}:…{shown}…\n", line.number), end.max(hit.end))
}

impl Found {
    /// What was found and, where there may be more, how to go on.
    pub fn plain(self) -> String {
        let more = match self.next {
            None => String::new(),
            Some((next, why)) => format!("[{}]\n", why.and_how_to_go_on(next)),
        };
        self.shown + &more
    }

    /// The result as the model gets it.
    pub fn text(&self) -> String {
        let Self { shown, count, next, size } = self;
        let mut said = match count {
            0 => "[no line matches".to_owned(),
            1 => "[1 match".to_owned(),
            _ => format!("[{count} matches"),
        };
        said += &match next {
            None => String::new(),
            Some((next, why @ Stopped::Full)) => format!("; {}", why.and_how_to_go_on(*next)),
            Some((next, why @ Stopped::Late)) => format!(" up to here; {}", why.and_how_to_go_on(*next)),
        };
        said += &format!("; whole text: {size}");
        if *count > 0 {
            said += "; LINE:text is a match, LINE-text is beside one, LINE@CHAR:text is a part of a long line; to read \
                     there: offset=LINE-1 (and char_offset=CHAR), no pattern";
        }
        format!("{said}]\n{shown}")
    }
}

#[cfg(test)]
#[path = "tests/matches.rs"]
mod tests;
