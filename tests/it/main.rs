//! End-to-end tests: real sockets, the real program in this process.

mod support;

mod bodies;
mod errors;
mod framing;
mod lifecycle;
mod tls;
mod transparency;
mod upgrade;
