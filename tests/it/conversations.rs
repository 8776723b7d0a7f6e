//! Whole conversations, turn by turn, through the real proxy into the strict provider, in windows that
//! they exceed several times.

mod bytes;
mod chunks;
mod combinations;
mod document;
mod form;
mod situations;
mod stage;
mod walk;

use document::Document;
use form::Form;
use walk::{Report, walk};

/// Turns of a conversation that are walked at most; longer ones are sampled.
const MOST_TURNS: usize = 40;

async fn walk_all(documents: Vec<Document>) {
    let mut walks = tokio::task::JoinSet::new();
    let mut reports = Vec::new();
    for document in documents {
        while walks.len() >= 3 {
            reports.extend(walks.join_next().await.map(Result::unwrap));
        }
        let every = document.turns().len().div_ceil(MOST_TURNS);
        walks.spawn(async move { walk(&document, every).await });
    }
    reports.extend(walks.join_all().await);
    summarize(reports);
}

fn summarize(mut reports: Vec<Report>) {
    reports.sort_by(|a, b| a.name.cmp(&b.name));
    for report in &reports {
        let Report { name, window, raw, turns, unsound, activations, most, summaries, recoveries, overflows, faults } =
            report;
        println!(
            "{name:52} window {window:6} raw {raw:7} turns {turns:3} unsound {unsound} activations {activations:2} of \
             {most:3} summaries {summaries:2} overflows {overflows} recovered {recoveries} faults {}",
            faults.len()
        );
    }
    let faults: Vec<&String> = reports.iter().flat_map(|report| &report.faults).collect();
    assert!(faults.is_empty(), "{} faults:\n{faults:#?}", faults.len());
    assert!(reports.iter().any(|report| report.raw > report.window));
}

async fn walk_recorded(form: Form) {
    match Document::recorded(form) {
        Some(documents) => walk_all(documents).await,
        None => println!("the recorded conversations are not here: only the self-written ones are walked"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_conversations_go_on_in_small_windows() {
    walk_recorded(Form::Chat).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_responses_go_on_in_small_windows() {
    walk_recorded(Form::Responses).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_messages_go_on_in_small_windows() {
    walk_recorded(Form::Messages).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn self_written_conversations_go_on_in_small_windows() {
    for form in [Form::Chat, Form::Responses, Form::Messages] {
        walk_all(Document::fixtures(form)).await;
    }
}
