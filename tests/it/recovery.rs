//! Overflow recovery over real sockets: the client never sees what can be mended, and sees what cannot
//! byte for byte.

use std::sync::Arc;

use compactproxy::demo::agent::Agent;
use compactproxy::demo::answer::Answer;
use compactproxy::demo::client::{self, Ask, Mode};
use compactproxy::demo::completion;
use compactproxy::demo::provider::{Settings, Verdict};
use compactproxy::demo::request::Api;
use compactproxy::demo::script::{Behaviour, Gate, Reply, error};
use compactproxy::demo::session::coding_session;
use compactproxy::demo::surfaces::Surface;
use compactproxy::demo::window::Limit;
use compactproxy::store::{Limits, Store};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::support::chat::{
    attempts, changed, get, history, ids, next_turn, over, pair, parsed, post, post_with, result, send, side_calls,
    too_long, with, words,
};
use crate::support::json::post_text;
use crate::support::wire::{Listener, connect};

pub const COMPACTION: &str = "[compaction]\n";
const WINDOW: u64 = 6_000;

fn settings(surface: Surface) -> Settings {
    Settings { limit: Limit::of(WINDOW), surface, ..Settings::default() }
}

/// Refuses nothing by itself: these replies in order, summaries when asked, then "Done."
pub fn scripted(replies: impl IntoIterator<Item = Reply>) -> Settings {
    Settings { behaviour: Behaviour::default().after(replies).with_summaries(), ..Settings::default() }
}

#[tokio::test]
async fn no_face_of_overflow_reaches_the_client() {
    for surface in Surface::ALL {
        let (provider, proxy) = pair(settings(surface), COMPACTION).await;
        for stream in [false, true] {
            let told = format!("{surface:?}, stream {stream}");
            let key = format!("key-{stream}");
            let before = attempts(&provider).len();
            let body = with(&history("a", 12, 1_000), json!({"stream": stream}));
            let answer = post(proxy.proxy_addr, &key, &body).await;
            assert_eq!(answer.status, 200, "{told}: {}", answer.text());
            let read = if stream { completion::from_stream(&answer.body) } else { completion::from_json(&answer.body) };
            assert_eq!(read.unwrap().text.as_deref(), Some("Done."), "{told}");
            assert!(answer.actions().contains(&"recovered"), "{told}: {:?}", answer.actions());

            let sent = &attempts(&provider)[before..];
            assert_eq!(sent.len(), 2, "{told}");
            assert_eq!((sent[0].verdict, sent[1].verdict), (Verdict::Overflow, Verdict::Accepted), "{told}");
            assert_eq!(sent[0].body, body.to_string(), "{told}: the first attempt is the client's own");
            assert!(sent[1].body.len() < sent[0].body.len() && sent[1].usage.prompt < WINDOW, "{told}");
            assert!(String::from_utf8_lossy(&sent[1].body).contains("Rule 1: never touch the folder vendor."));

            let next = post(proxy.proxy_addr, &key, &next_turn(&body, "Go on.")).await;
            assert_eq!(next.status, 200, "{told}");
            assert_eq!(next.actions(), ["checkpoint"], "{told}");
            assert_eq!(attempts(&provider).len(), before + 3, "{told}: the next turn does not overflow");

            // An error without numbers teaches nothing.
            if surface != Surface::TooLarge {
                let other = with(&history("other", 12, 1_000), json!({"stream": stream}));
                assert_eq!(post(proxy.proxy_addr, &key, &other).await.status, 200, "{told}");
                let sent = &attempts(&provider)[before + 3..];
                assert_eq!(sent.len(), 1, "{told}: planned by the window that was learned");
                assert_eq!(sent[0].verdict, Verdict::Accepted, "{told}");
            }
        }
        assert_eq!(provider.violations(), [], "{surface:?}");
    }
}

#[tokio::test]
async fn an_output_that_does_not_fit_is_lowered_and_nothing_else() {
    for surface in Surface::ALL.into_iter().filter(|surface| *surface != Surface::TooLarge) {
        for field in ["max_tokens", "max_completion_tokens"] {
            let (provider, proxy) =
                pair(Settings { limit: Limit::of(16_000), surface, ..Settings::default() }, COMPACTION).await;
            let body = with(&history("a", 10, 1_000), json!({field: 8_000, "stream": true}));
            let answer = post(proxy.proxy_addr, "k", &body).await;
            let sent = attempts(&provider);
            assert_eq!((answer.status, sent.len()), (200, 2), "{surface:?}: {}", answer.text());
            assert_eq!((sent[0].verdict, sent[1].verdict), (Verdict::Budget, Verdict::Accepted), "{surface:?}");
            let lowered = sent[1].json()[field].as_u64().unwrap();
            assert!((3_000..8_000).contains(&lowered), "{surface:?}: {lowered}");
            assert!(answer.actions().contains(&"output-lowered"), "{surface:?}: {:?}", answer.actions());
            if surface == Surface::OpenAi {
                let mut same = sent[1].json();
                same[field] = 8_000.into();
                assert_eq!(same, body);
                assert_eq!(answer.actions(), ["output-lowered"]);
            }
            let other = if field == "max_tokens" { "max_completion_tokens" } else { "max_tokens" };
            assert_eq!(sent[1].json().get(other), None, "no limit is added");
        }
    }
}

/// Where less than the floor would be left, the history is shortened.
#[tokio::test]
async fn an_output_below_the_floor_is_not_asked_for() {
    enum Place {
        Before,
        Behind,
    }
    for (asked, place) in [(4_000, Place::Before), (7_500, Place::Before), (7_500, Place::Behind)] {
        let limit = Limit::of(8_000);
        let (provider, proxy) = pair(Settings { limit, ..Settings::default() }, COMPACTION).await;
        let body = with(&history("a", 6, 1_000), json!({"max_tokens": asked}));
        let messages = &body["messages"];
        let body = match place {
            Place::Before => format!(r#"{{"model":"demo-model","max_tokens":{asked},"messages":{messages}}}"#),
            Place::Behind => format!(r#"{{"model":"demo-model","messages":{messages},"max_tokens":{asked}}}"#),
        };
        let answer = post_with(proxy.proxy_addr, &[], body.into()).await;
        let sent = attempts(&provider);
        assert_eq!((answer.status, sent.len()), (200, 2), "{asked}: {}", answer.text());
        assert_eq!(sent[0].verdict, Verdict::Budget);
        assert!(sent[1].usage.prompt < sent[0].usage.prompt, "{asked}: compacted");
        assert!(sent[1].json()["max_tokens"].as_u64().unwrap() >= 3_000, "{asked}");
    }
}

#[tokio::test]
async fn what_nothing_can_mend_is_the_clients_byte_for_byte() {
    for surface in Surface::ALL {
        let (provider, proxy) = pair(settings(surface), COMPACTION).await;
        for stream in [false, true] {
            let body = json!({"model": "demo-model", "stream": stream, "messages": [
                {"role": "system", "content": words(1, 8_000)}, {"role": "user", "content": "Hello."}
            ]});
            let direct = post(provider.addr(), "k", &body).await;
            let before = attempts(&provider).len();
            let answer = post(proxy.proxy_addr, "k", &body).await;
            assert_eq!((answer.status, &answer.body), (direct.status, &direct.body), "{surface:?}");
            assert_eq!(answer.header("content-encoding"), direct.header("content-encoding"), "{surface:?}");
            assert_eq!(answer.header("x-compactproxy-action"), "");
            assert_eq!(attempts(&provider).len(), before + 1, "{surface:?} {stream}: one attempt");
            assert!(side_calls(&provider).is_empty());
        }
    }
}

#[tokio::test]
async fn other_refusals_pass_at_once() {
    let statuses = [401, 402, 403, 429, 529];
    let (provider, proxy) = pair(scripted(statuses.map(too_long)), COMPACTION).await;
    for status in statuses {
        let answer = post(proxy.proxy_addr, "k", &history("a", 12, 1_000)).await;
        assert_eq!(answer.status, status);
        assert!(answer.text().contains("context_length_exceeded"));
    }
    assert_eq!(provider.completions().len(), statuses.len());
}

/// The built-in table is wrong about this server: an error is judged although its request should have fitted,
/// and a limit that more than halves what was known counts once it was told twice.
#[tokio::test]
async fn a_window_that_is_smaller_than_its_models_is_learned() {
    let (provider, proxy) = pair(settings(Surface::OpenAi), COMPACTION).await;
    for (name, attempted) in [("a", 2), ("b", 2), ("c", 1)] {
        let before = attempts(&provider).len();
        let body = with(&history(name, 12, 1_000), json!({"model": "gpt-4o"}));
        let answer = post(proxy.proxy_addr, "k", &body).await;
        assert_eq!(answer.status, 200, "{name}: {}", answer.text());
        assert_eq!(attempts(&provider).len(), before + attempted, "{name}");
    }
}

/// What the provider's list of models says of a window holds for every API: no request has to fail first.
#[tokio::test]
async fn a_listed_window_is_known_in_every_api() {
    let session = Arc::new(coding_session());
    let said =
        |turn: u64| ["user", "assistant"].map(|role| json!({"role": role, "content": words(turn, 500)}).to_string());
    let mut history: Vec<String> = (0..12).flat_map(said).collect();
    history.push(json!({"role": "user", "content": "Go on."}).to_string());
    for api in [Api::Chat, Api::Responses, Api::Messages] {
        let models = vec![("listed".to_owned(), Some(WINDOW))];
        let (provider, proxy) = pair(Settings { models, ..settings(Surface::OpenAi) }, COMPACTION).await;
        let url = format!("http://{}/v1", proxy.proxy_addr);
        let mut agent = Agent::new(url.clone(), session.clone());
        agent.api = api;
        agent.fetch(&format!("{url}/models")).await.unwrap();
        let client = client::of(api);
        let ask =
            Ask { model: "listed", session: &session, history: &history, mode: Mode::Whole, max_output: Some(500) };
        let body: Value = serde_json::from_str(&client.body(&ask)).unwrap();
        let credential = client.credential(&agent.key);
        let headers: Vec<(&str, &str)> = credential.iter().map(|(name, value)| (name.as_str(), &**value)).collect();
        let (status, text) = post_text(&format!("{url}/{}", client.path()), &headers, &body).await;
        assert_eq!(status, 200, "{api:?}: {text}");
        let verdicts: Vec<Verdict> = attempts(&provider).iter().map(|exchange| exchange.verdict).collect();
        assert_eq!(verdicts, [Verdict::Accepted], "{api:?}");
    }
}

/// An error has told less than the list says: asking for the list again changes nothing.
#[tokio::test]
async fn a_list_does_not_widen_what_an_error_has_told() {
    let models = vec![("demo-model".to_owned(), Some(131_072))];
    let (provider, proxy) = pair(Settings { models, ..settings(Surface::OpenAi) }, COMPACTION).await;
    assert_eq!(post(proxy.proxy_addr, "k", &history("a", 12, 1_000)).await.status, 200);
    let url = format!("http://{}/v1/models", proxy.proxy_addr);
    let mut client = Agent::new(url.clone(), Arc::new(coding_session()));
    client.key = "k".into();
    client.fetch(&url).await.unwrap();
    let before = attempts(&provider).len();
    assert_eq!(post(proxy.proxy_addr, "k", &history("b", 12, 1_000)).await.status, 200);
    let verdicts: Vec<Verdict> = attempts(&provider).iter().skip(before).map(|sent| sent.verdict).collect();
    assert_eq!(verdicts, [Verdict::Accepted], "planned by what the error told");
}

/// The numbers do not say whether the input or the output is too long: both are made smaller.
#[tokio::test]
async fn what_is_undecidable_is_answered_with_both() {
    let text = "You passed 4193 input tokens and requested 4000 output tokens. However, the model's context length is \
                only 8192 tokens, resulting in a maximum input length of 4192 tokens.";
    let refusal = error(400, text, "BadRequestError", "400");
    let (provider, proxy) = pair(scripted([refusal]), COMPACTION).await;
    let body = with(&history("a", 5, 800), json!({"max_tokens": 4_000}));
    let answer = post(proxy.proxy_addr, "k", &body).await;
    let sent = attempts(&provider);
    assert_eq!((answer.status, sent.len()), (200, 2), "{}", answer.text());
    assert!(sent[1].usage.prompt < sent[0].usage.prompt * 3 / 4);
    assert!((3_000..4_000).contains(&sent[1].json()["max_tokens"].as_u64().unwrap()));
    assert!(answer.actions().contains(&"recovered") && answer.actions().contains(&"output-lowered"));
}

/// It gets recovery like any request, and is never the reason for a summary of the proxy's.
#[tokio::test]
async fn a_clients_own_compaction_starts_no_checkpoint() {
    let sections = "[compaction]\n[[window]]\nmodel = \"*\"\ninput = 6000\n";
    let (provider, proxy) = pair(settings(Surface::OpenAi), sections).await;
    let question = "Your task is to create a detailed summary of the conversation so far.";
    let body = next_turn(&history("a", 5, 1_000), question);
    let answer = post(proxy.proxy_addr, "k", &body).await;
    assert_eq!((answer.status, answer.actions().len(), side_calls(&provider).len()), (200, 0, 0));
    assert_eq!(attempts(&provider)[0].body, body.to_string());

    let long = next_turn(&history("b", 12, 1_000), question);
    let answer = post(proxy.proxy_addr, "k", &long).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.actions().contains(&"recovered"), "{:?}", answer.actions());
    assert_eq!(attempts(&provider).len(), 3);
    assert!(String::from_utf8_lossy(&attempts(&provider)[2].body).contains(question));
    assert_eq!(provider.violations(), []);
}

#[tokio::test]
async fn who_only_observes_sees_the_error() {
    let sections = "[compaction]\n[[policy]]\nmatch = { model = \"*\" }\nmode = \"observe\"\n";
    let (provider, proxy) = pair(settings(Surface::OpenAi), sections).await;
    let body = history("a", 12, 1_000);
    let answer = post(proxy.proxy_addr, "k", &body).await;
    assert_eq!((answer.status, attempts(&provider).len()), (400, 1));
    assert_eq!(answer.body, post(provider.addr(), "k", &body).await.body);
}

#[tokio::test]
async fn with_recovery_off_errors_pass() {
    let sections = "[compaction]\n[overflow_recovery]\nenabled = false\n";
    for surface in Surface::ALL {
        let (provider, proxy) = pair(settings(surface), sections).await;
        for stream in [false, true] {
            let body = with(&history("a", 12, 1_000), json!({"stream": stream}));
            let direct = post(provider.addr(), "k", &body).await;
            let answer = post(proxy.proxy_addr, "k", &body).await;
            assert_eq!((answer.status, answer.body), (direct.status, direct.body), "{surface:?}");
        }
        assert_eq!(attempts(&provider).len(), 4);
        assert!(attempts(&provider).iter().all(|exchange| exchange.verdict == Verdict::Overflow));
    }
}

#[tokio::test]
async fn short_histories_with_huge_messages_recover() {
    let huge = |seed| words(seed, 7_000);
    let user = |text: String| json!({"role": "user", "content": text});
    let said = |text: &str| json!({"role": "assistant", "content": text});
    let mut one_result = history("a", 3, 100);
    one_result["messages"].as_array_mut().unwrap().extend([crate::support::chat::call(9), result(9, &huge(3))]);
    let bodies: Vec<Vec<Value>> = vec![
        vec![user(huge(1)), said("Seen."), user(huge(2))],
        one_result["messages"].as_array().unwrap().clone(),
        vec![user(huge(4))],
        vec![user("Read this.".into()), said("Give it to me."), user(huge(5))],
    ];
    for (n, messages) in bodies.into_iter().enumerate() {
        for stream in [false, true] {
            let (provider, proxy) = pair(settings(Surface::OpenAi), COMPACTION).await;
            let body = json!({"model": "demo-model", "messages": messages, "stream": stream});
            let answer = post(proxy.proxy_addr, "k", &body).await;
            assert_eq!(answer.status, 200, "{n}: {}", answer.text());
            assert_eq!(attempts(&provider).len(), 2, "{n}");
            let next = post(proxy.proxy_addr, "k", &next_turn(&body, "Go on.")).await;
            assert_eq!((next.status, attempts(&provider).len()), (200, 3), "{n}: {}", next.text());
            assert_eq!(provider.violations(), [], "{n}");
        }
    }
}

#[tokio::test]
async fn without_a_store_recovery_runs_and_lasts() {
    let provider = compactproxy::demo::provider::Provider::start(settings(Surface::OpenAi)).await.unwrap();
    let store = Store::in_memory_only(Limits::default()).await.unwrap();
    let proxy = over(parsed(&provider.base_url(), COMPACTION), store, |_| {});
    let body = history("a", 12, 1_000);
    let first = post(proxy.proxy_addr, "k", &body).await;
    assert_eq!(first.status, 200, "{}", first.text());
    assert!(first.actions().contains(&"recovered"));
    let next = post(proxy.proxy_addr, "k", &next_turn(&body, "Go on.")).await;
    assert_eq!((next.status, next.actions()), (200, vec!["checkpoint"]));
    assert_eq!(attempts(&provider).len(), 3);
    let pointers = ids(&attempts(&provider)[2].body);
    assert!(!pointers.is_empty());
    for id in pointers {
        assert_eq!(get(proxy.proxy_addr, &format!("/_compactproxy/evicted/{id}")).await.status, 200);
    }
    // Nothing is planned that could not be kept: the next conversation overflows first.
    let other = post(proxy.proxy_addr, "k", &history("other", 12, 1_000)).await;
    assert!(other.actions().contains(&"recovered"), "{:?}", other.actions());
    assert_eq!(attempts(&provider).len(), 5);
    assert_eq!(provider.violations(), []);
}

#[tokio::test]
async fn a_small_request_is_not_held_back() {
    let gate = Gate::new();
    let answer = Answer { pace: Some(gate.clone()), ..Answer::text("hello") };
    let (provider, proxy) = pair(scripted([Reply::Say(answer)]), COMPACTION).await;
    let body = with(&history("a", 4, 200), json!({"stream": true})).to_string();
    assert!(body.len() < 16 * 1024);
    gate.permit(1);
    let mut events = send(proxy.proxy_addr, &[], body.into()).await.unwrap().into_body();
    let first = events.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(first.starts_with(b"data: ") && first.ends_with(b"\n\n"));
    gate.open();
    let rest = events.collect().await.unwrap().to_bytes();
    assert_eq!(completion::from_stream(&[first, rest].concat()).unwrap().text.as_deref(), Some("hello"));
    assert_eq!(provider.completions().len(), 1);
}

/// After the hold-back's time the head and the bookkeeping are out, and an error is the client's.
#[tokio::test]
async fn what_was_released_is_not_taken_back() {
    let listener = Listener::bind().await;
    let proxy = changed(parsed(&listener.url(), COMPACTION), |proxy| {
        proxy.hold_time = std::time::Duration::from_millis(1);
    });
    let body = with(&history("a", 12, 1_000), json!({"stream": true})).to_string();
    let mut client = connect(proxy.proxy_addr).await;
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: p\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    client.send(head).await;
    client.send(&body).await;
    let mut server = listener.accept().await;
    server.head().await;
    server.exactly(body.len()).await;
    let quiet = r#"data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#;
    let error = r#"data: {"error":{"message":"This model's maximum context length is 6000 tokens. However, your messages resulted in 12000 tokens.","code":"context_length_exceeded"}}"#;
    server.send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n").await;
    server.send(format!("{:x}\r\n{quiet}\n\n\r\n", quiet.len() + 2)).await;
    client.head().await;
    client.until("\n\n\r\n").await;
    server.send(format!("{:x}\r\n{error}\n\n\r\n0\r\n\r\n", error.len() + 2)).await;
    let (data, _) = client.chunked().await;
    assert_eq!(data, format!("{error}\n\n").into_bytes());
}
