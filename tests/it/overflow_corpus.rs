//! Recorded and self-written errors inside a success, through the running proxy: what says "too long" is mended before
//! the client sees any of it, everything else passes as it came.

use bytes::Bytes;
use compactproxy::demo::script::Reply;
use serde_json::{Value, json};

use crate::recovery::{COMPACTION, scripted};
use crate::support::chat::{attempts, pair, send_to, whole, with, words};
use crate::support::dialects::{Chat, Dialect, Messages, Responses};

const JSON: &str = "application/json";
const STREAM: &str = "text/event-stream";

/// An answer with status 200.
struct Case {
    id: String,
    class: String,
    dialect: &'static dyn Dialect,
    content_type: &'static str,
    body: Bytes,
}

fn cases(text: &str) -> Vec<Case> {
    let lines = text.lines().filter(|line| !line.is_empty()).map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["status"] == 200).flat_map(|line| forms(&line)).collect()
}

/// The forms in which a case may come: as it was recorded, else as a JSON answer and as an event.
fn forms(line: &Value) -> Vec<Case> {
    let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
    let (id, class, body) = (text("id"), text("class"), text("body"));
    if id.starts_with("bedrock") {
        return Vec::new();
    }
    let dialect: &'static dyn Dialect = match line["api"].as_str().unwrap_or("openai_chat") {
        "openai_chat" if body.contains("response.failed") || body.contains("sequence_number") => &Responses,
        "openai_chat" => &Chat,
        "openai_responses" => &Responses,
        "anthropic_messages" => &Messages,
        // None of the proxy's APIs, as is Bedrock's.
        _ => return Vec::new(),
    };
    let of = |content_type: &'static str, body: String| {
        let (id, class) = (id.clone(), class.clone());
        Case { id, class, dialect, content_type, body: body.into() }
    };
    match line["content_type"].as_str() {
        Some(JSON) => vec![of(JSON, body)],
        Some(_) => vec![of(STREAM, body)],
        None if body.starts_with('{') => {
            let event = body.contains("\"error\"").then(|| of(STREAM, format!("data: {body}\n\n")));
            let whole = (!body.contains("response.failed")).then(|| of(JSON, body));
            whole.into_iter().chain(event).collect()
        }
        None if body.contains("\n\n") => vec![of(STREAM, body)],
        None => vec![of(JSON, body)],
    }
}

/// A history that no window need hold, with a limit that can be lowered.
fn asked(dialect: &dyn Dialect, stream: bool) -> Value {
    let mut items = vec![dialect.user("Rule 1: never touch the folder vendor.")];
    for n in 0..12 {
        items.extend(dialect.said(&format!("Step {n}."), &[]));
        items.push(dialect.user(&words(n, 1_000)));
    }
    let key = if dialect.path() == "/v1/responses" { "max_output_tokens" } else { "max_tokens" };
    with(&dialect.request(items, stream), json!({ key: 9_000 }))
}

/// What is wrong with what the client got.
async fn fault(case: &Case) -> Option<String> {
    let headers = vec![("content-type", case.content_type.to_owned())];
    let first = Reply::Raw { status: 200, headers, body: case.body.clone() };
    let (provider, proxy) = pair(scripted([first]), COMPACTION).await;
    let body = case.dialect.bytes(&asked(case.dialect, case.content_type == STREAM));
    let url = format!("http://{}{}", proxy.proxy_addr, case.dialect.path());
    let (name, secret) = case.dialect.credential("k");
    let answer = whole(send_to(&url, &[(name, &secret)], body.clone()).await.unwrap()).await;
    let sent = attempts(&provider);
    let told = format!("{} as {}: {} attempts, {:?}", case.id, case.content_type, sent.len(), answer.text());
    if sent[0].body != body {
        return Some(format!("the first attempt is not the client's own: {told}"));
    }
    let passed = sent.len() == 1 && answer.status == 200 && answer.body == case.body;
    let mended = sent.len() == 2 && answer.text().contains("Done.") && sent[1].body != body;
    let right = if case.class == "negative" { passed } else { mended };
    (!right).then_some(told)
}

async fn check(text: &str) -> usize {
    let cases = cases(text);
    let mut faults = Vec::new();
    for case in &cases {
        faults.extend(fault(case).await);
    }
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), cases.len(), faults.join("\n"));
    cases.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_errors_inside_a_success_are_held_and_mended() {
    match std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/overflow-errors.jsonl")) {
        Ok(text) => assert!(check(&text).await > 8),
        Err(_) => println!("the recorded errors are not here: only the self-written ones are sent"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn self_written_errors_inside_a_success_are_held_and_mended() {
    assert!(check(include_str!("../fixtures/overflow.jsonl")).await > 20);
}
