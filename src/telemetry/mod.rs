//! What the process says of itself: logs to stderr, metrics for `/metrics`. Neither holds credentials or bodies (L7).

pub mod metrics;
pub mod subscriber;

pub use metrics::{Metrics, RequestEnd};
