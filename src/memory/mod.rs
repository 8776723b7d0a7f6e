//! Long-term memory: what stays of conversations when they are over, in plain files that the agent, its user and the
//! operator can read. Pure: no sockets, no clock, no database.
//!
//! An agent of a tenant has `MEMORY.md`, which is curated, and a file of each day, to which is only appended.

pub mod consolidate;
pub mod day;
pub mod file;
pub mod flush;
pub mod page;
pub mod path;
pub mod portions;
pub mod recollection;
pub mod said;
pub mod save;
pub mod search;
pub mod words;

pub use day::Day;
pub use file::MemoryFile;
pub use path::MemoryPath;
