//! The tools with which a model, or whoever speaks for it, reads back what was removed. One table of definitions and
//! one way to run a call, whether it comes from an answer of the model's or over MCP.

pub mod arguments;
pub mod definitions;
pub mod execution;
pub mod lookup;
pub mod matches;
pub mod mcp;
mod memory;
pub mod page;
pub mod sessions;
pub mod shown;
