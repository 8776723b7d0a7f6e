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
    seal(b'c', |hasher| {
        hasher.update(chain).update(canonical);
    })
}

/// Digest of the canonical form of an item, an object. Unreadable are other values, nesting beyond
/// [`MAX_DEPTH`] and objects in which a key occurs twice, because parsers differ in what they take.
pub fn item(raw: &[u8], texts: OneTextPart) -> Result<Digest, Unreadable> {
    object(&mut Cursor::new(raw, 0), MAX_DEPTH, texts)
}

/// `None` for `null`.
fn value(cursor: &mut Cursor<'_>, depth: usize) -> Result<Option<Digest>, Unreadable> {
    match cursor.peek() {
        Some(b'{') => object(cursor, depth, &[]).map(Some),
        Some(b'[') => array(cursor, depth).map(Some),
        _ => scalar(cursor),
    }
}

fn object(cursor: &mut Cursor<'_>, depth: usize, texts: OneTextPart) -> Result<Digest, Unreadable> {
    let depth = depth.checked_sub(1).ok_or(cursor.fail("nested too deeply"))?;
    let mut members = Vec::new();
    let mut more = cursor.open(b'{', b'}')?;
    while more {
        let key = cursor.key()?;
        let is_text = cursor.peek() == Some(b'"') && texts.contains(&key.as_ref());
        let digest = value(cursor, depth)?;
        members.push((key, if is_text { digest.map(one_text_part) } else { digest }));
        more = cursor.more(b'}')?;
    }
    members.sort_by(|(a, _), (b, _)| a.cmp(b));
    if members.windows(2).any(|pair| matches!(pair, [(a, _), (b, _)] if a == b)) {
        return Err(cursor.fail("a key occurs twice"));
    }
    Ok(seal_members(&members))
}

fn seal_members(members: &[(Cow<'_, str>, Option<Digest>)]) -> Digest {
    seal(b'o', |hasher| {
        let kept = members.iter().filter(|(key, _)| key != "cache_control");
        for (key, digest) in kept.filter_map(|(key, digest)| Some((key, digest.as_ref()?))) {
            hasher.update(&(key.len() as u64).to_le_bytes()).update(key.as_bytes()).update(digest);
        }
    })
}

fn array(cursor: &mut Cursor<'_>, depth: usize) -> Result<Digest, Unreadable> {
    let depth = depth.checked_sub(1).ok_or(cursor.fail("nested too deeply"))?;
    let mut elements = Vec::new();
    let mut more = cursor.open(b'[', b']')?;
    while more {
        elements.push(value(cursor, depth)?.unwrap_or_default());
        more = cursor.more(b']')?;
    }
    Ok(seal_elements(&elements))
}

fn seal_elements(elements: &[Digest]) -> Digest {
    seal(b'a', |hasher| {
        hasher.update(elements.as_flattened());
    })
}

fn scalar(cursor: &mut Cursor<'_>) -> Result<Option<Digest>, Unreadable> {
    let mut ahead = cursor.clone();
    let span = ahead.value()?;
    let raw = cursor.raw(&span);
    let digest = match raw.first() {
        Some(b'n') => None,
        Some(b'"') => Some(match string(cursor.text(), &span) {
            Some(text) => seal_text(&text),
            None => seal_bytes(b'u', raw),
        }),
        _ => Some(seal_bytes(b'v', raw)),
    };
    *cursor = ahead;
    Ok(digest)
}

/// The digest of `[{"type":"text","text":T}]`, given that of the string `T`.
fn one_text_part(text: Digest) -> Digest {
    let part = [(Cow::from("text"), Some(text)), (Cow::from("type"), Some(seal_text("text")))];
    seal_elements(&[seal_members(&part)])
}

fn seal_text(text: &str) -> Digest {
    seal_bytes(b's', text.as_bytes())
}

fn seal_bytes(tag: u8, bytes: &[u8]) -> Digest {
    seal(tag, |hasher| {
        hasher.update(bytes);
    })
}

/// Hashes with a tag in front, so that no value of one type equals one of another.
fn seal(tag: u8, fill: impl FnOnce(&mut blake3::Hasher)) -> Digest {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[tag]);
    fill(&mut hasher);
    *hasher.finalize().as_bytes()
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
