//! An upstream that encodes its answers although it was asked not to: they are read, and become the same answer.

use compactproxy::demo::encoding::{Encodes, Encoding};
use compactproxy::demo::provider::Settings;
use compactproxy::demo::script::Gate;
use http_body_util::BodyExt;

use crate::support::chat::{attempts, pair};
use crate::support::wire::patiently;

use super::*;

const CODINGS: [Encoding; 4] = [Encoding::Gzip, Encoding::Brotli, Encoding::Deflate, Encoding::Zstd];

/// Takes these steps, and encodes all that it says.
fn encoding(steps: Vec<Step>, encoding: Encoding) -> Settings {
    Settings { encoding, encodes: Encodes::All, ..scripted(steps) }
}

fn turn() -> Vec<Step> {
    vec![
        step(|request| thinks("Think. ", "Let me look. ", vec![own(request, 1), own(request, 2)])),
        step(|request| {
            assert!(told(request));
            thinks("Again. ", "Bär 🐻. ", vec![own(request, 3)])
        }),
        step(|_| says("Found.", vec![clients(7)])),
    ]
}

#[tokio::test]
async fn rounds_of_encoded_answers_are_one_answer() {
    for cell in cells() {
        let mut plain: Option<Had> = None;
        for coding in [Encoding::Identity].into_iter().chain(CODINGS) {
            let (provider, proxy) = pair(encoding(turn(), coding), &sections("")).await;
            let body = cell.thinking("coding");
            let answer = cell.dialect.ask(proxy.proxy_addr, "k", &body).await;
            assert_eq!(answer.header("content-encoding"), "", "{cell:?} {coding:?}");
            let length = answer.header("content-length");
            assert!(cell.stream || length == answer.body.len().to_string(), "{cell:?} {coding:?}: {length}");
            let had = cell.dialect.read(&answer);
            let rounds = attempts(&provider);
            assert_eq!(rounds.len(), 3, "{cell:?} {coding:?}");
            assert_usage(&had, &rounds);
            assert_eq!((had.text.as_str(), had.waits, had.calls.len()), ("Let me look. Bär 🐻. Found.", true, 1));
            let plain = plain.get_or_insert_with(|| had.clone());
            assert_eq!((&had.thoughts, &had.text), (&plain.thoughts, &plain.text), "{cell:?} {coding:?}");
            goes_on(cell, &proxy, &provider, (&body, &had)).await;
        }
    }
}

/// What the client calls alone, and what is text alone, with a tool offered.
#[tokio::test]
async fn encoded_answers_without_own_calls_are_read_as_well() {
    for cell in cells() {
        for coding in CODINGS {
            let steps = vec![step(|_| says("Run it.", vec![clients(7)])), step(|_| says("Done so far.", vec![]))];
            let (provider, proxy) = pair(encoding(steps, coding), &sections("")).await;
            let body = cell.asked("alone");
            let had = cell.had(&proxy, &body).await;
            assert_eq!((had.text.as_str(), had.calls.len(), had.waits), ("Run it.", 1, true), "{cell:?} {coding:?}");
            let had = cell.had(&proxy, &cell.dialect.went_on(&body, &had)).await;
            assert_eq!((had.text.as_str(), had.waits), ("Done so far.", false), "{cell:?} {coding:?}");
            assert_eq!(attempts(&provider).len(), 2);
            assert_unhurt(&provider);
        }
    }
}

/// What was sent of an encoded stream is with the client before any more is sent.
#[tokio::test]
async fn the_first_delta_of_an_encoded_stream_does_not_wait() {
    for cell in cells().filter(|cell| cell.stream) {
        for coding in CODINGS {
            let gate = Gate::new();
            let pace = gate.clone();
            let text = "first second ".repeat(20);
            let say = Answer { pace: Some(pace), ..Answer::text(text) };
            let steps = vec![step(move |_| Reply::Say(say.clone()))];
            let (provider, proxy) = pair(encoding(steps, coding), &sections("")).await;
            gate.permit(cell.dialect.openings() + 1);
            let mut answer = cell.dialect.send(proxy.proxy_addr, "k", &cell.asked("delta")).await;
            let mut seen = String::new();
            while !seen.contains("first") {
                let frame = patiently("the first delta", answer.body_mut().frame()).await.unwrap().unwrap();
                seen += std::str::from_utf8(&frame.into_data().unwrap()).unwrap();
            }
            gate.open();
            patiently("the rest", answer.into_body().collect()).await.unwrap();
            assert_unhurt(&provider);
        }
    }
}
