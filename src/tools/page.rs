//! Pages of a long text for a model: bounded in characters, exact, and each says how long the whole is and how to
//! go on. Lines stay whole where they fit; one that is longer than a page comes in pieces.

use std::fmt::Write;

use crate::compact::evict::whole_character;
use crate::compact::page::lines;

/// A place in a text: lines before it, then characters of its line before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub line: usize,
    pub char: usize,
}

/// Part of a text, and where the rest is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<'t> {
    /// Exactly as it stands in the text.
    pub body: &'t str,
    pub start: Place,
    /// Where the next page begins; `None` at the end of the text.
    pub next: Option<Place>,
    pub size: Size,
}

/// How long a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub lines: usize,
    /// Unicode characters.
    pub chars: usize,
}

/// A place that the text does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoPlace {
    #[error("offset {0} is behind the end: the text has {1} lines, so the last offset is {last}.", last = .1.saturating_sub(1))]
    Line(usize, usize),
    #[error("char_offset {0} is behind the end of the line at that offset, which has {1} characters.")]
    Char(usize, usize),
}

/// Characters that are kept for what is said about a page.
const SAID: usize = 400;

impl Size {
    pub fn of(text: &str) -> Self {
        Self { lines: lines(text), chars: text.chars().count() }
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let s = |count: usize| if count == 1 { "" } else { "s" };
        write!(f, "{} line{}, {} character{}", self.lines, s(self.lines), self.chars, s(self.chars))
    }
}

/// Characters of a page's text where the whole may have `page_chars`.
pub fn room(page_chars: usize) -> usize {
    page_chars.saturating_sub(SAID).max(SAID)
}

/// The byte at which a place begins.
///
/// # Errors
/// If the text has no such place. Its very beginning it always has.
pub fn byte_at(text: &str, place: Place) -> Result<usize, NoPlace> {
    let begin = match place.line {
        0 => 0,
        count => {
            let ends = memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1);
            let begin = ends.filter(|end| *end < text.len()).nth(count - 1);
            begin.ok_or_else(|| NoPlace::Line(place.line, lines(text)))?
        }
    };
    let line = text.get(begin..).unwrap_or_default().split_inclusive('\n').next().unwrap_or_default();
    match (place.char, line.char_indices().nth(place.char)) {
        (0, _) => Ok(begin),
        (_, Some((at, _))) => Ok(begin + at),
        (char, None) => Err(NoPlace::Char(char, line.chars().count())),
    }
}

/// The page of at most `room` characters and `limit` lines that begins at a place.
///
/// # Errors
/// If the text has no such place.
pub fn page(text: &str, start: Place, limit: Option<usize>, room: usize) -> Result<Page<'_>, NoPlace> {
    let begin = byte_at(text, start)?;
    let rest = text.get(begin..).unwrap_or_default();
    let (mut bytes, mut chars, mut next) = (0, 0, None);
    for (count, line) in rest.split_inclusive('\n').enumerate() {
        let length = line.chars().count();
        if limit.is_some_and(|limit| count >= limit) || chars + length > room {
            next = Some(Place { line: start.line + count, char: if count == 0 { start.char } else { 0 } });
            break;
        }
        bytes += line.len();
        chars += length;
    }
    if bytes == 0 && next.is_some() {
        let (piece, taken) = piece(rest, room);
        (bytes, next) = (piece, Some(Place { char: start.char + taken, ..start }));
    }
    Ok(Page { body: rest.get(..bytes).unwrap_or_default(), start, next, size: Size::of(text) })
}

/// Bytes and characters of the beginning of a line that is too long for a page.
fn piece(line: &str, room: usize) -> (usize, usize) {
    let most = line.char_indices().nth(room).map_or(line.len(), |(at, _)| at);
    let end = match whole_character(line, most) {
        0 => most,
        end => end,
    };
    (end, line.get(..end).unwrap_or_default().chars().count())
}

impl Page<'_> {
    /// The page as the model gets it.
    pub fn text(&self) -> String {
        let Self { body, start, next, size } = self;
        if size.chars == 0 {
            return "[the text is empty]".to_owned();
        }
        let mut said = format!("[whole text: {size}; this page: ");
        let last = start.line + lines(body);
        let whole = start.char == 0 && next.is_none_or(|next| next.char == 0);
        let _ = match whole {
            true if start.line + 1 == last => write!(said, "line {last}"),
            true => write!(said, "lines {} to {last}", start.line + 1),
            false => {
                let end = start.char + body.chars().count();
                write!(said, "line {last}, characters {} to {end} of it", start.char + 1)
            }
        };
        said += &match next {
            None => "; this is the end]".to_owned(),
            Some(next) => format!("; for more use {}]", go_on(*next)),
        };
        format!("{said}\n{body}")
    }
}

/// The arguments with which a call goes on at a place.
pub fn go_on(next: Place) -> String {
    match next {
        Place { line, char: 0 } => format!("offset={line}"),
        Place { line, char } => format!("offset={line} and char_offset={char}"),
    }
}

#[cfg(test)]
#[path = "tests/page.rs"]
mod tests;
