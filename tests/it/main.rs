//! End-to-end tests: real sockets, the real program in this process.

mod provider;
mod support;
mod toy_proxy;
