//! Windows that are smaller than the table says: nobody sees the error twice, and nothing waits for that.

use std::time::Duration;

use bytes::Bytes;
use compactproxy::demo::answer::Answer;
use compactproxy::demo::completion;
use compactproxy::demo::provider::{Provider, Settings, Verdict};
use compactproxy::demo::script::{Gate, Reply};
use compactproxy::demo::surfaces::Surface;
use compactproxy::demo::window::Limit;
use http_body_util::BodyExt;
use serde_json::json;

use crate::recovery::{COMPACTION, scripted};
use crate::support::chat::{attempts, changed, history, next_turn, pair, parsed, post, send, with};
use crate::support::wire::patiently;

/// The table knows these models; this server has loaded them with less.
#[tokio::test]
async fn a_window_that_only_the_table_knows_is_not_relied_on() {
    for surface in [Surface::SglangFirstEvent, Surface::AfterBookkeeping, Surface::OpenRouter] {
        for model in ["openai/gpt-oss-20b", "qwen/qwen3-coder-30b", "gpt-4.1"] {
            let settings = Settings { limit: Limit::of(6_000), surface, ..Settings::default() };
            let (provider, proxy) = pair(settings, COMPACTION).await;
            let body = with(&history("a", 12, 1_000), json!({"model": model, "stream": true}));
            assert!(body.to_string().len() < 131_072);
            let answer = post(proxy.proxy_addr, "k", &body).await;
            let told = format!("{surface:?} {model}: {}", answer.text());
            assert!(answer.actions().contains(&"recovered"), "{told}");
            assert_eq!(completion::from_stream(&answer.body).unwrap().text.as_deref(), Some("Done."), "{told}");
            let next = post(proxy.proxy_addr, "k", &next_turn(&body, "Go on.")).await;
            assert_eq!((next.actions(), attempts(&provider).len()), (vec!["checkpoint"], 3), "{told}");
        }
    }
}

/// The hold-back that such a window costs ends with the first event that says something.
#[tokio::test]
async fn output_waits_for_nothing_where_the_window_is_only_the_tables() {
    let gate = Gate::new();
    let answer = Answer { pace: Some(gate.clone()), ..Answer::text("hello") };
    let (_provider, proxy) = pair(scripted([Reply::Say(answer)]), COMPACTION).await;
    let body = with(&history("a", 12, 1_000), json!({"model": "gpt-4.1", "stream": true})).to_string();
    assert!(body.len() > 16 * 1024);
    // The role, and the first text; the rest does not exist yet.
    gate.permit(2);
    let mut events = send(proxy.proxy_addr, &[], body.into()).await.unwrap().into_body();
    let mut seen = Vec::new();
    patiently("the first text", async {
        while !String::from_utf8_lossy(&seen).contains("hello") {
            seen.extend(events.frame().await.unwrap().unwrap().into_data().unwrap());
        }
    })
    .await;
    gate.open();
}

/// A window that is stated is relied on: nothing waits where the body cannot overflow it, however large.
#[tokio::test]
async fn nothing_waits_where_the_window_is_too_wide_to_be_filled() {
    let gate = Gate::new();
    let answer = Answer { pace: Some(gate.clone()), ..Answer::text("hello") };
    let provider = Provider::start(scripted([Reply::Say(answer)])).await.unwrap();
    let window = format!("{COMPACTION}[[window]]\nmodel = \"*\"\ninput = 10_000_000\n");
    let proxy = changed(parsed(&provider.base_url(), &window), |proxy| proxy.hold_time = Duration::from_secs(3_600));
    let body = with(&history("a", 25, 1_000), json!({"stream": true})).to_string();
    assert!(body.len() > 64 * 1024);
    // The role; the rest does not exist yet.
    gate.permit(1);
    let mut events = patiently("the head", send(proxy.proxy_addr, &[], body.into())).await.unwrap().into_body();
    let first = patiently("the role", events.frame()).await.unwrap().unwrap().into_data().unwrap();
    assert!(String::from_utf8_lossy(&first).contains("assistant"));
    gate.open();
}

/// An answer that says something and then that the prompt was too long has gone out: the next one need not.
#[tokio::test]
async fn an_overflow_that_passes_teaches_the_window() {
    let text = "This model's maximum context length is 6000 tokens. However, your messages resulted in 12000 tokens.";
    let error = json!({"error": {"message": text, "type": "invalid_request_error", "code": "context_length_exceeded"}});
    let chunk = json!({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}}]});
    for end in ["", "data: [DONE]\n\n"] {
        let body = Bytes::from(format!("data: {chunk}\n\ndata: {error}\n\n{end}"));
        let headers = vec![("content-type", "text/event-stream".to_owned())];
        let reply = Reply::Raw { status: 200, headers, body: body.clone() };
        let (provider, proxy) = pair(scripted([reply]), COMPACTION).await;
        let ask = |name: &str| with(&history(name, 12, 1_000), json!({"stream": true}));
        let first = post(proxy.proxy_addr, "k", &ask("a")).await;
        assert_eq!((first.status, &first.body), (200, &body), "what was said cannot be taken back");
        let second = patiently("a planned request", async {
            for n in 0.. {
                let answer = post(proxy.proxy_addr, "k", &ask(&format!("b{n}"))).await;
                if !answer.actions().is_empty() {
                    return answer;
                }
            }
            unreachable!()
        })
        .await;
        assert!(second.actions().contains(&"summarized"), "{:?}", second.actions());
        let sent = attempts(&provider).pop().unwrap();
        assert!(sent.verdict == Verdict::Accepted && sent.usage.prompt < 6_000, "{}", sent.usage.prompt);
    }
}
