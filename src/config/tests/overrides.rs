//! Policies and window rules: the first match per key wins.

use super::*;
use http::{HeaderMap, HeaderValue};

fn strategies(config: &Config, model: &str, headers: &HeaderMap) -> Arc<Strategies> {
    config.strategies(&Subject { model, upstream: "openai", path: "/v1/chat/completions", headers })
}

fn trigger(strategies: &Strategies) -> Option<Auto> {
    strategies.compaction.as_ref().map(|settings| settings.trigger_tokens)
}

#[test]
fn without_policies_the_base_is_shared() {
    let config = parse(ALL_ON);
    assert!(Arc::ptr_eq(&strategies(&config, "m", &HeaderMap::new()), &config.strategies));
}

#[test]
fn the_first_match_wins_key_by_key() {
    let config = parse(
        "[compaction]\nreserved_tokens = 1\n[prune]\n\
         [[policy]]\nmatch = { model = \"gpt-4o*\" }\ncompaction = { trigger_tokens = 60_000 }\nprune = false\n\
         [[policy]]\nmatch = { model = \"gpt-*\" }\nmode = \"observe\"\n\
         compaction = { trigger_tokens = 70_000, keep_tokens = 9 }\nprune = { max_output_chars = 5 }",
    );
    let none = HeaderMap::new();
    let both = strategies(&config, "gpt-4o-mini", &none);
    let settings = both.compaction.as_ref().expect("on");
    assert_eq!(settings.trigger_tokens, Auto::Fixed(60_000), "the first policy's");
    assert_eq!(settings.keep, Keep::Tokens(Auto::Fixed(9)), "the second policy's");
    assert_eq!(settings.reserved_tokens, 1, "the base's");
    assert!(both.prune.is_none() && both.observe && both.recovery);

    let second = strategies(&config, "gpt-5", &none);
    assert_eq!(trigger(&second), Some(Auto::Fixed(70_000)));
    assert_eq!(second.prune.as_ref().map(|prune| prune.max_output_chars), Some(5));
    assert!(Arc::ptr_eq(&strategies(&config, "other", &none), &config.strategies));
    assert!(Arc::ptr_eq(&strategies(&config, "gpt-6", &none), &second), "the same policies, resolved once");
}

#[test]
fn a_policy_switches_sections_on_and_off() {
    let config = parse(
        "[compaction]\n[overflow_recovery]\n\
         [[policy]]\nmatch.model = \"a\"\ncompaction = false\ntool_result_eviction = { max_result_chars = 5000 }\n\
         [[policy]]\nmatch.model = \"b\"\noverflow_recovery = false\n\
         [[policy]]\nmatch.model = \"c\"\noverflow_recovery.enabled = false\n\
         [[policy]]\nmatch.model = \"c\"\nmode = \"active\"\n\
         [[policy]]\nmode = \"observe\"",
    );
    let none = HeaderMap::new();
    let a = strategies(&config, "a", &none);
    assert!(a.compaction.is_none() && !a.recovery && a.observe);
    assert_eq!(a.eviction.as_ref().map(|e| (e.max_result_chars, e.preview_chars)), Some((5000, 2000)));
    let (b, c) = (strategies(&config, "b", &none), strategies(&config, "c", &none));
    assert!(b.compaction.is_some() && !b.recovery && b.observe);
    assert!(c.compaction.is_some() && !c.recovery && !c.observe);
    assert!(config.strategies.recovery && !config.strategies.observe);
}

fn subject<'a>(model: &'a str, upstream: &'a str, path: &'a str, headers: &'a HeaderMap) -> Subject<'a> {
    Subject { model, upstream, path, headers }
}

#[test]
fn every_condition_must_hold() {
    let config = parse(
        "[[policy]]\nmatch = { model = \"m*\", upstream = \"open*\", path = \"/v1/*\", header = { name = \"X-Team\", value = \"a*\" } }\n\
         prune = {}",
    );
    let mut headers = HeaderMap::new();
    headers.append("x-team", HeaderValue::from_static("beta"));

    assert!(config.strategies(&subject("m", "openai", "/v1/x", &headers)).prune.is_none(), "no value matches");
    headers.append("x-team", HeaderValue::from_static("alpha"));
    assert!(config.strategies(&subject("m", "openai", "/v1/x", &headers)).prune.is_some());
    assert!(config.strategies(&subject("n", "openai", "/v1/x", &headers)).prune.is_none());
    assert!(config.strategies(&subject("m", "anthropic", "/v1/x", &headers)).prune.is_none());
    assert!(config.strategies(&subject("m", "openai", "/v2/x", &headers)).prune.is_none());
    assert!(config.strategies(&subject("m", "openai", "/v1/x", &HeaderMap::new())).prune.is_none());
}

#[test]
fn windows_are_found_key_by_key() {
    let config = parse(
        "[[window]]\nmodel = \"my-model-8k\"\ninput = 8192\n[[window]]\nmodel = \"my-model*\"\nupstream = \"openai\"\n\
         input = 32_768\ntotal = 40_000",
    );
    let limits = |input, total| WindowLimits { input, total };
    assert_eq!(config.window("my-model-8k", "openai"), limits(Some(8192), Some(40_000)));
    assert_eq!(config.window("my-model-8k", "anthropic"), limits(Some(8192), None));
    assert_eq!(config.window("my-model", "openai"), limits(Some(32_768), Some(40_000)));
    assert_eq!(config.window("gpt", "openai"), limits(None, None));
}

#[test]
fn remembered_combinations_are_bounded() {
    let policies: String = (0..11)
        .map(|i| format!("[[policy]]\nmatch.header.name = \"x-{i}\"\nprune = {{ max_output_chars = {} }}\n", i + 1))
        .collect();
    let config = parse(&policies);
    // The empty combination needs no memory, so this is one more than fits.
    for combination in 0..=policy::MEMO_ENTRIES + 1 {
        let mut headers = HeaderMap::new();
        for i in (0..11).filter(|i| combination & (1 << i) != 0) {
            headers.insert(http::HeaderName::try_from(format!("x-{i}")).expect("name"), HeaderValue::from_static(""));
        }
        let first = (0..11).find(|i| combination & (1 << i) != 0);
        let prune = strategies(&config, "m", &headers).prune.as_ref().map(|prune| prune.max_output_chars);
        assert_eq!(prune, first.map(|i| i + 1), "combination {combination}");
    }
    assert_eq!(config.memo.len(), policy::MEMO_ENTRIES);
}
