//! What makes the answers of several rounds one: the first one's id and time, and a sum of what was written.

use bytes::Bytes;

use super::chunk::{Chunk, Object};
use crate::wire::splice::{Edit, splice};

/// What is known of the rounds before.
#[derive(Debug, Default)]
pub(super) struct Seam {
    /// Rounds before this one.
    pub(super) before: usize,
    id: Option<Bytes>,
    created: Option<Bytes>,
    prior: Spent,
    now: Spent,
}

/// Output tokens.
#[derive(Debug, Default, Clone, Copy)]
struct Spent {
    completion: u64,
    reasoning: u64,
}

impl Seam {
    /// Takes note of a chunk as it came.
    pub(super) fn note(&mut self, chunk: &Chunk<'_>) {
        let copy = |key| chunk.whole.get(key).map(|span| chunk.whole.copy(span));
        if self.before == 0 {
            self.id = self.id.take().or_else(|| copy("id"));
            self.created = self.created.take().or_else(|| copy("created"));
        }
        for usage in chunk.usage.iter().filter_map(|span| Object::at(chunk.whole.text, span)) {
            let count = |object: &Object<'_>, key: &str| object.get(key).and_then(|span| object.number(span));
            let reasoning = usage.object(DETAILS).and_then(|details| count(&details, REASONING));
            let completion = count(&usage, "completion_tokens").unwrap_or(self.now.completion);
            self.now = Spent { completion, reasoning: reasoning.unwrap_or(self.now.reasoning) };
        }
    }

    pub(super) fn next_round(&mut self) {
        self.before += 1;
        self.prior.completion += self.now.completion;
        self.prior.reasoning += self.now.reasoning;
        self.now = Spent::default();
    }

    /// The edits that make a chunk of a later round one of the first; none in the first.
    pub(super) fn edits(&self, chunk: &Chunk<'_>) -> Vec<Edit> {
        if self.before == 0 {
            return Vec::new();
        }
        let mut edits = Vec::new();
        for (key, value) in [("id", &self.id), ("created", &self.created)] {
            if let Some((span, with)) = chunk.whole.get(key).zip(value.as_ref()) {
                edits.push(Edit { span: span.clone(), with: with.clone() });
            }
        }
        for usage in chunk.usage.iter().filter_map(|span| Object::at(chunk.whole.text, span)) {
            edits.extend(more(&usage, "completion_tokens", self.prior.completion));
            edits.extend(more(&usage, "total_tokens", self.prior.completion));
            edits.extend(usage.object(DETAILS).and_then(|details| more(&details, REASONING, self.prior.reasoning)));
        }
        edits
    }
}

const DETAILS: &str = "completion_tokens_details";
const REASONING: &str = "reasoning_tokens";

fn more(object: &Object<'_>, key: &str, prior: u64) -> Option<Edit> {
    let span = object.get(key).filter(|_| prior > 0)?;
    let sum = object.number(span)? + prior;
    Some(Edit { span: span.clone(), with: sum.to_string().into() })
}

/// The text with `edits`, in any order; the text itself where they cannot all be placed.
pub(super) fn edited(text: &Bytes, mut edits: Vec<Edit>) -> Bytes {
    edits.sort_by_key(|edit| edit.span.start);
    splice(text, edits).map_or_else(|_| text.clone(), |pieces| pieces.concat().into())
}
