//! End-to-end tests: real sockets, the real program in this process.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; clippy.toml covers only the test functions themselves"
)]

mod cli;
mod docs;
mod provider;
mod support;

mod bodies;
mod conversations;
mod errors;
mod faults;
mod framing;
mod lifecycle;
mod messages;
mod outcomes;
mod reader;
mod recovery;
mod refusals;
mod second_attempts;
mod side_calls;
mod spending;
mod state;
mod tls;
mod transparency;
mod upgrade;
