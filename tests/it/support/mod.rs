//! Servers and clients for the tests.

pub mod proxy;
pub mod tls;
pub mod wire;
