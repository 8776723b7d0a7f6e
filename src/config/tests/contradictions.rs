//! What is refused: each with its line and key, and all of it at once.

use super::*;

/// A file, and the line, key and words of the one problem it has.
const REFUSED: &[(&str, usize, &str, &str)] = &[
    // Unknown keys and tables.
    ("\n[compaction]\nkeep_token = 5", 3, "compaction.keep_token", "did you mean `keep_tokens`?"),
    ("[compactoin]", 1, "compactoin", "did you mean `compaction`?"),
    ("[memory]\nmodel = \"m\"", 2, "memory.model", "not known"),
    ("[compaction]\nflush_before_compact = 1", 2, "compaction.flush_before_compact", "true or false"),
    ("[[policy]]\n[policy.match]\nmodle = \"m\"", 3, "policy.match.modle", "did you mean `model`?"),
    ("[[policy]]\nserver = {}", 2, "policy.server", "not known"),
    ("[[policy]]\ncompaction = { keep = 5 }", 2, "policy.compaction.keep", "not known"),
    // Types.
    ("[compaction]\ntrigger_tokens = \"many\"", 2, "compaction.trigger_tokens", "\"auto\""),
    ("[compaction]\ntrigger_tokens = 1.5", 2, "compaction.trigger_tokens", "a fraction"),
    ("[compaction]\noffload_before_compact = 1", 2, "compaction.offload_before_compact", "true or false"),
    ("[compaction]\nreserved_tokens = -1", 2, "compaction.reserved_tokens", "negative"),
    ("[compaction]\nreserved_tokens = 99999999999999999999", 2, "compaction.reserved_tokens", "range"),
    ("[tool_result_eviction]\nexcluded_tools = [\n\"a\",\n5]", 4, "tool_result_eviction.excluded_tools", "a string"),
    ("[tool_result_eviction]\nmax_result_tokens = 199", 2, "tool_result_eviction.max_result_tokens", "at least 200"),
    ("[tool_result_eviction]\nexcluded_tools = \"a\"", 2, "tool_result_eviction.excluded_tools", "a list"),
    ("compaction = false", 1, "compaction", "expected a table"),
    ("[upstream]\nname = \"a\"", 1, "upstream", "[[upstream]]"),
    ("[[policy]]\ncompaction = true", 2, "policy.compaction", "or false"),
    ("[[policy]]\nmode = \"off\"", 2, "policy.mode", "\"observe\""),
    ("[prune]\n[tools]\ninject = \"sometimes\"", 3, "tools.inject", "\"always\""),
    ("[prune]\n[tools]\nscope = \"all\"", 3, "tools.scope", "\"tenant\""),
    ("[prune]\n[tools]\nmcp = \"on\"", 3, "tools.mcp", "true or false"),
    // Tools.
    ("\n[tools]", 2, "tools", "nothing to read"),
    ("[prune]\n[tools]\npage_chars = 999", 3, "tools.page_chars", "from 1000 to 100000"),
    ("[prune]\n[tools]\npage_chars = 100_001", 3, "tools.page_chars", "from 1000 to 100000"),
    ("[prune]\n[tools]\nmax_rounds = 0", 3, "tools.max_rounds", "at least 1"),
    ("[prune]\n[tools]\nmax_rounds = 21", 3, "tools.max_rounds", "at most 20"),
    (
        "[tool_result_eviction]\nmax_result_chars = 5_000\n[tools]\npage_chars = 20_001",
        4,
        "tools.page_chars",
        "20000 fit",
    ),
    (
        "[tool_result_eviction]\nmax_result_tokens = 5_000\n[tools]\npage_chars = 5_001",
        4,
        "tools.page_chars",
        "5000 fit",
    ),
    ("[prune]\n[tools]\n[[policy]]\ntools = { mcp = false }", 4, "policy.tools.mcp", "set it in [tools]"),
    // Sizes, durations, addresses.
    ("[server]\nmax_body_bytes = \"64 megs\"", 2, "server.max_body_bytes", "64MiB"),
    ("[server]\nmax_body_bytes = 0", 2, "server.max_body_bytes", "at least 1"),
    ("[server]\ndrain_timeout = 30", 2, "server.drain_timeout", "30s"),
    ("[server]\nlisten = \"localhost\"", 2, "server.listen", "127.0.0.1:8787"),
    ("[state]\nretention = \"0d\"", 2, "state.retention", "longer"),
    ("[state]\nurl = \"postgres://h/d\"", 2, "state.url", "not in this version"),
    ("[state]\nurl = \"redis://h\"", 2, "state.url", "sqlite"),
    ("[state]\ntenant = \"header:a b\"", 2, "state.tenant", "header name"),
    ("[[policy]]\nmatch = { header = { name = \"a b\" } }", 2, "policy.match.header.name", "header name"),
    // Limits of zero.
    ("[tool_result_eviction]\nmax_result_chars = 0", 2, "tool_result_eviction.max_result_chars", "at least 1"),
    ("[tool_result_eviction]\nmax_result_tokens = 0", 2, "tool_result_eviction.max_result_tokens", "at least 1"),
    ("[truncate_args]\nmax_arg_length = 0", 2, "truncate_args.max_arg_length", "at least 1"),
    ("[prune]\nmax_output_chars = 0", 2, "prune.max_output_chars", "at least 1"),
    ("[compaction]\nkeep_tokens = 0", 2, "compaction.keep_tokens", "at least 1"),
    ("[compaction]\nkeep_messages = 0", 2, "compaction.keep_messages", "at least 1"),
    ("[[window]]\nmodel = \"m\"\ninput = 0", 3, "window.input", "at least 1"),
    // Memory.
    ("[memory]\nmax_tokens = 0", 2, "memory.max_tokens", "at least 1"),
    ("[memory]\nmax_tokens = 32001", 2, "memory.max_tokens", "at most 32000"),
    ("[memory]\narchive_after = \"23h\"", 2, "memory.archive_after", "at least 1d"),
    ("[memory]\nconsolidate_gap = \"0s\"", 2, "memory.consolidate_gap", "at least 30m"),
    ("[memory]\nconsolidate_gap = \"1799s\"", 2, "memory.consolidate_gap", "at least 30m"),
    // Listeners.
    ("[server]\nadmin_listen = \"0.0.0.0:8788\"", 2, "server.admin_listen", "admin_token"),
    ("[server]\nadmin_listen = \"127.0.0.1:8787\"", 2, "server.admin_listen", "same address"),
    ("[server]\nmax_body_bytes = \"300MiB\"", 2, "server.max_body_bytes", "max_buffered_bytes"),
    ("[server]\nlisten = \"0.0.0.0:8788\"", 2, "server.admin_listen", "same address"),
    ("[server]\nlisten = \"[::]:9\"\nadmin_listen = \"127.0.0.1:9\"", 3, "server.admin_listen", "same address"),
    // Upstreams.
    ("[[upstream]]\nname = \"a\"", 1, "upstream.base_url", "missing"),
    ("[[upstream]]\nname = \"a\"\nbase_url = \"http://u:p@h\"", 3, "upstream.base_url", "credentials"),
    ("[[upstream]]\nname = \"a\"\nbase_url = \"http://h/?k=1\"", 3, "upstream.base_url", "query"),
    (
        "[[upstream]]\nname = \"a\"\nbase_url = \"http://h\"\nca_file = \"gone.pem\"",
        4,
        "upstream.ca_file",
        "cannot be read",
    ),
    (
        "[[upstream]]\nname = \"a\"\nbase_url = \"http://h\"\nconnect_timeout = \"0s\"",
        4,
        "upstream.connect_timeout",
        "longer",
    ),
    ("[[upstream]]\nname = \"a\"\nbase_url = \"http://h\"\napi_key = \"\"", 4, "upstream.api_key", "empty"),
    ("[[upstream]]\nname = \"a\"\nbase_url = \"http://h\"\napi = \"gemini\"", 4, "upstream.api", "\"messages\""),
    (
        "[[upstream]]\nname = \"a\"\nbase_url = \"http://h\"\n[[upstream]]\nname = \"a\"\nbase_url = \"http://i\"",
        5,
        "upstream.name",
        "another upstream",
    ),
    (
        "[[upstream]]\nname = \"a\"\nbase_url = \"http://h\"\nprefix = \"/p\"\n\
         [[upstream]]\nname = \"b\"\nbase_url = \"http://i\"\nprefix = \"/p/\"",
        8,
        "upstream.prefix",
        "another upstream",
    ),
    (
        "[server]\nlisten = \"0.0.0.0:8787\"\n[[upstream]]\nname = \"a\"\nbase_url = \"http://h\"\napi_key = \"k\"",
        6,
        "upstream.api_key",
        "state.tenant",
    ),
    // Strategies.
    ("\n[overflow_recovery]", 2, "overflow_recovery", "needs [compaction]"),
    ("[overflow_recovery]\nenabled = false", 1, "overflow_recovery", "needs [compaction]"),
    (
        "[tool_result_eviction]\nmax_result_chars = 4000",
        2,
        "tool_result_eviction.max_result_chars",
        "2000 characters each",
    ),
    ("[tool_result_eviction]\npreview_chars = 40_000", 2, "tool_result_eviction.preview_chars", "80000"),
    ("[tool_result_eviction]\nexcluded_tools = [\"\"]", 2, "tool_result_eviction.excluded_tools", "empty"),
    ("[truncate_args]\nkeep_messages = 25", 2, "truncate_args.keep_messages", "trigger_messages"),
    ("[truncate_args]\ntrigger_messages = 20", 2, "truncate_args.trigger_messages", "20 >= 20"),
    ("[truncate_args]\ntruncation_text = \"{n}\"", 2, "truncate_args.truncation_text", "{id}"),
    ("[truncate_args]\ntruncation_text = \"{id}\"", 2, "truncate_args.truncation_text", "{n}"),
    ("[truncate_args]\nmax_arg_length = 100", 2, "truncate_args.max_arg_length", "do not fit"),
    ("[compaction]\ntrigger_tokens = 5\nkeep_tokens = 5", 3, "compaction.keep_tokens", "trigger_tokens (5 >= 5)"),
    (
        "[compaction]\ntrigger_messages = 9\nkeep_messages = 10",
        3,
        "compaction.keep_messages",
        "at most 4, half of trigger_messages",
    ),
    ("[compaction]\ntrigger_messages = 30\nkeep_messages = 16", 3, "compaction.keep_messages", "at most 15"),
    ("[compaction]\nupstream = \"other\"", 2, "compaction.upstream", "names no [[upstream]]"),
    ("[compaction]\nupstream = \"openai\"", 2, "compaction.upstream", "has no api_key"),
    ("[compaction]\nsummary_prompt_file = \"gone\"", 2, "compaction.summary_prompt_file", "cannot be read"),
    ("[compaction]\nsummary_prompt_file = \"Cargo.toml\"", 2, "compaction.summary_prompt_file", "{messages}"),
    // Windows and policies.
    ("[[window]]\ninput = 10\ntotal = 9", 2, "window.input", "total"),
    ("[[window]]\nupstream = \"gone\"\ninput = 9", 2, "window.upstream", "names no [[upstream]]"),
    ("[[window]]\nmodel = \"m\"", 1, "window", "set input, total or both"),
    ("[[policy]]\nmatch = { upstream = \"gone*\" }", 2, "policy.match.upstream", "names no [[upstream]]"),
    ("[[policy]]\nmatch = { header = { value = \"a\" } }", 2, "policy.match.header.name", "missing"),
    ("[[policy]]\noverflow_recovery = {}", 2, "policy.overflow_recovery", "needs [compaction]"),
    (
        "[truncate_args]\n[[policy]]\ntruncate_args = { keep_messages = 30 }",
        3,
        "policy.truncate_args.keep_messages",
        "30 >= 25",
    ),
    ("[[policy]]\ncompaction = { upstream = \"gone\" }", 2, "policy.compaction.upstream", "names no [[upstream]]"),
    (
        "[[policy]]\nmatch = { model = \"a*\" }\ncompaction = { keep_tokens = 50 }\n\
         [[policy]]\nmatch = { model = \"*b\" }\ncompaction = { trigger_tokens = 40 }",
        3,
        "policy.compaction.keep_tokens",
        "50 >= 40",
    ),
    // Syntax.
    ("[compaction]\nkeep_tokens = 5 6", 2, "", ""),
    ("[compaction]\n[compaction]", 2, "", "duplicate"),
];

#[test]
fn each_is_refused_with_its_line_and_key() {
    for (text, line, key, words) in REFUSED {
        let problems = problems(text);
        let found: Vec<&Problem> = problems.iter().collect();
        let [problem] = found.as_slice() else { panic!("not one problem but:\n{problems}\nof:\n{text}") };
        assert_eq!((problem.line, problem.key.as_str()), (Some(*line), *key), "{text}\n{problems}");
        assert!(problem.message.contains(words), "{text}\n{problems}");
    }
}

#[test]
fn all_is_reported_at_once_in_the_order_of_the_lines() {
    let text = "[server]\nlisten = 5\ncolour = \"red\"\n[[upstream]]\nname = \"a\"\nbase_url = \"h\"\n\
                [truncate_args]\nkeep_messages = 30\n[prune]\nmax_output_chars = \"x\"\n[overflow_recovery]\n\
                [[policy]]\nprune = { protect = 5 }\n";
    let problems = problems(text);
    let found: Vec<_> = problems.iter().map(|problem| (problem.line.unwrap_or(0), problem.key.as_str())).collect();
    let expected = [
        (2, "server.listen"),
        (3, "server.colour"),
        (6, "upstream.base_url"),
        (8, "truncate_args.keep_messages"),
        (10, "prune.max_output_chars"),
        (11, "overflow_recovery"),
        (13, "policy.prune.protect"),
    ];
    assert_eq!(found, expected, "{problems}");
    assert_eq!(problems.to_string().lines().count(), expected.len());
}

#[test]
fn a_syntax_error_does_not_hide_an_unknown_key() {
    let problems = problems("[server]\nlisten = = 5\ncolour = 1\n[prune]\nsize = 5\n");
    let lines: Vec<_> = problems.iter().filter_map(|problem| problem.line).collect();
    assert!(lines.contains(&2) && lines.contains(&3) && lines.contains(&5), "{problems}");
}

#[test]
fn what_two_policies_cannot_mean_together_is_fine_where_they_never_meet() {
    parse(
        "[[policy]]\nmatch = { model = \"gpt*\" }\ncompaction = { keep_tokens = 50 }\n\
         [[policy]]\nmatch = { model = \"claude*\" }\ncompaction = { trigger_tokens = 40 }",
    );
}

#[test]
fn near_misses_are_accepted() {
    parse(
        "[server]\nlisten = \"0.0.0.0:1\"\n[state]\ntenant = \"header:x-user\"\n[[upstream]]\nname = \"a\"\nbase_url = \"http://h\"\napi_key = \"k\"",
    );
    parse("[server]\nadmin_listen = \"0.0.0.0:1\"\nadmin_token = \"t\"");
    parse("[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"");
    parse("[server]\nmax_body_bytes = \"256MiB\"");
    parse("[tool_result_eviction]\nmax_result_chars = 4001");
    parse("[truncate_args]\nkeep_messages = 24");
    parse("[truncate_args]\ntrigger_messages = 0");
    parse("[truncate_args]\nmax_arg_length = 43\ntruncation_text = \"{n}{id}\"");
    assert!(!problems("[truncate_args]\nmax_arg_length = 42\ntruncation_text = \"{n}{id}\"").is_empty());
    parse("[compaction]\ntrigger_tokens = 6\nkeep_tokens = 5");
    parse("[compaction]\ntrigger_tokens = 0\nkeep_tokens = 5");
    parse("[compaction]\nkeep_messages = 20");
    parse("[compaction]\ntrigger_messages = 30\nkeep_messages = 15");
    parse("[[window]]\ninput = 10\ntotal = 10");
}

#[test]
fn a_file_that_is_not_there_is_a_problem_of_its_own() {
    let problems = Config::load(std::path::Path::new("gone/proxy.toml")).expect_err("no file");
    assert!(problems.to_string().starts_with("gone/proxy.toml: cannot be read: "), "{problems}");
}
