//! A cursor over JSON text. Structure is taken by hand, values are taken whole, so that reading can
//! stop at any element of an object or array and resume there in a later body.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::value::RawValue;

/// The text is not what the reader needs: no valid JSON, or a shape that could be misread.
/// The body is then forwarded as it came (L2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unreadable at byte {at}: {what}")]
pub struct Unreadable {
    /// Byte offset in the text that was being read (a body or one item of it).
    pub at: usize,
    pub what: &'static str,
}

/// A member of an object: its decoded key and the byte range of its value.
pub type Member<'t> = (Cow<'t, str>, Range<usize>);

/// A place in JSON text. Copy [`at`](Self::at) to resume there.
#[derive(Debug, Clone)]
pub struct Cursor<'t> {
    pub(super) text: &'t [u8],
    pub(super) at: usize,
}

impl<'t> Cursor<'t> {
    /// A cursor at byte `at` of `text`.
    pub fn new(text: &'t [u8], at: usize) -> Self {
        Self { text, at }
    }

    /// The byte offset; after [`open`](Self::open), [`more`](Self::more) and [`key`](Self::key) that
    /// of the first byte of what comes next.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The whole text.
    pub fn text(&self) -> &'t [u8] {
        self.text
    }

    /// The bytes of the text at `span`.
    pub fn raw(&self, span: &Range<usize>) -> &'t [u8] {
        self.text.get(span.clone()).unwrap_or_default()
    }

    /// The next byte that is no whitespace.
    pub fn peek(&mut self) -> Option<u8> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        self.at += rest.iter().take_while(|byte| matches!(byte, b' ' | b'\n' | b'\r' | b'\t')).count();
        self.text.get(self.at).copied()
    }

    /// Takes the bracket `open` and says whether an element begins; if none does, takes `close` too.
    pub fn open(&mut self, open: u8, close: u8) -> Result<bool, Unreadable> {
        self.take(open, "another bracket is due")?;
        let empty = self.peek() == Some(close);
        self.at += usize::from(empty);
        Ok(!empty)
    }

    /// Behind an element: takes a comma and says that another begins, or takes `close`.
    pub fn more(&mut self, close: u8) -> Result<bool, Unreadable> {
        let next = self.peek();
        if next != Some(b',') && next != Some(close) {
            return Err(self.fail("a comma or closing bracket is due"));
        }
        self.at += 1;
        self.peek();
        Ok(next == Some(b','))
    }

    /// Takes a key and its colon.
    pub fn key(&mut self) -> Result<Cow<'t, str>, Unreadable> {
        if self.peek() != Some(b'"') {
            return Err(self.fail("a key is due"));
        }
        let key = match self.plain_key() {
            Some(key) => Cow::Borrowed(key),
            None => {
                let span = self.value()?;
                string(self.text, &span).ok_or(self.fail("a key is no Unicode text"))?
            }
        };
        self.take(b':', "a colon is due")?;
        self.peek();
        Ok(key)
    }

    /// Takes a key without escapes, which are nearly all.
    fn plain_key(&mut self) -> Option<&'t str> {
        let rest = self.text.get(self.at + 1..)?;
        let len = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f))?;
        let (key, rest) = rest.split_at_checked(len)?;
        let key = std::str::from_utf8(key).ok().filter(|_| rest.first() == Some(&b'"'))?;
        self.at += len + 2;
        Some(key)
    }

    /// Takes one whole value, checked to be valid JSON and UTF-8, and gives its byte range.
    pub fn value(&mut self) -> Result<Range<usize>, Unreadable> {
        self.peek();
        let rest = self.text.get(self.at..).unwrap_or_default();
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<&RawValue>();
        let Some(Ok(raw)) = values.next() else {
            return Err(self.fail("a valid value is due"));
        };
        let start = self.at;
        self.at += raw.get().len();
        Ok(start..self.at)
    }

    /// Only whitespace may be left.
    pub fn end(&mut self) -> Result<(), Unreadable> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.fail("something follows the body")),
        }
    }

    /// An error at this place.
    pub fn fail(&self, what: &'static str) -> Unreadable {
        Unreadable { at: self.at, what }
    }

    fn take(&mut self, byte: u8, what: &'static str) -> Result<(), Unreadable> {
        if self.peek() != Some(byte) {
            return Err(self.fail(what));
        }
        self.at += 1;
        Ok(())
    }
}

/// The members of the object that begins at byte `at`, in order; `Unreadable` if it is no object.
pub fn members(text: &[u8], at: usize) -> Result<Vec<Member<'_>>, Unreadable> {
    let mut cursor = Cursor::new(text, at);
    let mut members = Vec::new();
    let mut more = cursor.open(b'{', b'}')?;
    while more {
        let key = cursor.key()?;
        members.push((key, cursor.value()?));
        more = cursor.more(b'}')?;
    }
    Ok(members)
}

/// Byte ranges of the elements of the array that begins at byte `at`; `Unreadable` if it is no array.
pub fn elements(text: &[u8], at: usize) -> Result<Vec<Range<usize>>, Unreadable> {
    let mut cursor = Cursor::new(text, at);
    let mut elements = Vec::new();
    let mut more = cursor.open(b'[', b']')?;
    while more {
        elements.push(cursor.value()?);
        more = cursor.more(b']')?;
    }
    Ok(elements)
}

/// The decoded string at `span`, where a valid value stands; `None` if it is no string or holds a lone
/// surrogate.
pub fn string<'t>(text: &'t [u8], span: &Range<usize>) -> Option<Cow<'t, str>> {
    let raw = text.get(span.clone())?;
    match memchr::memchr(b'\\', raw) {
        None => std::str::from_utf8(raw.strip_prefix(b"\"")?.strip_suffix(b"\"")?).map(Cow::Borrowed).ok(),
        Some(_) => unescaped(raw).map(Cow::Owned),
    }
}

/// The decoded string that `raw` is as a whole: a valid one, as [`Cursor::value`] takes it; `None` if it is no
/// string or holds a lone surrogate.
pub fn unescaped(raw: &[u8]) -> Option<String> {
    let mut rest = std::str::from_utf8(raw).ok()?.strip_prefix('"')?.strip_suffix('"')?;
    let mut text = String::with_capacity(rest.len());
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        let (plain, escape) = rest.split_at_checked(at)?;
        text.push_str(plain);
        text.push(match escape.as_bytes().get(1)? {
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            sign @ (b'"' | b'\\' | b'/') => char::from(*sign),
            _ => return serde_json::from_slice(raw).ok(),
        });
        rest = escape.get(2..)?;
    }
    text.push_str(rest);
    Some(text)
}

/// What a JSON string with lone surrogates says: these stay as they are spelt (`\ud83d`), which is how clients that cut
/// a text within a character send it.
pub fn unescaped_spelt(raw: &[u8]) -> Option<String> {
    let mut rest = std::str::from_utf8(raw).ok()?;
    let mut mended = String::with_capacity(raw.len() + 1);
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        let (plain, escape) = rest.split_at_checked(at)?;
        mended.push_str(plain);
        let length = match (surrogate(escape), escape.get(6..).and_then(surrogate)) {
            (None, _) => 2,
            (Some(Half::High), Some(Half::Low)) => 12,
            (Some(_), _) => {
                mended.push('\\');
                6
            }
        };
        mended.push_str(escape.get(..length)?);
        rest = escape.get(length..)?;
    }
    mended.push_str(rest);
    unescaped(mended.as_bytes())
}

/// Half of a character beyond the basic plane.
enum Half {
    High,
    Low,
}

/// Which half the escape that `text` begins with stands for.
fn surrogate(text: &str) -> Option<Half> {
    match u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()? {
        0xd800..=0xdbff => Some(Half::High),
        0xdc00..=0xdfff => Some(Half::Low),
        _ => None,
    }
}

/// The first byte of the value at `span`, which tells its type: one of `{ [ " t f n -` or a digit.
pub fn kind(text: &[u8], span: &Range<usize>) -> u8 {
    text.get(span.start).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_and_elements_give_exact_ranges() {
        let text = br#" { "a" : 1 , "b\u0062" : [ "x" , {} ,-2e3] } "#;
        let found = members(text, 0).unwrap();
        let shown: Vec<_> = found.iter().map(|(key, span)| (key.as_ref(), &text[span.clone()])).collect();
        assert_eq!(shown, [("a", &b"1"[..]), ("bb", br#"[ "x" , {} ,-2e3]"#)]);
        let parts = elements(text, found[1].1.start).unwrap();
        let parts: Vec<_> = parts.into_iter().map(|span| &text[span]).collect();
        assert_eq!(parts, [&br#""x""#[..], b"{}", b"-2e3"]);
    }

    #[test]
    fn lone_surrogates_are_read_as_they_are_spelt() {
        let read = |raw: &str| unescaped_spelt(raw.as_bytes());
        assert_eq!(read(r#""a\n\\ud83d""#).unwrap(), "a\n\\ud83d", "an escaped backslash is none");
        assert_eq!(
            read(r#""\ud83d\ude00 \ude00\n \ud83d\ud83d\ude00""#).unwrap(),
            "\u{1f600} \\ude00\n \\ud83d\u{1f600}"
        );
        assert_eq!(read(r#""\ud83""#), None);
        assert_eq!(read(r#""\x""#), None);
    }

    #[test]
    fn what_is_no_json_is_unreadable() {
        let broken: [&[u8]; 11] = [
            b"",
            b"{",
            b"[1]",
            b"{\"a\"}",
            b"{\"a\":1,}",
            b"{\"a\":1 \"b\":2}",
            b"{\"a\":01}",
            b"{\"a\":\"\xff\"}",
            b"{\"\\ud800\":1}",
            b"{'a':1}",
            b"\xef\xbb\xbf{}",
        ];
        for text in broken {
            assert!(members(text, 0).is_err(), "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn strings_are_decoded_as_a_json_parser_does() {
        let valid = [
            r#""""#,
            r#""plain""#,
            r#""a\"b\\c\/d\be\ff\ng\rh\ti""#,
            r#""\\n\\""#,
            r#""h\u00e9 \ud83d\ude00 \n""#,
            r#""\ud800""#,
            "\"h\u{e9}\u{1f600}\\n\u{7f}\"",
            "1",
            "null",
            "[\"a\"]",
        ];
        for raw in valid {
            let parsed = serde_json::from_str::<String>(raw).ok();
            assert_eq!(unescaped(raw.as_bytes()), parsed, "{raw}");
            assert_eq!(string(raw.as_bytes(), &(0..raw.len())).map(Cow::into_owned), parsed, "{raw}");
        }
    }

    #[test]
    fn reading_resumes_behind_any_element() {
        let text = br#"[ {"a":1} , 2,"three" ]"#;
        let whole = elements(text, 0).unwrap();
        for (k, span) in whole.iter().enumerate() {
            let mut cursor = Cursor::new(text, span.end);
            let mut rest = Vec::new();
            while cursor.more(b']').unwrap() {
                rest.push(cursor.value().unwrap());
            }
            assert_eq!(rest, whole[k + 1..]);
            cursor.end().unwrap();
        }
    }

    #[test]
    fn deep_nesting_neither_overflows_nor_fails_the_scan() {
        let deep = [b"[".repeat(200_000), b"]".repeat(200_000)].concat();
        assert_eq!(Cursor::new(&deep, 0).value().unwrap(), 0..400_000);
    }
}
