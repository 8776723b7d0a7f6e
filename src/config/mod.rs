//! The validated configuration. `raw` mirrors the file, `problems` collects what is wrong with it,
//! `validate` and `resolve` fill in defaults and find contradictions.

mod address;
mod defaults;
mod expand;
mod pem;
mod policy;
pub mod problems;
pub mod raw;
mod resolve;
mod show;
mod sizes;
mod validate;
mod value;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;

use crate::wire::Dialect;

pub use expand::Environment;
pub use policy::glob;
pub use problems::{Problem, Problems};
pub use validate::SHIPPED;

/// Everything the program runs on. Made only by validation.
#[derive(Debug, Clone)]
pub struct Config {
    pub server: Server,
    /// Never empty.
    pub upstreams: Vec<Arc<Upstream>>,
    pub state: State,
    /// The base sections; policies override them.
    pub strategies: Arc<Strategies>,
    pub windows: Vec<WindowRule>,
    pub policies: Vec<Policy>,
    /// The base sections as they stand in the file: what policies are laid over.
    sections: raw::Sections,
    /// Strategies by the policies that match.
    memo: Arc<DashMap<Vec<usize>, Arc<Strategies>>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    pub listen: SocketAddr,
    pub admin_listen: SocketAddr,
    /// Needed when `admin_listen` is no loopback address.
    pub admin_token: Option<Secret>,
    pub max_body_bytes: usize,
    pub max_buffered_bytes: usize,
    pub drain_timeout: Duration,
    pub tls: Option<Tls>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Tls {
    pub cert: PathBuf,
    pub key: PathBuf,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Upstream {
    pub name: String,
    /// `http` or `https`, no query, no trailing slash (but `/` where there is no path).
    pub base_url: http::Uri,
    /// Path prefix that selects this upstream and is stripped; starts with `/`, no trailing slash.
    pub prefix: Option<String>,
    pub api: Api,
    pub api_key: Option<Secret>,
    pub ca_file: Option<PathBuf>,
    pub connect_timeout: Duration,
    pub response_timeout: Duration,
    pub idle_timeout: Duration,
}

/// What an upstream speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    Chat,
    Responses,
    Messages,
    Openai,
    Anthropic,
    Auto,
}

impl Api {
    /// The dialect in which a side call speaks to such an upstream; `None` where any may be spoken.
    pub fn dialect(self) -> Option<Dialect> {
        match self {
            Self::Chat | Self::Openai => Some(Dialect::Chat),
            Self::Responses => Some(Dialect::Responses),
            Self::Messages | Self::Anthropic => Some(Dialect::Messages),
            Self::Auto => None,
        }
    }
}

/// A string that never shows in `Debug` or logs.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

#[derive(Debug, Clone, PartialEq)]
pub struct State {
    pub url: String,
    pub tenant: TenantRule,
    pub retention: Duration,
    pub max_size: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TenantRule {
    Credential,
    Single,
    /// Lower-case header name, namespaced under the credential.
    Header(http::HeaderName),
}

/// The strategies in force for a request. `None`: off, contributes no edit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Strategies {
    pub eviction: Option<EvictionSettings>,
    pub truncate: Option<TruncateSettings>,
    pub prune: Option<PruneSettings>,
    pub compaction: Option<CompactionSettings>,
    /// True only where `compaction` is on as well.
    pub recovery: bool,
    /// Report what would be done, change nothing.
    pub observe: bool,
    pub signed_thinking: SignedThinking,
    /// What the model itself may read back, and how.
    pub tools: Option<ToolSettings>,
    pub memory: Option<MemorySettings>,
    /// Every message that is seen goes to the session log.
    pub log: bool,
}

/// What becomes of signed thinking behind a change (A27).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SignedThinking {
    /// Nothing changes before a block that stays.
    #[default]
    Kept,
    /// The provider is asked to drop the blocks that no longer fit.
    Dropped,
    /// The provider has refused that: nothing changes but by a full fold.
    Refused,
}

/// The tools with which a model reads back what was removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSettings {
    pub inject: Inject,
    pub scope: ToolScope,
    /// Most answers of a provider in a row that become one answer of the client's.
    pub max_rounds: usize,
    /// Most Unicode characters of a tool's result.
    pub page_chars: usize,
    /// Served as MCP. Of the base section alone: there is no request that a policy could match.
    pub mcp: bool,
}

/// When the proxy offers its tools to the model in the client's place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Inject {
    /// Reading removed texts, from the first removal in a conversation on.
    #[default]
    Auto,
    /// All of them, from the first request on.
    Always,
    Never,
}

/// Whose sessions the tools reach.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ToolScope {
    /// The current conversation's alone.
    #[default]
    Session,
    /// All of the same agent.
    Agent,
    /// All of the tenant.
    Tenant,
}

/// A number that may depend on the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auto {
    Auto,
    Fixed(u64),
}

#[derive(Debug, Clone, PartialEq)]
pub struct EvictionSettings {
    pub max_result_chars: usize,
    pub max_result_tokens: Option<usize>,
    /// Head and tail each, Unicode characters.
    pub preview_chars: usize,
    pub excluded_tools: Vec<String>,
    /// 0: excluded tools are never evicted.
    pub excluded_limit_factor: usize,
    pub workspace_dir: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TruncateSettings {
    pub trigger_messages: usize,
    pub trigger_tokens: Auto,
    pub keep_messages: usize,
    /// Unicode characters of the result, truncation text included.
    pub max_arg_length: usize,
    /// Contains `{n}` and `{id}`.
    pub truncation_text: String,
    pub min_gain_tokens: Auto,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PruneSettings {
    pub protect_tokens: Auto,
    pub min_gain_tokens: Auto,
    pub max_output_chars: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CompactionSettings {
    /// 0: off.
    pub trigger_messages: usize,
    /// `Fixed(0)`: off.
    pub trigger_tokens: Auto,
    pub reserved_tokens: u64,
    pub keep: Keep,
    /// Side calls go to this model instead of the request's own.
    pub model: Option<String>,
    /// Side calls go to this upstream (by name) with its own key.
    pub upstream: Option<String>,
    /// Contains `{messages}`.
    pub summary_prompt: Option<Arc<str>>,
    pub offload_before_compact: bool,
    /// What a summary replaces is read for memory first. Only where `memory` is on as well.
    pub flush_before_compact: bool,
}

/// Long-term memory.
#[derive(Debug, Clone, PartialEq)]
pub struct MemorySettings {
    /// New sessions begin with `MEMORY.md`.
    pub inject: bool,
    /// Days' files are taken into `MEMORY.md` when nothing was noted for so long, and not more often.
    pub consolidate_gap: Duration,
    /// Most tokens of `MEMORY.md`.
    pub max_tokens: usize,
    /// Days' files go to the archive at this age.
    pub archive_after: Duration,
}

/// How much of the end of a conversation stays verbatim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    Tokens(Auto),
    Messages(usize),
}

#[derive(Debug, Clone, PartialEq)]
pub struct WindowRule {
    /// A glob with `*`.
    pub model: String,
    pub upstream: Option<String>,
    pub input: Option<u64>,
    pub total: Option<u64>,
}

/// What the configuration says of a window, in tokens; `None`: nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WindowLimits {
    pub input: Option<u64>,
    pub total: Option<u64>,
}

/// Overrides for the requests that match; unset conditions match all.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    pub model: Option<String>,
    pub upstream: Option<String>,
    pub path: Option<String>,
    /// A name and a pattern; any of the header's values may match it.
    pub header: Option<(http::HeaderName, String)>,
    /// What it sets; the rest is left to later policies and to the base.
    sections: raw::Sections,
}

/// What a policy is matched against.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub model: &'a str,
    pub upstream: &'a str,
    /// The request's path as the client sent it, without the query.
    pub path: &'a str,
    pub headers: &'a http::HeaderMap,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[secret]")
    }
}

impl Config {
    /// Whether any request may have a memory.
    pub fn remembers(&self) -> bool {
        self.sections.memory.is_on() || self.policies.iter().any(Policy::remembers)
    }

    /// Whether any request may be logged.
    pub fn logs(&self) -> bool {
        self.strategies.log || !self.policies.is_empty()
    }

    /// Whether any strategy may have a say in any request; else there is no state.
    pub fn compacts(&self) -> bool {
        let Strategies { eviction, truncate, prune, compaction, memory, log, .. } = &*self.strategies;
        let base = eviction.is_some() || truncate.is_some() || prune.is_some() || compaction.is_some();
        let base = base || memory.is_some() || *log;
        base || !self.policies.is_empty()
    }
}

impl Secret {
    pub fn new(value: String) -> Self {
        Self(value)
    }

    /// The secret itself; only for a header that is about to be sent.
    pub fn expose(&self) -> &str {
        &self.0
    }
}
