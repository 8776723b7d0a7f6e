//! What is written to a day's file: a section with the moment, and texts in a form that every reader can page.

use super::day::{Day, stamp};
use super::path::MemoryPath;

/// Most characters of one saved note.
pub const NOTE_CHARS: usize = 16_000;
/// Characters of the longest line; longer ones are broken, so that every page holds whole lines.
pub const LINE_CHARS: usize = 2_000;

/// Who noted something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    /// The model, by its tool.
    Saved,
    /// The proxy, out of what a summary is about to replace.
    Noted,
}

/// A note that is not kept, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    #[error("there is nothing to save: content is empty")]
    Empty,
    #[error("content has more than {NOTE_CHARS} characters: save what is worth keeping, in short statements")]
    TooLong,
}

/// The file of the day of `moment` (unix seconds, UTC), and the section to append to it.
///
/// # Errors
/// Where `content` is empty, or longer than a model may save at once.
pub fn section(author: Author, moment: i64, content: &str) -> Result<(MemoryPath, String), NoteError> {
    if author == Author::Saved && content.chars().nth(NOTE_CHARS).is_some() {
        return Err(NoteError::TooLong);
    }
    let content = tidy(content);
    let content = content.trim();
    if content.is_empty() {
        return Err(NoteError::Empty);
    }
    let name = match author {
        Author::Saved => "Saved",
        Author::Noted => "Noted",
    };
    Ok((MemoryPath::Day(Day::of(moment)), format!("## {name} {}\n\n{content}\n\n", stamp(moment))))
}

/// `text` with one kind of line ending, without control characters and marks that turn the direction of writing,
/// and without lines over [`LINE_CHARS`].
pub fn tidy(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    let mut tidy = String::with_capacity(text.len());
    let mut length = 0;
    for c in text.chars() {
        match c {
            '\n' | '\r' => {
                tidy.push('\n');
                length = 0;
                continue;
            }
            '\t' => {}
            c if c.is_control() || is_direction(c) => continue,
            _ => {}
        }
        if length == LINE_CHARS {
            tidy.push('\n');
            length = 0;
        }
        tidy.push(c);
        length += 1;
    }
    tidy
}

fn is_direction(c: char) -> bool {
    matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{FEFF}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_a_section_of_its_day() {
        let (path, text) = section(Author::Saved, 1_796_000_000, " The deploy key\r\nis rotated weekly.\n").unwrap();
        assert_eq!(path.to_string(), "memory/2026-11-30.md");
        assert_eq!(text, "## Saved 2026-11-30T00:53:20Z\n\nThe deploy key\nis rotated weekly.\n\n");
        assert!(section(Author::Noted, 0, "- x").unwrap().1.starts_with("## Noted 1970-01-01T00:00:00Z\n\n- x"));
    }

    #[test]
    fn empty_and_endless_notes_are_refused() {
        for empty in ["", " \n\t", "\0\u{202e}"] {
            assert_eq!(section(Author::Saved, 0, empty), Err(NoteError::Empty));
        }
        assert!(section(Author::Saved, 0, &"é".repeat(NOTE_CHARS)).is_ok());
        assert_eq!(section(Author::Saved, 0, &"é".repeat(NOTE_CHARS + 1)), Err(NoteError::TooLong));
    }

    #[test]
    fn what_is_written_has_lines_that_page() {
        assert_eq!(tidy("a\0b\u{1b}[0mc\td\re\r\nf\u{202e}"), "ab[0mc\td\ne\nf");
        let long = tidy(&"部".repeat(LINE_CHARS * 2 + 1));
        assert_eq!(long.lines().map(|line| line.chars().count()).collect::<Vec<_>>(), [LINE_CHARS, LINE_CHARS, 1]);
    }
}
