//! Servers and clients for the tests.

pub mod chat;
pub mod proxy;
pub mod tls;
pub mod wire;
