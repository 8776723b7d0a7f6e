//! The resolved configuration as a file: what `check` prints. It reads back as the same configuration,
//! but for secrets, which are masked.

use std::fmt::{self, Write};
use std::num::{NonZeroU64, NonZeroUsize};

use super::address::{BaseUrl, PathPrefix, StateUrl, UpstreamName};
use super::pem::{CertificateFile, KeyFile};
use super::raw::{
    AnthropicKeys, CompactionKeys, EvictionKeys, HeaderKeys, Keys, MatchKeys, MemoryKeys, PruneKeys, RecoveryKeys,
    Section, Sections, ServerKeys, SessionKeys, StateKeys, TlsKeys, ToolKeys, TruncateKeys, UpstreamKeys, WindowKeys,
};
use super::sizes::ByteSize;
use super::value::{Set, Value};
use super::{
    Auto, CompactionSettings, Config, EvictionSettings, Keep, MemorySettings, Policy, PruneSettings, Server, State,
    ToolSettings, TruncateSettings, Upstream, WindowRule,
};

/// A value that is always there.
fn set<T>(value: T) -> Option<Set<T>> {
    Set::default_of(value)
}

/// A value that may not be there.
fn maybe<T>(value: Option<T>) -> Option<Set<T>> {
    value.and_then(Set::default_of)
}

/// The configuration in the syntax of its file, every key written out.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        table(f, "[server]", &server(&self.server))?;
        for known in &self.upstreams {
            table(f, "\n[[upstream]]", &upstream(known))?;
        }
        table(f, "\n[state]", &state(&self.state))?;
        self.show_sections(f)?;
        for rule in &self.windows {
            table(f, "\n[[window]]", &window(rule))?;
        }
        self.policies.iter().try_for_each(|known| policy(f, known))
    }
}

impl Config {
    fn show_sections(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let strategies = &self.strategies;
        if let Some(settings) = &strategies.eviction {
            table(f, "\n[tool_result_eviction]", &eviction(settings))?;
        }
        if let Some(settings) = &strategies.truncate {
            table(f, "\n[truncate_args]", &truncate(settings))?;
        }
        if let Some(settings) = &strategies.prune {
            table(f, "\n[prune]", &prune(settings))?;
        }
        if let Some(settings) = &strategies.compaction {
            table(f, "\n[compaction]", &compaction(settings, &self.sections.compaction.keys))?;
            table(f, "\n[overflow_recovery]", &RecoveryKeys { enabled: set(strategies.recovery) })?;
        }
        if self.sections.anthropic.is_on() {
            table(f, "\n[anthropic]", &AnthropicKeys { prefix_mismatch: set(strategies.signed_thinking) })?;
        }
        if let Some(settings) = &strategies.tools {
            table(f, "\n[tools]", &tools(settings))?;
        }
        if let Some(settings) = &strategies.memory {
            table(f, "\n[memory]", &memory(settings))?;
        }
        if self.sections.sessions.is_on() {
            table(f, "\n[sessions]", &SessionKeys { log: set(strategies.log) })?;
        }
        Ok(())
    }
}

fn table(f: &mut fmt::Formatter<'_>, header: &str, keys: &impl Keys) -> fmt::Result {
    writeln!(f, "{header}")?;
    keys.shown().into_iter().try_for_each(|(name, value)| writeln!(f, "{name} = {value}"))
}

fn server(server: &Server) -> ServerKeys {
    let tls = server
        .tls
        .as_ref()
        .map(|tls| TlsKeys { cert: set(CertificateFile(tls.cert.clone())), key: set(KeyFile(tls.key.clone())) });
    ServerKeys {
        listen: set(server.listen),
        admin_listen: set(server.admin_listen),
        admin_token: maybe(server.admin_token.clone()),
        max_body_bytes: set(ByteSize(server.max_body_bytes as u64)),
        max_buffered_bytes: set(ByteSize(server.max_buffered_bytes as u64)),
        drain_timeout: set(server.drain_timeout),
        tls: maybe(tls),
    }
}

fn upstream(upstream: &Upstream) -> UpstreamKeys {
    UpstreamKeys {
        name: set(UpstreamName(upstream.name.clone())),
        base_url: set(BaseUrl(upstream.base_url.clone())),
        prefix: maybe(upstream.prefix.clone().map(PathPrefix)),
        api: set(upstream.api),
        api_key: maybe(upstream.api_key.clone()),
        ca_file: maybe(upstream.ca_file.clone().map(CertificateFile)),
        connect_timeout: set(upstream.connect_timeout),
        response_timeout: set(upstream.response_timeout),
        idle_timeout: set(upstream.idle_timeout),
    }
}

fn state(state: &State) -> StateKeys {
    StateKeys {
        url: set(StateUrl(state.url.clone())),
        tenant: set(state.tenant.clone()),
        retention: set(state.retention),
        max_size: set(ByteSize(state.max_size)),
    }
}

fn eviction(settings: &EvictionSettings) -> EvictionKeys {
    EvictionKeys {
        max_result_chars: maybe(NonZeroUsize::new(settings.max_result_chars)),
        max_result_tokens: maybe(settings.max_result_tokens.and_then(NonZeroUsize::new)),
        preview_chars: maybe(NonZeroUsize::new(settings.preview_chars)),
        excluded_tools: set(settings.excluded_tools.clone()),
        excluded_limit_factor: set(settings.excluded_limit_factor),
        workspace_dir: maybe(settings.workspace_dir.clone()),
    }
}

fn truncate(settings: &TruncateSettings) -> TruncateKeys {
    TruncateKeys {
        trigger_messages: set(settings.trigger_messages),
        trigger_tokens: set(settings.trigger_tokens),
        keep_messages: set(settings.keep_messages),
        max_arg_length: maybe(NonZeroUsize::new(settings.max_arg_length)),
        truncation_text: set(settings.truncation_text.clone()),
        min_gain_tokens: set(settings.min_gain_tokens),
    }
}

fn prune(settings: &PruneSettings) -> PruneKeys {
    PruneKeys {
        protect_tokens: set(settings.protect_tokens),
        min_gain_tokens: set(settings.min_gain_tokens),
        max_output_chars: maybe(NonZeroUsize::new(settings.max_output_chars)),
    }
}

/// `written` has what the settings no longer say: the prompt's path, and `keep_messages` beside `keep_tokens`
/// (without effect in the base, but a policy may take `keep_tokens` away).
fn compaction(settings: &CompactionSettings, written: &CompactionKeys) -> CompactionKeys {
    let tokens = match settings.keep {
        Keep::Tokens(tokens) => tokens,
        Keep::Messages(_) => Auto::Auto,
    };
    CompactionKeys {
        trigger_messages: set(settings.trigger_messages),
        trigger_tokens: set(settings.trigger_tokens),
        reserved_tokens: set(settings.reserved_tokens),
        keep_tokens: set(tokens),
        keep_messages: written.keep_messages.clone(),
        model: maybe(settings.model.clone()),
        upstream: maybe(settings.upstream.clone()),
        summary_prompt_file: written.summary_prompt_file.clone(),
        offload_before_compact: set(settings.offload_before_compact),
        flush_before_compact: set(settings.flush_before_compact),
    }
}

fn memory(settings: &MemorySettings) -> MemoryKeys {
    MemoryKeys {
        inject: set(settings.inject),
        consolidate_gap: set(settings.consolidate_gap),
        max_tokens: maybe(NonZeroUsize::new(settings.max_tokens)),
        archive_after: set(settings.archive_after),
    }
}

fn tools(settings: &ToolSettings) -> ToolKeys {
    ToolKeys {
        inject: set(settings.inject),
        scope: set(settings.scope),
        max_rounds: maybe(NonZeroUsize::new(settings.max_rounds)),
        page_chars: maybe(NonZeroUsize::new(settings.page_chars)),
        mcp: set(settings.mcp),
    }
}

fn window(rule: &WindowRule) -> WindowKeys {
    WindowKeys {
        model: set(rule.model.clone()),
        upstream: maybe(rule.upstream.clone()),
        input: maybe(rule.input.and_then(NonZeroU64::new)),
        total: maybe(rule.total.and_then(NonZeroU64::new)),
    }
}

fn policy(f: &mut fmt::Formatter<'_>, policy: &Policy) -> fmt::Result {
    let header =
        policy.header.as_ref().map(|(name, value)| HeaderKeys { name: set(name.clone()), value: set(value.clone()) });
    let matches = MatchKeys {
        model: maybe(policy.model.clone()),
        upstream: maybe(policy.upstream.clone()),
        path: maybe(policy.path.clone()),
        header: maybe(header),
    };
    writeln!(f, "\n[[policy]]\nmatch = {}", matches.show())?;
    let Sections { eviction, truncate, prune, compaction, recovery, anthropic, tools, memory, sessions, mode } =
        &policy.sections;
    if let Some(mode) = mode {
        writeln!(f, "mode = {}", mode.value.show())?;
    }
    override_of(f, "tool_result_eviction", eviction)?;
    override_of(f, "truncate_args", truncate)?;
    override_of(f, "prune", prune)?;
    override_of(f, "compaction", compaction)?;
    override_of(f, "overflow_recovery", recovery)?;
    override_of(f, "anthropic", anthropic)?;
    override_of(f, "tools", tools)?;
    override_of(f, "memory", memory)?;
    override_of(f, "sessions", sessions)
}

fn override_of<K: Keys + Value>(f: &mut fmt::Formatter<'_>, name: &str, section: &Section<K>) -> fmt::Result {
    match &section.on {
        None => Ok(()),
        Some(on) if !on.value => writeln!(f, "{name} = false"),
        Some(_) => {
            let mut shown = String::new();
            write!(shown, "{}", section.keys.show())?;
            writeln!(f, "{name} = {shown}")
        }
    }
}
