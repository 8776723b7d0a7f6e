//! The wire formats: reading a body as items, placing edits in it, reading streams and errors.
//! Pure: no sockets, no clock, no configuration.

pub mod amazon;
pub mod answered;
mod anthropic;
mod anthropic_item;
mod anthropic_side;
pub mod canonical;
pub mod chain;
mod chat_item;
mod chat_side;
pub mod conversation;
pub mod dialect;
pub mod frames;
mod generations;
pub mod hosted;
mod media;
mod members;
pub mod memo;
mod openai_chat;
mod openai_responses;
pub mod overflow;
mod passing;
pub mod plain;
mod prefixes;
pub mod reading;
pub mod refusal;
mod responses_item;
mod responses_side;
pub mod rounds;
pub mod scan;
pub mod sent;
pub mod shape;
pub mod side;
pub mod splice;
pub mod sse;
pub mod usage;
mod writing;

pub use conversation::{
    Call, Conversation, Dialect, Digest, Facts, Item, Media, Role, Sight, Slot, SlotKind, Standing,
};
pub use dialect::Errand;
pub use hosted::model_of_path;
pub use reading::{Glance, glance, read, read_known};
