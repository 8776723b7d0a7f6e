//! Pieces of text that can be counted one by one.

/// Longest stretch of text, in bytes, that is handed to the tokenizer at once. Its merge loop is quadratic
/// in an unbroken run; at this length 100 KB of one letter cost milliseconds.
const MAX_PIECE: usize = 256;

/// Cuts a text where both vocabularies' patterns end a piece whatever stands around, so that the pieces'
/// counts add up to the text's; runs without such a place are cut at [`MAX_PIECE`].
pub(super) struct Pieces<'t> {
    rest: &'t str,
}

impl<'t> Pieces<'t> {
    pub fn of(text: &'t str) -> Self {
        Self { rest: text }
    }
}

impl<'t> Iterator for Pieces<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        if self.rest.is_empty() {
            return None;
        }
        let mut end = self.rest.len();
        let mut ends = 0;
        for (at, &byte) in self.rest.as_bytes().iter().enumerate() {
            let class = CLASSES.get(usize::from(byte)).map_or(0, |class| *class as usize);
            let full = at >= MAX_PIECE && self.rest.is_char_boundary(at);
            if full || ends >> class & 1 == 1 {
                end = at;
                break;
            }
            ends = ENDS.get(class).copied().unwrap_or(0);
        }
        let (piece, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest;
        Some(piece)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Letter,
    Digit,
    Blank,
    LineEnd,
    Apostrophe,
    Slash,
    Punctuation,
    /// Beyond ASCII, or white space that is rare: no cut beside it.
    Unknown,
}

impl Class {
    const ALL: [Self; 8] = [
        Self::Letter,
        Self::Digit,
        Self::Blank,
        Self::LineEnd,
        Self::Apostrophe,
        Self::Slash,
        Self::Punctuation,
        Self::Unknown,
    ];

    const fn of(byte: u8) -> Self {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => Self::Letter,
            b'0'..=b'9' => Self::Digit,
            b' ' | b'\t' => Self::Blank,
            b'\n' | b'\r' => Self::LineEnd,
            b'\'' => Self::Apostrophe,
            b'/' => Self::Slash,
            0x0b | 0x0c | 0x80.. => Self::Unknown,
            _ => Self::Punctuation,
        }
    }
}

/// Whether a piece always ends between two such bytes. The patterns look ahead only from white space, join a
/// word with one sign before it and a contraction behind it, and signs with the line ends and slashes after
/// them.
const fn ends_piece(before: Class, next: Class) -> bool {
    use Class::{Apostrophe, Blank, Digit, Letter, LineEnd, Punctuation, Slash, Unknown};
    match (before, next) {
        (Unknown, _) | (_, Unknown) | (Blank, _) => false,
        (LineEnd, _) => !matches!(next, LineEnd | Blank | Slash),
        (_, Blank) => true,
        (Letter, _) => !matches!(next, Letter | Apostrophe),
        (Digit, _) => !matches!(next, Digit),
        (Apostrophe | Slash | Punctuation, _) => matches!(next, Digit),
    }
}

/// Each byte's class: looked up, since every byte that is counted is asked for.
const CLASSES: [Class; 256] = classes();
/// For each class, which next ones end a piece behind it, as bits.
const ENDS: [u8; Class::ALL.len()] = ends();

#[expect(clippy::indexing_slicing, reason = "evaluated when compiled")]
const fn classes() -> [Class; 256] {
    let mut classes = [Class::Unknown; 256];
    let mut byte = 0;
    while byte < classes.len() {
        classes[byte] = Class::of(byte as u8);
        byte += 1;
    }
    classes
}

#[expect(clippy::indexing_slicing, reason = "evaluated when compiled")]
const fn ends() -> [u8; Class::ALL.len()] {
    let mut ends = [0; Class::ALL.len()];
    let (mut before, mut next) = (0, 0);
    while before < ends.len() {
        if ends_piece(Class::ALL[before], Class::ALL[next]) {
            ends[before] |= 1 << next;
        }
        next = (next + 1) % ends.len();
        if next == 0 {
            before += 1;
        }
    }
    ends
}
