//! The model reads removed texts back in the same turn: what the client sees of it, what the provider gets, and that
//! what was hidden is there again on every later request.

use std::sync::Arc;

use bytes::Bytes;
use compactproxy::demo::answer::Answer;
use compactproxy::demo::provider::{Provider, Settings};
use compactproxy::demo::request::ModelRequest;
use compactproxy::demo::script::{Gate, Reply, error};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::support::chat::{
    Answered, attempts, call, changed, history, pair, parsed, post, result, send, too_long, with, words,
};
use crate::support::proxy::{open, serve};
use crate::support::recall::{EVICTION, NEEDLE, clients, long, own, says, scripted, sections, step};
use crate::support::wire::patiently;

/// A conversation in which a long result with the needle in its middle has just come.
pub fn asked(name: &str, stream: bool) -> Value {
    let mut body = history(name, 0, 0);
    body["messages"].as_array_mut().unwrap().extend([call(0), result(0, &long())]);
    let tool = json!({"type": "function", "function": {"name": "execute", "parameters": {"type": "object"}}});
    let body = with(&body, json!({"tools": [tool], "stream": stream}));
    if stream { with(&body, json!({"stream_options": {"include_usage": true}})) } else { body }
}

/// What a client made of an answer.
#[derive(Debug, Default, PartialEq)]
pub struct Had {
    pub text: String,
    pub thoughts: String,
    pub calls: Vec<(String, String, String)>,
    pub reason: String,
    pub usage: Value,
}

pub fn read(answer: &Answered) -> Had {
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(!answer.text().contains("read_evicted"), "{}", answer.text());
    let mut had = Had::default();
    let mut add = |choice: &Value, said: &Value| {
        had.text.push_str(said["content"].as_str().unwrap_or_default());
        had.thoughts.push_str(said["reasoning_content"].as_str().unwrap_or_default());
        for (at, call) in said["tool_calls"].as_array().into_iter().flatten().enumerate() {
            let at = call["index"].as_u64().map_or(at, |at| at as usize);
            had.calls.resize(had.calls.len().max(at + 1), Default::default());
            let (id, name, arguments) = &mut had.calls[at];
            id.push_str(call["id"].as_str().unwrap_or_default());
            name.push_str(call["function"]["name"].as_str().unwrap_or_default());
            arguments.push_str(call["function"]["arguments"].as_str().unwrap_or_default());
        }
        if let Some(reason) = choice["finish_reason"].as_str() {
            assert_eq!(had.reason, "", "one reason");
            reason.clone_into(&mut had.reason);
        }
    };
    if answer.header("content-type").starts_with("application/json") {
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        add(&body["choices"][0], &body["choices"][0]["message"]);
        had.usage = body["usage"].clone();
        return had;
    }
    assert!(answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
    let events: Vec<Value> =
        answer.text().lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect();
    assert!(events.iter().all(|event| event["id"] == events[0]["id"]));
    events.iter().filter_map(|event| event["choices"].get(0)).for_each(|choice| add(choice, &choice["delta"]));
    had.usage = events.last().unwrap()["usage"].clone();
    had
}

/// The history of a client that had this, with results, up to a question.
pub fn went_on(body: &Value, had: &Had) -> Value {
    let mut body = body.clone();
    let mut answer = json!({"role": "assistant", "content": had.text});
    if !had.calls.is_empty() {
        let call = |(id, name, arguments): &(String, String, String)| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
        answer["tool_calls"] = had.calls.iter().map(call).collect();
    }
    let results = had.calls.iter().map(|(id, ..)| json!({"role": "tool", "tool_call_id": id, "content": "done"}));
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(answer);
    messages.extend(results);
    messages.push(json!({"role": "user", "content": "Go on."}));
    body
}

/// The messages that a provider got, as bytes, without the closing bracket.
fn sent(body: &[u8]) -> String {
    let text = String::from_utf8(body.to_vec()).unwrap();
    let start = text.find("\"messages\":[").unwrap();
    let end = text.find("],\"model\"").unwrap();
    text[start..end].to_owned()
}

/// What the model was told by the proxy's tool.
fn told(request: &ModelRequest) -> bool {
    let last = request.messages().last().unwrap();
    last["role"] == "tool" && last["content"].as_str().unwrap().contains(NEEDLE)
}

#[tokio::test]
async fn a_tool_of_the_proxys_alone_is_run_in_the_same_turn() {
    for stream in [true, false] {
        let steps = vec![
            step(|request| says("Let me look. ", vec![own(request, 1)])),
            step(|request| says(if told(request) { "It is 4711." } else { "?" }, vec![])),
        ];
        let (provider, proxy) = pair(scripted(steps), &sections("")).await;
        let body = asked("own", stream);
        let answer = post(proxy.proxy_addr, "k", &body).await;
        assert_eq!(answer.actions(), ["evicted"]);
        let had = read(&answer);
        assert_eq!((had.text.as_str(), had.reason.as_str(), had.calls.len()), ("Let me look. It is 4711.", "stop", 0));
        let seen = attempts(&provider);
        let prompts: Vec<u64> = seen.iter().map(|exchange| exchange.usage.prompt).collect();
        let written: u64 = seen.iter().map(|exchange| exchange.usage.completion).sum();
        assert_eq!(had.usage["prompt_tokens"], prompts[1], "of the last call");
        assert_eq!(had.usage["completion_tokens"], written, "of all calls");
        assert_eq!(seen[0].headers["accept-encoding"], "identity");

        let next = went_on(&body, &had);
        read(&post(proxy.proxy_addr, "k", &next).await);
        let after = went_on(&next, &Had { text: "Done.".into(), ..Had::default() });
        read(&post(proxy.proxy_addr, "k", &after).await);
        let seen: Vec<String> = attempts(&provider).iter().map(|exchange| sent(&exchange.body)).collect();
        assert_eq!(seen.len(), 4);
        for (n, pair) in seen.windows(2).enumerate() {
            assert!(pair[1].starts_with(&pair[0]), "{n}: {}\n{}", pair[0], pair[1]);
        }
        assert!(seen[3].contains(NEEDLE) && seen[3].contains("own_1"));
        let tools = attempts(&provider).into_iter().map(|exchange| exchange.json()["tools"].clone());
        let tools: Vec<Value> = tools.collect();
        assert!(tools.iter().all(|offered| *offered == tools[0]), "frozen");
        assert_eq!(provider.violations(), []);
    }
}

#[tokio::test]
async fn calls_of_both_in_one_turn_are_parted_and_put_back() {
    for stream in [true, false] {
        for first in [true, false] {
            let steps = vec![
                step(move |request| {
                    let (mine, yours) = (own(request, 1), clients(7));
                    says("Both.", if first { vec![mine, yours] } else { vec![yours, mine] })
                }),
                step(|request| {
                    let results = request.messages().iter().filter(|message| message["role"] == "tool").count();
                    says(&format!("{results} results"), vec![])
                }),
            ];
            let (provider, proxy) = pair(scripted(steps), &sections("")).await;
            let body = asked("both", stream);
            let had = read(&post(proxy.proxy_addr, "k", &body).await);
            assert_eq!((had.text.as_str(), had.reason.as_str()), ("Both.", "tool_calls"));
            let expected = ("call_7".to_owned(), "execute".to_owned(), r#"{"command":"ls"}"#.to_owned());
            assert_eq!(had.calls, [expected]);
            let next = read(&post(proxy.proxy_addr, "k", &went_on(&body, &had)).await);
            assert_eq!(next.text, "3 results");
            let seen = attempts(&provider).pop().unwrap();
            let messages = seen.json()["messages"].clone();
            let calls = messages[4]["tool_calls"].as_array().unwrap().clone();
            let names: Vec<&str> = calls.iter().map(|call| call["function"]["name"].as_str().unwrap()).collect();
            assert_eq!(names, if first { ["read_evicted", "execute"] } else { ["execute", "read_evicted"] });
            assert!(String::from_utf8_lossy(&seen.body).contains(NEEDLE));
            assert_eq!(provider.violations(), []);
        }
    }
}

#[tokio::test]
async fn what_the_client_calls_alone_passes_byte_for_byte() {
    for stream in [true, false] {
        let steps = || vec![step(|_| says("Run it.", vec![clients(7), clients(8)]))];
        let (provider, proxy) = pair(scripted(steps()), &sections("")).await;
        let answer = post(proxy.proxy_addr, "k", &asked("client", stream)).await;
        assert_eq!(read(&answer).calls.len(), 2);
        let (bare, plain) = pair(scripted(steps()), EVICTION).await;
        let other = post(plain.proxy_addr, "k", &asked("client", stream)).await;
        let ids = |body: &Bytes| String::from_utf8_lossy(body).lines().map(|line| line.to_owned()).collect::<Vec<_>>();
        // The provider numbers its answers by the request's bytes, which have other tools.
        assert_eq!(ids(&answer.body).len(), ids(&other.body).len());
        assert_eq!((attempts(&provider).len(), attempts(&bare).len()), (1, 1));
    }
}

#[tokio::test]
async fn several_calls_several_rounds_and_thoughts_are_one_answer() {
    for stream in [true, false] {
        let steps = vec![
            step(|request| {
                let calls = vec![own(request, 1), own(request, 2)];
                Reply::Say(Answer { reasoning: Some("Think. ".into()), calls, ..Answer::default() })
            }),
            step(|request| {
                assert!(told(request));
                let text = Some("Once more.".to_owned());
                Reply::Say(Answer {
                    reasoning: Some("Again. ".into()),
                    text,
                    calls: vec![own(request, 3)],
                    ..Answer::default()
                })
            }),
            step(|_| says(" Found.", vec![clients(9)])),
        ];
        let (provider, proxy) = pair(scripted(steps), &sections("")).await;
        let body = asked("rounds", stream);
        let had = read(&post(proxy.proxy_addr, "k", &body).await);
        assert_eq!((had.text.as_str(), had.thoughts.as_str()), ("Once more. Found.", "Think. Again. "));
        assert_eq!((had.reason.as_str(), had.calls.len()), ("tool_calls", 1));
        read(&post(proxy.proxy_addr, "k", &went_on(&body, &had)).await);
        let seen: Vec<String> = attempts(&provider).iter().map(|exchange| sent(&exchange.body)).collect();
        assert_eq!(seen.len(), 4);
        assert!(seen.windows(2).all(|pair| pair[1].starts_with(&pair[0])), "{seen:#?}");
        assert!(seen[3].contains("Think. ") && seen[3].contains("Again. "), "thoughts stay with their turn (D8)");
        assert_eq!(provider.violations(), []);
    }
}

#[tokio::test]
async fn rounds_end() {
    for stream in [true, false] {
        let steps = (0..9).map(|n| step(move |request| says(&format!("{n} "), vec![own(request, n)]))).collect();
        let (provider, proxy) = pair(scripted(steps), &sections("max_rounds = 3\n")).await;
        let had = read(&post(proxy.proxy_addr, "k", &asked("rounds end", stream)).await);
        assert_eq!((had.text.as_str(), had.reason.as_str(), had.calls.len()), ("0 1 2 ", "stop", 0));
        assert_eq!(attempts(&provider).len(), 3);
        assert_eq!(provider.violations(), []);
    }
}

#[tokio::test]
async fn an_error_of_a_later_round_is_told_or_the_clients_own_request_takes_its_place() {
    let steps = |said: &'static str| {
        vec![
            step(move |request| says(said, vec![own(request, 1)])),
            step(|_| error(500, "out of order", "server_error", "x")),
            step(|_| says("Without.", vec![])),
        ]
    };
    for stream in [true, false] {
        let (provider, proxy) = pair(scripted(steps("")), &sections("")).await;
        let had = read(&post(proxy.proxy_addr, "k", &asked("error", stream)).await);
        assert_eq!((had.text.as_str(), attempts(&provider).len()), ("Without.", 3));
        assert!(attempts(&provider)[2].json()["tools"].as_array().unwrap().len() == 1, "no tools of the proxy's");
        assert_eq!(provider.violations(), []);
    }

    // What was said cannot be taken back.
    let (_provider, proxy) = pair(scripted(steps("Look. ")), &sections("")).await;
    let answer = post(proxy.proxy_addr, "k", &asked("error", true)).await;
    assert_eq!(answer.status, 200);
    let last = answer.text().trim_end().lines().last().unwrap().strip_prefix("data: ").unwrap().to_owned();
    let last: Value = serde_json::from_str(&last).unwrap();
    assert_eq!(last["error"]["message"], "out of order");
}

#[tokio::test]
async fn an_overflow_in_a_later_round_is_recovered_like_any_other() {
    for stream in [true, false] {
        let steps = vec![
            step(|request| says("Look. ", vec![own(request, 1)])),
            step(|_| too_long(400)),
            step(|_| says("Recovered.", vec![])),
        ];
        let more = "[compaction]\nkeep_tokens = 2000\n";
        let (provider, proxy) = pair(scripted(steps), &format!("{}{more}", sections(""))).await;
        let mut body = asked("overflow", stream);
        let messages = body["messages"].as_array_mut().unwrap();
        for turn in 1..12 {
            messages.insert(1 + turn, json!({"role": "user", "content": words(turn as u64, 1_500)}));
        }
        let had = read(&post(proxy.proxy_addr, "k", &body).await);
        assert_eq!((had.text.as_str(), had.reason.as_str()), ("Look. Recovered.", "stop"));
        assert_eq!(attempts(&provider).len(), 3);
        assert_eq!(provider.violations(), []);
    }
}

#[tokio::test]
async fn a_client_that_goes_in_between_takes_the_upstream_call_with_it() {
    let gate = Gate::new();
    let late = gate.clone();
    let steps = vec![
        step(|request| says("Look. ", vec![own(request, 1)])),
        step(move |_| Reply::Late(late.clone(), Answer::text("Too late."))),
    ];
    let provider = Provider::start(scripted(steps)).await.unwrap();
    let mut metrics = None;
    let proxy =
        changed(parsed(&provider.base_url(), &sections("")), |proxy| metrics = Some(Arc::clone(&proxy.metrics)));
    let metrics = metrics.unwrap();
    let body = asked("gone", true).to_string();
    let mut answer = send(proxy.proxy_addr, &[("authorization", "Bearer k")], body.into()).await.unwrap();
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("Look. ") {
        seen.extend(patiently("text", answer.body_mut().frame()).await.unwrap().unwrap().into_data().unwrap());
    }
    patiently("the second round", async {
        while attempts(&provider).len() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop(answer);
    patiently("the account", async {
        while !metrics.render().lines().any(|line| line.contains("\"client_gone\"") && !line.ends_with(" 0")) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    gate.open();
}

#[tokio::test]
async fn text_comes_before_the_tool_is_run() {
    let gate = Gate::new();
    let late = gate.clone();
    let steps = vec![
        step(|request| says("At once. ", vec![own(request, 1)])),
        step(move |_| Reply::Late(late.clone(), Answer::text("Later."))),
    ];
    let (_provider, proxy) = pair(scripted(steps), &sections("")).await;
    let body = asked("at once", true).to_string();
    let mut answer = send(proxy.proxy_addr, &[("authorization", "Bearer k")], body.into()).await.unwrap();
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("At once. ") {
        seen.extend(patiently("text", answer.body_mut().frame()).await.unwrap().unwrap().into_data().unwrap());
    }
    gate.open();
    let rest = patiently("the rest", answer.into_body().collect()).await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&rest).contains("Later."));
}

#[tokio::test]
async fn what_was_hidden_is_put_back_after_a_restart() {
    for stream in [true, false] {
        let steps = vec![
            step(|request| says("Look. ", vec![own(request, 1)])),
            step(|request| says("Both. ", vec![clients(7), own(request, 2)])),
        ];
        let provider = Provider::start(scripted(steps)).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("state.db").display());
        let start = || serve(parsed(&provider.base_url(), &sections("")), Some(open(&url)), None);
        let body = asked("restart", stream);
        let proxy = start();
        let had = read(&post(proxy.proxy_addr, "k", &body).await);
        let next = went_on(&body, &had);
        read(&post(proxy.proxy_addr, "k", &next).await);
        proxy.stop();
        tokio::task::spawn_blocking(move || proxy.join()).await.unwrap();
        let proxy = start();
        read(&post(proxy.proxy_addr, "k", &next).await);
        let seen = attempts(&provider);
        assert_eq!(seen.len(), 4);
        assert_eq!(seen[3].body, seen[2].body, "the same bytes");
        assert!(sent(&seen[3].body).starts_with(&sent(&seen[1].body)));
        assert!(String::from_utf8_lossy(&seen[3].body).contains("own_2"));
        // Another tenant with the same history has nothing of it.
        read(&post(proxy.proxy_addr, "other", &next).await);
        let other = attempts(&provider).pop().unwrap();
        assert!(!String::from_utf8_lossy(&other.body).contains("own_"));
        assert_eq!(provider.violations(), []);
    }
}

#[tokio::test]
async fn an_edited_answer_stays_as_the_client_has_it() {
    let steps = vec![step(|request| says("Look. ", vec![own(request, 1)])), step(|_| says("Found.", vec![]))];
    let (provider, proxy) = pair(scripted(steps), &sections("")).await;
    let body = asked("edited", true);
    let mut had = read(&post(proxy.proxy_addr, "k", &body).await);
    had.text.push_str(" (edited)");
    read(&post(proxy.proxy_addr, "k", &went_on(&body, &had)).await);
    let last = attempts(&provider).pop().unwrap();
    assert!(!String::from_utf8_lossy(&last.body).contains("own_1"));
    assert!(String::from_utf8_lossy(&last.body).contains("Look. Found. (edited)"));
    assert_eq!(provider.violations(), []);
}

#[tokio::test]
async fn tools_come_only_where_they_may() {
    let (provider, proxy) = pair(Settings::default(), &sections("")).await;
    let offered = |provider: &Provider| {
        let last = attempts(provider).pop().unwrap();
        String::from_utf8_lossy(&last.body).matches("read_evicted").count()
    };
    let body = asked("offers", false);
    for more in
        [json!({"tool_choice": "required"}), json!({"n": 2}), json!({"response_format": {"type": "json_object"}})]
    {
        let name = more.to_string();
        post(proxy.proxy_addr, "k", &with(&asked(&name, false), more)).await;
        assert_eq!(offered(&provider), 0, "{name}");
    }
    let small = with(&history("small", 2, 10), json!({"tools": body["tools"]}));
    post(proxy.proxy_addr, "k", &small).await;
    assert_eq!(offered(&provider), 0, "nothing was removed");
    let mut named = body.clone();
    named["tools"][0]["function"]["name"] = json!("read_evicted");
    post(proxy.proxy_addr, "k", &named).await;
    let last = attempts(&provider).pop().unwrap().json();
    assert_eq!(last["tools"][1]["function"]["name"], "compactproxy_read_evicted");
    let (provider, proxy) = pair(Settings::default(), &sections("inject = \"always\"\n")).await;
    post(proxy.proxy_addr, "k", &small).await;
    assert_eq!(offered(&provider), 1, "always: from the first request");
    let (provider, proxy) = pair(Settings::default(), &sections("inject = \"never\"\n")).await;
    post(proxy.proxy_addr, "k", &body).await;
    assert_eq!(offered(&provider), 0);
}

#[tokio::test]
async fn a_provider_that_takes_no_more_tools_gets_none() {
    let refusal = || {
        step(|request: &ModelRequest| match request.tools().len() {
            1 => says("Fine.", vec![]),
            _ => error(400, "unknown tool", "invalid_request_error", "x"),
        })
    };
    let (provider, proxy) = pair(scripted((0..6).map(|_| refusal()).collect()), &sections("")).await;
    let body = asked("refused", false);
    let had = read(&post(proxy.proxy_addr, "k", &body).await);
    assert_eq!((had.text.as_str(), attempts(&provider).len()), ("Fine.", 2));
    read(&post(proxy.proxy_addr, "k", &went_on(&body, &had)).await);
    assert_eq!(attempts(&provider).len(), 3, "not tried again in this conversation");
}
