use super::*;

const STAGES: StageTimes = [None, Some(Duration::from_micros(20)), None, Some(Duration::from_millis(29))];

fn end<'r>(upstream: &'r str, actions: &'r [&'static str]) -> RequestEnd<'r> {
    RequestEnd {
        dialect: Some(Dialect::Chat),
        upstream,
        outcome: "forwarded",
        total: Duration::from_millis(30),
        stages: STAGES,
        tokens: Some((100, 40)),
        actions,
        rounds: None,
    }
}

#[track_caller]
fn assert_line(page: &str, line: &str) {
    assert!(page.lines().any(|found| found == line), "no line `{line}` in:\n{page}");
}

#[test]
fn a_request_is_recorded_with_all_it_says() {
    let metrics = Metrics::new(["openai"].into_iter());
    metrics.request_ended(&end("openai", &["evicted", "summarized"]));
    metrics.request_ended(&end("openai", &["evicted"]));
    metrics.request_ended(&end("unheard-of", &[]));
    metrics.request_ended(&RequestEnd {
        dialect: None,
        tokens: None,
        stages: StageTimes::default(),
        ..end("openai", &[])
    });
    let page = metrics.render();
    assert_line(&page, r#"compactproxy_requests_total{dialect="chat",upstream="openai",outcome="forwarded"} 2"#);
    assert_line(&page, r#"compactproxy_requests_total{dialect="chat",upstream="other",outcome="forwarded"} 1"#);
    assert_line(&page, r#"compactproxy_requests_total{dialect="none",upstream="openai",outcome="forwarded"} 1"#);
    assert_line(&page, r#"compactproxy_request_duration_seconds_bucket{dialect="chat",upstream="openai",le="0.02"} 0"#);
    assert_line(&page, r#"compactproxy_request_duration_seconds_bucket{dialect="chat",upstream="openai",le="0.05"} 2"#);
    assert_line(&page, r#"compactproxy_stage_duration_seconds_bucket{stage="plan",le="0.00003"} 3"#);
    assert_line(&page, r#"compactproxy_stage_duration_seconds_count{stage="upstream"} 3"#);
    assert_line(&page, r#"compactproxy_actions_total{action="evicted"} 2"#);
    assert_line(&page, r#"compactproxy_actions_total{action="summarized"} 1"#);
    assert_line(&page, "compactproxy_input_tokens_before_total 300");
    assert_line(&page, "compactproxy_input_tokens_after_total 120");
}

#[test]
fn an_answer_of_several_calls_is_recorded_under_its_upstream_and_dialect() {
    let metrics = Metrics::new(["openai", "other"].into_iter());
    assert!(!metrics.render().contains("compactproxy_round_"));
    let rounds = Some(Rounds { calls: 3, input: 300, cached: 200, output: 30 });
    metrics.request_ended(&RequestEnd { rounds, ..end("openai", &[]) });
    metrics.request_ended(&RequestEnd { rounds, ..end("openai", &[]) });
    metrics.request_ended(&RequestEnd { rounds, dialect: Some(Dialect::Messages), ..end("openai", &[]) });
    let page = metrics.render();
    assert_line(&page, r#"compactproxy_round_calls_total{dialect="chat",upstream="openai"} 6"#);
    assert_line(&page, r#"compactproxy_round_input_tokens_total{dialect="chat",upstream="openai"} 600"#);
    assert_line(&page, r#"compactproxy_round_input_tokens_cached_total{dialect="chat",upstream="openai"} 400"#);
    assert_line(&page, r#"compactproxy_round_output_tokens_total{dialect="chat",upstream="openai"} 60"#);
    assert_line(&page, r#"compactproxy_round_calls_total{dialect="messages",upstream="openai"} 3"#);
}

#[test]
fn a_stream_is_open_until_it_is_dropped() {
    let metrics = Metrics::new(std::iter::empty());
    let streams = [metrics.open_stream(), metrics.open_stream()];
    assert_line(&metrics.render(), "compactproxy_open_streams 2");
    drop(streams);
    assert_line(&metrics.render(), "compactproxy_open_streams 0");
}

#[test]
fn the_rest_is_recorded() {
    let metrics = Metrics::new(std::iter::empty());
    metrics.side_call_ended("refused");
    metrics.recovery_ended("replayed");
    metrics.round_ended("again");
    metrics.failed_open(FailOpen::Commit);
    metrics.cached(7);
    metrics.buffered(4096);
    metrics.store(Health::Degraded, 3, 2);
    let page = metrics.render();
    assert_line(&page, r#"compactproxy_side_calls_total{result="refused"} 1"#);
    assert_line(&page, r#"compactproxy_recoveries_total{result="replayed"} 1"#);
    assert_line(&page, r#"compactproxy_fail_opens_total{reason="commit"} 1"#);
    assert_line(&page, "compactproxy_store_dropped_notes_total 2");
    assert_line(&page, "compactproxy_input_tokens_cached_total 7");
    assert_line(&page, "compactproxy_buffered_bytes 4096");
    assert_line(&page, "compactproxy_store_up 0");
    assert_line(&page, "compactproxy_store_degraded 1");
    metrics.store(Health::Off, 0, 2);
    assert_line(&metrics.render(), "compactproxy_store_degraded 0");
}

#[test]
fn every_name_follows_the_rule_and_is_described() {
    let metrics = Metrics::new(std::iter::empty());
    metrics.request_ended(&RequestEnd { rounds: Some(Rounds::default()), ..end("x", &["evicted"]) });
    metrics.side_call_ended("ok");
    metrics.recovery_ended("ok");
    metrics.round_ended("again");
    metrics.failed_open(FailOpen::Lookup);
    let page = metrics.render();
    let names: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert_eq!(names.len(), 22, "{page}");
    for name in names {
        assert!(name.starts_with("compactproxy_"), "{name}");
        assert!(page.contains(&format!("# HELP {name} ")), "{name} is not described");
    }
}
