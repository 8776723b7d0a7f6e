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
    for (key, found) in [("limit_tokens", sizes.limit), ("input_tokens", sizes.input), ("output_tokens", sizes.output)] {
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
