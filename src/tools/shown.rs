//! Which removed texts a model may know of: those whose ids it has been shown.

use std::collections::HashSet;

use crate::compact::TextId;

/// Most ids that are kept: beyond them every id counts as shown, since none that was is to be refused.
const MOST: usize = 65_536;
/// Digits of an id.
const DIGITS: usize = 32;
/// Bytes before an id in which a member's name is looked for: a path may stand between.
const NEAR: usize = 64;

/// The ids that stand in what a model was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    These(HashSet<TextId>),
    /// What the model was shown is not all in sight, or it does not matter.
    Any,
}

impl Default for Shown {
    fn default() -> Self {
        Self::These(HashSet::new())
    }
}

impl Shown {
    /// Takes in what the model is sent. Wherever an id stands it counts: in a notice, in a summary (the client's own as
    /// well), in what a tool answered, in what one agent tells another.
    pub fn see(&mut self, text: &[u8]) {
        let digit = |at: usize| text.get(at).is_some_and(u8::is_ascii_hexdigit);
        // Of so many digits in a row one stands at a multiple of their number.
        let mut at = DIGITS - 1;
        while at < text.len() {
            if !digit(at) {
                at += DIGITS;
                continue;
            }
            let start = (0..at).rev().take_while(|before| digit(*before)).last().unwrap_or(at);
            let end = (at..text.len()).take_while(|behind| digit(*behind)).last().unwrap_or(at) + 1;
            // Letters that stand close to an id may be digits too.
            let asked_for = is_asked_for(text.get(..start).unwrap_or_default());
            at = end + DIGITS;
            if asked_for {
                continue;
            }
            self.add(text.get(start..start + DIGITS).filter(|_| end - start >= DIGITS));
            self.add(end.checked_sub(DIGITS).filter(|first| *first > start).and_then(|first| text.get(first..end)));
        }
    }

    fn add(&mut self, digits: Option<&[u8]>) {
        let Self::These(ids) = self else { return };
        let id: Option<TextId> = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        ids.extend(id);
        if ids.len() > MOST {
            *self = Self::Any;
        }
    }

    /// Takes in what was shown elsewhere.
    pub fn and(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::These(ids), Self::These(more)) if ids.len() + more.len() <= MOST => ids.extend(more),
            _ => *self = Self::Any,
        }
    }

    /// Whether the model may know of this text.
    pub fn has(&self, id: &TextId) -> bool {
        match self {
            Self::These(ids) => ids.contains(id),
            Self::Any => true,
        }
    }
}

/// Whether what follows is the value of a member `id`: what a call asked for was not shown by that.
fn is_asked_for(before: &[u8]) -> bool {
    let near = before.get(before.len().saturating_sub(NEAR)..).unwrap_or_default();
    let near: Vec<u8> = near.iter().copied().filter(|byte| *byte != b'\\' && !byte.is_ascii_whitespace()).collect();
    let member = memchr::memmem::rfind(&near, b"\"id\":\"").and_then(|at| near.get(at + 6..));
    member.is_some_and(|value| !value.contains(&b'"'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seen(text: &str) -> Shown {
        let mut shown = Shown::default();
        shown.see(text.as_bytes());
        shown
    }

    #[test]
    fn an_id_counts_wherever_it_stands() {
        let id = TextId([0xab; 16]);
        let other = TextId([0xcd; 16]);
        for text in [
            format!("{id}"),
            format!(
                "[compactproxy notice: 5 characters are left out. Whole text: id {id}, GET /_compactproxy/evicted/{id} at"
            ),
            format!("{{\"content\":\"see {id}.\\n\"}}"),
            format!("id{id}"),
            format!("{id}e {other}"),
            id.to_string().to_uppercase(),
        ] {
            assert!(seen(&text).has(&id), "{text}");
        }
        let cut: String = id.to_string().chars().take(31).collect();
        assert_eq!(seen(&format!("{cut} {cut}")), Shown::default());
        assert!(!seen(&format!("{other}")).has(&id) && Shown::Any.has(&id));
    }

    #[test]
    fn what_a_call_asked_for_was_not_shown_by_that() {
        let id = TextId([0xab; 16]);
        for text in [
            format!(r#"{{"type":"tool_use","input":{{"id":"{id}"}}}}"#),
            format!(r#"{{"arguments":"{{\"id\": \"{id}\",\"offset\":1}}"}}"#),
            format!(r#"{{"arguments":"{{\"id\":\"GET /_compactproxy/evicted/{id}\"}}"}}"#),
        ] {
            assert_eq!(seen(&text), Shown::default(), "{text}");
            assert!(seen(&format!("{text} id {id},")).has(&id));
        }
        assert!(seen(&format!(r#"{{"id":"call_1","content":"text id {id}"}}"#)).has(&id));
    }

    #[test]
    fn beyond_the_most_nothing_is_refused() {
        let text = |count: u128| (0..count).map(|n| TextId(n.to_be_bytes()).to_string() + " ").collect::<String>();
        let unseen = TextId([0xff; 16]);
        assert!(!seen(&text(MOST as u128)).has(&unseen));
        assert!(seen(&text(MOST as u128 + 1)).has(&unseen));
        let mut both = seen(&text(MOST as u128));
        both.and(seen(&unseen.to_string()));
        assert_eq!(both, Shown::Any);
    }

    proptest! {
        /// For all texts: exactly the ids that stand in them were shown.
        #[test]
        fn all_ids_are_seen_and_no_others(parts in prop::collection::vec(("[g-z .,\"/]{1,70}", any::<[u8; 16]>()), 0..8)) {
            let text: String = parts.iter().map(|(words, id)| format!("{words}{}", TextId(*id))).collect();
            let expected: HashSet<TextId> = parts.iter().map(|(_, id)| TextId(*id)).collect();
            prop_assert_eq!(seen(&text), Shown::These(expected));
        }
    }
}
