//! Passing over values that need not be read: by strings and brackets alone, which costs a fifth of checking them.

use std::ops::Range;

use super::scan::{Cursor, Member, Unreadable};

impl<'t> Cursor<'t> {
    /// Passes over one value by its strings and brackets alone, and gives its byte range: of a valid value the same as
    /// [`value`](Self::value). Whether it is valid is not asked. `see` is shown each string in it, keys included, as it
    /// is spelt, without its quotes.
    pub fn pass(&mut self, see: &mut impl FnMut(&'t [u8])) -> Result<Range<usize>, Unreadable> {
        self.peek();
        let start = self.at;
        let mut open = 0_usize;
        loop {
            match self.text.get(self.at) {
                Some(b'"') => see(self.pass_string()?),
                Some(b'{' | b'[') => {
                    open += 1;
                    self.at += 1;
                }
                Some(b'}' | b']') if open > 0 => {
                    open -= 1;
                    self.at += 1;
                }
                Some(b',' | b':' | b' ' | b'\n' | b'\r' | b'\t') if open > 0 => {
                    self.at += 1;
                    continue;
                }
                Some(b'-' | b'0'..=b'9' | b'a'..=b'z') => self.pass_word(),
                _ => return Err(self.fail("a value is due")),
            }
            if open == 0 {
                return Ok(start..self.at);
            }
        }
    }

    /// Passes over one object and gives its members, in order.
    pub fn pass_members(&mut self) -> Result<Vec<Member<'t>>, Unreadable> {
        let mut members = Vec::new();
        let mut more = self.open(b'{', b'}')?;
        while more {
            members.push((self.key()?, self.pass(&mut |_| {})?));
            more = self.more(b'}')?;
        }
        Ok(members)
    }

    /// Passes over a string and gives what stands between its quotes. It goes from quote to quote: a text has an escape
    /// in each of its lines, but few of a quote.
    fn pass_string(&mut self) -> Result<&'t [u8], Unreadable> {
        let inner = self.text.get(self.at + 1..).unwrap_or_default();
        let mut from = 0;
        loop {
            let rest = inner.get(from..).unwrap_or_default();
            let Some(found) = memchr::memchr(b'"', rest) else { return Err(self.fail("a string has no end")) };
            let text = inner.get(..from + found).unwrap_or_default();
            let backslashes = text.iter().rev().take_while(|byte| **byte == b'\\').count();
            if backslashes % 2 == 0 {
                self.at += text.len() + 2;
                return Ok(text);
            }
            from += found + 1;
        }
    }

    /// Passes over a number, `true`, `false` or `null`.
    fn pass_word(&mut self) {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
        self.at += rest.iter().position(ends).unwrap_or(rest.len());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_json_never_ends_a_pass_beyond_the_text() {
        for text in [r#""#, r#"""#, r#""\"#, r#""\""#, "[", r#"[""#, r#"{"a":["#, "]", ",", "\\"] {
            assert!(Cursor::new(text.as_bytes(), 0).pass(&mut |_| {}).is_err(), "{text}");
        }
        assert_eq!(Cursor::new(b"[}", 0).pass(&mut |_| {}), Ok(0..2), "brackets are only counted");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// For all values, however they are spaced: passing over one ends where reading it ends, and shows its strings.
        #[test]
        fn passing_ends_where_reading_ends(value in value(), pretty in any::<bool>(), behind in "[,}\\] \n]?") {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            let whole = format!(" {text}{behind}");
            let (mut read, mut passed) = (Cursor::new(whole.as_bytes(), 0), Cursor::new(whole.as_bytes(), 0));
            let mut seen = Vec::new();
            let span = passed.pass(&mut |text| seen.push(format!("\"{}\"", String::from_utf8_lossy(text)))).unwrap();
            prop_assert_eq!(&span, &read.value().unwrap());
            prop_assert_eq!(passed.at(), read.at());
            let mut strings = Vec::new();
            collect(&value, &mut strings);
            prop_assert_eq!(seen, strings);
        }
    }

    fn value() -> impl Strategy<Value = serde_json::Value> {
        use serde_json::{Value, json};
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(|number| json!(number)),
            any::<f64>().prop_map(|number| json!(number)),
            "(?s).{0,20}".prop_map(Value::String),
            r#"["\\\[\]{},: é]{0,9}"#.prop_map(Value::String),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
                prop::collection::vec((r#"[a-z"\\]{0,6}"#, inner), 0..6)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    /// The strings of a value as they are spelt, in order.
    fn collect(value: &serde_json::Value, strings: &mut Vec<String>) {
        use serde_json::Value;
        match value {
            Value::String(_) => strings.push(value.to_string()),
            Value::Array(elements) => elements.iter().for_each(|element| collect(element, strings)),
            Value::Object(members) => members.iter().for_each(|(key, member)| {
                strings.push(Value::String(key.clone()).to_string());
                collect(member, strings);
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    #[test]
    fn members_are_those_that_reading_finds() {
        let text = br#"{ "a" : [1, {"b":"}"}] , "c\u0064":"\\\"," , "e":null }"#;
        let mut cursor = Cursor::new(text, 0);
        assert_eq!(cursor.pass_members(), super::super::scan::members(text, 0));
        assert_eq!(cursor.at(), text.len());
        for broken in ["[]", r#"{"a"}"#, r#"{"a":1"#, r#"{"a":1 "b":2}"#] {
            assert!(Cursor::new(broken.as_bytes(), 0).pass_members().is_err(), "{broken}");
        }
    }

    #[test]
    fn deep_nesting_is_passed_over() {
        let deep = [b"[".repeat(200_000), b"]".repeat(200_000)].concat();
        assert_eq!(Cursor::new(&deep, 0).pass(&mut |_| {}).unwrap(), 0..400_000);
    }
}
