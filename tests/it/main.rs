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

mod chains;
mod cli;
mod docs;
mod provider;
mod provider_messages;
mod provider_responses;
mod support;

mod bodies;
mod captures;
mod conversations;
mod errors;
mod exchanges;
mod faults;
mod framing;
mod hostile;
mod late;
mod lifecycle;
mod logged;
mod mcp;
mod memory;
mod messages;
mod needle;
mod observed;
mod outcomes;
mod output_floor;
mod overflow_corpus;
mod paths;
mod reader;
mod recall;
mod recovery;
mod refusals;
mod rehearsal;
mod remembered;
mod responses;
mod search_quality;
mod second_attempts;
mod session_log;
mod shapes;
mod side_calls;
mod sockets;
mod spending;
mod state;
mod tls;
mod transparency;
mod unforeseen;
mod unread;
mod upgrade;
