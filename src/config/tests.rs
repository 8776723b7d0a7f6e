//! The configuration as a whole: the shipped file, what is on, what is printed. Contradictions are in
//! `tests/contradictions.rs`, policies in `tests/overrides.rs`, certificates in `tests/files.rs`.

mod contradictions;
mod files;
mod overrides;

use std::collections::BTreeSet;

use super::raw::{
    AnthropicKeys, CompactionKeys, EvictionKeys, HeaderKeys, Keys, MatchKeys, MemoryKeys, OTHERS, PruneKeys,
    RecoveryKeys, SECTIONS, ServerKeys, SessionKeys, StateKeys, TlsKeys, ToolKeys, TruncateKeys, UpstreamKeys,
    WindowKeys,
};
use super::*;

/// All strategies on, by their defaults.
const ALL_ON: &str =
    "[tool_result_eviction]\n[truncate_args]\n[prune]\n[compaction]\n[overflow_recovery]\n[tools]\n[sessions]\n";

fn parse(text: &str) -> Config {
    Config::parse(text, &|_| None).unwrap_or_else(|problems| panic!("{problems}\n{text}"))
}

fn problems(text: &str) -> Problems {
    Config::parse(text, &|_| None).err().unwrap_or_else(|| panic!("accepted:\n{text}"))
}

/// Everything but the base sections' own spelling.
#[track_caller]
fn assert_same(left: &Config, right: &Config) {
    assert_eq!(left.server, right.server);
    assert_eq!(left.upstreams, right.upstreams);
    assert_eq!(left.state, right.state);
    assert_eq!(left.strategies, right.strategies);
    assert_eq!(left.windows, right.windows);
    assert_eq!(left.policies, right.policies);
}

#[test]
fn the_shipped_file_shows_the_defaults() {
    assert_same(&Config::shipped().expect("shipped"), &parse(ALL_ON));
}

/// The shipped file with its commented keys and tables uncommented.
fn uncommented() -> String {
    let is_key = |rest: &str| {
        let name = rest.split(" = ").next().unwrap_or_default();
        rest.contains(" = ") && !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
    };
    let line = |line: &'static str| match line.strip_prefix("# ") {
        Some(rest) if rest.starts_with('[') || is_key(rest) => rest,
        _ => line,
    };
    SHIPPED.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn key_names(value: &toml::Value, names: &mut BTreeSet<String>) {
    match value {
        toml::Value::Table(table) => table.iter().for_each(|(name, value)| {
            names.insert(name.clone());
            key_names(value, names);
        }),
        toml::Value::Array(values) => values.iter().for_each(|value| key_names(value, names)),
        _ => {}
    }
}

#[test]
fn the_shipped_file_names_every_key_and_no_other() {
    let file: toml::Value = uncommented().parse::<toml::Table>().expect("uncommented").into();
    let mut shown = BTreeSet::new();
    key_names(&file, &mut shown);
    let tables = [
        ServerKeys::NAMES,
        TlsKeys::NAMES,
        UpstreamKeys::NAMES,
        StateKeys::NAMES,
        EvictionKeys::NAMES,
        TruncateKeys::NAMES,
        PruneKeys::NAMES,
        CompactionKeys::NAMES,
        RecoveryKeys::NAMES,
        AnthropicKeys::NAMES,
        ToolKeys::NAMES,
        MemoryKeys::NAMES,
        SessionKeys::NAMES,
        WindowKeys::NAMES,
        MatchKeys::NAMES,
        HeaderKeys::NAMES,
        &OTHERS,
        &SECTIONS,
        &["match", "mode"],
    ];
    let known: BTreeSet<String> = tables.into_iter().flatten().map(|name| (*name).to_owned()).collect();
    assert_eq!(shown, known);
    let unknown = Config::parse(&uncommented(), &|_| Some("v".into())).err();
    let unknown = unknown.iter().flat_map(Problems::iter).find(|problem| problem.message.contains("not known"));
    assert_eq!(unknown, None, "a key stands in a table that does not have it");
}

#[test]
fn an_empty_file_is_a_transparent_proxy_to_the_shipped_upstreams() {
    let (empty, shipped) = (parse(""), Config::shipped().expect("shipped"));
    assert_eq!(*empty.strategies, Strategies::default());
    assert_eq!(empty.upstreams, shipped.upstreams);
    assert_eq!((&empty.server, &empty.state), (&shipped.server, &shipped.state));
}

#[test]
fn every_combination_of_sections_stands_for_itself() {
    for on in 0..1_u32 << SECTIONS.len() {
        let is_on = |i: usize| on & (1 << i) != 0;
        let text: String =
            SECTIONS.iter().enumerate().filter(|(i, _)| is_on(*i)).map(|(_, name)| format!("[{name}]\n")).collect();
        if is_on(4) && !is_on(3) {
            assert!(problems(&text).to_string().contains("overflow_recovery: needs [compaction]"), "{text}");
            continue;
        }
        if is_on(6) && !is_on(7) && !is_on(8) && !(0..4).any(is_on) {
            assert!(problems(&text).to_string().contains("tools: has nothing to read"), "{text}");
            continue;
        }
        let config = parse(&text);
        let all = parse(ALL_ON).strategies;
        let expected = Strategies {
            eviction: all.eviction.clone().filter(|_| is_on(0)),
            truncate: all.truncate.clone().filter(|_| is_on(1)),
            prune: all.prune.clone().filter(|_| is_on(2)),
            compaction: all.compaction.clone().filter(|_| is_on(3)),
            recovery: is_on(3),
            observe: false,
            signed_thinking: SignedThinking::Kept,
            tools: all.tools.clone().filter(|_| is_on(6)),
            memory: parse("[memory]").strategies.memory.clone().filter(|_| is_on(7)),
            log: is_on(8),
        };
        assert_eq!(*config.strategies, expected, "{text}");
        assert_same(&parse(&config.to_string()), &config);
    }
}

#[test]
fn recovery_is_compactions_unless_it_is_switched_off() {
    assert!(parse("[compaction]").strategies.recovery);
    assert!(!parse("[compaction]\n[overflow_recovery]\nenabled = false").strategies.recovery);
}

#[test]
fn pages_of_tools_are_not_evicted_themselves() {
    let page = |keys: &str| {
        parse(&format!("[tool_result_eviction]\n{keys}\n[tools]")).strategies.tools.clone().map(|t| t.page_chars)
    };
    let low = "preview_chars = 10\nmax_result_chars = 2_000\n";
    assert_eq!(page(""), Some(16_000));
    assert_eq!(page(low), Some(8_000), "four times the limit of others");
    assert_eq!(page(&format!("{low}excluded_tools = []")), Some(2_000));
    assert_eq!(page(&format!("{low}excluded_limit_factor = 0")), Some(16_000));
    assert_eq!(page("preview_chars = 1\nmax_result_chars = 30"), Some(1_000), "the least");
    // Four bytes a character, and a token each, in the worst of all texts.
    assert_eq!(page("max_result_tokens = 10_000"), Some(10_000));
    assert_eq!(page("max_result_tokens = 10_000\nexcluded_tools = []"), Some(2_500));
    assert_eq!(page("max_result_tokens = 10_000\nexcluded_limit_factor = 0"), Some(16_000));
}

#[test]
fn the_tail_goes_by_messages_where_no_number_of_tokens_is_set() {
    let keep = |keys: &str| parse(&format!("[compaction]\n{keys}")).strategies.compaction.as_ref().map(|c| c.keep);
    assert_eq!(keep(""), Some(Keep::Tokens(Auto::Auto)));
    assert_eq!(keep("keep_messages = 10\ntrigger_messages = 30"), Some(Keep::Messages(10)));
    assert_eq!(keep("keep_messages = 10\nkeep_tokens = \"auto\""), Some(Keep::Messages(10)));
    assert_eq!(keep("keep_messages = 10\nkeep_tokens = 5_000"), Some(Keep::Tokens(Auto::Fixed(5_000))));
}

/// A file that uses every kind of value.
fn full(prompt: &std::path::Path) -> String {
    format!(
        r#"
        [server]
        listen = "[::1]:0"
        admin_listen = "127.0.0.1:0"
        max_body_bytes = 1_000_001
        drain_timeout = "1500ms"
        [[upstream]]
        name = "a.b_c-1"
        base_url = "http://127.0.0.1:9/deep/v1/"
        prefix = "/a/"
        api = "chat"
        api_key = "***"
        idle_timeout = "36h"
        [state]
        url = "sqlite://x y$$z.db"
        tenant = "header:X-User"
        max_size = "1500MB"
        [tool_result_eviction]
        max_result_tokens = 0x100
        excluded_tools = []
        workspace_dir = "/tmp/$${{x}}"
        [truncate_args]
        truncation_text = '"{{n}}"\ {{id}}'
        trigger_tokens = 0
        [compaction]
        keep_messages = 7
        trigger_messages = 14
        upstream = "a.b_c-1"
        model = "m"
        summary_prompt_file = '{}'
        [tools]
        inject = "never"
        scope = "tenant"
        page_chars = 1_000
        mcp = false
        [[window]]
        model = "m*"
        input = 8192
        [[window]]
        upstream = "a*"
        total = 9000
        [[policy]]
        match = {{ header = {{ name = "X-Team" }}, path = "/v1/*" }}
        mode = "observe"
        compaction = {{ keep_tokens = 500, trigger_tokens = 600 }}
        prune = {{}}
        truncate_args = false
        [[policy]]
        match.model = "m"
        overflow_recovery.enabled = false
        anthropic.prefix_mismatch = "drop_block"
        tools = {{ inject = "always", scope = "agent" }}
        "#,
        prompt.display()
    )
}

#[test]
fn what_is_printed_reads_back_as_the_same() {
    let dir = tempfile::tempdir().expect("dir");
    let prompt = dir.path().join("prompt");
    std::fs::write(&prompt, "Sum up: {messages}").expect("prompt");
    for text in [SHIPPED.to_owned(), String::new(), ALL_ON.to_owned(), full(&prompt)] {
        let config = parse(&text);
        let printed = config.to_string();
        let again = parse(&printed);
        assert_same(&again, &config);
        assert_eq!(again.to_string(), printed);
    }
}

#[test]
fn variables_come_from_the_environment_and_secrets_do_not_show() {
    let text = "[server]\nadmin_token = \"t-${KEY}\"\n[[upstream]]\nname = \"${NAME}\"\nbase_url = \"http://h\"\n\
                api_key = \"${KEY}\"";
    let env = |name: &str| match name {
        "KEY" => Some("hush-hush".to_owned()),
        "NAME" => Some("named".to_owned()),
        _ => None,
    };
    let config = Config::parse(text, &env).expect("parses");
    let upstream = config.upstreams.first().expect("one");
    assert_eq!(upstream.name, "named");
    assert_eq!(upstream.api_key.as_ref().map(Secret::expose), Some("hush-hush"));
    assert_eq!(config.server.admin_token.as_ref().map(Secret::expose), Some("t-hush-hush"));
    let shown = format!("{config}{config:?}");
    assert!(shown.contains("api_key = \"***\"") && !shown.contains("hush"), "{shown}");

    let unset = problems(text).to_string();
    assert_eq!(unset.lines().count(), 3, "{unset}");
    assert!(unset.contains("proxy.toml:2: server.admin_token: the environment variable KEY is not set"), "{unset}");
    assert!(unset.contains("proxy.toml:4: upstream.name: the environment variable NAME is not set"), "{unset}");
    assert!(unset.contains("proxy.toml:6: upstream.api_key:"), "{unset}");

    let misplaced = "[server]\nlisten = \"${KEY}\"\n[[upstream]]\nname = \"a\"\nbase_url = \"${KEY}\"\napi = \"${KEY}\"\n\
                     [state]\nurl = \"${KEY}\"\ntenant = \"${KEY}\"\nretention = \"${KEY}\"";
    let problems = Config::parse(misplaced, &env).expect_err("no value fits").to_string();
    assert_eq!(problems.lines().count(), 6, "{problems}");
    assert!(!problems.contains("hush"), "{problems}");
}
