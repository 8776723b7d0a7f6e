//! A memory file as it was read.

use super::path::MemoryPath;

/// One file of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryFile {
    pub path: MemoryPath,
    pub content: String,
    /// Counts the file's changes, from 1: names what a replacement expects.
    pub version: u64,
    /// Bytes, from the beginning, that `MEMORY.md` has taken in already.
    pub merged: usize,
    /// Of the last change; unix seconds.
    pub updated: i64,
}
