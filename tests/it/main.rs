//! End-to-end tests: real sockets, the real program in this process.

mod cli;
mod provider;
mod support;
