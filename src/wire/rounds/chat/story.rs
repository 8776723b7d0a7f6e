//! What has come of an answer so far, over all its rounds.

use super::super::{Aside, Ending, Insert, Own, OwnCall, OwnResult, Round};
use super::chunk::Object;
use super::results;
use super::seam::{Seam, edited};
use super::turn::{Call, Standing, Turn};
use crate::wire::splice::Edit;
use bytes::Bytes;

/// An answer in the making.
#[derive(Debug, Default)]
pub(super) struct Story {
    pub(super) seam: Seam,
    /// The current round's turn, and why it ended.
    pub(super) turn: Turn,
    pub(super) reason: Option<String>,
    /// All text that the client sees, and the ids of the calls.
    pub(super) text: String,
    /// The model declined aloud, which is no part of the text.
    refused: bool,
    calls: Vec<String>,
    done: Vec<Done>,
    /// More came than is held: nothing is put back.
    full: bool,
    /// What is said where nothing else is.
    filler: Option<String>,
}

/// A round that ended with calls of the proxy's own tools.
#[derive(Debug)]
struct Done {
    turn: Bytes,
    handed: bool,
    /// Length of `text` at its end.
    text: usize,
    calls: Vec<Placed>,
}

/// An own call: the client's own calls before it in its turn, and its element.
#[derive(Debug, Clone)]
struct Placed {
    before: usize,
    element: String,
    call: OwnCall,
}

impl Story {
    /// Takes in visible text.
    pub(super) fn say(&mut self, text: &str) {
        if !self.full {
            self.text.push_str(text);
        }
    }

    /// Takes in a delta or message, calls apart.
    pub(super) fn add(&mut self, said: &Object<'_>) {
        self.turn.add(said);
        self.refused |= said.get("refusal").is_some_and(|span| !said.string(span).is_empty());
    }

    /// The current round has ended; `sound`: as it should.
    pub(super) fn ending(&mut self, sound: bool) -> Ending {
        let shown = self.turn.calls.iter().filter(|call| call.standing == Standing::Shown);
        self.calls.extend(shown.map(|call| call.id.clone()));
        // What was cut off has half a call at its end.
        let cut_off = matches!(self.reason.as_deref(), Some("length" | "content_filter"));
        if !sound || cut_off || self.full || !self.turn.has(Standing::Own) {
            return Ending::Answered;
        }
        self.turn.name_calls(self.seam.before);
        let turn = self.turn.message();
        let mut before = 0;
        let mut calls = Vec::new();
        for call in &self.turn.calls {
            match call.standing {
                Standing::Own => calls.push(Placed { before, element: call.element(), call: call.own() }),
                Standing::Shown | Standing::Open => before += 1,
            }
        }
        let round = Round { turn: turn.clone(), calls: calls.iter().map(|placed| placed.call.clone()).collect() };
        let handed = before > 0;
        self.done.push(Done { turn, handed, text: self.text.len(), calls });
        if handed { Ending::Handed(round) } else { Ending::Again(round) }
    }

    pub(super) fn next_round(&mut self) {
        self.seam.next_round();
        self.turn = Turn::default();
        self.reason = None;
    }

    /// Bytes that are held.
    pub(super) fn held(&self) -> usize {
        let placed = |placed: &Placed| placed.element.len() + placed.call.arguments.len();
        let done = |done: &Done| done.turn.len() + done.calls.iter().map(placed).sum::<usize>();
        self.turn.bytes() + self.text.len() + self.done.iter().map(done).sum::<usize>()
    }

    /// Holds no more than what tells whose a call is.
    pub(super) fn hold_no_more(&mut self) {
        self.turn.hold_no_more();
        (self.full, self.text, self.done) = (true, String::new(), Vec::new());
    }

    /// Whether the client does not see all of the answer.
    pub(super) fn hides(&self, own: &Own) -> bool {
        let is_own = |call: &Call| call.standing == Standing::Own || own.has(&call.name);
        self.seam.before > 0 || self.turn.calls.iter().any(is_own)
    }

    /// Whether the end of the current round waits: another may follow, or what is hidden is to be kept first.
    pub(super) fn waits(&self) -> bool {
        self.seam.before > 0 || self.turn.has(Standing::Own)
    }

    /// The reason to end with in place of the current round's, whose calls the client does not see.
    pub(super) fn other_reason(&self) -> Option<&'static str> {
        let called = matches!(self.reason.as_deref(), Some("tool_calls" | "function_call"));
        let hidden = self.turn.has(Standing::Own) && !self.turn.has(Standing::Shown);
        (called && hidden).then_some("stop")
    }

    /// What the client is told where it has no text, and none of the calls that the answer ends with.
    pub(super) fn silence(&self) -> Option<&str> {
        self.filler.as_deref().or(self.is_silent().then_some(""))
    }

    pub(super) fn break_silence(&mut self, text: &str) {
        if self.is_silent() {
            self.say(text);
            self.filler = Some(text.to_owned());
        }
    }

    pub(super) fn is_silent(&self) -> bool {
        let says_nothing = self.text.is_empty() && !self.refused;
        !self.full && says_nothing && self.turn.has(Standing::Own) && !self.turn.has(Standing::Shown)
    }

    pub(super) fn aside(&self, results: &[Vec<OwnResult>]) -> Option<Aside> {
        let text = self.text.trim();
        let lead = self.text.len() - self.text.trim_start().len();
        let done: Vec<_> = self.done.iter().zip(results).collect();
        if self.full || done.is_empty() {
            return None;
        }
        // What was said beside the last calls is the client's message: they stand in it.
        let beside = self.turn.has(Standing::Own) && !self.turn.text.trim().is_empty();
        let beside = beside && done.len() == self.done.len() && self.nothing_follows(&self.done);
        let before = self.done.get(..done.len() - usize::from(beside)).unwrap_or_default();
        let apart = self.nothing_follows(before);
        let inserts = done.into_iter().enumerate().flat_map(|(at, (done, results))| match apart {
            _ if at == before.len() => done.beside(results),
            // Rounds that have all of the text would leave an empty message behind them: it keeps the text.
            true => done.silent().inserts(results, 0),
            false => done.inserts(results, done.text.saturating_sub(lead)),
        });
        let inserts = inserts.collect();
        Some(Aside { calls: self.calls.clone(), text: blake3::hash(text.as_bytes()).into(), inserts })
    }

    /// Whether the client has nothing behind these rounds.
    fn nothing_follows(&self, done: &[Done]) -> bool {
        let end = done.iter().filter(|done| !done.handed).map(|done| done.text).max().unwrap_or(0);
        let rest = self.text.get(end..).unwrap_or_default();
        self.calls.is_empty() && rest.trim().is_empty()
    }
}

impl Done {
    /// The same round, as if nothing had been said beside its calls.
    fn silent(&self) -> Self {
        let edit = Object::at(&self.turn, &(0..self.turn.len())).and_then(|turn| {
            let span = turn.get("content")?.clone();
            Some(Edit { span, with: Bytes::from_static(b"null") })
        });
        let turn = edited(&self.turn, edit.into_iter().collect());
        Self { turn, calls: self.calls.clone(), ..*self }
    }

    /// The calls of a round whose text is all of the client's message.
    fn beside(&self, of_calls: &[OwnResult]) -> Vec<Insert> {
        let calls: Vec<&str> = self.calls.iter().map(|placed| placed.element.as_str()).collect();
        let asked: Vec<OwnCall> = self.calls.iter().map(|placed| placed.call.clone()).collect();
        let items = owned(results(&asked, of_calls).into());
        vec![Insert { parts: 0, text: 0, calls: calls.join(","), items }]
    }

    fn inserts(&self, of_calls: &[OwnResult], text: usize) -> Vec<Insert> {
        if !self.handed {
            let calls: Vec<OwnCall> = self.calls.iter().map(|placed| placed.call.clone()).collect();
            let items = [&self.turn, &b","[..], &results(&calls, of_calls)].concat();
            return vec![Insert { parts: 0, text, calls: String::new(), items: owned(items) }];
        }
        let answered: Vec<(&Placed, &OwnResult)> = self.calls.iter().zip(of_calls).collect();
        let runs = answered.chunk_by(|(a, _), (b, _)| a.before == b.before);
        runs.map(|run| {
            let elements: Vec<&str> = run.iter().map(|(placed, _)| placed.element.as_str()).collect();
            let (calls, said): (Vec<_>, Vec<_>) =
                run.iter().map(|(placed, result)| (placed.call.clone(), (*result).clone())).unzip();
            let parts = run.first().map_or(0, |(placed, _)| placed.before);
            Insert { parts, text, calls: elements.join(","), items: owned(results(&calls, &said).into()) }
        })
        .collect()
    }
}

/// JSON that was written here.
fn owned(json: Vec<u8>) -> String {
    String::from_utf8(json).unwrap_or_default()
}
