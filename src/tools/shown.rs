//! Which removed texts a model may know of: those whose ids it has been shown.

use std::collections::HashSet;
use std::ops::Range;

use bytes::Bytes;

use crate::compact::TextId;
use crate::wire::Conversation;
use crate::wire::splice::place;

/// Most ids that are kept: beyond them every id counts as shown, since none that was is to be refused.
const MOST: usize = 65_536;
/// Digits of an id.
const DIGITS: usize = 32;

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
    /// What a model is shown by a request: `pieces` of the body that reads as `conversation`, and what came in place of
    /// some of it. Wherever an id stands it counts: in a notice, in a summary (the client's own as well), in what a
    /// tool answered, in what one agent tells another. What calls are given does not, whatever it holds: the model said
    /// that itself. But the notice of what was cut out of it does.
    pub fn of(conversation: &Conversation<'_>, pieces: &[Bytes]) -> Self {
        let (body, given) = (conversation.body, conversation.given());
        let (mut shown, mut at) = (Self::default(), 0);
        for piece in pieces {
            match place(body, piece) {
                Some(span) => {
                    at = span.end;
                    shown.see_all_but(&given, (body, span));
                }
                None => match given.iter().find(|given| given.contains(&at)) {
                    Some(given) => shown.see_new(piece, body.get(given.clone()).unwrap_or_default()),
                    None => shown.see(piece),
                },
            }
        }
        shown
    }

    /// Takes in a part of a body but for what calls are given.
    fn see_all_but(&mut self, given: &[Range<usize>], (body, span): (&[u8], Range<usize>)) {
        let mut start = span.start;
        for given in given.iter().filter(|given| given.end > span.start && given.start < span.end) {
            self.see(body.get(start..given.start).unwrap_or_default());
            start = given.end.min(span.end);
        }
        self.see(body.get(start..span.end).unwrap_or_default());
    }

    /// Takes in what came in place of a part of what a call was given.
    fn see_new(&mut self, text: &[u8], given: &[u8]) {
        let (mut new, mut old) = (Self::default(), Self::default());
        new.see(text);
        old.see(given);
        if let (Self::These(new), Self::These(old)) = (&mut new, &old) {
            new.retain(|id| !old.contains(id));
        }
        self.and(new);
    }

    /// Takes in a text.
    fn see(&mut self, text: &[u8]) {
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
            at = end + DIGITS;
            // Letters that stand close to an id may be digits too.
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

#[cfg(test)]
#[path = "tests/shown.rs"]
mod tests;
