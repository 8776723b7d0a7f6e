//! From a file's text to a [`Config`]: every problem is found in one pass.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use toml::de::DeTable;

use super::expand::{Environment, expand_table};
use super::pem::{CertificateFile, KeyFile};
use super::policy::overlaid;
use super::problems::Problems;
use super::raw::{RawConfig, Sections, ServerKeys, StateKeys, UpstreamKeys, WindowKeys};
use super::resolve::{contradictions, given, or, strategies_of};
use super::sizes::ByteSize;
use super::value::Set;
use super::{Api, Config, Policy, Secret, Server, State, TenantRule, Tls, Upstream, WindowRule, defaults};

/// The shipped `proxy.toml`.
pub const SHIPPED: &str = include_str!("../../proxy.toml");

/// Limits above this are taken as this: a process cannot address more.
fn bytes(size: ByteSize) -> usize {
    usize::try_from(size.0).unwrap_or(usize::MAX)
}

impl Config {
    /// Reads and validates a file; variables come from the process's environment.
    pub fn load(file: &Path) -> Result<Self, Problems> {
        let text = std::fs::read_to_string(file).map_err(|error| Problems::unreadable(file, &error))?;
        Self::parse(&text, &|name| std::env::var(name).ok()).map_err(|problems| problems.named(file))
    }

    /// The embedded copy of the shipped file.
    pub fn shipped() -> Result<Self, Problems> {
        Self::parse(SHIPPED, &|_| None)
    }

    /// Validates a file's text. Files that it names are looked at; paths are relative to the working directory.
    pub fn parse(text: &str, env: Environment<'_>) -> Result<Self, Problems> {
        let mut problems = Problems::of_text(text);
        let (mut root, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            problems.add(error.span().map(|span| span.start), "", error.message());
        }
        expand_table(root.get_mut(), "", env, &mut problems);
        let raw = RawConfig::read(root.get_ref(), &mut problems);
        // What the parser could not read would look missing: no contradictions are sought then.
        if !errors.is_empty() {
            return Err(problems);
        }
        let config = validated(&raw, &mut problems);
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }
}

fn validated(raw: &RawConfig, problems: &mut Problems) -> Config {
    let config = Config {
        server: server(&raw.server, problems),
        upstreams: upstreams(&raw.upstreams, problems),
        state: state(&raw.state, problems),
        strategies: Arc::new(strategies_of(&raw.sections)),
        windows: raw.windows.iter().filter_map(|window| window_rule(window, problems)).collect(),
        policies: raw.policies.iter().map(Policy::of).collect(),
        sections: raw.sections.clone(),
        memo: Arc::default(),
    };
    check_held_keys(&config, &raw.upstreams, problems);
    check_sections(&config, &raw.sections, "", problems);
    contradictions(&raw.sections, "", problems);
    check_policies(&config, raw, problems);
    check_tools(&config, &raw.sections, problems);
    check_names(&config, raw, problems);
    config
}

fn server(keys: &ServerKeys, problems: &mut Problems) -> Server {
    let listen = or(&keys.listen, defaults::LISTEN.into());
    let admin_listen = or(&keys.admin_listen, defaults::ADMIN_LISTEN.into());
    let max_body = or(&keys.max_body_bytes, ByteSize(defaults::MAX_BODY));
    let max_buffered = or(&keys.max_buffered_bytes, ByteSize(defaults::MAX_BUFFERED));
    if max_body > max_buffered {
        let at = at(&keys.max_body_bytes).or(at(&keys.max_buffered_bytes));
        problems.add(at, "server.max_body_bytes", "must not be larger than max_buffered_bytes");
    }
    if !admin_listen.ip().is_loopback() && keys.admin_token.is_none() {
        problems.add(at(&keys.admin_listen), "server.admin_listen", "is no loopback address: set admin_token as well");
    }
    if overlap(listen, admin_listen) {
        let at = at(&keys.admin_listen).or(at(&keys.listen));
        problems.add(at, "server.admin_listen", "is the same address as listen");
    }
    Server {
        listen,
        admin_listen,
        admin_token: given(&keys.admin_token),
        max_body_bytes: bytes(max_body),
        max_buffered_bytes: bytes(max_buffered),
        drain_timeout: or(&keys.drain_timeout, defaults::DRAIN_TIMEOUT),
        tls: tls(keys),
    }
}

/// Whether two listeners cannot have both addresses: an unspecified one stands for all.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let same = one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    same && one.port() == other.port() && one.port() != 0
}

/// Both files, or none: one alone was reported when it was read.
fn tls(keys: &ServerKeys) -> Option<Tls> {
    let tls = &keys.tls.as_ref()?.value;
    let (CertificateFile(cert), KeyFile(key)) = (given(&tls.cert)?, given(&tls.key)?);
    Some(Tls { cert, key })
}

fn upstreams(list: &[UpstreamKeys], problems: &mut Problems) -> Vec<Arc<Upstream>> {
    if list.is_empty() {
        return shipped_upstreams();
    }
    let mut upstreams: Vec<Arc<Upstream>> = Vec::with_capacity(list.len());
    for keys in list {
        let Some(upstream) = upstream(keys, problems) else { continue };
        if upstreams.iter().any(|other| other.name == upstream.name) {
            problems.add(at(&keys.name), "upstream.name", "is the name of another upstream");
        }
        if upstream.prefix.is_some() && upstreams.iter().any(|other| other.prefix == upstream.prefix) {
            problems.add(at(&keys.prefix), "upstream.prefix", "is the prefix of another upstream");
        }
        upstreams.push(Arc::new(upstream));
    }
    upstreams
}

/// The upstream, unless it lacks a key without which it is none (that was reported when it was read).
fn upstream(keys: &UpstreamKeys, problems: &mut Problems) -> Option<Upstream> {
    for (key, timeout) in [
        ("upstream.connect_timeout", &keys.connect_timeout),
        ("upstream.response_timeout", &keys.response_timeout),
        ("upstream.idle_timeout", &keys.idle_timeout),
    ] {
        not_zero(key, timeout, problems);
    }
    Some(Upstream {
        name: given(&keys.name)?.0,
        base_url: given(&keys.base_url)?.0,
        prefix: given(&keys.prefix).map(|prefix| prefix.0),
        api: or(&keys.api, Api::Auto),
        api_key: given(&keys.api_key),
        ca_file: given(&keys.ca_file).map(|file| file.0),
        connect_timeout: or(&keys.connect_timeout, defaults::CONNECT_TIMEOUT),
        response_timeout: or(&keys.response_timeout, defaults::RESPONSE_TIMEOUT),
        idle_timeout: or(&keys.idle_timeout, defaults::IDLE_TIMEOUT),
    })
}

/// The two upstreams of the shipped file.
fn shipped_upstreams() -> Vec<Arc<Upstream>> {
    let shipped = |name: &str, base_url: &'static str, api| {
        Arc::new(Upstream {
            name: name.into(),
            base_url: http::Uri::from_static(base_url),
            prefix: None,
            api,
            api_key: None,
            ca_file: None,
            connect_timeout: defaults::CONNECT_TIMEOUT,
            response_timeout: defaults::RESPONSE_TIMEOUT,
            idle_timeout: defaults::IDLE_TIMEOUT,
        })
    };
    vec![
        shipped("openai", "https://api.openai.com/v1", Api::Openai),
        shipped("anthropic", "https://api.anthropic.com", Api::Anthropic),
    ]
}

fn state(keys: &StateKeys, problems: &mut Problems) -> State {
    not_zero("state.retention", &keys.retention, problems);
    State {
        url: given(&keys.url).map_or_else(|| defaults::STATE_URL.into(), |url| url.0),
        tenant: or(&keys.tenant, TenantRule::Credential),
        retention: or(&keys.retention, defaults::RETENTION),
        max_size: or(&keys.max_size, ByteSize(defaults::MAX_STATE)).0,
    }
}

fn window_rule(keys: &WindowKeys, problems: &mut Problems) -> Option<WindowRule> {
    let (input, total) = (given(&keys.input).map(u64::from), given(&keys.total).map(u64::from));
    if input.zip(total).is_some_and(|(input, total)| input > total) {
        problems.add(at(&keys.input), "window.input", "must not be larger than total");
    }
    Some(WindowRule {
        model: given(&keys.model).unwrap_or_else(|| "*".into()),
        upstream: given(&keys.upstream),
        input,
        total,
    })
}

/// Whoever reaches the listener would use the proxy's own key: one tenant for strangers, unless a rule says so.
fn check_held_keys(config: &Config, list: &[UpstreamKeys], problems: &mut Problems) {
    if config.server.listen.ip().is_loopback() || config.state.tenant != TenantRule::Credential {
        return;
    }
    for held in list.iter().filter_map(|keys| keys.api_key.as_ref()) {
        let held: &Set<Secret> = held;
        let message = "the proxy holds this key and server.listen is no loopback address: its clients have no credential \
                       of their own to tell them apart; set state.tenant to \"header:NAME\" or \"single\"";
        problems.add(held.at, "upstream.api_key", message);
    }
}

/// What one table of sections (the file's own, or a policy's) cannot mean together with the rest.
fn check_sections(config: &Config, own: &Sections, path: &str, problems: &mut Problems) {
    let resolved = strategies_of(&own.over(&config.sections));
    if own.recovery.is_on() && resolved.compaction.is_none() {
        let at = own.recovery.on.as_ref().and_then(|on| on.at);
        problems.add(at, format!("{path}overflow_recovery"), "needs [compaction]: recovery compacts");
    }
    let Some(named) = &own.compaction.keys.upstream else { return };
    let message = match config.upstreams.iter().find(|upstream| upstream.name == named.value) {
        _ if named.value.is_empty() => return,
        None => "names no [[upstream]]",
        Some(upstream) if upstream.api_key.is_none() => {
            "that upstream has no api_key for the proxy's own calls (any text, if it needs none)"
        }
        Some(_) => return,
    };
    problems.add(named.at, format!("{path}compaction.upstream"), message);
}

/// Tools read what something else keeps.
fn check_tools(config: &Config, sections: &Sections, problems: &mut Problems) {
    if config.strategies.tools.is_some() && !config.compacts() {
        let section = sections.tools.on.as_ref().and_then(|on| on.at);
        problems.add(section, "tools", "has nothing to read: no section is on that keeps anything");
    }
}

/// Each policy over the base, and each two that can match together: a contradiction is between two keys,
/// so what three policies could contradict, two of them do.
fn check_policies(config: &Config, raw: &RawConfig, problems: &mut Problems) {
    for (index, policy) in config.policies.iter().enumerate() {
        if let Some(mcp) = &policy.sections.tools.keys.mcp {
            problems.add(mcp.at, "policy.tools.mcp", "is not a matter of single requests: set it in [tools]");
        }
        check_sections(config, &policy.sections, "policy.", problems);
        contradictions(&policy.sections.over(&raw.sections), "policy.", problems);
        for other in config.policies.iter().skip(index + 1).filter(|other| policy.meets(other)) {
            contradictions(&overlaid([policy, other].into_iter(), &raw.sections), "policy.", problems);
        }
    }
}

/// Names of upstreams that policies and windows speak of.
fn check_names(config: &Config, raw: &RawConfig, problems: &mut Problems) {
    let windows = raw.windows.iter().map(|window| ("window.upstream", &window.upstream));
    let policies = raw.policies.iter().map(|policy| ("policy.match.upstream", &policy.matches.upstream));
    for (key, named) in windows.chain(policies) {
        let Some(named) = named else { continue };
        if !config.upstreams.iter().any(|upstream| super::glob(&named.value, &upstream.name)) {
            problems.add(named.at, key, "names no [[upstream]]");
        }
    }
}

fn not_zero(key: &str, set: &Option<Set<std::time::Duration>>, problems: &mut Problems) {
    if let Some(set) = set.as_ref().filter(|set| set.value.is_zero()) {
        problems.add(set.at, key, "must be longer than nothing");
    }
}

fn at<T>(set: &Option<Set<T>>) -> Option<usize> {
    set.as_ref().and_then(|set| set.at)
}
