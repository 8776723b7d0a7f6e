//! The session log: every message of every session, appended once, complete, and found again by its words.
//!
//! Nothing waits for it. What is given is queued (bounded), cut and compressed on a thread of its own, and written
//! behind in small transactions, between which commits come through. What finds the queue full or the store gone is
//! dropped and counted; since a client sends its whole history each time, a later request brings it again.

mod asking;
mod delete;
mod lists;
mod passages;
mod pieces;
mod queries;
mod read;
mod scribe;
mod search;
mod write;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::Tenant;
use crate::wire::plain::{Source, plain};
use crate::wire::{Dialect, Digest, Role};

pub(super) use delete::{delete_log, delete_retired, detach};
pub(super) use queries::{LogQuery, LogReader};
pub(super) use scribe::{Given, Scribe, Shared};
pub(super) use write::{Group, Written, Wrote, write};

/// Most messages that one page of history has.
pub const MAX_PAGE: usize = 1_000;
/// Bytes of JSON from which on a page takes no further message.
pub const MAX_PAGE_BYTES: usize = 32 << 20;
/// Most hits of one search.
pub const MAX_HITS: usize = 100;
/// Most sessions in one list.
pub const MAX_SESSIONS: usize = 1_000;
/// Bytes of a message's text that are indexed, at least: what lies behind them is read, not found.
pub const MAX_INDEXED: usize = passages::MOST * (passages::BYTES - 2 * passages::OVERLAP);
/// Bytes of a query that count.
pub const MAX_QUERY: usize = 1_000;
/// A search takes this long at most, in the store's default limits.
pub const SEARCH_BOUND: Duration = Duration::from_secs(2);
/// Asked for each message of a page before it is loaded, with the bytes of its JSON; `false`: the page ends there.
pub type Room = Box<dyn FnMut(usize) -> bool + Send>;

/// A session: a keyed hash of its tenant and of what names it. Shown as 32 lower-case hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub [u8; 16]);

/// How much of the log may be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One session. `chain`: only the messages with these digests, because nothing but its content tells the session
    /// from another user's that began with the same words.
    Conversation { session: SessionId, chain: Option<Arc<[Digest]>> },
    /// All that this agent wrote for the tenant.
    Agent(Arc<str>),
    /// All of the tenant's.
    Tenant,
}

/// Messages to be logged.
#[derive(Clone, Debug)]
pub struct LogBatch {
    pub session: SessionId,
    pub agent: Arc<str>,
    pub dialect: Dialect,
    pub kind: Kind,
    /// In order. What is logged already is left as it is.
    pub messages: Vec<Message>,
}

/// Where logged messages come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A client sent them.
    Sent,
    /// The model answered with them: they count until the client sends its own form of that answer.
    Answered,
}

/// One message as it is to be logged.
#[derive(Clone)]
pub struct Message {
    /// Chain digest up to and including it; of an answer, which has none yet, the digest of what it follows.
    pub digest: Digest,
    /// The digest before; `None` for a conversation's first message, and for all items of an answer but the first.
    pub parent: Option<Digest>,
    /// Its place in the conversation, from 1; 0 stands before it: kept, but on no branch, and not counted.
    pub number: u32,
    pub role: Role,
    /// Input tokens, where they were counted.
    pub tokens: Option<u32>,
    /// The item as its client sent it.
    pub json: Bytes,
    /// What no search finds of it.
    pub unfound: Unfound,
}

/// What of a message is kept, but no search finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Unfound {
    #[default]
    Nothing,
    /// These parts: a search that found its own words, and what it found before, would find nothing else.
    Parts(Vec<Source>),
    Everything,
}

/// Says how long it is, not what it says.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("number", &self.number).field("bytes", &self.json.len()).finish_non_exhaustive()
    }
}

/// A session as it stands in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Whose it is; for the operator's lists.
    pub tenant: Tenant,
    pub id: SessionId,
    /// The agents in scope that wrote in it, the first one first.
    pub agents: Vec<Arc<str>>,
    /// The first line of its first user message, at most 200 characters.
    pub title: String,
    /// Unix seconds of its first and its latest message.
    pub first: i64,
    pub last: i64,
    /// Messages in scope, all branches together.
    pub messages: u64,
    /// Tokens of the messages that were counted.
    pub tokens: u64,
    /// Bytes of JSON.
    pub bytes: u64,
}

/// Names a message within its session: how its digest begins. Shown as 16 lower-case hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cursor(pub [u8; 8]);

/// Which branch of a session's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tip {
    /// The one that ends with this message.
    At(Digest),
    /// The one that holds this message: where several do, the one that was written to last.
    Through(Cursor),
}

/// Which messages of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryPage {
    /// At most so many, the latest ones; at most [`MAX_PAGE`].
    pub last: usize,
    /// Only messages with smaller numbers.
    pub before: Option<u32>,
    /// Its branch; else the one written to last, by `agent` if one is named.
    pub tip: Option<Tip>,
    pub agent: Option<Arc<str>>,
}

/// A logged message, complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    pub digest: Digest,
    pub parent: Option<Digest>,
    pub number: u32,
    pub role: Role,
    pub agent: Arc<str>,
    /// Unix seconds.
    pub time: i64,
    pub tokens: Option<u32>,
    pub dialect: Dialect,
    /// The model's own answer, which its client has not sent back (yet).
    pub answered: bool,
    /// The item as its client sent it.
    pub json: String,
}

/// What to look for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// Words and identifiers.
    pub query: String,
    /// In this session only.
    pub session: Option<SessionId>,
    /// What this agent wrote only.
    pub agent: Option<Arc<str>>,
    /// At most so many hits; at most [`MAX_HITS`].
    pub max: usize,
}

/// A message that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    pub tenant: Tenant,
    pub session: SessionId,
    pub agent: Arc<str>,
    pub digest: Digest,
    pub number: u32,
    pub role: Role,
    /// Unix seconds.
    pub time: i64,
    /// The original text around the hit, a few hundred characters.
    pub snippet: String,
}

/// What a search found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hits {
    /// Best first.
    pub best: Vec<Hit>,
    /// The time was up: there may be others, and better ones.
    pub cut_short: bool,
}

impl Logged {
    /// The message as text: words, calls as `name(arguments)`, results.
    pub fn text(&self) -> String {
        plain(self.dialect, self.json.as_bytes()).text
    }
}

impl Cursor {
    /// The message with this digest.
    pub fn of(digest: &Digest) -> Self {
        Self(digest.first_chunk().copied().unwrap_or_default())
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A text that is no session id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a session id is 32 lower-case hex digits")]
pub struct NoSessionId;

/// A text that names no branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a branch is 16 lower-case hex digits")]
pub struct NoCursor;

impl FromStr for SessionId {
    type Err = NoSessionId;

    fn from_str(text: &str) -> Result<Self, NoSessionId> {
        bytes(text).map(Self).ok_or(NoSessionId)
    }
}

impl FromStr for Cursor {
    type Err = NoCursor;

    fn from_str(text: &str) -> Result<Self, NoCursor> {
        bytes(text).map(Self).ok_or(NoCursor)
    }
}

/// What lower-case hex digits spell.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: &u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *byte = digit(high)? << 4 | digit(low)?;
    }
    Some(bytes)
}

#[cfg(test)]
pub(super) use probes::{given, is_known, late_query, lost, page_within, search_while, write_all_but};

#[cfg(test)]
#[path = "log/probes.rs"]
mod probes;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_is_shown() {
        let id = SessionId([0xa7; 16]);
        assert_eq!(id.to_string().parse(), Ok(id));
        let cursor = Cursor::of(&[0x5c; 32]);
        assert_eq!((cursor.to_string().parse(), "5c".parse::<Cursor>()), (Ok(cursor), Err(NoCursor)));
        for text in [
            "",
            "a7",
            &id.to_string().to_uppercase(),
            &format!("{id}0"),
            "../../../../etc/passwd\0\0\0\0\0\0\0\0\0\0\0",
        ] {
            assert_eq!(text.parse::<SessionId>(), Err(NoSessionId), "{text}");
        }
    }
}
