//! The names of what was done to a request.

/// What a rewrite did, for the header, the log and the metrics.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Actions {
    pub evicted: bool,
    pub truncated: bool,
    pub pruned: bool,
    pub summarized: bool,
    pub folded: bool,
    pub checkpoint: bool,
    pub recovered: bool,
    pub output_lowered: bool,
}

impl Actions {
    /// The names in `x-compactproxy-action`, in the order in which they stand there.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        [
            (self.evicted, "evicted"),
            (self.truncated, "truncated"),
            (self.pruned, "pruned"),
            (self.summarized, "summarized"),
            (self.folded, "folded"),
            (self.checkpoint, "checkpoint"),
            (self.recovered, "recovered"),
            (self.output_lowered, "output-lowered"),
        ]
        .into_iter()
        .filter_map(|(on, name)| on.then_some(name))
    }

    /// Adds what `other` did.
    pub fn and(self, other: Self) -> Self {
        Self {
            evicted: self.evicted | other.evicted,
            truncated: self.truncated | other.truncated,
            pruned: self.pruned | other.pruned,
            summarized: self.summarized | other.summarized,
            folded: self.folded | other.folded,
            checkpoint: self.checkpoint | other.checkpoint,
            recovered: self.recovered | other.recovered,
            output_lowered: self.output_lowered | other.output_lowered,
        }
    }
}
