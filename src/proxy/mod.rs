//! (in work)

pub mod hold;
