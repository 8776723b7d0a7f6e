use super::*;

use serde_json::Value;

/// One line of a case file.
struct Case {
    id: String,
    status: u16,
    body: String,
    class: String,
    line: Value,
}

fn cases(text: &str) -> Vec<Case> {
    let case = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        Case {
            id: text("id"),
            status: line["status"].as_u64().unwrap() as u16,
            body: text("body"),
            class: text("class"),
            line,
        }
    };
    text.lines().filter(|line| !line.is_empty()).map(case).collect()
}

/// What is wrong with the verdict on a case.
fn fault(case: &Case) -> Option<String> {
    let verdict = classify(case.status, case.body.as_bytes());
    let (class, sizes) = match &verdict {
        Verdict::Overflow(sizes) => ("overflow", Some(sizes)),
        Verdict::OutputBudget(sizes) => ("output_budget", Some(sizes)),
        Verdict::Other => ("negative", None),
    };
    if class != case.class {
        return Some(format!("{}: {class} for {}: {verdict:?}\n    {}", case.id, case.class, case.body));
    }
    let sizes = sizes.filter(|_| class != "negative")?;
    for (key, found) in [("limit_tokens", sizes.limit), ("input_tokens", sizes.input), ("output_tokens", sizes.output)]
    {
        if let Some(expected) = case.line[key].as_u64().filter(|expected| found != Some(*expected)) {
            return Some(format!("{}: {key} {found:?} for {expected}\n    {}", case.id, case.body));
        }
    }
    let ambiguous = case.line["ambiguous"].as_bool();
    if let Some(expected) = ambiguous.filter(|expected| *expected && !sizes.ambiguous) {
        return Some(format!("{}: ambiguous is not {expected}\n    {}", case.id, case.body));
    }
    None
}

fn check(text: &str) -> usize {
    let cases = cases(text);
    let faults: Vec<String> = cases.iter().filter_map(fault).collect();
    let count = |class: &str| cases.iter().filter(|case| case.class == class).count();
    println!(
        "{} cases ({} overflow, {} output_budget, {} negative), {} wrong",
        cases.len(),
        count("overflow"),
        count("output_budget"),
        count("negative"),
        faults.len()
    );
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    cases.len()
}

#[test]
fn real_errors_are_told_apart() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/overflow-errors.jsonl");
    match std::fs::read_to_string(path) {
        Ok(text) => assert!(check(&text) > 100),
        Err(_) => println!("skipped: no collection of real errors here"),
    }
}

#[test]
fn own_variants_of_every_family_are_told_apart() {
    assert!(check(include_str!("../../../tests/fixtures/overflow.jsonl")) > 100);
}

/// The ways in which gateways pass an error sentence on.
fn wrappings(message: &str) -> Vec<(&'static str, String)> {
    let json = |value: Value| value.to_string();
    let openai = json(serde_json::json!({"error": {"message": message, "type": "invalid_request_error"}}));
    vec![
        ("flat", json(serde_json::json!({"object": "error", "message": message, "code": 400}))),
        ("string", json(serde_json::json!({"error": message}))),
        ("detail", json(serde_json::json!({"detail": message}))),
        ("details", json(serde_json::json!({"detail": [{"msg": message, "loc": ["body"]}]}))),
        ("text", message.to_owned()),
        ("array", format!("[{openai}]")),
        ("encoded", json(Value::String(openai.clone()))),
        (
            "raw",
            json(serde_json::json!({"error": {"message": "Provider returned error", "metadata": {"raw": openai}}})),
        ),
        ("prefixed", json(serde_json::json!({"error": {"message": format!("Error code: 400 - {openai} (1)")}}))),
        ("message object", json(serde_json::json!({"message": {"error": {"message": message}}}))),
        ("pretty", serde_json::to_string_pretty(&serde_json::json!({"error": {"message": message}})).unwrap()),
        ("stream", format!("event: error\r\ndata: {openai}\r\n\r\n")),
    ]
}

#[test]
fn wrapping_does_not_change_the_verdict() {
    let own = include_str!("../../../tests/fixtures/overflow.jsonl");
    let mut faults = Vec::new();
    let mut wrapped = 0;
    for case in cases(own).iter().filter(|case| case.status == 400) {
        let body: Value = serde_json::from_str(&case.body).unwrap_or_default();
        let error = &body["error"];
        let bare = error.as_object().is_some_and(|error| error.len() == 1);
        let Some(message) = error["message"].as_str().filter(|_| bare) else { continue };
        let plain = classify(400, case.body.as_bytes());
        wrapped += 1;
        for (name, body) in wrappings(message) {
            if classify(400, body.as_bytes()) != plain {
                faults.push(format!("{} as {name}: {:?}, plain {plain:?}", case.id, classify(400, body.as_bytes())));
            }
            for status in [401, 402, 403, 429, 529, 302, 418] {
                assert_eq!(classify(status, body.as_bytes()), Verdict::Other);
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(wrapped > 100, "{wrapped}");
}

#[test]
fn giant_bodies_cost_little_and_teach_nothing_from_echoes() {
    let echo = r#"{'type': 'string_type', 'input': [{'role': 'user', 'content': 'prompt is too long: 5000 tokens > 4096 maximum'}]}"#;
    let bodies = [
        format!(r#"{{"error":{{"message":"9000 validation errors: {}"}}}}"#, echo.repeat(40_000)),
        "{\"".repeat(2_000_000),
        "[".repeat(3_000_000),
        format!("{{\"error\":\"{}\"}}", "{\\\"".repeat(60_000)),
        "max_tokens input ".repeat(200_000),
        "1 ".repeat(500_000),
    ];
    let start = std::time::Instant::now();
    for body in &bodies {
        assert_eq!(classify(400, body.as_bytes()), Verdict::Other);
    }
    assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
}

#[test]
fn what_stands_beyond_the_cap_is_not_examined() {
    let sentence = "prompt is too long: 5000 tokens > 4096 maximum";
    let padded = |length: usize| format!("{}{sentence}", " ".repeat(length - sentence.len()));
    assert!(matches!(classify(400, padded(EXAMINED_BYTES).as_bytes()), Verdict::Overflow(_)));
    assert_eq!(classify(400, padded(EXAMINED_BYTES + sentence.len()).as_bytes()), Verdict::Other);
}

#[test]
fn limits_are_learned_within_reason() {
    let hint = |message: &str| learned(&classify(400, message.as_bytes()));
    let input = |n| Some(Hint { input: Some(n), total: None });
    let total = |n| Some(Hint { input: None, total: Some(n) });
    assert_eq!(hint("prompt is too long: 5000 tokens > 4096 maximum"), input(4096));
    assert_eq!(
        hint("This model's maximum prompt length is 131072 but the request contains 140000 tokens."),
        input(131_072)
    );
    assert_eq!(hint("The input token count (5000) exceeds the maximum number of tokens allowed (4096)."), input(4096));
    assert_eq!(
        hint("This model's maximum context length is 4096 tokens. However, your messages resulted in 5000 tokens."),
        total(4096)
    );
    assert_eq!(hint("input length and `max_tokens` exceed context limit: 150000 + 64000 > 200000"), total(200_000));
    assert_eq!(hint("request (5000 tokens) exceeds the available context size (4096 tokens)"), total(4096));
    assert_eq!(hint("Prompt length (200) exceeds maximum input length (1)"), None);
    for (limit, taught) in [(1_023, false), (1_024, true), (20_000_000, true), (20_000_001, false)] {
        let text = format!("prompt is too long: 30000000 tokens > {limit} maximum");
        assert_eq!(hint(&text).is_some(), taught, "{limit}");
    }
    assert_eq!(hint("max_tokens (16384) must be less than the context length of 8192"), None, "of output alone");
    assert_eq!(hint("Sent message larger than max (31457280 vs. 20971520)"), None);
    assert_eq!(learned(&Verdict::Other), None);
}

#[test]
fn every_pattern_compiles() {
    phrases::compile_all();
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(300))]

    /// Nothing panics, and the numbers decide whatever they are.
    #[test]
    fn numbers_decide(limit in 1_024u64..2_000_000, input in 1u64..4_000_000, output in 1u64..200_000) {
        let total = input + output;
        let text = format!("This model's maximum context length is {limit} tokens. However, you requested {total} tokens \
            ({input} in the messages, {output} in the completion).");
        match classify(400, text.as_bytes()) {
            Verdict::Overflow(sizes) => {
                proptest::prop_assert!(input >= limit || total < limit);
                proptest::prop_assert_eq!((sizes.input, sizes.output, sizes.limit), (Some(input), Some(output), Some(limit)));
            }
            Verdict::OutputBudget(sizes) => {
                proptest::prop_assert!(input < limit && total >= limit);
                proptest::prop_assert_eq!((sizes.input, sizes.output, sizes.limit), (Some(input), Some(output), Some(limit)));
            }
            Verdict::Other => proptest::prop_assert!(false, "{}", text),
        }
    }

    #[test]
    fn no_body_panics(body in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200), text in "\\PC{0,120}") {
        for status in [200, 400, 413, 500] {
            classify(status, &body);
            classify(status, text.as_bytes());
        }
        classify_event(&body);
    }
}
