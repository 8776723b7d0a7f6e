//! The strict provider and the scripted agent over real sockets.

#![expect(clippy::unwrap_used, reason = "the functions that the tests share")]

use std::sync::Arc;

use bytes::Bytes;
use compactproxy::demo::agent::{Agent, Mode, Outcome};
use compactproxy::demo::answer::Answer;
use compactproxy::demo::chart::{Screen, Style};
use compactproxy::demo::client;
use compactproxy::demo::completion;
use compactproxy::demo::encoding::{Encoding, encode};
use compactproxy::demo::profiles::Profile;
use compactproxy::demo::provider::{Provider, Settings, Verdict};
use compactproxy::demo::request::Api;
use compactproxy::demo::rules::Rules;
use compactproxy::demo::script::{Behaviour, Fault, Gate, Reply};
use compactproxy::demo::session::coding_session;
use compactproxy::demo::surfaces::Surface;
use compactproxy::demo::window::Limit;
use compactproxy::demo::{Ending, WINDOW};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn start(settings: Settings) -> Provider {
    Provider::start(settings).await.unwrap()
}

async fn send(provider: &Provider, headers: &[(&str, &str)], body: Bytes) -> Result<Response<Incoming>, Error> {
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let mut request = Request::post(format!("{}/chat/completions", provider.base_url()));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    client.request(request.body(Full::new(body)).unwrap()).await
}

async fn post(provider: &Provider, body: &Value) -> (StatusCode, HeaderMap, Bytes) {
    let (head, body) = send(provider, &[], body.to_string().into()).await.unwrap().into_parts();
    (head.status, head.headers, body.collect().await.unwrap().to_bytes())
}

fn chat(stream: bool) -> Value {
    json!({"model": "m", "stream": stream, "messages": [{"role": "user", "content": "one two three four five six"}]})
}

#[tokio::test]
async fn a_big_window_lets_the_session_finish() {
    let session = Arc::new(coding_session());
    let mut histories = Vec::new();
    for mode in [Mode::Stream, Mode::Whole] {
        let provider = start(Settings { behaviour: session.behaviour(), ..Settings::default() }).await;
        let mut agent = Agent::new(provider.base_url(), session.clone());
        agent.mode = mode;
        let run = agent.run(|_| {}).await;
        assert_eq!(run.outcome, Outcome::Finished);
        assert_eq!(run.turns.len(), session.steps.len());
        assert_eq!(provider.violations(), []);
        let requests = provider.completions();
        assert!(requests.iter().all(|request| request.verdict == Verdict::Accepted));
        assert!(requests.iter().zip(&run.turns).all(|(request, turn)| request.usage == turn.usage));
        // An unchanged prefix is read from the cache, but for a step and the tail of the last turn.
        let (before, last) = (&requests[requests.len() - 2], &requests[requests.len() - 1]);
        assert!(last.usage.cached + 128 + 3 >= before.usage.prompt);
        // The session itself breaks no profile's rules but Gemini 3's, whose signatures it lacks.
        for profile in Profile::ALL.into_iter().filter(|profile| *profile != Profile::Gemini3) {
            let broken = requests.iter().find_map(|request| Rules::of(profile).check(&request.json()).err());
            assert_eq!(broken, None, "{profile:?}");
        }
        histories.push(run.history);
    }
    assert_eq!(histories[0], histories[1], "streamed or not, the answers are the same");
}

#[tokio::test]
async fn the_session_is_the_same_in_every_api() {
    let mut session = coding_session();
    session.steps.truncate(6);
    let session = Arc::new(session);
    for api in [Api::Chat, Api::Responses, Api::Messages] {
        let mut histories = Vec::new();
        for mode in [Mode::Stream, Mode::Whole] {
            let provider = start(Settings { behaviour: session.behaviour(), ..Settings::default() }).await;
            let mut agent = Agent::new(provider.base_url(), session.clone());
            (agent.api, agent.mode) = (api, mode);
            let run = agent.run(|_| {}).await;
            assert_eq!(run.outcome, Outcome::Finished, "{api:?} {mode:?}");
            assert_eq!(provider.violations(), [], "{api:?} {mode:?}");
            let requests = provider.completions();
            assert_eq!(requests.len(), session.steps.len() + 1);
            assert!(requests.iter().zip(&run.turns).all(|(request, turn)| request.usage == turn.usage));
            assert!(requests.last().unwrap().usage.cached * 2 > requests.last().unwrap().usage.prompt);
            histories.push(client::said(client::of(api), &run.history));
        }
        assert_eq!(histories[0], histories[1], "{api:?}");
    }
}

#[tokio::test]
async fn a_small_window_ends_it() {
    let session = Arc::new(coding_session());
    let settings = Settings { behaviour: session.behaviour(), limit: Limit::of(WINDOW), ..Settings::default() };
    let provider = start(settings).await;
    let run = Agent::new(provider.base_url(), session.clone()).run(|_| {}).await;
    let Outcome::Died(death) = run.outcome else { panic!("it finished") };
    assert!(death.turn > 10 && death.turn < 30 && death.status == 400, "{death:?}");
    assert!(death.message.starts_with("This model's maximum context length is 65536 tokens."), "{death:?}");
    let last = provider.completions().pop().unwrap();
    assert_eq!(last.verdict, Verdict::Overflow);
    assert!(last.usage.prompt >= WINDOW);
}

#[tokio::test]
async fn broken_requests_are_recorded_and_answered() {
    let provider = start(Settings::default()).await;
    let mut orphan = chat(false);
    orphan["messages"][0] = json!({"role": "tool", "tool_call_id": "c", "content": "x"});
    let (status, _, body) = post(&provider, &orphan).await;
    assert_eq!(status, 400);
    assert!(completion::error_message(&body).contains("must be a response to a preceeding message"));
    for (headers, body) in [
        (&[][..], Bytes::from_static(b"{\"model\":")),
        (&[("content-encoding", "gzip")][..], chat(false).to_string().into()),
        (&[("content-encoding", "compress")][..], chat(false).to_string().into()),
        (&[][..], encode(Encoding::Gzip, &[chat(false).to_string().into()]).await.unwrap().concat().into()),
    ] {
        assert_eq!(send(&provider, headers, body).await.unwrap().status(), 400);
    }
    let rules: Vec<&str> = provider.violations().iter().map(|violation| violation.rule).collect();
    assert_eq!(rules, ["C1", "P1", "P1", "P1", "P1"]);
    assert_eq!(provider.completions()[0].verdict, Verdict::Violated("C1"));
}

#[tokio::test]
async fn a_body_shorter_than_its_length_is_recorded() {
    let provider = start(Settings::default()).await;
    let mut stream = TcpStream::connect(provider.addr()).await.unwrap();
    let cut = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{\"model\":";
    stream.write_all(cut).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(provider.completions()[0].verdict, Verdict::Violated("P1"));
}

#[tokio::test]
async fn encoded_bodies_and_answers() {
    for encoding in [Encoding::Gzip, Encoding::Brotli, Encoding::Zstd] {
        let provider = start(Settings { encoding, ..Settings::default() }).await;
        let body: Bytes = encode(encoding, &[chat(true).to_string().into()]).await.unwrap().concat().into();
        let headers = [("content-encoding", encoding.name()), ("accept-encoding", encoding.name())];
        let response = send(&provider, &headers, body.clone()).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-encoding"], encoding.name());
        let mut accepted = HeaderMap::new();
        accepted.insert("content-encoding", encoding.name().parse().unwrap());
        let answered = response.into_body().collect().await.unwrap().to_bytes();
        let decoded = compactproxy::demo::encoding::decode(&accepted, &answered).await.unwrap();
        assert_eq!(completion::from_stream(&decoded).unwrap().text.as_deref(), Some("Done."));
        assert_eq!(provider.completions()[0].body, body);
        let (_, headers, _) = post(&provider, &chat(true)).await;
        assert!(!headers.contains_key("content-encoding"), "the client did not say that it accepts it");
    }
}

#[tokio::test]
async fn what_does_not_fit_is_refused_as_the_surface_says() {
    for surface in Surface::ALL {
        let provider = start(Settings { limit: Limit::of(10), surface, ..Settings::default() }).await;
        for stream in [true, false] {
            let (status, headers, body) = post(&provider, &chat(stream)).await;
            let gzip = headers.get("content-encoding").is_some_and(|encoding| encoding == "gzip");
            assert_eq!(gzip, surface == Surface::Gzip);
            let read = if stream { completion::from_stream(&body) } else { completion::from_json(&body) };
            assert!(status != 200 || read.is_err(), "{surface:?}");
        }
        provider.set_limit(Limit::of(1_000));
        assert_eq!(post(&provider, &chat(false)).await.0, 200);
        let mut greedy = chat(false);
        greedy["max_tokens"] = 2_000.into();
        post(&provider, &greedy).await;
        let verdicts: Vec<Verdict> = provider.completions().iter().map(|request| request.verdict).collect();
        assert_eq!(verdicts, [Verdict::Overflow, Verdict::Overflow, Verdict::Accepted, Verdict::Budget]);
    }
}

#[tokio::test]
async fn a_paced_answer_comes_event_by_event() {
    let gate = Gate::new();
    let answer = Answer { pace: Some(gate.clone()), ..Answer::text("hello") };
    let behaviour = Behaviour::default().after([Reply::Say(answer)]);
    let provider = start(Settings { behaviour, ..Settings::default() }).await;
    let mut body = send(&provider, &[], chat(true).to_string().into()).await.unwrap().into_body();
    gate.permit(1);
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(first.ends_with(b"\n\n") && first.windows(6).filter(|window| window == b"data: ").count() == 1);
    gate.open();
    let rest = body.collect().await.unwrap().to_bytes();
    assert_eq!(completion::from_stream(&[first, rest].concat()).unwrap().text.as_deref(), Some("hello"));
}

#[tokio::test]
async fn connections_break_where_they_should() {
    let cut = Reply::CutOff { answer: Answer::text("hello"), after: 2 };
    let behaviour = Behaviour::default().after([Reply::HangUp, cut]);
    let provider = start(Settings { behaviour, ..Settings::default() }).await;
    assert!(send(&provider, &[], chat(true).to_string().into()).await.is_err());
    let mut body = send(&provider, &[], chat(true).to_string().into()).await.unwrap().into_body();
    let mut received = Vec::new();
    let broken = loop {
        match body.frame().await {
            Some(Ok(frame)) => received.extend(frame.into_data().unwrap()),
            Some(Err(_)) => break true,
            None => break false,
        }
    };
    assert!(broken);
    assert_eq!(String::from_utf8(received).unwrap().matches("data: ").count(), 2);
}

#[tokio::test]
async fn a_late_answer_waits_for_its_gate() {
    let gate = Gate::new();
    let late = Fault::Timeout(gate.clone());
    let behaviour = Behaviour::new(move |request| late.reply(request));
    let provider = start(Settings { behaviour, ..Settings::default() }).await;
    let body = chat(false);
    let mut answer = std::pin::pin!(post(&provider, &body));
    // The request is judged, and still there is no answer.
    while provider.completions().is_empty() {
        assert!(futures_util::poll!(&mut answer).is_pending());
        tokio::task::yield_now().await;
    }
    assert!(futures_util::poll!(&mut answer).is_pending());
    gate.open();
    assert_eq!(answer.await.0, 200);
}

#[tokio::test]
async fn models_are_listed_with_the_announced_window() {
    let models = vec![("m".to_owned(), Some(4_096)), ("n".to_owned(), None)];
    let provider = start(Settings { models, ..Settings::default() }).await;
    let agent = Agent::new(provider.base_url(), Arc::new(coding_session()));
    let (status, body) = agent.fetch(&format!("{}/models", provider.base_url())).await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(status, 200);
    assert_eq!(body["data"][0]["context_length"], 4_096);
    assert_eq!(body["data"][1].get("context_length"), None);
    assert_eq!(agent.fetch(&format!("http://{}/v1/nothing", provider.addr())).await.unwrap().0, 404);
    assert_eq!((provider.requests()[0].method.clone(), provider.completions().len()), (Method::GET, 0));
}

/// A proxy that changes nothing must not pass for one that helps.
#[tokio::test]
async fn the_demo_fails_where_nothing_is_rewritten() {
    let mut out = Vec::new();
    let screen = Screen { width: 80, style: Style::Plain };
    let ending = compactproxy::demo::run(&mut out, screen, Api::Chat, async |addr| Ok((addr, ()))).await.unwrap();
    let out = String::from_utf8(out).unwrap();
    assert_eq!(ending, Ending::SomeBroken, "{out}");
    assert_eq!(out.matches("NOT SO").count(), 9, "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
}
