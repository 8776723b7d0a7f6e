//! What a client sees of an answer made of parts (blocks of Messages, items of Responses), and what it does not.

use super::{Aside, Insert, OwnCall, OwnResult};

/// The story of one answer so far.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Ids of the calls that the client sees.
    calls: Vec<String>,
    said: Said,
    place: Place,
    rounds: Vec<Hidden>,
    current: Vec<(Place, String, OwnCall)>,
    /// Ids of what waits for the client in this round.
    waiting: Vec<String>,
    /// Bytes of the hidden calls.
    bytes: usize,
}

/// Parts that the client sees before a place, and of these the ones that no client leaves out: not reasoning.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Place {
    parts: usize,
    solid: usize,
}

/// The proxy's own calls of one round.
#[derive(Debug)]
struct Hidden {
    calls: Vec<(Place, String, OwnCall)>,
    end: Place,
    handed: bool,
}

/// How results are written: those of a whole round, and those that stand among a client's own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Written {
    pub(super) whole: fn(&[OwnCall], &[OwnResult]) -> String,
    pub(super) beside: fn(&[OwnCall], &[OwnResult]) -> String,
}

impl Told {
    /// The client sees another part.
    pub(super) fn part(&mut self, is_reasoning: bool) {
        self.place.parts += 1;
        self.place.solid += usize::from(!is_reasoning);
    }

    /// Parts that the client sees so far.
    pub(super) fn parts(&self) -> usize {
        self.place.parts
    }

    pub(super) fn say(&mut self, text: &str) {
        self.said.add(text);
    }

    /// Whether the client sees nothing, or nothing but thoughts, of what ends with calls of the proxy's.
    pub(super) fn is_silent(&self) -> bool {
        self.place.solid == 0 && !self.rounds.is_empty()
    }

    /// The client sees a call.
    pub(super) fn call(&mut self, id: &str) {
        self.calls.push(id.to_owned());
        self.wait(id);
    }

    /// The client has to answer `id`.
    pub(super) fn wait(&mut self, id: &str) {
        self.waiting.push(id.to_owned());
    }

    /// The provider answered `id` itself.
    pub(super) fn answered(&mut self, id: &str) {
        self.waiting.retain(|waiting| waiting != id);
    }

    /// A call of the proxy's stands here; `raw` is the part as JSON.
    pub(super) fn hide(&mut self, raw: String, call: OwnCall) {
        self.bytes += raw.len() + call.arguments.len();
        self.current.push((self.place, raw, call));
    }

    /// Bytes that are held.
    pub(super) fn held(&self) -> usize {
        self.bytes
    }

    /// Whether anything of this answer is hidden.
    pub(super) fn hides(&self) -> bool {
        !self.current.is_empty() || !self.rounds.is_empty()
    }

    /// Whether the proxy's tools were called in this round.
    pub(super) fn is_calling(&self) -> bool {
        !self.current.is_empty()
    }

    /// Whether this round waits for the client.
    pub(super) fn hands(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The round has ended well: its own calls. Empty where there are none.
    pub(super) fn end(&mut self) -> Vec<OwnCall> {
        let calls: Vec<OwnCall> = self.current.iter().map(|(.., call)| call.clone()).collect();
        if !calls.is_empty() {
            let (calls, handed) = (std::mem::take(&mut self.current), self.hands());
            self.rounds.push(Hidden { calls, end: self.place, handed });
        }
        calls
    }

    /// The proxy's own calls of the last round that ended well with some.
    pub(super) fn last_calls(&self) -> Vec<OwnCall> {
        let calls = self.rounds.last().map(|round| round.calls.iter().map(|(.., call)| call.clone()).collect());
        calls.unwrap_or_default()
    }

    pub(super) fn next_round(&mut self) {
        self.current.clear();
        self.waiting.clear();
    }

    /// See [`Answer::aside`](super::Answer::aside).
    pub(super) fn aside(&self, results: &[Vec<OwnResult>], written: Written) -> Option<Aside> {
        let mut inserts: Vec<Insert> = Vec::new();
        for (round, results) in self.rounds.iter().zip(results) {
            for ((place, raw, call), result) in round.calls.iter().zip(results) {
                let beside = || (written.beside)(std::slice::from_ref(call), std::slice::from_ref(result));
                let items = if round.handed { beside() } else { String::new() };
                let Place { parts, solid } = *place;
                inserts.push(Insert { parts, text: solid, calls: raw.clone(), items });
            }
            if !round.handed {
                let calls: Vec<OwnCall> = round.calls.iter().map(|(.., call)| call.clone()).collect();
                let Place { parts, solid } = round.end;
                let items = (written.whole)(&calls, results);
                inserts.push(Insert { parts, text: solid, calls: String::new(), items });
            }
        }
        let text = self.said.digest();
        (!inserts.is_empty()).then(|| Aside { calls: self.calls.clone(), text, inserts })
    }
}

/// All text of an answer but white space, of which clients keep what they like.
#[derive(Debug, Default)]
pub(super) struct Said(blake3::Hasher);

impl Said {
    pub(super) fn add(&mut self, text: &str) {
        for word in text.split_whitespace() {
            self.0.update(word.as_bytes());
        }
    }

    pub(super) fn digest(&self) -> [u8; 32] {
        *self.0.finalize().as_bytes()
    }
}

/// How many of the parts that a client sent back stand before an insert; `solid[k]`: part `k` is no reasoning.
/// Clients may leave reasoning out: then the others count.
pub(super) fn position(solid: &[bool], insert: &Insert) -> Option<usize> {
    let first = solid.get(..insert.parts);
    if first.is_some_and(|first| first.iter().filter(|solid| **solid).count() == insert.text) {
        return Some(insert.parts);
    }
    let mut behind = solid.iter().enumerate().filter(|(_, solid)| **solid).map(|(at, _)| at + 1);
    match insert.text.checked_sub(1) {
        None => Some(0),
        Some(nth) => behind.nth(nth),
    }
}
