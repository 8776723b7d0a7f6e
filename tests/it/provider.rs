//! The strict provider and the scripted agent over real sockets.

use std::sync::Arc;

use compactproxy::demo::agent::{Agent, Outcome};
use compactproxy::demo::provider::{Provider, Settings};
use compactproxy::demo::session::coding_session;
use compactproxy::demo::window::Limit;

#[tokio::test]
async fn a_big_window_lets_the_session_finish() {
    let session = Arc::new(coding_session());
    let settings = Settings { behaviour: session.behaviour(), ..Settings::default() };
    let provider = Provider::start(settings).await.unwrap();
    let run = Agent::new(provider.base_url(), session.clone()).run(|_| {}).await;
    assert_eq!(run.outcome, Outcome::Finished);
    for (i, t) in run.turns.iter().enumerate() {
        println!("{} {} {:?}", i + 1, t.request_bytes, t.usage);
    }
    let _ = Limit::of(1);
}

#[tokio::test]
async fn show() {
    let mut out = Vec::new();
    let screen = compactproxy::demo::chart::Screen { width: 100, style: compactproxy::demo::chart::Style::Plain };
    let ending = compactproxy::demo::run(&mut out, screen, async |addr| Ok((addr, ()))).await.unwrap();
    println!("{}{ending:?}", String::from_utf8(out).unwrap());
}
