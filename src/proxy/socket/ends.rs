//! A socket's two ends, and what is sent to them.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;

use super::super::Shard;
use super::super::aliases::Reached;
use super::super::budget::{Budget, Permit};
use super::super::hold::{Told, told_of};
use super::super::work::Work;
use super::side::Side;
use super::turn::Sent;
use crate::store::ToolUse;
use crate::telemetry::metrics::FailOpen;
use crate::wire::frames::{Piece, text_frame};
use crate::wire::overflow::{self, Verdict};

/// Answers of one connection that are remembered: providers remember the last one of a lane.
const MOST_ANSWERS: usize = 64;

/// Both ends, and whose they are.
pub struct Ends {
    pub shard: Arc<Shard>,
    /// Index of the upstream.
    pub index: usize,
    /// The handshake's, as a request of its own would have them.
    pub parts: Arc<Parts>,
    pub client: Side<TokioIo<Upgraded>>,
    pub upstream: Side<TokioIo<Upgraded>>,
    /// Answers in which the model could call the proxy's tools.
    pub reached: Answers,
    /// There is an answer that cannot be put together.
    pub stuck: bool,
}

/// What is known of the last answers of a connection, by the id that the client knows.
pub struct Answers {
    known: VecDeque<(String, Reached)>,
    /// What they have of the buffer cap. They cannot be let go: without what waits there its client cannot go on.
    share: Permit,
}

impl Answers {
    pub fn new(budget: &Arc<Budget>) -> Self {
        Self { known: VecDeque::new(), share: Permit::empty(budget) }
    }

    pub fn note(&mut self, id: String, reached: Reached) {
        self.known.retain(|(other, _)| *other != id);
        if self.known.len() >= MOST_ANSWERS {
            self.known.pop_front();
        }
        self.known.push_back((id, reached));
        let results =
            self.known.iter().filter_map(|(_, reached)| reached.alias.as_ref()).map(|alias| alias.results.len());
        self.share.insist(results.sum());
    }

    pub fn get(&self, id: &str) -> Option<Reached> {
        self.known.iter().find(|(other, _)| other == id).map(|(_, reached)| reached.clone())
    }
}

impl Ends {
    /// Whether something may still come from either end, or go to it.
    pub fn are_in_use(&self) -> bool {
        self.client.open || self.upstream.open || self.client.is_busy() || self.upstream.is_busy()
    }

    /// Whether neither end is in the midst of a message.
    pub fn are_between(&self) -> bool {
        self.client.frames.is_between() && self.upstream.frames.is_between()
    }

    pub fn send_upstream(&mut self, frames: Vec<Bytes>) {
        frames.into_iter().for_each(|frame| self.upstream.put(frame));
    }

    pub fn send_client(&mut self, frames: Vec<Bytes>) {
        frames.into_iter().for_each(|frame| self.client.put(frame));
    }

    /// Sends what a request has become.
    pub fn send(&mut self, sent: &Sent) {
        match &sent.work.pieces {
            Some(pieces) => self.upstream.put(text_frame(pieces, Some(mask()))),
            None => self.send_upstream(sent.raw.clone()),
        }
    }

    /// Sends the client's piece as it came.
    pub fn pass(&mut self, piece: Piece) {
        match piece {
            Piece::Text { raw, .. } => self.send_upstream(raw),
            Piece::Control(bytes) | Piece::Close(bytes) | Piece::Opaque(bytes) => self.upstream.put(bytes),
        }
    }

    /// The provider refused a body as it was rewritten, and took the client's own.
    pub fn refused(&self, work: &Work) {
        if let Some(compactor) = &self.shard.proxy.compactor
            && !compactor.give_up_overlay(work)
        {
            compactor.quarantine(work);
        }
    }

    /// The provider refused a body for the proxy's tools, and took it without.
    pub fn takes_no_tools(&self, work: &Work) {
        self.shard.proxy.metrics.failed_open(FailOpen::Tools);
        self.told_of_no_tools(work);
    }

    /// The provider said that a request's model takes no tools.
    pub fn told_of_no_tools(&self, work: &Work) {
        if let Some(compactor) = &self.shard.proxy.compactor {
            compactor.told_of_tools(&work.origin, ToolUse::Refused);
        }
    }

    /// The provider refused a body for the proxy's tools, and without them as well.
    pub fn refused_twice(&self, work: &Work, text: &[u8]) {
        let Some(compactor) = &self.shard.proxy.compactor else { return };
        match (told_of(text), overflow::status_told(text)) {
            // What is too long has been read without complaint of anything else.
            (Told::Error(verdict), _) if verdict != Verdict::Other => self.told_of_no_tools(work),
            // So it was not for them, or not for them alone.
            (_, Some(400 | 422)) => compactor.refuse_tools(work),
            _ => {}
        }
    }

    pub fn quarantine(&self, work: &Work) {
        if let Some(compactor) = &self.shard.proxy.compactor {
            compactor.quarantine(work);
        }
    }
}

/// A client's mask: any number that is not foreseen.
pub fn mask() -> [u8; 4] {
    let [a, b, c, d, ..] = RandomState::new().build_hasher().finish().to_le_bytes();
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::super::super::offered::Offered;
    use super::*;
    use crate::wire::rounds::Alias;

    #[test]
    fn results_that_wait_for_a_client_count_as_long_as_they_are_kept() {
        let budget = Budget::new(1 << 20);
        let mut answers = Answers::new(&budget);
        let reached = |bytes: usize| {
            let alias = (bytes > 0).then(|| Alias { id: "resp".to_owned(), results: "r".repeat(bytes) });
            Reached { alias, offered: Arc::new(Offered { tools: Vec::new() }) }
        };
        answers.note("a".to_owned(), reached(100_000));
        answers.note("b".to_owned(), reached(0));
        assert!((100_000..110_000).contains(&budget.used()));
        // More than there is room for counts as well.
        answers.note("c".to_owned(), reached(2 << 20));
        assert!(budget.used() >= (2 << 20) + 100_000);
        answers.note("c".to_owned(), reached(0));
        assert!(budget.used() < 110_000 && answers.get("a").is_some());
        (0..MOST_ANSWERS).for_each(|n| answers.note(n.to_string(), reached(0)));
        assert_eq!((budget.used(), answers.get("a").is_some()), (0, false));
    }
}
