//! What of an item counts for its identity, and the chain of digests over a history.
//!
//! Clients send the same history with other bytes from turn to turn. The canonical form ignores key
//! order, whitespace, spelling of strings, members that are `null` and cache marks at any level, but for
//! those two within what a tool was given. Spelling of numbers is kept.

use std::borrow::Cow;

use super::conversation::{Dialect, Digest};
use super::scan::{Cursor, Unreadable, string};

/// Deepest nesting of arrays and objects within an item; deeper items are unreadable.
pub const MAX_DEPTH: usize = 64;

/// A string member whose key is in this list is the same as an array of one text part.
pub type OneTextPart = &'static [&'static str];

/// What of an object does not count for an item's identity, beside what never does.
#[derive(Clone, Copy, Debug)]
pub struct Spelling {
    pub texts: OneTextPart,
    /// The `type` of that one text part.
    pub part: &'static str,
    /// A member with this key and string value is the same as none.
    pub implied: Option<(&'static str, &'static str)>,
    /// Members that are the same absent as `false`.
    pub off: &'static [&'static str],
    /// What does not count of the objects in a member's array, by key.
    pub within: &'static [(&'static str, &'static Spelling)],
    /// Whether an element of an array counts for nothing, by its bytes.
    pub ignored: fn(&[u8]) -> bool,
    /// A tool's own value, at any depth: its members mean what the tool says, so marks and `null` count.
    pub data: bool,
}

impl Spelling {
    /// Nothing but what never counts.
    pub const STRICT: Self =
        Self { texts: &[], part: "text", implied: None, off: &[], within: &[], ignored: |_| false, data: false };

    /// Nothing but order, whitespace and escapes: what a tool was given.
    pub const DATA: Self = Self { data: true, ..Self::STRICT };
}

/// Whether a member marks a place for the provider's prompt cache: clients move these from turn to turn.
pub fn is_cache_mark(key: &str) -> bool {
    matches!(key, "cache_control" | "prompt_cache_breakpoint")
}

/// The chain digest of the empty history.
pub fn chain_start(dialect: Dialect) -> Digest {
    blake3::derive_key(
        match dialect {
            Dialect::Chat => "compactproxy history chain, OpenAI Chat Completions, form 1",
            Dialect::Responses => "compactproxy history chain, OpenAI Responses, form 1",
            Dialect::Messages => "compactproxy history chain, Anthropic Messages, form 1",
        },
        &[],
    )
}

/// The chain digest of a history one item longer.
pub fn chain_next(chain: &Digest, canonical: &Digest) -> Digest {
    *blake3::hash([*chain, *canonical].as_flattened()).as_bytes()
}

/// Digest of the canonical form of an item, an object. Unreadable are other values, nesting beyond
/// [`MAX_DEPTH`] and objects in which a key occurs twice, because parsers differ in what they take.
pub fn item(raw: &[u8], texts: OneTextPart) -> Result<Digest, Unreadable> {
    spelt(raw, &Spelling { texts, ..Spelling::STRICT })
}

/// As [`item`], where a dialect allows other spellings too.
pub fn spelt(raw: &[u8], spelling: &Spelling) -> Result<Digest, Unreadable> {
    let [_, _, digest @ ..] = object(&mut Cursor::new(raw, 0), MAX_DEPTH, spelling)?;
    Ok(digest)
}

/// The canonical form of a value: a tag for its type, a length, and either that many of its own bytes or
/// (length [`LONG`]) their digest. No two values share one.
type Form = [u8; 34];

/// The form of `null` within an array or a tool's own value.
const NULL: Form = [0; 34];

/// Stands for the length where a digest stands for the bytes.
const LONG: u8 = u8::MAX;

/// `None` for `null`.
fn value(cursor: &mut Cursor<'_>, depth: usize, spelling: &Spelling) -> Result<Option<Form>, Unreadable> {
    match cursor.peek() {
        Some(b'{') => object(cursor, depth, spelling).map(Some),
        Some(b'[') => array(cursor, depth, spelling).map(Some),
        _ => scalar(cursor),
    }
}

fn object(cursor: &mut Cursor<'_>, depth: usize, spelling: &Spelling) -> Result<Form, Unreadable> {
    let depth = depth.checked_sub(1).ok_or(cursor.fail("nested too deeply"))?;
    let mut members = Vec::new();
    let mut more = cursor.open(b'{', b'}')?;
    while more {
        let key = cursor.key()?;
        let is_text = cursor.peek() == Some(b'"') && spelling.texts.contains(&key.as_ref());
        let is_off = cursor.peek() == Some(b'f') && spelling.off.contains(&key.as_ref());
        let within = spelling.within.iter().find(|(name, _)| *name == key);
        let inside = if spelling.data { &Spelling::DATA } else { &Spelling::STRICT };
        let form = match value(cursor, depth, within.map_or(inside, |(_, spelling)| *spelling))? {
            None if spelling.data => Some(NULL),
            Some(text) if is_text => Some(one_text_part(text, spelling.part)),
            form if spelling.implied.is_some_and(|(name, said)| name == key && form == Some(text_form(said))) => None,
            form => form.filter(|_| !is_off),
        };
        members.push((key, form));
        more = cursor.more(b'}')?;
    }
    members.sort_by(|(a, _), (b, _)| a.cmp(b));
    if members.windows(2).any(|pair| matches!(pair, [(a, _), (b, _)] if a == b)) {
        return Err(cursor.fail("a key occurs twice"));
    }
    members.retain(|(key, _)| spelling.data || !is_cache_mark(key));
    Ok(object_form(&members))
}

fn object_form(members: &[(Cow<'_, str>, Option<Form>)]) -> Form {
    let mut bytes = Vec::with_capacity(members.len() * 64);
    for (key, form) in members.iter().filter_map(|(key, form)| Some((key, form.as_ref()?))) {
        bytes.extend_from_slice(&(key.len() as u64).to_le_bytes());
        bytes.extend_from_slice(key.as_bytes());
        bytes.extend_from_slice(form);
    }
    long(b'o', &bytes)
}

/// `spelling` is that of the elements.
fn array(cursor: &mut Cursor<'_>, depth: usize, spelling: &Spelling) -> Result<Form, Unreadable> {
    let depth = depth.checked_sub(1).ok_or(cursor.fail("nested too deeply"))?;
    let mut elements = Vec::new();
    let mut more = cursor.open(b'[', b']')?;
    while more {
        let start = cursor.at();
        let form = value(cursor, depth, spelling)?.unwrap_or(NULL);
        if !(spelling.ignored)(cursor.raw(&(start..cursor.at()))) {
            elements.push(form);
        }
        more = cursor.more(b']')?;
    }
    Ok(array_form(&elements))
}

fn array_form(elements: &[Form]) -> Form {
    long(b'a', elements.as_flattened())
}

fn scalar(cursor: &mut Cursor<'_>) -> Result<Option<Form>, Unreadable> {
    let mut ahead = cursor.clone();
    let span = ahead.value()?;
    let raw = cursor.raw(&span);
    let form = match raw.first() {
        Some(b'n') => None,
        Some(b'"') => Some(match string(cursor.text(), &span) {
            Some(text) => text_form(&text),
            None => scalar_form(b'u', raw),
        }),
        _ => Some(scalar_form(b'v', raw)),
    };
    *cursor = ahead;
    Ok(form)
}

/// The form of `[{"type":kind,"text":T}]`, given that of the string `T`.
fn one_text_part(text: Form, kind: &str) -> Form {
    let part = [(Cow::from("text"), Some(text)), (Cow::from("type"), Some(text_form(kind)))];
    array_form(&[object_form(&part)])
}

fn text_form(text: &str) -> Form {
    scalar_form(b's', text.as_bytes())
}

fn scalar_form(tag: u8, bytes: &[u8]) -> Form {
    let mut form = [0; 34];
    let [head, len, own @ ..] = &mut form;
    match (own.get_mut(..bytes.len()), u8::try_from(bytes.len())) {
        (Some(own), Ok(short)) => {
            own.copy_from_slice(bytes);
            (*head, *len) = (tag, short);
            form
        }
        _ => long(tag, bytes),
    }
}

/// The form of a value by the digest of `bytes`.
fn long(tag: u8, bytes: &[u8]) -> Form {
    let mut form = [LONG; 34];
    let [head, _, own @ ..] = &mut form;
    *head = tag;
    *own = *blake3::hash(bytes).as_bytes();
    form
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(text: &str) -> Result<Digest, Unreadable> {
        item(text.as_bytes(), &["content"])
    }

    #[test]
    fn what_clients_change_from_turn_to_turn_does_not_count() {
        let plain = digest(r#"{"role":"user","content":"héllo"}"#).unwrap();
        for same in [
            r#"{ "content" : "h\u00e9llo", "role" : "\u0075ser" }"#,
            r#"{"role":"user","content":"héllo","name":null}"#,
            r#"{"role":"user","content":[{"type":"text","text":"héllo"}]}"#,
            r#"{"role":"user","content":[{"text":"héllo","type":"text","cache_control":{"type":"ephemeral"}}]}"#,
            r#"{"role":"user","content":"héllo","cache_control":{"type":"ephemeral"}}"#,
        ] {
            assert_eq!(digest(same).unwrap(), plain, "{same}");
        }
    }

    #[test]
    fn everything_else_counts() {
        let different = [
            r#"{"role":"user","content":"a"}"#,
            r#"{"role":"assistant","content":"a"}"#,
            r#"{"role":"user","content":"b"}"#,
            r#"{"role":"user","content":""}"#,
            r#"{"role":"user"}"#,
            r#"{"role":"user","content":[]}"#,
            r#"{"role":"user","content":["a"]}"#,
            r#"{"role":"user","content":[null]}"#,
            r#"{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"a"}]}"#,
            r#"{"role":"user","content":"a","name":"n"}"#,
            r#"{"role":"user","content":1}"#,
            r#"{"role":"user","content":true}"#,
            r#"{"role":"user","content":"true"}"#,
            r#"{"role":"user","content":"\ud800"}"#,
            r#"{"role":"user","content":"\udc00"}"#,
            r#"{"rolecontent":"usera"}"#,
        ];
        let digests: std::collections::HashSet<_> = different.iter().map(|text| digest(text).unwrap()).collect();
        assert_eq!(digests.len(), different.len());
    }

    #[test]
    fn texts_of_all_lengths_differ() {
        let texts = (0..80).map(|n| format!(r#"{{"content":"{}"}}"#, "a".repeat(n)));
        let padded = (0..40).map(|n| format!(r#"{{"content":"a{}"}}"#, "\\u0000".repeat(n + 1)));
        let digests: std::collections::HashSet<_> = texts.chain(padded).map(|text| digest(&text).unwrap()).collect();
        assert_eq!(digests.len(), 120);
    }

    #[test]
    fn too_deep_and_ambiguous_items_are_unreadable() {
        let nest = |n: usize| format!(r#"{{"a":{}{}}}"#, "[".repeat(n), "]".repeat(n));
        assert!(digest(&nest(MAX_DEPTH - 1)).is_ok());
        assert!(digest(&nest(MAX_DEPTH)).is_err());
        assert!(digest(&nest(100_000)).is_err());
        assert!(digest(r#"{"role":"user","rol\u0065":"tool"}"#).is_err());
        assert!(digest(r#"{"a":{"b":1,"b":1}}"#).is_err());
        assert!(digest("[]").is_err());
    }

    #[test]
    fn chains_tell_dialects_and_orders_apart() {
        let chat = chain_start(Dialect::Chat);
        assert_ne!(chat, chain_start(Dialect::Messages));
        let (a, b) = ([1; 32], [2; 32]);
        let ab = chain_next(&chain_next(&chat, &a), &b);
        assert_ne!(ab, chain_next(&chain_next(&chat, &b), &a));
    }
}
