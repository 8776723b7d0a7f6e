//! Recorded and self-written errors, with their statuses and inside a success, through the running proxy: what says "too
//! long" is mended before the client sees any of it, everything else passes as it came.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use compactproxy::demo::answer::Answer;
use compactproxy::demo::provider::{Exchange, Provider, Settings};
use compactproxy::demo::request::ModelRequest;
use compactproxy::demo::script::{Behaviour, Reply};
use serde_json::{Value, json};

use crate::recovery::COMPACTION;
use crate::support::chat::{attempts, pair, send_to, whole, with, words};
use crate::support::dialects::{Chat, Dialect, Messages, Responses};
use crate::support::proxy::Served;

const JSON: &str = "application/json";
const STREAM: &str = "text/event-stream";

/// What a provider answers first.
struct Case {
    id: String,
    class: String,
    dialect: &'static dyn Dialect,
    status: u16,
    content_type: &'static str,
    body: Bytes,
}

fn cases(text: &str) -> Vec<Case> {
    let lines = text.lines().filter(|line| !line.is_empty()).map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.flat_map(|line| forms(&line)).collect()
}

/// The forms in which a case may come: as it was recorded, else, inside a success, as a JSON answer and as an event.
fn forms(line: &Value) -> Vec<Case> {
    let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
    let (id, class, body) = (text("id"), text("class"), text("body"));
    let status = u16::try_from(line["status"].as_u64().unwrap()).unwrap();
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
        Case { id, class, dialect, status, content_type, body: body.into() }
    };
    match line["content_type"].as_str() {
        Some(JSON) => vec![of(JSON, body)],
        Some(kind) if kind.starts_with("text/plain") => vec![of("text/plain", body)],
        Some(kind) if kind.starts_with("text/html") => vec![of("text/html", body)],
        Some(_) => vec![of(STREAM, body)],
        None if status != 200 && !body.starts_with('{') => vec![of("text/plain", body)],
        None if status != 200 => vec![of(JSON, body)],
        None if body.starts_with('{') => {
            let event = body.contains("\"error\"").then(|| of(STREAM, format!("data: {body}\n\n")));
            let whole = (!body.contains("response.failed")).then(|| of(JSON, body));
            whole.into_iter().chain(event).collect()
        }
        None if body.contains("\n\n") => vec![of(STREAM, body)],
        None => vec![of(JSON, body)],
    }
}

impl Case {
    fn first(&self) -> Reply {
        let headers = vec![("content-type", self.content_type.to_owned())];
        Reply::Raw { status: self.status, headers, body: self.body.clone() }
    }

    /// A history that no window need hold, most of it the model's own words, with a limit that can be lowered: some errors
    /// tell of eight times what fits.
    fn asked(&self, number: usize) -> Value {
        let dialect = self.dialect;
        let mut items = vec![dialect.user(&format!("{} Rule 1: never touch the folder vendor.", named(number)))];
        for n in 0..24 {
            items.extend(dialect.said(&words(n, 1_000), &[]));
            items.push(dialect.user(&format!("Step {n}.")));
        }
        let key = if dialect.path() == "/v1/responses" { "max_output_tokens" } else { "max_tokens" };
        with(&dialect.request(items, self.content_type == STREAM), json!({ key: 9_000 }))
    }
}

/// By what a case is known in all that is sent for it.
fn named(number: usize) -> String {
    format!("Case {number:04}.")
}

/// A provider that answers each case with its error, once, and the proxy before it.
async fn stage(cases: &[Case]) -> (Provider, Served) {
    let firsts = cases.iter().enumerate().map(|(number, case)| (named(number), case.first()));
    let firsts: Arc<Mutex<HashMap<String, Reply>>> = Arc::new(Mutex::new(firsts.collect()));
    let behaviour = Behaviour::new(move |request: &ModelRequest| {
        let text = request.all_text();
        let name = text.find("Case ").and_then(|at| text.get(at..at + named(0).len())).unwrap_or_default();
        firsts.lock().unwrap().remove(name).unwrap_or_else(|| Answer::text("Done.").reply())
    });
    pair(Settings { behaviour: behaviour.with_summaries(), ..Settings::default() }, COMPACTION).await
}

/// What is wrong with what the client got. Each case has a client of its own: what one teaches is nothing to the others.
async fn fault((provider, proxy): &(Provider, Served), number: usize, case: &Case) -> Option<String> {
    let body = case.dialect.bytes(&case.asked(number));
    let url = format!("http://{}{}", proxy.proxy_addr, case.dialect.path());
    let (name, secret) = case.dialect.credential(&format!("k{number}"));
    let before = attempts(provider).len();
    let answer = whole(send_to(&url, &[(name, &secret)], body.clone()).await.unwrap()).await;
    let sent: Vec<Exchange> = attempts(provider).split_off(before);
    let Case { id, class, status, content_type, .. } = case;
    let told = format!("{id}, {status} as {content_type}: {} attempts, {:?}", sent.len(), answer.text());
    if sent.first().is_none_or(|first| first.body != body) {
        return Some(format!("the first attempt is not the client's own: {told}"));
    }
    let passed = sent.len() == 1 && answer.status == *status && answer.body == case.body;
    let mended = sent.len() == 2 && answer.text().contains("Done.") && sent[1].body != body;
    let right = if class == "negative" { passed } else { mended };
    (!right).then_some(told)
}

async fn check(text: &str) -> usize {
    let cases = cases(text);
    let stage = stage(&cases).await;
    let mut faults = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        faults.extend(fault(&stage, number, case).await);
    }
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), cases.len(), faults.join("\n"));
    cases.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_errors_are_mended_or_pass_as_they_came() {
    match std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/overflow-errors.jsonl")) {
        Ok(text) => assert!(check(&text).await > 100),
        Err(_) => println!("the recorded errors are not here: only the self-written ones are sent"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn self_written_errors_are_mended_or_pass_as_they_came() {
    assert!(check(include_str!("../fixtures/overflow.jsonl")).await > 300);
}
