//! What a key means that is not set. `proxy.toml` shows the same values; a test compares them.

use std::time::Duration;

use crate::compact::exclusions::SHIPPED;

pub const LISTEN: ([u8; 4], u16) = ([127, 0, 0, 1], 8787);
pub const ADMIN_LISTEN: ([u8; 4], u16) = ([127, 0, 0, 1], 8788);
/// Bytes.
pub const MAX_BODY: u64 = 64 << 20;
/// Bytes.
pub const MAX_BUFFERED: u64 = 256 << 20;
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15 * 60);
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(15 * 60);

pub const STATE_URL: &str = "sqlite://compactproxy.db";
pub const RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);
/// Bytes.
pub const MAX_STATE: u64 = 10 << 30;

pub const MAX_RESULT_CHARS: usize = 80_000;
pub const PREVIEW_CHARS: usize = 2_000;
pub const EXCLUDED_LIMIT_FACTOR: usize = 4;

pub const TRUNCATE_TRIGGER_MESSAGES: usize = 25;
pub const TRUNCATE_KEEP_MESSAGES: usize = 20;
pub const MAX_ARG_LENGTH: usize = 2_000;
pub const TRUNCATION_TEXT: &str =
    "... [truncated: {n} characters of this past call are hidden, id {id}; do not copy this text] ...";

pub const MAX_OUTPUT_CHARS: usize = 2_000;

pub const MAX_ROUNDS: usize = 5;
/// Unicode characters.
pub const PAGE_CHARS: usize = 16_000;

pub const RESERVED_TOKENS: u64 = 20_000;

pub const CONSOLIDATE_GAP: Duration = Duration::from_secs(30 * 60);
/// The shortest `consolidate_gap`: each call reads the whole memory.
pub const LEAST_CONSOLIDATE_GAP: Duration = Duration::from_secs(30 * 60);
pub const MEMORY_TOKENS: usize = 4_000;
pub const ARCHIVE_AFTER: Duration = Duration::from_secs(90 * 24 * 3600);
/// The largest `max_tokens`: what is kept in mind has to fit beside a conversation, and into one answer.
pub const MOST_MEMORY_TOKENS: usize = 32_000;

/// Tools whose results stay whole up to `excluded_limit_factor` times the limit: name patterns.
pub fn excluded_tools() -> Vec<String> {
    SHIPPED.iter().map(|name| (*name).to_owned()).collect()
}
