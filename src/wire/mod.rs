//! The wire formats: reading a body as items, placing edits in it, reading streams and errors.
//! Pure: no sockets, no clock, no configuration.

pub mod canonical;
mod chat_item;
pub mod chat_side;
pub mod conversation;
mod generations;
mod media;
pub mod memo;
pub mod openai_chat;
pub mod overflow;
mod prefixes;
pub mod scan;
pub mod splice;
pub mod sse;
pub mod usage;

pub use conversation::{Call, Conversation, Dialect, Digest, Facts, Item, Media, Role, Slot, SlotKind};
