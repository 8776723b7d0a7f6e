//! The strategies, pure: what a conversation, the rows known of it and the settings say to do.
//! Effects (store rows, side calls) are returned as data.
//!
//! Two functions carry the laws. [`render`](render::render) turns a conversation and its *activated rows* into
//! edits; it looks at nothing else, so the same history and rows give the same bytes (L4).
//! [`plan`](plan::plan) proposes new rows; they count only once the store has them (L5).

pub mod actions;
pub mod binding;
pub mod budget;
pub mod calibration;
pub mod client_compaction;
pub mod compose;
pub mod cuts;
pub mod digest;
pub mod estimate;
pub mod evict;
pub mod excerpt;
pub mod exchange;
pub mod exclusions;
#[cfg(test)]
pub mod fixture;
pub mod head;
pub mod ladder;
pub mod ledger;
pub mod lighten;
pub mod page;
pub mod pictures;
mod pieces;
pub mod pins;
pub mod plan;
pub mod prune;
pub mod render;
pub mod rows;
pub mod summary;
pub mod summary_prompt;
#[cfg(test)]
pub(crate) mod talk;
pub mod tokens;
pub mod transcript;
pub mod trim;
pub mod truncate;
pub mod typed;
pub mod windows;

#[cfg(test)]
#[path = "tests/model/mod.rs"]
mod model;

pub use rows::{
    Change, Checkpoint, Cut, Eviction, Evictions, Head, Known, Level, Remembered, Removed, Replacement, TextId, TextKey,
};
