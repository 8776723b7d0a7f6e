//! `memory_get`: lines of a memory file, bounded.

/// Some lines of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Whole lines, each with its ending.
    pub text: String,
    /// The first line shown, from 1; past the end where nothing is.
    pub first: usize,
    /// The last line shown; `first - 1` where nothing is.
    pub last: usize,
    /// Lines of the whole file.
    pub total: usize,
    /// Whether the bound ended it before the lines that were asked for: it goes on at `last + 1`.
    pub cut: bool,
}

/// Lines that make no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LinesError {
    #[error("lines count from 1")]
    Zero,
    #[error("startLine ({0}) is behind endLine ({1})")]
    Backwards(usize, usize),
    #[error("startLine ({0}) is behind the file's last line ({1})")]
    Past(usize, usize),
}

/// Lines `start..=end` (from 1; default: all) in at most `chars` characters, whole lines only. What is written to
/// memory has no line of more than [`LINE_CHARS`](super::save::LINE_CHARS); a longer one would stand alone, clipped.
///
/// # Errors
/// Where the lines make no sense for this file.
pub fn page(content: &str, start: Option<usize>, end: Option<usize>, chars: usize) -> Result<Page, LinesError> {
    let total = content.lines().count();
    let first = start.unwrap_or(1);
    if first == 0 || end == Some(0) {
        return Err(LinesError::Zero);
    }
    let wanted = end.unwrap_or(total);
    if let Some(end) = end.filter(|end| *end < first) {
        return Err(LinesError::Backwards(first, end));
    }
    if first > total && start.is_some() && !(first == 1 && total == 0) {
        return Err(LinesError::Past(first, total));
    }
    let mut page = Page { text: String::new(), first, last: first - 1, total, cut: false };
    let mut left = chars;
    for line in content.split_inclusive('\n').skip(first - 1).take(wanted.min(total).saturating_sub(first - 1)) {
        let length = line.chars().count();
        if length > left {
            page.cut = true;
            if page.text.is_empty() {
                page.text.extend(line.chars().take(chars));
                page.last += 1;
                page.cut = page.last < wanted.min(total);
            }
            break;
        }
        page.text.push_str(line);
        page.last += 1;
        left -= length;
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FILE: &str = "one\ntwo\n\nfour";

    fn shown(start: Option<usize>, end: Option<usize>, chars: usize) -> (String, usize, usize, bool) {
        let page = page(FILE, start, end, chars).unwrap();
        assert_eq!(page.total, 4);
        (page.text, page.first, page.last, page.cut)
    }

    #[test]
    fn lines_are_those_asked_for() {
        assert_eq!(shown(None, None, 100), (FILE.to_owned(), 1, 4, false));
        assert_eq!(shown(Some(2), Some(3), 100), ("two\n\n".to_owned(), 2, 3, false));
        assert_eq!(shown(Some(4), Some(400), 100), ("four".to_owned(), 4, 4, false));
    }

    #[test]
    fn the_bound_ends_a_page_at_a_line() {
        assert_eq!(shown(None, None, 7), ("one\n".to_owned(), 1, 1, true));
        assert_eq!(shown(None, None, 8), ("one\ntwo\n".to_owned(), 1, 2, true));
        assert_eq!(shown(None, Some(2), 8), ("one\ntwo\n".to_owned(), 1, 2, false));
        assert_eq!(shown(Some(4), None, 2), ("fo".to_owned(), 4, 4, false), "a giant stands alone");
    }

    #[test]
    fn lines_that_make_no_sense_are_errors() {
        assert_eq!(page(FILE, Some(0), None, 9), Err(LinesError::Zero));
        assert_eq!(page(FILE, None, Some(0), 9), Err(LinesError::Zero));
        assert_eq!(page(FILE, Some(3), Some(2), 9), Err(LinesError::Backwards(3, 2)));
        assert_eq!(page(FILE, Some(5), None, 9), Err(LinesError::Past(5, 4)));
        assert_eq!(page("", None, None, 9).unwrap().text, "");
        assert_eq!(page("", Some(1), Some(7), 9).unwrap().last, 0);
    }

    proptest! {
        #[test]
        fn pages_one_after_another_give_the_whole(content in "([a-zé部]{0,9}\n){0,12}[a-z]{0,5}", chars in 10_usize..40) {
            let (mut whole, mut next) = (String::new(), 1);
            loop {
                let page = page(&content, Some(next), None, chars).unwrap();
                prop_assert!(page.text.chars().count() <= chars);
                whole.push_str(&page.text);
                next = page.last + 1;
                if !page.cut {
                    break;
                }
            }
            prop_assert_eq!(whole, content);
        }
    }
}
