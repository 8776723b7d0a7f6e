//! The file's shape: which sections there are and which keys each of them has. Every key is optional
//! here; what a missing one means is `resolve`'s business.

mod reading;

use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

pub use self::reading::joined;
use self::reading::read_table;
use super::address::{BaseUrl, PathPrefix, StateUrl, UpstreamName};
use super::pem::{CertificateFile, KeyFile};
use super::problems::{Entry, Problems};
use super::sizes::ByteSize;
use super::value::{Mode, PromptFile, Set, Value};
use super::{Api, Auto, Inject, Secret, SignedThinking, TenantRule, ToolScope};
use http::HeaderName;

/// The keys of one table.
pub trait Keys: Default {
    const NAMES: &'static [&'static str];

    /// Keys without which the table says nothing.
    const REQUIRED: &'static [&'static str];

    /// Reads one key of the table.
    fn put(&mut self, name: &str, entry: Entry<'_>, problems: &mut Problems);

    /// These keys, and `base`'s where they are not set.
    #[must_use]
    fn over(&self, base: &Self) -> Self;

    /// The keys that are set, in the order of [`NAMES`](Self::NAMES).
    fn shown(&self) -> Vec<(&'static str, toml::Value)>;
}

/// Declares a table: its struct of optional keys, and [`Keys`] and [`Value`] for it.
macro_rules! tables {
    ($($(#[$doc:meta])* $table:ident $(requires $($required:ident)*)? { $($key:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct $table { $(pub $key: Option<Set<$type>>,)* }

        impl Keys for $table {
            const NAMES: &'static [&'static str] = &[$(stringify!($key)),*];
            const REQUIRED: &'static [&'static str] = &[$($(stringify!($required)),*)?];

            fn put(&mut self, name: &str, entry: Entry<'_>, problems: &mut Problems) {
                let at = Some(entry.at());
                match name {
                    $(stringify!($key) => {
                        self.$key = <$type>::read(entry, problems).map(|value| Set { value, at });
                    })*
                    _ => {}
                }
            }

            fn over(&self, base: &Self) -> Self {
                Self { $($key: self.$key.clone().or_else(|| base.$key.clone()),)* }
            }

            fn shown(&self) -> Vec<(&'static str, toml::Value)> {
                let keys = [$((stringify!($key), self.$key.as_ref().map(|set| set.value.show()))),*];
                keys.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
            }
        }

        impl Value for $table {
            fn read(entry: Entry<'_>, problems: &mut Problems) -> Option<Self> {
                read_table(entry, problems)
            }

            fn show(&self) -> toml::Value {
                toml::Value::Table(self.shown().into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
            }
        }
    )*};
}

tables! {
    /// `[server]`
    ServerKeys {
        listen: SocketAddr,
        admin_listen: SocketAddr,
        admin_token: Secret,
        max_body_bytes: ByteSize,
        max_buffered_bytes: ByteSize,
        drain_timeout: Duration,
        tls: TlsKeys,
    }

    /// `server.tls`
    TlsKeys requires cert key {
        cert: CertificateFile,
        key: KeyFile,
    }

    /// `[[upstream]]`
    UpstreamKeys requires name base_url {
        name: UpstreamName,
        base_url: BaseUrl,
        prefix: PathPrefix,
        api: Api,
        api_key: Secret,
        ca_file: CertificateFile,
        connect_timeout: Duration,
        response_timeout: Duration,
        idle_timeout: Duration,
    }

    /// `[state]`
    StateKeys {
        url: StateUrl,
        tenant: TenantRule,
        retention: Duration,
        max_size: ByteSize,
    }

    /// `[tool_result_eviction]`
    EvictionKeys {
        max_result_chars: NonZeroUsize,
        max_result_tokens: NonZeroUsize,
        preview_chars: NonZeroUsize,
        excluded_tools: Vec<String>,
        excluded_limit_factor: usize,
        workspace_dir: PathBuf,
    }

    /// `[truncate_args]`
    TruncateKeys {
        trigger_messages: usize,
        trigger_tokens: Auto,
        keep_messages: usize,
        max_arg_length: NonZeroUsize,
        truncation_text: String,
        min_gain_tokens: Auto,
    }

    /// `[prune]`
    PruneKeys {
        protect_tokens: Auto,
        min_gain_tokens: Auto,
        max_output_chars: NonZeroUsize,
    }

    /// `[compaction]`
    CompactionKeys {
        trigger_messages: usize,
        trigger_tokens: Auto,
        reserved_tokens: u64,
        keep_tokens: Auto,
        keep_messages: NonZeroUsize,
        model: String,
        upstream: String,
        summary_prompt_file: PromptFile,
        offload_before_compact: bool,
        flush_before_compact: bool,
    }

    /// `[memory]`
    MemoryKeys {
        inject: bool,
        consolidate_gap: Duration,
        max_tokens: NonZeroUsize,
        archive_after: Duration,
    }

    /// `[overflow_recovery]`
    RecoveryKeys {
        enabled: bool,
    }

    /// `[anthropic]`
    AnthropicKeys {
        prefix_mismatch: SignedThinking,
    }

    /// `[sessions]`
    SessionKeys {
        log: bool,
    }

    /// `[tools]`
    ToolKeys {
        inject: Inject,
        scope: ToolScope,
        max_rounds: NonZeroUsize,
        page_chars: NonZeroUsize,
        mcp: bool,
    }

    /// `[[window]]`
    WindowKeys {
        model: String,
        upstream: String,
        input: NonZeroU64,
        total: NonZeroU64,
    }

    /// `policy.match`
    MatchKeys {
        model: String,
        upstream: String,
        path: String,
        header: HeaderKeys,
    }

    /// `policy.match.header`
    HeaderKeys requires name {
        name: HeaderName,
        value: String,
    }
}

/// A strategy's section: on, off, or not spoken of, and its keys.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Section<K> {
    pub on: Option<Set<bool>>,
    pub keys: K,
}

/// The strategies' sections, of the file's top level or of one policy.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sections {
    pub eviction: Section<EvictionKeys>,
    pub truncate: Section<TruncateKeys>,
    pub prune: Section<PruneKeys>,
    pub compaction: Section<CompactionKeys>,
    pub recovery: Section<RecoveryKeys>,
    pub anthropic: Section<AnthropicKeys>,
    pub tools: Section<ToolKeys>,
    pub memory: Section<MemoryKeys>,
    pub sessions: Section<SessionKeys>,
    /// Policies only.
    pub mode: Option<Set<Mode>>,
}

/// One `[[policy]]`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RawPolicy {
    pub matches: MatchKeys,
    pub sections: Sections,
}

/// The whole file.
#[derive(Debug, Clone, Default)]
pub struct RawConfig {
    pub server: ServerKeys,
    pub upstreams: Vec<UpstreamKeys>,
    pub state: StateKeys,
    pub sections: Sections,
    pub windows: Vec<WindowKeys>,
    pub policies: Vec<RawPolicy>,
}

/// The names of the strategies' sections.
pub const SECTIONS: [&str; 9] = [
    "tool_result_eviction",
    "truncate_args",
    "prune",
    "compaction",
    "overflow_recovery",
    "anthropic",
    "tools",
    "memory",
    "sessions",
];

/// The other tables at the file's top level.
pub const OTHERS: [&str; 5] = ["server", "upstream", "state", "window", "policy"];

impl<K: Keys> Section<K> {
    pub fn is_on(&self) -> bool {
        self.on.as_ref().is_some_and(|on| on.value)
    }

    fn over(&self, base: &Self) -> Self {
        Self { on: self.on.clone().or_else(|| base.on.clone()), keys: self.keys.over(&base.keys) }
    }

    fn read(&mut self, entry: Entry<'_>, problems: &mut Problems) {
        let at = Some(entry.at());
        self.keys = read_table(entry, problems).unwrap_or_default();
        self.on = Some(Set { value: true, at });
    }
}

impl Sections {
    /// These sections, and `base`'s keys where they say nothing.
    #[must_use]
    pub fn over(&self, base: &Self) -> Self {
        Self {
            eviction: self.eviction.over(&base.eviction),
            truncate: self.truncate.over(&base.truncate),
            prune: self.prune.over(&base.prune),
            compaction: self.compaction.over(&base.compaction),
            recovery: self.recovery.over(&base.recovery),
            anthropic: self.anthropic.over(&base.anthropic),
            tools: self.tools.over(&base.tools),
            memory: self.memory.over(&base.memory),
            sessions: self.sessions.over(&base.sessions),
            mode: self.mode.clone().or_else(|| base.mode.clone()),
        }
    }

    fn read(&mut self, name: &str, entry: Entry<'_>, problems: &mut Problems) {
        match name {
            "tool_result_eviction" => self.eviction.read(entry, problems),
            "truncate_args" => self.truncate.read(entry, problems),
            "prune" => self.prune.read(entry, problems),
            "compaction" => self.compaction.read(entry, problems),
            "overflow_recovery" => self.recovery.read(entry, problems),
            "anthropic" => self.anthropic.read(entry, problems),
            "tools" => self.tools.read(entry, problems),
            "memory" => self.memory.read(entry, problems),
            "sessions" => self.sessions.read(entry, problems),
            _ => {}
        }
    }

    fn switch_off(&mut self, name: &str, at: usize) {
        let off = Some(Set { value: false, at: Some(at) });
        match name {
            "tool_result_eviction" => self.eviction.on = off,
            "truncate_args" => self.truncate.on = off,
            "prune" => self.prune.on = off,
            "compaction" => self.compaction.on = off,
            "overflow_recovery" => self.recovery.on = off,
            "anthropic" => self.anthropic.on = off,
            "tools" => self.tools.on = off,
            "memory" => self.memory.on = off,
            "sessions" => self.sessions.on = off,
            _ => {}
        }
    }
}
