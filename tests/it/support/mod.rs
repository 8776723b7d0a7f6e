//! Servers and clients for the tests.

pub mod amazon;
pub mod chat;
pub mod dialects;
pub mod json;
pub mod program;
pub mod proxy;
pub mod recall;
pub mod responses;
pub mod scripted;
pub mod tap;
pub mod tls;
pub mod wire;
