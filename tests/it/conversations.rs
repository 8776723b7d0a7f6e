//! Whole conversations, turn by turn, through the real proxy into the strict provider, in windows that
//! they exceed several times.

mod bytes;
mod chunks;
mod combinations;
pub mod document;
pub mod form;
mod situations;
mod stage;
mod walk;
mod written;

use document::Document;
use form::Form;
use walk::{Report, walk};

/// `least`: how many there must be.
async fn walk_all(mut documents: Vec<Document>, least: usize) {
    assert!(documents.len() >= least, "only {} conversations", documents.len());
    let mut walks = tokio::task::JoinSet::new();
    let mut reports = Vec::new();
    // The longest takes as long as many others: it begins.
    documents.sort_by_key(|document| std::cmp::Reverse(document.messages.len()));
    for document in documents {
        while walks.len() >= 3 {
            reports.extend(walks.join_next().await.map(Result::unwrap));
        }
        walks.spawn(async move { walk(&document).await });
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
    let all = |count: fn(&Report) -> usize| reports.iter().map(count).sum::<usize>();
    println!(
        "{} conversations, {} turns, {} activations, {} summaries, {} overflows, {} recovered, {} faults",
        reports.len(),
        all(|report| report.turns),
        all(|report| report.activations),
        all(|report| report.summaries),
        all(|report| report.overflows),
        all(|report| report.recoveries),
        all(|report| report.faults.len())
    );
    let faults: Vec<&String> = reports.iter().flat_map(|report| &report.faults).collect();
    assert!(faults.is_empty(), "{} faults:\n{faults:#?}", faults.len());
    assert!(reports.iter().any(|report| report.raw > report.window));
    // All but a few recorded ones are walked for something.
    let sound = |report: &&Report| report.unsound < report.turns;
    let unsound = reports.len() - reports.iter().filter(sound).count();
    assert!(unsound <= reports.len() / 4, "{unsound} of {} were never valid", reports.len());
}

async fn walk_recorded(form: Form, least: usize) {
    match Document::recorded(form) {
        Some(documents) => walk_all(documents, least).await,
        None => println!("the recorded conversations are not here: only the self-written ones are walked"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_conversations_go_on_in_small_windows() {
    walk_recorded(Form::Chat, 37).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_responses_go_on_in_small_windows() {
    walk_recorded(Form::Responses, 24).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_messages_go_on_in_small_windows() {
    walk_recorded(Form::Messages, 23).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn self_written_conversations_go_on_in_small_windows() {
    for (form, least) in [(Form::Chat, 11), (Form::Responses, 10), (Form::Messages, 10)] {
        walk_all(Document::fixtures(form), least).await;
    }
}
