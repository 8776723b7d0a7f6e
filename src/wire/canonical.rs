//! What of an item counts for its identity, and the chain of digests over a history.
//!
//! Clients send the same history with other bytes from turn to turn. The canonical form ignores key
//! order, whitespace, spelling of strings, members that are `null` and `cache_control` at any level.
//! Spelling of numbers is kept.

use std::borrow::Cow;

use super::conversation::{Dialect, Digest};
use super::scan::{Cursor, Unreadable, string};

/// Deepest nesting of arrays and objects within an item; deeper items are unreadable.
pub const MAX_DEPTH: usize = 64;

/// A string member whose key is in this list is the same as an array of one text part.
pub type OneTextPart = &'static [&'static str];

/// What of an object does not count, beside what never does.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    pub texts: OneTextPart,
    /// Members that are the same absent as `false`.
    pub off: &'static [&'static str],
    /// The rules of the objects in a member's array, by key.
    pub within: &'static [(&'static str, &'static Rules)],
    /// Whether an element of an array counts for nothing, by its bytes.
    pub ignored: fn(&[u8]) -> bool,
}

/// Nothing but what never counts.
pub(super) const PLAIN: Rules = Rules { texts: &[], off: &[], within: &[], ignored: |_| false };

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
    item_by(raw, &Rules { texts, ..PLAIN })
}

/// As [`item`], by a dialect's own rules.
pub(super) fn item_by(raw: &[u8], rules: &Rules) -> Result<Digest, Unreadable> {
    let [_, _, digest @ ..] = object(&mut Cursor::new(raw, 0), MAX_DEPTH, rules)?;
    Ok(digest)
}

/// The canonical form of a value: a tag for its type, a length, and either that many of its own bytes or
/// (length [`LONG`]) their digest. No two values share one.
type Form = [u8; 34];

/// The form of `null` within an array.
const NULL: Form = [0; 34];

/// Stands for the length where a digest stands for the bytes.
const LONG: u8 = u8::MAX;

/// `None` for `null`.
fn value(cursor: &mut Cursor<'_>, depth: usize, rules: &Rules) -> Result<Option<Form>, Unreadable> {
    match cursor.peek() {
        Some(b'{') => object(cursor, depth, rules).map(Some),
        Some(b'[') => array(cursor, depth, rules).map(Some),
        _ => scalar(cursor),
    }
}

fn object(cursor: &mut Cursor<'_>, depth: usize, rules: &Rules) -> Result<Form, Unreadable> {
    let depth = depth.checked_sub(1).ok_or(cursor.fail("nested too deeply"))?;
    let mut members = Vec::new();
    let mut more = cursor.open(b'{', b'}')?;
    while more {
        let key = cursor.key()?;
        let is_text = cursor.peek() == Some(b'"') && rules.texts.contains(&key.as_ref());
        let is_off = cursor.peek() == Some(b'f') && rules.off.contains(&key.as_ref());
        let within = rules.within.iter().find(|(name, _)| *name == key).map_or(&PLAIN, |(_, rules)| *rules);
        let form = value(cursor, depth, within)?.filter(|_| !is_off);
        members.push((key, if is_text { form.map(one_text_part) } else { form }));
        more = cursor.more(b'}')?;
    }
    members.sort_by(|(a, _), (b, _)| a.cmp(b));
    if members.windows(2).any(|pair| matches!(pair, [(a, _), (b, _)] if a == b)) {
        return Err(cursor.fail("a key occurs twice"));
    }
    Ok(object_form(&members))
}

fn object_form(members: &[(Cow<'_, str>, Option<Form>)]) -> Form {
    let mut bytes = Vec::with_capacity(members.len() * 64);
    let kept = members.iter().filter(|(key, _)| key != "cache_control");
    for (key, form) in kept.filter_map(|(key, form)| Some((key, form.as_ref()?))) {
        bytes.extend_from_slice(&(key.len() as u64).to_le_bytes());
        bytes.extend_from_slice(key.as_bytes());
        bytes.extend_from_slice(form);
    }
    long(b'o', &bytes)
}

/// `rules` are those of the elements.
fn array(cursor: &mut Cursor<'_>, depth: usize, rules: &Rules) -> Result<Form, Unreadable> {
    let depth = depth.checked_sub(1).ok_or(cursor.fail("nested too deeply"))?;
    let mut elements = Vec::new();
    let mut more = cursor.open(b'[', b']')?;
    while more {
        let start = cursor.at();
        let form = value(cursor, depth, rules)?.unwrap_or(NULL);
        if !(rules.ignored)(cursor.raw(&(start..cursor.at()))) {
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

/// The form of `[{"type":"text","text":T}]`, given that of the string `T`.
fn one_text_part(text: Form) -> Form {
    let part = [(Cow::from("text"), Some(text)), (Cow::from("type"), Some(text_form("text")))];
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
