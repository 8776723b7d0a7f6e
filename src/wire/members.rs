//! An item's members and texts, as the readers of all dialects take them.

use std::ops::Range;

use super::canonical;
use super::scan::{Cursor, Member, Unreadable, kind, string};

/// Most parts of one item's content.
pub(super) const MAX_PARTS: usize = 4_096;

/// The string member `key`; `None` if it is absent or no string.
pub(super) fn text_of(raw: &[u8], members: &[Member<'_>], key: &str) -> Result<Option<String>, Unreadable> {
    let mut spans = members.iter().filter(|(name, _)| name == key).map(|(_, span)| span);
    match (spans.next(), spans.next()) {
        (Some(span), None) => decoded(raw, span),
        (None, _) => Ok(None),
        (Some(_), Some(twice)) => Err(Cursor::new(raw, twice.start).fail("a key occurs twice")),
    }
}

/// The string at `span`; `None` if something else stands there.
pub(super) fn decoded(raw: &[u8], span: &Range<usize>) -> Result<Option<String>, Unreadable> {
    if kind(raw, span) != b'"' {
        return Ok(None);
    }
    let text = string(raw, span).ok_or(Cursor::new(raw, span.start).fail("a name or id is no Unicode text"))?;
    Ok(Some(text.into_owned()))
}

/// The members of the object that begins at byte `at`, by key, cache marks left out. Rows name a text by its
/// place among the slots, and are found by a digest that ignores key order and marks: so slots must ignore
/// them too.
pub(super) fn members(raw: &[u8], at: usize) -> Result<Vec<Member<'_>>, Unreadable> {
    let mut members = super::scan::members(raw, at)?;
    members.retain(|(key, _)| !canonical::is_cache_mark(key));
    members.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(members)
}
