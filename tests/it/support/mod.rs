//! Servers and clients for the tests.

pub mod proxy;
pub mod wire;
