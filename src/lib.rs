//! compactproxy: a transparent LLM API reverse proxy that lets unmodified agents work past
//! their model's context window. `ARCHITECTURE.md` is the map; the modules follow a request.

pub mod cli;
pub mod compact;
pub mod config;
pub mod demo;
pub mod memory;
pub mod proxy;
pub mod server;
pub mod store;
pub mod telemetry;
pub mod tools;
pub mod wire;
